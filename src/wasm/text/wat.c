/* Encodes the module fields of the text format as sections of the binary format. */
#include "wasm/text/wat.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wasm/text/wat_enc.h"
#include "wasm/text/wat_inner.h"
#include "wasm/text/wat_num.h"
#include "wasm/text/wat_structure.h"

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

/* Appends the bytes and source positions of part `from` to part `to`, and empties `from`. */
void wat_append_part(struct enc *e, struct part *to, struct part *from) {
    uint32_t base = (uint32_t)to->bytes.len;
    for (uint32_t i = 0; i < from->map_count; i++)
        add_place(e, to, base + from->map[i].offset, from->map[i].pos);
    put_bytes(e, &to->bytes, from->bytes.data, from->bytes.len);
    from->bytes.len = 0;
    from->map_count = 0;
}

void wat_part_done(struct part *p) {
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

/* How error messages name the entries of each index space. */
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
    if (*slot) {
        error_at(e, tok, "duplicate %s $%s", spaces[space].name, wat_sym_name(e->t, tok->link));
        hint_duplicate(e, space, tok);
        return 0; /* the first one keeps the name, so that further errors are found */
    }
    *slot = index + 1;
    if (space != WAT_LOCALS)
        return 0;
    if (!grow_list(&e->local_syms, sizeof(*e->local_syms), e->local_sym_count, &e->local_sym_room))
        return e->full = true, *slot = 0, -1;
    e->local_syms[e->local_sym_count++] = tok->link;
    return 0;
}

/* Appends the bytes of all string tokens up to the next other token. */
void wat_take_strings(struct enc *e, struct buf *out) {
    for (; peek(e)->kind == WAT_STRING; e->i++)
        if (!wat_string(e->t, peek(e), out))
            e->full = true;
}

/* --- expressions --- */

int wat_put_instructions(struct enc *e, struct part *p, bool folded) {
    struct part *outer = e->out;
    e->out = p;
    int r = folded ? take_folded(e) : take_instructions(e);
    mark(e, p, peek(e)->pos);
    put_byte(e, &p->bytes, 0x0b);
    e->out = outer;
    return r;
}

/* --- limits and memory, table, global types --- */

bool wat_take_address_type(struct enc *e) {
    if (e->spec < 30)
        return false;
    bool is64 = take_word(e, "i64");
    if (!is64)
        take_word(e, "i32");
    return is64;
}

void wat_put_limits(struct enc *e, struct buf *b, bool is64, uint64_t min, const uint64_t *max) {
    put_byte(e, b, (max ? 1u : 0) | (is64 ? 4u : 0));
    put_u(e, b, min);
    if (max)
        put_u(e, b, *max);
}

int wat_take_limits(struct enc *e, struct buf *b, bool is64) {
    uint64_t most = e->spec >= 30 ? UINT64_MAX : UINT32_MAX, min, max;
    if (take_unsigned(e, "a size", most, &min) < 0)
        return -1;
    bool has_max = at_index(e) && peek(e)->kind == WAT_ATOM;
    if (has_max && take_unsigned(e, "a maximum size", most, &max) < 0)
        return -1;
    wat_put_limits(e, b, is64, min, has_max ? &max : NULL);
    return 0;
}

int wat_take_table_type(struct enc *e, struct buf *b) {
    struct buf limits = BUF(32);
    bool is64 = wat_take_address_type(e);
    int r = wat_take_limits(e, &limits, is64);
    if (r == 0)
        r = take_ref_type(e, b);
    put_bytes(e, b, limits.data, limits.len);
    buf_done(&limits);
    return r;
}

/* --- the module --- */

static const struct field {
    const char *word;
    int level;
    bool is_type; /* types are defined first, because other fields use them by name */
    int (*declare)(struct enc *e);
    int (*define)(struct enc *e);
} fields[] = {
    {"type", 10, true, wat_declare_type, define_type},
    {"rec", 30, true, wat_declare_group, define_group},
    {"import", 10, false, wat_declare_import, wat_define_import},
    {"func", 10, false, wat_declare_kind, wat_define_kind},
    {"table", 10, false, wat_declare_kind, wat_define_kind},
    {"memory", 10, false, wat_declare_kind, wat_define_kind},
    {"global", 10, false, wat_declare_kind, wat_define_kind},
    {"tag", 30, false, wat_declare_kind, wat_define_kind},
    {"export", 10, false, NULL, wat_define_export},
    {"start", 10, false, NULL, wat_define_start},
    {"elem", 10, false, wat_declare_elem, wat_define_elem},
    {"data", 10, false, wat_declare_data, wat_define_data},
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
    if (wat_is(e->t, tok, "module"))
        return wat_hint(e->diags, "`(module` must be the first word of the text");
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

/* Walks over all fields. After an error in one field, the next one is still read. */
static int walk_fields(struct enc *e, uint32_t first, enum walk walk) {
    int result = 0;
    for (e->i = first; e->i < e->end && !e->full;) {
        const struct field *f = field_at(e);
        if (!f) {
            result = unknown_field(e);
            e->i = peek(e)->kind == WAT_LPAR ? peek(e)->link + 1 : e->i + 1;
            continue;
        }
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

/* --- assembly of the binary --- */

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
    wat_append_part(e, out, p);
}

static void put_symbol(struct enc *e, struct buf *b, uint32_t sym) {
    put_u(e, b, e->t->syms[sym].len);
    put_bytes(e, b, wat_sym_name(e->t, sym), e->t->syms[sym].len);
}

/* Writes function names to the name section, for traps and profiles. */
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
        wat_part_done(&e->part[i]);
    wat_part_done(&e->body);
    buf_done(&e->pending);
    buf_done(&e->type_bytes);
    free(e->types);
    free(e->type_buckets);
    free(e->fields);
    free(e->labels);
    free(e->folds);
    free(e->local_syms);
    free(e->func_names);
    free(e->func_params);
    free(e->notes);
    free(e->op_buckets);
}

/* Clears the indices of all names: another module of the same script may have used them. */
static void forget_names(struct wat_text *t, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; i++)
        if (t->tokens[i].kind == WAT_ID)
            memset(t->syms[t->tokens[i].link].index, 0, sizeof(t->syms->index));
}

/* Finds the token of the first field, after `(module $name` if that is given. */
static int open_module(struct enc *e, uint32_t first, uint32_t *ret) {
    *ret = e->i = first;
    if (!at_open(e, "module"))
        return 0;
    if (peek(e)->link + 1 != e->end)
        return wat_closed_early(e->t, peek(e)->link, e->diags);
    e->end--;
    e->i += 2;
    *ret = peek(e)->kind == WAT_ID ? e->i + 1 : e->i;
    return 0;
}

static int encode_module(struct enc *e, uint32_t first) {
    return open_module(e, first, &first) < 0 ? -1 : encode_fields(e, first);
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
    int r = e.full ? -1 : encode_module(&e, first);
    /* An unknown name is an error, although reading continued after it. */
    if (diags->count > before)
        r = -1;
    if (r == 0 && !e.full)
        assemble(&e, ret), take_surplus(&e, ret);
    if (e.full) {
        wat_module_done(ret);
        r = wat_error(diags, 0, 0, "out of memory, or the module is larger than %d MiB",
                      MAX_BINARY >> 20);
    }
    enc_done(&e);
    return r;
}

int wat_encode(const char *src, size_t len, int spec, struct wat_module *ret,
               struct wat_diags *diags) {
    struct wat_text t;
    *ret = (struct wat_module){.binary = BUF(0)};
    if (wat_text_try(&t, src, len, spec, diags) < 0)
        return -1;
    int r = wat_encode_tokens(&t, 0, t.count, ret, diags);
    if (t.foreign_comments) {
        wat_module_done(ret);
        r = -1;
    }
    wat_text_done(&t);
    return r;
}

void wat_module_done(struct wat_module *m) {
    buf_done(&m->binary);
    free(m->map);
    free(m->surplus);
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
