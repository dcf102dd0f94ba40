/* Skips a function body: checks that its encoding is well-formed, not that the body is valid. */
#include "wasm/engine.h"

/* Skips n numbers. Each takes at least one byte, so more than the rest of the body is malformed. */
static void skip_many(struct reader *r, uint32_t n) {
    if (n > (size_t)(r->end - r->p))
        reader_fail(r, WASM_MALFORMED, "unexpected end");
    while (n-- > 0 && !r->failed)
        reader_u32(r);
}

static void skip_valtype(struct reader *r) {
    int64_t t = reader_s33(r);
    if (t == -29 ||
        t == -28) /* codes of (ref null ht) and (ref ht), which a heap type ht follows */
        reader_s33(r);
}

static void skip_memarg(struct reader *r, const struct wasm_module *m) {
    uint32_t align = reader_u32(r);
    if (m->level >= WASM_3_0 && (align & 0x40))
        reader_u32(r);
    if (m->level >= WASM_3_0)
        reader_u64(r);
    else
        reader_u32(r);
}

static void skip_catches(struct reader *r) {
    for (uint32_t n = reader_u32(r); n > 0 && !r->failed; n--)
        skip_many(r, reader_byte(r) < 2 ? 2 : 1);
}

static void skip_number(struct reader *r, enum wasm_imm imm) {
    switch (imm) {
    case IMM_I32:
        reader_s32(r);
        break;
    case IMM_I64:
        reader_s64(r);
        break;
    case IMM_F32:
        reader_bytes(r, 4);
        break;
    case IMM_F64:
        reader_bytes(r, 8);
        break;
    case IMM_V128:
    case IMM_SHUFFLE:
        reader_bytes(r, 16);
        break;
    case IMM_LANE:
        reader_byte(r);
        break;
    default:
        reader_u32(r);
    }
}

static void skip_imm(struct reader *r, const struct wasm_module *m, enum wasm_imm imm) {
    switch (imm) {
    case IMM_NONE:
        break;
    case IMM_BLOCK:
        skip_valtype(r);
        break;
    case IMM_TRY_TABLE:
        skip_valtype(r);
        skip_catches(r);
        break;
    case IMM_BR_TABLE: {
        uint32_t n = reader_u32(r);
        skip_many(r, n);
        reader_u32(r);
        break;
    }
    case IMM_SELECT:
        for (uint32_t n = reader_u32(r); n > 0 && !r->failed; n--)
            skip_valtype(r);
        break;
    case IMM_MEMARG:
        skip_memarg(r, m);
        break;
    case IMM_MEMARG_LANE:
        skip_memarg(r, m);
        reader_byte(r);
        break;
    case IMM_HEAPTYPE:
    case IMM_REFTYPE:
        reader_s33(r);
        break;
    case IMM_CAST:
        reader_byte(r);
        reader_u32(r);
        reader_s33(r);
        reader_s33(r);
        break;
    case IMM_CALL_INDIRECT:
    case IMM_DATA_MEM:
    case IMM_ELEM_TABLE:
    case IMM_TABLE2:
    case IMM_MEM2:
    case IMM_TYPE_FIELD:
    case IMM_TYPE_N:
    case IMM_TYPE_DATA:
    case IMM_TYPE_ELEM:
    case IMM_TYPE2:
        skip_many(r, 2);
        break;
    default:
        skip_number(r, imm);
    }
}

static int depth_change(enum wasm_op op) {
    switch (op) {
    case OP_BLOCK:
    case OP_LOOP:
    case OP_IF:
    case OP_TRY_TABLE:
        return 1;
    default:
        return op == OP_END ? -1 : 0;
    }
}

bool skip_instruction(struct reader *r, const struct wasm_module *m, enum wasm_op *ret) {
    uint8_t byte = reader_byte(r);
    bool prefixed = byte >= 0xfb && byte <= 0xfd;
    *ret = wasm_op_find(prefixed ? byte : 0, prefixed ? reader_u32(r) : byte);
    if (r->failed)
        return false;
    if (*ret == OP_COUNT || wasm_ops[*ret].level > m->level)
        return reader_fail(r, WASM_MALFORMED, "illegal opcode %02x", byte);
    skip_imm(r, m, (enum wasm_imm)wasm_ops[*ret].imm);
    return !r->failed;
}

/*
 * Called for an invalid body, to see if it is malformed too. The specification wants "malformed"
 * reported before "invalid", even if the malformed byte comes later.
 */
bool skip_body(struct fn *fn, struct wasm_diag *diag) {
    const struct wasm_module *m = fn->mod;
    const uint8_t *at = m->bytes + fn->body;
    struct reader r = {.p = at, .end = at + fn->body_size, .base = m->bytes, .diag = diag};
    for (uint32_t groups = reader_u32(&r); groups > 0 && !r.failed; groups--) {
        reader_u32(&r);
        skip_valtype(&r);
    }
    for (int64_t depth = 1; depth > 0 && !r.failed;) {
        enum wasm_op op;
        if (!skip_instruction(&r, m, &op))
            break;
        depth += depth_change(op);
    }
    if (!r.failed && r.p != r.end)
        reader_fail(&r, WASM_MALFORMED, "section size mismatch: code after the end");
    return !r.failed;
}
