/* Files of variables, as --env-file takes them: NAME=VALUE or NAME per line; # starts a comment. */
#pragma once

#include "base/err.h"

/* Called with each line that is not empty and not a comment; -1 ends the reading. */
typedef int env_file_fn(void *ctx, const char *line, struct err *err);

int env_file_read(const char *path, env_file_fn *each, void *ctx, struct err *err);
