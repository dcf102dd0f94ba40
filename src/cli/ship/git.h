/*
 * Runs the owner's git with a fixed environment: no configuration of the user or the system, no
 * hooks, no prompts, no helpers that a repository chooses.
 *
 * Repositories of machines are hostile: run git only through these functions.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

enum { GIT_SAID_MAX = 1 << 20 };

/*
 * Runs git and waits for it. words: arguments of `git`, NULL-terminated. out: descriptor that
 * receives the standard output; -1: discard it.
 */
int git_run(const char *const *words, int out, struct err *err);
/* Does the same as git_run(), with descriptor `in` as the standard input. */
int git_feed(const char *const *words, int in, int out, struct err *err);
/* Does the same as git_run(), but adds the standard output to `ret`, without trailing newlines. */
int git_ask(const char *const *words, struct buf *ret, struct err *err);

/* Removes a temporary repository. */
void git_temp_remove(const char *dir);

/*
 * Does the same as git_ask() with the owner's and the system's configuration, as the owner's own
 * commands have it. Use it only for the owner's repository. env: more variables, NULL-terminated.
 */
int git_ask_as_owner(const char *const *words, const char *const *env, struct buf *ret,
                     struct err *err);
