/* Property: records are the same however the bytes are cut, and what sse_put() wrote is read. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/defer.h"
#include "io/sse.h"
#include "io/sse_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 4096 };

/* A hash of all records; the last step adds how it ended. */
static uint64_t run(const char *bytes, size_t n, size_t step) {
    struct sse_reader r DEFER(sse_reader_done);
    uint64_t hash = 0;
    int got = 0;
    sse_reader_init(&r, MOST);
    for (size_t i = 0; got >= 0 && i < n;) {
        size_t used, piece = step - i % step < n - i ? step - i % step : n - i;
        got = sse_read(&r, bytes + i, piece, &used);
        assert(got < 0 || used > 0);
        i += used;
        if (got > 0) {
            assert(r.data.len <= MOST && strlen(r.name) < SSE_NAME_SIZE);
            for (size_t k = 0; k < r.data.len; k++)
                hash = (hash ^ (uint8_t)r.data.data[k]) * 0x100000001b3ull;
            hash = hash * 31 + strlen(r.name);
        }
    }
    return got < 0 ? ~hash : hash * 31 + (uint64_t)sse_read_end(&r) + r.data.len;
}

/* Data without line ends of its own comes back as it was. */
static void round_trip(const char *bytes, size_t n) {
    struct buf b DEFER(buf_done) = BUF(2 * MOST);
    struct sse_reader r DEFER(sse_reader_done);
    size_t used;
    sse_reader_init(&r, MOST);
    if (n == 0 || n > MOST / 2 || memchr(bytes, '\n', n) || memchr(bytes, '\r', n))
        return;
    struct sse_event e = {.name = "some", .data = bytes, .n = n};
    assert(sse_put(&b, &e));
    assert(sse_read(&r, b.data, b.len, &used) == 1 && used == b.len);
    assert(r.data.len == n && memcmp(r.data.data, bytes, n) == 0 && strcmp(r.name, "some") == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    const char *bytes = (const char *)data + 1;
    assert(run(bytes, size - 1, size) == run(bytes, size - 1, data[0] % 19 + 1));
    round_trip(bytes, size - 1);
    return 0;
}
