#include "wasm/text/value_text.h"

#include <inttypes.h>

#include "base/banned.h"
#include "wasm/text/wat_num.h"

static int bad_value(uint32_t type, const char *s, size_t n, enum wat_num status, struct err *err) {
    char name[40];
    wasm_type_name(type, name, sizeof(name));
    int len = (int)(n < 60 ? n : 60);
    if (status == WAT_NUM_RANGE)
        return err_set(err, ERR_INVALID, "'%.*s' is out of range for the type %s", len, s, name);
    return err_set(err, ERR_INVALID, "'%.*s' is not an %s", len, s, name);
}

static int read_v128(const char *s, size_t n, struct wasm_value *ret, struct err *err) {
    uint64_t high, low;
    char text[19] = "0x";
    if (n != 34 || s[0] != '0' || s[1] != 'x')
        return bad_value(WASM_V128, s, n, WAT_NUM_SYNTAX, err);
    memcpy(text + 2, s + 18, 16);
    if (wat_unsigned(s, 18, UINT64_MAX, &high) != WAT_NUM_OK ||
        wat_unsigned(text, 18, UINT64_MAX, &low) != WAT_NUM_OK)
        return bad_value(WASM_V128, s, n, WAT_NUM_SYNTAX, err);
    for (int i = 0; i < 8; i++) {
        ret->v128[i] = (uint8_t)(low >> 8 * i);
        ret->v128[8 + i] = (uint8_t)(high >> 8 * i);
    }
    return 0;
}

static int read_reference(uint32_t type, const char *s, size_t n, struct wasm_value *ret,
                          struct err *err) {
    if (n != 4 || memcmp(s, "null", 4) != 0 || !(type & WASM_NULLABLE))
        return bad_value(type, s, n, WAT_NUM_SYNTAX, err);
    ret->ref = 0;
    return 0;
}

int value_read(uint32_t type, const char *s, size_t n, struct wasm_value *ret, struct err *err) {
    struct wasm_value v = {.type = type};
    uint64_t bits = 0;
    enum wat_num status = WAT_NUM_OK;
    switch (type) {
    case WASM_I32:
        status = wat_int(s, n, 32, &bits);
        break;
    case WASM_I64:
        status = wat_int(s, n, 64, &bits);
        break;
    case WASM_F32:
        status = wat_float(s, n, 32, &bits);
        break;
    case WASM_F64:
        status = wat_float(s, n, 64, &bits);
        break;
    case WASM_V128:
        if (read_v128(s, n, &v, err) < 0)
            return -1;
        break;
    default:
        if (read_reference(type, s, n, &v, err) < 0)
            return -1;
    }
    if (status != WAT_NUM_OK)
        return bad_value(type, s, n, status, err);
    if (type == WASM_I32 || type == WASM_F32)
        v.f32 = (uint32_t)bits;
    else if (type == WASM_I64 || type == WASM_F64)
        v.f64 = bits;
    *ret = v;
    return 0;
}

static bool print_float(uint64_t bits, unsigned width, struct buf *out) {
    char text[WAT_NUM_TEXT];
    wat_print_float(bits, width, text);
    return buf_addf(out, "%s", text);
}

static bool print_v128(const uint8_t bytes[16], struct buf *out) {
    bool ok = buf_addf(out, "0x");
    for (int i = 15; i >= 0 && ok; i--)
        ok = buf_addf(out, "%02x", bytes[i]);
    return ok;
}

static bool print_reference(const struct wasm_value *v, struct buf *out) {
    if (v->ref == 0)
        return buf_addf(out, "null");
    if ((v->type | WASM_NULLABLE) == WASM_EXTERNREF)
        return buf_addf(out, "host %" PRIu64, v->ref - 1);
    return buf_addf(out, "ref %" PRIu64, v->ref);
}

bool value_print(const struct wasm_value *v, struct buf *out) {
    switch (v->type) {
    case WASM_I32:
        return buf_addf(out, "%" PRId32, v->i32);
    case WASM_I64:
        return buf_addf(out, "%" PRId64, v->i64);
    case WASM_F32:
        return print_float(v->f32, 32, out);
    case WASM_F64:
        return print_float(v->f64, 64, out);
    case WASM_V128:
        return print_v128(v->v128, out);
    default:
        return print_reference(v, out);
    }
}
