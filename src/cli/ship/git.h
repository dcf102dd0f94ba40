/*
 * Runs the owner's git with a fixed environment: no configuration of the user or the system, no
 * hooks, no prompts, no helpers that a repository chooses.
 *
 * Repositories of machines are hostile: run git only through this.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

enum { GIT_SAID_MAX = 1 << 20 };

/* words: arguments of `git`, NULL-terminated. out: receives its standard output; -1: discard it. */
int git_run(const char *const *words, int out, struct err *err);
/* The same with standard input. */
int git_feed(const char *const *words, int in, int out, struct err *err);
/* Its standard output, without the last newline. */
int git_ask(const char *const *words, struct buf *ret, struct err *err);
