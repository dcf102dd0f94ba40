/*
 * The engine's own structures; embedders see wasm/wasm.h only.
 *
 * Modules and their code belong to no store: instances of all stores share them. All values of a
 * guest (in slots, tables, globals) are numbers, never pointers, so a store can be saved, copied
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
    PAGES_UNIT = 4096, /* bytes per unit of copies, captures and hashes */
    MAX_LOCALS = 50000,
    MAX_ALL_LOCALS = 50000000, /* of a module, because a short body can declare many locals */
    MAX_FRAME_SLOTS = 65000,   /* of one function: slot numbers have 16 bits in code */
    MAX_PARAMS = 1000,
    MAX_TYPES = 1000000,
    MAX_SUPERS = 63,
    MAX_FUNCS = 1000000,
    MAX_ITEMS = 100000, /* each: imports, exports, globals, segments of one module */
    MAX_TABLES = 10000,
    MAX_NEST = 100000,     /* depth of nested blocks in one function */
    MAX_CONST_DEPTH = 256, /* operands on the stack while a constant expression is evaluated */
};

/* ---- Arenas: memory that is freed with its owner ---- */

struct arena {
    struct wasm_engine *engine;
    struct arena_chunk *chunk;
    uint8_t *at, *end;
};

/* Returns zeroed memory from the arena, aligned to 8 bytes; NULL if memory is exhausted. */
void *arena_get(struct arena *a, size_t size);
void engine_arena_done(struct arena *a);

void *engine_alloc(struct wasm_engine *e, size_t size); /* the memory is zeroed */
void *engine_realloc(struct wasm_engine *e, void *p, size_t old_size, size_t new_size);
void engine_release(struct wasm_engine *e, void *p, size_t size);

/* Makes room for `need` elements in a growing array. False: out of memory, array unchanged. */
bool engine_grow(struct wasm_engine *e, void *array_slot, uint32_t *cap, uint32_t need,
                 size_t elem_size);

/* ---- Types ---- */

enum type_kind { TYPE_FUNC = 0x60, TYPE_STRUCT = 0x5f, TYPE_ARRAY = 0x5e };

#define NO_TYPE UINT32_MAX
#define TYPE_RELATIVE 0x10000000u /* type of the same recursion group, not yet interned */
#define FIELD_MUTABLE 0x08000000u /* flag in the type of a field: the field can be changed */
#define TYPE_I8 0x78u
#define TYPE_I16 0x77u

struct type {
    uint8_t kind;
    bool final;
    uint32_t id;
    uint32_t super;               /* id of the declared supertype, or NO_TYPE */
    uint32_t n_params, n_results; /* n_params counts the fields of a struct or array */
    uint32_t param_slots, result_slots;
    uint32_t *vals; /* types of the params (or fields), then of the results */
    /* The next three make casts and field accesses take the same time for all types. */
    uint32_t depth;        /* number of supertypes above this type */
    uint32_t *supers;      /* ids from the topmost supertype to this type; NULL: too many */
    uint32_t *field_slots; /* of a struct: the first slot of each field */
};

static inline bool is_ref(uint32_t type) {
    return type & WASM_REF;
}
static inline unsigned slots_of(uint32_t type) {
    return type == WASM_V128 ? 2 : 1;
}
/* Fuel of a call of this type. Many arguments and results cost more, because they are moved. */
static inline uint32_t type_call_cost(const struct type *t) {
    return 1 + (t->n_params + t->n_results) / 8;
}
static inline bool is_defaultable(uint32_t type) {
    return !is_ref(type) || (type & WASM_NULLABLE);
}

/* Gives the types of a recursion group their ids; equal groups of all modules get the same ids. */
bool types_intern(struct wasm_engine *e, struct type *group, uint32_t n, uint32_t *ret_first);
bool types_sub(const struct wasm_engine *e, uint32_t a, uint32_t b);     /* a, b: value types */
bool types_sub_def(const struct wasm_engine *e, uint32_t a, uint32_t b); /* a, b: type ids */
/* True if the type has at most MAX_SUPERS supertypes above it. */
bool types_depth_ok(const struct wasm_engine *e, const struct type *t);
/* True if the type matches the supertype that it declares. */
bool types_super_ok(const struct wasm_engine *e, const struct type *t);
struct wasm_func_type type_view(const struct type *t);

struct type_group {
    uint32_t *key;
    uint32_t n_words, first, hash;
};

struct scratch;

/* The properties of a one-byte instruction that the walk needs, packed. */
struct plain_op {
    uint16_t row; /* row in opcodes.def; OP_COUNT: no such instruction */
    uint8_t level;
    uint8_t n_in, in[2], out; /* operand and result types of numeric instructions */
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
    uint32_t *group_table; /* hash table of group numbers + 1, with open addressing */
    uint32_t group_mask;
    struct arena arena;      /* memory of `types` and of the keys of groups */
    struct scratch *scratch; /* buffers of walk.c, used again for each function body */
    uint64_t work; /* steps of searches, collections and copies; tests compare it with fuel */
};

/* ---- Module ---- */

struct limits_decl {
    struct wasm_limits l;
    uint32_t type; /* element type of a table */
    uint32_t init; /* offset of a table's initialiser expression, or 0 */
};

struct global_decl {
    uint32_t type;
    bool is_mutable;
    uint32_t init; /* offset of the expression for its first value */
};

struct import_decl {
    const char *module, *name;
    uint32_t module_size, name_size;
    uint8_t kind;
    uint32_t index; /* number of the object among those of its kind in the module */
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
    bool is_funcs; /* the items are function indices; false: expressions */
    uint32_t table;
    uint32_t type;
    uint32_t offset; /* position in the module of the expression for its start */
    uint32_t items;  /* offset in the module of the first item */
    uint32_t n;
};

struct data_decl {
    uint8_t mode;
    uint32_t mem;
    uint32_t offset; /* position in the module of the expression for its start */
    uint32_t bytes, size;
};

enum mark_kind {
    MARK_OP = 1,     /* a word of the instruction at `offset` */
    MARK_START = 2,  /* a fuel block starts here; its cost is paid before it is entered */
    MARK_RETURN = 4, /* a fuel block that starts after a call */
    MARK_SELF = 8,   /* an instruction that pays its own fuel while it runs */
    MARK_STEP = 16,  /* a place where stepping code can stop */
};

/* Connects a word of the code with the instruction of the module that it came from. */
struct mark {
    uint32_t kind;   /* enum mark_kind */
    uint32_t pos;    /* position of the word in the code */
    uint32_t offset; /* offset of the instruction in the module */
    uint32_t rest;   /* cost of its fuel block after this instruction */
    uint32_t height; /* slots in use in the frame, locals included */
};

/* A catch clause: an exception at code positions [from, to) jumps to position `pad`. */
struct handler {
    uint32_t from, to, pad;
    uint32_t tag; /* index of the exception tag (kind) that is caught; NO_TYPE: all */
    bool wants_ref;
    uint32_t base; /* first slot for the values of the caught exception */
};

/* A function body, translated for the interpreter. */
struct code {
    uint64_t *words;
    uint32_t n_words;
    struct mark *marks; /* sorted by pos; made by walk_marks() when first needed */
    uint32_t n_marks;
    struct handler *handlers;
    uint32_t n_handlers;
    bool stepping;
};

struct host_func {
    char *module, *name;
    uint64_t cost;
    uint32_t sized; /* index + 1 of the parameter with a number of bytes: 1 fuel per 8; 0: none */
};

/* A function of a module, or a host function. */
struct fn {
    const uint64_t *entry; /* first word of the fast translation; NULL before the first call */
    uint32_t entry_cost;   /* fuel of a call and of the first fuel block */
    uint32_t frame_slots;
    uint32_t param_slots, zero_slots, result_slots;
    uint32_t canon; /* id of its type in the engine */
    uint32_t index;
    /* body: offset in the module of its locals; 0: imported or a host function */
    uint32_t body, body_size;
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
    uint32_t *types; /* for each type index of the module: the id in the engine */
    struct fn *fns;
    struct limits_decl *tables, *mems;
    struct global_decl *globals;
    uint32_t *tags; /* type id of each exception tag */
    struct import_decl *imports;
    struct export_decl *exports;
    struct elem_decl *elems;
    struct data_decl *datas;
    uint8_t *declared; /* 1 for each function that ref.func may name */
    uint32_t start;    /* index of the start function; NO_TYPE: none */
    uint32_t n_data_count;
    bool has_data_count;
    uint32_t names, names_size; /* offset and size of the name section's content */
    uint64_t n_locals;          /* number of locals of all functions, counted while loading */
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
    const uint8_t *base; /* first byte of the module or saved state */
    struct wasm_diag *diag;
    bool failed;
};

/* Reports why the bytes are refused; only the first report counts. Returns false. */
bool reader_fail(struct reader *r, enum wasm_fault fault, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
uint32_t reader_u32_slow(struct reader *r);
uint64_t reader_u64(struct reader *r);
int32_t reader_s32(struct reader *r);
int64_t reader_s64(struct reader *r);
int64_t reader_s33(struct reader *r);
uint8_t reader_end(struct reader *r); /* fails with "unexpected end"; returns 0 */
const uint8_t *reader_bytes(struct reader *r, size_t n);

static inline uint8_t reader_byte(struct reader *r) {
    return LIKELY(r->p < r->end) ? *r->p++ : reader_end(r);
}

static inline uint32_t reader_u32(struct reader *r) {
    if (LIKELY(r->p < r->end && *r->p < 0x80))
        return *r->p++;
    return reader_u32_slow(r);
}

/* Reads a value type; returns 0 if it is invalid. */
uint32_t module_valtype(struct wasm_module *m, struct reader *r);
uint32_t module_reftype(struct wasm_module *m, struct reader *r);
/* Reads a heap type, as bits of WASM_HEAP and WASM_ABSTRACT without a null flag. */
uint32_t module_heaptype(struct wasm_module *m, struct reader *r);
/* Checks a constant expression and leaves the reader after its end. */
bool module_const_expr(struct wasm_module *m, struct reader *r, uint32_t type);

/* ---- Function bodies: one walk for validation and for code (walk.c) ---- */

bool walk_validate(struct wasm_module *m, struct fn *fn, struct wasm_diag *diag);
/* Lists up to `max` errors of a body, going on after each one. Returns their number. */
uint32_t walk_faults(struct fn *fn, struct wasm_diag *list, uint32_t max);
/* True if an invalid body is at least well-formed, and so is not reported as malformed. */
bool skip_body(struct fn *fn, struct wasm_diag *diag);
/* Skips one instruction; false with the reason in the reader if it is malformed. */
bool skip_instruction(struct reader *r, const struct wasm_module *m, enum wasm_op *ret);
/* Translates a body that is known to be valid. NULL: out of memory. */
struct code *walk_emit(struct fn *fn, bool stepping);
/* Makes the marks of translation `c` by translating the body again. False: out of memory. */
bool walk_marks(struct fn *fn, struct code *c);
/* Types of the operands and locals at a mark. `set`: locals with a value; NULL: all have one. */
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

/*
 * A linear memory of WebAssembly. A small memory begins without bytes and gets them when the guest
 * uses them: the first ones from the allocator, then all of them as pages. Bytes that do not exist
 * yet (are not ready) read as zero.
 */
struct memory {
    uint8_t *base;
    uint64_t ready; /* number of bytes that exist at base */
    uint64_t size;  /* bytes that the guest may use */
    uint64_t max;   /* maximum in pages, from the type and the configuration */
    struct wasm_limits type;
    struct pages *pages; /* pages at base; NULL: base is from the allocator */
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
    struct fn *fns; /* functions of the module, or host functions of the store */
    uint32_t n_fns;
    const struct memory *mem0; /* memory 0, or an empty memory if there is none */
    struct wasm_store *store;
    struct wasm_module *mod;
    uint32_t number;
    uint64_t *func_refs; /* references to the imported functions */
    struct global **globals;
    struct memory **mems;
    struct table **tables;
    uint32_t *tags; /* numbers of its exception tags in the store */
    uint8_t *dropped_elems, *dropped_datas;
    uint64_t **elem_refs; /* references of each element segment; NULL: not yet computed */
    /* Numbers of its globals, memories and tables in the store, for exports and captures. */
    uint32_t *global_ids, *mem_ids, *table_ids;
    size_t block_size;
};

struct frame {
    const uint64_t *ret;        /* code position where the caller continues */
    uint64_t *fp;               /* the caller's slots */
    struct wasm_instance *inst; /* the caller's instance */
    struct fn *fn;              /* the callee */
};

struct tag {
    uint32_t canon;
};

struct exn {
    uint32_t tag; /* number of its tag (kind) in the store; NO_TYPE: the entry is free */
    uint32_t n_slots;
    uint64_t *slots;
    bool marked;
};

/* A garbage collected struct or array; n is the number of its fields or elements. */
struct object {
    uint32_t type; /* id of its type; NO_TYPE: the entry is free */
    uint32_t n;
    uint32_t n_slots;
    bool marked;
    uint64_t *slots;
};

enum run_state { RUN_IDLE, RUN_READY, RUN_HOST };

/* The initialisation of a new instance, which wasm_run() does like a call. */
struct init_job {
    struct wasm_instance *inst;
    /* The next action: 0 pays for memories and tables, 1.. copy element and data segments, the last
       calls the start function. */
    uint32_t next;
    bool active;
};

struct definition {
    char *module, *name;
    uint32_t module_size, name_size;
    struct wasm_extern what;
};

/* The log of created objects, so that they can be created again with the same numbers. */
enum creation_kind { MADE_FUNC, MADE_GLOBAL, MADE_MEMORY, MADE_TABLE, MADE_INSTANCE };

struct creation {
    uint8_t kind;
    uint32_t index; /* number of the object among the store's objects of that kind */
};

struct wasm_store {
    struct wasm_engine *engine;
    struct creation *log;
    uint32_t n_log, cap_log;
    uint64_t *handles; /* host handles that the guest received, with duplicates */
    uint32_t n_handles, cap_handles;
    struct wasm_instance **insts; /* insts[0] holds the host functions */
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
    uint32_t free_exn; /* no entry of `exns` below this index is free */
    uint64_t exn_slots;

    struct object *objs;
    uint32_t n_objs, cap_objs, free_obj;
    uint64_t heap_slots, since_collect;
    uint64_t bytes;      /* bytes used of cfg.store_bytes, see budget.h */
    bool is_over_budget; /* an allocation was refused because of store_bytes */
    bool no_collect;     /* the garbage collector must not run: it would miss some references */

    /* The next fields describe the call in progress. */
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
    uint64_t grant; /* fuel that the present wasm_run() took from the budget */
    uint64_t needed;
    uint64_t sequence;
    struct fn *start_fn;  /* function that the call starts with; NULL once it is entered */
    bool answered;        /* the pending host call has its results */
    uint32_t host_fn;     /* number of the host function that is called */
    uint64_t *host_slots; /* arguments of the pending host call, then its results */

    struct wasm_event event;
    struct wasm_value *values;
    uint32_t cap_values;
    uint64_t thrown; /* reference to the uncaught exception */
    bool ran_since_seal;
};

/* ---- Running (interp.c) ---- */

enum exit_code {
    EXIT_DONE,
    EXIT_TRAP,
    EXIT_THROW,
    EXIT_FUEL, /* out of fuel: store->needed is the cost, and the position is saved */
    EXIT_HOST,
};

/* Runs the call from its position in the store (pc, fp, inst, top) and saves the new position. */
enum exit_code interp_run(struct wasm_store *s, int64_t *fuel, const char **ret_trap);
/* The code word to which the outermost function returns. */
extern const uint64_t interp_exit_word[2];

/* The next three find the code or mark of a position, when a call stops. */
struct code *fn_code_at(const struct fn *fn, const uint64_t *pc);
/*
 * code_mark_at() finds the last mark of these kinds at a word, code_mark_of() the first at a module
 * offset; NULL if there is none. Several blocks may start at one word: between them are only
 * instructions that do nothing and cost nothing.
 */
const struct mark *code_mark_at(struct fn *fn, struct code *c, const uint64_t *pc, uint32_t kinds);
const struct mark *code_mark_of(struct fn *fn, struct code *c, uint32_t offset, uint32_t kinds);
bool fn_compile(struct fn *fn);
struct code *fn_step_code(struct fn *fn);

extern const char trap_unreachable[], trap_memory[], trap_table[], trap_undefined[],
    trap_uninitialized[], trap_indirect[], trap_stack[], trap_null[], trap_null_func[],
    trap_no_memory[], trap_null_exn[], trap_exceptions[];

/* Memories and tables of a store. The functions that grow one fail at a limit or without memory. */
bool memory_new(struct wasm_store *s, const struct wasm_limits *l, struct memory **ret);
/* Returns the maximum of pages, from the type and the configuration. */
uint64_t memory_most(const struct wasm_store *s, const struct wasm_limits *l);
bool memory_grow(struct wasm_store *s, struct memory *m, uint64_t delta, uint64_t *ret_old);
void memory_free(struct wasm_store *s, struct memory *m);
/* Makes the bytes below `end` (at most m->size) exist. m->base may change. False: out of memory. */
bool memory_reach(struct wasm_engine *e, struct memory *m, uint64_t end);
/* Sets units[i] for each unit of PAGES_UNIT bytes that may have nonzero bytes, without reading it.
 */
void memory_touched(const struct memory *m, uint8_t *units);
/* Returns the bytes of a unit: in place, or in `copy` if not all of them exist. */
const uint8_t *memory_unit(const struct memory *m, uint64_t unit, uint8_t copy[PAGES_UNIT]);
/* Copies a memory for another store. dirty: it may have changed since the last copy. */
bool memory_fork(struct wasm_engine *e, struct memory *m, bool dirty, struct memory **ret);
bool table_new(struct wasm_store *s, const struct wasm_limits *l, uint32_t type, uint64_t init,
               struct table **ret);
void table_free(struct wasm_store *s, struct table *t);
bool table_grow(struct wasm_store *s, struct table *t, uint64_t delta, uint64_t init,
                uint64_t *ret_old);
struct fn *store_fn(const struct wasm_store *s, uint64_t ref, struct wasm_instance **ret_inst);
uint64_t instance_func_ref(const struct wasm_instance *i, uint32_t func);
/* The reference to function 0 of an instance; those to its other functions follow. */
static inline uint64_t instance_first_ref(const struct wasm_instance *i) {
    return (uint64_t)(i->number + 1) << 32;
}
bool instance_eval(struct wasm_instance *i, uint32_t offset, uint64_t ret[2]);
/* Returns the references in element segment `seg`, which are computed at the first call. */
const uint64_t *instance_elems(struct wasm_instance *i, uint32_t seg);

/* ---- Pages (pages.c) ---- */

struct pages;
struct pages *pages_new(struct wasm_engine *e, uint64_t size, uint8_t **ret_base);
bool pages_grow(struct pages *p, uint64_t size, uint8_t **ret_base);
/* Copies pages copy-on-write. dirty: they may have changed since the last copy. */
struct pages *pages_fork(struct pages *p, bool dirty, uint8_t **ret_base, uint8_t **ret_own_base);
void pages_free(struct pages *p);
/*
 * Takes over pages that were mapped elsewhere, with room to grow up to `mapped` bytes. Whatever the
 * struct described before belongs to another process.
 */
void pages_adopt(struct pages *p, uint8_t *base, uint64_t size, uint64_t mapped);
/* Sets units[i] for each unit of PAGES_UNIT bytes that may have nonzero bytes, without reading it.
 */
void pages_touched(const struct pages *p, uint8_t *units);
