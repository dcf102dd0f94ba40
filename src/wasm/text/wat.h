/*
 * Encodes a module in the WebAssembly text format (WAT) to the binary format.
 *
 * Text is always encoded to binary first, and the binary is what is validated,
 * hashed and run; a map gives the source position of each binary offset, so that
 * errors found later still point at a source line.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "wasm/text/wat_diag.h"
#include "wasm/text/wat_lex.h"

/* The bytes from this binary offset up to that of the next entry come from source position pos. */
struct wat_place {
    uint32_t offset, pos;
};

/* A folded instruction with more operands than it takes. It is legal, but most often a mistake. */
struct wat_surplus {
    uint32_t pos, given, takes;
};

struct wat_module {
    struct buf binary;
    struct wat_place *map; /* sorted by offset */
    uint32_t map_count;
    struct wat_surplus *surplus; /* sorted by pos */
    uint32_t surplus_count;
};

void wat_module_done(struct wat_module *m);

/*
 * Encodes a module. spec is 10, 20 or 30 for WebAssembly 1.0 to 3.0. On failure all errors found
 * are in diags, and *ret is empty.
 */
int wat_encode(const char *src, size_t len, int spec, struct wat_module *ret,
               struct wat_diags *diags);

/*
 * As wat_encode(), for a part of a lexed text (a script has many modules): the tokens from `first`
 * up to `end` are one `(module …)` or a bare list of module fields. A later call clears the names
 * of the earlier one.
 */
int wat_encode_tokens(struct wat_text *t, uint32_t first, uint32_t end, struct wat_module *ret,
                      struct wat_diags *diags);

/* Source position of a binary offset; 0 when the map is empty. */
uint32_t wat_locate(const struct wat_module *m, uint32_t offset);
