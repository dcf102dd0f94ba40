#include "base/text/json_check.h"

#include <string.h>

#include "base/text/cursor.h"

enum { JSON_DEPTH = 32 };

static bool skip_escape(struct cursor *c) {
    if (c->at == c->end)
        return false;
    char kind = *c->at++;
    if (kind != 'u')
        return kind && strchr("\"\\/bfnrt", kind);
    for (int i = 0; i < 4; i++, c->at++)
        if (c->at == c->end || !(*c->at && strchr("0123456789abcdefABCDEF", *c->at)))
            return false;
    return true;
}

static bool skip_string(struct cursor *c) {
    if (!take_char(c, '"'))
        return false;
    while (c->at < c->end) {
        unsigned char b = (unsigned char)*c->at++;
        if (b == '"')
            return true;
        if (b < ' ' || (b == '\\' && !skip_escape(c)))
            return false;
    }
    return false;
}

static bool skip_digits(struct cursor *c) {
    const char *from = c->at;
    while (c->at < c->end && *c->at >= '0' && *c->at <= '9')
        c->at++;
    return c->at > from;
}

static bool skip_number(struct cursor *c) {
    (void)take_char(c, '-');
    if (!take_char(c, '0') && !skip_digits(c))
        return false;
    if (take_char(c, '.') && !skip_digits(c))
        return false;
    if (take_char(c, 'e') || take_char(c, 'E')) {
        if (!take_char(c, '+'))
            (void)take_char(c, '-');
        return skip_digits(c);
    }
    return true;
}

static void skip_space(struct cursor *c) {
    while (take_char(c, ' ') || take_char(c, '\n') || take_char(c, '\t') || take_char(c, '\r'))
        ;
}

static bool skip_value(struct cursor *c, int depth);

/* Skips the contents of an object or array, after its opening bracket. */
static bool skip_members(struct cursor *c, char close, int depth) {
    skip_space(c);
    if (take_char(c, close))
        return true;
    do {
        skip_space(c);
        if (close == '}') {
            if (!skip_string(c))
                return false;
            skip_space(c);
            if (!take_char(c, ':'))
                return false;
        }
        if (!skip_value(c, depth))
            return false;
        skip_space(c);
    } while (take_char(c, ','));
    return take_char(c, close);
}

static bool skip_value(struct cursor *c, int depth) {
    skip_space(c);
    if (depth == 0 || c->at == c->end)
        return false;
    if (take_char(c, '{'))
        return skip_members(c, '}', depth - 1);
    if (take_char(c, '['))
        return skip_members(c, ']', depth - 1);
    if (*c->at == '"')
        return skip_string(c);
    return take(c, "true", 4) || take(c, "false", 5) || take(c, "null", 4) || skip_number(c);
}

bool json_check(const char *text, size_t len) {
    struct cursor c = {text, text + len};
    if (!skip_value(&c, JSON_DEPTH))
        return false;
    skip_space(&c);
    return c.at == c.end;
}
