#include "store/journal_chain.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/hex.h"
#include "base/parse.h"
#include "store/journal_key.h"

void segment_name(uint64_t number, char ret[SEGMENT_NAME_SIZE]) {
    snprintf(ret, SEGMENT_NAME_SIZE, "%08u.log", (unsigned)number);
}

/* Returns the number of the segment with this file name; 0: not the name of a segment. */
static uint64_t segment_number(const char *name) {
    uint64_t n;
    char digits[9];
    if (strlen(name) != 12 || strcmp(name + 8, ".log") != 0 || strspn(name, "0123456789") != 8)
        return 0;
    memcpy(digits, name, 8);
    digits[8] = '\0';
    return parse_u64(digits, 1, SEGMENT_MAX, &n, NULL) < 0 ? 0 : n;
}

int segment_range(int dir, uint64_t *ret_first, uint64_t *ret_last, struct err *err) {
    DIR *d DEFER(dir_close) = dir_list(dir, ".");
    if (!d)
        return err_sys(err, "cannot list the journal directory");
    uint64_t count = 0, first = 0, last = 0;
    for (struct dirent *e; (e = readdir(d));) {
        uint64_t n = segment_number(e->d_name);
        count += n > 0;
        last = n > last ? n : last;
        first = n && (!first || n < first) ? n : first;
    }
    char name[SEGMENT_NAME_SIZE];
    for (uint64_t n = first; n < last && count != last - first + 1; n++) {
        segment_name(n, name);
        if (faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
            return err_set(err, ERR_INVALID, "journal segment (file) %s is missing", name);
    }
    *ret_first = first;
    *ret_last = last;
    return 0;
}

int segment_open(int dir, uint64_t number, int flags, struct err *err) {
    char name[SEGMENT_NAME_SIZE];
    struct stat st;
    segment_name(number, name);
    int fd DEFER_CLOSE = openat(dir, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "cannot open journal segment (file) %s", name);
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, "journal segment %s is not a regular file", name);
    return TAKE_FD(fd);
}

bool lines_init(struct lines *l, int fd, uint64_t offset) {
    *l = (struct lines){.fd = fd, .next = offset, .buf = malloc(JOURNAL_LINE_MAX)};
    return l->buf && lseek(fd, (off_t)offset, SEEK_SET) >= 0;
}

void lines_done(struct lines *l) {
    free(l->buf);
    l->buf = NULL;
    if (l->fd >= 0)
        close_fd(&l->fd);
}

static ssize_t refill(struct lines *l) {
    memmove(l->buf, l->buf + l->start, l->end - l->start);
    l->end -= l->start;
    l->start = 0;
    ssize_t n = read(l->fd, l->buf + l->end, JOURNAL_LINE_MAX - l->end);
    if (n > 0)
        l->end += (size_t)n;
    return n;
}

enum lines_result lines_next(struct lines *l, const char **ret, size_t *ret_len) {
    char *newline;
    size_t seen = 0;
    while (!(newline = memchr(l->buf + l->start + seen, '\n', l->end - l->start - seen))) {
        seen = l->end - l->start;
        if (seen == JOURNAL_LINE_MAX)
            return LINES_LONG;
        ssize_t n = refill(l);
        if (n < 0)
            return LINES_FAILED;
        if (n == 0)
            return seen ? LINES_PARTIAL : LINES_END;
    }
    *ret = l->buf + l->start;
    *ret_len = (size_t)(newline + 1 - *ret);
    l->start += *ret_len;
    l->offset = l->next;
    l->next += *ret_len;
    l->number++;
    return LINES_LINE;
}

int segment_last_hash(int dir, uint64_t number, uint8_t ret[SHA256_BYTES], struct err *err) {
    int fd = segment_open(dir, number, O_RDONLY, err);
    struct lines l DEFER(lines_done) = {.fd = fd};
    struct stat st;
    const char *line = NULL;
    size_t len = 0;
    bool found = false;
    if (fd < 0)
        return -1;
    /* The last line begins at most JOURNAL_LINE_MAX bytes before the end of the segment. */
    if (fstat(fd, &st) < 0 ||
        !lines_init(&l, fd,
                    st.st_size > JOURNAL_LINE_MAX ? (uint64_t)st.st_size - JOURNAL_LINE_MAX : 0))
        return err_sys(err, "cannot read journal segment (file) %llu", (unsigned long long)number);
    /* end of a line: hex digits of the hash, quote, brace, newline */
    enum { TAIL = 2 * SHA256_BYTES + 3 };
    while (lines_next(&l, &line, &len) == LINES_LINE)
        found = len > TAIL && hex_read(line + len - TAIL, SHA256_BYTES, ret);
    if (!found)
        return err_set(err, ERR_INVALID,
                       "the last line of journal segment (file) %llu is not a record",
                       (unsigned long long)number);
    return 0;
}

/*
 * Begins the check of a hash chain. If it begins after segment 1, only the header of its first
 * segment says which hash comes before.
 */
static bool journal_chain_begin(struct chain *c, const char *line, size_t len,
                                struct journal_slot *slot) {
    if (journal_record_decode(line, len, NULL, slot, NULL) < 0)
        return false;
    const struct journal_record *r = &slot->record;
    if (r->kind != JOURNAL_SEGMENT || strlen(r->prev) != 2 * SHA256_BYTES || r->seq == 0 ||
        !id_valid(r->journal, strlen(r->journal), 'j'))
        return false;
    static const uint8_t nothing[SHA256_BYTES];
    if (!hex_read(r->prev, SHA256_BYTES, c->at.hash) ||
        (c->segment == 1 && (r->seq != 1 || memcmp(c->at.hash, nothing, sizeof(nothing)) != 0)))
        return false;
    c->at.seq = r->seq - 1;
    memcpy(c->journal, r->journal, ID_SIZE);
    memcpy(c->start, c->at.hash, sizeof(c->start));
    c->begun = true;
    return true;
}

static int check_prev(const struct chain *c, const struct journal_record *r, struct err *err) {
    uint8_t prev[SHA256_BYTES];
    if (strlen(r->prev) != 2 * SHA256_BYTES || !hex_read(r->prev, SHA256_BYTES, prev) ||
        memcmp(prev, c->at.hash, SHA256_BYTES) != 0)
        return err_set(
            err, ERR_INVALID,
            "the previous hash in the journal record is not the hash of the record before it");
    return 0;
}

static int check_segment(const struct chain *c, const struct journal_record *r, bool first,
                         struct err *err) {
    if (first != (r->kind == JOURNAL_SEGMENT))
        return err_set(err, ERR_INVALID, "%s",
                       first ? "the journal segment (file) does not start with a header record"
                             : "a header record is in the middle of the journal segment (file)");
    if (!first)
        return 0;
    if (r->segment != c->segment)
        return err_set(
            err, ERR_INVALID,
            "the header record of the journal segment (file) has the wrong segment number %llu",
            (unsigned long long)r->segment);
    if (strcmp(r->journal, c->journal) != 0)
        return err_set(
            err, ERR_INVALID,
            "the header record of the journal segment (file) has the id of another journal");
    if (c->last && c->last != JOURNAL_HEAD)
        return err_set(
            err, ERR_INVALID,
            "the previous journal segment does not end with a signed head (hash): its end is "
            "missing or was changed");
    return check_prev(c, r, err);
}

static int check_head(struct chain *c, const struct journal_record *r, struct err *err) {
    struct journal_head head = c->at;
    if (r->kind != JOURNAL_HEAD)
        return 0;
    if (check_prev(c, r, err) < 0)
        return -1;
    if (strlen(r->sig) != 2 * JOURNAL_SIG_BYTES || !hex_read(r->sig, JOURNAL_SIG_BYTES, head.sig) ||
        !journal_head_verify(c->pubkey, &head))
        return err_set(err, ERR_INVALID,
                       "the signature of the journal head (hash) does not match the public key of "
                       "the journal");
    c->signed_seq = head.seq;
    return 0;
}

int chain_step(struct chain *c, const char *line, size_t len, bool first, struct journal_slot *slot,
               struct err *err) {
    if (!c->begun && !(first && journal_chain_begin(c, line, len, slot)))
        return err_set(err, ERR_INVALID,
                       "the journal segment (file) does not start with a header record");
    if (journal_record_decode(line, len, c->at.hash, slot, err) < 0)
        return -1;
    const struct journal_record *r = &slot->record;
    if (r->seq != c->at.seq + 1)
        return err_set(err, ERR_INVALID, "the number of the journal record is %llu instead of %llu",
                       (unsigned long long)r->seq, (unsigned long long)c->at.seq + 1);
    if (check_segment(c, r, first, err) < 0 || check_head(c, r, err) < 0)
        return -1;
    c->at.seq = r->seq;
    memcpy(c->at.hash, slot->hash, sizeof(c->at.hash));
    c->last = r->kind;
    return 0;
}
