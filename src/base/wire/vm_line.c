#include "base/wire/vm_line.h"

#include <stdio.h>
#include <string.h>

static bool is_host_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.';
}

static bool is_hostname(const char *s, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!is_host_character(s[i]))
            return false;
    return n > 0 && n < VM_HOSTNAME_SIZE && s[0] != '-' && s[0] != '.';
}

/* A part of the text. */
struct word {
    const char *s;
    size_t n;
};

static bool word_is(struct word w, const char *text) {
    return w.n == strlen(text) && memcmp(w.s, text, w.n) == 0;
}

/* Removes the prefix from the front of the word, if it is there. */
static bool word_skip(struct word *w, const char *prefix) {
    size_t n = strlen(prefix);
    if (w->n < n || memcmp(w->s, prefix, n) != 0)
        return false;
    *w = (struct word){w->s + n, w->n - n};
    return true;
}

static bool word_take(struct word w, struct vm_line *l) {
    if (word_skip(&w, "hostname=")) {
        if (!is_hostname(w.s, w.n))
            return false;
        memcpy(l->hostname, w.s, w.n);
        l->hostname[w.n] = '\0';
        return true;
    }
    if (word_skip(&w, "init=")) {
        l->starts_system = word_is(w, "system");
        return l->starts_system || word_is(w, "guest");
    }
    if (word_skip(&w, "net=")) {
        l->has_net = word_is(w, "1");
        return l->has_net || word_is(w, "0");
    }
    return false;
}

static bool is_space(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\0';
}

bool vm_line_read(const char *text, size_t len, struct vm_line *ret) {
    struct vm_line l = {0};
    *ret = l;
    for (size_t i = 0; i < len;) {
        size_t start = i;
        while (i < len && !is_space(text[i]))
            i++;
        struct word w = {text + start, i - start};
        if (word_skip(&w, VM_WORD_PREFIX) && !word_take(w, &l))
            return false;
        while (i < len && is_space(text[i]))
            i++;
    }
    if (!l.hostname[0])
        return false;
    *ret = l;
    return true;
}

bool vm_line_write(const struct vm_line *line, char *ret, size_t size) {
    if (!is_hostname(line->hostname, strnlen(line->hostname, VM_HOSTNAME_SIZE)))
        return false;
    int n = snprintf(ret, size, " carrel.hostname=%s carrel.init=%s carrel.net=%d", line->hostname,
                     line->starts_system ? "system" : "guest", line->has_net);
    return n > 0 && (size_t)n < size;
}
