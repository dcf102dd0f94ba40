/*
 * Reads server-sent events: bytes in, records out, however the bytes are split.
 *
 * Pure. Lines end with LF, CR LF or CR; data lines of one record are joined by LF; comments and
 * unknown fields are skipped. A record larger than the cap is an error.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum { SSE_NAME_SIZE = 80 };

struct sse_reader {
    struct buf line, data;
    char name[SSE_NAME_SIZE]; /* of the record; a longer one is cut */
    bool has_data;
    bool given;    /* the caller has it: the next call starts another */
    bool after_cr; /* the LF that may follow belongs to the line that has ended */
    bool started;  /* past the place where a byte order mark may stand */
};

void sse_reader_init(struct sse_reader *r, size_t record_max);
void sse_reader_done(struct sse_reader *r);

/*
 * Takes bytes up to the end of the next record; *used says how many. 1: name and data are there
 * until the next call. 0: all were taken. -1: a line or record is larger than the cap.
 */
int sse_read(struct sse_reader *r, const char *bytes, size_t n, size_t *used);

/* The bytes have ended: the same for a last record that no blank line closed. */
int sse_read_end(struct sse_reader *r);
