/*
 * Property: a log is refused, or all it says lies within its bytes. Version and checksum are made
 * right first, so that the fuzzer gets behind them.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "cell/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct slice s, const uint8_t *bytes, size_t size) {
    assert(s.len == 0 || (s.data >= bytes && s.data + s.len <= bytes + size));
    (void)s, (void)bytes, (void)size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct cell_log log;
    struct cell_call call;
    struct err err;
    if (size < 20)
        return 0;
    uint8_t *bytes DEFER_FREE = malloc(size);
    if (!bytes)
        return 0;
    memcpy(bytes, data, size);
    memcpy(bytes + 8, (uint8_t[]){CELL_LOG_VERSION, 0, 0, 0}, 4);
    uint64_t sum = cell_digest(bytes, size - 8);
    for (int i = 0; i < 8; i++)
        bytes[size - 8 + (size_t)i] = (uint8_t)(sum >> 8 * i);
    if (cell_log_open(&log, bytes, size, &err) < 0)
        return 0;
    check(log.start.module, bytes, size);
    check(log.start.grants, bytes, size);
    check(log.end.text, bytes, size);
    while (cell_log_next(&log, &call)) {
        check(call.name, bytes, size);
        check(call.given, bytes, size);
    }
    return 0;
}
