/*
 * Property: any script runs to an end, twice and the second time with suspension, and both times
 * passes the same assertions. The first byte chooses the specification level and the seed.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "base/defer.h"
#include "wasm/text/wast.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct wast_result run(const uint8_t *data, size_t size, bool suspend) {
    struct buf report DEFER(buf_done) = BUF(1 << 16);
    struct wast_options options = {
        .spec = (data[0] % 3 + 1) * 10, .suspend = suspend, .seed = data[0], .fuel = 20000};
    struct wast_result r;
    wast_run("fuzz", (const char *)data + 1, size - 1, &options, &r, &report);
    assert(r.passed <= r.total);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0)
        return 0;
    struct wast_result plain = run(data, size, false), suspended = run(data, size, true);
    assert(plain.passed == suspended.passed && plain.total == suspended.total);
    assert(plain.broken == suspended.broken);
    (void)plain, (void)suspended;
    return 0;
}
