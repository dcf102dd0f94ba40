#include "review/bundle.h"

#include <stdio.h>
#include <string.h>

static bool begins_with(const char *at, size_t n, const char *text) {
    return n >= strlen(text) && memcmp(at, text, strlen(text)) == 0;
}

/* An empty line ends the head. */
bool bundle_parse(const char *bytes, size_t n, struct bundle *ret) {
    static const char *const versions[] = {"# v2 git bundle\n", "# v3 git bundle\n"};
    if (!begins_with(bytes, n, versions[0]) && !begins_with(bytes, n, versions[1]))
        return false;
    const char *head = bytes + strlen(versions[0]), *end = bytes + n;
    for (const char *at = head, *next; at < end; at = next + 1) {
        next = memchr(at, '\n', (size_t)(end - at));
        if (!next)
            return false;
        if (next > at)
            continue;
        *ret = (struct bundle){.head = head,
                               .pack = next + 1,
                               .head_size = (size_t)(at - head),
                               .pack_size = (size_t)(end - next - 1)};
        return true;
    }
    return false;
}

/* Returns the number of hexadecimal digits at the start of a line. */
static size_t bundle_digits(const char *line, size_t n) {
    size_t len = 0;
    while (len < n && line[len] && strchr("0123456789abcdef", line[len]))
        len++;
    return len;
}

bool bundle_find(const struct bundle *b, const char *ref, char ret[BUNDLE_HASH]) {
    const char *end = b->head + b->head_size;
    for (const char *at = b->head, *next; at < end; at = next + 1) {
        next = memchr(at, '\n', (size_t)(end - at));
        if (!next)
            return false;
        size_t n = (size_t)(next - at), hash = bundle_digits(at, n);
        if ((hash != 40 && hash != 64) || n != hash + 1 + strlen(ref) || at[hash] != ' ' ||
            memcmp(at + hash + 1, ref, strlen(ref)) != 0)
            continue;
        snprintf(ret, BUNDLE_HASH, "%.*s", (int)hash, at);
        return true;
    }
    return false;
}
