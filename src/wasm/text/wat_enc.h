/*
 * Private to the text encoder (wat*.c): the state of one module being encoded.
 *
 * Two walks over the tokens: the first gives every definition its index, so that
 * names may be used before they are defined; the second writes the sections.
 * Functions return 0 or -1 with the reason in diags; out of memory sets `full`
 * and is reported once, at the end.
 */
#pragma once

#include "wasm/opcode.h"
#include "wasm/text/wat.h"

enum section {
    SEC_TYPE = 1,
    SEC_IMPORT = 2,
    SEC_FUNC = 3,
    SEC_TABLE = 4,
    SEC_MEMORY = 5,
    SEC_GLOBAL = 6,
    SEC_EXPORT = 7,
    SEC_START = 8,
    SEC_ELEM = 9,
    SEC_CODE = 10,
    SEC_DATA = 11,
    SEC_DATACOUNT = 12,
    SEC_TAG = 13,
    SEC_COUNT = 14,
};

/* Encoded bytes, with the source positions that they come from. */
struct part {
    struct buf bytes;
    uint32_t items;
    struct wat_place *map;
    uint32_t map_count, map_room;
};

struct type_def {
    uint32_t at, len;                /* position of its encoded composite type in enc.type_bytes */
    uint32_t params;                 /* number of parameters of a function type */
    uint32_t field_first, field_end; /* range in enc.fields: the named fields of a struct */
    bool plain; /* without a supertype and alone in its group: a type use may match it */
};

struct field_name {
    uint32_t sym, index;
};

struct label {
    uint32_t sym, shadowed; /* symbol + 1, and the outer label with the same name */
    uint32_t token;
    uint32_t folds; /* number of open folds when a flat block was opened */
    bool flat;
    bool is_if; /* an `else` may still come */
};

enum fold_kind { FOLD_PLAIN, FOLD_BLOCK, FOLD_IF, FOLD_IF_DONE, FOLD_THEN, FOLD_ELSE };

/* A fold: an open parenthesis of a folded instruction, such as `(i32.add …)`. */
struct fold {
    enum fold_kind kind;
    uint32_t token;    /* the keyword of the instruction */
    uint32_t pending;  /* start of its bytes in enc.pending, where they wait for the operands */
    uint32_t label;    /* label of a folded if: symbol + 1 */
    uint32_t operands; /* number of folded instructions inside */
    uint32_t labels;   /* number of labels that were open outside */
};

/* A folded instruction that may have too many operands; see struct wat_surplus. */
struct note {
    uint32_t pos, given, takes;
    uint32_t callee; /* index + 1 of the function that it calls, whose type may come later; or 0 */
};

enum { MOST_NOTES = 4096 };

struct enc {
    struct wat_text *t;
    struct wat_diags *diags;
    uint32_t i, end; /* next token; end of the module's fields */
    int spec;
    bool full;
    struct part part[SEC_COUNT];
    struct part *out; /* receives instructions: a body, or the section of a constant expression */
    struct part body;
    struct buf pending;
    uint32_t counts[WAT_SPACE_COUNT];
    bool defined; /* a definition was seen: no import may follow */
    bool started;
    bool needs_data_count;

    struct buf type_bytes;
    struct type_def *types;
    uint32_t type_count, type_room;
    uint32_t *type_buckets; /* plain function types by content, index + 1 */
    uint32_t type_bucket_count, type_hashed;
    struct field_name *fields;
    uint32_t field_count, field_room;

    struct label *labels;
    uint32_t label_count, label_room;
    struct fold *folds;
    uint32_t fold_count, fold_room;
    uint32_t *local_syms; /* names of locals of this function, cleared after it */
    uint32_t local_sym_count, local_sym_room;
    uint32_t *func_names; /* symbol + 1 by function index */
    uint32_t func_name_room;
    uint32_t *func_params; /* number of parameters by function index */
    uint32_t func_param_room;
    struct note *notes;
    uint32_t note_count, note_room;

    uint16_t *op_buckets; /* opcodes by text name, index + 1 */
};

/* --- tokens (wat.c) --- */
static inline const struct wat_token *peek(const struct enc *e) {
    return &e->t->tokens[e->i];
}
bool at_word(const struct enc *e, const char *word);
bool at_open(const struct enc *e, const char *word); /* "(" word */
bool take_word(struct enc *e, const char *word);
bool take_open(struct enc *e, const char *word);
int take_close(struct enc *e);
int expected(struct enc *e, const char *what);
int error_at(struct enc *e, const struct wat_token *tok, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
bool at_index(const struct enc *e);
int take_index(struct enc *e, enum wat_space space, uint32_t *ret);
int take_u32(struct enc *e, const char *what, uint32_t *ret);
int take_unsigned(struct enc *e, const char *what, uint64_t max, uint64_t *ret);
int bind_name(struct enc *e, enum wat_space space, uint32_t index);
bool grow_list(void *list_ptr, size_t item, uint32_t count, uint32_t *room);

/* --- bytes (wat.c) --- */
void put_byte(struct enc *e, struct buf *b, unsigned byte);
void put_u(struct enc *e, struct buf *b, uint64_t value);
void put_s(struct enc *e, struct buf *b, int64_t value);
void put_bytes(struct enc *e, struct buf *b, const void *bytes, size_t len);
void put_name(struct enc *e, struct buf *b, const struct buf *name);
void mark(struct enc *e, struct part *p, uint32_t pos);

/* --- types (wat_type.c) --- */
int take_value_type(struct enc *e, struct buf *b);
int take_ref_type(struct enc *e, struct buf *b);
bool at_ref_type(const struct enc *e);
bool at_value_type(const struct enc *e);
int take_heap_type(struct enc *e, struct buf *b);
/* Reads a reference type as its heap type and whether it is nullable. */
int take_ref_parts(struct enc *e, struct buf *heap, bool *nullable);
int define_type(struct enc *e);  /* `(type …)` */
int define_group(struct enc *e); /* `(rec …)` */
int take_results(struct enc *e, struct buf *types, uint32_t *count);
/* Reads a type use; with bind_params, names of parameters become names of locals. */
int take_type_use(struct enc *e, bool bind_params, uint32_t *ret_type);
int take_block_type(struct enc *e, struct buf *b);
uint32_t count_params(const struct enc *e, uint32_t type);

/* --- instructions (wat_instr.c) --- */
int take_instructions(struct enc *e); /* up to the ')' that closes the enclosing field or block */
int take_folded(struct enc *e);       /* reads exactly one instruction */
/* Keeps those notes whose instructions have too many operands. */
void take_surplus(struct enc *e, struct wat_module *ret);
bool init_ops(struct enc *e);
/* Finds the first opcode with this text name at this spec level; OP_COUNT: none. */
enum wasm_op find_op(const struct enc *e, const char *name, size_t len);

/* --- advice (wat_hint.c) --- */
void hint_instruction(struct enc *e, const struct wat_token *tok);
void hint_expected(struct enc *e, const struct wat_token *tok, const char *what);
/* For signs of other languages, such as commas; false: the token is none. */
bool hint_punctuation(struct enc *e, const struct wat_token *tok);
/* For a token in place of a number of a type. */
void hint_number(struct enc *e, const struct wat_token *tok, const char *type);
/* Advises on a bare operand of instruction `op`; OP_COUNT: of a flat one. */
void hint_operand(struct enc *e, const struct wat_token *tok, enum wasm_op op);
/* Says where the name of `tok` was defined first. */
void hint_duplicate(struct enc *e, enum wat_space space, const struct wat_token *tok);
bool is_name_like(const struct enc *e, const struct wat_token *tok);
void hint_name(struct enc *e, enum wat_space space, const struct wat_token *tok);
