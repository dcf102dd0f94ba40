/*
 * The cell engine: WebAssembly with exact fuel, that can be stopped, saved, forked and resumed.
 *
 * An engine has modules (shared and immutable) and stores; a store has instances of modules. A
 * store is closed in itself: linked instances, memories, tables, globals, and at most one call in
 * progress. A call is a state machine: start it, then call wasm_run() until the event says that the
 * call is over. The engine never calls the embedder: a call of an import is an event that the
 * embedder answers. The engine has no global state, and never aborts, blocks, installs a signal
 * handler or writes a file. Only one thread at a time may use an engine and the objects that belong
 * to it.
 *
 *     struct wasm_engine *e = wasm_engine_new(NULL);
 *     struct wasm_module *m;
 *     struct wasm_diag diag;
 *     struct err err;
 *     if (wasm_module_load(e, bytes, size, WASM_3_0, &m, &diag) < 0)
 *         report(diag.message, diag.offset);
 *
 *     struct wasm_store *s = wasm_store_new(e);
 *     wasm_fuel_add(s, 1000000);
 *     const struct wasm_func_type log = {.params = (uint32_t[]){WASM_I32}, .n_params = 1};
 *     wasm_host_func(s, "env", "log", &log, 10, &err);
 *
 *     struct wasm_instance *i;
 *     if (wasm_instance_new(s, m, NULL, 0, &i, &err) < 0)    // imports found by name
 *         report(err.text, 0);
 *     drive(s);                                              // segments and start function
 *
 *     struct wasm_extern f;
 *     wasm_export(i, "main", 4, &f);
 *     struct wasm_value arg = wasm_i32(41);
 *     wasm_call(s, f, &arg, 1, &err);
 *     const struct wasm_event *ev = drive(s);
 *     if (ev->outcome == WASM_DONE)
 *         printf("%d, %llu fuel\n", ev->values[0].i32, wasm_fuel_used(s));
 *
 *     const struct wasm_event *drive(struct wasm_store *s) {
 *         const struct wasm_event *ev;
 *         while ((ev = wasm_run(s, UINT64_MAX))->outcome == WASM_HOST) {
 *             printf("%s: %d\n", ev->name, ev->values[0].i32);
 *             wasm_answer(s, NULL, 0, NULL);
 *         }
 *         return ev;
 *     }
 *
 * tests/unit/wasm/test_wasm_example.c is the complete program.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* ---- Values and types ---- */

/*
 * A value type is a number. The number of a reference type is a heap type and flags. The heap type
 * is abstract (WASM_ABSTRACT and its byte), or the number of a defined type in the engine. Two
 * types are equal if their numbers are.
 */
#define WASM_REF 0x80000000u
#define WASM_NULLABLE 0x40000000u
#define WASM_ABSTRACT 0x20000000u
#define WASM_HEAP(type) ((type)&0x3fffffffu)

enum {
    WASM_I32 = 0x7f,
    WASM_I64 = 0x7e,
    WASM_F32 = 0x7d,
    WASM_F64 = 0x7c,
    WASM_V128 = 0x7b,
};
#define WASM_ABSTRACT_REF(byte) (WASM_REF | WASM_NULLABLE | WASM_ABSTRACT | (byte))
#define WASM_FUNCREF WASM_ABSTRACT_REF(0x70u)
#define WASM_EXTERNREF WASM_ABSTRACT_REF(0x6fu)
#define WASM_EXNREF WASM_ABSTRACT_REF(0x69u)
#define WASM_ANYREF WASM_ABSTRACT_REF(0x6eu)
#define WASM_NULLFUNCREF WASM_ABSTRACT_REF(0x73u)
#define WASM_NULLEXTERNREF WASM_ABSTRACT_REF(0x72u)
#define WASM_NULLEXNREF WASM_ABSTRACT_REF(0x74u)
#define WASM_NULLREF WASM_ABSTRACT_REF(0x71u)

/* Writes the name of a type to buf, such as "i32", "funcref" or "(ref null func)". */
const char *wasm_type_name(uint32_t type, char *buf, size_t size);

struct wasm_value {
    union {
        int32_t i32;
        int64_t i64;
        uint32_t f32; /* the bits of the number */
        uint64_t f64; /* the bits of the number */
        uint64_t ref; /* 0: null; function: the id of its wasm_extern; host handle: handle + 1 */
        uint8_t v128[16]; /* little-endian */
    };
    uint32_t type;
};

static inline struct wasm_value wasm_i32(int32_t v) {
    return (struct wasm_value){.i32 = v, .type = WASM_I32};
}
static inline struct wasm_value wasm_i64(int64_t v) {
    return (struct wasm_value){.i64 = v, .type = WASM_I64};
}
static inline struct wasm_value wasm_host_ref(uint64_t handle) {
    return (struct wasm_value){.ref = handle + 1, .type = WASM_EXTERNREF};
}

struct wasm_func_type {
    const uint32_t *params, *results;
    uint32_t n_params, n_results;
};

struct wasm_limits {
    uint64_t min, max;
    bool has_max;
    bool is64; /* addresses or indices are i64, not i32 */
};

enum wasm_extern_kind { WASM_FUNC, WASM_TABLE, WASM_MEMORY, WASM_GLOBAL, WASM_TAG };

/* An object that can be imported or exported. `id` is its number in the store. */
struct wasm_extern {
    enum wasm_extern_kind kind;
    uint64_t id;
};

/* The type of an import or export. The pointers belong to the module or store that returned it. */
struct wasm_extern_type {
    enum wasm_extern_kind kind;
    struct wasm_func_type func; /* type of the function, or of the tag, which has no results */
    struct wasm_limits limits;  /* limits of the table or memory */
    uint32_t type;              /* value type of the global, or element type of the table */
    bool is_mutable;
};

/* ---- Engine ---- */

/*
 * The embedder's allocator: like realloc(), with the old size as an argument. new_size 0 frees. It
 * may return NULL if memory is exhausted; then the engine reports an error.
 */
struct wasm_alloc {
    void *(*realloc)(void *ctx, void *p, size_t old_size, size_t new_size);
    void *ctx;
};

/* Limits of an engine; 0: the default. What exceeds a limit traps, or fails to grow or to load. */
struct wasm_config {
    struct wasm_alloc alloc;
    uint64_t memory_pages; /* pages of one memory, 64 KiB each; default 65536 (4 GiB) */
    uint64_t table_elems;  /* elements of one table; default 10,000,000 */
    uint32_t stack_slots;  /* guest stack in 8-byte slots; default 1 Mi */
    uint32_t frames;       /* guest call depth; default 20,000 */
    uint32_t instances;    /* instances in one store; default 10,000 */
    uint64_t heap_slots;   /* 8-byte slots for garbage collected objects; default 4 Mi */
    uint64_t module_bytes; /* size of a module; default 1 GiB */
    /* Bytes of one store: all memories, tables, objects, globals and code together; default no
       limit. The guest stack does not count: see stack_slots. */
    uint64_t store_bytes;
    uint32_t handle_bytes; /* bytes that handle_save may write per handle; default 4096 */

    /* Called for each host handle when a store is saved and resumed. handle_save writes at most
       handle_bytes and returns how many; handle_load returns false to refuse the handle. If they
       are NULL, only the number of the handle is saved. */
    size_t (*handle_save)(void *ctx, uint64_t handle, uint8_t *bytes);
    bool (*handle_load)(void *ctx, uint64_t handle, const uint8_t *bytes, size_t size);
    void *handle_ctx;
};

struct wasm_engine;
/* Creates an engine. config NULL: all limits have their defaults, and malloc() is the allocator. */
struct wasm_engine *wasm_engine_new(const struct wasm_config *config);
/* Frees an engine. All its modules and stores must be freed before. */
void wasm_engine_free(struct wasm_engine *e);

/* ---- Module ---- */

enum wasm_level { WASM_1_0 = 10, WASM_2_0 = 20, WASM_3_0 = 30 };

enum wasm_fault {
    WASM_MALFORMED = 1, /* the bytes are not a module */
    WASM_INVALID,       /* the module breaks a validation rule */
    WASM_TOO_BIG,       /* the module exceeds a limit of this engine */
    WASM_NOT_SUPPORTED, /* the module is valid, but this engine lacks a feature */
};

/* Why a module was refused, with details from which a hint can be made. */
enum { WASM_DIAG_TYPES = 16 };

struct wasm_diag {
    enum wasm_fault fault;
    size_t offset;     /* byte offset in the module of the error, or of the instruction with it */
    uint32_t func;     /* index of the function with the error; UINT32_MAX: not in a body */
    char message[160]; /* "type mismatch", "unknown local 5", … */
    uint16_t op;       /* instruction with the error, if in a body: enum wasm_op */
    uint16_t block; /* for `end` and `else`: the instruction that began the block; call: the body */
    /* For type mismatches: the types that the instruction expects on the stack and those that are
       there, the top last. A found type of 0 is the bottom type of unreachable code. Of more than
       WASM_DIAG_TYPES only the topmost are listed. */
    uint8_t n_expected, n_found;
    uint32_t expected[WASM_DIAG_TYPES], found[WASM_DIAG_TYPES];
};

struct wasm_module;

/* Copies and validates the whole module. Returns 0, or -1 with *diag filled. */
int wasm_module_load(struct wasm_engine *e, const void *bytes, size_t size, enum wasm_level level,
                     struct wasm_module **ret, struct wasm_diag *diag);
/*
 * Lists up to `max` errors of a module that wasm_module_load() refused, in the order of the bytes.
 * After an error in a body, the rest of the body and the other bodies are validated too. Returns
 * the number of errors.
 */
uint32_t wasm_module_faults(struct wasm_engine *e, const void *bytes, size_t size,
                            enum wasm_level level, struct wasm_diag *list, uint32_t max);
struct wasm_module *wasm_module_ref(struct wasm_module *m);
void wasm_module_unref(struct wasm_module *m);
void wasm_module_unrefp(struct wasm_module **m);

/* Returns the SHA-256 of the bytes of the module, which is computed when first needed. */
void wasm_module_hash(struct wasm_module *m, uint8_t hash[32]);
const uint8_t *wasm_module_bytes(const struct wasm_module *m, size_t *ret_size);

struct wasm_import {
    const char *module, *name; /* names without a terminating NUL, which may contain NULs */
    size_t module_size, name_size;
    struct wasm_extern_type type;
};
struct wasm_export {
    const char *name;
    size_t name_size;
    uint32_t index; /* number of the object among those of its kind in the module */
    struct wasm_extern_type type;
};

uint32_t wasm_module_imports(const struct wasm_module *m);
void wasm_module_import(const struct wasm_module *m, uint32_t i, struct wasm_import *ret);
uint32_t wasm_module_exports(const struct wasm_module *m);
void wasm_module_export(const struct wasm_module *m, uint32_t i, struct wasm_export *ret);
/* True if instances run a start function when they are made. */
bool wasm_module_has_start(const struct wasm_module *m);
/* The number of functions, imported ones first; and the bytes of a function body in the module. */
uint32_t wasm_module_funcs(const struct wasm_module *m);
bool wasm_module_func_body(const struct wasm_module *m, uint32_t func, size_t *ret_offset,
                           size_t *ret_size);
/* Returns a function's name from the name section, or of an export; or NULL. Not NUL-terminated. */
const char *wasm_module_func_name(const struct wasm_module *m, uint32_t func, size_t *ret_size);

/* ---- Store ---- */

struct wasm_store;
struct wasm_instance;

struct wasm_store *wasm_store_new(struct wasm_engine *e);
void wasm_store_free(struct wasm_store *s);
void wasm_store_freep(struct wasm_store **s);
/* Bytes that the store uses of its limit store_bytes, and whether the limit refused any. */
uint64_t wasm_store_bytes(const struct wasm_store *s);
bool wasm_store_over_budget(const struct wasm_store *s);

/* The functions wasm_host_… define objects that later instances import as (module, name). A later
   definition replaces an earlier one. A call of a host function is a WASM_HOST event, and costs
   `cost` fuel. */
int wasm_host_func(struct wasm_store *s, const char *module, const char *name,
                   const struct wasm_func_type *type, uint64_t cost, struct err *err);
/*
 * Like wasm_host_func(), but size_param is the index of an i32 parameter with a number of bytes:
 * each call also costs 1 fuel per 8 of these bytes.
 */
#define WASM_NOT_SIZED UINT32_MAX
int wasm_host_func_sized(struct wasm_store *s, const char *module, const char *name,
                         const struct wasm_func_type *type, uint64_t cost, uint32_t size_param,
                         struct err *err);
/* Returns host function i in the order of creation; false after the last. A resumed store has those
   that its saved state names: compare them with your own before you run the store. */
struct wasm_host_info {
    const char *module, *name;
    struct wasm_func_type type;
    uint64_t cost;
    uint32_t size_param;
};
bool wasm_host_func_at(const struct wasm_store *s, uint32_t i, struct wasm_host_info *ret);
int wasm_host_global(struct wasm_store *s, const char *module, const char *name, bool is_mutable,
                     struct wasm_value value, struct err *err);
int wasm_host_memory(struct wasm_store *s, const char *module, const char *name,
                     const struct wasm_limits *limits, struct err *err);
int wasm_host_table(struct wasm_store *s, const char *module, const char *name,
                    const struct wasm_limits *limits, uint32_t type, struct err *err);
/* Defines all exports of an instance under a module name, for imports of later instances. */
int wasm_register(struct wasm_store *s, const char *module, size_t module_size,
                  struct wasm_instance *i, struct err *err);
bool wasm_lookup(struct wasm_store *s, const char *module, size_t module_size, const char *name,
                 size_t name_size, struct wasm_extern *ret);

/*
 * Links and creates an instance. imports are in the order of the module's import list; with NULL
 * they are looked up by name. Fails with ERR_DENIED if an import is not defined ("unknown import"),
 * with ERR_INVALID if its type differs ("incompatible import type"). On success the store has a
 * call in progress, for segments and the start function; wasm_run() finishes it. The instance stays
 * in the store even if that call traps, because its functions may be in tables already. The store
 * keeps the module alive.
 */
int wasm_instance_new(struct wasm_store *s, struct wasm_module *m,
                      const struct wasm_extern *imports, uint32_t n_imports,
                      struct wasm_instance **ret, struct err *err);
struct wasm_module *wasm_instance_module(const struct wasm_instance *i);
bool wasm_export(const struct wasm_instance *i, const char *name, size_t name_size,
                 struct wasm_extern *ret);
/* The number of instances, and instance i in the order of creation; for a resumed store. */
uint32_t wasm_instances(const struct wasm_store *s);
struct wasm_instance *wasm_instance_at(const struct wasm_store *s, uint32_t i);

void wasm_extern_type(const struct wasm_store *s, struct wasm_extern x,
                      struct wasm_extern_type *ret);
struct wasm_value wasm_global_get(const struct wasm_store *s, struct wasm_extern x);
int wasm_global_set(struct wasm_store *s, struct wasm_extern x, struct wasm_value v,
                    struct err *err);
/* Returns the bytes of a memory, valid until the next wasm_run(). NULL: out of memory. */
uint8_t *wasm_memory_bytes(const struct wasm_store *s, struct wasm_extern x, size_t *ret_size);
uint64_t wasm_table_size(const struct wasm_store *s, struct wasm_extern x);
int wasm_table_get(const struct wasm_store *s, struct wasm_extern x, uint64_t i,
                   struct wasm_value *ret, struct err *err);

/* ---- Running ---- */

/* Adds n to the fuel that the store may spend; a new store has none. */
void wasm_fuel_add(struct wasm_store *s, uint64_t n);
/* Sets the fuel that the store may still spend, whatever was left. */
void wasm_fuel_limit(struct wasm_store *s, uint64_t left);
uint64_t wasm_fuel_left(const struct wasm_store *s);
/*
 * Spends n more fuel for the pending host call, whose cost the host knows only from its data. False
 * if the store has less: nothing is spent, and the call stays pending.
 */
bool wasm_fuel_spend(struct wasm_store *s, uint64_t n);
/* Returns the fuel spent since the store was created. */
uint64_t wasm_fuel_used(const struct wasm_store *s);

enum wasm_outcome {
    WASM_DONE,        /* the call returned: values are its results */
    WASM_TRAPPED,     /* the call failed: text says why; its effects stay */
    WASM_THROWN,      /* an exception was not caught: tag and values; the call is over */
    WASM_OUT_OF_FUEL, /* the store's fuel is less than `needed`; add fuel, then run again */
    WASM_SLICE,       /* the slice (fuel of this wasm_run()) is spent; run again */
    WASM_HOST,        /* a host function was called with values; wasm_answer(), then run again */
    WASM_IDLE,        /* there is no call in progress */
};

struct wasm_event {
    enum wasm_outcome outcome;
    const char *text; /* a trap's constant text: "unreachable", "out of bounds memory access", … */
    uint64_t needed;  /* for WASM_OUT_OF_FUEL: the fuel cost of the next instruction */
    const struct wasm_value *values;
    uint32_t n_values;
    struct wasm_extern tag;
    const char *module, *name; /* for WASM_HOST: names of the host function, NUL-terminated */
    uint64_t sequence; /* for WASM_HOST: number of the call in the life of the store, from 1 */
};

/* Starts a call. ERR_BUSY: another call is in progress; ERR_INVALID: wrong arguments. */
int wasm_call(struct wasm_store *s, struct wasm_extern func, const struct wasm_value *args,
              uint32_t n_args, struct err *err);

/*
 * Runs the call until an event. slice limits the fuel that this run may spend. Instructions are
 * atomic, so one instruction may exceed the slice, but never the fuel of the store. The event
 * belongs to the store and is valid until the next function that takes the store as not const.
 * After WASM_DONE, WASM_TRAPPED and WASM_THROWN the call is over.
 */
const struct wasm_event *wasm_run(struct wasm_store *s, uint64_t slice);

/* Answer the pending host call: wasm_answer() with results, wasm_answer_trap() with a trap. */
int wasm_answer(struct wasm_store *s, const struct wasm_value *results, uint32_t n,
                struct err *err);
int wasm_answer_trap(struct wasm_store *s, const char *text, struct err *err);
/* Ends the call in progress, if any. Its effects stay. */
void wasm_cancel(struct wasm_store *s);

/* A frame of the call in progress, or of the last trap; frame 0 is the innermost. */
struct wasm_frame {
    struct wasm_instance *instance;
    uint32_t func; /* index of the function in its module */
    size_t offset; /* module offset of the next instruction, or of the one that trapped */
};
uint32_t wasm_frames(const struct wasm_store *s);
bool wasm_frame_at(const struct wasm_store *s, uint32_t i, struct wasm_frame *ret);

/* ---- Capture, resume, fork ---- */

/* Computes a SHA-256 of all memories, globals, tables and objects, the same on every CPU. */
int wasm_store_hash(struct wasm_store *s, uint8_t hash[32], struct err *err);

/* Appends the saved state of a stopped store to *ret; format: docs/internals/cell-state.md. */
int wasm_capture(struct wasm_store *s, struct buf *ret, struct err *err);
/* The same bytes in pieces of a few MiB at most. `sink` returns false to give up. */
typedef bool wasm_sink_fn(void *arg, const void *bytes, size_t len);
int wasm_capture_to(struct wasm_store *s, wasm_sink_fn *sink, void *arg, struct err *err);

/* `find` returns the embedder's module with this hash, or NULL. The embedder still owns it. */
struct wasm_modules {
    struct wasm_module *(*find)(void *ctx, const uint8_t hash[32]);
    void *ctx;
};
/* Makes a store from a saved state, which need not be trusted: ERR_INVALID if it is wrong,
   ERR_UNSUPPORTED for another version. A pending host call keeps its sequence number. */
int wasm_resume(struct wasm_engine *e, const void *bytes, size_t size,
                const struct wasm_modules *modules, struct wasm_store **ret, struct err *err);

/* Copies a stopped store; the two share memory copy-on-write. */
int wasm_fork(struct wasm_store *s, struct wasm_store **ret, struct err *err);

/* Versions of the fuel costs (docs/internals/fuel.md) and of the format of saved states. */
enum { WASM_FUEL_VERSION = 2, WASM_STATE_VERSION = 2 };
