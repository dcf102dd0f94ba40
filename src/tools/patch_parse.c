/* Reads the text of a patch: unified diffs, and the form that starts with "*** Begin Patch". */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "tools/patch_text.h"

struct patch_reader {
    struct patch *p;
    const char *at, *end;
    size_t number; /* of the current line, from 1 */
    /* Lines that the header of the current hunk announced; only a hint. */
    uint64_t old_left, new_left;
};

struct patch_word {
    const char *s;
    size_t n;
};

static struct patch_word reader_line(const struct patch_reader *r, const char *at) {
    const char *end = memchr(at, '\n', (size_t)(r->end - at));
    return (struct patch_word){at, (size_t)((end ? end : r->end) - at)};
}

static void reader_skip(struct patch_reader *r, struct patch_word line) {
    r->at = line.s + line.n + (line.s + line.n < r->end);
    r->number++;
}

static bool word_starts(struct patch_word w, const char *with) {
    size_t n = strlen(with);
    return w.n >= n && memcmp(w.s, with, n) == 0;
}

static bool word_is(struct patch_word w, const char *text) {
    return w.n == strlen(text) && memcmp(w.s, text, w.n) == 0;
}

static bool word_is_empty(struct patch_word w) {
    return w.n == 0 || word_is(w, "\r");
}

/* The rest of the line behind n bytes, without blanks at its ends. */
static struct patch_word word_after(struct patch_word w, size_t n) {
    w = (struct patch_word){w.s + n, w.n - n};
    while (w.n && (w.s[w.n - 1] == '\r' || w.s[w.n - 1] == ' '))
        w.n--;
    while (w.n && w.s[0] == ' ')
        w = (struct patch_word){w.s + 1, w.n - 1};
    return w;
}

/* ---- parts of the patch ---- */

static int patch_limit(struct err *err, const char *what, int max) {
    return err_set(err, ERR_LIMIT, "the patch has more than %d %s", max, what);
}

/* Makes room for one more element. The room doubles at 0, 1, 2, 4, 8 ... elements. */
static void *patch_room(void *v, size_t count, size_t each) {
    return count & (count - 1) ? v : xrealloc(v, count ? 2 * count : 1, each);
}

static int add_file(struct patch_reader *r, enum patch_kind kind, struct patch_word path,
                    struct err *err) {
    struct patch *p = r->p;
    if (p->file_count == PATCH_FILES_MAX)
        return patch_limit(err, "files", PATCH_FILES_MAX);
    if (!path.n || path.n > 4095)
        return err_set(err, ERR_INVALID, "line %zu of the patch: the path is empty or too long",
                       r->number);
    p->files = patch_room(p->files, p->file_count, sizeof(*p->files));
    p->files[p->file_count++] =
        (struct patch_file){.kind = kind, .path = xstrndup(path.s, path.n), .first = p->hunk_count};
    return 0;
}

static int add_hunk(struct patch_reader *r, struct patch_hunk hunk, struct err *err) {
    struct patch *p = r->p;
    if (p->hunk_count == PATCH_HUNKS_MAX)
        return patch_limit(err, "hunks", PATCH_HUNKS_MAX);
    hunk.first = p->line_count;
    p->hunks = patch_room(p->hunks, p->hunk_count, sizeof(*p->hunks));
    p->hunks[p->hunk_count++] = hunk;
    p->files[p->file_count - 1].count++;
    return 0;
}

static int add_line(struct patch_reader *r, struct patch_line line, struct err *err) {
    struct patch *p = r->p;
    if (p->line_count == PATCH_LINES_MAX)
        return patch_limit(err, "lines", PATCH_LINES_MAX);
    p->lines = patch_room(p->lines, p->line_count, sizeof(*p->lines));
    p->lines[p->line_count++] = line;
    p->hunks[p->hunk_count - 1].count++;
    r->old_left -= r->old_left && line.sign != '+';
    r->new_left -= r->new_left && line.sign != '-';
    return 0;
}

static struct patch_file *last_file(struct patch_reader *r) {
    return r->p->file_count ? &r->p->files[r->p->file_count - 1] : NULL;
}

/* Adds a line of a hunk. An empty line is a context line that lost its blank. */
static int take_body(struct patch_reader *r, struct patch_word line, struct err *err) {
    if (word_is_empty(line))
        return add_line(r, (struct patch_line){' ', false, !r->old_left, line.s, line.n}, err);
    if (line.s[0] == ' ' || line.s[0] == '-' || line.s[0] == '+')
        return add_line(r, (struct patch_line){.sign = line.s[0], .s = line.s + 1, .n = line.n - 1},
                        err);
    err_set(err, ERR_INVALID, "line %zu of the patch starts with none of ' ', '-' and '+': '%.*s'",
            r->number, (int)(line.n < 60 ? line.n : 60), line.s);
    return err_remedy(err, "each line of a hunk starts with a blank (unchanged), - or +");
}

/* Drops empty lines between a hunk and what follows it. */
static void trim_hunk(struct patch_reader *r) {
    struct patch *p = r->p;
    struct patch_hunk *h = p->hunk_count ? &p->hunks[p->hunk_count - 1] : NULL;
    while (h && h->count && p->lines[p->line_count - 1].extra) {
        h->count--;
        p->line_count--;
    }
}

/* ---- unified diffs ---- */

/* Removes "a/" or "b/", and what follows a tab, such as a time. */
static struct patch_word diff_path(struct patch_word w) {
    const char *tab = memchr(w.s, '\t', w.n);
    if (tab)
        w.n = (size_t)(tab - w.s);
    w = word_after(w, 0);
    if (w.n > 2 && (w.s[0] == 'a' || w.s[0] == 'b') && w.s[1] == '/')
        w = (struct patch_word){w.s + 2, w.n - 2};
    return w;
}

/* True at the lines "--- " and "+++ " that start a file; false at a removed line "-- ". */
static bool at_header(const struct patch_reader *r, struct patch_word line) {
    if (!word_starts(line, "--- ") || line.s + line.n >= r->end || (r->old_left && r->new_left))
        return false;
    struct patch_word next = reader_line(r, line.s + line.n + 1);
    if (!word_starts(next, "+++ "))
        return false;
    if (next.s + next.n >= r->end)
        return true;
    struct patch_word third = reader_line(r, next.s + next.n + 1);
    return word_starts(third, "@@") || word_is_empty(third);
}

static int take_header(struct patch_reader *r, struct patch_word line, struct err *err) {
    struct patch_word from = diff_path(word_after(line, 4));
    reader_skip(r, line);
    line = reader_line(r, r->at);
    struct patch_word to = diff_path(word_after(line, 4));
    reader_skip(r, line);
    r->old_left = r->new_left = 0;
    if (word_is(from, "/dev/null"))
        return add_file(r, PATCH_ADD, to, err);
    if (word_is(to, "/dev/null"))
        return add_file(r, PATCH_DELETE, from, err);
    if (add_file(r, PATCH_UPDATE, from, err) < 0)
        return -1;
    if (from.n != to.n || memcmp(from.s, to.s, from.n) != 0)
        last_file(r)->to = xstrndup(to.s, to.n);
    return 0;
}

static uint64_t hunk_number(const char **at, const char *end) {
    uint64_t n = 0;
    for (; *at < end && **at >= '0' && **at <= '9' && n < 100000000; ++*at)
        n = 10 * n + (uint64_t)(**at - '0');
    return n;
}

/* Reads "-LINE[,COUNT]" at *at. */
static bool hunk_range(const char **at, const char *end, char sign, uint64_t *ret_line,
                       uint64_t *ret_count) {
    while (*at < end && **at == ' ')
        ++*at;
    if (*at == end || **at != sign)
        return false;
    ++*at;
    *ret_line = hunk_number(at, end);
    *ret_count = 1;
    if (*at < end && **at == ',') {
        ++*at;
        *ret_count = hunk_number(at, end);
    }
    return true;
}

/* "@@ -1,2 +3,4 @@ ..." or, in the other form, "@@ TEXT", where TEXT is a line above the hunk. */
static int take_hunk_header(struct patch_reader *r, struct patch_word line, struct err *err) {
    struct patch_hunk hunk = {0};
    const char *at = line.s + 2, *end = line.s + line.n;
    uint64_t new_line;
    r->old_left = r->new_left = 0;
    if (hunk_range(&at, end, '-', &hunk.old_line, &r->old_left) &&
        hunk_range(&at, end, '+', &new_line, &r->new_left)) {
        hunk.old_line += r->old_left == 0; /* "-5,0" inserts behind line 5 */
    } else {
        struct patch_word anchor = word_after(line, 2);
        hunk.old_line = r->old_left = r->new_left = 0;
        hunk.anchor = anchor.n ? anchor.s : NULL;
        hunk.anchor_n = anchor.n;
    }
    reader_skip(r, line);
    return add_hunk(r, hunk, err);
}

static int take_no_newline(struct patch_reader *r, struct patch_word line) {
    struct patch *p = r->p;
    if (p->hunk_count && p->hunks[p->hunk_count - 1].count)
        p->lines[p->line_count - 1].open = true;
    reader_skip(r, line);
    return 0;
}

/* True at a line between two files of a diff. */
static bool is_between(struct patch_word line) {
    static const char *const starts[] = {
        "diff ",       "index ",      "old mode ",     "new mode ",         "new file mode ",
        "similarity ", "rename from", "dissimilarity", "deleted file mode", "copy from"};
    for (size_t i = 0; i < sizeof(starts) / sizeof(*starts); i++)
        if (word_starts(line, starts[i]))
            return true;
    return false;
}

static int diff_refuse(const struct patch_reader *r, struct patch_word line, struct err *err) {
    if (word_starts(line, "GIT binary patch") || word_starts(line, "Binary files "))
        return err_set(err, ERR_INVALID,
                       "line %zu of the patch: patches of binary files are not supported",
                       r->number);
    if (!word_starts(line, "rename to ") && !word_starts(line, "copy to "))
        return 0;
    err_set(err, ERR_INVALID, "line %zu of the patch: renames in a unified diff are not supported",
            r->number);
    return err_remedy(err, "use the form *** Begin Patch with *** Move to: PATH");
}

static int diff_line(struct patch_reader *r, bool *inside, struct err *err) {
    struct patch_word line = reader_line(r, r->at);
    if (diff_refuse(r, line, err) < 0)
        return -1;
    if (at_header(r, line)) {
        trim_hunk(r);
        *inside = false;
        return take_header(r, line, err);
    }
    if (word_starts(line, "@@") && last_file(r)) {
        trim_hunk(r);
        *inside = true;
        return take_hunk_header(r, line, err);
    }
    if (word_starts(line, "\\"))
        return take_no_newline(r, line);
    if (is_between(line))
        *inside = false;
    else if (*inside && take_body(r, line, err) < 0)
        return -1;
    reader_skip(r, line);
    return 0;
}

static int take_diff(struct patch_reader *r, struct err *err) {
    bool inside = false;
    while (r->at < r->end)
        if (diff_line(r, &inside, err) < 0)
            return -1;
    trim_hunk(r);
    return 0;
}

/* ---- the form "*** Begin Patch" ---- */

static const struct {
    const char *word;
    enum patch_kind kind;
} file_words[] = {
    {"*** Add File:", PATCH_ADD},
    {"*** Update File:", PATCH_UPDATE},
    {"*** Delete File:", PATCH_DELETE},
};

static int take_stars(struct patch_reader *r, struct patch_word line, struct err *err) {
    static const char move[] = "*** Move to:", tail[] = "*** End of File";
    struct patch_file *f = last_file(r);
    trim_hunk(r);
    r->old_left = r->new_left = 0;
    for (size_t i = 0; i < sizeof(file_words) / sizeof(*file_words); i++)
        if (word_starts(line, file_words[i].word))
            return add_file(r, file_words[i].kind, word_after(line, strlen(file_words[i].word)),
                            err);
    if (word_starts(line, move) && f && f->kind == PATCH_UPDATE && !f->to) {
        struct patch_word to = word_after(line, strlen(move));
        f->to = xstrndup(to.s, to.n);
        return 0;
    }
    if (word_starts(line, tail) && f && f->count) {
        r->p->hunks[r->p->hunk_count - 1].at_end = true;
        return 0;
    }
    err_set(err, ERR_INVALID, "line %zu of the patch is not known: '%.*s'", r->number,
            (int)(line.n < 60 ? line.n : 60), line.s);
    return err_remedy(err, "use *** Add File: PATH, *** Update File: PATH, *** Move to: PATH, or "
                           "*** Delete File: PATH");
}

static int stars_body(struct patch_reader *r, struct patch_word line, struct err *err) {
    const struct patch_file *f = last_file(r);
    if (!f || f->kind == PATCH_DELETE)
        return word_is_empty(line) ? 0
                                   : err_set(err, ERR_INVALID,
                                             "line %zu of the patch belongs to no file", r->number);
    if (!f->count && add_hunk(r, (struct patch_hunk){0}, err) < 0)
        return -1;
    return take_body(r, line, err);
}

static int stars_line(struct patch_reader *r, struct patch_word line, struct err *err) {
    const struct patch_file *f = last_file(r);
    if (word_starts(line, "@@") && f && f->kind == PATCH_UPDATE) {
        trim_hunk(r);
        return take_hunk_header(r, line, err);
    }
    if ((word_starts(line, "***") ? take_stars(r, line, err) : stars_body(r, line, err)) < 0)
        return -1;
    reader_skip(r, line);
    return 0;
}

static int take_begin(struct patch_reader *r, struct err *err) {
    reader_skip(r, reader_line(r, r->at));
    while (r->at < r->end) {
        struct patch_word line = reader_line(r, r->at);
        if (word_starts(line, "*** End Patch")) {
            trim_hunk(r);
            return 0;
        }
        if (stars_line(r, line, err) < 0)
            return -1;
    }
    err_set(err, ERR_INVALID, "the patch has no line *** End Patch");
    return err_remedy(err, "the patch may have been cut off: send it whole, or in smaller parts");
}

/* ---- the whole patch ---- */

static int file_check(const struct patch *p, const struct patch_file *f, struct err *err) {
    bool changes = f->kind != PATCH_UPDATE || f->to;
    if (f->to && !*f->to)
        return err_set(err, ERR_INVALID, "file '%.200s': the new path is empty", f->path);
    if (f->kind == PATCH_ADD && f->count > 1)
        return err_set(err, ERR_INVALID, "file '%.200s': an added file has one hunk", f->path);
    for (size_t i = 0; i < f->count; i++) {
        const struct patch_hunk *h = &p->hunks[f->first + i];
        for (size_t k = 0; k < h->count; k++) {
            char sign = p->lines[h->first + k].sign;
            changes |= sign != ' ';
            if (f->kind == PATCH_ADD && sign != '+')
                return err_set(err, ERR_INVALID,
                               "file '%.200s': each line of an added file must start with '+'",
                               f->path);
        }
    }
    if (!changes)
        return err_set(err, ERR_INVALID, "file '%.200s': the patch changes nothing", f->path);
    return 0;
}

int patch_parse(const char *text, struct patch *ret, struct err *err) {
    struct patch_reader r = {.p = ret, .at = text, .end = text + strlen(text), .number = 1};
    *ret = (struct patch){.work = PATCH_WORK};
    for (; r.at < r.end && (*r.at == '\n' || *r.at == '\r' || *r.at == ' '); r.at++)
        r.number += *r.at == '\n';
    bool stars = word_starts(reader_line(&r, r.at), "*** Begin Patch");
    if ((stars ? take_begin(&r, err) : take_diff(&r, err)) < 0)
        return -1;
    if (!ret->file_count) {
        err_set(err, ERR_INVALID, "the patch names no file");
        return err_remedy(err, "use a unified diff with the lines --- and +++, or the form *** "
                               "Begin Patch");
    }
    for (size_t i = 0; i < ret->file_count; i++)
        if (file_check(ret, &ret->files[i], err) < 0)
            return -1;
    return 0;
}

void patch_done(struct patch *p) {
    for (size_t i = 0; i < p->file_count; i++) {
        free(p->files[i].path);
        free(p->files[i].to);
    }
    free(p->files);
    free(p->hunks);
    free(p->lines);
    *p = (struct patch){0};
}
