/*
 * Frames: how host and guest cut a byte stream into messages.
 *
 * A frame is a fixed little-endian header and a payload of at most 1 MiB, so it
 * travels the same over a unix socket and over virtio-serial. The codec is pure:
 * it reads and writes the caller's memory, allocates nothing and makes no system
 * call. What the payloads mean is in base/wire/msg.h.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRAME_HEAD_BYTES 16u
#define FRAME_PAYLOAD_MAX (1u << 20)
#define FRAME_BYTES_MAX (FRAME_HEAD_BYTES + FRAME_PAYLOAD_MAX)

/*
 * File descriptors are attached (SCM_RIGHTS) to the first byte of the frame that owns them, or
 * earlier, and the frame says how many it owns. A receiver queues the descriptors that arrive and
 * gives each frame its number of them from the front of the queue.
 */
#define FRAME_FDS_MAX 24u

enum frame_flag {
    FRAME_FDS_MASK = 0x001f, /* how many descriptors belong to this frame */
    FRAME_EOF = 0x0100,      /* the data frame is the last one of its stream */
};

/* Wire order: u32 payload bytes, u16 type, u16 flags, u32 id, u32 tag. */
struct frame_head {
    uint32_t bytes; /* size of the payload */
    uint16_t type;  /* enum msg_type */
    uint16_t flags; /* enum frame_flag */
    uint32_t id;    /* id of the command or watch, else 0 */
    uint32_t tag;   /* number of a request, repeated in its one reply; 0: no reply is wanted */
};

struct frame {
    struct frame_head head;
    const uint8_t *payload; /* in the decoder's buffer, valid until the next frame_space() */
};

/* `to` and `from` have exactly FRAME_HEAD_BYTES. */
void frame_head_put(uint8_t *to, const struct frame_head *head);
void frame_head_get(const uint8_t *from, struct frame_head *ret);

/*
 * Incremental decoder over a buffer of the caller. Read bytes into frame_space(), report their
 * number with frame_fed(), then call frame_next() until it returns 0. A frame that does not fit
 * into the buffer is a protocol error, so a side that needs only small frames may use a small
 * buffer.
 */
struct frame_decoder {
    uint8_t *buf;
    size_t cap;
    size_t start; /* first byte not yet handed out */
    size_t end;   /* one past the last byte read */
    bool broken;  /* a protocol error is final */
};

/* struct frame_decoder d = FRAME_DECODER(buf, sizeof(buf)); cap >= FRAME_HEAD_BYTES */
#define FRAME_DECODER(buffer, size) ((struct frame_decoder){.buf = (buffer), .cap = (size)})

/*
 * Where to read the next bytes into, and how many fit. Never 0 unless the stream is broken or whole
 * frames were left unread. Moves the unread bytes to the front, so earlier payloads become invalid.
 */
size_t frame_space(struct frame_decoder *d, uint8_t **ret);
void frame_fed(struct frame_decoder *d, size_t bytes);

/*
 * 1: *ret is the next frame. 0: more bytes are needed. -1: the peer broke the protocol (the frame
 * is too long, or has unknown flags); close the connection.
 */
int frame_next(struct frame_decoder *d, struct frame *ret);
