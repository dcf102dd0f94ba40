/*
 * Envelopes and error codes of the Connect protocol, whose messages are JSON here.
 *
 * Pure. A message of a stream is a byte of flags, its length in four bytes (big-endian) and the
 * message. The last envelope of an answer has CONNECT_END and holds {} or the error.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "io/http.h"

/* Numbers of the codes do not occur in the protocol: the names do. */
enum connect_code {
    CONNECT_CANCELED,
    CONNECT_INVALID_ARGUMENT,
    CONNECT_DEADLINE_EXCEEDED,
    CONNECT_NOT_FOUND,
    CONNECT_ALREADY_EXISTS,
    CONNECT_PERMISSION_DENIED,
    CONNECT_RESOURCE_EXHAUSTED,
    CONNECT_FAILED_PRECONDITION,
    CONNECT_UNIMPLEMENTED,
    CONNECT_INTERNAL,
    CONNECT_UNAVAILABLE,
    CONNECT_UNAUTHENTICATED,
    CONNECT_UNKNOWN,
    CONNECT_CODES,
};

/* "not_found", and the HTTP status of an answer that is not a stream: 404. */
const char *connect_code_name(enum connect_code code);
int connect_code_status(enum connect_code code);
enum connect_code connect_code_of(enum err_code code);

enum connect_flag {
    CONNECT_COMPRESSED = 1,
    CONNECT_END = 2,
};

enum { CONNECT_HEAD = 5 }; /* bytes before a message */

/* False: the buffer is full, and unchanged. */
bool connect_put(struct buf *b, uint8_t flags, const char *message, size_t n);

/*
 * Takes the first envelope of *rest, whose message is at most `max` bytes. 1, or 0 if *rest does
 * not hold a whole envelope, or -1 with *err: it is too long or has flags that a request must not
 * have.
 */
int connect_next(struct http_text *rest, size_t max, struct http_text *ret, struct err *err);

/* The only message of a request for a stream. */
int connect_only(struct http_text body, size_t max, struct http_text *ret, struct err *err);
