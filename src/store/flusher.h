/*
 * Group commit: a thread that syncs the loop's writes to disk and keeps the write-ahead log short,
 * so that the loop never waits for the disk.
 *
 * The thread syncs the journal first, then the database. So after a power failure the journal
 * contains at least as much as the database.
 */
#pragma once

#include <sqlite3.h>
#include <stdint.h>

#include "base/err.h"
#include "store/journal.h"

struct flusher;

/* Starts the thread, with its own connection to the database at `path`. */
int flusher_start(const char *path, struct journal *journal, struct flusher **ret, struct err *err);
/* Flushes a last time and ends the thread. */
void flusher_stop(struct flusher *f);

/*
 * Call after a write of the loop. wal_pages: number of pages in the write-ahead log now (0:
 * unchanged). Cheap.
 */
void flusher_touch(struct flusher *f, uint32_t wal_pages);

/*
 * Makes the loop's connection `db` wait less for locks of other programs than for those of the
 * flusher's thread.
 */
void flusher_keep_waits_short(struct flusher *f, sqlite3 *db);

/* Call after a failed write or sync that leaves the contents of the disk unknown. Any thread. */
void flusher_fail(struct flusher *f, const struct err *why);

/* Fails after flusher_fail(): then every write must be refused. Cheap. */
int flusher_check(struct flusher *f, struct err *err);

/* Makes all writes durable. Any thread; blocks. */
int flusher_flush(struct flusher *f, struct err *err);

struct flusher_stats {
    uint64_t flushes;
    uint64_t checkpoints;
    uint32_t wal_pages;
};
void flusher_stats(struct flusher *f, struct flusher_stats *ret);
