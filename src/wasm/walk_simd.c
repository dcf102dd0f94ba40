/* Walks instructions on vectors. */

#include "wasm/simd.h"
#include "wasm/walk.h"
#include "wasm/walk_inner.h"

static const uint16_t simd_iops[] = {
    [SIMD_UNARY] = I_V_UNARY,     [SIMD_BINARY] = I_V_BINARY,   [SIMD_TERNARY] = I_V_TERNARY,
    [SIMD_SHIFT] = I_V_SHIFT,     [SIMD_TEST] = I_V_TEST,       [SIMD_SPLAT] = I_V_SPLAT,
    [SIMD_EXTRACT] = I_V_EXTRACT, [SIMD_REPLACE] = I_V_REPLACE,
};

static bool simd_lane(struct scratch *w, const struct simd_op *op, uint64_t *ret) {
    *ret = reader_byte(&w->r);
    return *ret < op->lanes || reader_fail(&w->r, WASM_INVALID, "invalid lane index");
}

/* Makes the words for the slow form of a memory access: any memory, any width of address. */
static void access_words(uint64_t words[2], uint32_t row, const struct memarg *a, uint64_t lane) {
    words[0] = (uint64_t)row | lane << 16 | (uint64_t)a->mem << 32;
    words[1] = a->offset;
}

INLINE bool do_simd_memory(struct scratch *w, const bool emit, uint32_t row,
                           const struct simd_op *op) {
    struct memarg a;
    uint64_t lane = 0, words[2];
    if (!memarg(w, wasm_ops[row].align, &a))
        return false;
    bool is_lane = op->shape == SIMD_LOAD_LANE || op->shape == SIMD_STORE_LANE;
    bool is_load = op->shape == SIMD_LOAD || op->shape == SIMD_LOAD_LANE;
    if (is_lane && !simd_lane(w, op, &lane))
        return false;
    access_words(words, wasm_ops[row].code, &a, lane);
    static const uint16_t iops[] = {I_V_LOAD, I_V_STORE, I_V_LOAD_LANE, I_V_STORE_LANE};
    if (emit && !w->dead)
        em_plain(w, iops[op->shape - SIMD_LOAD], op->shape == SIMD_LOAD ? 1 : 2, is_load, words, 2);
    if (op->shape != SIMD_LOAD && !pop(w, WASM_V128))
        return false;
    return pop(w, walk_mem_type(w, a.mem)) && (!is_load || push_out(w, emit, WASM_V128));
}

INLINE bool do_shuffle(struct scratch *w, const bool emit) {
    const uint8_t *lanes = reader_bytes(&w->r, 16);
    if (!lanes)
        return false;
    for (int i = 0; i < 16; i++)
        if (lanes[i] >= 32)
            return reader_fail(&w->r, WASM_INVALID, "invalid lane index");
    uint64_t words[2];
    memcpy(words, lanes, 16);
    if (emit && !w->dead)
        em_plain(w, I_V_SHUFFLE, 2, true, words, 2);
    return pop(w, WASM_V128) && pop(w, WASM_V128) && push_out(w, emit, WASM_V128);
}

INLINE bool do_simd_value(struct scratch *w, const bool emit, uint32_t row,
                          const struct simd_op *op) {
    uint64_t words[2];
    memcpy(words, &op->unary, sizeof(void *));
    words[1] = 0;
    bool has_lane = wasm_ops[row].imm == IMM_LANE;
    if (has_lane && !simd_lane(w, op, &words[1]))
        return false;
    const char *sig = wasm_ops[row].sig, *colon = strchr(sig, ':');
    unsigned n_in = (unsigned)(colon - sig);
    if (emit && !w->dead)
        em_plain(w, simd_iops[op->shape], n_in, true, words, 2);
    for (unsigned i = n_in; i-- > 0;)
        if (!pop(w, walk_letter_type(w, sig[i])))
            return false;
    return push_out(w, emit, walk_letter_type(w, colon[1]));
}

bool walk_fd(struct scratch *w, const bool emit) {
    struct reader *r = &w->r;
    uint32_t row = w->op = wasm_op_find(0xfd, reader_u32(r));
    if (r->failed)
        return false;
    if (row == OP_COUNT || wasm_ops[row].level > w->m->level)
        return reader_fail(r, WASM_MALFORMED, "illegal opcode fd");
    const struct simd_op *op = simd_op(wasm_ops[row].code);
    if (emit && !w->dead)
        em_pay(w, 1);
    switch (wasm_ops[row].imm) {
    case IMM_V128: {
        const uint8_t *bytes = reader_bytes(r, 16);
        if (!bytes)
            return false;
        if (emit && !w->dead)
            em_const128(w, bytes);
        return push_out(w, emit, WASM_V128);
    }
    case IMM_SHUFFLE:
        return do_shuffle(w, emit);
    case IMM_MEMARG:
    case IMM_MEMARG_LANE:
        return do_simd_memory(w, emit, row, op);
    default:
        return do_simd_value(w, emit, row, op);
    }
}
