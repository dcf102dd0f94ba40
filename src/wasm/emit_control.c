/* Writes the code of blocks, branches, calls and exceptions. */
#include "wasm/emit_inner.h"
#include "wasm/walk.h"

static void site_aim(struct scratch *w, const struct site *s, uint32_t pos) {
    em_patch(w, s->word, (uint32_t)(pos - s->word));
}

/* Makes the branch word at position `at` jump to label `c`, and pay for the block there. */
static void branch_to(struct scratch *w, struct ctrl *c, uint32_t at, enum site_field field,
                      uint32_t addend) {
    uint32_t s = em_site(w, at, field, addend);
    if (s == NO_LINK || w->no_memory)
        return;
    if (c->op == OP_LOOP) {
        site_aim(w, &w->sites[s], c->pos);
        em_site_pay(w, &w->sites[s], w->nodes[c->node].cost);
        return;
    }
    w->sites[s].next = c->sites;
    c->sites = s;
}

/* Places a forward label here: makes the branches in `sites` jump here, and starts a block. */
static void bind(struct scratch *w, uint32_t sites, uint32_t offset) {
    uint32_t pos = em_block_pos(w);
    for (uint32_t s = sites; s != NO_LINK; s = w->sites[s].next)
        site_aim(w, &w->sites[s], pos);
    em_node(w, sites, offset, MARK_START);
    w->dead = false;
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
    c->pos = em_block_pos(w);
    c->node = em_node(w, NO_LINK, em_offset_of(w, w->r.p), MARK_START);
}

/* Writes a two-way branch on the top operand; returns the position of its branch word. */
static uint32_t branch_on(struct scratch *w, bool when_true) {
    struct opnd *o = &w->vals[w->n - 1];
    if (o->kind != OPND_CMP) {
        uint32_t a = em_use(w, w->n - 1);
        em_op(w, when_true ? I_BR_TRUE : I_BR_FALSE, a, 0, 0);
    } else if (o->op >= OP_F32_EQ) {
        em_op(w, (when_true ? I_BR_F32_EQ : I_BRN_F32_EQ) + o->op - OP_F32_EQ, o->a, o->b, 0);
    } else {
        uint16_t row = when_true ? o->op : em_cmp_map(o->op, em_cmp_inverse);
        uint32_t i = row >= OP_I64_EQ ? row - OP_I64_EQ + 10u : row - (uint32_t)OP_I32_EQ;
        em_op(w, (o->has_k ? I_BR_I32_EQ_K : I_BR_I32_EQ) + i, o->a,
              o->has_k ? (uint32_t)o->k : o->b, 0);
    }
    em_word(w, 0);
    return w->n_words - 1;
}

void em_if(struct scratch *w, struct ctrl *c) {
    em_flush(w, 1);
    uint32_t at = branch_on(w, false);
    em_close(w);
    c->else_site = em_site(w, at, SITE_TAKEN, 0);
    em_node(w, em_site(w, at, SITE_FALL, 0), em_offset_of(w, w->r.p), MARK_START);
}

static void jump(struct scratch *w, struct ctrl *c) {
    em_op(w, I_BR_ALWAYS, 0, 0, 0);
    em_word(w, 0);
    em_close(w);
    branch_to(w, c, w->n_words - 1, SITE_TAKEN, 0);
}

void em_else(struct scratch *w, struct ctrl *c) {
    if (!w->dead)
        jump(w, c);
    w->dead = true;
    if (c->else_site != NO_LINK)
        bind(w, c->else_site, em_offset_of(w, w->r.p));
    c->else_site = NO_LINK;
}

static void handler_add(struct scratch *w, const struct handler *h) {
    if (!engine_grow(w->e, &w->handlers, &w->cap_handlers, w->n_handlers + 1,
                     sizeof *w->handlers)) {
        em_no_room(w);
        return;
    }
    w->handlers[w->n_handlers++] = *h;
}

/* Ends the body of a try_table: writes its landing pads after it, each a jump to its label. */
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
        bind(w, c->sites, em_offset_of(w, w->r.p));
}

void em_try(struct scratch *w, struct ctrl *c) {
    c->pos = w->n_words;
    c->node = 0; /* not NO_LINK: the body of the try_table can be reached */
}

static void emit_control_leave(struct scratch *w) {
    const struct type *t = w->fn->type;
    if (t->result_slots == 0) {
        em_op(w, I_RET0, 0, 0, 0);
    } else if (t->result_slots == 1) {
        uint32_t a = em_use(w, w->n - 1);
        em_op(w, I_RET1, a, 0, 0);
    } else {
        em_flush(w, 0);
        em_op(w, I_RETN, w->vals[w->n - t->n_results].slot, t->result_slots, 0);
    }
    em_close(w);
}

void em_return(struct scratch *w, bool is_branch) {
    struct ctrl *f = &w->ctrls[0];
    if (is_branch) {
        em_pay(w, 1 + em_carry_cost(w->fn->type->n_results));
        emit_control_leave(w);
        return;
    }
    if (f->sites == NO_LINK) {
        if (!w->dead)
            emit_control_leave(w);
        return;
    }
    if (!w->dead)
        em_flush(w, 0);
    uint32_t slots = w->fn->type->result_slots;
    bind(w, f->sites, em_offset_of(w, w->ins));
    em_op(w, slots ? I_RETN : I_RET0, w->local_slots, slots, 0);
    if (w->local_slots + slots > w->max_slots)
        w->max_slots = w->local_slots + slots;
    em_close(w);
}

void em_br(struct scratch *w, uint32_t depth) {
    struct ctrl *c = ctrl_at(w, depth);
    uint32_t n;
    const uint32_t *types = ctrl_label(c, &n);
    em_pay(w, 1 + em_carry_cost(n));
    if (c->op == OP_CALL) {
        emit_control_leave(w);
        return;
    }
    if (n == 1) {
        em_to_slot(w, &w->vals[w->n - 1], w->types[w->n - 1], c->base);
    } else if (n > 1) {
        em_flush(w, 0);
        uint32_t src = w->vals[w->n - n].slot;
        if (src != c->base)
            em_op(w, I_MOVN, c->base, src, slot_count(types, n));
    }
    jump(w, c);
}

/* Starts a fuel block after a conditional branch, whose word pays for it if there is no jump. */
static void fall(struct scratch *w, uint32_t at, uint32_t addend) {
    em_node(w, em_site(w, at, SITE_FALL, addend), em_offset_of(w, w->r.p), MARK_START);
}

static void values_branch(struct scratch *w, struct ctrl *c, uint32_t code, uint32_t cond,
                          uint32_t first, uint32_t n) {
    uint32_t count, src = n ? w->vals[first].slot : 0;
    const uint32_t *types = ctrl_label(c, &count);
    em_op(w, code, cond, c->base, src);
    em_word(w, 0);
    em_word(w, slot_count(types, n));
    uint32_t at = w->n_words - 2;
    branch_to(w, c, at, SITE_TAKEN, 1 + em_carry_cost(n));
    fall(w, at, 1);
}

void em_br_if(struct scratch *w, uint32_t depth) {
    struct ctrl *c = ctrl_at(w, depth);
    uint32_t n;
    ctrl_label(c, &n);
    if (n) {
        em_self_charging(w);
        values_branch(w, c, I_BR_VALUES, w->vals[w->n - 1].slot, w->n - 1 - n, n);
        return;
    }
    em_pay(w, 1);
    em_flush(w, 1);
    uint32_t at = branch_on(w, true);
    em_close(w);
    branch_to(w, c, at, SITE_TAKEN, 0);
    fall(w, at, 0);
}

void em_br_null(struct scratch *w, uint32_t depth, bool on_null) {
    struct ctrl *c = ctrl_at(w, depth);
    uint32_t n, ref = w->n - 1;
    ctrl_label(c, &n);
    em_self_charging(w);
    uint32_t first = on_null ? ref - n : w->n - n;
    values_branch(w, c, on_null ? I_BR_NULL : I_BR_NOT_NULL, w->vals[ref].slot, first, n);
}

void em_br_cast(struct scratch *w, uint32_t depth, uint32_t type, bool on_fail) {
    struct ctrl *c = ctrl_at(w, depth);
    uint32_t n;
    const uint32_t *types = ctrl_label(c, &n);
    em_self_charging(w);
    em_op(w, I_BR_CAST, w->vals[w->n - 1].slot, c->base, w->vals[w->n - n].slot);
    em_word(w, 0);
    em_word(w, slot_count(types, n));
    em_word(w, PAIR(type, on_fail));
    uint32_t at = w->n_words - 3;
    branch_to(w, c, at, SITE_TAKEN, 1 + em_carry_cost(n));
    fall(w, at, 1);
}

static void switch_values(struct scratch *w, struct reader labels, uint32_t n, uint32_t arity) {
    uint32_t index = w->vals[w->n - 1].slot, src = w->vals[w->n - 1 - arity].slot;
    em_self_charging(w);
    em_op(w, I_SWITCH, index, 0, 0);
    em_word(w, n);
    uint32_t table = w->n_words, slots = index - src;
    for (uint32_t i = 0; i <= n; i++)
        em_word(w, PAIR(0, 1 + em_carry_cost(arity)));
    for (uint32_t i = 0; i <= n; i++) {
        struct ctrl *c = ctrl_at(w, reader_u32(&labels));
        em_patch(w, table + i, w->n_words - (table + i));
        if (src != c->base)
            em_op(w, I_MOVN, c->base, src, slots);
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
    uint32_t index = em_use(w, w->n - 1);
    em_op(w, I_SWITCH, index, 0, 0);
    em_word(w, n);
    uint32_t table = w->n_words;
    for (uint32_t i = 0; i <= n; i++)
        em_word(w, 0);
    em_close(w);
    for (uint32_t i = 0; i <= n; i++)
        branch_to(w, ctrl_at(w, reader_u32(&labels)), table + i, SITE_WIDE, 0);
}

void em_unreachable(struct scratch *w) {
    em_op(w, OP_UNREACHABLE, 0, 0, 0);
    em_close(w);
}

/* ---- Calls and exceptions ---- */

void em_call(struct scratch *w, const struct type *t, uint16_t code, uint64_t v, unsigned n_extra) {
    em_pay(w, type_call_cost(t));
    em_flush(w, 0);
    uint32_t base = em_first_slot(w, t->n_params + n_extra);
    em_op(w, code, base, n_extra ? w->vals[w->n - 1].slot : 0, 0);
    em_word(w, v);
    if (code != I_CALL_REF_)
        em_word(w, 0);
    em_close(w);
    w->pending_site = em_site(w, w->n_words - 1, SITE_WIDE, 0);
    w->pending_kind = MARK_RETURN;
}

void em_after_call(struct scratch *w) {
    em_node(w, w->pending_site, em_offset_of(w, w->r.p), w->pending_kind);
}

void em_tail(struct scratch *w, const struct type *t, uint16_t code, uint64_t v, unsigned n_extra) {
    em_pay(w, type_call_cost(t));
    em_flush(w, 0);
    uint32_t args = em_first_slot(w, t->n_params + n_extra);
    em_op(w, code, args, t->param_slots, n_extra ? w->vals[w->n - 1].slot : 0);
    em_word(w, v);
    em_close(w);
    /* A tail call moves arguments to the first slots. A host function puts results at `args`. */
    uint32_t need =
        t->param_slots > args + t->result_slots ? t->param_slots : args + t->result_slots;
    if (need > w->max_slots)
        w->max_slots = need;
}

void em_throw(struct scratch *w, uint32_t tag, uint32_t n_args) {
    em_self_charging(w);
    em_op(w, I_THROW_TAG, em_first_slot(w, n_args), 0, 0);
    em_word(w, tag);
    em_close(w);
}

void em_throw_ref(struct scratch *w) {
    em_self_charging(w);
    uint32_t a = em_use(w, w->n - 1);
    em_op(w, I_THROW_VALUE, a, 0, 0);
    em_close(w);
}
