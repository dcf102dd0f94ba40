/*
 * Parses the Range field of a request with one range of bytes (RFC 9110, section 14). A field that
 * is malformed, has another unit or more than one range is ignored, which the RFC allows.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "io/http.h"

struct http_range {
    bool given;
    bool suffix;          /* the range is the last `last` bytes */
    uint64_t first, last; /* last is UINT64_MAX for a range up to the end */
};

struct http_range http_range_parse(struct http_text field);

/*
 * Applies the range to `size` bytes: [*ret_first, *ret_end). False: it is empty, answer with 416.
 */
bool http_range_of(const struct http_range *r, uint64_t size, uint64_t *ret_first,
                   uint64_t *ret_end);
