/*
 * State of loading one module. Private to src/wasm/module*.c.
 *
 * The bytes are untrusted: every count is checked against a limit before memory is allocated for
 * it.
 */
#pragma once

#include "base/siphash.h"
#include "wasm/engine.h"

struct loader {
    struct reader r;
    struct wasm_module *m;
    /* First index and number of the types in the recursion group that is being read. */
    uint32_t group_first, group_n;
    bool in_group;
    uint32_t code_count; /* number of bodies that the function section announces */
    bool code_seen;
};

/* module.c */
bool module_fail_memory(struct reader *r);
void *module_list_add(struct wasm_module *m, void *slot, uint32_t n, size_t size);
uint32_t module_count(struct reader *r, uint32_t max, const char *what);

/* module_types.c */
bool module_section_types(struct loader *l);

/* module_const.c */
bool module_declare(struct wasm_module *m, struct reader *r, uint32_t func);
