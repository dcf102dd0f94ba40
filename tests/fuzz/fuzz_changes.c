/* Properties: what is read as a record is well-formed and within the bytes, and written again it is
 * read as the same. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/wire/changes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const char *at, size_t n, const struct changes_record *r) {
    struct buf out = BUF(1 << 24);
    struct changes_record again;
    assert(changes_write(&out, r));
    const char *p = out.data;
    assert(out.len == n && changes_read(&p, out.data + out.len, &again) == 1);
    assert(again.type == r->type && p == out.data + out.len);
    if (r->type == CHANGES_CHANGE) {
        const struct bytes *path = &r->change.path;
        assert(path->n > 0 && path->s >= at && path->s + path->n <= at + n);
        assert(again.change.path.n == path->n &&
               memcmp(again.change.path.s, path->s, path->n) == 0);
        assert(change_kind_name(r->change.kind));
        change_content_name(r->change.content);
        change_type_name(r->change.after.mode);
    }
    buf_done(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *at = (const char *)data, *end = at + size, *from = at;
    struct changes_record r;
    for (; changes_read(&at, end, &r) == 1; from = at) {
        assert(at > from && at <= end);
        check(from, (size_t)(at - from), &r);
    }
    return 0;
}
