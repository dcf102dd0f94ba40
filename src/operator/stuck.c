#include "operator/stuck.h"

#include <string.h>

#include "base/sha256.h"

static uint64_t hash_end(struct sha256 *h) {
    uint8_t bytes[SHA256_BYTES];
    uint64_t n;
    sha256_end(h, bytes);
    memcpy(&n, bytes, sizeof(n));
    return n;
}

static uint64_t hash_call(const char *tool, const char *arguments) {
    struct sha256 h;
    sha256_init(&h);
    sha256_add(&h, tool, strlen(tool) + 1);
    sha256_add(&h, arguments, strlen(arguments));
    return hash_end(&h);
}

static uint64_t hash_bytes(const char *bytes, size_t n) {
    struct sha256 h;
    sha256_init(&h);
    sha256_add(&h, bytes, n);
    return hash_end(&h);
}

static const struct stuck_row *row(const struct stuck *s, size_t i) {
    return &s->rows[i % STUCK_KEPT];
}

static bool seen(const struct stuck *s, const struct stuck_row *r) {
    size_t from = s->count > STUCK_KEPT ? s->count - STUCK_KEPT : 0;
    for (size_t i = from; i < s->count; i++)
        if (row(s, i)->call == r->call && row(s, i)->result == r->result)
            return true;
    return false;
}

void stuck_add(struct stuck *s, const char *tool, const char *arguments, const char *result,
               size_t n, bool failed) {
    struct stuck_row r = {hash_call(tool, arguments), hash_bytes(result, n), failed, false};
    r.old = seen(s, &r);
    s->rows[s->count++ % STUCK_KEPT] = r;
}

void stuck_told(struct stuck *s) {
    s->since = s->count;
}

/* Finds the first of the last n rows (calls). False: fewer were added since the last report. */
static bool tail(const struct stuck *s, size_t n, size_t *ret_first) {
    *ret_first = s->count - n;
    return s->count >= s->since + n;
}

static bool repeats(const struct stuck *s) {
    size_t first;
    if (!tail(s, STUCK_SAME, &first))
        return false;
    for (size_t i = first + 1; i < s->count; i++)
        if (row(s, i)->call != row(s, first)->call || row(s, i)->result != row(s, first)->result)
            return false;
    return true;
}

static bool fails(const struct stuck *s) {
    size_t first;
    if (!tail(s, STUCK_FAILING, &first))
        return false;
    for (size_t i = first; i < s->count; i++)
        if (!row(s, i)->failed || row(s, i)->call != row(s, first)->call)
            return false;
    return true;
}

static bool alternates(const struct stuck *s) {
    size_t first;
    if (!tail(s, STUCK_ALTERNATE, &first) || row(s, first)->call == row(s, first + 1)->call)
        return false;
    for (size_t i = first + 2; i < s->count; i++)
        if (row(s, i)->call != row(s, i - 2)->call || row(s, i)->result != row(s, i - 2)->result)
            return false;
    return true;
}

static bool without_effect(const struct stuck *s) {
    size_t first;
    if (!tail(s, STUCK_NOTHING, &first))
        return false;
    for (size_t i = first; i < s->count; i++)
        if (!row(s, i)->old)
            return false;
    return true;
}

enum stuck_pattern stuck_look(const struct stuck *s) {
    return fails(s)            ? STUCK_FAILS
           : repeats(s)        ? STUCK_REPEATS
           : alternates(s)     ? STUCK_ALTERNATES
           : without_effect(s) ? STUCK_NO_EFFECT
                               : STUCK_NOT;
}

const char *stuck_says(enum stuck_pattern pattern) {
    static const char *const says[] = {
        "",
        "you made the same call several times and the result was the same each time",
        "the same call failed several times",
        "you alternate between the same two calls",
        "your last calls gave no new results",
    };
    return says[pattern];
}
