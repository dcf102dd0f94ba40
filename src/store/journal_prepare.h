/*
 * Makes a record ready for the journal: without secrets, long texts shortened. Private to
 * src/store.
 *
 * Every record passes through here before it is written.
 */
#pragma once

#include "store/journal.h"

/* Texts of one record after scrubbing and cutting; freed with it. */
struct prepared {
    struct journal_record record;
    const char *argv[JOURNAL_ARGV_COUNT];
    struct buf texts[4];
    char cut[JOURNAL_ARGV_BYTES + 1];
    char argv_hash[JOURNAL_HEX_SIZE];
};

void journal_prepared_freep(struct prepared **p);
/* The record's own texts stay the caller's, and must live as long. */
struct prepared *journal_prepare(const struct journal_record *r);
