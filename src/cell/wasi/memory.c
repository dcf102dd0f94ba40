/* The memory of the program, reached only through checked pointers. */
#include <string.h>

#include "base/wire/little.h"
#include "cell/wasi/wasi_inner.h"

uint8_t *wasi_bytes(const struct wasi_call *c, uint32_t at, uint64_t len) {
    static uint8_t none;
    if (at > c->size || len > c->size - at)
        return NULL;
    return len ? c->memory + at : &none;
}

uint64_t wasi_number(const uint8_t *p, unsigned bytes) {
    return little_get(p, bytes);
}

void wasi_set_number(uint8_t *p, uint64_t value, unsigned bytes) {
    little_put(p, value, bytes);
}

void wasi_note(const struct wasi_at *a, uint32_t at, size_t len) {
    uint8_t head[8];
    if (!a->c->writes || !len)
        return;
    wasi_set_number(head, at, 4);
    wasi_set_number(head + 4, len, 4);
    if (!buf_add(a->c->writes, head, sizeof(head)) ||
        !buf_add(a->c->writes, a->c->memory + at, len))
        a->c->is_log_full = true;
}

int wasi_put(const struct wasi_at *a, uint32_t at, const void *bytes, size_t len) {
    uint8_t *to = wasi_bytes(a->c, at, len);
    if (!to)
        return WASI_FAULT;
    if (len)
        memcpy(to, bytes, len);
    wasi_note(a, at, len);
    return WASI_OK;
}

int wasi_put_number(const struct wasi_at *a, uint32_t at, uint64_t value, unsigned bytes) {
    uint8_t out[8];
    wasi_set_number(out, value, bytes);
    return wasi_put(a, at, out, bytes);
}

bool wasi_rewrite(struct wasi_call *c, const void *writes, size_t len) {
    const uint8_t *p = writes;
    while (len >= 8) {
        uint32_t at = (uint32_t)wasi_number(p, 4), n = (uint32_t)wasi_number(p + 4, 4);
        uint8_t *to = wasi_bytes(c, at, n);
        if (n > len - 8 || !to)
            return false;
        memcpy(to, p + 8, n);
        p += 8 + (size_t)n;
        len -= 8 + (size_t)n;
    }
    return len == 0;
}

int wasi_iov_at(const struct wasi_call *c, uint32_t vector, uint32_t i, uint32_t *left,
                struct wasi_iov *ret) {
    const uint8_t *p = wasi_bytes(c, vector, ((uint64_t)i + 1) * 8);
    if (!p)
        return WASI_FAULT;
    p += (size_t)i * 8;
    *ret = (struct wasi_iov){.at = (uint32_t)wasi_number(p, 4)};
    uint32_t len = (uint32_t)wasi_number(p + 4, 4);
    ret->len = len < *left ? len : *left;
    *left -= ret->len;
    ret->bytes = wasi_bytes(c, ret->at, len);
    return ret->bytes ? WASI_OK : WASI_FAULT;
}
