/*
 * Property: whatever log is applied to whatever file, and whatever database that is, it is compared
 * or refused, and the same twice.
 */
#include <assert.h>
#include <string.h>

#include "base/defer.h"
#include "grant/sqlite/diff.h"
#include "grant/sqlite/wal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROOM = 1 << 22 };

/* The first two bytes say where the log begins. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2)
        return 0;
    size_t at = (size_t)(data[0] << 8 | data[1]) * 16;
    data += 2;
    size -= 2;
    at = at < size ? at : size;
    struct buf image DEFER(buf_done) = BUF(ROOM), again DEFER(buf_done) = BUF(ROOM);
    struct buf text DEFER(buf_done) = BUF(ROOM);
    struct err err;
    if (!buf_add(&image, (const char *)data, at) || !buf_add(&again, (const char *)data, at))
        return 0;
    long frames = wal_apply(&image, data + at, size - at);
    assert(frames == wal_apply(&again, data + at, size - at) && image.len == again.len);
    assert(image.len == 0 || memcmp(image.data, again.data, image.len) == 0);
    if (frames < 0 || !wal_settle(&image) || !wal_settle(&again))
        return 0;
    if (sqlite_diff(&image, &again, true, &text, &err) == 0)
        assert(text.len == 0);
    return 0;
}
