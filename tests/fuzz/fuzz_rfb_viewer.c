/* Property: what reaches the machine and the viewer is the same however the bytes of both sides are
 * cut, and every message to the machine is a key, a pointer on the screen or a question inside of
 * it. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/defer.h"
#include "io/screen/rfb_viewer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WIDTH = 40, HEIGHT = 20 };

static const char greeting[] =
    "RFB 003.008\n\1\1\0\0\0\0\0\50\0\24\x20\x18\0\1\0\xff\0\xff\0\xff\0\x08\x10\0\0\0\0\0\0\0";

static uint64_t mix(uint64_t hash, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3ull;
    return hash;
}

static unsigned pair(const uint8_t *p) {
    return (unsigned)p[0] << 8 | p[1];
}

static void check_input(const uint8_t *p, size_t n) {
    while (n > 0) {
        size_t message = *p == 3 ? 10 : *p == 4 ? 8 : 6;
        assert(message <= n && (*p == 3 || *p == 4 || *p == 5));
        if (*p == 3)
            assert(pair(p + 2) + pair(p + 6) <= WIDTH && pair(p + 4) + pair(p + 8) <= HEIGHT);
        if (*p == 5)
            assert(pair(p + 2) < WIDTH && pair(p + 4) < HEIGHT);
        p += message;
        n -= message;
    }
}

/* The first half comes from the viewer, the second one from the machine. */
static uint64_t run(const uint8_t *data, size_t size, size_t step) {
    struct rfb *server = rfb_new();
    struct buf shown DEFER(buf_done) = BUF(1 << 20);
    struct err err;
    bool failed[2] = {false};
    size_t half = size / 2;
    int greeted = rfb_take(server, (const uint8_t *)greeting, sizeof(greeting) - 1, &err);
    assert(greeted == 0 && rfb_is_ready(server));
    buf_drop(rfb_out(server), rfb_out(server)->len);
    struct rfb_viewer *viewer = rfb_viewer_new(server, &shown);
    for (size_t i = 0; i < half && !failed[0]; i += step)
        failed[0] = rfb_viewer_take(viewer, data + i, step < half - i ? step : half - i, &err) < 0;
    for (size_t i = half; i < size && !failed[1]; i += step)
        failed[1] = rfb_take(server, data + i, step < size - i ? step : size - i, &err) < 0;
    if (rfb_out(server)->len)
        check_input((const uint8_t *)rfb_out(server)->data, rfb_out(server)->len);
    uint64_t hash = mix(1, shown.data, shown.len);
    hash = mix(hash, rfb_out(server)->data, rfb_out(server)->len);
    rfb_viewer_free(viewer);
    rfb_free(server);
    return hash * 4 + (uint64_t)failed[0] * 2 + failed[1];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 0)
        assert(run(data + 1, size - 1, 1) == run(data + 1, size - 1, data[0] % 61 + 2));
    return 0;
}
