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

/* Handles UNPACK, PACK and DRAW. 0: the worker was started. in: descriptors of the archive and of
 * the report. */
int archives_begin(struct spawner *s, const struct plan_message *m, const struct fd_message *in,
                   struct err *err);

/* Handles WIPE: moves an image to the trash at once; the undertaker deletes it there. ERR_BUSY: a
 * box uses the image. */
int archives_wipe(struct spawner *s, const struct plan_message *m, struct undertaker *u,
                  struct err *err);
