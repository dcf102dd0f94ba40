/* Prepares the texts of a record: removes secrets and shortens long texts. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/hex.h"
#include "base/text/json_check.h"
#include "store/journal_prepare.h"

static void prepared_free(struct prepared *p) {
    for (size_t i = 0; i < sizeof(p->texts) / sizeof(*p->texts); i++)
        buf_done(&p->texts[i]);
    free(p);
}

void journal_prepared_freep(struct prepared **p) {
    if (*p)
        prepared_free(*p);
}

/* Bytes for a text in which every byte is a secret and is replaced by the secret's name. */
enum { SCRUB_MAX = 16 << 20 };

/* Replaces *text by a copy without secrets in `to`, or by a remark if the copy is too long. */
static void scrub_text(const struct journal_record *r, const char **text, struct buf *to) {
    if (!*text || !**text)
        return;
    *to = BUF(SCRUB_MAX);
    *text = journal_scrub(*text, strlen(*text), r->secrets, r->secret_count, to)
                ? to->data
                : "[removed: too long after secrets were replaced]";
}

/* Joins all elements of argv in one buffer, without secrets and each with its NUL. */
static bool join_argv(const struct journal_record *r, struct buf *to) {
    *to = BUF(SCRUB_MAX);
    for (size_t i = 0; i < r->argc; i++) {
        const char *s = r->argv[i];
        bool ok = r->secret_count ? journal_scrub(s, strlen(s), r->secrets, r->secret_count, to)
                                  : buf_add(to, s, strlen(s));
        if (!ok || !buf_add(to, "", 1))
            return false;
    }
    return true;
}

/* Keeps the first bytes of argv, with the length and hash of the whole argv, which identify it. */
static void cut_argv(struct prepared *p, const struct buf *whole) {
    struct journal_record *r = &p->record;
    struct sha256 s;
    uint8_t hash[SHA256_BYTES];
    sha256_init(&s);
    sha256_add(&s, whole->data, whole->len);
    sha256_end(&s, hash);
    hex_put(hash, sizeof(hash), p->argv_hash);
    r->argv_hash = p->argv_hash;
    r->argv_bytes = whole->len;

    size_t n = whole->len < JOURNAL_ARGV_BYTES ? whole->len : JOURNAL_ARGV_BYTES;
    memcpy(p->cut, whole->data, n);
    p->cut[n - 1] = '\0';
    r->argc = 0;
    for (size_t at = 0; at < n && r->argc < JOURNAL_ARGV_COUNT; at += strlen(p->cut + at) + 1)
        p->argv[r->argc++] = p->cut + at;
    r->argv = p->argv;
}

static bool argv_fits(const struct journal_record *r) {
    size_t bytes = 0;
    for (size_t i = 0; i < r->argc && i < JOURNAL_ARGV_COUNT; i++)
        bytes += strlen(r->argv[i]) + 1;
    return r->argc <= JOURNAL_ARGV_COUNT && bytes <= JOURNAL_ARGV_BYTES;
}

static void prepare_argv(struct prepared *p) {
    struct journal_record *r = &p->record;
    struct buf *whole = &p->texts[0];
    if (r->argc == 0 || (r->secret_count == 0 && argv_fits(r)))
        return;
    if (!join_argv(r, whole)) {
        p->argv[0] = "[removed: too long]";
        r->argv = p->argv;
        r->argc = 1;
        return;
    }
    if (whole->len > JOURNAL_ARGV_BYTES || r->argc > JOURNAL_ARGV_COUNT) {
        cut_argv(p, whole);
        return;
    }
    r->argc = 0;
    for (size_t at = 0; at < whole->len; at += strlen(whole->data + at) + 1)
        p->argv[r->argc++] = whole->data + at;
    r->argv = p->argv;
}

/* Truncates a text that is too long; its beginning is kept. */
static void cut_text(const char **text, struct buf *to) {
    size_t n = *text ? strlen(*text) : 0;
    if (n <= JOURNAL_TEXT_MAX)
        return;
    struct buf cut = BUF(JOURNAL_TEXT_MAX + 8);
    *text = buf_add(&cut, *text, JOURNAL_TEXT_MAX) ? cut.data : "[removed]";
    buf_done(to);
    *to = cut;
}

/* Replacing a secret may break the JSON syntax of detail; then the whole detail is removed. */
static void repair_detail(const char *before, const char **detail) {
    if (before && json_check(before, strlen(before)) && !json_check(*detail, strlen(*detail)))
        *detail = "\"[removed: it held a secret]\"";
}

struct prepared *journal_prepare(const struct journal_record *r) {
    struct prepared *p = calloc(1, sizeof(*p));
    if (!p)
        return NULL;
    p->record = *r;
    prepare_argv(p);
    if (r->secret_count) {
        scrub_text(r, &p->record.reason, &p->texts[1]);
        scrub_text(r, &p->record.detail, &p->texts[2]);
        repair_detail(r->detail, &p->record.detail);
    }
    cut_text(&p->record.reason, &p->texts[1]);
    cut_text(&p->record.client, &p->texts[3]);
    return p;
}
