/*
 * Finds all errors of a function body, for its author. Validation alone stops at the first one.
 *
 * After an error, the rest of the block counts as unreachable: it may pop operands of any type, so
 * one mistake is reported once.
 */
#include "wasm/walk_inner.h"

COLD bool walk_expect(struct scratch *w, const uint32_t *types, uint32_t n, uint32_t extra) {
    struct wasm_diag *d = w->r.diag;
    uint32_t skip = n + (extra != 0) > WASM_DIAG_TYPES ? n + (extra != 0) - WASM_DIAG_TYPES : 0;
    d->n_expected = d->n_found = 0;
    for (uint32_t i = skip; i < n; i++)
        d->expected[d->n_expected++] = types[i];
    if (extra)
        d->expected[d->n_expected++] = extra;
    uint32_t show = w->n_before - w->floor;
    bool ends = w->op == OP_END || w->op == OP_ELSE;
    /* Below the operands of an instruction are those of others, but a block owns all of its own. */
    if (!ends && show > d->n_expected)
        show = d->n_expected;
    if (show > WASM_DIAG_TYPES)
        show = WASM_DIAG_TYPES;
    while (d->n_found < show) {
        d->found[d->n_found] = w->types[w->n_before - show + d->n_found];
        d->n_found++;
    }
    d->block = w->top->op;
    return false;
}

/* What was already tried to get past the present instruction. */
enum attempt { AS_UNREACHABLE, AS_ELSE, SKIPPED };

/* Prepares the walk to go on at or after the instruction with the error; false: it cannot. */
static bool fault_resume(struct scratch *w, enum attempt attempt) {
    struct wasm_diag ignored = {0};
    enum wasm_op op;
    w->r.failed = false;
    w->r.p = w->ins;
    w->n = w->floor;
    w->top->unreachable = true;
    if ((w->op == OP_END || w->op == OP_ELSE) && w->n_ctrls > 1)
        w->top[-1].unreachable = true; /* the block may have left other values than it should */
    if (attempt == AS_UNREACHABLE)
        return true;
    if (attempt == AS_ELSE && w->op == OP_END) {
        w->top->op = OP_ELSE; /* an if without else whose results differ from its parameters */
        return true;
    }
    struct wasm_diag *diag = w->r.diag;
    w->r.diag = &ignored;
    bool ok = skip_instruction(&w->r, w->m, &op) && op != OP_END && op != OP_ELSE &&
              wasm_ops[op].imm != IMM_BLOCK && wasm_ops[op].imm != IMM_TRY_TABLE;
    w->r.diag = diag;
    return ok;
}

static bool faults_begin(struct scratch *w) {
    return walk_locals(w) && walk_unset_init(w) && walk_enter(w);
}

uint32_t walk_faults(struct fn *fn, struct wasm_diag *list, uint32_t max) {
    struct wasm_diag now = {0};
    struct scratch *w = walk_begin(fn, &now);
    const uint8_t *last = NULL;
    unsigned attempt = AS_UNREACHABLE;
    uint32_t n = 0;
    if (!w || max == 0)
        return 0;
    bool begun = faults_begin(w);
    while (n < max && (!begun || !walk_body_validate(w))) {
        attempt = w->ins == last ? attempt + 1 : AS_UNREACHABLE;
        if (w->ins != last) {
            now.func = fn->index;
            now.op = (uint16_t)w->op;
            now.offset = (size_t)(w->ins - fn->mod->bytes);
            list[n++] = now;
        }
        last = w->ins;
        if (!begun || now.fault != WASM_INVALID || attempt > SKIPPED ||
            !fault_resume(w, (enum attempt)attempt))
            break;
        now = (struct wasm_diag){0};
    }
    return n;
}
