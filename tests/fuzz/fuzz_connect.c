/* Property: envelopes never reach outside the bytes, and what connect_put() wrote is read. */
#include <assert.h>
#include <string.h>

#include "api/e2b/connect.h"
#include "base/defer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MOST = 4096 };

static void read_all(struct http_text rest) {
    const char *end = rest.s + rest.n;
    struct http_text message;
    struct err err;
    int got;
    while ((got = connect_next(&rest, MOST, &message, &err)) > 0) {
        assert(message.n <= MOST && message.s + message.n == rest.s && rest.s + rest.n == end);
        assert(message.s[-CONNECT_HEAD] == 0);
    }
    assert(got == 0 || err.text[0]);
}

static void round_trip(struct http_text text) {
    static const char zeros[MOST / 2];
    struct buf b DEFER(buf_done) = BUF(MOST + 2 * CONNECT_HEAD + 8);
    struct http_text message;
    struct err err;
    if (text.n > MOST)
        return;
    assert(connect_put(&b, 0, text.s, text.n));
    assert(connect_only((struct http_text){b.data, b.len}, MOST, &message, &err) == 0);
    assert(message.n == text.n && memcmp(message.s, text.s, text.n) == 0);
    size_t before = b.len;
    bool fits = connect_put(&b, CONNECT_END, zeros, sizeof(zeros));
    assert(b.len == before + (fits ? CONNECT_HEAD + sizeof(zeros) : 0));
    if (fits)
        assert(connect_only((struct http_text){b.data, b.len}, MOST, &message, &err) < 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct http_text text = {(const char *)data, size};
    read_all(text);
    round_trip(text);
    return 0;
}
