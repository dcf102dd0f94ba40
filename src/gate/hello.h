/*
 * The name in a TLS ClientHello (RFC 8446, 6066), however the bytes are cut into records and reads.
 *
 * Pure, no allocation. Strict: two names, or a name with odd bytes, is `bad`: it would be an
 * attempt to show one name here and another to the server.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gate/name.h"

enum { HELLO_MAX = 16384 }; /* of records and all; hellos with post-quantum keys have 2 KiB */

enum hello_verdict {
    HELLO_MORE,    /* give it all bytes from the first one again, with more of them */
    HELLO_NAMED,   /* ret->name */
    HELLO_UNNAMED, /* well-formed, without a name */
    HELLO_BAD,
    HELLO_NOT_TLS,
};

struct hello {
    char name[NAME_SIZE];
    bool offers_h2;
};

enum hello_verdict hello_read(const uint8_t *bytes, size_t n, struct hello *ret);
