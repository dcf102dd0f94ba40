/*
 * Text format, first step: source bytes to tokens, identifiers to symbols.
 *
 * The whole source is lexed once into one array; comments and annotations are
 * gone from it. Every '(' knows the index of its ')', so a reader can skip what
 * it does not care about. Identifiers are interned: `$a` and `$"a"` are the same
 * symbol, and a symbol carries one index per index space, so that looking a
 * name up costs nothing. Spec scripts (.wast) are read from the same tokens.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "wasm/text/wat_diag.h"

enum wat_kind {
    WAT_EOF,
    WAT_LPAR,
    WAT_RPAR,
    WAT_ATOM, /* keywords and numbers: the reader knows which it wants */
    WAT_ID,
    WAT_STRING,
    WAT_RESERVED, /* well-formed characters that are no token: always an error to the reader */
};

struct wat_token {
    uint32_t pos, len; /* in the source; strings with their quotes */
    uint32_t link;     /* '(' and ')': index of the partner; identifier: its symbol */
    enum wat_kind kind;
};

/* The index spaces a name can live in. */
enum wat_space {
    WAT_TYPES,
    WAT_FUNCS,
    WAT_TABLES,
    WAT_MEMORIES,
    WAT_GLOBALS,
    WAT_TAGS,
    WAT_ELEMS,
    WAT_DATAS,
    WAT_LOCALS,
    WAT_LABELS,
    WAT_SPACE_COUNT,
};

struct wat_sym {
    uint32_t name, len;              /* in wat_text.names */
    uint32_t index[WAT_SPACE_COUNT]; /* index + 1 in each space; 0: not there */
};

struct wat_text {
    const char *src; /* borrowed */
    size_t len;
    int spec;                 /* 10, 20 or 30: annotations and $"quoted names" came with 3.0 */
    struct wat_token *tokens; /* ends with WAT_EOF */
    uint32_t count;           /* without the final WAT_EOF */
    struct wat_sym *syms;
    uint32_t sym_count;
    struct buf names;
    uint32_t *buckets; /* hash table over syms, index + 1 */
    uint32_t bucket_count;
};

enum { WAT_MAX_SOURCE = 256 << 20 };

/* Lex all of src, which must outlive *ret. On failure the reason is in diags. */
int wat_text_init(struct wat_text *ret, const char *src, size_t len, int spec,
                  struct wat_diags *diags);
void wat_text_done(struct wat_text *t);

/* True when the token is the atom `word`. */
bool wat_is(const struct wat_text *t, const struct wat_token *tok, const char *word);

/* Append the bytes a string token stands for; false when out of room. */
bool wat_string(const struct wat_text *t, const struct wat_token *tok, struct buf *out);

/* The symbol's name, NUL-terminated, without '$'. */
const char *wat_sym_name(const struct wat_text *t, uint32_t sym);

/* Read one UTF-8 scalar value; its length, or 0 when malformed. */
size_t wat_utf8(const char *s, size_t n, uint32_t *ret);
