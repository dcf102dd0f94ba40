/* Module fields of the text format, and the sections they become. */
#include "wasm/text/wat.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"
#include "wasm/text/wat_enc.h"
#include "wasm/text/wat_num.h"

enum { MAX_BINARY = 512 << 20, PAGE = 65536 };

/* --- bytes --- */

void put_bytes(struct enc *e, struct buf *b, const void *bytes, size_t len) {
    if (!buf_add(b, bytes, len))
        e->full = true;
}

void put_byte(struct enc *e, struct buf *b, unsigned byte) {
    put_bytes(e, b, &(uint8_t){(uint8_t)byte}, 1);
}

void put_u(struct enc *e, struct buf *b, uint64_t value) {
    for (; value >= 0x80; value >>= 7)
        put_byte(e, b, (value & 0x7f) | 0x80);
    put_byte(e, b, (unsigned)value);
}

void put_s(struct enc *e, struct buf *b, int64_t value) {
    for (; value < -0x40 || value >= 0x40; value >>= 7)
        put_byte(e, b, (unsigned)(value & 0x7f) | 0x80);
    put_byte(e, b, (unsigned)(value & 0x7f));
}

void put_name(struct enc *e, struct buf *b, const struct buf *name) {
    put_u(e, b, name->len);
    put_bytes(e, b, name->data, name->len);
}

bool grow_list(void *list_ptr, size_t item, uint32_t count, uint32_t *room) {
    if (count < *room)
        return true;
    void **list = list_ptr;
    uint32_t more = *room ? *room * 2 : 16;
    void *moved = realloc(*list, more * item);
    if (!moved)
        return false;
    *list = moved;
    *room = more;
    return true;
}

static void add_place(struct enc *e, struct part *p, uint32_t offset, uint32_t pos) {
    if (!grow_list(&p->map, sizeof(*p->map), p->map_count, &p->map_room)) {
        e->full = true;
        return;
    }
    p->map[p->map_count++] = (struct wat_place){.offset = offset, .pos = pos};
}

void mark(struct enc *e, struct part *p, uint32_t pos) {
    add_place(e, p, (uint32_t)p->bytes.len, pos);
}

/* Append bytes and places of one part to another, and empty the first. */
static void append_part(struct enc *e, struct part *to, struct part *from) {
    uint32_t base = (uint32_t)to->bytes.len;
    for (uint32_t i = 0; i < from->map_count; i++)
        add_place(e, to, base + from->map[i].offset, from->map[i].pos);
    put_bytes(e, &to->bytes, from->bytes.data, from->bytes.len);
    from->bytes.len = 0;
    from->map_count = 0;
}

static void part_done(struct part *p) {
    buf_done(&p->bytes);
    free(p->map);
}

/* --- tokens --- */

static bool is_word(const struct enc *e, uint32_t i, const char *word) {
    return i < e->t->count && wat_is(e->t, &e->t->tokens[i], word);
}

bool at_word(const struct enc *e, const char *word) {
    return is_word(e, e->i, word);
}

bool at_open(const struct enc *e, const char *word) {
    return peek(e)->kind == WAT_LPAR && is_word(e, e->i + 1, word);
}

bool take_word(struct enc *e, const char *word) {
    bool found = at_word(e, word);
    e->i += found;
    return found;
}

bool take_open(struct enc *e, const char *word) {
    bool found = at_open(e, word);
    e->i += found ? 2 : 0;
    return found;
}

int error_at(struct enc *e, const struct wat_token *tok, const char *fmt, ...) {
    char text[sizeof(((struct wat_diag *)NULL)->text)];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return wat_error(e->diags, tok->pos, tok->len, "%s", text);
}

int expected(struct enc *e, const char *what) {
    const struct wat_token *tok = peek(e);
    int len = (int)(tok->len < 60 ? tok->len : 60);
    if (tok->kind == WAT_EOF)
        return error_at(e, tok, "unexpected end of the text: expected %s", what);
    error_at(e, tok, "unexpected token `%.*s`: expected %s", len, e->t->src + tok->pos, what);
    hint_expected(e, tok, what);
    return -1;
}

int take_close(struct enc *e) {
    if (peek(e)->kind != WAT_RPAR)
        return expected(e, "`)`");
    e->i++;
    return 0;
}

bool at_index(const struct enc *e) {
    const struct wat_token *tok = peek(e);
    if (tok->kind == WAT_ID)
        return true;
    char c = e->t->src[tok->pos];
    return tok->kind == WAT_ATOM && c >= '0' && c <= '9';
}

int take_unsigned(struct enc *e, const char *what, uint64_t max, uint64_t *ret) {
    const struct wat_token *tok = peek(e);
    if (tok->kind != WAT_ATOM)
        return expected(e, what);
    enum wat_num status = wat_unsigned(e->t->src + tok->pos, tok->len, max, ret);
    if (status == WAT_NUM_SYNTAX)
        return expected(e, what);
    if (status == WAT_NUM_RANGE)
        return error_at(e, tok, "i%d constant out of range: %s is at most %llu",
                        max == UINT8_MAX    ? 8
                        : max == UINT32_MAX ? 32
                                            : 64,
                        what, (unsigned long long)max);
    e->i++;
    return 0;
}

int take_u32(struct enc *e, const char *what, uint32_t *ret) {
    uint64_t value;
    if (take_unsigned(e, what, UINT32_MAX, &value) < 0)
        return -1;
    *ret = (uint32_t)value;
    return 0;
}

/* What each space calls its members, in messages. */
static const struct {
    const char *name, *index;
} spaces[WAT_SPACE_COUNT] = {
    [WAT_TYPES] = {"type", "a type index"},       [WAT_FUNCS] = {"func", "a function index"},
    [WAT_TABLES] = {"table", "a table index"},    [WAT_MEMORIES] = {"memory", "a memory index"},
    [WAT_GLOBALS] = {"global", "a global index"}, [WAT_TAGS] = {"tag", "a tag index"},
    [WAT_ELEMS] = {"elem", "an element index"},   [WAT_DATAS] = {"data", "a data index"},
    [WAT_LOCALS] = {"local", "a local index"},    [WAT_LABELS] = {"label", "a label"},
};

/* An unknown name is reported and read as 0, so that the errors after it are found too. */
int take_index(struct enc *e, enum wat_space space, uint32_t *ret) {
    const struct wat_token *tok = peek(e);
    if (tok->kind != WAT_ID)
        return take_u32(e, spaces[space].index, ret);
    e->i++;
    uint32_t index = e->t->syms[tok->link].index[space];
    *ret = index ? index - 1 : 0;
    if (index)
        return 0;
    error_at(e, tok, "unknown %s $%s", spaces[space].name, wat_sym_name(e->t, tok->link));
    hint_name(e, space, tok);
    return 0;
}

int bind_name(struct enc *e, enum wat_space space, uint32_t index) {
    const struct wat_token *tok = peek(e);
    if (tok->kind != WAT_ID)
        return 0;
    e->i++;
    uint32_t *slot = &e->t->syms[tok->link].index[space];
    if (*slot)
        return error_at(e, tok, "duplicate %s $%s", spaces[space].name,
                        wat_sym_name(e->t, tok->link));
    *slot = index + 1;
    if (space != WAT_LOCALS)
        return 0;
    if (!grow_list(&e->local_syms, sizeof(*e->local_syms), e->local_sym_count, &e->local_sym_room))
        return e->full = true, *slot = 0, -1;
    e->local_syms[e->local_sym_count++] = tok->link;
    return 0;
}

static void unbind_locals(struct enc *e) {
    while (e->local_sym_count > 0)
        e->t->syms[e->local_syms[--e->local_sym_count]].index[WAT_LOCALS] = 0;
}

static bool valid_utf8(const struct buf *b) {
    uint32_t c;
    for (size_t i = 0, used; i < b->len; i += used)
        if ((used = wat_utf8(b->data + i, b->len - i, &c)) == 0)
            return false;
    return true;
}

/* A string that names something, written length first. */
static int take_name(struct enc *e, struct buf *out) {
    const struct wat_token *tok = peek(e);
    if (tok->kind != WAT_STRING)
        return expected(e, "a name in quotes");
    struct buf name = BUF(tok->len);
    int r = 0;
    if (!wat_string(e->t, tok, &name))
        e->full = true;
    else if (!valid_utf8(&name))
        r = error_at(e, tok, "malformed UTF-8 encoding in a name");
    else
        put_name(e, out, &name);
    buf_done(&name);
    e->i++;
    return r;
}

/* Strings up to the next other token, as bytes. */
static void take_strings(struct enc *e, struct buf *out) {
    for (; peek(e)->kind == WAT_STRING; e->i++)
        if (!wat_string(e->t, peek(e), out))
            e->full = true;
}

/* --- expressions --- */

static int put_instructions(struct enc *e, struct part *p, bool folded) {
    struct part *outer = e->out;
    e->out = p;
    int r = folded ? take_folded(e) : take_instructions(e);
    mark(e, p, peek(e)->pos);
    put_byte(e, &p->bytes, 0x0b);
    e->out = outer;
    return r;
}

/* `(word instr*)`, or one folded instruction. */
static int put_wrapped(struct enc *e, struct part *p, const char *word) {
    if (!take_open(e, word))
        return put_instructions(e, p, true);
    return put_instructions(e, p, false) < 0 ? -1 : take_close(e);
}

/* --- limits and memory, table, global types --- */

static bool take_address_type(struct enc *e) {
    if (e->spec < 30)
        return false;
    bool is64 = take_word(e, "i64");
    if (!is64)
        take_word(e, "i32");
    return is64;
}

static void put_limits(struct enc *e, struct buf *b, bool is64, uint64_t min, const uint64_t *max) {
    put_byte(e, b, (max ? 1u : 0) | (is64 ? 4u : 0));
    put_u(e, b, min);
    if (max)
        put_u(e, b, *max);
}

static int take_limits(struct enc *e, struct buf *b, bool is64) {
    uint64_t most = e->spec >= 30 ? UINT64_MAX : UINT32_MAX, min, max;
    if (take_unsigned(e, "a size", most, &min) < 0)
        return -1;
    bool has_max = at_index(e) && peek(e)->kind == WAT_ATOM;
    if (has_max && take_unsigned(e, "a maximum size", most, &max) < 0)
        return -1;
    put_limits(e, b, is64, min, has_max ? &max : NULL);
    return 0;
}

static int take_table_type(struct enc *e, struct buf *b) {
    struct buf limits = BUF(32);
    bool is64 = take_address_type(e);
    int r = take_limits(e, &limits, is64);
    if (r == 0)
        r = take_ref_type(e, b);
    put_bytes(e, b, limits.data, limits.len);
    buf_done(&limits);
    return r;
}

static int take_memory_type(struct enc *e, struct buf *b) {
    bool is64 = take_address_type(e);
    return take_limits(e, b, is64);
}

static int take_global_type(struct enc *e, struct buf *b) {
    bool is_mutable = take_open(e, "mut");
    if (take_value_type(e, b) < 0)
        return -1;
    put_byte(e, b, is_mutable);
    return is_mutable ? take_close(e) : 0;
}

static int take_func_type(struct enc *e, struct buf *b) {
    uint32_t type;
    int r = take_type_use(e, true, &type);
    unbind_locals(e);
    if (r == 0)
        put_u(e, b, type);
    return r;
}

static int take_tag_type(struct enc *e, struct buf *b) {
    put_byte(e, b, 0);
    return take_func_type(e, b);
}

/* --- definitions: func, table, memory, global, tag --- */

static int define_func(struct enc *e, uint32_t index);
static int define_table(struct enc *e, uint32_t index);
static int define_memory(struct enc *e, uint32_t index);
static int define_global(struct enc *e, uint32_t index);
static int define_tag(struct enc *e, uint32_t index);

static const struct kind {
    const char *word;
    enum wat_space space;
    int level;
    int (*take_type)(struct enc *e, struct buf *b); /* in an import */
    int (*define)(struct enc *e, uint32_t index);
} kinds[] = {
    {"func", WAT_FUNCS, 10, take_func_type, define_func},
    {"table", WAT_TABLES, 10, take_table_type, define_table},
    {"memory", WAT_MEMORIES, 10, take_memory_type, define_memory},
    {"global", WAT_GLOBALS, 10, take_global_type, define_global},
    {"tag", WAT_TAGS, 30, take_tag_type, define_tag},
};
enum { KIND_COUNT = sizeof(kinds) / sizeof(*kinds) };

/* The kind whose `(word` starts here, or NULL; its number is its code in imports and exports. */
static const struct kind *kind_at(const struct enc *e) {
    for (const struct kind *k = kinds; k < kinds + KIND_COUNT; k++)
        if (k->level <= e->spec && at_open(e, k->word))
            return k;
    return NULL;
}

static unsigned kind_code(const struct kind *k) {
    return (unsigned)(k - kinds);
}

/* Locals in the form of the binary: runs of one type. */
struct locals {
    struct buf groups, last;
    uint32_t run, group_count;
};

static void end_run(struct enc *e, struct locals *l) {
    if (l->run == 0)
        return;
    put_u(e, &l->groups, l->run);
    put_bytes(e, &l->groups, l->last.data, l->last.len);
    l->group_count++;
    l->run = 0;
}

static int take_local(struct enc *e, struct locals *l) {
    struct buf type = BUF(16);
    int r = take_value_type(e, &type);
    if (r == 0) {
        if (type.len != l->last.len || memcmp(type.data, l->last.data, type.len) != 0) {
            end_run(e, l);
            l->last.len = 0;
            put_bytes(e, &l->last, type.data, type.len);
        }
        l->run++;
    }
    buf_done(&type);
    return r;
}

static int take_local_group(struct enc *e, struct locals *l, uint32_t *index) {
    if (peek(e)->kind == WAT_ID) {
        if (bind_name(e, WAT_LOCALS, (*index)++) < 0 || take_local(e, l) < 0)
            return -1;
        return take_close(e);
    }
    for (; peek(e)->kind != WAT_RPAR; ++*index)
        if (take_local(e, l) < 0)
            return -1;
    return take_close(e);
}

static int put_locals(struct enc *e, struct buf *b, uint32_t index) {
    struct locals l = {.groups = BUF(MAX_BINARY), .last = BUF(16)};
    int r = 0;
    while (r == 0 && take_open(e, "local"))
        r = take_local_group(e, &l, &index);
    end_run(e, &l);
    put_u(e, b, l.group_count);
    put_bytes(e, b, l.groups.data, l.groups.len);
    buf_done(&l.groups);
    buf_done(&l.last);
    return r;
}

/* Type, locals and body of a function, after its name and inline exports. */
static int put_function(struct enc *e) {
    uint32_t type;
    if (take_type_use(e, true, &type) < 0)
        return -1;
    put_u(e, &e->part[SEC_FUNC].bytes, type);
    e->part[SEC_FUNC].items++;
    if (put_locals(e, &e->body.bytes, count_params(e, type)) < 0)
        return -1;
    return put_instructions(e, &e->body, false);
}

static int define_func(struct enc *e, uint32_t index) {
    (void)index;
    struct part *code = &e->part[SEC_CODE];
    mark(e, &e->part[SEC_FUNC], peek(e)->pos);
    mark(e, code, peek(e)->pos);
    int r = put_function(e);
    unbind_locals(e);
    put_u(e, &code->bytes, e->body.bytes.len);
    append_part(e, code, &e->body);
    code->items++;
    return r;
}

static int define_global(struct enc *e, uint32_t index) {
    (void)index;
    struct part *p = &e->part[SEC_GLOBAL];
    mark(e, p, peek(e)->pos);
    p->items++;
    if (take_global_type(e, &p->bytes) < 0)
        return -1;
    return put_instructions(e, p, false);
}

static int define_tag(struct enc *e, uint32_t index) {
    (void)index;
    struct part *p = &e->part[SEC_TAG];
    mark(e, p, peek(e)->pos);
    p->items++;
    return take_tag_type(e, &p->bytes);
}

/* An active segment at address 0 of what it was written in. */
static void put_zero_offset(struct enc *e, struct buf *b, uint32_t index, bool is64,
                            unsigned flag_first, unsigned flag_other) {
    put_u(e, b, index ? flag_other : flag_first);
    if (index)
        put_u(e, b, index);
    put_byte(e, b, is64 ? 0x42 : 0x41);
    put_bytes(e, b, "\0\x0b", 2);
}

/* `(data "…")` inside a memory: the memory is as large as its data. */
static int put_inline_data(struct enc *e, uint32_t index, bool is64) {
    struct part *data = &e->part[SEC_DATA];
    struct buf bytes = BUF(MAX_BINARY);
    take_strings(e, &bytes);
    uint64_t pages = (bytes.len + PAGE - 1) / PAGE;
    put_limits(e, &e->part[SEC_MEMORY].bytes, is64, pages, &pages);
    mark(e, data, peek(e)->pos);
    put_zero_offset(e, &data->bytes, index, is64, 0, 2);
    put_name(e, &data->bytes, &bytes);
    data->items++;
    e->counts[WAT_DATAS]++;
    buf_done(&bytes);
    return take_close(e);
}

static int define_memory(struct enc *e, uint32_t index) {
    struct part *p = &e->part[SEC_MEMORY];
    mark(e, p, peek(e)->pos);
    p->items++;
    bool is64 = take_address_type(e);
    if (take_open(e, "data"))
        return put_inline_data(e, index, is64);
    return take_limits(e, &p->bytes, is64);
}

/* --- element segments --- */

enum segment_mode { SEGMENT_ACTIVE, SEGMENT_PASSIVE, SEGMENT_DECLARED };

struct segment {
    enum segment_mode mode;
    uint32_t table;
    struct part offset;  /* of an active one: its expression */
    bool is_expressions; /* or function indices */
    struct buf type;     /* of expressions: their reference type */
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
    part_done(&s->offset);
    buf_done(&s->type);
    part_done(&s->items);
}

static bool is_funcref(const struct segment *s) {
    return s->type.len == 1 && (uint8_t)s->type.data[0] == 0x70;
}

/* Function indices; in a segment of expressions each becomes `(ref.func x)`. */
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

/* `func x*` or `reftype expr*`; where the table is implied also plain `x*`. */
static int take_items(struct enc *e, struct segment *s, bool bare) {
    if (e->spec >= 20 && take_word(e, "func"))
        return take_function_items(e, s);
    if (e->spec >= 20 && at_ref_type(e))
        return take_ref_type(e, &s->type) < 0 ? -1 : take_expression_items(e, s);
    if (bare)
        return take_function_items(e, s);
    return expected(e, "`func` or a reference type like `funcref`");
}

/* Flags: bit 0 not active, bit 1 table or declared given, bit 2 expressions. */
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
    append_part(e, p, &s->offset);
    if (flags & 3) {
        if (s->is_expressions)
            put_bytes(e, &p->bytes, s->type.data, s->type.len);
        else
            put_byte(e, &p->bytes, 0);
    }
    put_u(e, &p->bytes, s->count);
    append_part(e, p, &s->items);
    p->items++;
}

/* In 1.0 a segment has no name of its own: a first name or number is the table's. */
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

static int define_elem(struct enc *e) {
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

/* `reftype (elem …)`: the table is as large as its elements. */
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
    put_limits(e, b, is64, size, &size);
    s.table = index;
    put_byte(e, &s.offset.bytes, is64 ? 0x42 : 0x41);
    put_bytes(e, &s.offset.bytes, "\0\x0b", 2);
    put_segment(e, &s);
    e->counts[WAT_ELEMS]++;
    segment_done(&s);
    return r < 0 ? -1 : take_close(e);
}

static int define_table(struct enc *e, uint32_t index) {
    struct part *p = &e->part[SEC_TABLE];
    mark(e, p, peek(e)->pos);
    p->items++;
    uint32_t start = e->i;
    bool is64 = take_address_type(e);
    if (at_ref_type(e))
        return put_inline_elem(e, index, is64);
    e->i = start;
    struct buf type = BUF(48);
    int r = take_table_type(e, &type);
    bool has_init = r == 0 && e->spec >= 30 && peek(e)->kind != WAT_RPAR;
    if (has_init)
        put_bytes(e, &p->bytes, "\x40\0", 2);
    put_bytes(e, &p->bytes, type.data, type.len);
    buf_done(&type);
    return has_init ? put_instructions(e, p, false) : r;
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

static int define_data(struct enc *e) {
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
    take_strings(e, &bytes);
    put_name(e, &p->bytes, &bytes);
    buf_done(&bytes);
    return take_close(e);
}

/* --- imports, exports, start --- */

/* `"module" "name"`, then the type: shared by both ways to write an import. */
static int put_import_names(struct enc *e) {
    struct part *p = &e->part[SEC_IMPORT];
    mark(e, p, peek(e)->pos);
    p->items++;
    if (take_name(e, &p->bytes) < 0)
        return -1;
    return take_name(e, &p->bytes);
}

static int put_import_type(struct enc *e, const struct kind *k) {
    struct buf *b = &e->part[SEC_IMPORT].bytes;
    put_byte(e, b, kind_code(k));
    return k->take_type(e, b);
}

static int define_import(struct enc *e) {
    e->i += 2;
    if (put_import_names(e) < 0)
        return -1;
    const struct kind *k = kind_at(e);
    if (!k)
        return expected(e, "`(func …)`, `(table …)`, `(memory …)` or `(global …)`");
    e->i += 2;
    if (peek(e)->kind == WAT_ID)
        e->i++;
    e->counts[k->space]++;
    if (put_import_type(e, k) < 0 || take_close(e) < 0)
        return -1;
    return take_close(e);
}

static int put_export(struct enc *e, const struct kind *k, uint32_t index) {
    struct part *p = &e->part[SEC_EXPORT];
    mark(e, p, peek(e)->pos);
    if (take_name(e, &p->bytes) < 0)
        return -1;
    put_byte(e, &p->bytes, kind_code(k));
    put_u(e, &p->bytes, index);
    p->items++;
    return take_close(e);
}

static int define_export(struct enc *e) {
    struct part *p = &e->part[SEC_EXPORT];
    uint32_t index;
    e->i += 2;
    mark(e, p, peek(e)->pos);
    if (take_name(e, &p->bytes) < 0)
        return -1;
    const struct kind *k = kind_at(e);
    if (!k)
        return expected(e, "`(func …)`, `(table …)`, `(memory …)` or `(global …)`");
    e->i += 2;
    if (take_index(e, k->space, &index) < 0 || take_close(e) < 0)
        return -1;
    put_byte(e, &p->bytes, kind_code(k));
    put_u(e, &p->bytes, index);
    p->items++;
    return take_close(e);
}

static int define_start(struct enc *e) {
    struct part *p = &e->part[SEC_START];
    uint32_t index;
    if (e->started)
        return error_at(e, peek(e) + 1, "multiple start sections");
    e->started = true;
    e->i += 2;
    mark(e, p, peek(e)->pos);
    if (take_index(e, WAT_FUNCS, &index) < 0)
        return -1;
    put_u(e, &p->bytes, index);
    return take_close(e);
}

/* A definition with its inline exports and, perhaps, inline import. */
static int define_kind(struct enc *e) {
    const struct kind *k = kind_at(e);
    uint32_t index = e->counts[k->space]++;
    e->i += 2;
    if (peek(e)->kind == WAT_ID)
        e->i++;
    while (take_open(e, "export"))
        if (put_export(e, k, index) < 0)
            return -1;
    if (take_open(e, "import")) {
        if (put_import_names(e) < 0 || take_close(e) < 0 || put_import_type(e, k) < 0)
            return -1;
    } else if (k->define(e, index) < 0) {
        return -1;
    }
    return take_close(e);
}

/* --- first walk: every definition gets its index --- */

static int declare(struct enc *e, enum wat_space space) {
    return bind_name(e, space, e->counts[space]++);
}

static int check_import_order(struct enc *e, const struct wat_token *tok) {
    if (!e->defined)
        return 0;
    error_at(e, tok, "import after function, table, memory or global");
    return wat_hint(e->diags, "move every import before the first definition");
}

static void name_function(struct enc *e, const struct wat_token *tok, uint32_t index) {
    if (tok->kind != WAT_ID)
        return;
    uint32_t old = e->func_name_room;
    while (index >= e->func_name_room) {
        if (!grow_list(&e->func_names, sizeof(*e->func_names), e->func_name_room,
                       &e->func_name_room)) {
            e->full = true;
            return;
        }
    }
    memset(e->func_names + old, 0, (e->func_name_room - old) * sizeof(*e->func_names));
    e->func_names[index] = tok->link + 1;
}

static int declare_kind(struct enc *e) {
    const struct kind *k = kind_at(e);
    uint32_t close = peek(e)->link;
    e->i += 2;
    if (k->space == WAT_FUNCS)
        name_function(e, peek(e), e->counts[WAT_FUNCS]);
    int r = declare(e, k->space);
    while (at_open(e, "export"))
        e->i = peek(e)->link + 1;
    if (at_open(e, "import"))
        return r < 0 ? -1 : check_import_order(e, peek(e) + 1);
    e->defined = e->defined || k->space != WAT_TAGS;
    /* A table or memory may bring a segment along. */
    for (; e->i < close; e->i++) {
        if (peek(e)->kind != WAT_LPAR)
            continue;
        e->counts[WAT_ELEMS] += k->space == WAT_TABLES && at_open(e, "elem");
        e->counts[WAT_DATAS] += k->space == WAT_MEMORIES && at_open(e, "data");
        e->i = peek(e)->link;
    }
    return r;
}

static int declare_import(struct enc *e) {
    const struct wat_token *tok = peek(e) + 1;
    uint32_t close = peek(e)->link;
    while (e->i < close && !(e->i += 1, kind_at(e)))
        ;
    const struct kind *k = e->i < close ? kind_at(e) : NULL;
    if (!k)
        return 0; /* the second walk says what is wrong */
    e->i += 2;
    if (k->space == WAT_FUNCS)
        name_function(e, peek(e), e->counts[WAT_FUNCS]);
    return declare(e, k->space) < 0 ? -1 : check_import_order(e, tok);
}

static int declare_type(struct enc *e) {
    e->i += 2;
    return declare(e, WAT_TYPES);
}

static int declare_group(struct enc *e) {
    uint32_t close = peek(e)->link;
    for (e->i += 2; e->i < close;) {
        if (!at_open(e, "type"))
            return expected(e, "`(type …)`");
        uint32_t next = peek(e)->link + 1;
        if (declare_type(e) < 0)
            return -1;
        e->i = next;
    }
    return 0;
}

/* In 1.0 what follows is the index of a table or memory, not a name. */
static int declare_segment(struct enc *e, enum wat_space space) {
    e->i += 2;
    if (e->spec >= 20)
        return declare(e, space);
    e->counts[space]++;
    return 0;
}

static int declare_elem(struct enc *e) {
    return declare_segment(e, WAT_ELEMS);
}

static int declare_data(struct enc *e) {
    return declare_segment(e, WAT_DATAS);
}

/* --- the module --- */

static const struct field {
    const char *word;
    int level;
    bool is_type; /* defined before all others, which use types by name */
    int (*declare)(struct enc *e);
    int (*define)(struct enc *e);
} fields[] = {
    {"type", 10, true, declare_type, define_type},
    {"rec", 30, true, declare_group, define_group},
    {"import", 10, false, declare_import, define_import},
    {"func", 10, false, declare_kind, define_kind},
    {"table", 10, false, declare_kind, define_kind},
    {"memory", 10, false, declare_kind, define_kind},
    {"global", 10, false, declare_kind, define_kind},
    {"tag", 30, false, declare_kind, define_kind},
    {"export", 10, false, NULL, define_export},
    {"start", 10, false, NULL, define_start},
    {"elem", 10, false, declare_elem, define_elem},
    {"data", 10, false, declare_data, define_data},
};

static const struct field *field_at(const struct enc *e) {
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
        if (fields[i].level <= e->spec && at_open(e, fields[i].word))
            return &fields[i];
    return NULL;
}

static int unknown_field(struct enc *e) {
    if (peek(e)->kind != WAT_LPAR)
        return expected(e, "a module field like `(func …)`");
    const struct wat_token *tok = peek(e) + 1;
    int len = (int)(tok->len < 60 ? tok->len : 60);
    error_at(e, tok, "unknown operator `%.*s`: expected a module field", len, e->t->src + tok->pos);
    return wat_hint(e->diags,
                    "fields are type, import, func, table, memory, global, export, "
                    "start, elem, data%s",
                    e->spec >= 30 ? ", tag, rec" : "");
}

enum walk { WALK_DECLARE, WALK_TYPES, WALK_DEFINE };

static int walk_field(struct enc *e, const struct field *f, enum walk walk) {
    if (walk == WALK_DECLARE)
        return f->declare ? f->declare(e) : 0;
    return f->is_type == (walk == WALK_TYPES) ? f->define(e) : 0;
}

/* One walk over all fields. After an error in one, the next is still looked at. */
static int walk_fields(struct enc *e, uint32_t first, enum walk walk) {
    int result = 0;
    for (e->i = first; e->i < e->end && !e->full;) {
        const struct field *f = field_at(e);
        if (!f)
            return unknown_field(e);
        uint32_t next = peek(e)->link + 1;
        if (walk_field(e, f, walk) < 0)
            result = -1;
        e->i = next;
    }
    return result;
}

static int encode_fields(struct enc *e, uint32_t first) {
    if (walk_fields(e, first, WALK_DECLARE) < 0)
        return -1;
    if (walk_fields(e, first, WALK_TYPES) < 0)
        return -1;
    memset(e->counts, 0, sizeof(e->counts));
    return walk_fields(e, first, WALK_DEFINE);
}

/* --- assembly --- */

static const uint8_t section_order[] = {
    SEC_TYPE,   SEC_IMPORT, SEC_FUNC, SEC_TABLE,     SEC_MEMORY, SEC_TAG,  SEC_GLOBAL,
    SEC_EXPORT, SEC_START,  SEC_ELEM, SEC_DATACOUNT, SEC_CODE,   SEC_DATA,
};

static unsigned leb_size(uint64_t value) {
    unsigned n = 1;
    while (value >>= 7)
        n++;
    return n;
}

static void put_section(struct enc *e, struct part *out, unsigned id) {
    struct part *p = &e->part[id];
    bool counted = id != SEC_START && id != SEC_DATACOUNT;
    if (p->items == 0 && p->bytes.len == 0)
        return;
    put_byte(e, &out->bytes, id);
    put_u(e, &out->bytes, p->bytes.len + (counted ? leb_size(p->items) : 0));
    if (counted)
        put_u(e, &out->bytes, p->items);
    append_part(e, out, p);
}

static void put_symbol(struct enc *e, struct buf *b, uint32_t sym) {
    put_u(e, b, e->t->syms[sym].len);
    put_bytes(e, b, wat_sym_name(e->t, sym), e->t->syms[sym].len);
}

/* The name section keeps function names, so that traps and profiles can say them. */
static void put_names(struct enc *e, struct buf *out) {
    struct buf list = BUF(MAX_BINARY), section = BUF(MAX_BINARY);
    uint32_t count = 0;
    for (uint32_t i = 0; i < e->func_name_room; i++) {
        if (!e->func_names[i])
            continue;
        put_u(e, &list, i);
        put_symbol(e, &list, e->func_names[i] - 1);
        count++;
    }
    if (count) {
        put_bytes(e, &section, "\4name\1", 6);
        put_u(e, &section, list.len + leb_size(count));
        put_u(e, &section, count);
        put_bytes(e, &section, list.data, list.len);
        put_byte(e, out, 0);
        put_name(e, out, &section);
    }
    buf_done(&list);
    buf_done(&section);
}

static void assemble(struct enc *e, struct wat_module *ret) {
    struct part out = {.bytes = BUF(MAX_BINARY)};
    put_bytes(e, &out.bytes, "\0asm\1\0\0", 8);
    if (e->needs_data_count)
        put_u(e, &e->part[SEC_DATACOUNT].bytes, e->part[SEC_DATA].items);
    for (size_t i = 0; i < sizeof(section_order); i++)
        put_section(e, &out, section_order[i]);
    put_names(e, &out.bytes);
    *ret = (struct wat_module){.binary = out.bytes, .map = out.map, .map_count = out.map_count};
}

static void enc_done(struct enc *e) {
    for (int i = 0; i < SEC_COUNT; i++)
        part_done(&e->part[i]);
    part_done(&e->body);
    buf_done(&e->pending);
    buf_done(&e->type_bytes);
    free(e->types);
    free(e->type_buckets);
    free(e->fields);
    free(e->labels);
    free(e->folds);
    free(e->local_syms);
    free(e->func_names);
    free(e->op_buckets);
}

/* Another module of the same script may have used the same names. */
static void forget_names(struct wat_text *t, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; i++)
        if (t->tokens[i].kind == WAT_ID)
            memset(t->syms[t->tokens[i].link].index, 0, sizeof(t->syms->index));
}

/* The first field: behind `(module $name`, if that is written. */
static uint32_t open_module(struct enc *e, uint32_t first) {
    e->i = first;
    if (!at_open(e, "module") || peek(e)->link + 1 != e->end)
        return first;
    e->end--;
    e->i += 2;
    return peek(e)->kind == WAT_ID ? e->i + 1 : e->i;
}

int wat_encode_tokens(struct wat_text *t, uint32_t first, uint32_t end, struct wat_module *ret,
                      struct wat_diags *diags) {
    struct enc e = {.t = t,
                    .diags = diags,
                    .end = end,
                    .spec = t->spec,
                    .pending = BUF(MAX_BINARY),
                    .type_bytes = BUF(MAX_BINARY)};
    for (int i = 0; i < SEC_COUNT; i++)
        e.part[i].bytes = BUF(MAX_BINARY);
    e.body.bytes = BUF(MAX_BINARY);
    int before = diags->count;
    *ret = (struct wat_module){.binary = BUF(MAX_BINARY)};
    forget_names(t, first, end);
    e.full = !init_ops(&e);
    int r = e.full ? -1 : encode_fields(&e, open_module(&e, first));
    /* An unknown name is an error although reading went on after it. */
    if (diags->count > before)
        r = -1;
    if (r == 0 && !e.full)
        assemble(&e, ret);
    if (e.full) {
        wat_module_done(ret);
        r = wat_error(diags, 0, 0, "out of memory, or a module over %d MiB", MAX_BINARY >> 20);
    }
    enc_done(&e);
    return r;
}

int wat_encode(const char *src, size_t len, int spec, struct wat_module *ret,
               struct wat_diags *diags) {
    struct wat_text t;
    *ret = (struct wat_module){.binary = BUF(0)};
    if (wat_text_init(&t, src, len, spec, diags) < 0)
        return -1;
    int r = wat_encode_tokens(&t, 0, t.count, ret, diags);
    wat_text_done(&t);
    return r;
}

void wat_module_done(struct wat_module *m) {
    buf_done(&m->binary);
    free(m->map);
    *m = (struct wat_module){.binary = BUF(0)};
}

uint32_t wat_locate(const struct wat_module *m, uint32_t offset) {
    uint32_t low = 0, high = m->map_count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (m->map[mid].offset <= offset)
            low = mid + 1;
        else
            high = mid;
    }
    return low ? m->map[low - 1].pos : 0;
}
