/*
 * A lock file, held as long as its owner lives: one daemon per store and per run directory.
 *
 * The file holds the owner's pid and a line of text for others that find it locked. It is never
 * deleted, because a lock on a deleted file protects nothing.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

enum { LOCK_WORDS_SIZE = 4096 };

struct lock_holder {
    char pid[24]; /* "unknown": the file contains no pid */
    char words[LOCK_WORDS_SIZE];
};

/*
 * Takes the lock and returns the descriptor that holds it. If another process has the lock, returns
 * -1, sets *is_taken and describes that process in *holder.
 */
int lockfile_take(const char *path, const char *words, bool *is_taken, struct lock_holder *holder,
                  struct err *err);

/* Reads who took the lock last. -1: the lock file does not exist or cannot be read. */
int lockfile_read(const char *path, struct lock_holder *ret);

/* True if the process that took the lock may still live. */
bool lockfile_lives(const struct lock_holder *holder);
