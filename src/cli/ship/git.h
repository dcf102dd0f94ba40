/*
 * The owner's git, run with nothing but what we say: no configuration of the user's or the
 * system's, no hooks, no prompts, no helpers of a repository's choice.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

enum { GIT_SAID_MAX = 1 << 20 };

/* words: after `git`, NULL-terminated. out: its standard output goes there; -1: nowhere. */
int git_run(const char *const *words, int out, struct err *err);
/* The same with something on its standard input. */
int git_feed(const char *const *words, int in, int out, struct err *err);
/* What it printed, without the last newline. */
int git_ask(const char *const *words, struct buf *ret, struct err *err);
