/*
 * The Range field of a request, one range of bytes (RFC 9110, section 14): a function from text to
 * numbers. What is malformed, of another unit, or more than one range is as if it were not there,
 * which the RFC allows.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "io/http.h"

struct http_range {
    bool given;
    bool suffix;          /* the last `last` bytes */
    uint64_t first, last; /* last: UINT64_MAX up to the end */
};

struct http_range http_range_parse(struct http_text field);

/* Which bytes of so many: [*ret_first, *ret_end). False: none of them, which is a 416. */
bool http_range_of(const struct http_range *r, uint64_t size, uint64_t *ret_first,
                   uint64_t *ret_end);
