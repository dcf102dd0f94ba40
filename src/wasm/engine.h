/*
 * The engine's own structures; embedders see wasm/wasm.h only.
 *
 * Module and code are position-independent of any store: instances share them. What a guest can
 * hold (slots, tables, globals) are numbers, never pointers, so a store can be written out, copied
 * and read back. A function reference is (instance number + 1) << 32 | function index.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/sha256.h"
#include "wasm/opcode.h"
#include "wasm/wasm.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

enum {
    PAGE_SIZE = 65536,
    PAGES_UNIT = 4096, /* of copies, captures and hashes */
    MAX_LOCALS = 50000,
    MAX_ALL_LOCALS = 50000000, /* a short body can declare many: bounds the time to validate */
    MAX_FRAME_SLOTS = 65000,   /* slot numbers are 16 bits wide in code */
    MAX_PARAMS = 1000,
    MAX_TYPES = 1000000,
    MAX_SUPERS = 63,
    MAX_FUNCS = 1000000,
    MAX_ITEMS = 100000, /* imports, exports, globals, segments of one module */
    MAX_TABLES = 10000,
    MAX_NEST = 100000,     /* control nesting in one function */
    MAX_CONST_DEPTH = 256, /* operands of a constant expression */
};

/* ---- Memory that lives as long as its owner ---- */

struct arena {
    struct wasm_engine *engine;
    struct arena_chunk *chunk;
    uint8_t *at, *end;
};

/* Zeroed, 8-aligned; NULL when there is no memory. */
void *arena_get(struct arena *a, size_t size);
void engine_arena_done(struct arena *a);

void *engine_alloc(struct wasm_engine *e, size_t size); /* zeroed */
void *engine_realloc(struct wasm_engine *e, void *p, size_t old_size, size_t new_size);
void engine_release(struct wasm_engine *e, void *p, size_t size);

/* Make room for one more element in a growing array; false when there is no memory. */
bool engine_grow(struct wasm_engine *e, void *array_slot, uint32_t *cap, uint32_t need,
                 size_t elem_size);

/* ---- Types ---- */

enum type_kind { TYPE_FUNC = 0x60, TYPE_STRUCT = 0x5f, TYPE_ARRAY = 0x5e };

#define NO_TYPE UINT32_MAX
#define TYPE_RELATIVE 0x10000000u /* heap type inside its own recursion group, before interning */
#define FIELD_MUTABLE 0x08000000u /* flag on a field's type; never on a value's */
#define TYPE_I8 0x78u
#define TYPE_I16 0x77u

struct type {
    uint8_t kind;
    bool final;
    uint32_t id;
    uint32_t super;               /* id or NO_TYPE */
    uint32_t n_params, n_results; /* a struct's or array's fields are params */
    uint32_t param_slots, result_slots;
    uint32_t *vals; /* params, then results */
    /* So that casts and field accesses take the same time for every type. */
    uint32_t depth;        /* supertypes above it */
    uint32_t *supers;      /* from the top down to itself; NULL: too deep, to be refused */
    uint32_t *field_slots; /* of a struct: where each field lies */
};

static inline bool is_ref(uint32_t type) {
    return type & WASM_REF;
}
static inline unsigned slots_of(uint32_t type) {
    return type == WASM_V128 ? 2 : 1;
}
/* A call of this type: arguments and results may be moved, so many of them are paid for. */
static inline uint32_t type_call_cost(const struct type *t) {
    return 1 + (t->n_params + t->n_results) / 8;
}
static inline bool is_defaultable(uint32_t type) {
    return !is_ref(type) || (type & WASM_NULLABLE);
}

/* Give a recursion group its engine-wide ids: the same for an equal group of any module. */
bool types_intern(struct wasm_engine *e, struct type *group, uint32_t n, uint32_t *ret_first);
bool types_sub(const struct wasm_engine *e, uint32_t a, uint32_t b);     /* value types */
bool types_sub_def(const struct wasm_engine *e, uint32_t a, uint32_t b); /* type ids */
/* At most MAX_SUPERS above it: a cast walks them. */
bool types_depth_ok(const struct wasm_engine *e, const struct type *t);
/* Does the declared supertype fit? */
bool types_super_ok(const struct wasm_engine *e, const struct type *t);
struct wasm_func_type type_view(const struct type *t);

struct type_group {
    uint32_t *key;
    uint32_t n_words, first, hash;
};

struct scratch;

/* What the walk needs of a one-byte instruction, packed. */
struct plain_op {
    uint16_t row; /* OP_COUNT: none */
    uint8_t level;
    uint8_t n_in, in[2], out; /* of the numeric ones */
    uint8_t cost;
};

struct spare_stack {
    uint8_t *base;
    size_t size;
};

struct wasm_engine {
    struct plain_op plain[256];
    struct spare_stack spare;
    struct wasm_config cfg;
    struct type **types;
    uint32_t n_types, cap_types;
    struct type_group *groups;
    uint32_t n_groups, cap_groups;
    uint32_t *group_table; /* open addressing, group number + 1 */
    uint32_t group_mask;
    struct arena arena;      /* types and keys */
    struct scratch *scratch; /* the walker's stacks, reused */
    uint64_t work; /* steps of searches, collections and copies: tests hold them against fuel */
};

/* ---- Module ---- */

struct limits_decl {
    struct wasm_limits l;
    uint32_t type; /* of a table */
    uint32_t init; /* offset of a table's initialiser expression, or 0 */
};

struct global_decl {
    uint32_t type;
    bool is_mutable;
    uint32_t init; /* offset of its expression */
};

struct import_decl {
    const char *module, *name;
    uint32_t module_size, name_size;
    uint8_t kind;
    uint32_t index; /* in the index space of its kind */
};

struct export_decl {
    const char *name;
    uint32_t name_size;
    uint8_t kind;
    uint32_t index;
};

enum segment_mode { SEG_ACTIVE, SEG_PASSIVE, SEG_DECLARED };

struct elem_decl {
    uint8_t mode;
    bool is_funcs; /* items are function indices, else expressions */
    uint32_t table;
    uint32_t type;
    uint32_t offset; /* of the offset expression */
    uint32_t items;  /* offset of the first item */
    uint32_t n;
};

struct data_decl {
    uint8_t mode;
    uint32_t mem;
    uint32_t offset; /* of the offset expression */
    uint32_t bytes, size;
};

enum mark_kind {
    MARK_OP = 1,     /* a word of the instruction at offset */
    MARK_START = 2,  /* a block that can be entered here once it is paid */
    MARK_RETURN = 4, /* the same, after a call */
    MARK_SELF = 8,   /* an instruction that pays for itself */
    MARK_STEP = 16,  /* stepping code can stop here */
};

/* Where one code word came from. rest is what is left of its block's cost after that instruction.
 */
struct mark {
    uint32_t kind;
    uint32_t pos;
    uint32_t offset;
    uint32_t rest;
    uint32_t height; /* slots in the frame, locals included */
};

/* A catch clause: code positions [from, to) land at pad. */
struct handler {
    uint32_t from, to, pad;
    uint32_t tag; /* index, or NO_TYPE for all */
    bool wants_ref;
    uint32_t base; /* slot for the caught values */
};

/* One translation of one function. */
struct code {
    uint64_t *words;
    uint32_t n_words;
    struct mark *marks; /* by pos; made when first asked for */
    uint32_t n_marks;
    struct handler *handlers;
    uint32_t n_handlers;
    bool stepping;
};

struct host_func {
    char *module, *name;
    uint64_t cost;
    uint32_t sized; /* parameter + 1 that is a number of bytes, each 8 of them cost 1; 0: none */
};

/* A function of a module, or a host function. */
struct fn {
    const uint64_t *entry; /* first word of the fast translation; NULL before the first call */
    uint32_t entry_cost;   /* of the entry and the first block */
    uint32_t frame_slots;
    uint32_t param_slots, zero_slots, result_slots;
    uint32_t canon; /* type id */
    uint32_t index;
    uint32_t body, body_size; /* offset of the locals; 0 if imported or host */
    const struct type *type;
    struct wasm_module *mod;
    struct host_func *host;
    struct code *fast, *step;
};

struct wasm_module {
    struct wasm_engine *engine;
    struct arena arena;
    uint32_t refs;
    enum wasm_level level;
    const uint8_t *bytes;
    size_t size;

    uint32_t n_types, n_funcs, n_tables, n_mems, n_globals, n_tags;
    uint32_t imported_funcs, imported_tables, imported_mems, imported_globals, imported_tags;
    uint32_t n_imports, n_exports, n_elems, n_datas;
    uint32_t *types; /* index -> id */
    struct fn *fns;
    struct limits_decl *tables, *mems;
    struct global_decl *globals;
    uint32_t *tags; /* type ids */
    struct import_decl *imports;
    struct export_decl *exports;
    struct elem_decl *elems;
    struct data_decl *datas;
    uint8_t *declared; /* functions that ref.func may name */
    uint32_t start;    /* NO_TYPE: none */
    uint32_t n_data_count;
    bool has_data_count;
    uint32_t names, names_size; /* the name section's payload */
    uint64_t n_locals;          /* of all functions walked while loading */
    bool is_loaded;
    bool hashed;
    uint8_t hash[32];
};

static inline const struct type *module_type(const struct wasm_module *m, uint32_t index) {
    return m->engine->types[m->types[index]];
}

/* ---- Reading bytes ---- */

struct reader {
    const uint8_t *p, *end;
    const uint8_t *base; /* of the module */
    struct wasm_diag *diag;
    bool failed;
};

/* Records the first failure only; returns false. */
bool reader_fail(struct reader *r, enum wasm_fault fault, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
uint32_t reader_u32_slow(struct reader *r);
uint64_t reader_u64(struct reader *r);
int32_t reader_s32(struct reader *r);
int64_t reader_s64(struct reader *r);
int64_t reader_s33(struct reader *r);
uint8_t reader_end(struct reader *r); /* fails; 0 */
const uint8_t *reader_bytes(struct reader *r, size_t n);

static inline uint8_t reader_byte(struct reader *r) {
    return LIKELY(r->p < r->end) ? *r->p++ : reader_end(r);
}

static inline uint32_t reader_u32(struct reader *r) {
    if (LIKELY(r->p < r->end && *r->p < 0x80))
        return *r->p++;
    return reader_u32_slow(r);
}

/* A value type, block-type byte already refused. 0 after a failure. */
uint32_t module_valtype(struct wasm_module *m, struct reader *r);
uint32_t module_reftype(struct wasm_module *m, struct reader *r);
/* Heap type without its null flag, in WASM_HEAP bits and WASM_ABSTRACT. */
uint32_t module_heaptype(struct wasm_module *m, struct reader *r);
/* Check a constant expression and leave the reader after its end. */
bool module_const_expr(struct wasm_module *m, struct reader *r, uint32_t type);

/* ---- Bodies: one walk, two consumers (walk.c) ---- */

bool walk_validate(struct wasm_module *m, struct fn *fn, struct wasm_diag *diag);
/* Is the body well-formed, whatever it means? For the class of a refusal only. */
bool skip_body(struct fn *fn, struct wasm_diag *diag);
/* Translate; the body is valid already. NULL when there is no memory. */
struct code *walk_emit(struct fn *fn, bool stepping);
/* The marks of a translation, which a second, recording run makes. */
bool walk_marks(struct fn *fn, struct code *c);
/* What is on the stack and in the locals at a mark; set is NULL when all locals have a value. */
struct mark_types {
    const uint32_t *locals, *stack;
    const uint8_t *set;
    uint32_t n_locals, n_stack, local_slots;
};
/*
 * Walks the body of `fn` again and calls `visit` for each mark, in order of its number.
 * False: out of memory.
 */
bool walk_types(struct fn *fn, struct code *c,
                void (*visit)(void *ctx, uint32_t mark, const struct mark_types *t), void *ctx);
void scratch_free(struct wasm_engine *e);
void plain_ops_init(struct plain_op ops[256]);

/* ---- Store ---- */

/* A small memory begins with nothing and gets its bytes as they are reached: the first few from the
   allocator, then all of them as pages. What is not ready is zero. */
struct memory {
    uint8_t *base;
    uint64_t ready; /* bytes at base */
    uint64_t size;  /* bytes the guest has */
    uint64_t max;   /* pages, from the type and the configuration */
    struct wasm_limits type;
    struct pages *pages; /* NULL: base is from the allocator */
};

struct table {
    uint64_t *elems;
    uint64_t size, cap, max;
    struct wasm_limits type_limits;
    uint32_t type;
};

struct global {
    uint64_t value[2];
    uint32_t type;
    bool is_mutable;
};

struct wasm_instance {
    struct fn *fns; /* the module's, or the store's host functions */
    uint32_t n_fns;
    const struct memory *mem0; /* memory 0, or an empty one */
    struct wasm_store *store;
    struct wasm_module *mod;
    uint32_t number;
    uint64_t *func_refs; /* imported functions */
    struct global **globals;
    struct memory **mems;
    struct table **tables;
    uint32_t *tags; /* store tag numbers */
    uint8_t *dropped_elems, *dropped_datas;
    uint64_t **elem_refs; /* per passive or active segment until dropped */
    /* As numbers in the store, for exports and capture. */
    uint32_t *global_ids, *mem_ids, *table_ids;
    size_t block_size;
};

struct frame {
    const uint64_t *ret;        /* where the caller goes on */
    uint64_t *fp;               /* the caller's slots */
    struct wasm_instance *inst; /* the caller's */
    struct fn *fn;              /* the callee */
};

struct tag {
    uint32_t canon;
};

struct exn {
    uint32_t tag; /* store number; NO_TYPE: free */
    uint32_t n_slots;
    uint64_t *slots;
    bool marked;
};

/* A struct or an array; n is its fields or elements. */
struct object {
    uint32_t type; /* id; NO_TYPE: free */
    uint32_t n;
    uint32_t n_slots;
    bool marked;
    uint64_t *slots;
};

enum run_state { RUN_IDLE, RUN_READY, RUN_HOST };

/* Initialisation of an instance, a part of its first call. */
struct init_job {
    struct wasm_instance *inst;
    uint32_t next; /* memories and tables, then segments: elements, data; then the start function */
    bool active;
};

struct definition {
    char *module, *name;
    uint32_t module_size, name_size;
    struct wasm_extern what;
};

/* How a store came to be, so that it can be made again with the same numbers. */
enum creation_kind { MADE_FUNC, MADE_GLOBAL, MADE_MEMORY, MADE_TABLE, MADE_INSTANCE };

struct creation {
    uint8_t kind;
    uint32_t index; /* in the store's list of that kind */
};

struct wasm_store {
    struct wasm_engine *engine;
    struct creation *log;
    uint32_t n_log, cap_log;
    uint64_t *handles; /* host handles the guest was given; may repeat */
    uint32_t n_handles, cap_handles;
    struct wasm_instance **insts; /* 0 is the host's */
    uint32_t n_insts, cap_insts;
    struct memory **mems;
    uint32_t n_mems, cap_mems;
    struct table **tables;
    uint32_t n_tables, cap_tables;
    struct global **globals;
    uint32_t n_globals, cap_globals;
    struct tag *tags;
    uint32_t n_tags, cap_tags;
    struct fn *host_fns;
    uint32_t n_host_fns, cap_host_fns;
    struct definition *defs;
    uint32_t n_defs, cap_defs;
    struct exn *exns;
    uint32_t n_exns, cap_exns, live_exns;
    uint32_t free_exn; /* none below it is free */
    uint64_t exn_slots;

    struct object *objs;
    uint32_t n_objs, cap_objs, free_obj;
    uint64_t heap_slots, since_collect;
    uint64_t bytes;      /* of cfg.store_bytes, see budget.h */
    bool is_over_budget; /* something was refused for it */
    bool no_collect;     /* references are where the collector does not look */

    /* The call in progress. */
    enum run_state state;
    uint64_t *stack, *stack_end;
    size_t stack_mapped; /* bytes */
    struct frame *frames, *frames_end;
    struct frame *top; /* the innermost frame; frames[0] is a sentinel */
    const uint64_t *pc;
    uint64_t *fp;
    struct wasm_instance *inst;
    const struct type *call_type;
    struct init_job init;

    uint64_t budget, used;
    uint64_t grant; /* what this run was given of the budget */
    uint64_t needed;
    uint64_t sequence;
    struct fn *start_fn;  /* the call has not entered yet; arguments are on the stack */
    bool answered;        /* the pending host call has its results */
    uint32_t host_fn;     /* pending host call */
    uint64_t *host_slots; /* its arguments, then its results */

    struct wasm_event event;
    struct wasm_value *values;
    uint32_t cap_values;
    uint64_t thrown; /* uncaught exception */
    bool ran_since_seal;
};

/* ---- Running (interp.c) ---- */

enum exit_code {
    EXIT_DONE,
    EXIT_TRAP,
    EXIT_THROW,
    EXIT_FUEL, /* store->needed; position is saved */
    EXIT_HOST,
};

/* Runs from (pc, fp, inst, top) with the fuel granted; saves the position when it leaves. */
enum exit_code interp_run(struct wasm_store *s, int64_t *fuel, const char **ret_trap);
/* The word where a function's outermost call returns to. */
extern const uint64_t interp_exit_word[2];

/* Position <-> module offset; used when something stops, never on the hot path. */
struct code *fn_code_at(const struct fn *fn, const uint64_t *pc);
/* The last mark of these kinds at a word, the first at a module offset; NULL if there is none.
   Several blocks may start at one word: between them are only instructions that do nothing and cost
   nothing. */
const struct mark *code_mark_at(struct fn *fn, struct code *c, const uint64_t *pc, uint32_t kinds);
const struct mark *code_mark_of(struct fn *fn, struct code *c, uint32_t offset, uint32_t kinds);
bool fn_compile(struct fn *fn);
struct code *fn_step_code(struct fn *fn);

extern const char trap_unreachable[], trap_memory[], trap_table[], trap_undefined[],
    trap_uninitialized[], trap_indirect[], trap_stack[], trap_null[], trap_null_func[],
    trap_no_memory[], trap_null_exn[], trap_exceptions[];

/* Bulk operations on a store's objects; NULL or the trap. Bounds first, then fuel, then bytes. */
bool memory_new(struct wasm_store *s, const struct wasm_limits *l, struct memory **ret);
bool memory_grow(struct wasm_store *s, struct memory *m, uint64_t delta, uint64_t *ret_old);
void memory_free(struct wasm_store *s, struct memory *m);
/* Make the bytes below end ready, which are the guest's; base may move. false: no memory. */
bool memory_reach(struct wasm_engine *e, struct memory *m, uint64_t end);
/* Sets a byte for each unit of PAGES_UNIT that may hold anything but zero; touches none of them. */
void memory_touched(const struct memory *m, uint8_t *units);
/* A unit's bytes, there or in copy; touches nothing that is not ready. */
const uint8_t *memory_unit(const struct memory *m, uint64_t unit, uint8_t copy[PAGES_UNIT]);
/* A copy for another store of the same engine; dirty as in pages_fork. */
bool memory_fork(struct wasm_engine *e, struct memory *m, bool dirty, struct memory **ret);
bool table_new(struct wasm_store *s, const struct wasm_limits *l, uint32_t type, uint64_t init,
               struct table **ret);
void table_free(struct wasm_store *s, struct table *t);
bool table_grow(struct wasm_store *s, struct table *t, uint64_t delta, uint64_t init,
                uint64_t *ret_old);
struct fn *store_fn(const struct wasm_store *s, uint64_t ref, struct wasm_instance **ret_inst);
uint64_t instance_func_ref(const struct wasm_instance *i, uint32_t func);
bool instance_eval(struct wasm_instance *i, uint32_t offset, uint64_t ret[2]);
/* The references of an element segment, made when first needed. */
const uint64_t *instance_elems(struct wasm_instance *i, uint32_t seg);

/* ---- Pages (pages.c) ---- */

struct pages;
struct pages *pages_new(struct wasm_engine *e, uint64_t size, uint8_t **ret_base);
bool pages_grow(struct pages *p, uint64_t size, uint8_t **ret_base);
/* A copy-on-write copy; dirty says that p may have changed since the last one. */
struct pages *pages_fork(struct pages *p, bool dirty, uint8_t **ret_base, uint8_t **ret_own_base);
void pages_free(struct pages *p);
/* Sets a byte for each unit that may hold anything but zero; reads none of them. */
void pages_touched(const struct pages *p, uint8_t *units);
