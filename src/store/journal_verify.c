#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "store/journal_chain.h"

struct proof {
    const char *path;
    int dir;
    uint64_t first, last; /* first and last segment */
    uint64_t begins;      /* first segment according to the last prune record; 0: no such record */
    const struct journal_head *expected;
    struct chain chain;
    uint8_t start[SHA256_BYTES]; /* the hash before the first record of the journal */
    struct journal_report *report;
    struct journal_slot *slot;
};

static void slot_freep(struct journal_slot **slot) {
    free(*slot);
}

/* Reports the place of the first broken record, with the reason in err. */
static int broken(struct proof *p, uint64_t line, struct err *err) {
    struct journal_report *r = p->report;
    segment_name(p->chain.segment, r->segment);
    r->line = line;
    r->seq = p->chain.at.seq + 1;
    snprintf(r->why, sizeof(r->why), "%s", err->text);
    return err_set(err, ERR_INVALID, "journal segment %s, line %llu, record %llu: %s", r->segment,
                   (unsigned long long)r->line, (unsigned long long)r->seq, r->why);
}

static int check_expected(const struct proof *p, struct err *err) {
    const struct journal_head *e = p->expected, *at = &p->chain.at;
    if (!e || e->seq != at->seq || memcmp(e->hash, at->hash, sizeof(e->hash)) == 0)
        return 0;
    return err_set(
        err, ERR_GONE,
        "journal record %llu does not match the expected head (hash): the journal was rolled "
        "back and rewritten",
        (unsigned long long)e->seq);
}

static int take_line(struct proof *p, const struct lines *l, const char *line, size_t len,
                     struct err *err) {
    if (chain_step(&p->chain, line, len, l->number == 1, p->slot, err) < 0)
        return broken(p, l->number, err);
    uint64_t begins;
    if (!p->report->records++) {
        p->report->first_seq = p->chain.at.seq;
        memcpy(p->start, p->chain.start, sizeof(p->start));
    }
    if (journal_is_prune(&p->slot->record, &begins) && begins > p->begins)
        p->begins = begins;
    if (p->slot->record.kind == JOURNAL_NOTE && strcmp(p->slot->record.verb, JOURNAL_LOST) == 0)
        p->report->lost_seq = p->chain.at.seq;
    p->report->head = p->chain.at;
    p->report->signed_seq = p->chain.signed_seq;
    return check_expected(p, err);
}

static int verify_lines(struct proof *p, struct lines *l, struct err *err) {
    const char *line;
    size_t len;
    for (;;) {
        switch (lines_next(l, &line, &len)) {
        case LINES_LINE:
            if (take_line(p, l, line, len, err) < 0)
                return -1;
            continue;
        case LINES_END:
            if (l->number > 0)
                return 0;
            err_set(err, ERR_INVALID, "the journal segment (file) is empty");
            break;
        case LINES_PARTIAL:
            err_set(err, ERR_INVALID, "the line of the journal is incomplete");
            break;
        case LINES_LONG:
            err_set(err, ERR_INVALID, "the line is longer than any journal record");
            break;
        case LINES_FAILED:
            return err_sys(err, "cannot read journal file %08llu.log",
                           (unsigned long long)p->chain.segment);
        }
        return broken(p, l->number + 1, err);
    }
}

static int verify_segment(struct proof *p, struct err *err) {
    struct lines l DEFER(lines_done) = {.fd = -1};
    int fd = segment_open(p->dir, p->chain.segment, O_RDONLY, err);
    if (fd < 0)
        return -1;
    if (!lines_init(&l, fd, 0))
        return err_sys(err, "cannot read journal file %08llu.log",
                       (unsigned long long)p->chain.segment);
    if (verify_lines(p, &l, err) < 0)
        return -1;
    p->report->segments++;
    return 0;
}

/*
 * Earlier segments may be missing only if a record announced their deletion. An expected head in
 * them cannot be found any more.
 */
static int verify_beginning(const struct proof *p, struct err *err) {
    const struct journal_head *e = p->expected;
    const uint64_t before = p->report->first_seq - 1;
    if (p->first > 1 && p->begins < p->first)
        return err_set(
            err, ERR_GONE,
            "journal files before %08llu.log are missing, and no record announces their deletion",
            (unsigned long long)p->first);
    if (e && e->seq < before)
        return err_set(
            err, ERR_GONE,
            "the expected hash (head) is of record %llu, but the journal now begins with record "
            "%llu: earlier records were deleted",
            (unsigned long long)e->seq, (unsigned long long)before + 1);
    if (e && before && e->seq == before && memcmp(e->hash, p->start, sizeof(e->hash)) != 0)
        return err_set(err, ERR_GONE,
                       "the journal does not continue from the expected head (hash of a record)");
    return 0;
}

static int verify_end(const struct proof *p, struct err *err) {
    if (!p->expected || p->expected->seq <= p->chain.at.seq)
        return 0;
    return err_set(
        err, ERR_GONE,
        "the journal ends at record %llu, before record %llu of the expected head (hash): its "
        "tail was cut off",
        (unsigned long long)p->chain.at.seq, (unsigned long long)p->expected->seq);
}

static int verify_all(struct proof *p, struct err *err) {
    if (segment_range(p->dir, &p->first, &p->last, err) < 0)
        return -1;
    if (p->last == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no journal in '%s'", p->path);
    p->report->first_segment = p->first;
    for (p->chain.segment = p->first; p->chain.segment <= p->last; p->chain.segment++)
        if (verify_segment(p, err) < 0)
            return -1;
    return verify_beginning(p, err) < 0 ? -1 : verify_end(p, err);
}

/*
 * The daemon may delete the oldest segments during the check. Then the journal begins with a later
 * segment, and the check must be repeated.
 */
static bool was_pruned(const struct proof *p) {
    uint64_t first, last;
    struct err unused;
    return segment_range(p->dir, &first, &last, &unused) == 0 && first > p->first;
}

int journal_verify(const char *dir, const uint8_t pubkey[JOURNAL_PUBKEY_BYTES],
                   const struct journal_head *expected, struct journal_report *ret,
                   struct err *err) {
    enum { TRIES = 10 };
    struct err unused;
    struct journal_slot *slot DEFER(slot_freep) = malloc(sizeof(*slot));
    int fd DEFER_CLOSE = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    err = err ? err : &unused;
    *ret = (struct journal_report){0};
    if (fd < 0)
        return err_sys(err, "cannot open the journal directory '%s'", dir);
    if (!slot)
        return err_set(err, ERR_LIMIT, "cannot verify the journal: out of memory");
    for (int tries = 1;; tries++) {
        struct proof p = {
            .path = dir, .dir = fd, .expected = expected, .report = ret, .slot = slot};
        memcpy(p.chain.pubkey, pubkey, sizeof(p.chain.pubkey));
        *ret = (struct journal_report){0};
        if (verify_all(&p, err) == 0)
            return 0;
        if (tries == TRIES || !was_pruned(&p))
            return -1;
    }
}
