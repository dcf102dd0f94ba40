#include "cli/ship/pick.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/text/textdiff.h"
#include "cli/ship/ship_show.h"
#include "cli/text/colour.h"

/* Reads the first letter of a line; 'q' at the end of input. */
static char pick_letter(void) {
    int c, first = 0;
    fflush(stdout);
    while ((c = getchar()) != EOF && c != '\n')
        first = first ? first : c;
    return c == EOF ? 'q' : (char)first;
}

static void pick_help(bool hunks) {
    puts(hunks ? "y - ship this hunk\nn - do not ship this hunk\n"
                 "a - ship this hunk and all later hunks of the file\n"
                 "d - do not ship this hunk or any later hunk of the file"
               : "y - ship this file\nn - do not ship this file");
    puts("q - quit: ship only what was chosen so far\n? - show this help");
}

/* Asks until the answer is one of the letters. */
static char pick_question(const char *what, size_t number, size_t count, const char *letters) {
    for (;;) {
        colour_begin(COLOUR_BOLD);
        if (count > 1)
            printf("(%zu/%zu) ", number, count);
        printf("ship this %s [", what);
        for (const char *l = letters; *l; l++)
            printf("%c,", *l);
        fputs("?]? ", stdout);
        colour_end();
        char c = pick_letter();
        if (c && strchr(letters, c))
            return c;
        pick_help(strcmp(what, "hunk") == 0);
    }
}

static bool pick_diff(const struct pick_file *f, struct buf *ret) {
    struct textdiff_count count;
    return textdiff(ret, f->before ? f->before : "", f->before ? f->before_n : 0,
                    f->after ? f->after : "", f->after ? f->after_n : 0, CONTEXT, &count);
}

static void pick_heading(const struct pick_file *f) {
    colour_begin(COLOUR_BOLD);
    printf("%c  %s", f->change, f->path);
    colour_end();
    printf(*f->note ? "  [%s]\n" : "%s\n", f->note);
}

static enum pick_choice pick_whole(struct pick *p, const char *diff) {
    if (diff)
        colour_diff(diff);
    char c = pick_question("file", 1, 1, "ynq");
    p->is_over = c == 'q';
    return c == 'y' ? PICK_ALL : PICK_NONE;
}

/* Shows one hunk; returns where the next one begins. */
static const char *pick_show(const char *at) {
    const char *next = strstr(at, "\n@@ ");
    char *text DEFER_FREE = next ? strndup(at, (size_t)(next + 1 - at)) : strdup(at);
    colour_diff(alloc_check(text));
    return next ? next + 1 : NULL;
}

static enum pick_choice pick_hunks(struct pick *p, const char *diff, size_t count, bool *chosen) {
    size_t taken = 0;
    char answer = 0;
    const char *at = diff;
    for (size_t i = 1; i <= count; i++) {
        if (at && answer != 'a' && answer != 'd' && answer != 'q') {
            at = pick_show(at);
            answer = pick_question("hunk", i, count, "ynadq");
        }
        chosen[i] = answer == 'y' || answer == 'a';
        taken += chosen[i];
    }
    p->is_over = answer == 'q';
    return taken == count ? PICK_ALL : taken ? PICK_SOME : PICK_NONE;
}

enum pick_choice pick_ask(struct pick *p, const struct pick_file *f, bool chosen[HUNKS_MAX + 1]) {
    struct buf diff DEFER(buf_done) = BUF(4 * SHOWN_MAX);
    bool has_text = (f->change == 'A' || f->before) && (f->change == 'D' || f->after);
    memset(chosen, 0, HUNKS_MAX + 1);
    if (p->is_over)
        return PICK_NONE;
    pick_heading(f);
    if (!has_text || !pick_diff(f, &diff) || !diff.data)
        return pick_whole(p, NULL);
    size_t count = hunks_count(diff.data, diff.len);
    if (f->change != 'M' || !count || count > HUNKS_MAX)
        return pick_whole(p, diff.data);
    return pick_hunks(p, diff.data, count, chosen);
}

int pick_apply(const struct pick_file *f, const bool chosen[HUNKS_MAX + 1], struct buf *ret,
               struct err *err) {
    struct buf diff DEFER(buf_done) = BUF(4 * SHOWN_MAX);
    if (!pick_diff(f, &diff))
        return err_set(err, ERR_LIMIT, "the diff of file '%s' is too large", f->path);
    return hunks_apply(f->before ? f->before : "", f->before_n, diff.data ? diff.data : "",
                       diff.len, chosen, ret, err) < 0
               ? err_wrap(err, "file '%s'", f->path)
               : 0;
}
