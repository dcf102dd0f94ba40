/*
 * Streaming zstd in constant memory.
 *
 * Input to decompress is untrusted: a frame with a window larger than 8 MiB is refused, and so is a
 * bomb, beyond 1 GiB more than two thousand times its input.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct zpack;
struct zunpack;

enum { ZSTREAM_OUT = 128 << 10 }; /* how much one call gives at most */

struct zpack *zpack_new(void);
void zpack_free(struct zpack *z);

/*
 * Takes up to n bytes, and gives up to size. *ret_used: of the input; returns how many came out.
 * end: there is no more input. *ret_done: all of it is out. Call it until the input is used and, at
 * the end, until it is done.
 */
size_t zpack_go(struct zpack *z, const void *in, size_t n, bool end, void *out, size_t size,
                size_t *ret_used, bool *ret_done);

struct zunpack *zunpack_new(void);
void zunpack_free(struct zunpack *z);

/* The same the other way round; -1 with *err: it is no zstd, too large a window, or a bomb. */
int zunpack_go(struct zunpack *z, const void *in, size_t n, void *out, size_t size,
               size_t *ret_used, size_t *ret_out, struct err *err);
bool zunpack_is_whole(const struct zunpack *z); /* the input so far ends with a frame */
