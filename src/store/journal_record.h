/*
 * One record of the journal as one line of JSON, and back: pure functions from bytes to bytes.
 *
 *   {"seq":7,"time":1763190000123,"kind":"intent","owner":"ann",...,"hash":"<64 hex digits>"}\n
 *
 * The members stand in the order of one table, absent ones are left out, and there is one way only
 * to write a record: what decodes encodes to the same bytes. The hash is
 * SHA-256(hash of the record before || the line without its hash member and newline).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/sha256.h"

enum {
    JOURNAL_LINE_MAX = 128 << 10,
    JOURNAL_TEXT_MAX = 1024,      /* bytes in one text */
    JOURNAL_ARGV_BYTES = 8 << 10, /* in all of argv, with a NUL each */
    JOURNAL_ARGV_COUNT = 256,
    JOURNAL_DETAIL_MAX = 8 << 10,
    JOURNAL_HEX_SIZE = 2 * SHA256_BYTES + 1,
    JOURNAL_SIG_BYTES = 64,
};

enum journal_kind {
    JOURNAL_INTENT = 1, /* before an effect */
    JOURNAL_RESULT,     /* after it */
    JOURNAL_NOTE,       /* something that was noticed */
    JOURNAL_SEGMENT,    /* the first record of a file; only the journal writes it */
    JOURNAL_HEAD,       /* a signature over all before it; only the journal writes it */
};

const char *journal_kind_name(enum journal_kind kind);

/* A value that must never be written, and the name that stands for it. */
struct journal_secret {
    const char *name;
    const char *value;
    size_t len;
};

/* Texts that are NULL or empty are absent; decoded ones are never NULL. */
struct journal_record {
    uint64_t seq;    /* filled when it is appended */
    int64_t time_ms; /* since 1970; 0 when appended: now */
    enum journal_kind kind;
    const char *owner;
    const char *token;  /* id, never the token */
    const char *client; /* "uid=1000 pid=4711" or an address */
    const char *verb;   /* "machine.create" */
    const char *machine;
    const char *exec;
    const char *const *argv;
    size_t argc;
    uint64_t argv_bytes;   /* of the whole, where argv was cut to its first bytes; else 0 */
    const char *argv_hash; /* then also its SHA-256, each element with its NUL */
    bool has_exit;
    int64_t exit;    /* status, or 128 + signal */
    uint64_t bytes;  /* of output, or moved */
    uint64_t intent; /* seq of the intent that this is the result of */
    const char *reason;
    uint64_t segment;    /* SEGMENT: number of this file */
    const char *journal; /* SEGMENT: id of the journal */
    const char *prev;    /* SEGMENT, HEAD: hash of the record before, in hex */
    const char *sig;     /* HEAD: Ed25519, in hex */
    const char *detail;  /* any one JSON value */

    /* Not written: what to replace in argv, reason and detail when it is appended. */
    const struct journal_secret *secrets;
    size_t secret_count;
};

/* Where a decoded record's texts live. Large: keep it off the stack. */
struct journal_slot {
    struct journal_record record;
    uint8_t hash[SHA256_BYTES]; /* as the line says */
    const char *argv[JOURNAL_ARGV_COUNT];
    char text[JOURNAL_LINE_MAX];
};

/*
 * Appends the line of a record to `out`, newline included, and moves *hash from that of the record
 * before to its own. Refused (and neither changed): texts, argv or detail beyond their caps, detail
 * that is not one JSON value.
 */
int journal_record_encode(const struct journal_record *record, uint8_t hash[SHA256_BYTES],
                          struct buf *out, struct err *err);

/*
 * Reads one line (with or without its newline). `prev` is the hash of the record before; NULL
 * leaves the chain unchecked. `invalid` says what is wrong.
 */
int journal_record_decode(const char *line, size_t len, const uint8_t prev[SHA256_BYTES],
                          struct journal_slot *ret, struct err *err);

/*
 * Appends `text` to `out`, with every secret value in it, plain or escaped as in JSON, replaced by
 * [secret NAME]. False: it does not fit.
 */
bool journal_scrub(const char *text, size_t len, const struct journal_secret *secrets, size_t count,
                   struct buf *out);
