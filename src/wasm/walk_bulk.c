/* Walks the instructions with prefix 0xfc: saturating conversions and bulk operations. */

#include "wasm/simd.h"
#include "wasm/walk.h"
#include "wasm/walk_inner.h"

bool walk_data_ok(struct scratch *w, uint32_t i) {
    if (!w->m->has_data_count)
        return reader_fail(&w->r, WASM_MALFORMED, "data count section required");
    return i < w->m->n_data_count || reader_fail(&w->r, WASM_INVALID, "unknown data segment %u", i);
}

bool walk_elem_ok(struct scratch *w, uint32_t i) {
    return i < w->m->n_elems || reader_fail(&w->r, WASM_INVALID, "unknown elem segment %u", i);
}

static uint32_t narrower(uint32_t a, uint32_t b) {
    return a == WASM_I64 && b == WASM_I64 ? WASM_I64 : WASM_I32;
}

/* Checks the indices x and y of a bulk instruction, and returns its operand types. */
static bool bulk_types(struct scratch *w, uint32_t row, uint32_t x, uint32_t y, uint32_t in[3]) {
    struct wasm_module *m = w->m;
    switch (row) {
    case OP_MEMORY_INIT:
        if (!walk_mem_ok(w, y) || !walk_data_ok(w, x))
            return false;
        in[0] = walk_mem_type(w, y), in[1] = in[2] = WASM_I32;
        return true;
    case OP_MEMORY_COPY:
        if (!walk_mem_ok(w, x) || !walk_mem_ok(w, y))
            return false;
        in[0] = walk_mem_type(w, x), in[1] = walk_mem_type(w, y), in[2] = narrower(in[0], in[1]);
        return true;
    case OP_MEMORY_FILL:
        if (!walk_mem_ok(w, x))
            return false;
        in[0] = in[2] = walk_mem_type(w, x), in[1] = WASM_I32;
        return true;
    case OP_TABLE_INIT:
        if (!walk_table_ok(w, y) || !walk_elem_ok(w, x))
            return false;
        if (!types_sub(w->e, m->elems[x].type, m->tables[y].type))
            return walk_fail_type(w, "type mismatch between segment and table");
        in[0] = walk_table_index_type(w, y), in[1] = in[2] = WASM_I32;
        return true;
    case OP_TABLE_COPY:
        if (!walk_table_ok(w, x) || !walk_table_ok(w, y))
            return false;
        if (!types_sub(w->e, m->tables[y].type, m->tables[x].type))
            return walk_fail_type(w, "type mismatch between tables");
        in[0] = walk_table_index_type(w, x), in[1] = walk_table_index_type(w, y),
        in[2] = narrower(in[0], in[1]);
        return true;
    default: /* OP_TABLE_FILL */
        if (!walk_table_ok(w, x))
            return false;
        in[0] = in[2] = walk_table_index_type(w, x), in[1] = m->tables[x].type;
        return true;
    }
}

INLINE bool do_bulk(struct scratch *w, const bool emit, uint32_t row, uint32_t x, uint32_t y) {
    uint32_t in[3];
    if (w->r.failed || !bulk_types(w, row, x, y, in))
        return false;
    if (emit && !w->dead)
        em_bulk(w, row, 3, x, y);
    if (!pop(w, in[2]) || !pop(w, in[1]) || !pop(w, in[0]))
        return false;
    if (emit && !w->dead)
        em_after_call(w);
    return true;
}

INLINE bool do_table_grow(struct scratch *w, const bool emit) {
    uint32_t i = reader_u32(&w->r);
    if (!walk_table_ok(w, i))
        return false;
    if (emit && !w->dead)
        em_bulk(w, OP_TABLE_GROW, 2, i, 0);
    uint32_t at = walk_table_index_type(w, i);
    if (!pop(w, at) || !pop(w, w->m->tables[i].type) || !push(w, emit, at))
        return false;
    if (emit && !w->dead)
        em_after_call(w);
    return true;
}

INLINE bool do_table_size(struct scratch *w, const bool emit) {
    uint32_t i = reader_u32(&w->r);
    if (!walk_table_ok(w, i))
        return false;
    uint64_t extra = i;
    if (emit && !w->dead)
        em_plain(w, OP_TABLE_SIZE, 0, true, &extra, 1);
    return push_out(w, emit, walk_table_index_type(w, i));
}

INLINE bool do_drop_segment(struct scratch *w, const bool emit, uint32_t row) {
    uint32_t i = reader_u32(&w->r);
    if (!(row == OP_DATA_DROP ? walk_data_ok(w, i) : walk_elem_ok(w, i)))
        return false;
    uint64_t extra = i;
    if (emit && !w->dead)
        em_plain(w, (uint16_t)row, 0, false, &extra, 1);
    return true;
}

INLINE bool do_trunc_sat(struct scratch *w, const bool emit, uint32_t row) {
    const char *sig = wasm_ops[row].sig;
    if (emit && !w->dead)
        em_plain(w, (uint16_t)row, 1, true, NULL, 0);
    return pop(w, walk_letter_type(w, sig[0])) && push_out(w, emit, walk_letter_type(w, sig[2]));
}

bool walk_fc(struct scratch *w, const bool emit) {
    struct reader *r = &w->r;
    uint32_t row = w->op = wasm_op_find(0xfc, reader_u32(r)), x, y;
    if (r->failed)
        return false;
    if (row == OP_COUNT || wasm_ops[row].level > w->m->level)
        return reader_fail(r, WASM_MALFORMED, "illegal opcode fc");
    bool bulk = wasm_ops[row].fuel == FUEL_BYTES || wasm_ops[row].fuel == FUEL_ELEMS;
    if (emit && !w->dead && !bulk)
        em_pay(w, 1);
    switch (wasm_ops[row].imm) {
    case IMM_NONE:
        return do_trunc_sat(w, emit, row);
    case IMM_DATA:
    case IMM_ELEM:
        return do_drop_segment(w, emit, row);
    case IMM_DATA_MEM:
        x = reader_u32(r);
        return (w->m->level < WASM_3_0 ? walk_mem_index(w, &y) : (y = reader_u32(r), !r->failed)) &&
               do_bulk(w, emit, row, x, y);
    case IMM_MEM2:
        if (w->m->level < WASM_3_0)
            return walk_mem_index(w, &x) && walk_mem_index(w, &y) && do_bulk(w, emit, row, x, y);
        x = reader_u32(r), y = reader_u32(r);
        return do_bulk(w, emit, row, x, y);
    case IMM_MEM:
        return walk_mem_index(w, &x) && do_bulk(w, emit, row, x, 0);
    case IMM_ELEM_TABLE:
    case IMM_TABLE2:
        x = reader_u32(r), y = reader_u32(r);
        return do_bulk(w, emit, row, x, y);
    default:
        if (row == OP_TABLE_GROW)
            return do_table_grow(w, emit);
        if (row == OP_TABLE_SIZE)
            return do_table_size(w, emit);
        x = reader_u32(r);
        return do_bulk(w, emit, row, x, 0);
    }
}
