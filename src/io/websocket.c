#include "io/websocket.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "io/sha1.h"

enum { IN_HEAD, IN_PAYLOAD };

void ws_decoder_begin(struct ws_decoder *d, enum ws_role role, uint64_t message_max) {
    *d = (struct ws_decoder){.role = role, .message_max = message_max, .head_need = 2};
}

static int websocket_fail(struct ws_decoder *d, enum ws_code code) {
    d->error = code;
    return -1;
}

static bool is_control(uint8_t opcode) {
    return opcode & 8;
}

/* Heads of frames */

static uint64_t big_endian(const uint8_t *p, size_t n) {
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v = v << 8 | p[i];
    return v;
}

/* Checks the first two bytes of a frame head and sets the length of the head. */
static int head_begins(struct ws_decoder *d) {
    uint8_t length = d->head[1] & 127, opcode = d->head[0] & 15;
    bool masked = d->head[1] & 128;
    d->fin = d->head[0] & 128;
    if ((d->head[0] & 0x70) || masked != (d->role == WS_SERVER))
        return websocket_fail(d, WS_PROTOCOL);
    if (is_control(opcode) ? opcode > WS_PONG || !d->fin || length > WS_CONTROL_MAX
                           : opcode > WS_BINARY)
        return websocket_fail(d, WS_PROTOCOL);
    if (!is_control(opcode) && (opcode == WS_CONTINUATION) != (d->message != 0))
        return websocket_fail(d, WS_PROTOCOL);
    d->opcode = opcode;
    d->head_need = (uint8_t)(2 + (length == 126 ? 2 : length == 127 ? 8 : 0) + (masked ? 4 : 0));
    return 0;
}

static int take_length(struct ws_decoder *d) {
    uint8_t length = d->head[1] & 127;
    size_t wide = length == 126 ? 2 : length == 127 ? 8 : 0;
    static const uint64_t least[] = {[2] = 126, [8] = 65536};
    d->left = wide ? big_endian(d->head + 2, wide) : length;
    if (d->left > INT64_MAX || (wide && d->left < least[wide]))
        return websocket_fail(d, WS_PROTOCOL);
    if (d->role == WS_SERVER)
        memcpy(d->mask, d->head + 2 + wide, 4);
    return 0;
}

static int head_ends(struct ws_decoder *d) {
    if (take_length(d) < 0)
        return -1;
    d->state = IN_PAYLOAD;
    d->mask_at = 0;
    d->head_len = 0;
    d->head_need = 2;
    if (is_control(d->opcode)) {
        d->control_len = 0;
        return 0;
    }
    if (d->opcode != WS_CONTINUATION) {
        d->message = d->opcode;
        d->fresh = true;
        d->size = 0;
        d->text = (struct utf8){0};
    }
    if (d->left > d->message_max || d->size > d->message_max - d->left)
        return websocket_fail(d, WS_TOO_BIG);
    d->size += d->left;
    return 0;
}

/* Takes one byte of a frame head; 1: the head is complete. */
static int head_byte(struct ws_decoder *d, uint8_t byte) {
    d->head[d->head_len++] = byte;
    if (d->head_len == 2 && head_begins(d) < 0)
        return -1;
    if (d->head_len < d->head_need)
        return 0;
    return head_ends(d) < 0 ? -1 : 1;
}

/* Payloads */

static int close_event(struct ws_decoder *d, struct ws_event *ret) {
    ret->code = WS_NO_CODE;
    if (d->control_len == 0)
        return 1;
    if (d->control_len == 1)
        return websocket_fail(d, WS_PROTOCOL);
    ret->code = (int)big_endian((const uint8_t *)d->control, 2);
    ret->data += 2;
    ret->n -= 2;
    if (!ws_code_valid(ret->code))
        return websocket_fail(d, WS_PROTOCOL);
    return utf8_valid(ret->data, ret->n) ? 1 : websocket_fail(d, WS_NOT_UTF8);
}

static int control_piece(struct ws_decoder *d, const char *bytes, size_t n, struct ws_event *ret) {
    memcpy(d->control + d->control_len, bytes, n);
    d->control_len = (uint8_t)(d->control_len + n);
    if (d->left)
        return 0;
    d->state = IN_HEAD;
    d->control[d->control_len] = '\0';
    *ret = (struct ws_event){d->opcode, true, true, d->control, d->control_len, 0};
    return d->opcode == WS_CLOSE ? close_event(d, ret) : 1;
}

static int data_piece(struct ws_decoder *d, const char *bytes, size_t n, struct ws_event *ret) {
    bool frame_ends = d->left == 0, last = frame_ends && d->fin;
    *ret = (struct ws_event){d->message, d->fresh, last, bytes, n, 0};
    if (d->message == WS_TEXT &&
        (!utf8_feed(&d->text, bytes, n) || (last && !utf8_whole(&d->text))))
        return websocket_fail(d, WS_NOT_UTF8);
    if (frame_ends)
        d->state = IN_HEAD;
    if (last)
        d->message = 0;
    if (n == 0 && !last)
        return 0; /* an empty fragment is not reported */
    d->fresh = false;
    return 1;
}

int ws_next(struct ws_decoder *d, char *bytes, size_t n, size_t *used, struct ws_event *ret) {
    size_t at = 0;
    *used = 0;
    while (!d->error) {
        int head_done = d->state == IN_PAYLOAD;
        while (d->state == IN_HEAD && at < n && head_done == 0)
            head_done = head_byte(d, (uint8_t)bytes[at++]);
        if (head_done < 0)
            return -1;
        if (!head_done || (d->left && at == n))
            break;
        size_t piece = d->left < n - at ? (size_t)d->left : n - at;
        if (d->role == WS_SERVER)
            ws_mask(bytes + at, piece, d->mask, d->mask_at);
        d->mask_at += piece;
        d->left -= piece;
        int r = is_control(d->opcode) ? control_piece(d, bytes + at, piece, ret)
                                      : data_piece(d, bytes + at, piece, ret);
        *used = at += piece;
        if (r)
            return r;
    }
    *used = at;
    return d->error ? -1 : 0;
}

bool ws_code_valid(int code) {
    return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
           (code >= 3000 && code <= 4999);
}

/* Writing */

size_t ws_head(uint8_t to[WS_HEAD_MAX], enum ws_opcode opcode, bool last, uint64_t n,
               const uint8_t *mask) {
    size_t wide = n < 126 ? 0 : n < 65536 ? 2 : 8;
    to[0] = (uint8_t)((last ? 128 : 0) | opcode);
    to[1] = (uint8_t)((mask ? 128 : 0) | (wide == 0 ? n : wide == 2 ? 126 : 127));
    for (size_t i = 0; i < wide; i++)
        to[2 + i] = (uint8_t)(n >> 8 * (wide - 1 - i));
    if (mask)
        memcpy(to + 2 + wide, mask, 4);
    return 2 + wide + (mask ? 4 : 0);
}

void ws_mask(char *bytes, size_t n, const uint8_t mask[4], uint64_t at) {
    uint8_t turned[8];
    size_t i = 0;
    for (size_t k = 0; k < 8; k++)
        turned[k] = mask[(at + k) & 3];
    uint64_t wide, word;
    memcpy(&wide, turned, 8);
    for (; i + 8 <= n; i += 8) {
        memcpy(&word, bytes + i, 8);
        word ^= wide;
        memcpy(bytes + i, &word, 8);
    }
    for (; i < n; i++)
        bytes[i] = (char)(bytes[i] ^ turned[i & 7]);
}

size_t ws_close_payload(char to[WS_CONTROL_MAX], int code, const char *reason) {
    size_t n = reason ? strlen(reason) : 0;
    if (code == WS_NO_CODE)
        return 0;
    to[0] = (char)(code >> 8);
    to[1] = (char)code;
    if (n > WS_CONTROL_MAX - 2)
        n = WS_CONTROL_MAX - 2;
    while (n && !utf8_valid(reason, n))
        n--; /* do not cut inside a character */
    if (n)
        memcpy(to + 2, reason, n);
    return 2 + n;
}

/* The handshake */

static void base64(const uint8_t *from, size_t n, char *to) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t v = (uint32_t)from[i] << 16;
        if (i + 1 < n)
            v |= (uint32_t)from[i + 1] << 8;
        if (i + 2 < n)
            v |= from[i + 2];
        *to++ = digits[v >> 18];
        *to++ = digits[v >> 12 & 63];
        *to++ = i + 1 < n ? digits[v >> 6 & 63] : '=';
        *to++ = i + 2 < n ? digits[v & 63] : '=';
    }
    *to = '\0';
}

void ws_accept(const char *key, size_t n, char to[WS_ACCEPT_SIZE]) {
    char text[100];
    uint8_t hash[SHA1_BYTES];
    int length = snprintf(text, sizeof(text), "%.*s258EAFA5-E914-47DA-95CA-C5AB0DC85B11",
                          n < 60 ? (int)n : 60, key);
    sha1_short(text, (size_t)length, hash);
    base64(hash, sizeof(hash), to);
}

bool ws_key_valid(const char *key, size_t n) {
    if (n != WS_KEY_SIZE - 1 || memcmp(key + 22, "==", 2) != 0)
        return false;
    for (size_t i = 0; i < 22; i++) {
        char c = key[i];
        bool digit = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                     c == '+' || c == '/';
        if (!digit)
            return false;
    }
    return true;
}

void ws_key(const uint8_t random[16], char to[WS_KEY_SIZE]) {
    base64(random, 16, to);
}
