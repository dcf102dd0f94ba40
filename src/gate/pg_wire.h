/*
 * Parses the first packets of a PostgreSQL session (protocol 3) from both sides: role, database and
 * authentication methods.
 *
 * Pure; writes only to the given buffer. Strict: a repeated parameter or trailing bytes are `bad`,
 * because the server could read them differently.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum {
    PG_FIRST_MAX = 10000, /* bytes of a client's first packet; servers have the same limit */
    PG_GREETING_MAX = 65536,
    PG_KEY_MAX = 256,
    PG_REQUEST_BYTES = 8, /* size of a request for TLS */
};

enum pg_first {
    PG_MORE, /* call again with all bytes from the start, once more have arrived */
    PG_BAD,
    PG_WANTS_TLS, /* a request for TLS or Kerberos: eight bytes, answered with one byte */
    PG_CANCEL,    /* a request to cancel the session with the key ret->key */
    PG_STARTUP,
};

/* The cancel key of a session: process id and secret. */
struct pg_key {
    size_t n; /* number of bytes; 0: not known */
    uint8_t bytes[4 + PG_KEY_MAX];
};

/* The first packet of a client. The strings point into the bytes that were read. */
struct pg_startup {
    size_t size;          /* size of the packet */
    const char *user;     /* never NULL */
    const char *database; /* the user's name if the packet names no database: servers do the same */
    bool replicates;      /* the client requests replication, which would read all databases */
    struct pg_key key;
};

enum pg_first pg_first_read(const uint8_t *bytes, size_t n, struct pg_startup *ret);

/* Writes the packet that asks a server for TLS. */
void pg_put_tls_request(uint8_t ret[PG_REQUEST_BYTES]);

/* A message of the server: its kind and its body. */
struct pg_message {
    char kind;
    const uint8_t *body;
    size_t n, size; /* bytes of the body, and of the whole message */
};
/* Reads a message of the server. 1: complete. 0: more bytes are needed. -1: malformed. */
int pg_message_read(const uint8_t *bytes, size_t n, struct pg_message *ret);

/* Whether the message offers SASL mechanisms. */
bool pg_offers_ways(const struct pg_message *m);
/* Writes the offer without SASL mechanisms that bind to the server's TLS, which ends at the gate.
 * False: malformed, or no mechanism is left. */
bool pg_put_ways(const struct pg_message *m, struct buf *out);

/* Reads the cancel key, if the message is BackendKeyData. */
bool pg_key_read(const struct pg_message *m, struct pg_key *ret);
bool pg_key_equal(const struct pg_key *a, const struct pg_key *b);

/* Writes an ErrorResponse; code is a five-character SQLSTATE. */
bool pg_put_error(const char *code, const char *text, const char *hint, struct buf *out);
