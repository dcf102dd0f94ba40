/*
 * Properties: however the bytes are cut, the same frames come out, and each lies in the packet
 * buffer; after any bytes a SYNC is understood and a frame that follows it arrives as it was sent,
 * also if its payload is the fuzzer's.
 */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "base/wire/msg.h"
#include "base/wire/port.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WIRE = 512, NONCE = 42 };

static uint8_t packet[PORT_PACKET_MAX], wire[WIRE], line[4 * FRAME_BYTES_MAX];

/* Bytes of a host: SYNC, and one frame with this payload. */
static size_t host_bytes(uint64_t nonce, const uint8_t *data, size_t n) {
    static uint8_t host_wire[WIRE], host_packet[PORT_PACKET_MAX], frame[FRAME_BYTES_MAX];
    struct port host;
    struct frame_head head = {.type = MSG_STDIN, .bytes = (uint32_t)n, .id = 1};
    port_init(&host, true, host_wire, sizeof(host_wire), host_packet);
    port_connect(&host, nonce);
    frame_head_put(frame, &head);
    memcpy(frame + FRAME_HEAD_BYTES, data, n);
    const uint8_t *at = frame;
    size_t left = FRAME_HEAD_BYTES + n, sent = 0, written;
    while ((written = port_send(&host, &at, &left, line + sent, 700)) > 0)
        sent += written;
    assert(left == 0);
    return sent;
}

/* Feeds bytes and returns a sum over the events. The last frame is left in *ret. */
static uint64_t port_run(struct port *p, const uint8_t *data, size_t size, size_t step,
                         struct frame *ret) {
    uint64_t sum = 1;
    while (size > 0) {
        uint8_t *to;
        struct frame f;
        enum port_got got;
        size_t room = port_space(p, &to);
        size_t n = size < step ? size : step;
        n = n < room ? n : room;
        assert(n > 0);
        memcpy(to, data, n);
        port_fed(p, n);
        data += n;
        size -= n;
        while ((got = port_next(p, &f)) != PORT_MORE) {
            sum = sum * 31 + got;
            if (got != PORT_FRAME)
                continue;
            assert(f.payload >= packet && f.payload + f.head.bytes <= packet + sizeof(packet));
            sum = sum * 31 + f.head.type + f.head.bytes;
            *ret = f;
        }
    }
    return sum;
}

static uint64_t run(const uint8_t *data, size_t size, size_t step, bool is_host) {
    struct port p;
    struct frame f = {0};
    port_init(&p, is_host, wire, sizeof(wire), packet);
    if (is_host)
        port_connect(&p, NONCE);
    uint64_t sum = port_run(&p, data, size, step, &f);
    if (is_host || size > FRAME_PAYLOAD_MAX / 2)
        return sum;
    /* Two nonces: the fuzzer may know one of them. */
    for (uint64_t nonce = NONCE; nonce < NONCE + 2; nonce++) {
        f = (struct frame){0};
        size_t n = host_bytes(nonce, data, size);
        port_run(&p, line, n, WIRE, &f);
    }
    assert(p.is_open && f.head.bytes == size && memcmp(f.payload, data, size) == 0);
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    for (int is_host = 0; is_host < 2; is_host++) {
        uint64_t whole = run(data, size, WIRE, is_host);
        assert(run(data, size, 1, is_host) == whole);
        assert(run(data, size, 7, is_host) == whole);
    }
    return 0;
}
