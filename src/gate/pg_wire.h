/*
 * The first packets of a PostgreSQL session (protocol 3), from either side: who wants to be whom in
 * which database, and how the server wants that proved.
 *
 * Pure, no allocation but into a given buffer. Strict: a word that stands there twice, or bytes
 * that are left over, could be read by the server otherwise than here, and are `bad`.
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

/* Who may stop what a session is doing: its process on the server, and a word of its own. */
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
/* 1: there is one. 0: more is needed. -1: that is none. */
int pg_message_read(const uint8_t *bytes, size_t n, struct pg_message *ret);

/* The server offers ways to prove a password by. */
bool pg_offers_ways(const struct pg_message *m);
/* The same offer without those that are bound to the server's TLS, which ends at the gate. False:
 * the message is broken, or has no other. */
bool pg_put_ways(const struct pg_message *m, struct buf *out);

/* What a session is stopped by, if that is what the message tells. */
bool pg_key_read(const struct pg_message *m, struct pg_key *ret);
bool pg_key_equal(const struct pg_key *a, const struct pg_key *b);

/* An error of the server's own form; code: of five characters, as SQL has them. */
bool pg_put_error(const char *code, const char *text, const char *hint, struct buf *out);
