/*
 * The daemon's state: one SQLite database and one journal below $CARREL_HOME.
 *
 * A struct store belongs to one thread, the loop's; only store_flush() may be called from others.
 * A write that returned 0 survives kill -9 of everything: it is with the kernel. A thread of the
 * store's own makes it durable within 200 ms (group commit), so that calls here do not wait for
 * the disk (docs/state.md names the rare exceptions). What must not be lost in a power cut is
 * acknowledged only after store_flush().
 *
 * Rows are plain structs: store/machines.h, store/execs.h, store/owners.h, store/events.h. Nobody
 * outside src/store writes SQL.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "store/journal.h"

enum {
    STORE_NAME_SIZE = 64,    /* names of owners, machines, images; with the NUL, as below */
    STORE_KEY_SIZE = 128,    /* an idempotency key */
    STORE_REASON_SIZE = 160, /* why a machine or a command ended */
    STORE_JSON_MAX = 1 << 20,
    STORE_PAGE_MAX = 1000, /* rows in one answer of a list */
};

/* The largest number that a row takes: thousands of them still add up without overflow. */
#define STORE_NUMBER_MAX (1ull << 50)

struct store;

struct store_options {
    const char *home; /* made, for the owner alone, when it is missing */
    struct journal_options journal;
    /*
     * The disk failed under a write: called at once, from within the write, and may be NULL. Who
     * goes on afterwards must not tell anybody of that write, neither that it was done nor not.
     */
    void (*broken)(const struct err *why);
};

/*
 * `busy`: another daemon has it open. `unsupported`: a newer Carrel wrote it. A damaged database or
 * journal is refused with the remedy; nothing is repaired by guessing.
 */
int store_open(const struct store_options *options, struct store **ret, struct err *err);

/* "s-..." Boxes carry it, so that no daemon of another store takes them for its own. */
const char *store_id(const struct store *s);

/* Makes everything durable, then lets go. No thread may be inside store_flush() any more. */
void store_close(struct store *s);
void store_closep(struct store **s);

/*
 * Several writes as one. Every write outside of a begin and a commit is a commit of its own. After
 * any error inside, roll back; store_rollback() without a transaction does nothing.
 */
int store_begin(struct store *s, struct err *err);
int store_commit(struct store *s, struct err *err); /* rolls back when it fails */
void store_rollback(struct store *s);
bool store_in_transaction(const struct store *s);

/* The last write that failed did so for want of room: the same write may succeed later. */
bool store_is_full(const struct store *s);

/* One record for the journal, before the effect (intent) and after it (result). */
int store_log(struct store *s, const struct journal_record *record, uint64_t *ret_seq,
              struct err *err);

/* The last record that was appended. */
void store_journal_head(struct store *s, struct journal_head *ret);

/* For a timer: signs a head of the journal when there is something new to sign. */
int store_sign(struct store *s, struct err *err);

/*
 * Everything written before the call is on the disk when this returns 0. From any thread; it
 * blocks. After a failed flush nobody knows what the disk holds, so every later write and flush
 * fails too: the daemon must leave, and the next one starts from what is really there.
 */
int store_flush(struct store *s, struct err *err);

/*
 * For a timer: what of the journal is to be forgotten is announced (*ret_first 0: nothing), then
 * removed. store_forget() flushes first; it blocks, and may be called from any thread.
 */
int store_announce(struct store *s, const struct journal_keep *keep, uint64_t *ret_first,
                   struct err *err);
int store_forget(struct store *s, uint64_t first, struct err *err);

/* What a verb does to the room that the store has. */
enum store_use {
    STORE_USES,  /* it takes some; refused while the store is full */
    STORE_READS, /* it takes that of its records, and may use up half of the ballast for them */
    STORE_FREES, /* it gives some back, or takes rights away: it may use up the ballast */
};

/* May a verb begin? `limit`: the store is full. */
int store_admit(struct store *s, enum store_use use, struct err *err);
/* Gives up the ballast for a write that found no room; false: it is gone already. */
bool store_dig(struct store *s);
/* For a timer: `full` ends, and the ballast is made again, when there is room. */
void store_look(struct store *s);

struct store_room {
    uint64_t free_bytes, total_bytes;
    unsigned used_percent;
    bool full;
};
void store_room(const struct store *s, struct store_room *ret);

/* 0 while all is well; else why every write is refused now. Cheap. */
int store_check(struct store *s, struct err *err);

/* For metrics. */
struct store_stats {
    uint64_t commits;
    uint64_t flushes;     /* group commits and calls of store_flush() */
    uint64_t checkpoints; /* finished ones */
    uint64_t wal_bytes;
    uint64_t db_bytes;
    uint64_t journal_seq;
};
void store_stats(struct store *s, struct store_stats *ret);
