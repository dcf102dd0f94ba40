/*
 * Any bytes as a stream of frames: however they are cut the same messages come out, and what was
 * understood, written as frames of our own, is understood the same way. The first byte chooses
 * the role and seeds the cuts.
 */
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/defer.h"
#include "io/websocket.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MESSAGE_MAX = 4096, SUM_MAX = 1 << 18 };

static void note(struct buf *b, const void *bytes, size_t n) {
    bool fits = buf_add(b, bytes, n);
    assert(fits);
}

/* What was seen, with the pieces of a message run together; and the same as plain frames. */
static void note_event(const struct ws_event *e, struct buf *sum, struct buf *message,
                       struct buf *frames) {
    bool data = e->opcode < WS_CLOSE;
    if (data) {
        assert(e->first == (message->max == 0));
        if (e->first)
            *message = BUF(MESSAGE_MAX);
        note(message, e->data, e->n);
        assert(message->len <= MESSAGE_MAX);
        if (!e->last)
            return;
    }
    char payload[WS_CONTROL_MAX];
    const char *bytes = data ? message->data : e->data;
    size_t n = data ? message->len : e->n;
    uint8_t head[WS_HEAD_MAX];
    note(sum, &e->opcode, sizeof(e->opcode));
    note(sum, &e->code, sizeof(e->code));
    note(sum, &n, sizeof(n));
    note(sum, bytes, n);
    if (e->opcode == WS_CLOSE && e->code != WS_NO_CODE) {
        ws_close_payload(payload, e->code, NULL);
        memcpy(payload + 2, e->data, n);
        n += 2;
        bytes = payload;
    }
    note(frames, head, ws_head(head, e->opcode, true, n, NULL));
    note(frames, bytes, n);
    if (data) {
        buf_done(message);
        message->max = 0;
    }
}

static void read_all(enum ws_role role, const char *from, size_t size, uint32_t random, size_t step,
                     struct buf *sum, struct buf *frames, struct buf *message) {
    struct ws_decoder d;
    size_t at = 0, shown = 0;
    char *bytes DEFER_FREE = malloc(size ? size : 1);
    memcpy(bytes, from, size);
    ws_decoder_begin(&d, role, MESSAGE_MAX);
    for (;;) {
        struct ws_event e;
        size_t used;
        int r = ws_next(&d, bytes + at, shown - at, &used, &e);
        assert(used <= shown - at);
        if (r < 0) {
            note(sum, &d.error, sizeof(d.error));
            return;
        }
        at += used;
        if (r == 1) {
            note_event(&e, sum, message, frames);
            continue;
        }
        assert(at == shown);
        if (shown == size)
            return;
        random = random * 1664525 + 1013904223;
        size_t more = step ? step : 1 + (random >> 16) % 20;
        shown = size - shown < more ? size : shown + more;
    }
}

static struct buf summary(enum ws_role role, const char *from, size_t size, uint32_t random,
                          size_t step, struct buf *frames) {
    struct buf sum = BUF(SUM_MAX), message DEFER(buf_done) = {0};
    read_all(role, from, size, random, step, &sum, frames, &message);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0 || size > 8192)
        return 0;
    enum ws_role role = data[0] & 1 ? WS_SERVER : WS_CLIENT;
    const char *from = (const char *)data + 1;
    struct buf frames DEFER(buf_done) = BUF(SUM_MAX), unused DEFER(buf_done) = BUF(SUM_MAX);
    struct buf whole DEFER(buf_done) = summary(role, from, size - 1, 0, size, &frames);
    struct buf cut DEFER(buf_done) = summary(role, from, size - 1, data[0], 0, &unused);
    assert(whole.len == cut.len &&
           memcmp(whole.data ? whole.data : "", cut.data ? cut.data : "", whole.len) == 0);

    /* Written again: the same, but for what ended the stream. */
    unused.len = 0;
    struct buf again DEFER(buf_done) =
        summary(WS_CLIENT, frames.data ? frames.data : "", frames.len, 0, frames.len + 1, &unused);
    assert(again.len <= whole.len &&
           memcmp(again.data ? again.data : "", whole.data ? whole.data : "", again.len) == 0);
    assert(whole.len - again.len <= sizeof(int));
    return 0;
}
