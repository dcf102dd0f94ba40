/*
 * The lexer of the text format: turns source bytes into tokens, and identifiers into symbols.
 *
 * The whole source is lexed once into one array, without comments and annotations.
 * Every '(' knows the index of its ')', so a reader can skip what
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
    WAT_ATOM, /* a keyword or a number: the reader decides */
    WAT_ID,
    WAT_STRING,
    WAT_RESERVED, /* valid characters that do not form a token: always an error for the reader */
};

struct wat_token {
    uint32_t pos, len; /* position in the source; strings include their quotes */
    uint32_t link;     /* '(' and ')': index of the partner; identifier: its symbol */
    enum wat_kind kind;
};

/* The index spaces that a name can belong to. */
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
    uint32_t index[WAT_SPACE_COUNT]; /* index + 1 in each space; 0: not defined there */
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
    uint32_t foreign_comments; /* comments like `// …`: reported, and skipped as comments */
};

enum { WAT_MAX_SOURCE = 256 << 20 };

/* Lexes all of src, which must outlive *ret. On failure the reason is in diags. */
int wat_text_init(struct wat_text *ret, const char *src, size_t len, int spec,
                  struct wat_diags *diags);
/* As wat_text_init(), but succeeds with foreign_comments, so that further errors can be found. */
int wat_text_try(struct wat_text *ret, const char *src, size_t len, int spec,
                 struct wat_diags *diags);
void wat_text_done(struct wat_text *t);

/* True when the token is the atom `word`. */
bool wat_is(const struct wat_text *t, const struct wat_token *tok, const char *word);

/* Appends the bytes that a string token stands for; false: no room. */
bool wat_string(const struct wat_text *t, const struct wat_token *tok, struct buf *out);

/* The symbol's name, NUL-terminated, without '$'. */
const char *wat_sym_name(const struct wat_text *t, uint32_t sym);

/* Reads one UTF-8 scalar value; returns its length, or 0 if malformed. */
size_t wat_utf8(const char *s, size_t n, uint32_t *ret);
