#include "gate/name.h"

#include <string.h>

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Accepts underscores: host names may not have them, but service names do, and resolvers accept
 * them. */
static bool read_char(char c, char *ret) {
    if (c >= 'A' && c <= 'Z')
        c = (char)(c + ('a' - 'A'));
    *ret = c;
    return (c >= 'a' && c <= 'z') || is_digit(c) || c == '-' || c == '_' || c == '.';
}

static bool label_ok(const char *label, size_t n) {
    return n > 0 && n <= LABEL_MAX && label[0] != '-' && label[n - 1] != '-';
}

/* inet_aton() accepts one to four decimal, octal or hexadecimal parts. Each begins with a digit, so
 * it is enough to check the last part. */
static bool looks_like_address(const char *name) {
    const char *last = strrchr(name, '.');
    last = last ? last + 1 : name;
    return is_digit(*last) && (last[strspn(last, "0123456789")] == '\0' || last[1] == 'x');
}

bool name_read(const char *text, size_t n, char ret[NAME_SIZE]) {
    ret[0] = '\0';
    if (n > 0 && text[n - 1] == '.')
        n--;
    if (n == 0 || n >= NAME_SIZE)
        return false;
    char name[NAME_SIZE];
    size_t label = 0;
    for (size_t i = 0; i < n; i++) {
        if (!read_char(text[i], &name[i]))
            return false;
        if (name[i] != '.')
            continue;
        if (!label_ok(name + label, i - label))
            return false;
        label = i + 1;
    }
    name[n] = '\0';
    if (!label_ok(name + label, n - label) || looks_like_address(name))
        return false;
    memcpy(ret, name, n + 1);
    return true;
}

bool name_is_below(const char *name, const char *suffix) {
    size_t n = strlen(name), m = strlen(suffix);
    return n > m + 1 && name[n - m - 1] == '.' && strcmp(name + n - m, suffix) == 0;
}
