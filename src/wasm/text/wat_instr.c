/*
 * Encodes instructions of the text format, flat and folded.
 *
 * A folded instruction, `(i32.add a b)`, is encoded after its operands, so its bytes wait in
 * enc.pending while they are read. Nesting lives in two lists on the heap, folds
 * and labels: the native stack does not grow with the depth of the text.
 */
#include "wasm/text/wat_enc.h"

#include <stdlib.h>
#include <string.h>

#include "wasm/text/wat_imm.h"

/* --- names of instructions --- */

enum { OP_BUCKETS = 2048 };

static uint32_t hash_word(const char *s, size_t n) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)s[i]) * 16777619u;
    return h ^ h >> 15;
}

bool init_ops(struct enc *e) {
    e->op_buckets = calloc(OP_BUCKETS, sizeof(*e->op_buckets));
    if (!e->op_buckets)
        return false;
    for (uint16_t op = 0; op < OP_COUNT; op++) {
        uint32_t h = hash_word(wasm_ops[op].text, strlen(wasm_ops[op].text));
        while (e->op_buckets[h % OP_BUCKETS])
            h++;
        e->op_buckets[h % OP_BUCKETS] = (uint16_t)(op + 1);
    }
    return true;
}

enum wasm_op find_op(const struct enc *e, const char *name, size_t len) {
    for (uint32_t h = hash_word(name, len);; h++) {
        uint16_t op = e->op_buckets[h % OP_BUCKETS];
        if (!op)
            return OP_COUNT;
        const struct wasm_op_info *info = &wasm_ops[op - 1];
        if (info->level <= e->spec && strlen(info->text) == len && !memcmp(info->text, name, len))
            return (enum wasm_op)(op - 1);
    }
}

static void put_op(struct enc *e, struct buf *b, enum wasm_op op) {
    if (wasm_ops[op].prefix) {
        put_byte(e, b, wasm_ops[op].prefix);
        put_u(e, b, wasm_ops[op].code);
    } else {
        put_byte(e, b, wasm_ops[op].code);
    }
}

/* --- labels --- */

static void bind_label(struct enc *e, uint32_t sym, uint32_t *shadowed) {
    uint32_t *slot = &e->t->syms[sym - 1].index[WAT_LABELS];
    *shadowed = *slot;
    *slot = e->label_count + 1;
}

static void push_label(struct enc *e, uint32_t sym, uint32_t token, bool flat, bool is_if) {
    if (!grow_list(&e->labels, sizeof(*e->labels), e->label_count, &e->label_room)) {
        e->full = true;
        return;
    }
    struct label l = {
        .sym = sym, .token = token, .folds = e->fold_count, .flat = flat, .is_if = is_if};
    if (sym)
        bind_label(e, sym, &l.shadowed);
    e->labels[e->label_count++] = l;
}

static void pop_label(struct enc *e) {
    const struct label *l = &e->labels[--e->label_count];
    if (l->sym)
        e->t->syms[l->sym - 1].index[WAT_LABELS] = l->shadowed;
}

/* Takes the optional name after block, loop, if, try_table: symbol + 1, or 0. */
static uint32_t take_label_name(struct enc *e) {
    if (peek(e)->kind != WAT_ID)
        return 0;
    return e->t->tokens[e->i++].link + 1;
}

/* --- instructions whose opcode depends on their arguments --- */

static int take_select(struct enc *e, struct buf *b) {
    if (e->spec < 20 || !at_open(e, "result"))
        return put_op(e, b, OP_SELECT), 0;
    struct buf types = BUF(1 << 16);
    uint32_t count = 0;
    int r = take_results(e, &types, &count);
    if (r == 0) {
        put_op(e, b, OP_SELECT_T);
        put_u(e, b, count);
        put_bytes(e, b, types.data, types.len);
    }
    buf_done(&types);
    return r;
}

static int take_ref_test(struct enc *e, enum wasm_op op, struct buf *b) {
    struct buf heap = BUF(16);
    bool nullable;
    int r = take_ref_parts(e, &heap, &nullable);
    if (r == 0) {
        put_op(e, b, (enum wasm_op)(op + nullable));
        put_bytes(e, b, heap.data, heap.len);
    }
    buf_done(&heap);
    return r;
}

/* Encodes opcode and immediates of an instruction that is not a block. */
static int take_plain(struct enc *e, enum wasm_op op, struct buf *b) {
    e->i++;
    if (op == OP_SELECT)
        return take_select(e, b);
    if (wasm_ops[op].imm == IMM_REFTYPE)
        return take_ref_test(e, op, b);
    put_op(e, b, op);
    return wat_take_immediate(e, op, b);
}

/* --- blocks --- */

static const struct {
    const char *word;
    uint8_t code;
    bool has_tag;
} catches[] = {
    {"catch", 0, true},
    {"catch_ref", 1, true},
    {"catch_all", 2, false},
    {"catch_all_ref", 3, false},
};

static int take_catch(struct enc *e, struct buf *b, bool *found) {
    *found = false;
    for (size_t i = 0; i < sizeof(catches) / sizeof(*catches); i++) {
        if (!take_open(e, catches[i].word))
            continue;
        *found = true;
        put_byte(e, b, catches[i].code);
        if (catches[i].has_tag && wat_imm_index(e, WAT_TAGS, b) < 0)
            return -1;
        return wat_imm_label(e, b) < 0 ? -1 : take_close(e);
    }
    return 0;
}

/* Encodes catch clauses. They use labels outside of the block that they belong to. */
static int take_catches(struct enc *e, struct buf *b) {
    struct buf list = BUF(1 << 20);
    uint32_t count = 0;
    bool found = true;
    int r = 0;
    while (r == 0 && found) {
        r = take_catch(e, &list, &found);
        count += found;
    }
    if (r == 0) {
        put_u(e, b, count);
        put_bytes(e, b, list.data, list.len);
    }
    buf_done(&list);
    return r;
}

/* Reads `block $l type`. Writes opcode and type to b, and the name as symbol + 1 to *name. */
static int take_block_head(struct enc *e, enum wasm_op op, struct buf *b, uint32_t *name) {
    e->i++;
    *name = take_label_name(e);
    put_op(e, b, op);
    if (take_block_type(e, b) < 0)
        return -1;
    return op == OP_TRY_TABLE ? take_catches(e, b) : 0;
}

static bool is_block(enum wasm_op op) {
    return op < OP_COUNT && (wasm_ops[op].imm == IMM_BLOCK || wasm_ops[op].imm == IMM_TRY_TABLE);
}

/* --- flat instructions --- */

static int open_flat(struct enc *e, enum wasm_op op) {
    uint32_t name, token = e->i;
    int r = take_block_head(e, op, &e->out->bytes, &name);
    /* Also after an error, because the `end` of this block follows. */
    push_label(e, name, token, true, op == OP_IF);
    return r;
}

/* A label that is repeated after `else` or `end` must be that of the block. */
static int check_repeated(struct enc *e, const struct label *l) {
    const struct wat_token *tok = peek(e);
    if (tok->kind != WAT_ID)
        return 0;
    e->i++;
    if (l->sym == tok->link + 1)
        return 0;
    error_at(e, tok, "mismatching label $%s", wat_sym_name(e->t, tok->link));
    return wat_hint(e->diags, "the `end` or `else` here belongs to `%.*s %s%s`",
                    (int)e->t->tokens[l->token].len, e->t->src + e->t->tokens[l->token].pos,
                    l->sym ? "$" : "without a label", l->sym ? wat_sym_name(e->t, l->sym - 1) : "");
}

static int close_flat(struct enc *e, enum wasm_op op, uint32_t floor) {
    const struct wat_token *tok = peek(e);
    struct label *l = e->label_count > floor ? &e->labels[e->label_count - 1] : NULL;
    if (!l || !l->flat || l->folds != e->fold_count)
        return error_at(e, tok, "unexpected token `%s`: no block is open here", wasm_ops[op].text);
    if (op == OP_ELSE && !l->is_if)
        return error_at(e, tok, "unexpected token `else`: the open block is not an `if`");
    e->i++;
    if (check_repeated(e, l) < 0)
        return -1;
    put_op(e, &e->out->bytes, op);
    l->is_if = false;
    if (op == OP_END)
        pop_label(e);
    return 0;
}

static int unknown_instruction(struct enc *e, const struct wat_token *tok) {
    if (tok->kind != WAT_ATOM || !is_name_like(e, tok)) {
        expected(e, "an instruction");
        hint_operand(e, tok, OP_COUNT);
        return -1;
    }
    int len = (int)(tok->len < 60 ? tok->len : 60);
    error_at(e, tok, "unknown operator `%.*s`", len, e->t->src + tok->pos);
    hint_instruction(e, tok);
    return -1;
}

static enum wasm_op op_at(const struct enc *e, const struct wat_token *tok) {
    return tok->kind == WAT_ATOM ? find_op(e, e->t->src + tok->pos, tok->len) : OP_COUNT;
}

static int take_flat(struct enc *e, uint32_t floor) {
    const struct wat_token *tok = peek(e);
    enum wasm_op op = op_at(e, tok);
    if (op == OP_COUNT)
        return unknown_instruction(e, tok);
    mark(e, e->out, tok->pos);
    if (op == OP_ELSE || op == OP_END)
        return close_flat(e, op, floor);
    return is_block(op) ? open_flat(e, op) : take_plain(e, op, &e->out->bytes);
}

/* --- folded instructions --- */

static struct fold *push_fold(struct enc *e, enum fold_kind kind, uint32_t token) {
    if (!grow_list(&e->folds, sizeof(*e->folds), e->fold_count, &e->fold_room)) {
        e->full = true;
        return NULL;
    }
    struct fold *f = &e->folds[e->fold_count++];
    *f = (struct fold){.kind = kind,
                       .token = token,
                       .pending = (uint32_t)e->pending.len,
                       .labels = e->label_count};
    return f;
}

static int open_folded_block(struct enc *e, enum wasm_op op) {
    uint32_t name, token = e->i;
    mark(e, e->out, peek(e)->pos);
    if (take_block_head(e, op, &e->out->bytes, &name) < 0)
        return -1;
    if (!push_fold(e, FOLD_BLOCK, token))
        return -1;
    push_label(e, name, token, false, false);
    return 0;
}

static int open_folded_if(struct enc *e) {
    struct fold *f = push_fold(e, FOLD_IF, e->i);
    uint32_t name;
    if (!f || take_block_head(e, OP_IF, &e->pending, &name) < 0)
        return -1;
    f->label = name;
    return 0;
}

/* Words that begin lists in other places. What follows them are not operands. */
static bool opens_no_operands(const struct enc *e, const struct wat_token *tok) {
    static const char *const words[] = {"param", "result", "local", "type", "export", "import"};
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (wat_is(e->t, tok, words[i]))
            return true;
    return tok->kind != WAT_ATOM;
}

/* Reports an unknown folded instruction. Its operands are read, to find further errors. */
static int open_unknown(struct enc *e, const struct wat_token *tok) {
    unknown_instruction(e, tok);
    if (opens_no_operands(e, tok) || !push_fold(e, FOLD_PLAIN, e->i))
        return -1;
    while (peek(e)->kind != WAT_LPAR && peek(e)->kind != WAT_RPAR)
        e->i++;
    return 0;
}

/* Opens a fold at the '(' of a folded instruction. */
static int open_folded(struct enc *e) {
    const struct wat_token *tok = peek(e) + 1;
    enum wasm_op op = op_at(e, tok);
    if (e->fold_count > 0)
        e->folds[e->fold_count - 1].operands++;
    e->i++;
    if (op == OP_COUNT || op == OP_ELSE || op == OP_END)
        return open_unknown(e, tok);
    if (op == OP_IF)
        return open_folded_if(e);
    if (is_block(op))
        return open_folded_block(e, op);
    return push_fold(e, FOLD_PLAIN, e->i) ? take_plain(e, op, &e->pending) : -1;
}

/* The function that a call names, index + 1; 0: not known. */
static uint32_t callee_at(const struct enc *e, const struct wat_token *tok) {
    return tok->kind == WAT_ID ? e->t->syms[tok->link].index[WAT_FUNCS] : 0;
}

/* Notes an instruction with more operands than it takes, for a hint if the types are wrong. */
static void note_operands(struct enc *e, const struct fold *f) {
    const struct wat_token *tok = &e->t->tokens[f->token];
    enum wasm_op op = op_at(e, tok);
    struct note n = {.pos = tok->pos, .given = f->operands};
    if (f->operands == 0 || op == OP_COUNT || e->note_count == MOST_NOTES)
        return;
    const char *sig = wasm_ops[op].sig;
    if (op == OP_CALL || op == OP_RETURN_CALL)
        n.callee = callee_at(e, tok + 1);
    else if (sig[0] != '*')
        n.takes = (uint32_t)strcspn(sig, ":");
    if (sig[0] == '*' ? !n.callee : n.takes >= n.given)
        return;
    if (grow_list(&e->notes, sizeof(*e->notes), e->note_count, &e->note_room))
        e->notes[e->note_count++] = n;
}

void take_surplus(struct enc *e, struct wat_module *ret) {
    if (e->note_count == 0)
        return;
    ret->surplus = calloc(e->note_count, sizeof(*ret->surplus));
    for (uint32_t i = 0; ret->surplus && i < e->note_count; i++) {
        const struct note *n = &e->notes[i];
        bool known = n->callee && n->callee <= e->func_param_room;
        uint32_t takes = known ? e->func_params[n->callee - 1] : n->takes;
        if ((!n->callee || known) && n->given > takes)
            ret->surplus[ret->surplus_count++] =
                (struct wat_surplus){.pos = n->pos, .given = n->given, .takes = takes};
    }
}

/* Moves the bytes that `pending` received since fold `f` was opened to the output. */
static void flush_pending(struct enc *e, const struct fold *f) {
    mark(e, e->out, e->t->tokens[f->token].pos);
    if (e->pending.len > f->pending)
        put_bytes(e, &e->out->bytes, e->pending.data + f->pending, e->pending.len - f->pending);
    e->pending.len = f->pending;
}

/* Opens `(then …)` or `(else …)` of a folded if. */
static int open_arm(struct enc *e, struct fold *f) {
    if (f->kind == FOLD_IF && at_open(e, "then")) {
        flush_pending(e, f);
        f->kind = FOLD_IF_DONE;
        push_label(e, f->label, f->token, false, true);
        e->i += 2;
        return push_fold(e, FOLD_THEN, e->i - 1) ? 0 : -1;
    }
    if (f->kind == FOLD_IF_DONE && at_open(e, "else") && e->labels[e->label_count - 1].is_if) {
        mark(e, e->out, peek(e)->pos);
        put_op(e, &e->out->bytes, OP_ELSE);
        e->labels[e->label_count - 1].is_if = false;
        e->i += 2;
        return push_fold(e, FOLD_ELSE, e->i - 1) ? 0 : -1;
    }
    if (at_open(e, "result") || at_open(e, "param")) {
        e->i++;
        expected(e, f->kind == FOLD_IF ? "the condition or `(then …)`" : "`(else …)`");
        return wat_hint(e->diags, "the type comes before the condition: `(if (result i32) "
                                  "(condition) (then …) (else …))`");
    }
    if (f->kind == FOLD_IF)
        return open_folded(e);
    expected(e, "`)` or one `(else …)`");
    return wat_hint(e->diags, "a folded if is `(if (condition) (then …) (else …))`");
}

static int check_blocks_closed(struct enc *e, uint32_t labels) {
    if (e->label_count <= labels)
        return 0;
    const struct wat_token *tok = &e->t->tokens[e->labels[e->label_count - 1].token];
    error_at(e, tok, "unexpected token `)`: this `%.*s` has no `end`", (int)tok->len,
             e->t->src + tok->pos);
    return wat_hint(e->diags, "add `end`, or write the block folded: `(%.*s …)`", (int)tok->len,
                    e->t->src + tok->pos);
}

/* Closes the innermost fold at its ')'. */
static int close_fold(struct enc *e) {
    struct fold *f = &e->folds[e->fold_count - 1];
    bool has_label = f->kind == FOLD_BLOCK || f->kind == FOLD_IF_DONE;
    if (f->kind == FOLD_IF) {
        expected(e, "`(then …)`");
        return wat_hint(e->diags, "a folded if is `(if (condition) (then …) (else …))`");
    }
    if (check_blocks_closed(e, f->labels + has_label) < 0)
        return -1;
    if (f->kind == FOLD_PLAIN) {
        flush_pending(e, f);
        note_operands(e, f);
    }
    if (has_label) {
        mark(e, e->out, peek(e)->pos);
        put_op(e, &e->out->bytes, OP_END);
        pop_label(e);
    }
    e->fold_count--;
    e->i++;
    return 0;
}

static int take_next(struct enc *e, uint32_t floor, uint32_t label_floor) {
    struct fold *f = e->fold_count > floor ? &e->folds[e->fold_count - 1] : NULL;
    switch (peek(e)->kind) {
    case WAT_LPAR:
        if (f && (f->kind == FOLD_IF || f->kind == FOLD_IF_DONE))
            return open_arm(e, f);
        return open_folded(e);
    case WAT_RPAR:
        return close_fold(e);
    default:
        break;
    }
    if (f && f->kind == FOLD_PLAIN) {
        expected(e, "`)` or an operand in parentheses");
        hint_operand(e, peek(e), op_at(e, &e->t->tokens[f->token]));
        return -1;
    }
    if (f && (f->kind == FOLD_IF || f->kind == FOLD_IF_DONE))
        return expected(e, f->kind == FOLD_IF ? "the condition in parentheses or `(then …)`"
                                              : "`(else …)` or `)`");
    return take_flat(e, label_floor);
}

/* Resets the state after an expression that failed, so that its labels are not visible later. */
static int unwind(struct enc *e, uint32_t folds, uint32_t labels, size_t pending) {
    while (e->label_count > labels)
        pop_label(e);
    e->fold_count = folds;
    e->pending.len = pending;
    return -1;
}

/* Skips the rest of a flat instruction that begins at token `start` and has an error. */
static void skip_flat(struct enc *e, uint32_t start) {
    for (uint32_t i = start; i < e->i; i++)
        if (e->t->tokens[i].kind == WAT_LPAR && e->t->tokens[i].link >= e->i)
            e->i = e->t->tokens[i].link + 1;
    if (e->i == start)
        e->i++;
    while (e->i < e->end && peek(e)->kind != WAT_LPAR && peek(e)->kind != WAT_RPAR &&
           op_at(e, peek(e)) == OP_COUNT)
        e->i++;
}

enum { NO_FOLD = UINT32_MAX };

/*
 * Goes on behind the instruction with an error, so that further errors of the function are found.
 * `start` is the token that was read last, `folds` the number of folds outside of the function.
 */
static void recover(struct enc *e, uint32_t start, uint32_t folds) {
    uint32_t open = e->fold_count > folds ? e->folds[e->fold_count - 1].token - 1 : NO_FOLD;
    const struct wat_token *tok = &e->t->tokens[start];
    if (open != start && tok->kind == WAT_LPAR) {
        e->i = tok->link + 1; /* no fold was opened for it */
        return;
    }
    if (open == NO_FOLD) {
        skip_flat(e, start);
        return;
    }
    const struct fold *f = &e->folds[--e->fold_count];
    while (e->label_count > f->labels)
        pop_label(e);
    e->pending.len = f->pending;
    e->i = e->t->tokens[f->token - 1].link + 1;
}

int take_instructions(struct enc *e) {
    uint32_t folds = e->fold_count, labels = e->label_count;
    size_t pending = e->pending.len;
    int errors = e->diags->count;
    while (e->fold_count > folds || (e->i < e->end && peek(e)->kind != WAT_RPAR)) {
        uint32_t start = e->i;
        if (e->full || e->diags->more)
            return unwind(e, folds, labels, pending);
        if (take_next(e, folds, labels) < 0)
            recover(e, start, folds);
    }
    /* After an error, a block may seem to be open that is not. */
    if (e->diags->count > errors || check_blocks_closed(e, labels) < 0)
        return unwind(e, folds, labels, pending);
    return 0;
}

int take_folded(struct enc *e) {
    uint32_t folds = e->fold_count, labels = e->label_count;
    size_t pending = e->pending.len;
    if (peek(e)->kind != WAT_LPAR)
        return expected(e, "an instruction in parentheses");
    do {
        if (e->full || take_next(e, folds, labels) < 0)
            return unwind(e, folds, labels, pending);
    } while (e->fold_count > folds);
    return 0;
}
