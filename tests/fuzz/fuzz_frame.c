/*
 * Properties: however the stream is cut, the same frames come out; a message that decodes is of
 * the kind that was asked for, points into its frame only, and encodes to the very bytes it came
 * from.
 */
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/wire/frame.h"
#include "base/wire/msg.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CAP (64u << 10)

/* Every kind that carries something, by number: the kinds that a caller may ask for. */
static const struct {
    uint16_t kind;
    size_t size;
} kinds[] = {
#define ROW(name, type, struc) {MSG_##type, sizeof(struct struc)},
    MSG_KINDS(ROW)
#undef ROW
};
enum { KINDS = sizeof(kinds) / sizeof(*kinds) };

static uint8_t again[FRAME_BYTES_MAX];

static bool lies_within(const struct frame *f, const void *p, size_t n) {
    const uint8_t *at = p;
    return at >= f->payload && n <= f->head.bytes && at + n <= f->payload + f->head.bytes;
}

/* Whatever a message points to is in the frame: a guest must not name our memory. */
static void check_pointers(const struct frame *f) {
    struct msg_rows rows;
    struct msg_list_page page;
    struct msg_read_data data;
    struct msg_error error;
    if (msg_get_rows(f, &rows) == 0)
        assert(lies_within(f, rows.rows.p, rows.rows.n));
    if (msg_get_list_page(f, &page) == 0)
        assert(lies_within(f, page.entries.p, page.entries.n));
    if (msg_get_read_data(f, &data) == 0)
        assert(lies_within(f, data.data.p, data.data.n));
    if (msg_get_error(f, &error) == 0)
        assert(lies_within(f, error.text.s, (size_t)error.text.n + 1));
}

/* Asked for every kind in turn, a frame is only ever the one that it says it is. */
static void check_kinds(struct frame f) {
    union {
        struct msg_exec exec;
        uint8_t room[4096];
    } any;
    for (size_t i = 0; i < KINDS; i++) {
        assert(kinds[i].size <= sizeof(any));
        if (msg_decode(&f, kinds[i].kind, &any, kinds[i].size) < 0)
            continue;
        assert(f.head.type == kinds[i].kind);
        size_t n = msg_encode(again, sizeof(again), &f.head, &any);
        assert(n == FRAME_HEAD_BYTES + f.head.bytes);
        assert(memcmp(again + FRAME_HEAD_BYTES, f.payload, f.head.bytes) == 0);
    }
    check_pointers(&f);
}

/* The same payload under every kind, as a hostile guest would answer. */
static void check_round_trip(const struct frame *f) {
    struct frame as = *f;
    check_kinds(as);
    for (size_t i = 0; i < KINDS; i++) {
        as.head.type = kinds[i].kind;
        check_kinds(as);
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
