/*
 * Code from the walk: slot instructions, folded where it pays, and the costs of fuel blocks.
 *
 * A block here is a stretch that, once entered, runs to its end unless it traps; falling into a
 * label does not end it. Its cost is only known at that end, so whoever enters it (a branch, the
 * way past a branch, a return) has a site that is patched then. In stepping code every instruction
 * pays alone (STEP), nothing is folded, and each block start may go back to the fast code (REJOIN).
 */
#include "wasm/pairs.h"
#include "wasm/simd.h"
#include "wasm/walk.h"

enum {
    LAZY_MAX = 16,     /* operands not in their slots; bounds every search among them */
    CHAIN_MAX = 30000, /* cost of one block; the fields that hold it are 16 bits wide */
    PEEK_BR_IF = 0x0d,
    PEEK_IF = 0x04,
    PEEK_EQZ = 0x45,
};

/* ---- Words, marks, sites, nodes ---- */

static uint32_t offset_of(const struct scratch *w, const uint8_t *p) {
    return (uint32_t)(p - w->r.base);
}

static uint32_t next_slot(const struct scratch *w) {
    return w->n ? w->vals[w->n - 1].slot + slots_of(w->types[w->n - 1]) : w->local_slots;
}

/* The walk ends after the instruction at hand; until then nothing is written. */
static void no_room(struct scratch *w) {
    w->no_memory = true;
    reader_fail(&w->r, WASM_TOO_BIG, "out of memory");
}

static void mark_at(struct scratch *w, uint32_t kind, uint32_t offset, uint32_t pos) {
    if (!w->recording)
        return;
    if (!engine_grow(w->e, &w->marks, &w->cap_marks, w->n_marks + 1, sizeof *w->marks)) {
        no_room(w);
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

static void word(struct scratch *w, uint64_t v) {
    if (UNLIKELY(w->n_words == w->cap_words) &&
        !engine_grow(w->e, &w->words, &w->cap_words, w->n_words + 1, sizeof *w->words)) {
        no_room(w);
        return;
    }
    w->words[w->n_words++] = v;
}

static void patch(struct scratch *w, uint32_t at, uint64_t bits) {
    if (!w->no_memory)
        w->words[at] |= bits;
}

/* Number + 1 among the firsts of pairs, or 0. */
static const uint8_t pair_first[IOP_COUNT] = {
#define X(number, first) [number] = PAIR_FIRST_##first + 1,
    PAIR_FIRSTS(X)
#undef X
};
/* The pair of a first and a second, or 0. */
static const uint16_t pair_number[N_PAIR_FIRSTS][IOP_COUNT] = {
#define X(first, number, label) [PAIR_FIRST_##first][number] = I_PAIR_##first##_##label,
#define ROW(number, first) PAIRS_OF_##first(X)
    PAIR_FIRSTS(ROW)
#undef ROW
#undef X
};

/* The instruction about to be written makes a pair with the one before it, or may begin one. */
static void pair(struct scratch *w, uint32_t code) {
    uint64_t number = w->pair_first ? pair_number[w->pair_first - 1][code] : 0;
    if (number && !w->no_memory) {
        w->words[w->pair_at] = (w->words[w->pair_at] & ~UINT64_C(0xffff)) | number;
        w->pair_first = 0;
        return;
    }
    w->pair_first = w->stepping ? 0 : pair_first[code];
    w->pair_at = w->n_words;
}

static void op(struct scratch *w, uint32_t code, uint32_t a, uint32_t b, uint32_t c) {
    mark(w, MARK_OP, offset_of(w, w->ins));
    pair(w, code);
    word(w, WORD(code, a & 0xffff, b & 0xffff, c & 0xffff));
}

static uint32_t site(struct scratch *w, uint32_t at, enum site_field field, uint32_t addend) {
    if (!engine_grow(w->e, &w->sites, &w->cap_sites, w->n_sites + 1, sizeof *w->sites)) {
        no_room(w);
        return NO_LINK;
    }
    w->sites[w->n_sites] =
        (struct site){.word = at, .next = NO_LINK, .addend = addend, .field = (uint8_t)field};
    return w->n_sites++;
}

static void site_pay(struct scratch *w, const struct site *s, uint32_t cost) {
    uint64_t v = (w->stepping ? 0 : cost) + s->addend;
    switch (s->field) {
    case SITE_TAKEN:
        patch(w, s->word, v << 32);
        break;
    case SITE_FALL:
        patch(w, s->word, v << 48);
        break;
    case SITE_WIDE:
        patch(w, s->word, v << 32);
        break;
    default:
        w->entry_cost = (uint32_t)v;
    }
}

static void site_aim(struct scratch *w, const struct site *s, uint32_t pos) {
    patch(w, s->word, (uint32_t)(pos - s->word));
}

/* Instructions without code of their own may lie between a block start and here: a word of its own
   then tells this place apart from that start, for whoever cannot pay is looked up by its word. */
static void separate(struct scratch *w) {
    if (w->stepping || w->start_end != w->n_words || w->start_cum == w->cum)
        return;
    w->pair_first = 0;
    word(w, WORD(I_NOTHING, 0, 0, 0));
}

/* Where a block that starts now begins. Stepping code has one REJOIN for all that start at one
   place: each may be tried at no cost to the guest. */
static uint32_t block_pos(struct scratch *w) {
    separate(w);
    return w->stepping && w->n_words && w->start_end == w->n_words ? w->n_words - 1 : w->n_words;
}

/* A block starts at block_pos(); `sites` pay for it. */
static uint32_t node(struct scratch *w, uint32_t sites, uint32_t offset, uint32_t kind) {
    uint32_t pos = block_pos(w);
    mark_at(w, kind, offset, pos);
    if (w->stepping && pos == w->n_words)
        word(w, WORD(I_REJOIN, 0, 0, 0));
    w->start_end = w->n_words;
    w->start_cum = w->cum;
    if (!engine_grow(w->e, &w->nodes, &w->cap_nodes, w->n_nodes + 1, sizeof *w->nodes)) {
        no_room(w);
        return NO_LINK;
    }
    w->nodes[w->n_nodes] = (struct node){.start = w->cum, .sites = sites};
    return w->n_nodes++;
}

/* All open blocks end here. */
static void close(struct scratch *w) {
    for (; w->first_open < w->n_nodes; w->first_open++) {
        struct node *n = &w->nodes[w->first_open];
        n->cost = w->cum - n->start;
        for (uint32_t s = n->sites; s != NO_LINK; s = w->sites[s].next)
            site_pay(w, &w->sites[s], n->cost);
    }
    for (; w->first_mark < w->n_marks; w->first_mark++)
        w->marks[w->first_mark].rest = w->cum - w->marks[w->first_mark].rest;
}

/* The branch word just to be written goes to a label. */
static void branch_to(struct scratch *w, struct ctrl *c, uint32_t at, enum site_field field,
                      uint32_t addend) {
    uint32_t s = site(w, at, field, addend);
    if (s == NO_LINK || w->no_memory)
        return;
    if (c->op == OP_LOOP) {
        site_aim(w, &w->sites[s], c->pos);
        site_pay(w, &w->sites[s], w->nodes[c->node].cost);
        return;
    }
    w->sites[s].next = c->sites;
    c->sites = s;
}

/* A forward label is here: aim its branches and open its block. */
static void bind(struct scratch *w, uint32_t sites, uint32_t offset) {
    uint32_t pos = block_pos(w);
    for (uint32_t s = sites; s != NO_LINK; s = w->sites[s].next)
        site_aim(w, &w->sites[s], pos);
    node(w, sites, offset, MARK_START);
    w->dead = false;
}

/* ---- Operands ---- */

static void to_const(struct scratch *w, uint32_t dst, uint64_t k) {
    if (k <= UINT32_MAX) {
        op(w, I_CONST32, dst, (uint32_t)k & 0xffff, (uint32_t)k >> 16);
        return;
    }
    op(w, I_CONST64, dst, 0, 0);
    word(w, k);
}

static void to_cmp(struct scratch *w, const struct opnd *o, uint32_t dst) {
    bool is_int = o->op < OP_F32_EQ;
    if (is_int && o->has_k) {
        uint32_t i = o->op >= OP_I64_EQZ ? o->op - OP_I64_EQ + 10u : o->op - (uint32_t)OP_I32_EQ;
        op(w, I_I32_EQ_K + i, dst, o->a, (uint32_t)o->k);
    } else {
        op(w, o->op, dst, o->a, o->b);
    }
}

/* Put an operand of a type into a slot. */
static void to_slot(struct scratch *w, const struct opnd *o, uint32_t type, uint32_t dst) {
    switch (o->kind) {
    case OPND_SLOT:
    case OPND_LOCAL: {
        uint32_t src = o->kind == OPND_SLOT ? o->slot : o->a;
        if (src != dst)
            op(w, type == WASM_V128 ? I_MOV2 : I_MOV, dst, src, 0);
        break;
    }
    case OPND_CONST:
        to_const(w, dst, o->k);
        break;
    case OPND_CMP:
        to_cmp(w, o, dst);
        break;
    default:
        op(w, OP_I32_ADD, dst, o->a, o->b);
    }
}

static void settle(struct scratch *w, uint32_t i) {
    struct opnd *o = &w->vals[i];
    if (o->kind == OPND_SLOT)
        return;
    to_slot(w, o, w->types[i], o->slot);
    o->kind = OPND_SLOT;
}

static void lazy_trim(struct scratch *w) {
    if (w->lazy_from > w->n)
        w->lazy_from = w->n;
}

void em_flush(struct scratch *w, uint32_t except_top) {
    lazy_trim(w);
    while (w->lazy_from + except_top < w->n)
        settle(w, w->lazy_from++);
}

bool em_push(struct scratch *w, uint32_t type) {
    if (UNLIKELY(w->n >= w->cap_vals) &&
        !engine_grow(w->e, &w->vals, &w->cap_vals, w->n + 1, sizeof *w->vals)) {
        no_room(w);
        return false;
    }
    uint32_t slot = next_slot(w);
    w->vals[w->n] = (struct opnd){.slot = slot, .kind = OPND_SLOT};
    if (slot + slots_of(type) > w->max_slots)
        w->max_slots = slot + slots_of(type);
    lazy_trim(w);
    if (!w->dead && w->n - w->lazy_from >= LAZY_MAX)
        settle(w, w->lazy_from++);
    return true;
}

/* The slot to read operand i from. */
static uint32_t use(struct scratch *w, uint32_t i) {
    struct opnd *o = &w->vals[i];
    if (o->kind == OPND_LOCAL)
        return o->a;
    settle(w, i);
    return o->slot;
}

/* Operands that mean a local must be settled before it changes; the top ones are being consumed. */
static void settle_local(struct scratch *w, uint32_t slot, uint32_t consumed) {
    lazy_trim(w);
    for (uint32_t i = w->lazy_from; i + consumed < w->n; i++)
        if (w->vals[i].kind == OPND_LOCAL && w->vals[i].a == slot)
            settle(w, i);
}

/* The local that the next instruction sets, or NO_LINK. */
static uint32_t peek_set(const struct scratch *w) {
    const uint8_t *p = w->r.p;
    if (w->stepping || w->r.end - p < 3 || (p[0] != 0x21 && p[0] != 0x22))
        return NO_LINK;
    if (p[1] < 0x80)
        return p[1];
    return p[2] < 0x80 ? (p[1] & 0x7fu) | (uint32_t)p[2] << 7 : NO_LINK;
}

/* Where the result goes: its own slot, or straight into the local that is set next. */
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

/* ---- Paying ---- */

static void charge(struct scratch *w) {
    em_flush(w, 0);
    separate(w);
    close(w);
    mark(w, MARK_SELF, offset_of(w, w->ins));
    w->pair_first = 0;
    word(w, WORD(I_CHARGE, 0, 0, 0));
    word(w, 0);
    uint32_t s = site(w, w->n_words - 1, SITE_WIDE, 0);
    node(w, s, offset_of(w, w->ins), 0);
}

void em_pay(struct scratch *w, uint32_t cost) {
    if (!cost)
        return;
    if (w->stepping) {
        mark(w, MARK_STEP, offset_of(w, w->ins));
        word(w, WORD(I_STEP, cost & 0xffff, 0, 0));
        return;
    }
    if (w->first_open < w->n_nodes && w->cum - w->nodes[w->first_open].start > CHAIN_MAX)
        charge(w);
    w->cum += cost;
}

/* The instruction at hand charges for itself: what came before is a block of its own. */
static void self_charging(struct scratch *w) {
    em_flush(w, 0);
    separate(w);
    close(w);
    mark(w, w->stepping ? MARK_STEP : MARK_SELF, offset_of(w, w->ins));
}

static uint32_t carry_cost(uint32_t values) {
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
    w->cum = w->entry_cost = w->lazy_from = w->pair_first = 0;
    w->start_end = NO_LINK;
    w->max_slots = w->local_slots;
    if (w->fn->result_slots > w->max_slots)
        w->max_slots = w->fn->result_slots;
    if (!local_slots(w)) {
        no_room(w);
        return;
    }
    uint32_t cost = carry_cost(w->n_locals - w->n_params);
    if (w->stepping) {
        mark(w, MARK_STEP, w->fn->body);
        word(w, WORD(I_STEP, cost, 0, 0));
        return;
    }
    node(w, site(w, 0, SITE_ENTRY, 0), w->fn->body, MARK_START);
    w->cum += cost;
}

void em_end(struct scratch *w) {
    close(w);
}

/* ---- Locals, constants, numbers ---- */

void em_local_get(struct scratch *w, uint32_t i) {
    uint32_t slot = w->slots[i];
    w->out.kind = OPND_SLOT;
    if (w->stepping)
        op(w, w->locals[i] == WASM_V128 ? I_MOV2 : I_MOV, next_slot(w), slot, 0);
    else
        w->out = (struct opnd){.kind = OPND_LOCAL, .a = (uint16_t)slot};
}

void em_local_set(struct scratch *w, uint32_t i) {
    uint32_t slot = w->slots[i], top = w->n - 1;
    if (w->vals[top].kind == OPND_LOCAL && w->vals[top].a == slot)
        return; /* its maker wrote it there */
    settle_local(w, slot, 1);
    to_slot(w, &w->vals[top], w->types[top], slot);
}

void em_local_tee(struct scratch *w, uint32_t i) {
    em_local_set(w, i);
    w->out.kind = OPND_SLOT;
    if (!w->stepping)
        w->out = (struct opnd){.kind = OPND_LOCAL, .a = (uint16_t)w->slots[i]};
}

void em_const(struct scratch *w, uint64_t k) {
    w->out.kind = OPND_SLOT;
    if (w->stepping)
        to_const(w, next_slot(w), k);
    else
        w->out = (struct opnd){.kind = OPND_CONST, .k = k};
}

void em_const128(struct scratch *w, const uint8_t *bytes) {
    uint64_t k[2];
    memcpy(k, bytes, sizeof k);
    op(w, I_CONST128, result(w, 0), 0, 0);
    word(w, k[0]);
    word(w, k[1]);
}

static uint8_t peek(const struct scratch *w) {
    return w->r.p < w->r.end ? *w->r.p : 0;
}

/* Rows of one width's comparisons lie in the order of the encoding. */
static const uint8_t cmp_inverse[10] = {1, 0, 8, 9, 6, 7, 4, 5, 2, 3};
static const uint8_t cmp_mirror[10] = {0, 1, 4, 5, 2, 3, 8, 9, 6, 7};

static uint16_t cmp_map(uint16_t row, const uint8_t map[10]) {
    uint16_t base = row >= OP_I64_EQ ? OP_I64_EQ : OP_I32_EQ;
    return (uint16_t)(base + map[row - base]);
}

/* A comparison is kept back for the branch that follows. */
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
        c.op = cmp_map(c.op, cmp_inverse);
        cmp_finish(w, c, 1);
        return;
    }
    struct opnd c = {
        .op = is64 ? OP_I64_EQ : OP_I32_EQ, .has_k = true, .a = (uint16_t)use(w, w->n - 1)};
    cmp_finish(w, c, 1);
}

static void em_compare(struct scratch *w, uint16_t row) {
    struct opnd *a = &w->vals[w->n - 2], *b = a + 1;
    bool is_int = row < OP_F32_EQ, is64 = row >= OP_I64_EQ;
    struct opnd c = {.op = row};
    if (is_int && a->kind == OPND_CONST && b->kind != OPND_CONST && fits16(a->k, is64)) {
        c.op = cmp_map(row, cmp_mirror);
        c.has_k = true;
        c.k = a->k & 0xffff;
        c.a = (uint16_t)use(w, w->n - 1);
    } else if (is_int && b->kind == OPND_CONST && fits16(b->k, is64)) {
        c.has_k = true;
        c.k = b->k & 0xffff;
        c.a = (uint16_t)use(w, w->n - 2);
    } else {
        c.a = (uint16_t)use(w, w->n - 2);
        c.b = (uint16_t)use(w, w->n - 1);
    }
    cmp_finish(w, c, 2);
}

/* The form with a constant of an integer operation, or 0; subtraction adds the negative. */
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
    uint32_t src = use(w, other);
    op(w, form, result(w, 2), src, (uint32_t)k & 0xffff);
    return true;
}

static bool is_plain_load(const struct scratch *w) {
    const uint8_t *p = w->r.p;
    return w->r.end - p > 1 && p[0] >= 0x28 && p[0] <= 0x35 && p[1] < 0x40;
}

static void em_binary(struct scratch *w, uint16_t row) {
    if (!w->stepping && row >= OP_I32_CLZ && row <= OP_I64_ROTR && alu_const(w, row))
        return;
    uint32_t a = use(w, w->n - 2), b = use(w, w->n - 1);
    if (!w->stepping && row == OP_I32_ADD && is_plain_load(w)) {
        w->out = (struct opnd){.kind = OPND_SUM, .a = (uint16_t)a, .b = (uint16_t)b};
        return;
    }
    op(w, row, result(w, 2), a, b);
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
        uint32_t a = use(w, w->n - 1);
        op(w, row, result(w, 1), a, 0);
    }
}

void em_select(struct scratch *w, uint32_t type) {
    uint32_t a = use(w, w->n - 3), b = use(w, w->n - 2), c = use(w, w->n - 1);
    op(w, type == WASM_V128 ? I_SELECT2 : I_SELECT1, result(w, 3), a, b);
    word(w, c);
}

void em_global(struct scratch *w, uint32_t i, uint32_t type, bool is_set) {
    bool wide = type == WASM_V128;
    if (is_set) {
        uint32_t a = use(w, w->n - 1);
        op(w, wide ? I_GLOBAL_SET2 : I_GLOBAL_SET1, a, i & 0xffff, i >> 16);
    } else {
        op(w, wide ? I_GLOBAL_GET2 : I_GLOBAL_GET1, result(w, 0), i & 0xffff, i >> 16);
    }
}

void em_plain(struct scratch *w, uint16_t code, unsigned n_in, bool has_result, uint64_t *extra,
              unsigned n_extra) {
    uint32_t in[3] = {0, 0, 0};
    if (code == I_NULL_CHECK)
        em_flush(w, 0);
    for (unsigned i = 0; i < n_in; i++)
        in[i] = use(w, w->n - n_in + i);
    if (n_in == 3)
        extra[1] = in[2];
    if (has_result)
        op(w, code, result(w, n_in), in[0], in[1]);
    else
        op(w, code, in[0], in[1], in[2]);
    for (unsigned i = 0; i < n_extra; i++)
        word(w, extra[i]);
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
        uint32_t a = use(w, w->n - 1);
        op(w, I_MEM_LOAD, result(w, 1), a, 0);
        word(w, PAIR(row, mem));
        word(w, offset);
    } else if (o->kind == OPND_CONST) {
        uint64_t at = offset + (uint32_t)o->k;
        op(w, far_form(row) + 1, result(w, 1), 0, 0);
        word(w, at);
    } else if (o->kind == OPND_SUM) {
        uint32_t a = o->a, b = o->b;
        op(w, far_form(row) + 2, result(w, 1), a, b);
        word(w, offset);
    } else if (offset <= UINT16_MAX) {
        uint32_t a = use(w, w->n - 1);
        op(w, row, result(w, 1), a, (uint32_t)offset);
    } else {
        uint32_t a = use(w, w->n - 1);
        op(w, far_form(row), result(w, 1), a, 0);
        word(w, offset);
    }
}

void em_store(struct scratch *w, uint32_t row, uint32_t mem, uint64_t offset) {
    uint32_t v = use(w, w->n - 1);
    struct opnd *o = &w->vals[w->n - 2];
    if (!is_simple_mem(w, mem)) {
        op(w, I_MEM_STORE, use(w, w->n - 2), v, 0);
        word(w, PAIR(row, mem));
        word(w, offset);
    } else if (o->kind == OPND_CONST) {
        op(w, far_form(row) + 1, 0, v, 0);
        word(w, offset + (uint32_t)o->k);
    } else if (offset <= UINT16_MAX) {
        op(w, row, use(w, w->n - 2), v, (uint32_t)offset);
    } else {
        op(w, far_form(row), use(w, w->n - 2), v, 0);
        word(w, offset);
    }
}

static uint32_t first_slot(const struct scratch *w, uint32_t from_top) {
    return from_top ? w->vals[w->n - from_top].slot : next_slot(w);
}

void em_bulk(struct scratch *w, uint32_t row, unsigned n_in, uint32_t x, uint32_t y) {
    self_charging(w);
    op(w, I_BULK, first_slot(w, n_in), next_slot(w), 0);
    word(w, row);
    word(w, PAIR(x, y));
    w->pending_site = site(w, w->n_words - 2, SITE_WIDE, 1);
    w->pending_kind = MARK_START;
}

/* ---- Control ---- */

static uint32_t slot_count(const uint32_t *types, uint32_t n) {
    uint32_t slots = 0;
    for (uint32_t i = 0; i < n; i++)
        slots += slots_of(types[i]);
    return slots;
}

static struct ctrl *ctrl_at(struct scratch *w, uint32_t depth) {
    return &w->ctrls[w->n_ctrls - 1 - depth];
}

void em_block(struct scratch *w, struct ctrl *c) {
    (void)c;
    em_flush(w, 0);
}

void em_loop(struct scratch *w, struct ctrl *c) {
    c->pos = block_pos(w);
    c->node = node(w, NO_LINK, offset_of(w, w->r.p), MARK_START);
}

/* A two-way branch on the operand on top; returns its branch word. */
static uint32_t branch_on(struct scratch *w, bool when_true) {
    struct opnd *o = &w->vals[w->n - 1];
    if (o->kind != OPND_CMP) {
        uint32_t a = use(w, w->n - 1);
        op(w, when_true ? I_BR_TRUE : I_BR_FALSE, a, 0, 0);
    } else if (o->op >= OP_F32_EQ) {
        op(w, (when_true ? I_BR_F32_EQ : I_BRN_F32_EQ) + o->op - OP_F32_EQ, o->a, o->b, 0);
    } else {
        uint16_t row = when_true ? o->op : cmp_map(o->op, cmp_inverse);
        uint32_t i = row >= OP_I64_EQ ? row - OP_I64_EQ + 10u : row - (uint32_t)OP_I32_EQ;
        op(w, (o->has_k ? I_BR_I32_EQ_K : I_BR_I32_EQ) + i, o->a, o->has_k ? (uint32_t)o->k : o->b,
           0);
    }
    word(w, 0);
    return w->n_words - 1;
}

void em_if(struct scratch *w, struct ctrl *c) {
    em_flush(w, 1);
    uint32_t at = branch_on(w, false);
    close(w);
    c->else_site = site(w, at, SITE_TAKEN, 0);
    node(w, site(w, at, SITE_FALL, 0), offset_of(w, w->r.p), MARK_START);
}

static void jump(struct scratch *w, struct ctrl *c) {
    op(w, I_BR_ALWAYS, 0, 0, 0);
    word(w, 0);
    close(w);
    branch_to(w, c, w->n_words - 1, SITE_TAKEN, 0);
}

void em_else(struct scratch *w, struct ctrl *c) {
    if (!w->dead)
        jump(w, c);
    w->dead = true;
    if (c->else_site != NO_LINK)
        bind(w, c->else_site, offset_of(w, w->r.p));
    c->else_site = NO_LINK;
}

static void handler_add(struct scratch *w, const struct handler *h) {
    if (!engine_grow(w->e, &w->handlers, &w->cap_handlers, w->n_handlers + 1,
                     sizeof *w->handlers)) {
        no_room(w);
        return;
    }
    w->handlers[w->n_handlers++] = *h;
}

/* The body of a try_table is over: its landing pads lie behind it, each a jump to its label. */
static void end_try(struct scratch *w, struct ctrl *c) {
    uint32_t to = w->n_words;
    if (!w->dead)
        jump(w, c);
    for (uint32_t i = 0; i < c->n_catches; i++) {
        const struct catch_clause *k = &w->catches[c->catches + i];
        struct ctrl *target = c - 1 - k->depth;
        handler_add(w,
                    &(struct handler){c->pos, to, w->n_words, k->tag, k->wants_ref, target->base});
        jump(w, target);
    }
    w->dead = true;
}

void em_end_block(struct scratch *w, struct ctrl *c) {
    if (c->op == OP_TRY_TABLE && c->node != NO_LINK)
        end_try(w, c);
    if (c->op == OP_LOOP)
        return;
    if (c->else_site != NO_LINK) {
        w->sites[c->else_site].next = c->sites;
        c->sites = c->else_site;
    }
    if (c->sites != NO_LINK)
        bind(w, c->sites, offset_of(w, w->r.p));
}

void em_try(struct scratch *w, struct ctrl *c) {
    c->pos = w->n_words;
    c->node = 0; /* entered alive */
}

static void leave(struct scratch *w) {
    const struct type *t = w->fn->type;
    if (t->result_slots == 0) {
        op(w, I_RET0, 0, 0, 0);
    } else if (t->result_slots == 1) {
        uint32_t a = use(w, w->n - 1);
        op(w, I_RET1, a, 0, 0);
    } else {
        em_flush(w, 0);
        op(w, I_RETN, w->vals[w->n - t->n_results].slot, t->result_slots, 0);
    }
    close(w);
}

void em_return(struct scratch *w, bool is_branch) {
    struct ctrl *f = &w->ctrls[0];
    if (is_branch) {
        em_pay(w, 1 + carry_cost(w->fn->type->n_results));
        leave(w);
        return;
    }
    if (f->sites == NO_LINK) {
        if (!w->dead)
            leave(w);
        return;
    }
    if (!w->dead)
        em_flush(w, 0);
    uint32_t slots = w->fn->type->result_slots;
    bind(w, f->sites, offset_of(w, w->ins));
    op(w, slots ? I_RETN : I_RET0, w->local_slots, slots, 0);
    if (w->local_slots + slots > w->max_slots)
        w->max_slots = w->local_slots + slots;
    close(w);
}

void em_br(struct scratch *w, uint32_t depth) {
    struct ctrl *c = ctrl_at(w, depth);
    uint32_t n;
    const uint32_t *types = ctrl_label(c, &n);
    em_pay(w, 1 + carry_cost(n));
    if (c->op == OP_CALL) {
        leave(w);
        return;
    }
    if (n == 1) {
        to_slot(w, &w->vals[w->n - 1], w->types[w->n - 1], c->base);
    } else if (n > 1) {
        em_flush(w, 0);
        uint32_t src = w->vals[w->n - n].slot;
        if (src != c->base)
            op(w, I_MOVN, c->base, src, slot_count(types, n));
    }
    jump(w, c);
}

/* After a conditional branch: the way past it is a block of its own. */
static void fall(struct scratch *w, uint32_t at, uint32_t addend) {
    node(w, site(w, at, SITE_FALL, addend), offset_of(w, w->r.p), MARK_START);
}

static void values_branch(struct scratch *w, struct ctrl *c, uint32_t code, uint32_t cond,
                          uint32_t first, uint32_t n) {
    uint32_t count, src = n ? w->vals[first].slot : 0;
    const uint32_t *types = ctrl_label(c, &count);
    op(w, code, cond, c->base, src);
    word(w, 0);
    word(w, slot_count(types, n));
    uint32_t at = w->n_words - 2;
    branch_to(w, c, at, SITE_TAKEN, 1 + carry_cost(n));
    fall(w, at, 1);
}

void em_br_if(struct scratch *w, uint32_t depth) {
    struct ctrl *c = ctrl_at(w, depth);
    uint32_t n;
    ctrl_label(c, &n);
    if (n) {
        self_charging(w);
        values_branch(w, c, I_BR_VALUES, w->vals[w->n - 1].slot, w->n - 1 - n, n);
        return;
    }
    em_pay(w, 1);
    em_flush(w, 1);
    uint32_t at = branch_on(w, true);
    close(w);
    branch_to(w, c, at, SITE_TAKEN, 0);
    fall(w, at, 0);
}

void em_br_null(struct scratch *w, uint32_t depth, bool on_null) {
    struct ctrl *c = ctrl_at(w, depth);
    uint32_t n, ref = w->n - 1;
    ctrl_label(c, &n);
    self_charging(w);
    uint32_t first = on_null ? ref - n : w->n - n;
    values_branch(w, c, on_null ? I_BR_NULL : I_BR_NOT_NULL, w->vals[ref].slot, first, n);
}

void em_br_cast(struct scratch *w, uint32_t depth, uint32_t type, bool on_fail) {
    struct ctrl *c = ctrl_at(w, depth);
    uint32_t n;
    const uint32_t *types = ctrl_label(c, &n);
    self_charging(w);
    op(w, I_BR_CAST, w->vals[w->n - 1].slot, c->base, w->vals[w->n - n].slot);
    word(w, 0);
    word(w, slot_count(types, n));
    word(w, PAIR(type, on_fail));
    uint32_t at = w->n_words - 3;
    branch_to(w, c, at, SITE_TAKEN, 1 + carry_cost(n));
    fall(w, at, 1);
}

static void switch_values(struct scratch *w, struct reader labels, uint32_t n, uint32_t arity) {
    uint32_t index = w->vals[w->n - 1].slot, src = w->vals[w->n - 1 - arity].slot;
    self_charging(w);
    op(w, I_SWITCH, index, 0, 0);
    word(w, n);
    uint32_t table = w->n_words, slots = index - src;
    for (uint32_t i = 0; i <= n; i++)
        word(w, PAIR(0, 1 + carry_cost(arity)));
    for (uint32_t i = 0; i <= n; i++) {
        struct ctrl *c = ctrl_at(w, reader_u32(&labels));
        patch(w, table + i, w->n_words - (table + i));
        if (src != c->base)
            op(w, I_MOVN, c->base, src, slots);
        jump(w, c);
    }
}

void em_br_table(struct scratch *w, const uint8_t *at, uint32_t n) {
    struct reader labels = {.p = at, .end = w->r.end, .base = w->r.base, .diag = w->r.diag};
    struct reader first = labels;
    uint32_t arity;
    ctrl_label(ctrl_at(w, reader_u32(&first)), &arity);
    if (arity) {
        switch_values(w, labels, n, arity);
        return;
    }
    em_pay(w, 1);
    em_flush(w, 1);
    uint32_t index = use(w, w->n - 1);
    op(w, I_SWITCH, index, 0, 0);
    word(w, n);
    uint32_t table = w->n_words;
    for (uint32_t i = 0; i <= n; i++)
        word(w, 0);
    close(w);
    for (uint32_t i = 0; i <= n; i++)
        branch_to(w, ctrl_at(w, reader_u32(&labels)), table + i, SITE_WIDE, 0);
}

void em_unreachable(struct scratch *w) {
    op(w, OP_UNREACHABLE, 0, 0, 0);
    close(w);
}

/* ---- Calls and exceptions ---- */

void em_call(struct scratch *w, const struct type *t, uint16_t code, uint64_t v, unsigned n_extra) {
    em_pay(w, type_call_cost(t));
    em_flush(w, 0);
    uint32_t base = first_slot(w, t->n_params + n_extra);
    op(w, code, base, n_extra ? w->vals[w->n - 1].slot : 0, 0);
    word(w, v);
    if (code == I_CALL_TABLE)
        word(w, 0);
    close(w);
    w->pending_site = site(w, w->n_words - 1, SITE_WIDE, 0);
    w->pending_kind = MARK_RETURN;
}

void em_after_call(struct scratch *w) {
    node(w, w->pending_site, offset_of(w, w->r.p), w->pending_kind);
}

void em_tail(struct scratch *w, const struct type *t, uint16_t code, uint64_t v, unsigned n_extra) {
    em_pay(w, type_call_cost(t));
    em_flush(w, 0);
    uint32_t args = first_slot(w, t->n_params + n_extra);
    op(w, code, args, t->param_slots, n_extra ? w->vals[w->n - 1].slot : 0);
    word(w, v);
    close(w);
    /* Arguments go to the bottom of the frame; a host function's results come where they were. */
    uint32_t need =
        t->param_slots > args + t->result_slots ? t->param_slots : args + t->result_slots;
    if (need > w->max_slots)
        w->max_slots = need;
}

void em_throw(struct scratch *w, uint32_t tag, uint32_t n_args) {
    self_charging(w);
    op(w, I_THROW_TAG, first_slot(w, n_args), 0, 0);
    word(w, tag);
    close(w);
}

void em_throw_ref(struct scratch *w) {
    self_charging(w);
    uint32_t a = use(w, w->n - 1);
    op(w, I_THROW_VALUE, a, 0, 0);
    close(w);
}
