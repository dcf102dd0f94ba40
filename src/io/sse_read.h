/*
 * Reads server-sent events: bytes in, records out, however the bytes are split.
 *
 * Pure. Lines end with LF, CR LF or CR; data lines of one record are joined by LF; comments and
 * unknown fields are skipped. A record larger than `record_max` is an error.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum { SSE_NAME_SIZE = 80 };

struct sse_reader {
    struct buf line, data;
    char name[SSE_NAME_SIZE]; /* name of the record, cut if it is longer */
    bool has_data;
    bool given;    /* the record was returned: the next call starts another */
    bool after_cr; /* the last byte was CR: an LF that follows belongs to it */
    bool started;  /* past the first bytes, where a byte order mark is allowed */
};

void sse_reader_init(struct sse_reader *r, size_t record_max);
void sse_reader_done(struct sse_reader *r);

/*
 * Takes bytes up to the end of the next record; *used says how many. 1: r has name and data of the
 * record until the next call. 0: all bytes were taken. -1: a line or record is over the limit.
 */
int sse_read(struct sse_reader *r, const char *bytes, size_t n, size_t *used);

/* At the end of the bytes: as sse_read(), for a last record without a blank line after it. */
int sse_read_end(struct sse_reader *r);
