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
    PG_FIRST_MAX = 10000, /* of a client's first packet: as servers have it */
    PG_GREETING_MAX = 65536,
    PG_KEY_MAX = 256,
    PG_REQUEST_BYTES = 8, /* of one for TLS */
};

enum pg_first {
    PG_MORE, /* give it all bytes from the first one again, with more of them */
    PG_BAD,
    PG_WANTS_TLS, /* or Kerberos: both are asked for by eight bytes, and answered by one */
    PG_CANCEL,    /* ret->key */
    PG_STARTUP,
};

/* The cancel key of a session: process id and secret. */
struct pg_key {
    size_t n; /* of bytes; 0: not known */
    uint8_t bytes[4 + PG_KEY_MAX];
};

/* Texts are in the bytes that were read. */
struct pg_startup {
    size_t size;          /* of the packet */
    const char *user;     /* never NULL */
    const char *database; /* as the server takes it: the user's name when it is not said */
    bool replicates;      /* it asks for the server's log, which is of all databases */
    struct pg_key key;
};

enum pg_first pg_first_read(const uint8_t *bytes, size_t n, struct pg_startup *ret);

/* Asks a server for TLS. */
void pg_put_tls_request(uint8_t ret[PG_REQUEST_BYTES]);

/* A message of the server's: its kind, and what is in it. */
struct pg_message {
    char kind;
    const uint8_t *body;
    size_t n, size; /* of the body, of all of it */
};
/* 1: complete message. 0: more bytes are needed. -1: malformed. */
int pg_message_read(const uint8_t *bytes, size_t n, struct pg_message *ret);

/* Whether the message offers SASL mechanisms. */
bool pg_offers_ways(const struct pg_message *m);
/* Writes the offer without mechanisms that bind to the server's TLS, which ends at the gate. False:
 * malformed, or no mechanism is left. */
bool pg_put_ways(const struct pg_message *m, struct buf *out);

/* Reads the cancel key, if the message is BackendKeyData. */
bool pg_key_read(const struct pg_message *m, struct pg_key *ret);
bool pg_key_equal(const struct pg_key *a, const struct pg_key *b);

/* Writes an ErrorResponse; code is a five-character SQLSTATE. */
bool pg_put_error(const char *code, const char *text, const char *hint, struct buf *out);
