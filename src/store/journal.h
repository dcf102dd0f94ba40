/*
 * The journal: who requested what, what was done, and how it ended. Append-only, hash-chained.
 *
 * It is a directory of segments 00000001.log, 00000002.log, ... of JSON lines
 * (store/journal_record.h). Each segment starts with a record that holds the previous hash. It ends
 * with a head, the hash of the chain signed with an Ed25519 key of this host (`key`, private to the
 * owner; `key.pub` beside it); more heads are written in between. Heads also go to the system log,
 * so that a journal that was cut or rolled back is detected. docs/reference/journal.md describes
 * the format.
 *
 * One thread appends records; journal_sync() may be called from any thread.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "base/sha256.h"
#include "store/journal_record.h"

struct journal;

/* A head: one hash over all records up to seq. journal_head_text() writes it as "SEQ:HEX". */
struct journal_head {
    uint64_t seq;
    uint8_t hash[SHA256_BYTES];
    uint8_t sig[JOURNAL_SIG_BYTES]; /* zero: the head is not signed */
};

enum { JOURNAL_HEAD_TEXT = 96, JOURNAL_PUBKEY_BYTES = 32 };

struct journal_options {
    uint64_t segment_bytes; /* size at which a new file starts; 0: 4 MiB */
    uint64_t head_every;    /* records between heads; 0: 1024 */
    /* called for each signed head, to write it to the system log; or NULL */
    void (*on_head)(void *arg, const struct journal_head *head);
    void *on_head_arg;
    /*
     * A head known to be durable; NULL: none. A journal that ends before it or contradicts it is
     * refused with ERR_GONE. If the journal is missing, a new one starts with a record about the
     * loss.
     */
    const struct journal_head *expected;
};

/*
 * Creates directory, key and first segment if missing. After a crash a partial last line is
 * truncated and noted. Any other damage in the last segment is refused: nothing is appended to a
 * broken chain.
 */
int journal_open(const char *dir, const struct journal_options *options, struct journal **ret,
                 struct err *err);
void journal_close(struct journal *j);

/*
 * Appends all records with one write, or none. Secrets are replaced first, then long texts are
 * truncated and marked. Only a detail that is not JSON or too long is refused. ret_seq: number of
 * the first record; may be NULL.
 */
int journal_append(struct journal *j, const struct journal_record *records, size_t count,
                   uint64_t *ret_seq, struct err *err);

/* Returns -errno if the last append could not write to the segment (file), else 0. */
int journal_error(const struct journal *j);

/* Appends a signed head, unless the last record is one. Returns 1 if it did, else 0. */
int journal_sign(struct journal *j, struct err *err);

/*
 * How much of the journal to keep; 0: everything. Whole segments are deleted, the oldest first. The
 * last two segments always stay.
 */
struct journal_keep {
    int64_t since_ms;
    uint64_t bytes;
};

/*
 * Writes a signed record that the journal will start at a later segment; *ret_first 0: nothing to
 * delete. journal_forget() then deletes the earlier segments; any thread, and only after the record
 * is durable.
 */
int journal_announce(struct journal *j, const struct journal_keep *keep, uint64_t *ret_first,
                     struct err *err);
int journal_forget(struct journal *j, uint64_t first, struct err *err);

/* Makes everything appended before the call durable. Any thread; blocks. */
int journal_sync(struct journal *j, struct err *err);

/* Returns the head after the last appended record, without a signature. */
void journal_at(const struct journal *j, struct journal_head *ret);

/* Returns the head after the last record known to be durable. Any thread. */
void journal_synced(struct journal *j, struct journal_head *ret);

/* Write and read a head as "SEQ:HEX". */
void journal_head_text(const struct journal_head *head, char ret[JOURNAL_HEAD_TEXT]);
int journal_head_parse(const char *text, struct journal_head *ret, struct err *err);

/* Reads the public key of a journal from its key.pub or a copy of that file (PEM). */
int journal_pubkey_read(const char *path, uint8_t ret[JOURNAL_PUBKEY_BYTES], struct err *err);

/* ---- Verification ---- */

#define JOURNAL_LOST "journal.lost" /* the first record of a journal that replaces a lost one */

struct journal_report {
    uint64_t segments;
    uint64_t first_segment;   /* 1 unless earlier segments were deleted */
    uint64_t first_seq;       /* number of the journal's first record */
    uint64_t records;         /* number of valid records, up to the end or the first broken one */
    struct journal_head head; /* the head after these records */
    uint64_t signed_seq;      /* last record that a valid signature covers */
    uint64_t lost_seq;        /* record which says that earlier ones were lost; 0: none */
    char segment[16];         /* of the first broken record: file, line and number; empty: none */
    uint64_t line;
    uint64_t seq;
    char why[200];
};

/*
 * Verifies every hash, number and signature of the journal, in constant memory. expected: a head
 * seen elsewhere, or NULL. Returns 0 if all are valid. ERR_INVALID names the first broken record;
 * ERR_GONE means a missing tail or a rollback. *ret is filled in either case.
 */
int journal_verify(const char *dir, const uint8_t pubkey[JOURNAL_PUBKEY_BYTES],
                   const struct journal_head *expected, struct journal_report *ret,
                   struct err *err);

/* ---- Reading ---- */

enum { JOURNAL_WORDS_MAX = 16, JOURNAL_WORDS_BYTES = 8 << 10 }; /* of one search */

/* A field that is NULL or 0 matches all records. */
struct journal_filter {
    int64_t since_ms;
    int64_t until_ms;
    uint64_t after_seq;
    const char *owner;
    const char *machine;
    const char *verb; /* a verb, or a group of verbs: "machine" matches "machine.create" */
    /*
     * At most JOURNAL_WORDS_MAX words between blanks, each of which is part of the record's line,
     * so as JSON writes it; capitals and small letters of ASCII are equal.
     */
    const char *text;
    size_t tail;     /* return only this many last matches, at most 100,000 */
    bool structural; /* return the records of kind SEGMENT and HEAD too */
    /* A search in another thread ends soon after this turned true, with ERR_GONE. Or NULL. */
    const atomic_bool *stop;
};

struct journal_reader;

/*
 * Opens a journal to read its records, also while a daemon appends to it. Texts of the filter must
 * live as long as the reader.
 */
int journal_reader_open(const char *dir, const struct journal_filter *filter,
                        struct journal_reader **ret, struct err *err);
void journal_reader_close(struct journal_reader *r);

/*
 * Returns 1 and the next record, with its line in the file; both are valid until the next call. 0:
 * no more now; a later call returns what was appended meanwhile. -1: a record cannot be decoded.
 */
int journal_reader_next(struct journal_reader *r, const struct journal_record **ret,
                        const char **ret_line, size_t *ret_len, struct err *err);
