/*
 * Functions of the store that the interpreter calls: bulk operations, objects and exceptions.
 *
 * Each operation has a check that runs before it. The check returns the trap or the cost and
 * changes nothing, so that an instruction that runs out of fuel has no effect.
 */
#pragma once

#include "wasm/engine.h"

/* One bulk instruction: its row in opcodes.def, two indices, operands, and results of its check. */
struct bulk {
    uint32_t row, x, y;
    uint64_t *slots;
    uint64_t cost;
    const uint64_t *live_end; /* end of the guest's slots that the garbage collector reads */
    bool collects;            /* garbage is collected before the instruction; `cost` includes it */
};

/* Returns the trap, or NULL with b->cost set for the bytes or elements. Changes nothing else. */
const char *bulk_check(struct wasm_instance *inst, struct bulk *b);
/* Runs the bulk instruction, after bulk_check() returned no trap. False: out of memory. */
bool bulk_do(struct wasm_store *s, struct wasm_instance *inst, struct bulk *b);

/* Returns the fuel for creating an exception, in addition to that of the throw. */
uint64_t store_exn_cost(const struct wasm_store *s, const uint64_t *slots, uint32_t n);
/* Creates an exception; may free unreachable ones first. Returns 0 if too many are alive. */
uint64_t store_exn_new(struct wasm_store *s, uint32_t tag, const uint64_t *slots, uint32_t n);
const struct exn *store_exn(const struct wasm_store *s, uint64_t ref);
void store_exn_free(struct wasm_store *s, uint64_t ref);

/* ---- Garbage collected objects (objects.c) ---- */

const char *object_check(struct wasm_instance *i, struct bulk *b);
bool object_do(struct wasm_instance *i, struct bulk *b);
struct object *store_object(const struct wasm_store *s, uint64_t ref);
bool object_is(const struct wasm_store *s, uint64_t ref, uint32_t type);
uint32_t object_dynamic_type(const struct wasm_store *s, uint64_t ref);
bool store_collect(struct wasm_store *s, const uint64_t *live_end);
uint64_t store_collect_cost(const struct wasm_store *s, const uint64_t *live_end);

/* ---- Store internals shared with call.c and state.c ---- */

bool store_add_memory(struct wasm_store *s, const struct wasm_limits *l, uint32_t *ret);
bool store_add_table(struct wasm_store *s, const struct wasm_limits *l, uint32_t type,
                     uint64_t init, uint32_t *ret);
bool store_add_global(struct wasm_store *s, uint32_t type, bool is_mutable, uint32_t *ret);
bool store_add_host(struct wasm_store *s, uint32_t canon, const struct host_func *what);
bool store_define(struct wasm_store *s, const char *module, size_t module_size, const char *name,
                  size_t name_size, struct wasm_extern what);
char *store_text(struct wasm_store *s, const char *p, size_t n);
void value_to_slots(const struct wasm_value *v, uint64_t *slots);
struct wasm_value value_from_slots(const uint64_t *slots, uint32_t type);
/* True if a host may pass this value where `type` is expected. */
bool value_fits(const struct wasm_store *s, const struct wasm_value *v, uint32_t type);
bool stack_make(struct wasm_store *s);
void stack_free(struct wasm_store *s);
/* Fills s->event with the pending host call. */
void call_event_host(struct wasm_store *s);
bool store_log_creation(struct wasm_store *s, enum creation_kind kind, uint32_t index);
/* Adds the value to s->handles, if it is a host handle. */
bool store_note_handle(struct wasm_store *s, const struct wasm_value *v);
/* Sorts s->handles and removes duplicates. */
void store_handles_sort(struct wasm_store *s);
/* Links and creates an instance, without starting its initialisation. */
int store_instantiate(struct wasm_store *s, struct wasm_module *m,
                      const struct wasm_extern *imports, struct wasm_instance **ret,
                      struct err *err);
struct wasm_extern instance_import(const struct wasm_instance *i, uint32_t import);
bool store_add_tag(struct wasm_store *s, uint32_t canon, uint32_t *ret);
bool store_intern_func(struct wasm_engine *e, const struct wasm_func_type *type, uint32_t *ret);
struct wasm_instance *store_instance_shell(struct wasm_store *s, struct wasm_module *m);
extern const struct memory store_empty_memory;
bool store_extern_exists(const struct wasm_store *s, struct wasm_extern x);
