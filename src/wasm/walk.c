/*
 * The walk over a function body. It is compiled twice: once to validate, once to write code too.
 *
 * For each instruction, the walk first lets emit.c read the operands, then pops and pushes their
 * types. For code that cannot be reached, it only follows the types.
 */
#include "wasm/walk.h"

#include "wasm/walk_inner.h"

/* ---- The operand stack ---- */

COLD bool walk_fail_type(struct scratch *w, const char *fmt, ...) {
    if (w->r.failed)
        return false;
    (void)fmt;
    return reader_fail(&w->r, WASM_INVALID, "%s", fmt);
}

uint32_t walk_letter_type(struct scratch *w, char c) {
    switch (c) {
    case 'i':
        return WASM_I32;
    case 'I':
        return WASM_I64;
    case 'f':
        return WASM_F32;
    case 'F':
        return WASM_F64;
    case 'v':
        return WASM_V128;
    default:
        return w->m->n_mems && w->m->mems[0].l.is64 ? WASM_I64 : WASM_I32;
    }
}

/*
 * Reports a type mismatch: the types that the instruction expects (all operands if its row lists
 * them), and those on the stack.
 */
COLD bool walk_mismatch(struct scratch *w, uint32_t expected) {
    if (w->r.failed)
        return false;
    const char *sig = w->op < OP_COUNT ? wasm_ops[w->op].sig : "*";
    uint32_t all[WASM_DIAG_TYPES], n = 0;
    if (sig[0] == '*')
        all[n++] = expected;
    else
        for (; *sig != ':' && n < WASM_DIAG_TYPES; sig++)
            all[n++] = walk_letter_type(w, *sig);
    walk_expect(w, all, n, 0);
    char want[32], got[32] = "nothing";
    wasm_type_name(expected, want, sizeof want);
    if (w->n > w->floor)
        wasm_type_name(w->types[w->n - 1], got, sizeof got);
    return reader_fail(&w->r, WASM_INVALID, "type mismatch: %s expects %s, the stack has %s",
                       w->op < OP_COUNT ? wasm_ops[w->op].text : "the block", want, got);
}

COLD bool walk_pop_slow(struct scratch *w, uint32_t expected) {
    if (w->n == w->floor)
        return w->top->unreachable || walk_mismatch(w, expected);
    uint32_t found = w->types[w->n - 1];
    if (found != 0 && !types_sub(w->e, found, expected))
        return walk_mismatch(w, expected);
    w->n--;
    return true;
}

/* Pops an operand of any type into *ret; 0: the bottom type of unreachable code. */
bool walk_pop_any(struct scratch *w, uint32_t *ret) {
    *ret = 0;
    if (w->n > w->floor) {
        *ret = w->types[--w->n];
        return true;
    }
    return w->top->unreachable ||
           reader_fail(&w->r, WASM_INVALID, "type mismatch: %s takes an operand, 0 given",
                       w->op < OP_COUNT ? wasm_ops[w->op].text : "the instruction");
}

bool walk_pop_ref(struct scratch *w, uint32_t *ret) {
    return walk_pop_any(w, ret) &&
           (*ret == 0 || is_ref(*ret) || walk_fail_type(w, "type mismatch: a reference is needed"));
}

COLD bool walk_push_grow(struct scratch *w) {
    uint32_t limit = (MAX_FRAME_SLOTS - w->local_slots) / 2;
    if (w->n >= limit)
        return reader_fail(&w->r, WASM_TOO_BIG, "operand stack too deep");
    return engine_grow(w->e, &w->types, &w->cap, w->n + 1, sizeof *w->types) ||
           reader_fail(&w->r, WASM_TOO_BIG, "out of memory");
}

bool walk_pop_types(struct scratch *w, const uint32_t *types, uint32_t n) {
    for (uint32_t i = n; i-- > 0;)
        if (!pop(w, types[i]))
            return walk_expect(w, types, n, 0);
    return true;
}

/* ---- Control ---- */

const uint32_t *ctrl_label(const struct ctrl *c, uint32_t *ret_n) {
    if (c->is_single) {
        *ret_n = c->op != OP_LOOP && c->single ? 1 : 0;
        return &c->single;
    }
    *ret_n = c->op == OP_LOOP ? c->type->n_params : c->type->n_results;
    return c->op == OP_LOOP ? c->type->vals : c->type->vals + c->type->n_params;
}

const uint32_t *walk_ctrl_params(const struct ctrl *c, uint32_t *ret_n) {
    *ret_n = c->is_single ? 0 : c->type->n_params;
    return c->is_single ? NULL : c->type->vals;
}

static const uint32_t *ctrl_results(const struct ctrl *c, uint32_t *ret_n) {
    *ret_n = c->is_single ? c->single != 0 : c->type->n_results;
    return c->is_single ? &c->single : c->type->vals + c->type->n_params;
}

bool walk_block_type(struct scratch *w, struct ctrl *c) {
    struct reader *r = &w->r;
    if (r->p < r->end && *r->p == 0x40) {
        r->p++;
        c->is_single = true;
        return true;
    }
    if (r->p < r->end && (*r->p & 0xc0) == 0x40) {
        c->is_single = true;
        c->single = module_valtype(w->m, r);
        return !r->failed;
    }
    int64_t index = reader_s33(r);
    if (r->failed)
        return false;
    if (w->m->level < WASM_2_0)
        return reader_fail(r, WASM_MALFORMED, "malformed block type");
    if (index < 0 || index >= w->m->n_types)
        return reader_fail(r, WASM_INVALID, "unknown type %lld", (long long)index);
    c->type = module_type(w->m, (uint32_t)index);
    return c->type->kind == TYPE_FUNC || walk_fail_type(w, "block type is not a function type");
}

bool walk_ctrl_room(struct scratch *w) {
    if (w->n_ctrls >= MAX_NEST)
        return reader_fail(&w->r, WASM_TOO_BIG, "blocks nested too deep");
    return engine_grow(w->e, &w->ctrls, &w->cap_ctrls, w->n_ctrls + 1, sizeof *w->ctrls) ||
           reader_fail(&w->r, WASM_TOO_BIG, "out of memory");
}

static void unset_locals(struct scratch *w, uint32_t height) {
    while (w->n_set_list > height)
        w->set[w->set_list[--w->n_set_list]] = 0;
}

/* Checks at the end of a block that its results are on the stack and nothing else. */
static bool ctrl_results_ok(struct scratch *w) {
    uint32_t n;
    const uint32_t *results = ctrl_results(w->top, &n);
    if (!walk_pop_types(w, results, n))
        return false;
    if (w->n != w->floor) {
        walk_expect(w, results, n, 0);
        return walk_fail_type(w,
                              "type mismatch: values remain on the stack at the end of the block");
    }
    unset_locals(w, w->top->init_height);
    return true;
}

INLINE bool do_block(struct scratch *w, const bool emit, uint8_t op) {
    struct ctrl c = {.op = op, .sites = NO_LINK, .else_site = NO_LINK, .node = NO_LINK};
    if (!walk_block_type(w, &c))
        return false;
    if (emit && !w->dead && op != OP_IF) {
        if (op == OP_LOOP)
            em_flush(w, 0);
        else
            em_block(w, &c);
    }
    if (emit && !w->dead && op == OP_IF)
        em_if(w, &c);
    if (op == OP_IF && !pop(w, WASM_I32))
        return false;
    uint32_t n;
    const uint32_t *params = walk_ctrl_params(&c, &n);
    if (!walk_pop_types(w, params, n))
        return false;
    if (emit)
        c.base = w->n ? w->vals[w->n - 1].slot + slots_of(w->types[w->n - 1]) : w->local_slots;
    if (!ctrl_enter(w, emit, &c))
        return false;
    if (emit && !w->dead && op == OP_LOOP)
        em_loop(w, w->top);
    return true;
}

INLINE bool do_else(struct scratch *w, const bool emit) {
    struct ctrl *c = w->top;
    if (c->op != OP_IF)
        return reader_fail(&w->r, WASM_MALFORMED, "else without if");
    if (emit && !w->dead)
        em_flush(w, 0);
    if (!ctrl_results_ok(w))
        return false;
    c->op = OP_ELSE;
    c->unreachable = false;
    uint32_t n;
    const uint32_t *params = walk_ctrl_params(c, &n);
    if (!push_types(w, emit, params, n))
        return false;
    if (emit)
        em_else(w, c);
    return true;
}

/* Checks an if without else: its results must be its parameters, which pass through. */
static bool if_fits(struct scratch *w, const struct ctrl *c) {
    uint32_t np, nr;
    const uint32_t *params = walk_ctrl_params(c, &np), *results = ctrl_results(c, &nr);
    bool ok = np == nr;
    for (uint32_t i = 0; ok && i < np; i++)
        ok = types_sub(w->e, params[i], results[i]);
    return ok || walk_fail_type(w, "type mismatch: if without else must leave what it takes");
}

INLINE bool do_end(struct scratch *w, const bool emit) {
    struct ctrl *c = w->top;
    if (emit && !w->dead && w->n_ctrls > 1)
        em_flush(w, 0);
    if (emit && w->n_ctrls == 1)
        em_return(w, false);
    if (!ctrl_results_ok(w) || (c->op == OP_IF && !if_fits(w, c)))
        return false;
    if (--w->n_ctrls == 0)
        return true;
    w->top = c - 1;
    w->floor = w->top->height;
    uint32_t n;
    const uint32_t *results = ctrl_results(c, &n);
    if (!push_types(w, emit, results, n))
        return false;
    if (emit)
        em_end_block(w, c);
    return true;
}

struct ctrl *walk_label(struct scratch *w, uint32_t depth) {
    if (LIKELY(depth < w->n_ctrls))
        return &w->ctrls[w->n_ctrls - 1 - depth];
    reader_fail(&w->r, WASM_INVALID, "unknown label %u", depth);
    return NULL;
}

INLINE bool do_br(struct scratch *w, const bool emit) {
    uint32_t depth = reader_u32(&w->r), n;
    struct ctrl *c = walk_label(w, depth);
    if (!c)
        return false;
    if (emit && !w->dead)
        em_br(w, depth);
    const uint32_t *types = ctrl_label(c, &n);
    if (!walk_pop_types(w, types, n))
        return false;
    set_unreachable(w, emit);
    return true;
}

INLINE bool do_br_if(struct scratch *w, const bool emit) {
    uint32_t depth = reader_u32(&w->r), n;
    struct ctrl *c = walk_label(w, depth);
    if (!c)
        return false;
    if (emit && !w->dead)
        em_br_if(w, depth);
    const uint32_t *types = ctrl_label(c, &n);
    if (!pop(w, WASM_I32))
        return false;
    return n == 0 || (walk_pop_types(w, types, n) && push_types(w, emit, types, n));
}

/* True if the operands fit a branch to label c. Does not pop them. */
static bool label_fits(struct scratch *w, const struct ctrl *c) {
    uint32_t n, before = w->n;
    const uint32_t *types = ctrl_label(c, &n);
    if (!walk_pop_types(w, types, n))
        return false;
    w->n = before;
    return true;
}

INLINE bool do_br_table(struct scratch *w, const bool emit) {
    struct reader *r = &w->r;
    uint32_t n = reader_u32(r), arity, first = 0, first_type = 0;
    if (n >= (size_t)(r->end - r->p))
        return reader_fail(r, WASM_MALFORMED, "unexpected end");
    if (emit && !w->dead)
        em_br_table(w, r->p, n);
    if (!pop(w, WASM_I32))
        return false;
    for (uint32_t i = 0; i <= n; i++) {
        struct ctrl *c = walk_label(w, reader_u32(r));
        if (!c)
            return false;
        uint32_t type = *ctrl_label(c, &arity);
        if (i == 0)
            first = arity, first_type = type;
        if (arity != first || (w->m->level < WASM_2_0 && arity && type != first_type))
            return walk_fail_type(w, "type mismatch: labels of br_table differ in arity");
        if (c->checked == w->ins)
            continue; /* this label was checked already for the same br_table */
        if (!label_fits(w, c))
            return false;
        c->checked = w->ins;
    }
    set_unreachable(w, emit);
    return true;
}

INLINE bool do_return(struct scratch *w, const bool emit) {
    if (emit && !w->dead)
        em_return(w, true);
    const struct type *t = w->fn->type;
    if (!walk_pop_types(w, t->vals + t->n_params, t->n_results))
        return false;
    set_unreachable(w, emit);
    return true;
}

/* ---- Variables ---- */

INLINE bool local_ok(struct scratch *w, uint32_t i) {
    return LIKELY(i < w->n_locals) || reader_fail(&w->r, WASM_INVALID, "unknown local %u", i);
}

COLD static void local_was_set(struct scratch *w, uint32_t i) {
    if (w->set[i])
        return;
    w->set[i] = 1;
    if (engine_grow(w->e, &w->set_list, &w->cap_set_list, w->n_set_list + 1, sizeof *w->set_list))
        w->set_list[w->n_set_list++] = i;
    else
        reader_fail(&w->r, WASM_TOO_BIG, "out of memory");
}

INLINE bool do_local_get(struct scratch *w, const bool emit) {
    uint32_t i = reader_u32(&w->r);
    if (!local_ok(w, i))
        return false;
    if (UNLIKELY(w->has_unset) && !w->set[i])
        return reader_fail(&w->r, WASM_INVALID, "uninitialized local %u", i);
    if (emit && !w->dead)
        em_local_get(w, i);
    return push_out(w, emit, w->locals[i]);
}

INLINE bool do_local_set(struct scratch *w, const bool emit, bool is_tee) {
    uint32_t i = reader_u32(&w->r);
    if (!local_ok(w, i))
        return false;
    if (emit && !w->dead)
        (is_tee ? em_local_tee : em_local_set)(w, i);
    if (!pop(w, w->locals[i]))
        return false;
    if (UNLIKELY(w->has_unset))
        local_was_set(w, i);
    return !is_tee || push_out(w, emit, w->locals[i]);
}

INLINE bool do_global(struct scratch *w, const bool emit, bool is_set) {
    uint32_t i = reader_u32(&w->r);
    if (i >= w->m->n_globals)
        return reader_fail(&w->r, WASM_INVALID, "unknown global %u", i);
    const struct global_decl *g = &w->m->globals[i];
    if (is_set && !g->is_mutable)
        return reader_fail(&w->r, WASM_INVALID, "immutable global: global %u cannot be set", i);
    if (emit && !w->dead)
        em_global(w, i, g->type, is_set);
    return is_set ? pop(w, g->type) : push_out(w, emit, g->type);
}

/* ---- Memory ---- */

bool walk_mem_ok(struct scratch *w, uint32_t i) {
    return i < w->m->n_mems || reader_fail(&w->r, WASM_INVALID, "unknown memory %u", i);
}

uint32_t walk_mem_type(struct scratch *w, uint32_t i) {
    return w->m->mems[i].l.is64 ? WASM_I64 : WASM_I32;
}

COLD bool walk_memarg_slow(struct scratch *w, unsigned natural, struct memarg *ret) {
    struct reader *r = &w->r;
    uint32_t align = reader_u32(r);
    ret->mem = 0;
    if (w->m->level >= WASM_3_0) {
        if (align >= 0x80)
            return reader_fail(r, WASM_MALFORMED, "malformed memop flags");
        if (align & 0x40)
            ret->mem = reader_u32(r);
        align &= 0x3f;
        ret->offset = reader_u64(r);
    } else {
        if (align >= 32)
            return reader_fail(r, WASM_MALFORMED, "malformed memop alignment");
        ret->offset = reader_u32(r);
    }
    if (r->failed || !walk_mem_ok(w, ret->mem))
        return false;
    if (align > natural)
        return reader_fail(r, WASM_INVALID, "alignment must not be larger than natural");
    if (!w->m->mems[ret->mem].l.is64 && ret->offset > UINT32_MAX)
        return reader_fail(r, WASM_INVALID, "offset out of range");
    return true;
}

INLINE bool do_load(struct scratch *w, const bool emit, uint32_t row, uint32_t result) {
    struct memarg a;
    if (!memarg(w, wasm_ops[row].align, &a))
        return false;
    if (emit && !w->dead)
        em_load(w, row, a.mem, a.offset);
    return pop(w, walk_mem_type(w, a.mem)) && push_out(w, emit, result);
}

INLINE bool do_store(struct scratch *w, const bool emit, uint32_t row, uint32_t value) {
    struct memarg a;
    if (!memarg(w, wasm_ops[row].align, &a))
        return false;
    if (emit && !w->dead)
        em_store(w, row, a.mem, a.offset);
    return pop(w, value) && pop(w, walk_mem_type(w, a.mem));
}

bool walk_mem_index(struct scratch *w, uint32_t *ret) {
    if (w->m->level < WASM_3_0) {
        *ret = reader_byte(&w->r);
        if (*ret != 0)
            return reader_fail(&w->r, WASM_MALFORMED, "zero byte expected");
    } else {
        *ret = reader_u32(&w->r);
    }
    return !w->r.failed && walk_mem_ok(w, *ret);
}

INLINE bool do_memory_size(struct scratch *w, const bool emit) {
    uint32_t i;
    if (!walk_mem_index(w, &i))
        return false;
    uint64_t extra = i;
    if (emit && !w->dead)
        em_plain(w, OP_MEMORY_SIZE, 0, true, &extra, 1);
    return push_out(w, emit, walk_mem_type(w, i));
}

INLINE bool do_memory_grow(struct scratch *w, const bool emit) {
    uint32_t i;
    if (!walk_mem_index(w, &i))
        return false;
    if (emit && !w->dead)
        em_bulk(w, OP_MEMORY_GROW, 1, i, 0);
    if (!pop(w, walk_mem_type(w, i)) || !push(w, emit, walk_mem_type(w, i)))
        return false;
    if (emit && !w->dead)
        em_after_call(w);
    return true;
}

/* ---- The walk ---- */

INLINE bool do_numeric(struct scratch *w, const bool emit, uint8_t byte,
                       const struct plain_op *op) {
    if (emit && !w->dead)
        em_numeric(w, byte, op->n_in);
    if (op->n_in == 2 && !pop(w, op->in[1]))
        return false;
    return pop(w, op->in[0]) && push_out(w, emit, op->out);
}

INLINE bool do_const(struct scratch *w, const bool emit, uint8_t byte) {
    struct reader *r = &w->r;
    uint64_t k = 0;
    const uint8_t *p;
    switch (byte) {
    case 0x41:
        if (LIKELY(r->p < r->end && *r->p < 0x80)) {
            k = (uint32_t)((int32_t)((uint32_t)*r->p++ << 25) >> 25);
            break;
        }
        k = (uint32_t)reader_s32(r);
        break;
    case 0x42:
        k = (uint64_t)reader_s64(r);
        break;
    default: {
        unsigned n = byte == 0x43 ? 4 : 8;
        if ((p = reader_bytes(r, n)))
            memcpy(&k, p, n);
    }
    }
    if (r->failed)
        return false;
    if (emit && !w->dead)
        em_const(w, 0x7fu - (byte - 0x41u), k);
    return push_out(w, emit, 0x7fu - (byte - 0x41u));
}

#undef IN

INLINE bool instruction(struct scratch *w, const bool emit) {
    uint8_t byte = reader_byte(&w->r);
    const struct plain_op *op = &w->e->plain[byte];
    w->op = op->row;
    w->n_before = w->n;
    if (UNLIKELY(op->level > w->m->level))
        return reader_fail(&w->r, WASM_MALFORMED, "illegal opcode %02x", byte);
    if (emit && !w->dead)
        em_pay(w, op->cost);
    switch (byte) {
    case 0x00:
        if (emit && !w->dead)
            em_unreachable(w);
        set_unreachable(w, emit);
        return true;
    case 0x01:
        return true;
    case 0x02:
        return do_block(w, emit, OP_BLOCK);
    case 0x03:
        return do_block(w, emit, OP_LOOP);
    case 0x04:
        return do_block(w, emit, OP_IF);
    case 0x05:
        return do_else(w, emit);
    case 0x08:
        return walk_throw(w, emit);
    case 0x0a:
        return walk_throw_ref(w, emit);
    case 0x0b:
        return do_end(w, emit);
    case 0x0c:
        return do_br(w, emit);
    case 0x0d:
        return do_br_if(w, emit);
    case 0x0e:
        return do_br_table(w, emit);
    case 0x0f:
        return do_return(w, emit);
    case 0x10:
    case 0x12:
        return walk_call(w, emit, byte == 0x12);
    case 0x11:
    case 0x13:
        return walk_call_indirect(w, emit, byte == 0x13);
    case 0x14:
    case 0x15:
        return walk_call_ref(w, emit, byte == 0x15);
    case 0x1a: {
        uint32_t t;
        return walk_pop_any(w, &t);
    }
    case 0x1b:
        return walk_select(w, emit);
    case 0x1c:
        return walk_select_t(w, emit);
    case 0x1f:
        return walk_try_table(w, emit);
    case 0x20:
        return do_local_get(w, emit);
    case 0x21:
        return do_local_set(w, emit, false);
    case 0x22:
        return do_local_set(w, emit, true);
    case 0x23:
        return do_global(w, emit, false);
    case 0x24:
        return do_global(w, emit, true);
    case 0x25:
        return walk_table_get(w, emit);
    case 0x26:
        return walk_table_set(w, emit);
    case 0x28 ... 0x35:
        return do_load(w, emit, op->row, op->out);
    case 0x36 ... 0x3e:
        return do_store(w, emit, op->row, op->in[1]);
    case 0x3f:
        return do_memory_size(w, emit);
    case 0x40:
        return do_memory_grow(w, emit);
    case 0x41 ... 0x44:
        return do_const(w, emit, byte);
    case 0x45 ... 0xc4:
        return do_numeric(w, emit, byte, op);
    case 0xd0:
        return walk_ref_null(w, emit);
    case 0xd1:
        return walk_ref_is_null(w, emit);
    case 0xd2:
        return walk_ref_func(w, emit);
    case 0xd4:
        return walk_ref_as_non_null(w, emit);
    case 0xd5:
        return walk_br_on_null(w, emit);
    case 0xd6:
        return walk_br_on_non_null(w, emit);
    case 0xfc:
        return walk_fc(w, emit);
    case 0xfd:
        return walk_fd(w, emit);
    case 0xd3:
        return walk_ref_eq(w, emit);
    default:
        return walk_fb(w, emit);
    }
}

INLINE bool body(struct scratch *w, const bool emit) {
    do {
        w->ins = w->r.p;
        if (!instruction(w, emit) || UNLIKELY(w->r.failed))
            return false;
    } while (w->n_ctrls);
    return w->r.p == w->r.end ||
           reader_fail(&w->r, WASM_MALFORMED, "section size mismatch: code after the end");
}

bool walk_body_validate(struct scratch *w) {
    return body(w, false);
}

bool walk_body_emit(struct scratch *w) {
    return body(w, true);
}

bool walk_validate(struct wasm_module *m, struct fn *fn, struct wasm_diag *diag) {
    struct scratch *w = walk_begin(fn, diag);
    if (!w) {
        diag->fault = WASM_TOO_BIG;
        snprintf(diag->message, sizeof diag->message, "out of memory");
        return false;
    }
    if (walk_locals(w) && walk_unset_init(w) && walk_enter(w) && walk_body_validate(w))
        return true;
    struct wasm_diag form = {0};
    if (diag->fault == WASM_INVALID && !skip_body(fn, &form))
        *diag = form; /* the body is also malformed, which takes precedence */
    diag->func = fn->index;
    diag->op = (uint16_t)w->op;
    diag->offset = (size_t)(w->ins - m->bytes);
    if (!w->r.failed) { /* does not happen: every failure sets a message */
        diag->fault = WASM_INVALID;
        snprintf(diag->message, sizeof diag->message, "type mismatch");
    }
    return false;
}
