/*
 * The daemon's state: one SQLite database and one journal below $CARREL_HOME.
 *
 * A struct store belongs to the loop's thread; only store_flush() may be called from others. A
 * write that returned 0 survives kill -9. A thread of the store makes it durable within 200 ms
 * (group commit), so calls here do not wait for the disk (docs/internals/state.md lists the
 * exceptions). Acknowledge what must survive a power failure only after store_flush().
 *
 * Rows are plain structs: store/machines.h, store/execs.h, store/owners.h, store/events.h. Only
 * src/store contains SQL.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "store/journal.h"

enum {
    STORE_NAME_SIZE = 64,    /* names of owners, machines, images; sizes include the NUL */
    STORE_KEY_SIZE = 128,    /* an idempotency key */
    STORE_REASON_SIZE = 160, /* why a machine or command ended */
    STORE_JSON_MAX = 1 << 20,
    STORE_PAGE_MAX = 1000, /* maximum rows in one answer of a list */
};

/* The largest number in a row of the database: thousands of them add up without overflow. */
#define STORE_NUMBER_MAX (1ull << 50)

struct store;

struct store_options {
    const char *home; /* the store directory; created with mode 0700 if missing */
    const char *run;  /* the run directory, for clients that know only the store; NULL: none */
    struct journal_options journal;
    /*
     * Called from within a write if the disk failed; may be NULL. The outcome of that write is
     * unknown, so it must not be reported as done or as failed.
     */
    void (*broken)(const struct err *why);
};

/*
 * Opens the store. ERR_BUSY: another daemon uses it. ERR_UNSUPPORTED: a newer Carrel wrote it. A
 * damaged database or journal is refused with a remedy; nothing is repaired automatically.
 */
int store_open(const struct store_options *options, struct store **ret, struct err *err);

/*
 * Returns the id of the store, "s-...". Boxes (machines in namespaces) carry this id, so that a
 * daemon of another store ignores them.
 */
const char *store_id(const struct store *s);

/* Makes everything durable and closes the store. No thread may be inside store_flush(). */
void store_close(struct store *s);
void store_closep(struct store **s);

/*
 * A transaction of several writes; a write outside one is its own transaction. After any error in a
 * transaction, roll back; store_rollback() without a transaction does nothing.
 */
int store_begin(struct store *s, struct err *err);
int store_commit(struct store *s, struct err *err); /* rolls back on failure */
void store_rollback(struct store *s);
bool store_in_transaction(const struct store *s);

/* True if the last failed write found no space. Such a write may succeed later. */
bool store_is_full(const struct store *s);

/* Appends a record to the journal: one before an effect (intent) and one after it (result). */
int store_log(struct store *s, const struct journal_record *record, uint64_t *ret_seq,
              struct err *err);

/* Returns the number and hash of the last record that was appended. */
void store_journal_head(struct store *s, struct journal_head *ret);

/*
 * Call from a timer: signs the head of the journal (the hash of all records) if there are new
 * records.
 */
int store_sign(struct store *s, struct err *err);

/*
 * Makes everything written before the call durable. Any thread; blocks. After a failed flush the
 * contents of the disk are unknown, so every later write and flush fails too: the daemon must exit,
 * and the next daemon starts from the contents of the disk.
 */
int store_flush(struct store *s, struct err *err);

/*
 * Call from a timer: announces which journal segments (files) will be deleted; *ret_first 0: none.
 * store_forget() then flushes and deletes them; it blocks and may be called from any thread.
 */
int store_announce(struct store *s, const struct journal_keep *keep, uint64_t *ret_first,
                   struct err *err);
int store_forget(struct store *s, uint64_t first, struct err *err);

/* How an operation affects the disk space of the store. */
enum store_use {
    STORE_USES,  /* uses space: refused while the store is full */
    STORE_READS, /* only writes journal records: may use half of the ballast (reserved space) */
    STORE_FREES, /* frees space or revokes rights: may use all of the ballast */
};

/* Checks whether an operation may begin; ERR_LIMIT: the store is full. */
int store_admit(struct store *s, enum store_use use, struct err *err);
/* Deletes the ballast (reserved space) for a write that found no space. False: already deleted. */
bool store_dig(struct store *s);
/*
 * Call from a timer: once there is disk space, creates the ballast again. Then the store is no
 * longer full.
 */
void store_look(struct store *s);

struct store_room {
    uint64_t free_bytes, total_bytes;
    unsigned used_percent;
    bool full;
};
void store_room(const struct store *s, struct store_room *ret);

/* Fails if a disk error makes the store refuse every write. Cheap. */
int store_check(struct store *s, struct err *err);

/* Counters for metrics. */
struct store_stats {
    uint64_t commits;
    uint64_t flushes;     /* group commits and calls of store_flush() */
    uint64_t checkpoints; /* finished checkpoints */
    uint64_t wal_bytes;
    uint64_t db_bytes;
    uint64_t journal_seq;
};
void store_stats(struct store *s, struct store_stats *ret);
