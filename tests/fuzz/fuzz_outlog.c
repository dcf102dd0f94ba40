/*
 * Properties: whatever a log holds, the reader stays inside it, comes to an end, and accounts
 * for every byte it was promised; and what was written is what is read, less what is left out.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/wire/outlog.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct outlog_caps caps = {{700, 0}, {4096, 5000}};
#define STEP 333

/* Exactly as big as it must be, so that a byte too far is found. */
static uint8_t *new_log(void) {
    uint8_t *map = calloc(1, outlog_bytes(&caps));
    if (!map)
        abort();
    outlog_format(map, &caps);
    return map;
}

static void read_hostile(const uint8_t *data, size_t size) {
    uint8_t *map = new_log();
    size_t n = size < outlog_bytes(&caps) ? size : outlog_bytes(&caps);
    memcpy(map, data, n);
    struct outlog l;
    if (outlog_open(&l, map, -1, outlog_bytes(&caps)) < 0) {
        outlog_format(map, &caps);
        assert(outlog_open(&l, map, -1, outlog_bytes(&caps)) == 0);
    }
    uint8_t to[STEP];
    uint64_t seen[2] = {0};
    struct outlog_cursor c = {0};
    for (int steps = 0;; steps++) {
        struct outlog_piece p = outlog_next(&l, &c, to, sizeof(to));
        assert(p.n <= sizeof(to) && p.offset + p.n <= INT64_MAX);
        seen[p.stream] += p.left_out + p.n;
        assert(seen[p.stream] == c.at[p.stream]);
        if (p.n == 0 && p.left_out == 0)
            break;
        assert(steps < 20000);
    }
    for (int i = 0; i < 2; i++) {
        assert(seen[i] == outlog_extent(&l, i).produced);
        uint64_t at = data[size / 2] * 131u;
        struct outlog_piece p = outlog_read(&l, i, at, to, sizeof(to));
        assert(p.offset == at + p.left_out);
    }
    free(map);
}

/* Each byte of the input is one write of so many bytes to one stream. */
static void write_and_read(const uint8_t *data, size_t size) {
    uint8_t *map = new_log();
    uint8_t *model[2] = {malloc(size * 128 + 1), malloc(size * 128 + 1)};
    size_t written[2] = {0};
    struct outlog_writer w;
    assert(outlog_write(&w, map, outlog_bytes(&caps)) == 0);
    uint8_t bytes[127];
    for (size_t i = 0; i < size; i++) {
        int stream = data[i] & 1;
        size_t n = data[i] >> 1;
        memset(bytes, (int)i, n);
        memcpy(model[stream] + written[stream], bytes, n);
        written[stream] += n;
        outlog_put(&w, stream, bytes, n);
    }
    outlog_end(&w, 0);
    outlog_end(&w, 1);
    struct outlog_cursor c = {0};
    while (!outlog_is_over(&w.log, &c)) {
        uint8_t to[STEP];
        struct outlog_piece p = outlog_next(&w.log, &c, to, sizeof(to));
        assert(p.n + p.left_out > 0);
        assert(memcmp(to, model[p.stream] + p.offset, p.n) == 0);
        size_t kept = caps.head[p.stream] + caps.tail[p.stream];
        assert(p.left_out == 0 || written[p.stream] > kept);
    }
    assert(c.at[0] == written[0] && c.at[1] == written[1]);
    free(model[0]);
    free(model[1]);
    free(map);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0 || size > 65536)
        return 0;
    read_hostile(data, size);
    write_and_read(data, size);
    return 0;
}
