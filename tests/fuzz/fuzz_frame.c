/*
 * Properties: however the stream is cut, the same frames come out; and a message
 * that decodes encodes to the very bytes it came from.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/frame.h"
#include "base/msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CAP (64u << 10)

static union {
    struct msg_hello hello;
    struct msg_exec exec;
    struct msg_row row;
    struct msg_write write;
    uint8_t room[sizeof(struct msg_exec)];
} any;

static uint8_t again[FRAME_BYTES_MAX];

/* A frame fits exactly one struct size: try them all, as the codec knows which. */
static void check_round_trip(const struct frame *f) {
    for (size_t size = 0; size <= sizeof(any); size++) {
        if (msg_decode(f, &any, size) < 0)
            continue;
        size_t n = msg_encode(again, sizeof(again), &f->head, size ? &any : NULL);
        assert(n == FRAME_HEAD_BYTES + f->head.bytes);
        assert(memcmp(again + FRAME_HEAD_BYTES, f->payload, f->head.bytes) == 0);
    }
}

static void check_pages(const struct frame *f) {
    struct msg_bytes rest = {f->payload, f->head.bytes};
    struct msg_row row;
    while (msg_row_next(&rest, &row) == 1)
        assert(msg_row_put(again, sizeof(again), &row) > 0);
    rest = (struct msg_bytes){f->payload, f->head.bytes};
    struct msg_entry entry;
    while (msg_entry_next(&rest, &entry) == 1)
        assert(msg_entry_put(again, sizeof(again), &entry) > 0);
}

/* Returns a sum over the frames, so that two ways of cutting can be compared. */
static uint64_t run(const uint8_t *data, size_t size, size_t step) {
    static uint8_t buf[CAP];
    struct frame_decoder d = FRAME_DECODER(buf, sizeof(buf));
    uint64_t sum = 1;
    while (size > 0) {
        uint8_t *to;
        size_t room = frame_space(&d, &to);
        if (room == 0)
            break;
        size_t n = size < step ? size : step;
        n = n < room ? n : room;
        memcpy(to, data, n);
        frame_fed(&d, n);
        data += n;
        size -= n;
        struct frame f;
        while (frame_next(&d, &f) == 1) {
            sum = sum * 31 + f.head.type + f.head.bytes + f.head.tag;
            check_round_trip(&f);
            check_pages(&f);
        }
    }
    return d.broken ? sum * 31 + 7 : sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint64_t whole = run(data, size, CAP);
    assert(run(data, size, 1) == whole);
    assert(run(data, size, 17) == whole);
    return 0;
}
