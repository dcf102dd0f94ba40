/*
 * Streaming gzip in constant memory, for clients that know no better coding.
 *
 * Input to decompress is untrusted. There is no limit on how much it expands: the caller takes the
 * output piece by piece and limits it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct gzip;

struct gzip *gzip_new(void);   /* compresses */
struct gzip *gunzip_new(void); /* decompresses */
void gzip_free(struct gzip *z);

/*
 * Takes up to n bytes of input and makes up to `size` bytes of output. end: there is no more input.
 * 1: the stream has ended; 0: call it again with the rest, or with more; -1 with *err: the input is
 * not gzip. Input after the end of a stream is refused.
 */
int gzip_go(struct gzip *z, const void *in, size_t n, bool end, void *out, size_t size,
            size_t *ret_used, size_t *ret_out, struct err *err);
