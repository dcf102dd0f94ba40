/*
 * State of one run of a wast script. Only for src/wasm/text/wast*.c.
 *
 * Instances are kept by number, because a script also runs on stores that were captured and
 * resumed.
 */
#pragma once

#include <inttypes.h>

#include "wasm/text/value_text.h"
#include "wasm/text/wast.h"
#include "wasm/text/wast_value.h"
#include "wasm/wasm.h"

enum { MAX_VALUES = 1024, MAX_MODULE = 64 << 20, MAX_STATE = 256 << 20, CAPTURES_PER_CALL = 3 };

/*
 * A module that a script refers to by its name, or as the last one. Instances are stored as
 * numbers, because a resumed store has other pointers.
 */
struct named {
    uint32_t sym;      /* symbol + 1; 0 for the last module */
    uint32_t instance; /* index + 1 in the store */
    struct wasm_module *definition;
};

struct runner {
    const char *name;
    const struct wast_options *options;
    struct wast_result *result;
    struct buf *report;
    struct wat_text *t;
    struct wasm_engine *engine;
    struct wasm_store *store;
    struct wasm_module **modules; /* all loaded modules, needed to resume a store */
    uint32_t module_count, module_room;
    struct named *named;
    uint32_t named_count, named_room;
    struct named last;

    bool suspending;
    uint64_t random;
    uint64_t *fuel; /* fuel used after each command of the first run */
    uint32_t fuel_count, fuel_room;
    struct wasm_value values[MAX_VALUES];
    char why[400]; /* reason why the command fails */
};

/* How a call or a link ended. */
enum ending { ENDED_DONE, ENDED_TRAP, ENDED_THROWN, ENDED_ERROR };

struct outcome {
    enum ending ending;
    const char *text; /* text of a trap */
    uint32_t count;   /* number of results in runner.values */
};

/* The stage that loading of a module reached. */
enum stage { STAGE_MALFORMED, STAGE_INVALID, STAGE_REFUSED, STAGE_LOADED };

/* wast.c */
bool wast_fail(struct runner *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const struct wat_token *wast_token(const struct runner *r, uint32_t i);
bool wast_is(const struct runner *r, uint32_t i, const char *word);
enum stage wast_load_module(struct runner *r, uint32_t i, struct wasm_module **ret);
struct outcome wast_instantiate(struct runner *r, struct wasm_module *m, uint32_t *instance);
bool wast_is_done(struct runner *r, struct outcome out);
struct outcome wast_act(struct runner *r, uint32_t i);

/* wast_assert.c */
bool wast_assert_return(struct runner *r, uint32_t i);
bool wast_assert_canonical_nan(struct runner *r, uint32_t i);
bool wast_assert_arithmetic_nan(struct runner *r, uint32_t i);
bool wast_assert_trap(struct runner *r, uint32_t i);
bool wast_assert_exception(struct runner *r, uint32_t i);
bool wast_assert_malformed(struct runner *r, uint32_t i);
bool wast_assert_invalid(struct runner *r, uint32_t i);
bool wast_assert_unlinkable(struct runner *r, uint32_t i);
