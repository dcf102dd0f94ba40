/*
 * A port: frames (base/wire/frame.h) over a serial port, which loses bytes and has no connections.
 *
 * When a host's program ends, QEMU drops what was under way, the guest is not told, and the next
 * program starts in the middle of a frame. So each frame is one packet of an escaped stream, as in
 * SLIP, and each connection begins with a mark that the guest answers:
 *
 *   END kind body sum END      'S' sync, 'A' answer, 'L' lost: a nonce; 'H', 'G': number and frame
 *
 * PORT_END occurs nowhere else, so no payload can forge a packet. A host begins with SYNC and a
 * random nonce, and may send frames at once. The guest forgets the connection before, answers the
 * nonce and then sends frames; the host discards everything before that answer. Frames are numbered
 * and summed up from the nonce. One that came twice is ignored. After any other fault nothing is
 * received until the next SYNC; a guest says LOST then, and also at its start.
 *
 * The codec is pure: it reads and writes the caller's memory and makes no system call.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/wire/frame.h"

#define PORT_END 0xc0u
#define PORT_ESC 0xdbu
#define PORT_ESC_END 0xdcu /* after PORT_ESC: the byte PORT_END */
#define PORT_ESC_ESC 0xddu /* after PORT_ESC: the byte PORT_ESC */

#define PORT_PACKET_MAX (1u + 4u + FRAME_BYTES_MAX + 4u) /* kind, number, frame, sum */

enum port_got {
    PORT_MORE,  /* more bytes are needed */
    PORT_FRAME, /* *ret is the next frame, valid until the next call */
    PORT_BEGIN, /* guest: a host has connected; host: the guest has answered */
    PORT_LOST,  /* the connection is broken: nothing more is received until the next PORT_BEGIN */
};

/* Fletcher's sum in 32 bits: it depends on the place of each byte, and needs no table. */
struct port_sum {
    uint32_t a, b;
};

struct port {
    bool is_host;
    bool is_open; /* guest: after a SYNC; host: after the answer to it */
    bool awaits;  /* host: the answer has not come yet */
    bool has_nonce;
    uint64_t nonce;
    struct {
        uint8_t mark; /* kind of the packet to send before all others, or 0 */
        uint32_t number;
        uint32_t left;     /* bytes of the present frame that are not sent yet */
        uint8_t stage[32]; /* escaped bytes to send first: a mark, or the start or end of a frame */
        uint8_t stage_at, stage_end;
        struct port_sum sum;
    } out;
    struct {
        uint8_t *wire; /* received bytes in [start, end) */
        size_t cap, start, end;
        uint8_t *packet;
        size_t have; /* bytes of the present packet */
        bool is_escaped, is_bad;
        bool is_shut; /* frames are ignored until the next PORT_BEGIN */
        uint32_t number;
    } in;
};

/* `wire` has room for `cap` received bytes, `packet` for PORT_PACKET_MAX. A guest says LOST. */
void port_init(struct port *p, bool is_host, uint8_t *wire, size_t cap, uint8_t *packet);

/* Host: begins a connection. The nonce must be random. */
void port_connect(struct port *p, uint64_t nonce);

/*
 * Encodes as many bytes as fit from *from, which holds *n bytes of whole frames end to end, and
 * moves both. Returns the number of bytes written to `to`. It also sends marks, so *n may be 0.
 * After PORT_BEGIN and PORT_LOST the caller must drop the frames that it has not sent; a host
 * drops none after PORT_BEGIN.
 */
size_t port_send(struct port *p, const uint8_t **from, size_t *n, uint8_t *to, size_t cap);

/* True if a mark or the end of a packet waits to be sent, so that port_send() has work. */
bool port_owes(const struct port *p);

/* Ignores what the other end sends, until a connection begins. What is to be sent is still sent. */
void port_shut(struct port *p);

/* Where to read the next bytes into, and how many fit: 0 while frames wait for port_next(). */
size_t port_space(struct port *p, uint8_t **ret);
void port_fed(struct port *p, size_t bytes);

enum port_got port_next(struct port *p, struct frame *ret);
