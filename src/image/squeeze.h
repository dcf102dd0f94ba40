/*
 * Compresses frames of packs with several threads, and returns them in the order in which they were
 * given. So the result does not depend on the number of threads.
 */
#pragma once

#include "packs/packfile.h"

/* Gets a compressed frame, on the thread that called squeeze_put() or squeeze_end(). */
typedef int squeeze_fn(void *arg, const struct packfile_frame *frame, struct err *err);

struct squeeze;

/* NULL with *err: the threads cannot be started. */
struct squeeze *squeeze_new(unsigned threads, squeeze_fn *fn, void *arg, struct err *err);
void squeeze_free(struct squeeze **s);

/* Takes the frame: *frame is then a new, empty one. Waits while all threads are behind. */
int squeeze_put(struct squeeze *s, struct packfile_frame *frame, struct err *err);
/* Waits for all frames. */
int squeeze_end(struct squeeze *s, struct err *err);
