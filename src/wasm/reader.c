#include <stdarg.h>

#include "wasm/engine.h"

bool reader_fail(struct reader *r, enum wasm_fault fault, const char *fmt, ...) {
    if (r->failed)
        return false;
    r->failed = true;
    struct wasm_diag *d = r->diag;
    d->fault = fault;
    d->offset = (size_t)(r->p - r->base);
    va_list args;
    va_start(args, fmt);
    vsnprintf(d->message, sizeof d->message, fmt, args);
    va_end(args);
    r->p = r->end; /* whatever is read next fails at once */
    return false;
}

uint8_t reader_byte(struct reader *r) {
    if (r->p >= r->end) {
        reader_fail(r, WASM_MALFORMED, "unexpected end");
        return 0;
    }
    return *r->p++;
}

const uint8_t *reader_bytes(struct reader *r, size_t n) {
    if ((size_t)(r->end - r->p) < n) {
        reader_fail(r, WASM_MALFORMED, "unexpected end: length out of bounds");
        return NULL;
    }
    const uint8_t *p = r->p;
    r->p += n;
    return p;
}

/* LEB128 of at most `bits` bits. Unused bits of the last byte must repeat the sign, or be zero. */
static uint64_t leb(struct reader *r, unsigned bits, bool is_signed) {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        uint8_t b = reader_byte(r);
        if (r->failed)
            return 0;
        if (shift + 7 >= bits && (b & 0x80)) {
            reader_fail(r, WASM_MALFORMED, "integer representation too long");
            return 0;
        }
        value |= (uint64_t)(b & 0x7f) << shift;
        if (b & 0x80)
            continue;
        unsigned used = bits - shift;
        if (used < 7) {
            uint8_t high = (uint8_t)((b & 0x7f) >> (is_signed ? used - 1 : used));
            uint8_t ones = (uint8_t)(0x7f >> (is_signed ? used - 1 : used));
            if (high != 0 && !(is_signed && high == ones)) {
                reader_fail(r, WASM_MALFORMED, "integer too large");
                return 0;
            }
        }
        if (is_signed && shift + 7 < 64 && (b & 0x40))
            value |= ~UINT64_C(0) << (shift + 7);
        return value;
    }
}

uint32_t reader_u32_slow(struct reader *r) {
    return (uint32_t)leb(r, 32, false);
}
uint64_t reader_u64(struct reader *r) {
    return leb(r, 64, false);
}
int32_t reader_s32(struct reader *r) {
    return (int32_t)leb(r, 32, true);
}
int64_t reader_s33(struct reader *r) {
    return (int64_t)leb(r, 33, true);
}
int64_t reader_s64(struct reader *r) {
    return (int64_t)leb(r, 64, true);
}
