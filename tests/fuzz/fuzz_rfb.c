/* Property: the picture, the answers and the failure are the same however the bytes are cut, and no
 * pixel lies outside of the screen. */
#include <assert.h>
#include <stdint.h>

#include "base/defer.h"
#include "io/screen/rfb.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t mix(uint64_t hash, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3ull;
    return hash;
}

/* Asks once the handshake is done, which depends on the bytes alone if they come one by one: so the
 * question comes where the first byte after the handshake would. */
static uint64_t run(const uint8_t *data, size_t size, size_t step) {
    struct rfb *r = rfb_new();
    struct err err;
    bool asked = false, failed = false;
    uint64_t hash = 1;
    for (size_t i = 0; i < size && !failed;) {
        size_t piece = !asked ? 1 : step < size - i ? step : size - i;
        failed = rfb_take(r, data + i, piece, &err) < 0;
        i += piece;
        if (!failed && !asked && rfb_is_ready(r)) {
            if (rfb_width(r) * rfb_height(r) > 1 << 16)
                break; /* too slow to be of use here */
            asked = rfb_ask(r, false);
            assert(asked);
        }
    }
    assert(rfb_out(r)->len <= RFB_OUT_MAX);
    hash = mix(hash, rfb_out(r)->data, rfb_out(r)->len);
    if (!failed && rfb_pixels(r))
        hash = mix(hash, rfb_pixels(r), (size_t)rfb_width(r) * rfb_height(r) * RFB_PIXEL_BYTES);
    hash = hash * 4 + (uint64_t)failed * 2 + rfb_is_answered(r);
    rfb_free(r);
    return hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    assert(run(data + 1, size - 1, 1) == run(data + 1, size - 1, data[0] % 61 + 2));
    return 0;
}
