/*
 * Reads bytes of a module or a saved state. The first failure is kept in the diagnosis and moves
 * the reader to its end, so callers may check `failed` once after several reads.
 */
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
    r->p = r->end; /* all later reads fail at once */
    return false;
}

uint8_t reader_end(struct reader *r) {
    reader_fail(r, WASM_MALFORMED, "unexpected end");
    return 0;
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

static uint64_t leb_fail(struct reader *r, const uint8_t *p, const char *why) {
    r->p = p;
    reader_fail(r, WASM_MALFORMED, "%s", why);
    return 0;
}

/*
 * Reads a LEB128 of at most `bits` bits. Unused bits of the last byte must repeat the sign, or be
 * zero. Inlined, so that the compiler specialises it for each width.
 */
static inline __attribute__((always_inline)) uint64_t leb(struct reader *r, unsigned bits,
                                                          bool is_signed) {
    uint64_t value = 0;
    const uint8_t *p = r->p;
    for (unsigned shift = 0;; shift += 7) {
        if (UNLIKELY(p >= r->end))
            return leb_fail(r, p, "unexpected end");
        uint8_t b = *p++;
        if (shift + 7 >= bits && (b & 0x80))
            return leb_fail(r, p, "integer representation too long");
        value |= (uint64_t)(b & 0x7f) << shift;
        if (b & 0x80)
            continue;
        unsigned used = bits - shift;
        if (used < 7) {
            uint8_t high = (uint8_t)((b & 0x7f) >> (is_signed ? used - 1 : used));
            uint8_t ones = (uint8_t)(0x7f >> (is_signed ? used - 1 : used));
            if (high != 0 && !(is_signed && high == ones))
                return leb_fail(r, p, "integer too large");
        }
        if (is_signed && shift + 7 < 64 && (b & 0x40))
            value |= ~UINT64_C(0) << (shift + 7);
        r->p = p;
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
