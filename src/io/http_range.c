#include "io/http_range.h"

#include <string.h>

/* Takes the digits at the start of *t; false: there are none, or the number is too large. */
static bool http_range_take_number(struct http_text *t, uint64_t *ret) {
    uint64_t n = 0;
    size_t at = 0;
    for (; at < t->n && t->s[at] >= '0' && t->s[at] <= '9'; at++) {
        uint64_t digit = (uint64_t)(t->s[at] - '0');
        if (n > (UINT64_MAX / 2 - digit) / 10)
            return false;
        n = n * 10 + digit;
    }
    t->s += at;
    t->n -= at;
    *ret = n;
    return at > 0;
}

static bool take_dash(struct http_text *t) {
    if (!t->n || t->s[0] != '-')
        return false;
    t->s++;
    t->n--;
    return true;
}

struct http_range http_range_parse(struct http_text field) {
    static const char unit[] = "bytes=";
    const size_t n = sizeof(unit) - 1;
    const struct http_range none = {0};
    struct http_range r = {.given = true, .last = UINT64_MAX};
    if (field.n < n || !http_text_is_like((struct http_text){field.s, n}, unit))
        return none;
    struct http_text rest = {field.s + n, field.n - n};
    r.suffix = take_dash(&rest);
    if (r.suffix)
        return http_range_take_number(&rest, &r.last) && !rest.n ? r : none;
    if (!http_range_take_number(&rest, &r.first) || !take_dash(&rest))
        return none;
    if (rest.n && !http_range_take_number(&rest, &r.last))
        return none;
    return rest.n || r.last < r.first ? none : r;
}

bool http_range_of(const struct http_range *r, uint64_t size, uint64_t *ret_first,
                   uint64_t *ret_end) {
    uint64_t first = r->given ? r->first : 0, end = size;
    if (r->given && r->suffix)
        first = r->last < size ? size - r->last : 0;
    else if (r->given && r->last < size)
        end = r->last + 1;
    if (r->given && (first >= size || (r->suffix && !r->last)))
        return false;
    *ret_first = first;
    *ret_end = end;
    return true;
}
