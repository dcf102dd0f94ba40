#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "store/journal_chain.h"

enum { TAIL_MAX = 100000 };

struct place_in {
    uint64_t segment;
    uint64_t offset;
};

struct journal_reader {
    int dir;
    struct journal_filter filter;
    uint64_t segment; /* number of the segment that is being read; 0: none yet */
    struct lines lines;
    struct journal_slot slot;
    char words[JOURNAL_WORDS_BYTES]; /* of the filter, and a line, both in small letters */
    char lower[JOURNAL_LINE_MAX];
};

static bool text_matches(const char *wanted, const char *text) {
    return !wanted || strcmp(wanted, text) == 0;
}

static bool verb_matches(const char *wanted, const char *verb) {
    size_t n = wanted ? strlen(wanted) : 0;
    return n == 0 || (strncmp(wanted, verb, n) == 0 && (verb[n] == '\0' || verb[n] == '.'));
}

/* Copies a text with small letters, those of ASCII only. */
static void lower_copy(char *to, const char *from, size_t n) {
    for (size_t i = 0; i < n; i++)
        to[i] = from[i] >= 'A' && from[i] <= 'Z' ? (char)(from[i] + ('a' - 'A')) : from[i];
}

/* memmem() takes linear time: no choice of words makes a search of the journal slow. */
static bool contains_words(struct journal_reader *r, const char *line, size_t len) {
    const char *words = r->words;
    if (*words)
        lower_copy(r->lower, line, len);
    for (size_t n; *words; words += n) {
        words += strspn(words, " ");
        n = strcspn(words, " ");
        if (!memmem(r->lower, len, words, n))
            return false;
    }
    return true;
}

/* Takes the words of the filter in small letters. */
static int words_take(struct journal_reader *r, struct err *err) {
    const char *text = r->filter.text ? r->filter.text : "";
    size_t n = strlen(text), count = 0;
    for (const char *at = text + strspn(text, " "); *at; at += strspn(at, " "), count++)
        at += strcspn(at, " ");
    if (n >= sizeof(r->words) || count > JOURNAL_WORDS_MAX) {
        err_set(err, ERR_INVALID, "the text to search for has more than %d words or %zu bytes",
                JOURNAL_WORDS_MAX, sizeof(r->words) - 1);
        return err_remedy(err, "search for fewer words");
    }
    lower_copy(r->words, text, n);
    return 0;
}

static bool matches(struct journal_reader *reader, const char *line, size_t len) {
    const struct journal_filter *f = &reader->filter;
    const struct journal_record *r = &reader->slot.record;
    bool structural = r->kind == JOURNAL_SEGMENT || r->kind == JOURNAL_HEAD;
    return (f->structural || !structural) && r->seq > f->after_seq &&
           (f->since_ms == 0 || r->time_ms >= f->since_ms) &&
           (f->until_ms == 0 || r->time_ms <= f->until_ms) && text_matches(f->owner, r->owner) &&
           text_matches(f->machine, r->machine) && verb_matches(f->verb, r->verb) &&
           contains_words(reader, line, len);
}

static int seek(struct journal_reader *r, uint64_t segment, uint64_t offset, struct err *err) {
    lines_done(&r->lines);
    int fd = segment_open(r->dir, segment, O_RDONLY, err);
    if (fd < 0)
        return -1;
    r->segment = segment;
    if (!lines_init(&r->lines, fd, offset))
        return err_sys(err, "cannot read the journal");
    return 0;
}

static int journal_read_decode(struct journal_reader *r, const char *line, size_t len,
                               struct err *err) {
    if (journal_record_decode(line, len, NULL, &r->slot, err) == 0)
        return 0;
    char name[SEGMENT_NAME_SIZE];
    segment_name(r->segment, name);
    err_wrap(err, "journal file %s at byte %llu", name, (unsigned long long)r->lines.offset);
    return err_remedy(err, "run 'carrel audit verify'");
}

/* Finds the next matching record in this segment: 1 found, 0 no more, -1 failed. */
static int next_here(struct journal_reader *r, const char **ret_line, size_t *ret_len,
                     struct err *err) {
    for (;;) {
        if (r->filter.stop && atomic_load_explicit(r->filter.stop, memory_order_relaxed))
            return err_set(err, ERR_GONE, "the search of the journal was ended");
        enum lines_result got = lines_next(&r->lines, ret_line, ret_len);
        if (got == LINES_FAILED)
            return err_sys(err, "cannot read the journal");
        if (got == LINES_LONG)
            return err_set(err, ERR_INVALID,
                           "the journal has a line that is longer than any journal record");
        if (got != LINES_LINE)
            return 0;
        if (journal_read_decode(r, *ret_line, *ret_len, err) < 0)
            return -1;
        if (matches(r, *ret_line, *ret_len))
            return 1;
    }
}

/* Stores the places of the last `want` matches of one segment in ring; ring[0] is the oldest. */
static int scan_segment(struct journal_reader *r, uint64_t segment, struct place_in *ring,
                        size_t want, size_t *ret_count, struct err *err) {
    const char *line;
    size_t len, seen = 0;
    int status;
    if (seek(r, segment, 0, err) < 0)
        return -1;
    while ((status = next_here(r, &line, &len, err)) == 1)
        ring[seen++ % want] = (struct place_in){segment, r->lines.offset};
    if (status < 0)
        return -1;
    *ret_count = seen < want ? seen : want;
    /* The caller needs only the oldest match: put it first. */
    if (seen > want)
        ring[0] = ring[seen % want];
    return 0;
}

/*
 * Searches backwards from the last segment until enough records match; seeks to the oldest match.
 */
static int seek_tail(struct journal_reader *r, uint64_t first, uint64_t last, struct err *err) {
    size_t want = r->filter.tail < TAIL_MAX ? r->filter.tail : TAIL_MAX;
    struct place_in *ring DEFER_FREE = calloc(want, sizeof(*ring));
    struct place_in start = {last, 0};
    if (!ring)
        return err_set(err, ERR_LIMIT, "cannot read the journal: out of memory");
    for (uint64_t segment = last; segment >= first && want > 0; segment--) {
        size_t count;
        if (scan_segment(r, segment, ring, want, &count, err) < 0)
            return -1;
        if (count > 0)
            start = ring[0];
        want -= count;
    }
    return seek(r, start.segment, start.offset, err);
}

int journal_reader_open(const char *dir, const struct journal_filter *filter,
                        struct journal_reader **ret, struct err *err) {
    struct journal_reader *r = calloc(1, sizeof(*r));
    uint64_t first = 0, last = 0;
    if (!r)
        return err_set(err, ERR_LIMIT, "cannot read the journal: out of memory");
    r->lines.fd = -1;
    r->filter = *filter;
    r->dir = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int status = r->dir < 0 ? err_sys(err, "cannot open the journal directory '%s'", dir)
                            : segment_range(r->dir, &first, &last, err);
    if (status == 0)
        status = words_take(r, err);
    if (status == 0 && last == 0)
        status = err_set(err, ERR_NOT_FOUND, "there is no journal in '%s'", dir);
    if (status == 0)
        status = filter->tail ? seek_tail(r, first, last, err) : seek(r, first, 0, err);
    if (status < 0) {
        journal_reader_close(r);
        return -1;
    }
    *ret = r;
    return 0;
}

void journal_reader_close(struct journal_reader *r) {
    if (!r)
        return;
    lines_done(&r->lines);
    if (r->dir >= 0)
        close(r->dir);
    free(r);
}

static bool has_segment(const struct journal_reader *r, uint64_t number) {
    char name[SEGMENT_NAME_SIZE];
    segment_name(number, name);
    return faccessat(r->dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

int journal_reader_next(struct journal_reader *r, const struct journal_record **ret,
                        const char **ret_line, size_t *ret_len, struct err *err) {
    for (;;) {
        /* Check this before reading: a segment that has a successor no longer grows. */
        bool more = has_segment(r, r->segment + 1);
        int status = next_here(r, ret_line, ret_len, err);
        if (status == 1)
            *ret = &r->slot.record;
        if (status != 0 || !more)
            return status;
        if (seek(r, r->segment + 1, 0, err) < 0)
            return -1;
    }
}
