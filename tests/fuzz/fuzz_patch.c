/*
 * Property: a patch that applies adds and removes as many lines as it says; one that does not
 * apply changes nothing. The parts are separated by a NUL: the file, then the patch.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tools/patch_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t lines_of(const struct buf *b) {
    size_t n = b->len && b->data[b->len - 1] != '\n';
    for (size_t i = 0; i < b->len; i++)
        n += b->data[i] == '\n';
    return n;
}

static void try_file(struct patch *p, const struct patch_file *f, const char *file) {
    struct buf text = BUF(1 << 16), hint = BUF(1 << 16);
    struct patch_counts counts = {0};
    struct err err = {0};
    if (buf_add(&text, file, strlen(file))) {
        size_t before = lines_of(&text);
        if (patch_apply(p, f, &text, &counts, &hint, &err) == 0)
            assert(lines_of(&text) == before + counts.added - counts.removed);
        else
            assert(err.code && strcmp(text.data, file) == 0);
    }
    buf_done(&text);
    buf_done(&hint);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *copy = malloc(size + 1);
    struct patch p;
    struct err err = {0};
    if (!copy)
        abort();
    memcpy(copy, data, size);
    copy[size] = '\0';
    const char *file = copy, *text = copy + strlen(copy);
    if (patch_parse(text < copy + size ? text + 1 : text, &p, &err) == 0)
        for (size_t i = 0; i < p.file_count; i++)
            try_file(&p, &p.files[i], file);
    else
        assert(err.code);
    patch_done(&p);
    free(copy);
    return 0;
}
