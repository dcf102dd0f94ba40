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
    char pid[24]; /* "unknown": nobody wrote it down */
    char words[LOCK_WORDS_SIZE];
};

/*
 * The descriptor that holds the lock. *is_taken: another process has it, and *holder says which
 * one, for the caller's message.
 */
int lockfile_take(const char *path, const char *words, bool *is_taken, struct lock_holder *holder,
                  struct err *err);

/* Who took it last. -1: nobody ever did, or it cannot be read. */
int lockfile_read(const char *path, struct lock_holder *ret);
