/*
 * Prepares a record for the journal: removes secrets and shortens long texts. Private to src/store.
 *
 * Every record passes through here before it is written.
 */
#pragma once

#include "store/journal.h"

/* A prepared record and the texts that it owns. */
struct prepared {
    struct journal_record record;
    const char *argv[JOURNAL_ARGV_COUNT];
    struct buf texts[4];
    char cut[JOURNAL_ARGV_BYTES + 1];
    char argv_hash[JOURNAL_HEX_SIZE];
};

void journal_prepared_freep(struct prepared **p);
/* The caller keeps the texts of `r` and must not free them before the result. */
struct prepared *journal_prepare(const struct journal_record *r);
