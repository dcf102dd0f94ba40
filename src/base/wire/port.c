#include "base/wire/port.h"

#include <string.h>

#include "base/wire/little.h"

#define KIND_SYNC 'S'
#define KIND_ANSWER 'A'
#define KIND_LOST 'L'
#define KIND_TO_GUEST 'H'
#define KIND_TO_HOST 'G'

#define NUMBER_BYTES 4u
#define NONCE_BYTES 8u
#define SUM_BYTES 4u
#define FRAME_AT (1u + NUMBER_BYTES)

/* Sums. */

static void sum_add(struct port_sum *s, const uint8_t *p, size_t n) {
    uint32_t a = s->a, b = s->b;
    for (size_t i = 0; i < n; i++) {
        a += p[i];
        b += a;
    }
    *s = (struct port_sum){a, b};
}

static uint32_t sum_value(const struct port_sum *s) {
    return s->b ^ (s->a << 16 | s->a >> 16);
}

/* Frames of another connection have another sum; marks have their nonce in the body. */
static struct port_sum sum_start(const struct port *p, uint8_t kind) {
    bool is_frame = kind == KIND_TO_GUEST || kind == KIND_TO_HOST;
    uint64_t nonce = is_frame ? p->nonce : 0;
    return (struct port_sum){(uint32_t)nonce, (uint32_t)(nonce >> 32)};
}

/* Start of connections. */

static void out_forget(struct port *p, uint8_t mark) {
    p->out.mark = mark;
    p->out.number = 0;
    p->out.left = 0;
    p->out.stage_at = p->out.stage_end = 0;
}

void port_init(struct port *p, bool is_host, uint8_t *wire, size_t cap, uint8_t *packet) {
    *p = (struct port){.is_host = is_host};
    p->in.wire = wire;
    p->in.cap = cap;
    p->in.packet = packet;
    p->out.mark = is_host ? 0 : KIND_LOST;
}

void port_connect(struct port *p, uint64_t nonce) {
    p->is_open = false;
    p->awaits = p->has_nonce = true;
    p->nonce = nonce;
    out_forget(p, KIND_SYNC);
}

/* Sending. */

static bool is_special(uint8_t byte) {
    return byte == PORT_END || byte == PORT_ESC;
}

/* Escapes up to n bytes. Returns the number of bytes written, *ret_used of those read. */
static size_t port_escape(uint8_t *to, size_t cap, const uint8_t *from, size_t n,
                          size_t *ret_used) {
    size_t used = 0, o = 0;
    for (; used < n && o < cap; used++) {
        uint8_t byte = from[used];
        if (!is_special(byte)) {
            to[o++] = byte;
            continue;
        }
        if (cap - o < 2)
            break;
        to[o++] = PORT_ESC;
        to[o++] = byte == PORT_END ? PORT_ESC_END : PORT_ESC_ESC;
    }
    *ret_used = used;
    return o;
}

/* Puts bytes of a packet into the stage, which is large enough for any mark. */
static void stage_add(struct port *p, const uint8_t *bytes, size_t n) {
    size_t used;
    sum_add(&p->out.sum, bytes, n);
    p->out.stage_end += (uint8_t)port_escape(
        p->out.stage + p->out.stage_end, sizeof(p->out.stage) - p->out.stage_end, bytes, n, &used);
}

static void stage_begin(struct port *p, uint8_t kind, uint64_t value, unsigned bytes) {
    uint8_t body[1 + NONCE_BYTES] = {kind};
    little_put(body + 1, value, bytes);
    p->out.sum = sum_start(p, kind);
    p->out.stage_at = 0;
    p->out.stage[0] = PORT_END;
    p->out.stage_end = 1;
    stage_add(p, body, 1 + bytes);
}

static void stage_finish(struct port *p) {
    uint8_t sum[SUM_BYTES];
    little_put(sum, sum_value(&p->out.sum), sizeof(sum));
    stage_add(p, sum, sizeof(sum));
    p->out.stage[p->out.stage_end++] = PORT_END;
}

static void stage_mark(struct port *p) {
    stage_begin(p, p->out.mark, p->nonce, NONCE_BYTES);
    stage_finish(p);
    p->out.mark = 0;
    p->out.left = 0;
}

static size_t stage_take(struct port *p, uint8_t *to, size_t cap) {
    size_t n = (size_t)(p->out.stage_end - p->out.stage_at);
    n = n < cap ? n : cap;
    memcpy(to, p->out.stage + p->out.stage_at, n);
    p->out.stage_at += (uint8_t)n;
    if (p->out.stage_at == p->out.stage_end)
        p->out.stage_at = p->out.stage_end = 0;
    return n;
}

/* Prepares the next thing to send. False: there is nothing. */
static bool stage_next(struct port *p, const uint8_t *from, size_t n) {
    if (p->out.mark) {
        stage_mark(p);
        return true;
    }
    if (n < FRAME_HEAD_BYTES || !(p->is_host ? p->has_nonce : p->is_open))
        return false;
    struct frame_head head;
    frame_head_get(from, &head);
    p->out.left = FRAME_HEAD_BYTES + head.bytes;
    stage_begin(p, p->is_host ? KIND_TO_GUEST : KIND_TO_HOST, p->out.number++, NUMBER_BYTES);
    return true;
}

static size_t send_body(struct port *p, const uint8_t **from, size_t *n, uint8_t *to, size_t cap) {
    size_t used, most = *n < p->out.left ? *n : p->out.left;
    size_t written = port_escape(to, cap, *from, most, &used);
    sum_add(&p->out.sum, *from, used);
    *from += used;
    *n -= used;
    p->out.left -= (uint32_t)used;
    if (p->out.left == 0)
        stage_finish(p);
    return written;
}

size_t port_send(struct port *p, const uint8_t **from, size_t *n, uint8_t *to, size_t cap) {
    size_t o = 0;
    for (;;) {
        o += stage_take(p, to + o, cap - o);
        if (p->out.stage_end > 0)
            return o;
        if (p->out.left == 0 || p->out.mark) {
            if (!stage_next(p, *from, *n))
                return o;
            continue;
        }
        size_t written = send_body(p, from, n, to + o, cap - o);
        o += written;
        if (written == 0)
            return o;
    }
}

bool port_owes(const struct port *p) {
    return p->out.mark || p->out.stage_end > 0;
}

/* Receiving. */

void port_shut(struct port *p) {
    p->in.is_shut = true;
}

size_t port_space(struct port *p, uint8_t **ret) {
    size_t left = p->in.end - p->in.start;
    memmove(p->in.wire, p->in.wire + p->in.start, left);
    p->in.start = 0;
    p->in.end = left;
    *ret = p->in.wire + left;
    return p->in.cap - left;
}

void port_fed(struct port *p, size_t bytes) {
    p->in.end += bytes;
}

/* Adds plain bytes to the packet. Returns how many were taken: at least one. */
static size_t packet_add(struct port *p, const uint8_t *from, size_t n) {
    size_t room = PORT_PACKET_MAX - p->in.have, run = 0;
    while (run < n && !is_special(from[run]))
        run++;
    p->in.is_bad |= run > room;
    size_t kept = run < room ? run : room;
    memcpy(p->in.packet + p->in.have, from, kept);
    p->in.have += kept;
    return run;
}

static void packet_add_escaped(struct port *p, uint8_t byte) {
    uint8_t plain = byte == PORT_ESC_END ? PORT_END : PORT_ESC;
    p->in.is_escaped = false;
    p->in.is_bad |= byte != PORT_ESC_END && byte != PORT_ESC_ESC;
    if (p->in.have < PORT_PACKET_MAX)
        p->in.packet[p->in.have++] = plain;
    else
        p->in.is_bad = true;
}

/* Reads up to the end of a packet. False: it has not come yet. */
static bool packet_read(struct port *p) {
    while (p->in.start < p->in.end) {
        const uint8_t *at = p->in.wire + p->in.start;
        if (*at == PORT_END) {
            p->in.start++;
            p->in.is_bad |= p->in.is_escaped;
            if (p->in.have > 0 || p->in.is_bad)
                return true;
        } else if (p->in.is_escaped) {
            packet_add_escaped(p, *at);
            p->in.start++;
        } else if (*at == PORT_ESC) {
            p->in.is_escaped = true;
            p->in.start++;
        } else {
            p->in.start += packet_add(p, at, p->in.end - p->in.start);
        }
    }
    return false;
}

/* True: the packet has the sum at its end, which is cut off. */
static bool packet_is_whole(struct port *p, size_t *have) {
    const uint8_t *packet = p->in.packet;
    if (p->in.is_bad || *have < 1 + SUM_BYTES)
        return false;
    *have -= SUM_BYTES;
    struct port_sum sum = sum_start(p, packet[0]);
    sum_add(&sum, packet, *have);
    return little_get(packet + *have, SUM_BYTES) == sum_value(&sum);
}

static enum port_got packet_lost(struct port *p) {
    /* What a host receives before the answer belongs to the connection before. */
    if (!p->is_open || p->in.is_shut)
        return PORT_MORE;
    p->is_open = false;
    out_forget(p, p->is_host ? 0 : KIND_LOST);
    return PORT_LOST;
}

static enum port_got take_sync(struct port *p, uint64_t nonce) {
    if (p->is_host || (p->has_nonce && p->nonce == nonce))
        return PORT_MORE;
    p->nonce = nonce;
    p->has_nonce = p->is_open = true;
    p->in.is_shut = false;
    p->in.number = 0;
    out_forget(p, KIND_ANSWER);
    return PORT_BEGIN;
}

static enum port_got port_take_answer(struct port *p, uint64_t nonce) {
    if (!p->awaits || p->nonce != nonce)
        return PORT_MORE;
    p->awaits = false;
    p->is_open = true;
    p->in.number = 0;
    return PORT_BEGIN;
}

static enum port_got take_frame(struct port *p, size_t have, struct frame *ret) {
    if (!p->is_open || p->in.is_shut)
        return PORT_MORE;
    if (have < FRAME_AT + FRAME_HEAD_BYTES)
        return packet_lost(p);
    uint32_t number = (uint32_t)little_get(p->in.packet + 1, NUMBER_BYTES);
    if ((int32_t)(number - p->in.number) < 0)
        return PORT_MORE;
    frame_head_get(p->in.packet + FRAME_AT, &ret->head);
    if (number != p->in.number || ret->head.bytes != have - FRAME_AT - FRAME_HEAD_BYTES ||
        ret->head.flags & ~(unsigned)FRAME_EOF)
        return packet_lost(p);
    p->in.number++;
    ret->payload = p->in.packet + FRAME_AT + FRAME_HEAD_BYTES;
    return PORT_FRAME;
}

static enum port_got take_mark(struct port *p, uint8_t kind, size_t have) {
    if (have != 1 + NONCE_BYTES)
        return packet_lost(p);
    uint64_t nonce = little_get(p->in.packet + 1, NONCE_BYTES);
    if (kind == KIND_SYNC)
        return take_sync(p, nonce);
    if (kind == KIND_ANSWER)
        return port_take_answer(p, nonce);
    return packet_lost(p); /* also LOST: a guest that has started again does not know the nonce */
}

static enum port_got packet_take(struct port *p, struct frame *ret) {
    size_t have = p->in.have;
    if (!packet_is_whole(p, &have))
        return packet_lost(p);
    uint8_t kind = p->in.packet[0];
    if (kind == (p->is_host ? KIND_TO_HOST : KIND_TO_GUEST))
        return take_frame(p, have, ret);
    return take_mark(p, kind, have);
}

enum port_got port_next(struct port *p, struct frame *ret) {
    while (packet_read(p)) {
        enum port_got got = packet_take(p, ret);
        p->in.have = 0;
        p->in.is_bad = p->in.is_escaped = false;
        if (got != PORT_MORE)
            return got;
    }
    return PORT_MORE;
}
