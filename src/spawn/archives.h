/*
 * Starts carrel-image for archives of images. The spawner starts it because only the spawner may
 * write the ids of images, with or without root. Each archive gets its own process, which jails
 * itself before it reads a byte.
 */
#pragma once

#include "base/err.h"
#include "base/fdio.h"
#include "base/wire/plan.h"

struct spawner;
struct undertaker;

/* UNPACK, PACK and DRAW: on 0 the worker was started. in: archive and report. */
int archives_begin(struct spawner *s, const struct plan_message *m, const struct fd_message *in,
                   struct err *err);

/* WIPE: moved away at once, deleted by the undertaker. `busy`: a box uses it. */
int archives_wipe(struct spawner *s, const struct plan_message *m, struct undertaker *u,
                  struct err *err);
