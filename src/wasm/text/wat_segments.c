/* Encodes tables and the segments of elements and data. */

#include "wasm/text/wat.h"
#include "wasm/text/wat_enc.h"
#include "wasm/text/wat_inner.h"

/* Encodes `(word instr*)`, or one folded instruction. */
static int put_wrapped(struct enc *e, struct part *p, const char *word) {
    if (!take_open(e, word))
        return wat_put_instructions(e, p, true);
    return wat_put_instructions(e, p, false) < 0 ? -1 : take_close(e);
}

/* --- element segments --- */

enum segment_mode { SEGMENT_ACTIVE, SEGMENT_PASSIVE, SEGMENT_DECLARED };

struct segment {
    enum segment_mode mode;
    uint32_t table;
    struct part offset;  /* offset expression of an active segment */
    bool is_expressions; /* items are expressions, else function indices */
    struct buf type;     /* reference type of the expressions */
    struct part items;
    uint32_t count;
};

#define SEGMENT()                                                         \
    {                                                                     \
        .offset = {.bytes = BUF(MAX_BINARY)}, .type = BUF(16), .items = { \
            .bytes = BUF(MAX_BINARY)                                      \
        }                                                                 \
    }

static void segment_done(struct segment *s) {
    wat_part_done(&s->offset);
    buf_done(&s->type);
    wat_part_done(&s->items);
}

static bool is_funcref(const struct segment *s) {
    return s->type.len == 1 && (uint8_t)s->type.data[0] == 0x70;
}

/* Encodes function indices; in a segment of expressions each becomes `(ref.func x)`. */
static int take_function_items(struct enc *e, struct segment *s) {
    for (; at_index(e); s->count++) {
        uint32_t index;
        if (take_index(e, WAT_FUNCS, &index) < 0)
            return -1;
        if (s->is_expressions)
            put_byte(e, &s->items.bytes, 0xd2);
        put_u(e, &s->items.bytes, index);
        if (s->is_expressions)
            put_byte(e, &s->items.bytes, 0x0b);
    }
    return 0;
}

static int take_expression_items(struct enc *e, struct segment *s) {
    s->is_expressions = true;
    for (; peek(e)->kind == WAT_LPAR; s->count++)
        if (put_wrapped(e, &s->items, "item") < 0)
            return -1;
    return 0;
}

/*
 * Encodes `func x*` or `reftype expr*`; with `bare`, where the table is implied, also plain `x*`.
 */
static int take_items(struct enc *e, struct segment *s, bool bare) {
    if (e->spec >= 20 && take_word(e, "func"))
        return take_function_items(e, s);
    if (e->spec >= 20 && at_ref_type(e))
        return take_ref_type(e, &s->type) < 0 ? -1 : take_expression_items(e, s);
    if (bare)
        return take_function_items(e, s);
    return expected(e, "`func` or a reference type like `funcref`");
}

/* Flags: bit 0: not active; bit 1: a table is given, or declared; bit 2: expressions. */
static unsigned segment_flags(const struct segment *s) {
    unsigned flags = s->is_expressions ? 4 : 0;
    if (s->mode == SEGMENT_PASSIVE)
        return flags | 1;
    if (s->mode == SEGMENT_DECLARED)
        return flags | 3;
    return flags | (s->table || (s->is_expressions && !is_funcref(s)) ? 2 : 0);
}

static void put_segment(struct enc *e, struct segment *s) {
    struct part *p = &e->part[SEC_ELEM];
    unsigned flags = segment_flags(s);
    put_u(e, &p->bytes, flags);
    if (s->mode == SEGMENT_ACTIVE && (flags & 2))
        put_u(e, &p->bytes, s->table);
    wat_append_part(e, p, &s->offset);
    if (flags & 3) {
        if (s->is_expressions)
            put_bytes(e, &p->bytes, s->type.data, s->type.len);
        else
            put_byte(e, &p->bytes, 0);
    }
    put_u(e, &p->bytes, s->count);
    wat_append_part(e, p, &s->items);
    p->items++;
}

/* In WebAssembly 1.0 a segment has no name: the first name or number is that of the table. */
static int take_target(struct enc *e, const char *word, enum wat_space space, uint32_t *ret,
                       bool *given) {
    *given = false;
    if (e->spec >= 20 && take_open(e, word)) {
        *given = true;
        return take_index(e, space, ret) < 0 ? -1 : take_close(e);
    }
    if (at_index(e) && (e->spec < 20 || peek(e)->kind == WAT_ATOM))
        return take_index(e, space, ret);
    return 0;
}

static int take_segment(struct enc *e, struct segment *s) {
    bool given;
    if (e->spec >= 20 && take_word(e, "declare")) {
        s->mode = SEGMENT_DECLARED;
        return take_items(e, s, false);
    }
    if (take_target(e, "table", WAT_TABLES, &s->table, &given) < 0)
        return -1;
    bool is_offset = peek(e)->kind == WAT_LPAR && !at_ref_type(e);
    if (!given && !is_offset && e->spec >= 20) {
        s->mode = SEGMENT_PASSIVE;
        return take_items(e, s, false);
    }
    if (put_wrapped(e, &s->offset, "offset") < 0)
        return -1;
    return take_items(e, s, !given);
}

int wat_define_elem(struct enc *e) {
    struct segment s = SEGMENT();
    e->i += 2;
    mark(e, &e->part[SEC_ELEM], peek(e)->pos);
    if (e->spec >= 20 && peek(e)->kind == WAT_ID)
        e->i++;
    e->counts[WAT_ELEMS]++;
    int r = take_segment(e, &s);
    put_segment(e, &s);
    segment_done(&s);
    return r < 0 ? -1 : take_close(e);
}

/* --- tables --- */

/* Encodes `reftype (elem …)` of a table, which is then as large as its elements. */
static int put_inline_elem(struct enc *e, uint32_t index, bool is64) {
    struct segment s = SEGMENT();
    struct buf *b = &e->part[SEC_TABLE].bytes;
    int r = take_ref_type(e, &s.type);
    put_bytes(e, b, s.type.data, s.type.len);
    if (r == 0 && !take_open(e, "elem"))
        r = expected(e, "`(elem …)`");
    s.is_expressions = !is_funcref(&s);
    if (r == 0)
        r = e->spec >= 20 && peek(e)->kind == WAT_LPAR ? take_expression_items(e, &s)
                                                       : take_function_items(e, &s);
    uint64_t size = s.count;
    wat_put_limits(e, b, is64, size, &size);
    s.table = index;
    put_byte(e, &s.offset.bytes, is64 ? 0x42 : 0x41);
    put_bytes(e, &s.offset.bytes, "\0\x0b", 2);
    put_segment(e, &s);
    e->counts[WAT_ELEMS]++;
    segment_done(&s);
    return r < 0 ? -1 : take_close(e);
}

int wat_define_table(struct enc *e, uint32_t index) {
    struct part *p = &e->part[SEC_TABLE];
    mark(e, p, peek(e)->pos);
    p->items++;
    uint32_t start = e->i;
    bool is64 = wat_take_address_type(e);
    if (at_ref_type(e))
        return put_inline_elem(e, index, is64);
    e->i = start;
    struct buf type = BUF(48);
    int r = wat_take_table_type(e, &type);
    bool has_init = r == 0 && e->spec >= 30 && peek(e)->kind != WAT_RPAR;
    if (has_init)
        put_bytes(e, &p->bytes, "\x40\0", 2);
    put_bytes(e, &p->bytes, type.data, type.len);
    buf_done(&type);
    return has_init ? wat_put_instructions(e, p, false) : r;
}

/* --- data segments --- */

static int take_data(struct enc *e, struct part *p) {
    uint32_t memory = 0;
    bool given;
    if (take_target(e, "memory", WAT_MEMORIES, &memory, &given) < 0)
        return -1;
    if (!given && peek(e)->kind != WAT_LPAR && e->spec >= 20) {
        put_u(e, &p->bytes, 1);
        return 0;
    }
    put_u(e, &p->bytes, memory ? 2 : 0);
    if (memory)
        put_u(e, &p->bytes, memory);
    return put_wrapped(e, p, "offset");
}

int wat_define_data(struct enc *e) {
    struct part *p = &e->part[SEC_DATA];
    e->i += 2;
    mark(e, p, peek(e)->pos);
    if (e->spec >= 20 && peek(e)->kind == WAT_ID)
        e->i++;
    e->counts[WAT_DATAS]++;
    p->items++;
    if (take_data(e, p) < 0)
        return -1;
    struct buf bytes = BUF(MAX_BINARY);
    wat_take_strings(e, &bytes);
    put_name(e, &p->bytes, &bytes);
    buf_done(&bytes);
    return take_close(e);
}
