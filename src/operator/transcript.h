/*
 * The transcript file of a run, one event per line.
 *
 * Lines are only appended. A partial last line, after a crash, is truncated.
 */
#pragma once

#include "operator/run.h"

enum { TRANSCRIPT_BYTES_MAX = 256 << 20 };

struct transcript {
    int fd;
    uint64_t size;
};

/* Creates the file dir/ID.jsonl. */
int transcript_new(const char *dir, const char *id, struct transcript *ret, struct err *err);
/* Applies all lines to *run and truncates a partial last line. `not_found`: no such run. */
int transcript_open(const char *dir, const char *id, struct transcript *ret, struct run *run,
                    struct err *err);
void transcript_close(struct transcript *t);

/* The line survives kill -9; transcript_sync() makes it survive a power failure. */
int transcript_add(struct transcript *t, const struct run_event *e, struct err *err);
/* Writes all lines to disk. May be called from any thread. */
int transcript_sync(int fd, struct err *err);
/* Reads complete transcript lines from an offset: at least one, at most about max bytes. */
int transcript_read(int fd, uint64_t from, size_t max, struct buf *to, struct err *err);
