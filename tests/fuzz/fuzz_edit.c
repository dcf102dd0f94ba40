/* Property: a successful edit changes exactly what it says, a refused one nothing at all. */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tools/edit.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Three texts apart by NULs: file, old, new. */
static const char *next(const char **at, const char *end) {
    const char *s = *at;
    *at = s + strlen(s);
    if (*at < end)
        ++*at;
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *copy = malloc(size + 1);
    if (!copy)
        abort();
    memcpy(copy, data, size);
    copy[size] = '\0';
    const char *at = copy, *end = copy + size;
    const char *file = next(&at, end), *old = next(&at, end), *new = next(&at, end);
    struct buf text = BUF(1 << 16), diff = BUF(1 << 16), hint = BUF(1 << 16);
    struct err err = {0};
    if (buf_add(&text, file, strlen(file))) {
        const struct edit_step step = {old, new, 1};
        const char *found = *old ? strstr(file, old) : NULL;
        int r = edit_apply(&text, &step, 1, &diff, &hint, &err);
        if (r == 0) {
            assert(found && !strstr(found + strlen(old), old) && diff.len > 0);
            size_t before = (size_t)(found - file);
            assert(memcmp(text.data, file, before) == 0);
            assert(strncmp(text.data + before, new, strlen(new)) == 0);
            assert(strcmp(text.data + before + strlen(new), found + strlen(old)) == 0);
        } else {
            assert(err.code && strcmp(text.data, file) == 0);
        }
    }
    buf_done(&text);
    buf_done(&diff);
    buf_done(&hint);
    free(copy);
    return 0;
}
