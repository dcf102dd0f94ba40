/*
 * Instructions of the text format, flat and folded.
 *
 * A folded instruction is written after its operands, so its bytes wait in
 * enc.pending while they are read. Nesting lives in two lists on the heap, folds
 * and labels: the native stack does not grow with the depth of the text.
 */
#include "wasm/text/wat_enc.h"

#include <stdlib.h>
#include <string.h>

#include "base/banned.h"
#include "wasm/text/wat_num.h"

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

static int take_label(struct enc *e, uint32_t *ret) {
    const struct wat_token *tok = peek(e);
    if (tok->kind != WAT_ID)
        return take_u32(e, "a label", ret);
    uint32_t at = e->t->syms[tok->link].index[WAT_LABELS];
    e->i++;
    if (at)
        return *ret = e->label_count - at, 0;
    error_at(e, tok, "unknown label $%s", wat_sym_name(e->t, tok->link));
    hint_name(e, WAT_LABELS, tok);
    *ret = 0;
    return 0;
}

/* The optional name after block, loop, if, try_table: symbol + 1. */
static uint32_t take_label_name(struct enc *e) {
    if (peek(e)->kind != WAT_ID)
        return 0;
    return e->t->tokens[e->i++].link + 1;
}

/* --- immediates --- */

static int imm_index(struct enc *e, enum wat_space space, struct buf *b) {
    uint32_t index;
    if (take_index(e, space, &index) < 0)
        return -1;
    put_u(e, b, index);
    return 0;
}

/* An index that may be left out and is 0 then. */
static int imm_default(struct enc *e, enum wat_space space, struct buf *b) {
    if (at_index(e))
        return imm_index(e, space, b);
    put_u(e, b, 0);
    return 0;
}

/* Both indices or neither: destination and source. */
static int imm_pair(struct enc *e, enum wat_space space, struct buf *b) {
    bool given = at_index(e);
    if (imm_default(e, space, b) < 0)
        return -1;
    return given ? imm_index(e, space, b) : imm_default(e, space, b);
}

/* `x? y` in text, y then x in bytes: memory.init, table.init. */
static int imm_segment(struct enc *e, enum wat_space segments, enum wat_space space,
                       struct buf *b) {
    uint32_t first = e->i, segment, target = 0;
    if (!at_index(e))
        return expected(e, segments == WAT_DATAS ? "a data index" : "an element index");
    e->i++;
    bool both = at_index(e);
    e->i = first;
    if (both && take_index(e, space, &target) < 0)
        return -1;
    if (take_index(e, segments, &segment) < 0)
        return -1;
    put_u(e, b, segment);
    put_u(e, b, target);
    return 0;
}

static int imm_label(struct enc *e, struct buf *b) {
    uint32_t depth;
    if (take_label(e, &depth) < 0)
        return -1;
    put_u(e, b, depth);
    return 0;
}

static int imm_br_table(struct enc *e, struct buf *b) {
    uint32_t count = 0;
    for (uint32_t i = e->i;; i++, count++) {
        const struct wat_token *tok = &e->t->tokens[i];
        bool number =
            tok->kind == WAT_ATOM && e->t->src[tok->pos] >= '0' && e->t->src[tok->pos] <= '9';
        if (tok->kind != WAT_ID && !number)
            break;
    }
    if (count == 0)
        return expected(e, "a label");
    put_u(e, b, count - 1);
    for (; count > 0; count--)
        if (imm_label(e, b) < 0)
            return -1;
    return 0;
}

static int imm_call_indirect(struct enc *e, struct buf *b) {
    uint32_t table = 0, type;
    if (e->spec >= 20 && at_index(e) && take_index(e, WAT_TABLES, &table) < 0)
        return -1;
    if (take_type_use(e, false, &type) < 0)
        return -1;
    put_u(e, b, type);
    put_u(e, b, table);
    return 0;
}

/* `key=value`: the value of an atom with this prefix. False when there is none. */
static bool at_keyed(const struct enc *e, const char *key) {
    const struct wat_token *tok = peek(e);
    size_t n = strlen(key);
    return tok->kind == WAT_ATOM && tok->len > n && !memcmp(e->t->src + tok->pos, key, n);
}

static int take_keyed(struct enc *e, const char *key, uint64_t max, uint64_t *ret) {
    const struct wat_token *tok = peek(e);
    size_t n = strlen(key);
    enum wat_num status = wat_unsigned(e->t->src + tok->pos + n, tok->len - n, max, ret);
    e->i++;
    if (status == WAT_NUM_RANGE)
        return error_at(e, tok, "constant out of range in `%.*s`", (int)tok->len,
                        e->t->src + tok->pos);
    return status == WAT_NUM_OK ? 0 : error_at(e, tok, "unknown operator: %sN wants a number", key);
}

static int take_align(struct enc *e, unsigned *ret) {
    const struct wat_token *tok = peek(e);
    uint64_t align;
    if (take_keyed(e, "align=", UINT64_MAX, &align) < 0)
        return -1;
    if (align == 0 || (align & (align - 1)))
        return error_at(e, tok, "alignment must be a power of two");
    *ret = (unsigned)__builtin_ctzll(align);
    return 0;
}

/* After the optional memory index: offset=, align=. */
static int put_memarg(struct enc *e, enum wasm_op op, uint32_t memory, struct buf *b) {
    uint64_t offset = 0;
    unsigned align = wasm_ops[op].align;
    uint64_t most = e->spec >= 30 ? UINT64_MAX : UINT32_MAX;
    if (at_keyed(e, "offset=") && take_keyed(e, "offset=", most, &offset) < 0)
        return -1;
    if (at_keyed(e, "align=") && take_align(e, &align) < 0)
        return -1;
    if (at_keyed(e, "offset="))
        return expected(e, "`offset=` before `align=`");
    put_u(e, b, align | (memory ? 0x40 : 0));
    if (memory)
        put_u(e, b, memory);
    put_u(e, b, offset);
    return 0;
}

static int imm_memarg(struct enc *e, enum wasm_op op, struct buf *b) {
    uint32_t memory = 0;
    if (e->spec >= 30 && at_index(e) && take_index(e, WAT_MEMORIES, &memory) < 0)
        return -1;
    return put_memarg(e, op, memory, b);
}

static int imm_lane(struct enc *e, struct buf *b) {
    uint64_t lane;
    if (take_unsigned(e, "a lane index", UINT8_MAX, &lane) < 0)
        return -1;
    put_byte(e, b, (unsigned)lane);
    return 0;
}

/* The lane comes last, so a first number is the memory only when something follows it. */
static int imm_memarg_lane(struct enc *e, enum wasm_op op, struct buf *b) {
    uint32_t memory = 0;
    if (e->spec >= 30 && at_index(e)) {
        const struct wat_token *next = peek(e) + 1;
        bool more = next->kind == WAT_ATOM && strchr("0123456789oa", e->t->src[next->pos]) &&
                    find_op(e, e->t->src + next->pos, next->len) == OP_COUNT;
        if ((peek(e)->kind == WAT_ID || more) && take_index(e, WAT_MEMORIES, &memory) < 0)
            return -1;
    }
    return put_memarg(e, op, memory, b) < 0 ? -1 : imm_lane(e, b);
}

static int imm_shuffle(struct enc *e, struct buf *b) {
    for (int i = 0; i < 16; i++) {
        if (peek(e)->kind != WAT_ATOM)
            return error_at(e, peek(e),
                            "invalid lane length: i8x16.shuffle takes 16 lane "
                            "numbers, found %d",
                            i);
        if (imm_lane(e, b) < 0)
            return -1;
    }
    return 0;
}

static int bad_number(struct enc *e, const struct wat_token *tok, enum wat_num status,
                      const char *type) {
    const char *s = e->t->src + tok->pos;
    int len = tok->kind == WAT_EOF ? 0 : (int)(tok->len < 40 ? tok->len : 40);
    if (status == WAT_NUM_RANGE)
        return error_at(e, tok, "%s constant out of range: %.*s", type, len, s);
    return error_at(e, tok, "unknown operator or unexpected token `%.*s`: expected an %s number",
                    len, s, type);
}

static void put_fixed(struct enc *e, struct buf *b, uint64_t value, unsigned bits) {
    for (unsigned i = 0; i < bits; i += 8)
        put_byte(e, b, (unsigned)(value >> i & 0xff));
}

/* One number of a type: "i8" … "i64", "f32", "f64". */
static int take_number(struct enc *e, const char *type, unsigned bits, uint64_t *ret) {
    const struct wat_token *tok = peek(e);
    const char *s = e->t->src + tok->pos;
    enum wat_num status = WAT_NUM_SYNTAX;
    if (tok->kind == WAT_ATOM)
        status =
            type[0] == 'f' ? wat_float(s, tok->len, bits, ret) : wat_int(s, tok->len, bits, ret);
    if (status != WAT_NUM_OK)
        return bad_number(e, tok, status, type);
    e->i++;
    return 0;
}

static int imm_int(struct enc *e, unsigned bits, struct buf *b) {
    uint64_t value;
    if (take_number(e, bits == 32 ? "i32" : "i64", bits, &value) < 0)
        return -1;
    put_s(e, b, bits == 32 ? (int64_t)(int32_t)(uint32_t)value : (int64_t)value);
    return 0;
}

static int imm_float(struct enc *e, unsigned bits, struct buf *b) {
    uint64_t value;
    if (take_number(e, bits == 32 ? "f32" : "f64", bits, &value) < 0)
        return -1;
    put_fixed(e, b, value, bits);
    return 0;
}

static const struct {
    const char *word, *type;
    unsigned bits;
} shapes[] = {
    {"i8x16", "i8", 8},   {"i16x8", "i16", 16}, {"i32x4", "i32", 32},
    {"i64x2", "i64", 64}, {"f32x4", "f32", 32}, {"f64x2", "f64", 64},
};

static int imm_v128(struct enc *e, struct buf *b) {
    size_t s = 0;
    while (s < sizeof(shapes) / sizeof(*shapes) && !take_word(e, shapes[s].word))
        s++;
    if (s == sizeof(shapes) / sizeof(*shapes))
        return expected(e, "a shape: i8x16, i16x8, i32x4, i64x2, f32x4 or f64x2");
    for (unsigned at = 0; at < 128; at += shapes[s].bits) {
        uint64_t value;
        if (peek(e)->kind == WAT_RPAR)
            return error_at(e, peek(e), "wrong number of lane literals: %s has %u lanes, found %u",
                            shapes[s].word, 128 / shapes[s].bits, at / shapes[s].bits);
        if (take_number(e, shapes[s].type, shapes[s].bits, &value) < 0)
            return -1;
        put_fixed(e, b, value, shapes[s].bits);
    }
    return 0;
}

static int imm_field(struct enc *e, struct buf *b) {
    uint32_t type, field;
    if (take_index(e, WAT_TYPES, &type) < 0)
        return -1;
    put_u(e, b, type);
    const struct wat_token *tok = peek(e);
    if (tok->kind != WAT_ID) {
        if (take_u32(e, "a field index", &field) < 0)
            return -1;
        return put_u(e, b, field), 0;
    }
    e->i++;
    const struct type_def *def = type < e->type_count ? &e->types[type] : NULL;
    for (uint32_t i = def ? def->field_first : 0; def && i < def->field_end; i++)
        if (e->fields[i].sym == tok->link)
            return put_u(e, b, e->fields[i].index), 0;
    return error_at(e, tok, "unknown field $%s of type %u", wat_sym_name(e->t, tok->link), type);
}

/* Two reference types: flags, label, heap types. */
static int imm_cast(struct enc *e, struct buf *b) {
    uint32_t label;
    bool from, to;
    struct buf heaps = BUF(32);
    int r = take_label(e, &label);
    if (r == 0)
        r = take_ref_parts(e, &heaps, &from);
    if (r == 0)
        r = take_ref_parts(e, &heaps, &to);
    if (r == 0) {
        put_byte(e, b, (from ? 1u : 0) | (to ? 2u : 0));
        put_u(e, b, label);
        put_bytes(e, b, heaps.data, heaps.len);
    }
    buf_done(&heaps);
    return r;
}

static int imm_two(struct enc *e, enum wat_space first, enum wat_space second, struct buf *b) {
    return imm_index(e, first, b) < 0 ? -1 : imm_index(e, second, b);
}

static int imm_count(struct enc *e, struct buf *b) {
    uint32_t count;
    if (imm_index(e, WAT_TYPES, b) < 0 || take_u32(e, "a count", &count) < 0)
        return -1;
    put_u(e, b, count);
    return 0;
}

/* clang-format off: a table in the shape of a switch. */
static int take_immediate(struct enc *e, enum wasm_op op, struct buf *b) {
    switch ((enum wasm_imm)wasm_ops[op].imm) {
    case IMM_NONE:
        return 0;
    case IMM_LABEL:
        return imm_label(e, b);
    case IMM_BR_TABLE:
        return imm_br_table(e, b);
    case IMM_FUNC:
        return imm_index(e, WAT_FUNCS, b);
    case IMM_CALL_INDIRECT:
        return imm_call_indirect(e, b);
    case IMM_TYPE:
        return imm_index(e, WAT_TYPES, b);
    case IMM_TAG:
        return imm_index(e, WAT_TAGS, b);
    case IMM_LOCAL:
        return imm_index(e, WAT_LOCALS, b);
    case IMM_GLOBAL:
        return imm_index(e, WAT_GLOBALS, b);
    case IMM_TABLE:
        return imm_default(e, WAT_TABLES, b);
    case IMM_MEM:
        return e->spec >= 30 ? imm_default(e, WAT_MEMORIES, b) : (put_u(e, b, 0), 0);
    case IMM_MEM2:
        return e->spec >= 30 ? imm_pair(e, WAT_MEMORIES, b) : (put_u(e, b, 0), put_u(e, b, 0), 0);
    case IMM_TABLE2:
        return imm_pair(e, WAT_TABLES, b);
    case IMM_MEMARG:
        return imm_memarg(e, op, b);
    case IMM_MEMARG_LANE:
        return imm_memarg_lane(e, op, b);
    case IMM_LANE:
        return imm_lane(e, b);
    case IMM_SHUFFLE:
        return imm_shuffle(e, b);
    case IMM_I32:
        return imm_int(e, 32, b);
    case IMM_I64:
        return imm_int(e, 64, b);
    case IMM_F32:
        return imm_float(e, 32, b);
    case IMM_F64:
        return imm_float(e, 64, b);
    case IMM_V128:
        return imm_v128(e, b);
    case IMM_DATA:
        e->needs_data_count = true;
        return imm_index(e, WAT_DATAS, b);
    case IMM_DATA_MEM:
        e->needs_data_count = true;
        return imm_segment(e, WAT_DATAS, WAT_MEMORIES, b);
    case IMM_ELEM:
        return imm_index(e, WAT_ELEMS, b);
    case IMM_ELEM_TABLE:
        return imm_segment(e, WAT_ELEMS, WAT_TABLES, b);
    case IMM_HEAPTYPE:
        return take_heap_type(e, b);
    case IMM_TYPE_FIELD:
        return imm_field(e, b);
    case IMM_TYPE_N:
        return imm_count(e, b);
    case IMM_TYPE2:
        return imm_two(e, WAT_TYPES, WAT_TYPES, b);
    case IMM_TYPE_DATA:
        e->needs_data_count = true;
        return imm_two(e, WAT_TYPES, WAT_DATAS, b);
    case IMM_TYPE_ELEM:
        return imm_two(e, WAT_TYPES, WAT_ELEMS, b);
    case IMM_CAST:
        return imm_cast(e, b);
    /* These write their opcode themselves. */
    case IMM_BLOCK:
    case IMM_TRY_TABLE:
    case IMM_SELECT:
    case IMM_REFTYPE:
        break;
    }
    return 0;
}
/* clang-format on */

/* --- instructions with an opcode that depends on what follows --- */

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

/* Opcode and immediates of anything but a block. */
static int take_plain(struct enc *e, enum wasm_op op, struct buf *b) {
    e->i++;
    if (op == OP_SELECT)
        return take_select(e, b);
    if (wasm_ops[op].imm == IMM_REFTYPE)
        return take_ref_test(e, op, b);
    put_op(e, b, op);
    return take_immediate(e, op, b);
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
        if (catches[i].has_tag && imm_index(e, WAT_TAGS, b) < 0)
            return -1;
        return imm_label(e, b) < 0 ? -1 : take_close(e);
    }
    return 0;
}

/* Catch clauses name labels outside of the block they belong to. */
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

/* `block $l type`: opcode and type to b, the name as symbol + 1 to the caller. */
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

/* --- flat --- */

static int open_flat(struct enc *e, enum wasm_op op) {
    uint32_t name, token = e->i;
    if (take_block_head(e, op, &e->out->bytes, &name) < 0)
        return -1;
    push_label(e, name, token, true, op == OP_IF);
    return 0;
}

/* The label repeated after `else` or `end` must be the block's own. */
static int check_repeated(struct enc *e, const struct label *l) {
    const struct wat_token *tok = peek(e);
    if (tok->kind != WAT_ID)
        return 0;
    e->i++;
    if (l->sym == tok->link + 1)
        return 0;
    error_at(e, tok, "mismatching label $%s", wat_sym_name(e->t, tok->link));
    return wat_hint(e->diags, "this closes `%.*s %s%s`", (int)e->t->tokens[l->token].len,
                    e->t->src + e->t->tokens[l->token].pos, l->sym ? "$" : "without a label",
                    l->sym ? wat_sym_name(e->t, l->sym - 1) : "");
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
    if (tok->kind != WAT_ATOM)
        return expected(e, "an instruction");
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

/* --- folded --- */

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

/* At '(' of a folded instruction. */
static int open_folded(struct enc *e) {
    const struct wat_token *tok = peek(e) + 1;
    enum wasm_op op = op_at(e, tok);
    e->i++;
    if (op == OP_COUNT || op == OP_ELSE || op == OP_END)
        return unknown_instruction(e, tok);
    if (op == OP_IF)
        return open_folded_if(e);
    if (is_block(op))
        return open_folded_block(e, op);
    return push_fold(e, FOLD_PLAIN, e->i) ? take_plain(e, op, &e->pending) : -1;
}

/* Write what waited since the fold was opened. */
static void flush_pending(struct enc *e, const struct fold *f) {
    mark(e, e->out, e->t->tokens[f->token].pos);
    if (e->pending.len > f->pending)
        put_bytes(e, &e->out->bytes, e->pending.data + f->pending, e->pending.len - f->pending);
    e->pending.len = f->pending;
}

/* `(then …)` and `(else …)` of a folded if. */
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
    return f->kind == FOLD_IF ? open_folded(e) : expected(e, "`)` or one `(else …)`");
}

static int check_blocks_closed(struct enc *e, uint32_t labels) {
    if (e->label_count <= labels)
        return 0;
    const struct wat_token *tok = &e->t->tokens[e->labels[e->label_count - 1].token];
    error_at(e, tok, "unexpected token `)`: this `%.*s` has no `end`", (int)tok->len,
             e->t->src + tok->pos);
    return wat_hint(e->diags, "add `end`, or write it folded: `(%.*s …)`", (int)tok->len,
                    e->t->src + tok->pos);
}

/* At the ')' of the innermost fold. */
static int close_fold(struct enc *e) {
    struct fold *f = &e->folds[e->fold_count - 1];
    bool has_label = f->kind == FOLD_BLOCK || f->kind == FOLD_IF_DONE;
    if (f->kind == FOLD_IF) {
        expected(e, "`(then …)`");
        return wat_hint(e->diags, "a folded if is `(if (condition) (then …) (else …))`");
    }
    if (check_blocks_closed(e, f->labels + has_label) < 0)
        return -1;
    if (f->kind == FOLD_PLAIN)
        flush_pending(e, f);
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
    if (f && f->kind == FOLD_PLAIN)
        return expected(e, "`)` or an operand in parentheses");
    if (f && (f->kind == FOLD_IF || f->kind == FOLD_IF_DONE))
        return expected(e, f->kind == FOLD_IF ? "the condition in parentheses or `(then …)`"
                                              : "`(else …)` or `)`");
    return take_flat(e, label_floor);
}

/* Names of labels must not outlive an expression that failed. */
static int unwind(struct enc *e, uint32_t folds, uint32_t labels, size_t pending) {
    while (e->label_count > labels)
        pop_label(e);
    e->fold_count = folds;
    e->pending.len = pending;
    return -1;
}

int take_instructions(struct enc *e) {
    uint32_t folds = e->fold_count, labels = e->label_count;
    size_t pending = e->pending.len;
    while (e->fold_count > folds || (e->i < e->end && peek(e)->kind != WAT_RPAR))
        if (e->full || take_next(e, folds, labels) < 0)
            return unwind(e, folds, labels, pending);
    if (check_blocks_closed(e, labels) < 0)
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
