/* Reads and encodes the immediates of instructions. */
#include <stdlib.h>
#include <string.h>

#include "wasm/text/wat_enc.h"
#include "wasm/text/wat_imm.h"
#include "wasm/text/wat_num.h"

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

int wat_imm_index(struct enc *e, enum wat_space space, struct buf *b) {
    uint32_t index;
    if (take_index(e, space, &index) < 0)
        return -1;
    put_u(e, b, index);
    return 0;
}

/* Encodes an index that may be left out; the default is 0. */
static int imm_default(struct enc *e, enum wat_space space, struct buf *b) {
    if (at_index(e))
        return wat_imm_index(e, space, b);
    put_u(e, b, 0);
    return 0;
}

/* Encodes two indices, destination and source: both or neither are given. */
static int imm_pair(struct enc *e, enum wat_space space, struct buf *b) {
    bool given = at_index(e);
    if (imm_default(e, space, b) < 0)
        return -1;
    return given ? wat_imm_index(e, space, b) : imm_default(e, space, b);
}

/* For memory.init and table.init: `x? y` in text, y then x in the binary. */
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

int wat_imm_label(struct enc *e, struct buf *b) {
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
        if (wat_imm_label(e, b) < 0)
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

/* True if the next token is `key=value` with this key. */
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
    return status == WAT_NUM_OK
               ? 0
               : error_at(e, tok, "unknown operator: write a number after `%s`", key);
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

/* Encodes `offset=` and `align=`, after the optional memory index. */
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

/* The lane comes last, so the first number is a memory index only if another number follows. */
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
    if (status == WAT_NUM_RANGE) {
        error_at(e, tok, "%s constant out of range: %.*s", type, len, s);
        return strcmp(type, "i32") == 0 ? wat_hint(e->diags, "larger numbers are i64") : -1;
    }
    error_at(e, tok, "unknown operator or unexpected token `%.*s`: expected an %s number", len, s,
             type);
    hint_number(e, tok, type);
    return -1;
}

static void put_fixed(struct enc *e, struct buf *b, uint64_t value, unsigned bits) {
    for (unsigned i = 0; i < bits; i += 8)
        put_byte(e, b, (unsigned)(value >> i & 0xff));
}

/* Takes one number of a type: "i8" … "i64", "f32", "f64". */
static int wat_imm_take_number(struct enc *e, const char *type, unsigned bits, uint64_t *ret) {
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
    if (wat_imm_take_number(e, bits == 32 ? "i32" : "i64", bits, &value) < 0)
        return -1;
    put_s(e, b, bits == 32 ? (int64_t)(int32_t)(uint32_t)value : (int64_t)value);
    return 0;
}

static int imm_float(struct enc *e, unsigned bits, struct buf *b) {
    uint64_t value;
    if (wat_imm_take_number(e, bits == 32 ? "f32" : "f64", bits, &value) < 0)
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
        if (wat_imm_take_number(e, shapes[s].type, shapes[s].bits, &value) < 0)
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
    error_at(e, tok, "unknown field $%s of type %u", wat_sym_name(e->t, tok->link), type);
    return wat_hint(e->diags, "a field has a name if the type gives it one: `(field $%s i32)`",
                    wat_sym_name(e->t, tok->link));
}

/* Encodes a cast between two reference types: flags, label, heap types. */
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
    return wat_imm_index(e, first, b) < 0 ? -1 : wat_imm_index(e, second, b);
}

static int imm_count(struct enc *e, struct buf *b) {
    uint32_t count;
    if (wat_imm_index(e, WAT_TYPES, b) < 0 || take_u32(e, "a count", &count) < 0)
        return -1;
    put_u(e, b, count);
    return 0;
}

/* clang-format off: a table in the shape of a switch. */
int wat_take_immediate(struct enc *e, enum wasm_op op, struct buf *b) {
    switch ((enum wasm_imm)wasm_ops[op].imm) {
    case IMM_NONE:
        return 0;
    case IMM_LABEL:
        return wat_imm_label(e, b);
    case IMM_BR_TABLE:
        return imm_br_table(e, b);
    case IMM_FUNC:
        return wat_imm_index(e, WAT_FUNCS, b);
    case IMM_CALL_INDIRECT:
        return imm_call_indirect(e, b);
    case IMM_TYPE:
        return wat_imm_index(e, WAT_TYPES, b);
    case IMM_TAG:
        return wat_imm_index(e, WAT_TAGS, b);
    case IMM_LOCAL:
        return wat_imm_index(e, WAT_LOCALS, b);
    case IMM_GLOBAL:
        return wat_imm_index(e, WAT_GLOBALS, b);
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
        return wat_imm_index(e, WAT_DATAS, b);
    case IMM_DATA_MEM:
        e->needs_data_count = true;
        return imm_segment(e, WAT_DATAS, WAT_MEMORIES, b);
    case IMM_ELEM:
        return wat_imm_index(e, WAT_ELEMS, b);
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
    /* The functions for these instructions write the opcode themselves. */
    case IMM_BLOCK:
    case IMM_TRY_TABLE:
    case IMM_SELECT:
    case IMM_REFTYPE:
        break;
    }
    return 0;
}
/* clang-format on */
