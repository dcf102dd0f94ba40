#include "base/wire/frame.h"

#include <string.h>

static void put16(uint8_t *to, uint16_t v) {
    to[0] = (uint8_t)v;
    to[1] = (uint8_t)(v >> 8);
}

static void put32(uint8_t *to, uint32_t v) {
    put16(to, (uint16_t)v);
    put16(to + 2, (uint16_t)(v >> 16));
}

static uint16_t get16(const uint8_t *from) {
    return (uint16_t)(from[0] | from[1] << 8);
}

static uint32_t get32(const uint8_t *from) {
    return get16(from) | (uint32_t)get16(from + 2) << 16;
}

void frame_head_put(uint8_t *to, const struct frame_head *head) {
    put32(to, head->bytes);
    put16(to + 4, head->type);
    put16(to + 6, head->flags);
    put32(to + 8, head->id);
    put32(to + 12, head->tag);
}

void frame_head_get(const uint8_t *from, struct frame_head *ret) {
    ret->bytes = get32(from);
    ret->type = get16(from + 4);
    ret->flags = get16(from + 6);
    ret->id = get32(from + 8);
    ret->tag = get32(from + 12);
}

static bool head_is_sound(const struct frame_decoder *d, const struct frame_head *head) {
    return head->bytes <= FRAME_PAYLOAD_MAX && head->bytes <= d->cap - FRAME_HEAD_BYTES &&
           (head->flags & ~(FRAME_FDS_MASK | FRAME_EOF)) == 0 &&
           (head->flags & FRAME_FDS_MASK) <= FRAME_FDS_MAX;
}

size_t frame_space(struct frame_decoder *d, uint8_t **ret) {
    if (d->broken)
        return 0;
    if (d->start == d->end) {
        d->start = d->end = 0;
    } else if (d->start > 0) {
        memmove(d->buf, d->buf + d->start, d->end - d->start);
        d->end -= d->start;
        d->start = 0;
    }
    *ret = d->buf + d->end;
    return d->cap - d->end;
}

void frame_fed(struct frame_decoder *d, size_t bytes) {
    d->end += bytes;
}

int frame_next(struct frame_decoder *d, struct frame *ret) {
    if (d->broken)
        return -1;
    size_t have = d->end - d->start;
    if (have < FRAME_HEAD_BYTES)
        return 0;

    struct frame_head head;
    frame_head_get(d->buf + d->start, &head);
    if (!head_is_sound(d, &head)) {
        d->broken = true;
        return -1;
    }
    if (have - FRAME_HEAD_BYTES < head.bytes)
        return 0;

    ret->head = head;
    ret->payload = d->buf + d->start + FRAME_HEAD_BYTES;
    d->start += FRAME_HEAD_BYTES + head.bytes;
    return 1;
}
