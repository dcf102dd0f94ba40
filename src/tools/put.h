/*
 * Replaces a file of a machine atomically, through the tool `put` of the guest.
 */
#pragma once

#include "tools/tool.h"

/* All texts belong to the caller and must live until `ended`. */
struct put_file {
    const char *path, *user;
    const char *condition; /* "any", "absent", or the hash that the file must have */
    const char *mode;      /* octal mode of a new file */
    const char *bytes;
    size_t n;
};

/* err NULL: the file was written. ERR_EXISTS: the condition is not met. */
typedef void put_ended_fn(void *arg, const struct err *err);

/* Writes the file in the machine of the act. `ended` may be called before this returns. */
void put_file(struct act *a, const struct put_file *f, put_ended_fn *ended, void *arg);
