/* Parts of the Dockerfile translator: logical lines, and words with variables. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/err.h"

enum {
    DOCKERFILE_VALUE_MAX = 64 << 10,
    DOCKERFILE_VALUES_MAX = 8 << 20,
    DOCKERFILE_VARS_MAX = 512,
};

/* One instruction, with continuation lines joined and comments removed. */
struct docker_line {
    unsigned number;  /* of its first line in the file, from 1 */
    const char *name; /* in capitals */
    char *rest;       /* the text after the name, without spaces at its ends */
    char *body;       /* lines of its here-documents with their delimiters; NULL: none */
    bool sole;        /* RUN <<EOF: `body` is the script, without the delimiter */
};

/* Reads instructions from a text that ends with NUL. */
struct docker_reader {
    struct arena *arena;
    const char *at;
    unsigned number; /* of the line at `at` */
    char escape;
    bool begun; /* directives such as `# escape` are no longer possible */
};

/* Reads the next instruction. 1, 0 at the end of the text, or -1. */
int docker_next(struct docker_reader *r, struct docker_line *ret, struct err *err);

/* Variables of ENV and ARG. ENV wins over ARG of the same name. */
struct docker_var {
    const char *name, *value; /* value NULL: ARG without a value */
    bool is_env;
};
struct docker_vars {
    struct docker_var v[DOCKERFILE_VARS_MAX];
    size_t count;
};
int docker_vars_set(struct docker_vars *vars, const char *name, const char *value, bool is_env,
                    struct err *err);
const char *docker_vars_get(const struct docker_vars *vars, const char *name);

struct docker_expand {
    struct arena *arena;
    const struct docker_vars *vars;
    char escape;
    size_t *left; /* bytes that all values together may still have: values can double per line */
};

/* Removes quotes and replaces variables in one word. NULL with *err. */
char *docker_expand(const struct docker_expand *x, const char *word, struct err *err);

/* Splits at spaces; `quoted`: spaces in quotes and after `escape` do not split. -1: too many. */
int docker_split(struct arena *arena, const char *text, bool quoted, char escape, char **ret,
                 size_t max);
