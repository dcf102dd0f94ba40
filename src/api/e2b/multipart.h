/*
 * Reads a body of multipart/form-data (RFC 7578) piece by piece.
 *
 * Pure. The caller appends what it received to `in`, which has the cap, and calls multipart_next().
 * How the bytes were cut into pieces never changes what it gets.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "io/http.h"

enum {
    MULTIPART_BOUNDARY_MAX = 70,
    MULTIPART_HEAD_MAX = 16 << 10, /* bytes of the fields of a part */
    MULTIPART_NAME_SIZE = 4096,
    MULTIPART_DATA_MAX = 64 << 10, /* bytes that one call returns */
};

enum multipart_event {
    MULTIPART_MORE, /* bytes are missing */
    MULTIPART_PART, /* a part begins: part_name, file_name */
    MULTIPART_DATA, /* bytes of the part */
    MULTIPART_PART_END,
    MULTIPART_END, /* what follows is ignored */
};

struct multipart {
    struct buf in;
    char delimiter[MULTIPART_BOUNDARY_MAX + 5]; /* "\r\n--BOUNDARY" */
    size_t delimiter_len;
    int state;    /* private */
    size_t taken; /* bytes of `in` that the last event returned */
    char part_name[MULTIPART_NAME_SIZE], file_name[MULTIPART_NAME_SIZE];
    bool has_file_name;
};

/* Reads the boundary from a Content-Type. */
int multipart_init(struct multipart *m, struct http_text type, struct err *err);
void multipart_done(struct multipart *m);

/*
 * Returns an enum multipart_event, or -1 with *err. *ret: the bytes of MULTIPART_DATA, which are
 * valid until the next call, and also while bytes are appended only if the caller copies them.
 */
int multipart_next(struct multipart *m, struct http_text *ret, struct err *err);
