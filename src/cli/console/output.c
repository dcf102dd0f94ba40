#include "cli/console/output.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"

static const char left_out[] = "(the first lines of a long output are left out)\n";

/* True if the object had a diff. */
static bool diff_remove(json_t *of) {
    if (!json_object_get(of, "diff"))
        return false;
    json_object_del(of, "diff");
    json_object_set_new(of, "diff_left_out", json_true());
    return true;
}

/* The review on one line, without its diffs. The lines that are not reviews stay as they are. */
static char *review_shorten(const char *line, size_t n) {
    json_t *review DEFER(json_decrefp) = json_loadb(line, n, 0, NULL), *file;
    size_t i;
    if (!json_is_object(review))
        return strndup(line, n);
    diff_remove(review);
    json_object_del(review, "log"); /* of a repository: as long as its diff */
    json_array_foreach(json_object_get(review, "files"), i, file) diff_remove(file);
    json_t *database = json_object_get(review, "database");
    if (diff_remove(database))
        json_object_set_new(
            database, "error",
            json_string("the difference is too long for the console: use carrel ship"));
    return json_dumps(review, JSON_COMPACT);
}

/* Adds the lines, of which those from `from` on are shortened. */
static bool add_lines(const struct buf *output, size_t from, struct buf *ret) {
    const char *at = output->data, *end = at + output->len;
    for (size_t i = 0; at < end; i++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t n = (size_t)((stop ? stop : end) - at);
        char *line DEFER_FREE = i >= from ? review_shorten(at, n) : NULL;
        if ((i >= from && !line) || !buf_add(ret, line ? line : at, line ? strlen(line) : n) ||
            !buf_add(ret, "\n", 1))
            return false;
        at = stop ? stop + 1 : end;
    }
    return true;
}

static size_t lines_count(const struct buf *b) {
    size_t count = 0;
    for (size_t i = 0; i < b->len; i++)
        count += b->data[i] == '\n';
    return count + (b->len && b->data[b->len - 1] != '\n');
}

int output_fit_reviews(const struct buf *output, size_t max, struct buf *ret, struct err *err) {
    size_t from = lines_count(output);
    for (;; from--) {
        buf_drop(ret, ret->len);
        if (add_lines(output, from, ret) && ret->len <= max)
            return 0;
        if (!from)
            break;
    }
    err_set(err, ERR_LIMIT, "the list of changed files is too long for the console");
    return err_remedy(err, "review it with carrel ship, or a part of it with --only");
}

int output_fit_text(const struct buf *output, size_t max, struct buf *ret, struct err *err) {
    const char *at = output->data;
    size_t n = output->len;
    if (n > max) {
        size_t kept = max - (sizeof(left_out) - 1);
        const char *line = memchr(at + n - kept, '\n', kept);
        n = line ? (size_t)(at + n - (line + 1)) : 0;
        at = output->data + output->len - n;
        if (!buf_add(ret, left_out, sizeof(left_out) - 1))
            return err_set(err, ERR_INTERNAL, "out of memory");
    }
    return n && !buf_add(ret, at, n) ? err_set(err, ERR_INTERNAL, "out of memory") : 0;
}
