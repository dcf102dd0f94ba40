#include "io/http_coding.h"

#include <string.h>

static struct http_text trim(struct http_text t) {
    while (t.n && (t.s[0] == ' ' || t.s[0] == '\t')) {
        t.s++;
        t.n--;
    }
    while (t.n && (t.s[t.n - 1] == ' ' || t.s[t.n - 1] == '\t'))
        t.n--;
    return t;
}

/* Returns the text before the character `mark`; *rest becomes the text after it. */
static struct http_text cut(struct http_text *rest, char mark) {
    const char *at = rest->n ? memchr(rest->s, mark, rest->n) : NULL;
    struct http_text part = {rest->s, at ? (size_t)(at - rest->s) : rest->n};
    size_t used = part.n + (at ? 1 : 0);
    rest->s = rest->n ? rest->s + used : rest->s;
    rest->n -= used;
    return part;
}

/* "q=0", "q=0.000" */
static bool is_refusal(struct http_text weight) {
    if (weight.n < 3 || (weight.s[0] | 32) != 'q' || weight.s[1] != '=')
        return false;
    for (size_t i = 2; i < weight.n; i++)
        if (weight.s[i] != '0' && weight.s[i] != '.')
            return false;
    return true;
}

bool http_coding_wanted(struct http_text field, const char *coding) {
    while (field.n) {
        struct http_text item = cut(&field, ','), name = trim(cut(&item, ';'));
        if (http_text_is_like(name, coding))
            return !is_refusal(trim(item));
    }
    return false;
}
