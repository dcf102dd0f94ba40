/*
 * The journal: who asked for what, what was done, and how it ended. Append-only, hash-chained.
 *
 * It is a folder of segments 00000001.log, 00000002.log, ... of JSON lines
 * (store/journal_record.h). Each segment starts with a record that names the hash before it, and
 * ends, as do every so many records, with a head: the chain's hash, signed with an Ed25519 key of
 * this host (`key`, for the owner alone; `key.pub` beside it). Heads are given away as well, so
 * that a journal that was cut or rolled back can be told from a whole one. docs/journal.md has the
 * format.
 *
 * One thread appends; journal_sync() may be called from any.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "base/sha256.h"
#include "store/journal_record.h"

struct journal;

/* All records up to seq, in one hash. As text "SEQ:HEX": journal_head_text(). */
struct journal_head {
    uint64_t seq;
    uint8_t hash[SHA256_BYTES];
    uint8_t sig[JOURNAL_SIG_BYTES]; /* zero when it is not a signed one */
};

enum { JOURNAL_HEAD_TEXT = 96, JOURNAL_PUBKEY_BYTES = 32 };

struct journal_options {
    uint64_t segment_bytes; /* a new file after so many; 0: 4 MiB */
    uint64_t head_every;    /* records between heads; 0: 1024 */
    void (*on_head)(void *arg, const struct journal_head *head); /* for the system log; or NULL */
    void *on_head_arg;
    /* A head that was durable before; NULL: none is known. A journal that ends before it, or says
     * something else there, is `gone`; one that is absent is begun anew with a note. */
    const struct journal_head *expected;
};

/*
 * Makes the folder, the key and the first segment when there are none. After a crash a last line
 * without its newline is cut off, and a note says so. Anything else that is broken in the last
 * segment is refused: nothing is ever appended to a chain that does not hold.
 */
int journal_open(const char *dir, const struct journal_options *options, struct journal **ret,
                 struct err *err);
void journal_close(struct journal *j);

/*
 * Appends all of them with one write, or none. Secrets are replaced first, then what is too long
 * is cut and says so; only a detail that is no JSON value or over its cap is refused. ret_seq: of
 * the first; may be NULL.
 */
int journal_append(struct journal *j, const struct journal_record *records, size_t count,
                   uint64_t *ret_seq, struct err *err);

/* Why the file could not be written, if the last append failed for that: -errno, else 0. */
int journal_error(const struct journal *j);

/* Appends a head unless the last record is one. 1: it did, 0: there was nothing new. */
int journal_sign(struct journal *j, struct err *err);

/* How much of it is kept; 0 each: everything. Whole segments go, from the front; two always stay.
 */
struct journal_keep {
    int64_t since_ms;
    uint64_t bytes;
};

/*
 * Announces, in a signed record, that the journal begins later from now on; *ret_first 0: there is
 * nothing to forget. journal_forget() then removes what is before that segment; from any thread,
 * and only once the announcement is on the disk.
 */
int journal_announce(struct journal *j, const struct journal_keep *keep, uint64_t *ret_first,
                     struct err *err);
int journal_forget(struct journal *j, uint64_t first, struct err *err);

/* Everything appended before the call is on the disk when this returns 0. Any thread; blocks. */
int journal_sync(struct journal *j, struct err *err);

/* The chain as it stands; sig is zero. */
void journal_at(const struct journal *j, struct journal_head *ret);

/* The last record that is known to be on the disk. From any thread. */
void journal_synced(struct journal *j, struct journal_head *ret);

/* "SEQ:HEX". */
void journal_head_text(const struct journal_head *head, char ret[JOURNAL_HEAD_TEXT]);
int journal_head_parse(const char *text, struct journal_head *ret, struct err *err);

/* The public key of a journal, from its key.pub or any file like it (PEM). */
int journal_pubkey_read(const char *path, uint8_t ret[JOURNAL_PUBKEY_BYTES], struct err *err);

/* ---- Proof ---- */

#define JOURNAL_LOST "journal.lost" /* the first record after a journal that is gone */

struct journal_report {
    uint64_t segments;
    uint64_t first_segment;   /* 1 unless what was before it was forgotten */
    uint64_t first_seq;       /* of its first record */
    uint64_t records;         /* good ones, up to the end or the first broken one */
    struct journal_head head; /* after them */
    uint64_t
        signed_seq;    /* what the last good signature covers; records after it are chained only */
    uint64_t lost_seq; /* of a record which says that what was before it is gone; 0: none does */
    char segment[16];  /* of the first broken record: file, line and number; empty: none */
    uint64_t line;
    uint64_t seq;
    char why[200];
};

/*
 * Reads the whole journal, in constant memory, and proves every hash, number and signature.
 * expected: a head seen elsewhere, or NULL. 0: whole. -1: `invalid` names the first broken record,
 * `gone` a missing tail or a journal rolled back; *ret is filled either way.
 */
int journal_verify(const char *dir, const uint8_t pubkey[JOURNAL_PUBKEY_BYTES],
                   const struct journal_head *expected, struct journal_report *ret,
                   struct err *err);

/* ---- Reading ---- */

/* NULL and 0 match all. */
struct journal_filter {
    int64_t since_ms;
    int64_t until_ms;
    uint64_t after_seq;
    const char *owner;
    const char *machine;
    const char *verb; /* also all below it: "machine" matches "machine.create" */
    size_t tail;      /* only the last so many that match, at most 100,000 */
    bool structural;  /* segment and head records too */
};

struct journal_reader;

/* Works beside a daemon that appends. Texts of the filter must live as long as the reader. */
int journal_reader_open(const char *dir, const struct journal_filter *filter,
                        struct journal_reader **ret, struct err *err);
void journal_reader_close(struct journal_reader *r);

/*
 * 1: the next record, with its line as it stands in the file; both live until the next call. 0: no
 * more for now; calling again later goes on with what was appended. -1: a record does not decode.
 */
int journal_reader_next(struct journal_reader *r, const struct journal_record **ret,
                        const char **ret_line, size_t *ret_len, struct err *err);
