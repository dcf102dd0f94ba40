/*
 * Group commit: a thread that brings to the disk what the loop has written to the kernel, and that
 * keeps the write-ahead log short, so that the loop never waits for the disk.
 *
 * Journal first, then database: after a power cut the journal knows at least what the database
 * does.
 */
#pragma once

#include <sqlite3.h>
#include <stdint.h>

#include "base/err.h"
#include "store/journal.h"

struct flusher;

/* Starts the thread, with its own connection to the database at `path`. */
int flusher_start(const char *path, struct journal *journal, struct flusher **ret, struct err *err);
/* Flushes a last time and joins. */
void flusher_stop(struct flusher *f);

/* The loop wrote something; the log has so many pages now (0: unchanged). Cheap. */
void flusher_touch(struct flusher *f, uint32_t wal_pages);

/* For the loop's connection: the lock of another program is not waited for as long as our own. */
void flusher_keep_waits_short(struct flusher *f, sqlite3 *db);

/* A write or a sync failed in a way that leaves it unknown what the disk holds. Any thread. */
void flusher_fail(struct flusher *f, const struct err *why);

/* 0 unless that has happened; then every write must be refused. Cheap. */
int flusher_check(struct flusher *f, struct err *err);

/* Durable now. Any thread; blocks. */
int flusher_flush(struct flusher *f, struct err *err);

struct flusher_stats {
    uint64_t flushes;
    uint64_t checkpoints;
    uint32_t wal_pages;
};
void flusher_stats(struct flusher *f, struct flusher_stats *ret);
