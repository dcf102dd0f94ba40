#include "review/hunks.h"

#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "base/text/textdiff.h"

enum { PICKED_MAX = 8 << 20 };

static int hunks_bad(const char *text, struct err *err) {
    err_set(err, ERR_INVALID, "'%.40s' is not a list of hunks", text);
    return err_remedy(err, "give hunk numbers or ranges, such as 2 or 1,4-6; the first hunk is 1");
}

int hunks_parse(const char *text, bool chosen[HUNKS_MAX + 1], struct err *err) {
    memset(chosen, 0, HUNKS_MAX + 1);
    for (const char *at = text;; at++) {
        char *end;
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (end == at || *at < '0' || *at > '9')
            return hunks_bad(text, err);
        if (*end == '-') {
            at = end + 1;
            last = strtoul(at, &end, 10);
            if (end == at || *at < '0' || *at > '9')
                return hunks_bad(text, err);
        }
        if (!first || first > last || last > HUNKS_MAX)
            return hunks_bad(text, err);
        for (unsigned long i = first; i <= last; i++)
            chosen[i] = true;
        if (!*end)
            return 0;
        if (*end != ',')
            return hunks_bad(text, err);
        at = end;
    }
}

/* Returns the next hunk from `at` on, or `end`. Lines of a hunk have a prefix, so none begins with
 * "@@". */
static const char *next_hunk(const char *at, const char *end) {
    while (at < end && strncmp(at, "@@ ", 3) != 0) {
        const char *line = memchr(at, '\n', (size_t)(end - at));
        at = line ? line + 1 : end;
    }
    return at;
}

size_t hunks_count(const char *diff, size_t n) {
    size_t count = 0;
    for (const char *at = diff, *end = diff + n; (at = next_hunk(at, end)) < end; at++)
        count++;
    return count;
}

int hunks_apply(const char *text, size_t text_n, const char *diff, size_t n,
                const bool chosen[HUNKS_MAX + 1], struct buf *out, struct err *err) {
    struct buf picked DEFER(buf_done) = BUF(PICKED_MAX);
    const char *end = diff + n;
    size_t count = hunks_count(diff, n), i = 0;
    for (size_t k = count + 1; k <= HUNKS_MAX; k++)
        if (chosen[k])
            return err_set(err, ERR_NOT_FOUND,
                           "hunk %zu does not exist: the last hunk of the file is %zu", k, count);
    for (const char *at = next_hunk(diff, end), *next; at < end; at = next) {
        next = next_hunk(at + 1, end);
        if (++i <= HUNKS_MAX && chosen[i] && !buf_add(&picked, at, (size_t)(next - at)))
            return err_set(err, ERR_LIMIT, "the chosen hunks are larger than %d MiB",
                           PICKED_MAX >> 20);
    }
    if (!textdiff_apply(out, text, text_n, picked.data ? picked.data : "", picked.len))
        return err_set(err, ERR_LIMIT, "the chosen hunks cannot be applied to the file");
    return 0;
}
