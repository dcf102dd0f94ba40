/*
 * Properties: any blocks are an entry, need more, end or are refused, and what comes out is
 * bounded and terminated; and an entry that came out is the same after it is written and read.
 */
#include <assert.h>
#include <string.h>

#include "base/tar.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct tar_entry entry, again;

static void check_round_trip(void) {
    static uint8_t head[TAR_HEAD_MAX];
    static struct tar_reader r;
    if (entry.kind == TAR_OTHER)
        return;
    size_t n = tar_put(head, &entry);
    assert(n <= TAR_HEAD_MAX && n % TAR_BLOCK == 0);
    memset(&r, 0, sizeof(r));
    enum tar_step step = TAR_MORE;
    for (size_t at = 0; at < n; at += TAR_BLOCK) {
        assert(step == TAR_MORE);
        step = tar_next(&r, head + at, &again);
    }
    assert(step == TAR_ENTRY);
    assert(strcmp(entry.path, again.path) == 0 && strcmp(entry.target, again.target) == 0);
    assert(entry.mode == again.mode && entry.size == again.size);
    size_t len = strlen(entry.path);
    bool is_slashed = len > 0 && entry.path[len - 1] == '/';
    assert(entry.kind == again.kind || (is_slashed && again.kind == TAR_DIR));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct tar_reader r;
    memset(&r, 0, sizeof(r));
    for (size_t at = 0; at + TAR_BLOCK <= size;) {
        enum tar_step step = tar_next(&r, data + at, &entry);
        at += TAR_BLOCK;
        if (step == TAR_BAD || step == TAR_END)
            break;
        if (step == TAR_MORE)
            continue;
        assert(strnlen(entry.path, sizeof(entry.path)) <= TAR_NAME_MAX);
        assert(strnlen(entry.target, sizeof(entry.target)) <= TAR_NAME_MAX);
        assert(entry.size <= INT64_MAX && entry.mode <= 07777);
        check_round_trip();
        uint64_t skip = entry.size + tar_padding(entry.size);
        if (skip > size - at)
            break;
        at += (size_t)skip;
    }
    return 0;
}
