/*
 * Decodes and encodes WebSocket frames (RFC 6455), and computes the hash of the handshake.
 *
 * Pure, as io/http.h. A decoder hands out messages piece by piece as the bytes come, in the
 * caller's own memory (a client's masking is undone in place). Strict: masking by role, shortest
 * lengths, whole UTF-8 in texts, no extensions. After an error the connection is to be closed with
 * the code that the decoder names.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/utf8.h"

enum ws_role { WS_SERVER, WS_CLIENT }; /* the side that decodes: frames from a client are masked */

enum ws_opcode {
    WS_CONTINUATION = 0,
    WS_TEXT = 1,
    WS_BINARY = 2,
    WS_CLOSE = 8,
    WS_PING = 9,
    WS_PONG = 10
};

enum ws_code {
    WS_NORMAL = 1000,
    WS_GOING_AWAY = 1001,
    WS_PROTOCOL = 1002,
    WS_NO_CODE = 1005, /* never sent; means that the peer gave no code */
    WS_NOT_UTF8 = 1007,
    WS_POLICY = 1008,
    WS_TOO_BIG = 1009,
    WS_INTERNAL = 1011,
};

enum { WS_CONTROL_MAX = 125, WS_HEAD_MAX = 14 };

struct ws_event {
    enum ws_opcode opcode; /* WS_TEXT, WS_BINARY: piece of a message; others: control frame */
    bool first, last;      /* first or last piece of the message */
    const char *data;      /* valid until the next call */
    size_t n;
    int code; /* WS_CLOSE: the code of the peer; data is the reason */
};

struct ws_decoder {
    enum ws_role role;
    uint64_t message_max;
    int error; /* enum ws_code, once ws_next() has returned -1 */

    /* Internal state. */
    uint8_t state, opcode, message; /* opcode of the frame, of the message it belongs to */
    bool fin, fresh;                /* no piece of the message was handed out yet */
    uint8_t head[WS_HEAD_MAX];
    uint8_t head_len, head_need;
    uint64_t left, size; /* bytes left of this frame; size of the message so far */
    uint64_t mask_at;
    uint8_t mask[4];
    struct utf8 text;
    char control[WS_CONTROL_MAX + 1];
    uint8_t control_len;
};

void ws_decoder_begin(struct ws_decoder *d, enum ws_role role, uint64_t message_max);

/*
 * Takes some of the bytes; *used says how many. 1: *ret is the next event. 0: all bytes were taken,
 * and no event is complete. -1: d->error. An empty message is one event with n = 0.
 */
int ws_next(struct ws_decoder *d, char *bytes, size_t n, size_t *used, struct ws_event *ret);

/* Writes the head of a frame; mask is NULL for a server. Returns its length. */
size_t ws_head(uint8_t to[WS_HEAD_MAX], enum ws_opcode opcode, bool last, uint64_t n,
               const uint8_t *mask);
/* Masks or unmasks n bytes of a payload, which start at its byte `at`. */
void ws_mask(char *bytes, size_t n, const uint8_t mask[4], uint64_t at);

/* Writes the payload of a close frame: the code and the reason, cut to fit. */
size_t ws_close_payload(char to[WS_CONTROL_MAX], int code, const char *reason);
/* True if a peer may send this close code. */
bool ws_code_valid(int code);

/* Computes Sec-WebSocket-Accept for a Sec-WebSocket-Key; NUL-terminated. */
enum { WS_ACCEPT_SIZE = 29, WS_KEY_SIZE = 25 };
void ws_accept(const char *key, size_t n, char to[WS_ACCEPT_SIZE]);
/* True if the key is 16 bytes in base64. */
bool ws_key_valid(const char *key, size_t n);
/* Writes a key made from 16 random bytes. */
void ws_key(const uint8_t random[16], char to[WS_KEY_SIZE]);
