/*
 * One record of the journal as one line of JSON, and back: pure functions from bytes to bytes.
 *
 *   {"seq":7,"time":1763190000123,"kind":"intent","owner":"ann",...,"hash":"<64 hex digits>"}\n
 *
 * The fields are in the order of one table, and absent ones are left out. A record has only one
 * encoding: a line that decodes encodes to the same bytes. The hash is
 * SHA-256(hash of the record before || the line without the field `hash` and its newline).
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
    JOURNAL_TEXT_MAX = 1024,      /* maximum bytes in one text of a record */
    JOURNAL_ARGV_BYTES = 8 << 10, /* maximum bytes in all of argv, with a NUL after each element */
    JOURNAL_ARGV_COUNT = 256,
    JOURNAL_DETAIL_MAX = 8 << 10,
    JOURNAL_HEX_SIZE = 2 * SHA256_BYTES + 1,
    JOURNAL_SIG_BYTES = 64,
};

enum journal_kind {
    JOURNAL_INTENT = 1, /* written before an effect of a request */
    JOURNAL_RESULT,     /* written after the effect */
    JOURNAL_NOTE,       /* an observation of the daemon */
    JOURNAL_SEGMENT, /* the first record of a segment (file); only the journal itself writes it */
    JOURNAL_HEAD,    /* a signature over all records before; only the journal itself writes it */
};

const char *journal_kind_name(enum journal_kind kind);

/*
 * A secret value that must never be written to the journal, and the name that is written instead.
 */
struct journal_secret {
    const char *name;
    const char *value;
    size_t len;
};

/*
 * A text that is NULL or empty is absent from the line. The texts of a decoded record are never
 * NULL.
 */
struct journal_record {
    uint64_t seq;    /* number of the record; filled when the record is appended */
    int64_t time_ms; /* milliseconds since 1970; for 0 journal_append() uses the present time */
    enum journal_kind kind;
    const char *owner;
    const char *token;  /* id of the API token, never its secret */
    const char *client; /* "uid=1000 pid=4711" or an address */
    const char *verb;   /* "machine.create" */
    const char *machine;
    const char *exec;
    const char *const *argv;
    size_t argc;
    uint64_t argv_bytes;   /* length of the whole argv if it was truncated; else 0 */
    const char *argv_hash; /* SHA-256 of the whole argv, with NULs, if truncated */
    bool has_exit;
    int64_t exit;    /* exit status, or 128 + signal */
    uint64_t bytes;  /* bytes of output, or bytes transferred */
    uint64_t intent; /* RESULT: number of the intent record that it belongs to */
    const char *reason;
    uint64_t segment;    /* SEGMENT: number of this segment (file) */
    const char *journal; /* SEGMENT: id of the journal */
    const char *prev;    /* SEGMENT, HEAD: hash of the record before, in hex */
    const char *sig;     /* HEAD: Ed25519 signature, in hex */
    const char *detail;  /* any one JSON value */

    /* Secrets to replace in argv, reason and detail. The secrets are not written. */
    const struct journal_secret *secrets;
    size_t secret_count;
};

/* A decoded record with memory for its texts. Large: do not put it on the stack. */
struct journal_slot {
    struct journal_record record;
    uint8_t hash[SHA256_BYTES]; /* the hash in the line */
    const char *argv[JOURNAL_ARGV_COUNT];
    char text[JOURNAL_LINE_MAX];
};

/*
 * Appends the line of a record, with its newline, to `out`. *hash is the hash of the record before
 * and becomes that of this record. Refuses texts, argv or detail beyond their limits, and detail
 * that is not one JSON value; then neither `out` nor *hash changes.
 */
int journal_record_encode(const struct journal_record *record, uint8_t hash[SHA256_BYTES],
                          struct buf *out, struct err *err);

/*
 * Reads one line (with or without its newline). `prev` is the hash of the record before; NULL
 * leaves the chain unchecked. ERR_INVALID says what is wrong.
 */
int journal_record_decode(const char *line, size_t len, const uint8_t prev[SHA256_BYTES],
                          struct journal_slot *ret, struct err *err);

/*
 * Appends `text` to `out`, with every secret value in it, plain or escaped as in JSON, replaced by
 * [secret NAME]. False: the result does not fit.
 */
bool journal_scrub(const char *text, size_t len, const struct journal_secret *secrets, size_t count,
                   struct buf *out);
