/*
 * Writes code while a function body is walked: instructions on slots, folded together where that is
 * faster, and the costs of fuel blocks.
 *
 * A fuel block is a run of instructions that, once entered, runs to its end unless it traps.
 * Reaching a label does not end a block. The code that enters a block (a branch, the code after a
 * branch, a return) pays its cost. The cost is known only at the end of the block, so each entry
 * has a site: a word that is patched then. In stepping code every instruction pays alone (STEP),
 * nothing is folded, and execution may go back to the fast code at each block start (REJOIN).
 */
#include "wasm/emit_inner.h"
#include "wasm/walk.h"

enum {
    LAZY_MAX = 16,     /* maximum of operands that are not in their slots, which searches visit */
    CHAIN_MAX = 30000, /* maximum cost of one fuel block, because cost fields have 16 bits */
    PEEK_BR_IF = 0x0d,
    PEEK_IF = 0x04,
    PEEK_EQZ = 0x45,
};

/* ---- Words, marks, sites, nodes ---- */

uint32_t em_offset_of(const struct scratch *w, const uint8_t *p) {
    return (uint32_t)(p - w->r.base);
}

static uint32_t next_slot(const struct scratch *w) {
    return w->n ? w->vals[w->n - 1].slot + slots_of(w->types[w->n - 1]) : w->local_slots;
}

/* Reports lack of memory: no more code is written; the walk ends after the present instruction. */
void em_no_room(struct scratch *w) {
    w->no_memory = true;
    reader_fail(&w->r, WASM_TOO_BIG, "out of memory");
}

static void mark_at(struct scratch *w, uint32_t kind, uint32_t offset, uint32_t pos) {
    if (!w->recording)
        return;
    if (!engine_grow(w->e, &w->marks, &w->cap_marks, w->n_marks + 1, sizeof *w->marks)) {
        em_no_room(w);
        return;
    }
    w->marks[w->n_marks++] = (struct mark){kind, pos, offset, w->cum, next_slot(w)};
    if (w->visit)
        w->visit(w->visit_ctx, w->n_marks - 1,
                 &(struct mark_types){.locals = w->locals,
                                      .stack = w->types,
                                      .set = w->has_unset ? w->set : NULL,
                                      .n_locals = w->n_locals,
                                      .n_stack = w->n,
                                      .local_slots = w->local_slots});
}

static void mark(struct scratch *w, uint32_t kind, uint32_t offset) {
    mark_at(w, kind, offset, w->n_words);
}

void em_word(struct scratch *w, uint64_t v) {
    if (UNLIKELY(w->n_words == w->cap_words) &&
        !engine_grow(w->e, &w->words, &w->cap_words, w->n_words + 1, sizeof *w->words)) {
        em_no_room(w);
        return;
    }
    w->words[w->n_words++] = v;
}

void em_patch(struct scratch *w, uint32_t at, uint64_t bits) {
    if (!w->no_memory)
        w->words[at] |= bits;
}

void em_op(struct scratch *w, uint32_t code, uint32_t a, uint32_t b, uint32_t c) {
    mark(w, MARK_OP, em_offset_of(w, w->ins));
    if (!w->stepping) {
        code = em_regs_use(w, code, &a, &b, &c);
        em_regs_set(w, code, a);
    }
    em_chain_next(w, code);
    em_word(w, WORD(code, a & 0xffff, b & 0xffff, c & 0xffff));
}

uint32_t em_site(struct scratch *w, uint32_t at, enum site_field field, uint32_t addend) {
    if (!engine_grow(w->e, &w->sites, &w->cap_sites, w->n_sites + 1, sizeof *w->sites)) {
        em_no_room(w);
        return NO_LINK;
    }
    w->sites[w->n_sites] =
        (struct site){.word = at, .next = NO_LINK, .addend = addend, .field = (uint8_t)field};
    return w->n_sites++;
}

void em_site_pay(struct scratch *w, const struct site *s, uint32_t cost) {
    uint64_t v = (w->stepping ? 0 : cost) + s->addend;
    switch (s->field) {
    case SITE_TAKEN:
        em_patch(w, s->word, v << 32);
        break;
    case SITE_FALL:
        em_patch(w, s->word, v << 48);
        break;
    case SITE_WIDE:
        em_patch(w, s->word, v << 32);
        break;
    default:
        w->entry_cost = (uint32_t)v;
    }
}

/* Writes a NOTHING word if instructions with a cost, but without code, follow the last block start:
   a place where fuel ran out is found by its word, so each such place needs its own word. */
static void separate(struct scratch *w) {
    if (w->stepping || w->start_end != w->n_words || w->start_cum == w->cum)
        return;
    em_chain_break(w);
    em_word(w, WORD(I_NOTHING, 0, 0, 0));
}

/* Returns the code position of a fuel block that starts now. Stepping code has one REJOIN for all
   blocks that start at one place, because a failed REJOIN costs the guest nothing. */
uint32_t em_block_pos(struct scratch *w) {
    separate(w);
    return w->stepping && w->n_words && w->start_end == w->n_words ? w->n_words - 1 : w->n_words;
}

/* Starts a fuel block at em_block_pos(). `sites` is the list of words that pay for it. */
uint32_t em_node(struct scratch *w, uint32_t sites, uint32_t offset, uint32_t kind) {
    uint32_t pos = em_block_pos(w);
    mark_at(w, kind, offset, pos);
    em_regs_forget(w);
    em_chain_break(w);
    if (w->stepping && pos == w->n_words)
        em_word(w, WORD(I_REJOIN, 0, 0, 0));
    w->start_end = w->n_words;
    w->start_cum = w->cum;
    if (!engine_grow(w->e, &w->nodes, &w->cap_nodes, w->n_nodes + 1, sizeof *w->nodes)) {
        em_no_room(w);
        return NO_LINK;
    }
    w->nodes[w->n_nodes] = (struct node){.start = w->cum, .sites = sites};
    return w->n_nodes++;
}

/* Ends all open fuel blocks and patches their costs into the sites. */
void em_close(struct scratch *w) {
    for (; w->first_open < w->n_nodes; w->first_open++) {
        struct node *n = &w->nodes[w->first_open];
        n->cost = w->cum - n->start;
        for (uint32_t s = n->sites; s != NO_LINK; s = w->sites[s].next)
            em_site_pay(w, &w->sites[s], n->cost);
    }
    for (; w->first_mark < w->n_marks; w->first_mark++)
        w->marks[w->first_mark].rest = w->cum - w->marks[w->first_mark].rest;
}

/* ---- Operands ---- */

static void to_const(struct scratch *w, uint32_t type, uint32_t dst, uint64_t k) {
    if (type == WASM_F64) {
        em_op(w, I_CONST_F64, dst, 0, 0);
        em_word(w, k);
        return;
    }
    if (k <= UINT32_MAX) {
        em_op(w, I_CONST32, dst, (uint32_t)k & 0xffff, (uint32_t)k >> 16);
        return;
    }
    em_op(w, I_CONST64, dst, 0, 0);
    em_word(w, k);
}

static void to_cmp(struct scratch *w, const struct opnd *o, uint32_t dst) {
    bool is_int = o->op < OP_F32_EQ;
    if (is_int && o->has_k) {
        uint32_t i = o->op >= OP_I64_EQZ ? o->op - OP_I64_EQ + 10u : o->op - (uint32_t)OP_I32_EQ;
        em_op(w, I_I32_EQ_K + i, dst, o->a, (uint32_t)o->k);
    } else {
        em_op(w, o->op, dst, o->a, o->b);
    }
}

/* Writes code that puts operand `o` into slot `dst`. */
void em_to_slot(struct scratch *w, const struct opnd *o, uint32_t type, uint32_t dst) {
    switch (o->kind) {
    case OPND_SLOT:
    case OPND_LOCAL: {
        uint32_t src = o->kind == OPND_SLOT ? o->slot : o->a;
        if (src != dst)
            em_op(w, type == WASM_V128 ? I_MOV2 : I_MOV, dst, src, 0);
        break;
    }
    case OPND_CONST:
        to_const(w, type, dst, o->k);
        break;
    case OPND_CMP:
        to_cmp(w, o, dst);
        break;
    default:
        em_op(w, o->has_k ? I_I32_ADD_K : OP_I32_ADD, dst, o->a, o->has_k ? (uint32_t)o->k : o->b);
    }
}

static void emit_settle(struct scratch *w, uint32_t i) {
    struct opnd *o = &w->vals[i];
    if (o->kind == OPND_SLOT)
        return;
    em_to_slot(w, o, w->types[i], o->slot);
    o->kind = OPND_SLOT;
}

static void lazy_trim(struct scratch *w) {
    if (w->lazy_from > w->n)
        w->lazy_from = w->n;
}

void em_flush(struct scratch *w, uint32_t except_top) {
    lazy_trim(w);
    while (w->lazy_from + except_top < w->n)
        emit_settle(w, w->lazy_from++);
}

bool em_push(struct scratch *w, uint32_t type) {
    if (UNLIKELY(w->n >= w->cap_vals) &&
        !engine_grow(w->e, &w->vals, &w->cap_vals, w->n + 1, sizeof *w->vals)) {
        em_no_room(w);
        return false;
    }
    uint32_t slot = next_slot(w);
    w->vals[w->n] = (struct opnd){.slot = slot, .kind = OPND_SLOT};
    if (slot + slots_of(type) > w->max_slots)
        w->max_slots = slot + slots_of(type);
    lazy_trim(w);
    if (!w->dead && w->n - w->lazy_from >= LAZY_MAX)
        emit_settle(w, w->lazy_from++);
    return true;
}

/* Returns the slot to read operand i from. */
uint32_t em_use(struct scratch *w, uint32_t i) {
    struct opnd *o = &w->vals[i];
    if (o->kind == OPND_LOCAL)
        return o->a;
    emit_settle(w, i);
    return o->slot;
}

/*
 * Copies operands that stand for a local to their own slots, before the local changes. The top
 * `consumed` operands are left out, because the present instruction reads them first.
 */
static void settle_local(struct scratch *w, uint32_t slot, uint32_t consumed) {
    lazy_trim(w);
    for (uint32_t i = w->lazy_from; i + consumed < w->n; i++)
        if (w->vals[i].a == slot && (w->vals[i].kind == OPND_LOCAL || w->vals[i].kind == OPND_SUM))
            emit_settle(w, i);
}

/* Returns the local that the next instruction sets, or NO_LINK. */
static uint32_t peek_set(const struct scratch *w) {
    const uint8_t *p = w->r.p;
    if (w->stepping || w->r.end - p < 3 || (p[0] != 0x21 && p[0] != 0x22))
        return NO_LINK;
    if (p[1] < 0x80)
        return p[1];
    return p[2] < 0x80 ? (p[1] & 0x7fu) | (uint32_t)p[2] << 7 : NO_LINK;
}

/* Returns the slot for a result: its stack slot, or the local that the next instruction sets. */
static uint32_t result(struct scratch *w, uint32_t consumed) {
    uint32_t local = peek_set(w);
    w->out.kind = OPND_SLOT;
    if (local == NO_LINK)
        return consumed ? w->vals[w->n - consumed].slot : next_slot(w);
    uint32_t slot = w->slots[local];
    settle_local(w, slot, consumed);
    w->out = (struct opnd){.kind = OPND_LOCAL, .a = (uint16_t)slot};
    return slot;
}

/* ---- Fuel costs ---- */

static void charge(struct scratch *w) {
    em_flush(w, 0);
    separate(w);
    em_close(w);
    mark(w, MARK_SELF, em_offset_of(w, w->ins));
    em_chain_break(w);
    em_regs_forget(w);
    em_word(w, WORD(I_CHARGE, 0, 0, 0));
    em_word(w, 0);
    uint32_t s = em_site(w, w->n_words - 1, SITE_WIDE, 0);
    em_node(w, s, em_offset_of(w, w->ins), 0);
}

void em_pay(struct scratch *w, uint32_t cost) {
    if (!cost)
        return;
    if (w->stepping) {
        mark(w, MARK_STEP, em_offset_of(w, w->ins));
        em_word(w, WORD(I_STEP, cost & 0xffff, 0, 0));
        return;
    }
    if (w->first_open < w->n_nodes && w->cum - w->nodes[w->first_open].start > CHAIN_MAX)
        charge(w);
    w->cum += cost;
}

/* The present instruction pays for itself while it runs, so the fuel block before it ends here. */
void em_self_charging(struct scratch *w) {
    em_flush(w, 0);
    separate(w);
    em_close(w);
    em_regs_forget(w);
    mark(w, w->stepping ? MARK_STEP : MARK_SELF, em_offset_of(w, w->ins));
}

uint32_t em_carry_cost(uint32_t values) {
    return (values + 7) / 8;
}

/* ---- Begin and end ---- */

static bool local_slots(struct scratch *w) {
    if (!engine_grow(w->e, &w->slots, &w->cap_slots, w->n_locals + 1, sizeof *w->slots))
        return false;
    uint32_t slot = 0;
    for (uint32_t i = 0; i < w->n_locals; i++) {
        w->slots[i] = slot;
        slot += slots_of(w->locals[i]);
    }
    return true;
}

void em_begin(struct scratch *w) {
    w->dead = w->no_memory = false;
    w->n_words = w->n_nodes = w->n_sites = w->n_marks = w->n_handlers = 0;
    w->first_open = w->first_mark = 0;
    w->cum = w->entry_cost = w->lazy_from = 0;
    em_chain_break(w);
    em_regs_forget(w);
    w->start_end = NO_LINK;
    w->max_slots = w->local_slots;
    if (w->fn->result_slots > w->max_slots)
        w->max_slots = w->fn->result_slots;
    if (!local_slots(w)) {
        em_no_room(w);
        return;
    }
    uint32_t cost = em_carry_cost(w->n_locals - w->n_params);
    if (w->stepping) {
        mark(w, MARK_STEP, w->fn->body);
        em_word(w, WORD(I_STEP, cost, 0, 0));
        return;
    }
    em_node(w, em_site(w, 0, SITE_ENTRY, 0), w->fn->body, MARK_START);
    w->cum += cost;
}

void em_end(struct scratch *w) {
    em_close(w);
}

/* ---- Locals, constants, numbers ---- */

void em_local_get(struct scratch *w, uint32_t i) {
    uint32_t slot = w->slots[i];
    w->out.kind = OPND_SLOT;
    if (w->stepping)
        em_op(w, w->locals[i] == WASM_V128 ? I_MOV2 : I_MOV, next_slot(w), slot, 0);
    else
        w->out = (struct opnd){.kind = OPND_LOCAL, .a = (uint16_t)slot};
}

void em_local_set(struct scratch *w, uint32_t i) {
    uint32_t slot = w->slots[i], top = w->n - 1;
    if (w->vals[top].kind == OPND_LOCAL && w->vals[top].a == slot)
        return; /* the instruction that made the operand wrote it to the local, see result() */
    settle_local(w, slot, 1);
    em_to_slot(w, &w->vals[top], w->types[top], slot);
}

void em_local_tee(struct scratch *w, uint32_t i) {
    em_local_set(w, i);
    w->out.kind = OPND_SLOT;
    if (!w->stepping)
        w->out = (struct opnd){.kind = OPND_LOCAL, .a = (uint16_t)w->slots[i]};
}

void em_const(struct scratch *w, uint32_t type, uint64_t k) {
    w->out.kind = OPND_SLOT;
    if (w->stepping)
        to_const(w, type, next_slot(w), k);
    else
        w->out = (struct opnd){.kind = OPND_CONST, .k = k};
}

void em_const128(struct scratch *w, const uint8_t *bytes) {
    uint64_t k[2];
    memcpy(k, bytes, sizeof k);
    em_op(w, I_CONST128, result(w, 0), 0, 0);
    em_word(w, k[0]);
    em_word(w, k[1]);
}

static uint8_t peek(const struct scratch *w) {
    return w->r.p < w->r.end ? *w->r.p : 0;
}

/* Indexed by comparison, in the order of the encoding: eq ne lt_s lt_u gt_s gt_u le_s … */
const uint8_t em_cmp_inverse[10] = {1, 0, 8, 9, 6, 7, 4, 5, 2, 3};
static const uint8_t cmp_mirror[10] = {0, 1, 4, 5, 2, 3, 8, 9, 6, 7};

uint16_t em_cmp_map(uint16_t row, const uint8_t map[10]) {
    uint16_t base = row >= OP_I64_EQ ? OP_I64_EQ : OP_I32_EQ;
    return (uint16_t)(base + map[row - base]);
}

/* Keeps a comparison as an operand if a branch follows that can include it; else writes it. */
static void cmp_finish(struct scratch *w, struct opnd c, uint32_t consumed) {
    uint8_t next = peek(w);
    bool fold = next == PEEK_BR_IF || next == PEEK_IF || (next == PEEK_EQZ && c.op < OP_F32_EQ);
    if (!w->stepping && fold) {
        c.kind = OPND_CMP;
        w->out = c;
        return;
    }
    to_cmp(w, &c, result(w, consumed));
}

static bool fits16(uint64_t k, bool is64) {
    int64_t v = is64 ? (int64_t)k : (int32_t)k;
    return v >= INT16_MIN && v <= INT16_MAX;
}

static void em_eqz(struct scratch *w, bool is64) {
    struct opnd *o = &w->vals[w->n - 1];
    if (!is64 && o->kind == OPND_CMP) {
        struct opnd c = *o;
        c.op = em_cmp_map(c.op, em_cmp_inverse);
        cmp_finish(w, c, 1);
        return;
    }
    struct opnd c = {
        .op = is64 ? OP_I64_EQ : OP_I32_EQ, .has_k = true, .a = (uint16_t)em_use(w, w->n - 1)};
    cmp_finish(w, c, 1);
}

static void em_compare(struct scratch *w, uint16_t row) {
    struct opnd *a = &w->vals[w->n - 2], *b = a + 1;
    bool is_int = row < OP_F32_EQ, is64 = row >= OP_I64_EQ;
    struct opnd c = {.op = row};
    if (is_int && a->kind == OPND_CONST && b->kind != OPND_CONST && fits16(a->k, is64)) {
        c.op = em_cmp_map(row, cmp_mirror);
        c.has_k = true;
        c.k = a->k & 0xffff;
        c.a = (uint16_t)em_use(w, w->n - 1);
    } else if (is_int && b->kind == OPND_CONST && fits16(b->k, is64)) {
        c.has_k = true;
        c.k = b->k & 0xffff;
        c.a = (uint16_t)em_use(w, w->n - 2);
    } else {
        c.a = (uint16_t)em_use(w, w->n - 2);
        c.b = (uint16_t)em_use(w, w->n - 1);
    }
    cmp_finish(w, c, 2);
}

/* Returns the code of an integer operation whose second operand is a constant; 0: it has none. */
static uint16_t alu_k(uint16_t row) {
    switch (row) {
#define X(name)     \
    case OP_##name: \
        return I_##name##_K;
        ALU_OPS(X)
#undef X
    default:
        return 0;
    }
}

static bool commutes(uint16_t row) {
    uint16_t r = row >= OP_I64_CLZ ? (uint16_t)(row - OP_I64_CLZ + OP_I32_CLZ) : row;
    return r == OP_I32_ADD || r == OP_I32_MUL || r == OP_I32_AND || r == OP_I32_OR ||
           r == OP_I32_XOR;
}

static bool is_plain_load(const struct scratch *w) {
    const uint8_t *p = w->r.p;
    return w->r.end - p > 1 && p[0] >= 0x28 && p[0] <= 0x35 && p[1] < 0x40;
}

static bool alu_const(struct scratch *w, uint16_t row) {
    bool is64 = row >= OP_I64_CLZ;
    uint32_t at = w->n - 1, other = w->n - 2;
    if (w->vals[at].kind != OPND_CONST && commutes(row))
        at = w->n - 2, other = w->n - 1;
    if (w->vals[at].kind != OPND_CONST || w->vals[other].kind == OPND_CONST)
        return false;
    uint64_t k = w->vals[at].k;
    if (row == OP_I32_SUB || row == OP_I64_SUB) {
        row = is64 ? OP_I64_ADD : OP_I32_ADD;
        k = is64 ? 0 - k : (uint32_t)(0 - k);
    }
    uint16_t form = alu_k(row);
    if (!form || !fits16(k, is64))
        return false;
    bool is_local = w->vals[other].kind == OPND_LOCAL;
    uint32_t src = em_use(w, other);
    if (row == OP_I32_ADD && (is_plain_load(w) || (is_local && peek_set(w) == NO_LINK))) {
        /* A load or store that uses it as address includes it. */
        w->out =
            (struct opnd){.kind = OPND_SUM, .has_k = true, .a = (uint16_t)src, .k = k & 0xffff};
        return true;
    }
    em_op(w, form, result(w, 2), src, (uint32_t)k & 0xffff);
    return true;
}

static void em_binary(struct scratch *w, uint16_t row) {
    if (!w->stepping && row >= OP_I32_CLZ && row <= OP_I64_ROTR && alu_const(w, row))
        return;
    uint32_t a = em_use(w, w->n - 2), b = em_use(w, w->n - 1);
    if (!w->stepping && row == OP_I32_ADD && is_plain_load(w)) {
        w->out = (struct opnd){.kind = OPND_SUM, .a = (uint16_t)a, .b = (uint16_t)b};
        return;
    }
    em_op(w, row, result(w, 2), a, b);
}

void em_numeric(struct scratch *w, uint8_t byte, unsigned n_in) {
    uint16_t row = w->e->plain[byte].row;
    if (row == OP_I32_EQZ || row == OP_I64_EQZ)
        em_eqz(w, row == OP_I64_EQZ);
    else if (byte < 0x67)
        em_compare(w, row);
    else if (n_in == 2)
        em_binary(w, row);
    else {
        uint32_t a = em_use(w, w->n - 1);
        em_op(w, row, result(w, 1), a, 0);
    }
}

void em_select(struct scratch *w, uint32_t type) {
    uint32_t a = em_use(w, w->n - 3), b = em_use(w, w->n - 2), c = em_use(w, w->n - 1);
    em_op(w, type == WASM_V128 ? I_SELECT2 : I_SELECT1, result(w, 3), a, b);
    em_word(w, c);
}

void em_global(struct scratch *w, uint32_t i, uint32_t type, bool is_set) {
    bool wide = type == WASM_V128;
    if (is_set) {
        uint32_t a = em_use(w, w->n - 1);
        em_op(w, wide ? I_GLOBAL_SET2 : I_GLOBAL_SET1, a, i & 0xffff, i >> 16);
    } else {
        em_op(w, wide ? I_GLOBAL_GET2 : I_GLOBAL_GET1, result(w, 0), i & 0xffff, i >> 16);
    }
}

void em_plain(struct scratch *w, uint16_t code, unsigned n_in, bool has_result, uint64_t *extra,
              unsigned n_extra) {
    uint32_t in[3] = {0, 0, 0};
    if (code == I_NULL_CHECK)
        em_flush(w, 0);
    for (unsigned i = 0; i < n_in; i++)
        in[i] = em_use(w, w->n - n_in + i);
    if (n_in == 3)
        extra[1] = in[2];
    if (has_result)
        em_op(w, code, result(w, n_in), in[0], in[1]);
    else
        em_op(w, code, in[0], in[1], in[2]);
    for (unsigned i = 0; i < n_extra; i++)
        em_word(w, extra[i]);
}

/* ---- Memory ---- */

static bool is_simple_mem(const struct scratch *w, uint32_t mem) {
    return mem == 0 && !w->m->mems[0].l.is64;
}

static uint32_t far_form(uint32_t row) {
    return I_I32_LOAD_FAR + 3 * (row - OP_I32_LOAD);
}

void em_load(struct scratch *w, uint32_t row, uint32_t mem, uint64_t offset) {
    struct opnd *o = &w->vals[w->n - 1];
    if (!is_simple_mem(w, mem)) {
        uint32_t a = em_use(w, w->n - 1);
        em_op(w, I_MEM_LOAD, result(w, 1), a, 0);
        em_word(w, PAIR(row, mem));
        em_word(w, offset);
    } else if (o->kind == OPND_CONST) {
        uint64_t at = offset + (uint32_t)o->k;
        em_op(w, far_form(row) + 1, result(w, 1), 0, 0);
        em_word(w, at);
    } else if (o->kind == OPND_SUM && o->has_k && em_plus_form(row)) {
        uint32_t a = o->a, k = (uint32_t)o->k;
        em_op(w, em_plus_form(row), result(w, 1), a, k);
        em_word(w, offset);
    } else if (o->kind == OPND_SUM && !o->has_k) {
        uint32_t a = o->a, b = o->b;
        em_op(w, far_form(row) + 2, result(w, 1), a, b);
        em_word(w, offset);
    } else if (offset <= UINT16_MAX) {
        uint32_t a = em_use(w, w->n - 1);
        em_op(w, row, result(w, 1), a, (uint32_t)offset);
    } else {
        uint32_t a = em_use(w, w->n - 1);
        em_op(w, far_form(row), result(w, 1), a, 0);
        em_word(w, offset);
    }
}

void em_store(struct scratch *w, uint32_t row, uint32_t mem, uint64_t offset) {
    uint32_t v = em_use(w, w->n - 1);
    struct opnd *o = &w->vals[w->n - 2];
    if (!is_simple_mem(w, mem)) {
        em_op(w, I_MEM_STORE, em_use(w, w->n - 2), v, 0);
        em_word(w, PAIR(row, mem));
        em_word(w, offset);
    } else if (o->kind == OPND_CONST) {
        em_op(w, far_form(row) + 1, 0, v, 0);
        em_word(w, offset + (uint32_t)o->k);
    } else if (o->kind == OPND_SUM && o->has_k && em_plus_form(row)) {
        em_op(w, em_plus_form(row), o->a, v, (uint32_t)o->k);
        em_word(w, offset);
    } else if (offset <= UINT16_MAX) {
        em_op(w, row, em_use(w, w->n - 2), v, (uint32_t)offset);
    } else {
        em_op(w, far_form(row), em_use(w, w->n - 2), v, 0);
        em_word(w, offset);
    }
}

uint32_t em_first_slot(const struct scratch *w, uint32_t from_top) {
    return from_top ? w->vals[w->n - from_top].slot : next_slot(w);
}

void em_bulk(struct scratch *w, uint32_t row, unsigned n_in, uint32_t x, uint32_t y) {
    em_self_charging(w);
    em_op(w, I_BULK, em_first_slot(w, n_in), next_slot(w), 0);
    em_word(w, row);
    em_word(w, PAIR(x, y));
    w->pending_site = em_site(w, w->n_words - 2, SITE_WIDE, 1);
    w->pending_kind = MARK_START;
}
