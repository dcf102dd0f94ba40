/* Encodes the fields of a text module: functions, tables, memories, segments, imports, exports. */
#include <string.h>

#include "wasm/text/wat.h"
#include "wasm/text/wat_enc.h"
#include "wasm/text/wat_inner.h"

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

/* Takes a string that is a name and writes its length and bytes. */
static int wat_fields_take_name(struct enc *e, struct buf *out) {
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

static int take_memory_type(struct enc *e, struct buf *b) {
    bool is64 = wat_take_address_type(e);
    return wat_take_limits(e, b, is64);
}

static int take_global_type(struct enc *e, struct buf *b) {
    bool is_mutable = take_open(e, "mut");
    if (take_value_type(e, b) < 0)
        return -1;
    put_byte(e, b, is_mutable);
    return is_mutable ? take_close(e) : 0;
}

/* Remembers the number of parameters of the function that is defined or imported. */
static void keep_params(struct enc *e, uint32_t type) {
    uint32_t index = e->counts[WAT_FUNCS] - 1;
    while (index >= e->func_param_room)
        if (!grow_list(&e->func_params, sizeof(*e->func_params), e->func_param_room,
                       &e->func_param_room)) {
            e->full = true;
            return;
        }
    e->func_params[index] = count_params(e, type);
}

static int take_signature_of(struct enc *e, struct buf *b, uint32_t *type) {
    int r = take_type_use(e, true, type);
    unbind_locals(e);
    if (r == 0)
        put_u(e, b, *type);
    return r;
}

static int take_func_type(struct enc *e, struct buf *b) {
    uint32_t type;
    if (take_signature_of(e, b, &type) < 0)
        return -1;
    keep_params(e, type);
    return 0;
}

static int take_tag_type(struct enc *e, struct buf *b) {
    uint32_t type;
    put_byte(e, b, 0);
    return take_signature_of(e, b, &type);
}

/* --- definitions: func, table, memory, global, tag --- */

static int define_func(struct enc *e, uint32_t index);
static int define_memory(struct enc *e, uint32_t index);
static int define_global(struct enc *e, uint32_t index);
static int define_tag(struct enc *e, uint32_t index);

static const struct kind {
    const char *word;
    enum wat_space space;
    int level;
    int (*take_type)(struct enc *e, struct buf *b); /* reads the type in an import */
    int (*define)(struct enc *e, uint32_t index);
} kinds[] = {
    {"func", WAT_FUNCS, 10, take_func_type, define_func},
    {"table", WAT_TABLES, 10, wat_take_table_type, wat_define_table},
    {"memory", WAT_MEMORIES, 10, take_memory_type, define_memory},
    {"global", WAT_GLOBALS, 10, take_global_type, define_global},
    {"tag", WAT_TAGS, 30, take_tag_type, define_tag},
};
enum { KIND_COUNT = sizeof(kinds) / sizeof(*kinds) };

/*
 * The kind whose `(word` is the next token, or NULL. Its index is its code in imports and exports.
 */
static const struct kind *kind_at(const struct enc *e) {
    for (const struct kind *k = kinds; k < kinds + KIND_COUNT; k++)
        if (k->level <= e->spec && at_open(e, k->word))
            return k;
    return NULL;
}

static unsigned kind_code(const struct kind *k) {
    return (unsigned)(k - kinds);
}

/* Locals as in the binary format: groups of locals with the same type. */
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

/* Encodes type, locals and body of a function, after its name and inline exports. */
static int put_function(struct enc *e) {
    uint32_t type;
    if (take_type_use(e, true, &type) < 0)
        return -1;
    keep_params(e, type);
    put_u(e, &e->part[SEC_FUNC].bytes, type);
    e->part[SEC_FUNC].items++;
    if (put_locals(e, &e->body.bytes, count_params(e, type)) < 0)
        return -1;
    return wat_put_instructions(e, &e->body, false);
}

static int define_func(struct enc *e, uint32_t index) {
    (void)index;
    struct part *code = &e->part[SEC_CODE];
    mark(e, &e->part[SEC_FUNC], peek(e)->pos);
    mark(e, code, peek(e)->pos);
    int r = put_function(e);
    unbind_locals(e);
    put_u(e, &code->bytes, e->body.bytes.len);
    wat_append_part(e, code, &e->body);
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
    return wat_put_instructions(e, p, false);
}

static int define_tag(struct enc *e, uint32_t index) {
    (void)index;
    struct part *p = &e->part[SEC_TAG];
    mark(e, p, peek(e)->pos);
    p->items++;
    return take_tag_type(e, &p->bytes);
}

/* Starts an active segment at address 0 of the memory or table that it was written in. */
static void put_zero_offset(struct enc *e, struct buf *b, uint32_t index, bool is64,
                            unsigned flag_first, unsigned flag_other) {
    put_u(e, b, index ? flag_other : flag_first);
    if (index)
        put_u(e, b, index);
    put_byte(e, b, is64 ? 0x42 : 0x41);
    put_bytes(e, b, "\0\x0b", 2);
}

/* Encodes `(data "…")` inside a memory, which then has as many pages as the data needs. */
static int put_inline_data(struct enc *e, uint32_t index, bool is64) {
    struct part *data = &e->part[SEC_DATA];
    struct buf bytes = BUF(MAX_BINARY);
    wat_take_strings(e, &bytes);
    uint64_t pages = (bytes.len + PAGE - 1) / PAGE;
    wat_put_limits(e, &e->part[SEC_MEMORY].bytes, is64, pages, &pages);
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
    bool is64 = wat_take_address_type(e);
    if (take_open(e, "data"))
        return put_inline_data(e, index, is64);
    return wat_take_limits(e, &p->bytes, is64);
}

/* --- imports, exports, start --- */

/* Encodes `"module" "name"` of an import. Both ways to write an import use it. */
static int put_import_names(struct enc *e) {
    struct part *p = &e->part[SEC_IMPORT];
    mark(e, p, peek(e)->pos);
    p->items++;
    if (wat_fields_take_name(e, &p->bytes) < 0)
        return -1;
    return wat_fields_take_name(e, &p->bytes);
}

static int put_import_type(struct enc *e, const struct kind *k) {
    struct buf *b = &e->part[SEC_IMPORT].bytes;
    put_byte(e, b, kind_code(k));
    return k->take_type(e, b);
}

int wat_define_import(struct enc *e) {
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
    if (wat_fields_take_name(e, &p->bytes) < 0)
        return -1;
    put_byte(e, &p->bytes, kind_code(k));
    put_u(e, &p->bytes, index);
    p->items++;
    return take_close(e);
}

int wat_define_export(struct enc *e) {
    struct part *p = &e->part[SEC_EXPORT];
    uint32_t index;
    e->i += 2;
    mark(e, p, peek(e)->pos);
    if (wat_fields_take_name(e, &p->bytes) < 0)
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

int wat_define_start(struct enc *e) {
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

/* Encodes a definition with its inline exports and its optional inline import. */
int wat_define_kind(struct enc *e) {
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

int wat_declare_kind(struct enc *e) {
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
    /* A table or memory may contain a segment, which also needs an index. */
    for (; e->i < close; e->i++) {
        if (peek(e)->kind != WAT_LPAR)
            continue;
        e->counts[WAT_ELEMS] += k->space == WAT_TABLES && at_open(e, "elem");
        e->counts[WAT_DATAS] += k->space == WAT_MEMORIES && at_open(e, "data");
        e->i = peek(e)->link;
    }
    return r;
}

int wat_declare_import(struct enc *e) {
    const struct wat_token *tok = peek(e) + 1;
    uint32_t close = peek(e)->link;
    while (e->i < close && !(e->i += 1, kind_at(e)))
        ;
    const struct kind *k = e->i < close ? kind_at(e) : NULL;
    if (!k)
        return 0; /* the second walk reports the error */
    e->i += 2;
    if (k->space == WAT_FUNCS)
        name_function(e, peek(e), e->counts[WAT_FUNCS]);
    return declare(e, k->space) < 0 ? -1 : check_import_order(e, tok);
}

int wat_declare_type(struct enc *e) {
    e->i += 2;
    return declare(e, WAT_TYPES);
}

int wat_declare_group(struct enc *e) {
    uint32_t close = peek(e)->link;
    for (e->i += 2; e->i < close;) {
        if (!at_open(e, "type"))
            return expected(e, "`(type …)`");
        uint32_t next = peek(e)->link + 1;
        if (wat_declare_type(e) < 0)
            return -1;
        e->i = next;
    }
    return 0;
}

/* In WebAssembly 1.0 segments have no names: an identifier after the keyword is that of the table
 * or memory. */
static int declare_segment(struct enc *e, enum wat_space space) {
    e->i += 2;
    if (e->spec >= 20)
        return declare(e, space);
    e->counts[space]++;
    return 0;
}

int wat_declare_elem(struct enc *e) {
    return declare_segment(e, WAT_ELEMS);
}

int wat_declare_data(struct enc *e) {
    return declare_segment(e, WAT_DATAS);
}
