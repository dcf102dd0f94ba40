#include <string.h>
#include <strings.h>

#include "io/http.h"
#include "io/http_inner.h"

enum {
    TOKEN = HTTP_CH_TOKEN,
    VALUE = HTTP_CH_VALUE,
    TARGET = HTTP_CH_TARGET,
    HOST = HTTP_CH_HOST,
    LETTER = TOKEN | VALUE | TARGET | HOST,
    DIGIT = LETTER | HTTP_CH_DIGIT | HTTP_CH_HEX,
};

const unsigned char http_chars[256] = {
    ['\t'] = VALUE,
    [' '] = VALUE,
    ['0' ... '9'] = DIGIT,
    ['A' ... 'F'] = LETTER | HTTP_CH_HEX,
    ['a' ... 'f'] = LETTER | HTTP_CH_HEX,
    ['G' ... 'Z'] = LETTER,
    ['g' ... 'z'] = LETTER,
    ['!'] = LETTER,
    ['$'] = LETTER,
    ['%'] = LETTER,
    ['&'] = LETTER,
    ['\''] = LETTER,
    ['*'] = LETTER,
    ['+'] = LETTER,
    ['-'] = LETTER,
    ['.'] = LETTER,
    ['_'] = LETTER,
    ['~'] = LETTER,
    ['#'] = TOKEN | VALUE,
    ['^'] = TOKEN | VALUE | TARGET,
    ['`'] = TOKEN | VALUE | TARGET,
    ['|'] = TOKEN | VALUE | TARGET,
    ['('] = VALUE | TARGET | HOST,
    [')'] = VALUE | TARGET | HOST,
    [','] = VALUE | TARGET | HOST,
    [';'] = VALUE | TARGET | HOST,
    ['='] = VALUE | TARGET | HOST,
    ['/'] = VALUE | TARGET,
    [':'] = VALUE | TARGET,
    ['?'] = VALUE | TARGET,
    ['@'] = VALUE | TARGET,
    ['['] = VALUE | TARGET,
    [']'] = VALUE | TARGET,
    ['{'] = VALUE | TARGET,
    ['}'] = VALUE | TARGET,
    ['"'] = VALUE,
    ['<'] = VALUE,
    ['>'] = VALUE,
    ['\\'] = VALUE,
    [0x80 ... 0xff] = VALUE,
};

bool http_text_same(struct http_text a, struct http_text b) {
    return a.n == b.n && (a.n == 0 || memcmp(a.s, b.s, a.n) == 0);
}

bool http_text_is(struct http_text t, const char *s) {
    return http_text_same(t, (struct http_text){s, strlen(s)});
}

bool http_text_is_like(struct http_text t, const char *s) {
    return t.n == strlen(s) && strncasecmp(t.s, s, t.n) == 0;
}

bool http_is_token(struct http_text t) {
    return t.n > 0 && http_span(t.s, t.n, TOKEN) == t.n;
}

const struct http_field *http_field_find(const struct http_head *head, const char *name) {
    for (size_t i = 0; i < head->count; i++)
        if (http_text_is_like(head->fields[i].name, name))
            return &head->fields[i];
    return NULL;
}

size_t http_field_count(const struct http_head *head, const char *name) {
    size_t count = 0;
    for (size_t i = 0; i < head->count; i++)
        count += http_text_is_like(head->fields[i].name, name);
    return count;
}

struct http_text http_field_only(const struct http_head *head, const char *name) {
    const struct http_field *f = http_field_find(head, name);
    return f && http_field_count(head, name) == 1 ? f->value : (struct http_text){0};
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

bool http_type_is(const struct http_head *head, const char *type) {
    struct http_text value = http_field_only(head, "Content-Type");
    const char *end = value.s ? memchr(value.s, ';', value.n) : NULL;
    if (end)
        value.n = (size_t)(end - value.s);
    while (value.n && is_blank(value.s[value.n - 1]))
        value.n--;
    return value.s && http_text_is_like(value, type);
}

bool http_list_next(struct http_text *rest, struct http_text *ret) {
    while (rest->n && (is_blank(*rest->s) || *rest->s == ',')) {
        rest->s++;
        rest->n--;
    }
    if (rest->n == 0)
        return false;
    const char *comma = memchr(rest->s, ',', rest->n);
    size_t n = comma ? (size_t)(comma - rest->s) : rest->n;
    *ret = (struct http_text){rest->s, n};
    while (is_blank(ret->s[ret->n - 1]))
        ret->n--;
    rest->s += n;
    rest->n -= n;
    return true;
}

bool http_list_has(const struct http_head *head, const char *name, const char *token) {
    for (size_t i = 0; i < head->count; i++) {
        struct http_text rest = head->fields[i].value, member;
        if (!http_text_is_like(head->fields[i].name, name))
            continue;
        while (http_list_next(&rest, &member))
            if (http_text_is_like(member, token))
                return true;
    }
    return false;
}
