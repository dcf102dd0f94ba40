/*
 * Property: the file of a stored program is refused, or its parts lie within its bytes and its
 * words are as many as it says, each with a NUL.
 */
#include <assert.h>
#include <string.h>

#include "cell/pause.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct slice s, const uint8_t *bytes, size_t size) {
    assert(s.data >= bytes && s.len <= size && s.data + s.len <= bytes + size);
    (void)s, (void)bytes, (void)size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct pause_parts p;
    struct err err;
    if (pause_split((struct slice){data, size}, &p, &err) < 0)
        return 0;
    const struct slice parts[] = {p.text, p.module, p.request, p.state, p.input};
    size_t all = PAUSE_HEAD + PAUSE_TAIL;
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        check(parts[i], data, size);
        all += parts[i].len;
    }
    assert(all == size);
    const char *word = (const char *)p.text.data;
    for (uint64_t i = 0; i < (uint64_t)p.argc + p.envc; i++)
        word += strlen(word) + 1;
    assert(word == (const char *)p.text.data + p.text.len);
    return 0;
}
