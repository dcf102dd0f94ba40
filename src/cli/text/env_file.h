/*
 * Environment variables for the options --env and --env-file: NAME=VALUE or NAME.
 *
 * A file has one variable per line; empty lines and lines that begin with # are skipped.
 */
#pragma once

#include <stddef.h>

#include "base/err.h"

/* Called with each line that is not empty and not a comment; -1 stops reading. */
typedef int env_file_fn(void *ctx, const char *line, struct err *err);

int env_file_read(const char *path, env_file_fn *each, void *ctx, struct err *err);

/* Splits NAME=VALUE. The value of a plain NAME comes from the environment of this process. */
int env_entry_split(const char *text, size_t *ret_name_len, const char **ret_value,
                    struct err *err);
