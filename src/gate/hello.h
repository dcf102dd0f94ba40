/*
 * Extracts the server name from a TLS ClientHello (RFC 8446, 6066), however it is split into
 * records and reads.
 *
 * Pure, no allocation. Strict: two names, or a name with invalid bytes, is `bad`, because a server
 * could read another name than the gate.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gate/name.h"

/* Limit for the bytes of all records; a ClientHello with post-quantum keys has 2 KiB. */
enum { HELLO_MAX = 16384 };

enum hello_verdict {
    HELLO_MORE,    /* call again with all bytes from the start, once more have arrived */
    HELLO_NAMED,   /* well-formed; ret->name is the server name */
    HELLO_UNNAMED, /* well-formed, without a server name */
    HELLO_BAD,
    HELLO_NOT_TLS,
};

struct hello {
    char name[NAME_SIZE];
    bool offers_h2;
};

enum hello_verdict hello_read(const uint8_t *bytes, size_t n, struct hello *ret);
