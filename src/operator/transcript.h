/* A run's transcript on the disk: lines are added at its end, whole or not at all. */
#pragma once

#include "operator/run.h"

enum { TRANSCRIPT_BYTES_MAX = 256 << 20 };

struct transcript {
    int fd;
    uint64_t size;
};

/* dir/ID.jsonl */
int transcript_new(const char *dir, const char *id, struct transcript *ret, struct err *err);
/* Takes all of its lines; a last one without an end is cut off. `not_found`: there is none. */
int transcript_open(const char *dir, const char *id, struct transcript *ret, struct run *run,
                    struct err *err);
void transcript_close(struct transcript *t);

/* Survives kill -9; for a power cut see transcript_sync(). */
int transcript_add(struct transcript *t, const struct run_event *e, struct err *err);
/* From any thread. */
int transcript_sync(int fd, struct err *err);
/* Whole lines from an offset on, at most about max bytes, at least one. */
int transcript_read(int fd, uint64_t from, size_t max, struct buf *to, struct err *err);
