/* Types of the text format: value types, type definitions, type uses. */
#include "wasm/text/wat_enc.h"

#include <stdlib.h>
#include <string.h>

#include "base/banned.h"
#include "base/defer.h"

/* --- value types --- */

enum {
    CODE_REF = 0x64,
    CODE_REF_NULL = 0x63,
    CODE_FUNC = 0x60,
    CODE_STRUCT = 0x5f,
    CODE_ARRAY = 0x5e,
    CODE_SUB = 0x50,
    CODE_SUB_FINAL = 0x4f,
    CODE_REC = 0x4e
};

struct type_word {
    const char *word;
    uint8_t code;
    uint8_t level;
};

static const struct type_word number_types[] = {
    {"i32", 0x7f, 10}, {"i64", 0x7e, 10},  {"f32", 0x7d, 10},
    {"f64", 0x7c, 10}, {"v128", 0x7b, 20}, {NULL},
};

/* In WebAssembly 1.0 only tables hold references, and they use the same word `funcref`. */
static const struct type_word ref_types[] = {
    {"funcref", 0x70, 10},
    {"externref", 0x6f, 20},
    {"anyref", 0x6e, 30},
    {"eqref", 0x6d, 30},
    {"i31ref", 0x6c, 30},
    {"structref", 0x6b, 30},
    {"arrayref", 0x6a, 30},
    {"exnref", 0x69, 30},
    {"nullref", 0x71, 30},
    {"nullexternref", 0x72, 30},
    {"nullfuncref", 0x73, 30},
    {"nullexnref", 0x74, 30},
    {NULL},
};

static const struct type_word heap_types[] = {
    {"func", 0x70, 20},
    {"extern", 0x6f, 20},
    {"any", 0x6e, 30},
    {"eq", 0x6d, 30},
    {"i31", 0x6c, 30},
    {"struct", 0x6b, 30},
    {"array", 0x6a, 30},
    {"exn", 0x69, 30},
    {"none", 0x71, 30},
    {"noextern", 0x72, 30},
    {"nofunc", 0x73, 30},
    {"noexn", 0x74, 30},
    {NULL},
};

static const struct type_word packed_types[] = {{"i8", 0x78, 30}, {"i16", 0x77, 30}, {NULL}};

static const struct type_word *find_word(const struct enc *e, const struct type_word *table) {
    for (; table->word; table++)
        if (table->level <= e->spec && at_word(e, table->word))
            return table;
    return NULL;
}

static bool take_table_word(struct enc *e, const struct type_word *table, struct buf *b) {
    const struct type_word *w = find_word(e, table);
    if (w) {
        e->i++;
        put_byte(e, b, w->code);
    }
    return w != NULL;
}

bool at_ref_type(const struct enc *e) {
    return find_word(e, ref_types) || (e->spec >= 30 && at_open(e, "ref"));
}

bool at_value_type(const struct enc *e) {
    return find_word(e, number_types) || at_ref_type(e);
}

int take_heap_type(struct enc *e, struct buf *b) {
    if (take_table_word(e, heap_types, b))
        return 0;
    if (e->spec < 30 || !at_index(e))
        return expected(e, "a heap type like `func` or `extern`");
    uint32_t index;
    if (take_index(e, WAT_TYPES, &index) < 0)
        return -1;
    put_s(e, b, index);
    return 0;
}

int take_ref_parts(struct enc *e, struct buf *heap, bool *nullable) {
    *nullable = true;
    if (take_table_word(e, ref_types, heap))
        return 0;
    if (e->spec < 30 || !take_open(e, "ref"))
        return expected(e, "a reference type like `funcref`");
    *nullable = take_word(e, "null");
    if (take_heap_type(e, heap) < 0)
        return -1;
    return take_close(e);
}

/*
 * Nullable references to abstract types also have a short form. It is always used, so that equal
 * types have equal bytes.
 */
int take_ref_type(struct enc *e, struct buf *b) {
    struct buf heap DEFER(buf_done) = BUF(16);
    bool nullable;
    if (take_ref_parts(e, &heap, &nullable) < 0)
        return -1;
    bool is_abstract = heap.len == 1 && (heap.data[0] & 0x40);
    if (!(nullable && is_abstract))
        put_byte(e, b, nullable ? CODE_REF_NULL : CODE_REF);
    put_bytes(e, b, heap.data, heap.len);
    return 0;
}

int take_value_type(struct enc *e, struct buf *b) {
    if (take_table_word(e, number_types, b))
        return 0;
    if (at_ref_type(e))
        return take_ref_type(e, b);
    expected(e, e->spec >= 20 ? "a value type like `i32` or `funcref`" : "a value type like `i32`");
    if (peek(e)->kind != WAT_ATOM)
        return -1;
    /* Any type will do to go on and find further errors. */
    put_byte(e, b, 0x7f);
    e->i++;
    return 0;
}

/* --- function types --- */

/* Parameters and results of a function type or type use. */
struct signature {
    struct buf params, results;
    uint32_t param_count, result_count;
};

static void signature_done(struct signature *s) {
    buf_done(&s->params);
    buf_done(&s->results);
}

#define SIGNATURE() \
    { .params = BUF(1 << 20), .results = BUF(1 << 20) }

enum param_names { NAMES_REFUSED, NAMES_IGNORED, NAMES_BOUND };

/* Reads the inside of one `(param …)`, including its ')'. */
static int take_param(struct enc *e, enum param_names names, struct signature *s) {
    if (peek(e)->kind == WAT_ID && names != NAMES_REFUSED) {
        if (names == NAMES_BOUND && bind_name(e, WAT_LOCALS, s->param_count) < 0)
            return -1;
        e->i += names == NAMES_IGNORED;
        s->param_count++;
        return take_value_type(e, &s->params) < 0 ? -1 : take_close(e);
    }
    while (peek(e)->kind != WAT_RPAR) {
        if (take_value_type(e, &s->params) < 0)
            return -1;
        s->param_count++;
    }
    return take_close(e);
}

int take_results(struct enc *e, struct buf *types, uint32_t *count) {
    while (take_open(e, "result")) {
        while (peek(e)->kind != WAT_RPAR) {
            if (take_value_type(e, types) < 0)
                return -1;
            ++*count;
        }
        if (take_close(e) < 0)
            return -1;
    }
    return 0;
}

static int take_signature(struct enc *e, enum param_names names, struct signature *s) {
    while (take_open(e, "param"))
        if (take_param(e, names, s) < 0)
            return -1;
    if (take_results(e, &s->results, &s->result_count) < 0)
        return -1;
    if (at_open(e, "param")) {
        error_at(e, peek(e) + 1, "result before parameter: unexpected token `param`");
        return wat_hint(e->diags, "write every `(param …)` before the first `(result …)`");
    }
    return 0;
}

static void put_signature(struct enc *e, struct buf *b, const struct signature *s) {
    put_byte(e, b, CODE_FUNC);
    put_u(e, b, s->param_count);
    put_bytes(e, b, s->params.data, s->params.len);
    put_u(e, b, s->result_count);
    put_bytes(e, b, s->results.data, s->results.len);
}

/* --- the list of types --- */

static uint32_t hash_bytes(const char *s, size_t n) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)s[i]) * 16777619u;
    return h;
}

static const char *type_data(const struct enc *e, uint32_t type) {
    return e->type_bytes.data + e->types[type].at;
}

static bool same_type(const struct enc *e, uint32_t type, const char *bytes, size_t len) {
    return e->types[type].len == len && memcmp(type_data(e, type), bytes, len) == 0;
}

/* Finds the hash bucket with an equal plain type, or the free bucket for it. */
static uint32_t *type_bucket(const struct enc *e, const char *bytes, size_t len) {
    for (uint32_t h = hash_bytes(bytes, len);; h++) {
        uint32_t *slot = &e->type_buckets[h & (e->type_bucket_count - 1)];
        if (!*slot || same_type(e, *slot - 1, bytes, len))
            return slot;
    }
}

static bool grow_type_buckets(struct enc *e) {
    uint32_t count = e->type_bucket_count ? e->type_bucket_count * 2 : 64;
    uint32_t *buckets = calloc(count, sizeof(*buckets));
    if (!buckets)
        return false;
    free(e->type_buckets);
    e->type_buckets = buckets;
    e->type_bucket_count = count;
    e->type_hashed = 0;
    return true;
}

/* Adds new types of the list to the hash table; the first of equal types is kept. */
static bool index_types(struct enc *e) {
    while (e->type_count * 2 >= e->type_bucket_count)
        if (!grow_type_buckets(e))
            return false;
    for (; e->type_hashed < e->type_count; e->type_hashed++) {
        uint32_t i = e->type_hashed;
        if (!e->types[i].plain)
            continue;
        uint32_t *slot = type_bucket(e, type_data(e, i), e->types[i].len);
        if (!*slot)
            *slot = i + 1;
    }
    return true;
}

/* Appends a type; its bytes are those of type_bytes from `at` on. */
static void add_type(struct enc *e, uint32_t at, uint32_t params, bool plain) {
    if (!grow_list(&e->types, sizeof(*e->types), e->type_count, &e->type_room)) {
        e->full = true;
        return;
    }
    e->types[e->type_count++] = (struct type_def){.at = at,
                                                  .len = (uint32_t)e->type_bytes.len - at,
                                                  .params = params,
                                                  .plain = plain,
                                                  .field_first = e->field_count,
                                                  .field_end = e->field_count};
}

/* Finds the index of this function type, or appends the type. */
static uint32_t intern_signature(struct enc *e, const struct signature *s) {
    uint32_t at = (uint32_t)e->type_bytes.len;
    put_signature(e, &e->type_bytes, s);
    if (e->full || !index_types(e)) {
        e->full = true;
        return 0;
    }
    uint32_t *slot = type_bucket(e, e->type_bytes.data + at, e->type_bytes.len - at);
    if (*slot) {
        e->type_bytes.len = at;
        return *slot - 1;
    }
    add_type(e, at, s->param_count, true);
    struct buf *b = &e->part[SEC_TYPE].bytes;
    put_bytes(e, b, e->type_bytes.data + at, e->type_bytes.len - at);
    e->part[SEC_TYPE].items++;
    return e->type_count - 1;
}

uint32_t count_params(const struct enc *e, uint32_t type) {
    return type < e->type_count ? e->types[type].params : 0;
}

/* --- type definitions --- */

/* Reads the type of a field: `(mut t)` or t, where t may be packed. */
static int take_field_type(struct enc *e, struct buf *b) {
    bool is_mutable = take_open(e, "mut");
    if (!take_table_word(e, packed_types, b) && take_value_type(e, b) < 0)
        return -1;
    put_byte(e, b, is_mutable);
    return is_mutable ? take_close(e) : 0;
}

static int name_field(struct enc *e, uint32_t first, uint32_t index) {
    uint32_t sym = peek(e)->link;
    for (uint32_t i = first; i < e->field_count; i++)
        if (e->fields[i].sym == sym)
            return error_at(e, peek(e), "duplicate field $%s", wat_sym_name(e->t, sym));
    if (!grow_list(&e->fields, sizeof(*e->fields), e->field_count, &e->field_room))
        return e->full = true, -1;
    e->fields[e->field_count++] = (struct field_name){.sym = sym, .index = index};
    e->i++;
    return 0;
}

static int take_fields(struct enc *e, struct buf *b, uint32_t *count) {
    uint32_t first = e->field_count;
    while (take_open(e, "field")) {
        if (peek(e)->kind == WAT_ID) {
            if (name_field(e, first, (*count)++) < 0 || take_field_type(e, b) < 0)
                return -1;
        } else {
            for (; peek(e)->kind != WAT_RPAR; ++*count)
                if (take_field_type(e, b) < 0)
                    return -1;
        }
        if (take_close(e) < 0)
            return -1;
    }
    return 0;
}

static int take_struct(struct enc *e, struct buf *b) {
    struct buf fields DEFER(buf_done) = BUF(1 << 20);
    uint32_t count = 0;
    if (take_fields(e, &fields, &count) < 0)
        return -1;
    put_byte(e, b, CODE_STRUCT);
    put_u(e, b, count);
    put_bytes(e, b, fields.data, fields.len);
    return 0;
}

/* Reads `(func …)`, `(struct …)` or `(array …)`. */
static int take_composite(struct enc *e, struct buf *b, uint32_t *params) {
    if (take_open(e, "func")) {
        struct signature s DEFER(signature_done) = SIGNATURE();
        if (take_signature(e, NAMES_IGNORED, &s) < 0)
            return -1;
        put_signature(e, b, &s);
        *params = s.param_count;
    } else if (e->spec >= 30 && take_open(e, "struct")) {
        if (take_struct(e, b) < 0)
            return -1;
    } else if (e->spec >= 30 && take_open(e, "array")) {
        put_byte(e, b, CODE_ARRAY);
        if (take_field_type(e, b) < 0)
            return -1;
    } else {
        return expected(e,
                        e->spec >= 30 ? "`(func …)`, `(struct …)` or `(array …)`" : "`(func …)`");
    }
    return take_close(e);
}

/* Reads and encodes the start of a subtype, `(sub final? $super*`. */
static int take_sub(struct enc *e, struct buf *b, uint32_t *supers) {
    struct buf list DEFER(buf_done) = BUF(1 << 20);
    bool final = take_word(e, "final");
    while (at_index(e)) {
        uint32_t index;
        if (take_index(e, WAT_TYPES, &index) < 0)
            return -1;
        put_u(e, &list, index);
        ++*supers;
    }
    if (final && *supers == 0)
        return 0;
    put_byte(e, b, final ? CODE_SUB_FINAL : CODE_SUB);
    put_u(e, b, *supers);
    put_bytes(e, b, list.data, list.len);
    return 0;
}

/* Reads one `(type …)`. Its bytes go to the section, its composite type to the list of types. */
static int take_type(struct enc *e, bool alone) {
    struct buf *b = &e->part[SEC_TYPE].bytes;
    mark(e, &e->part[SEC_TYPE], peek(e)->pos);
    if (!take_open(e, "type"))
        return expected(e, "`(type …)`");
    if (peek(e)->kind == WAT_ID)
        e->i++;
    size_t before = b->len;
    uint32_t supers = 0, params = 0, fields = e->field_count;
    bool sub = e->spec >= 30 && take_open(e, "sub");
    if (sub && take_sub(e, b, &supers) < 0)
        return -1;
    bool plain = alone && b->len == before;
    uint32_t at = (uint32_t)e->type_bytes.len;
    if (take_composite(e, &e->type_bytes, &params) < 0)
        return -1;
    put_bytes(e, b, e->type_bytes.data + at, e->type_bytes.len - at);
    bool is_func = e->type_bytes.len > at && (uint8_t)e->type_bytes.data[at] == CODE_FUNC;
    add_type(e, at, params, plain && is_func);
    if (!e->full)
        e->types[e->type_count - 1].field_first = fields;
    if (sub && take_close(e) < 0)
        return -1;
    return take_close(e);
}

int define_type(struct enc *e) {
    e->part[SEC_TYPE].items++;
    return take_type(e, true);
}

/* Writes the number of types in the group first, which is counted by the parentheses. */
int define_group(struct enc *e) {
    struct buf *b = &e->part[SEC_TYPE].bytes;
    e->i += 2;
    uint32_t count = 0, close = e->i;
    for (; e->t->tokens[close].kind == WAT_LPAR; close = e->t->tokens[close].link + 1)
        count++;
    put_byte(e, b, CODE_REC);
    put_u(e, b, count);
    e->part[SEC_TYPE].items++;
    for (uint32_t i = 0; i < count; i++)
        if (take_type(e, count == 1) < 0)
            return -1;
    return take_close(e);
}

/* --- type uses --- */

static bool at_signature(const struct enc *e) {
    return at_open(e, "param") || at_open(e, "result");
}

/* If `(type x)` is followed by parameters and results, they must agree with the type. */
static int check_inline(struct enc *e, const struct wat_token *tok, uint32_t type,
                        const struct signature *s) {
    struct buf bytes DEFER(buf_done) = BUF(2 << 20);
    if (type >= e->type_count)
        return error_at(e, tok, "unknown type %u", type);
    put_signature(e, &bytes, s);
    if (same_type(e, type, bytes.data, bytes.len))
        return 0;
    error_at(e, tok, "inline function type differs from type %u", type);
    return wat_hint(e->diags, "make the `(param …)` and `(result …)` equal to the type's, or "
                              "leave them out");
}

static int take_type_index(struct enc *e, const struct wat_token **tok, uint32_t *ret) {
    *tok = peek(e);
    return take_index(e, WAT_TYPES, ret) < 0 ? -1 : take_close(e);
}

/* Reads a type use as its parts; *tok is NULL if `(type x)` is not given. */
static int take_use_parts(struct enc *e, enum param_names names, const struct wat_token **tok,
                          uint32_t *type, struct signature *s) {
    *tok = NULL;
    if (take_open(e, "type") && take_type_index(e, tok, type) < 0)
        return -1;
    bool written = at_signature(e);
    if (take_signature(e, names, s) < 0)
        return -1;
    return *tok && written ? check_inline(e, *tok, *type, s) : 0;
}

int take_type_use(struct enc *e, bool bind_params, uint32_t *ret) {
    struct signature s DEFER(signature_done) = SIGNATURE();
    const struct wat_token *tok;
    uint32_t type = 0;
    if (take_use_parts(e, bind_params ? NAMES_BOUND : NAMES_REFUSED, &tok, &type, &s) < 0)
        return -1;
    *ret = tok ? type : intern_signature(e, &s);
    return 0;
}

int take_block_type(struct enc *e, struct buf *b) {
    struct signature s DEFER(signature_done) = SIGNATURE();
    const struct wat_token *tok;
    uint32_t type = 0;
    if (take_use_parts(e, NAMES_REFUSED, &tok, &type, &s) < 0)
        return -1;
    bool is_short = !tok && s.param_count == 0 && s.result_count <= 1;
    if (is_short && s.result_count == 0)
        put_byte(e, b, 0x40);
    else if (is_short)
        put_bytes(e, b, s.results.data, s.results.len);
    else
        put_s(e, b, tok ? type : intern_signature(e, &s));
    return 0;
}
