/*
 * Starts the program carrel-image, which packs and unpacks archives of images. The spawner starts
 * it because only the spawner may create files with the user and group ids that images contain,
 * also without root. Each archive gets its own process, which jails itself before it reads a byte.
 */
#pragma once

#include "base/err.h"
#include "base/fdio.h"
#include "base/wire/plan.h"

struct spawner;
struct undertaker;

/*
 * Handles the requests UNPACK, PACK and DRAW. 0: the worker was started. in: descriptors of the
 * image archive and of the pipe on which the worker reports.
 */
int archives_begin(struct spawner *s, const struct plan_message *m, const struct fd_message *in,
                   struct err *err);

/*
 * Handles the request WIPE: moves an image to the trash directory at once; the undertaker deletes
 * it there. ERR_BUSY: a box uses the image.
 */
int archives_wipe(struct spawner *s, const struct plan_message *m, struct undertaker *u,
                  struct err *err);
