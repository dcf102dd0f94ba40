/*
 * Streaming zstd in constant memory.
 *
 * Input to decompress is untrusted: a frame with a window larger than 8 MiB is refused, and so is
 * output of more than 1 GiB that is more than 2000 times its input.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct zpack;
struct zunpack;

enum { ZSTREAM_OUT = 128 << 10 }; /* most bytes that one call returns */

struct zpack *zpack_new(void);
void zpack_free(struct zpack *z);

/*
 * Compresses up to n bytes of input into up to `size` bytes of output. Sets *ret_used to the used
 * bytes of input and returns the number of output bytes. `end`: there is no more input. *ret_done:
 * all output was returned. Call it until the input is used and, with `end`, until *ret_done.
 */
size_t zpack_go(struct zpack *z, const void *in, size_t n, bool end, void *out, size_t size,
                size_t *ret_used, bool *ret_done);

struct zunpack *zunpack_new(void);
void zunpack_free(struct zunpack *z);

/*
 * Decompresses; -1 with *err: the input is not zstd, has too large a window, or expands too much.
 */
int zunpack_go(struct zunpack *z, const void *in, size_t n, void *out, size_t size,
               size_t *ret_used, size_t *ret_out, struct err *err);
bool zunpack_is_whole(const struct zunpack *z); /* the input so far ends with a complete frame */
