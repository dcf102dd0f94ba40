/* Splits arguments of a Dockerfile into words, and replaces variables in them. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/defer.h"
#include "cli/image/dockerfile_inner.h"

enum { NESTED_MAX = 8 };

/* ---- variables ---- */

int docker_vars_set(struct docker_vars *vars, const char *name, const char *value, bool is_env,
                    struct err *err) {
    size_t i = 0;
    while (i < vars->count && (vars->v[i].is_env != is_env || strcmp(vars->v[i].name, name) != 0))
        i++;
    if (i == DOCKERFILE_VARS_MAX)
        return err_set(err, ERR_LIMIT, "the Dockerfile sets more than %d variables",
                       DOCKERFILE_VARS_MAX);
    vars->count += i == vars->count;
    vars->v[i] = (struct docker_var){name, value, is_env};
    return 0;
}

const char *docker_vars_get(const struct docker_vars *vars, const char *name) {
    const char *found = NULL;
    for (size_t i = 0; i < vars->count; i++)
        if (strcmp(vars->v[i].name, name) == 0) {
            if (vars->v[i].is_env)
                return vars->v[i].value;
            found = vars->v[i].value;
        }
    return found;
}

/* ---- expansion of a word ---- */

struct expansion {
    const struct docker_expand *x;
    const char *at;
    unsigned depth;
    struct err *err;
};

static int expand_until(struct expansion *e, char end, struct buf *to);

static int expand_add(const struct expansion *e, struct buf *to, const char *bytes, size_t n) {
    return buf_add(to, bytes, n) ? 0
                                 : err_set(e->err, ERR_LIMIT, "a value is longer than %d KiB",
                                           DOCKERFILE_VALUE_MAX >> 10);
}

static size_t name_length(const char *s) {
    size_t n = 0;
    if (isalpha((unsigned char)s[0]) || s[0] == '_')
        while (isalnum((unsigned char)s[n]) || s[n] == '_')
            n++;
    return n;
}

/* The part of ${NAME:-word} after the name; e->at is at the operator. */
static int expand_operator(struct expansion *e, const char *name, const char *value,
                           struct buf *to) {
    struct buf word DEFER(buf_done) = BUF(DOCKERFILE_VALUE_MAX);
    bool colon = *e->at == ':';
    char how = e->at[colon];
    if (how == '\0' || !strchr("-+?", how))
        return err_set(e->err, ERR_UNSUPPORTED,
                       "variable '%.40s': only ${NAME}, ${NAME:-WORD}, ${NAME:+WORD} and "
                       "${NAME:?WORD} are supported",
                       name);
    e->at += colon + 1;
    if (++e->depth > NESTED_MAX)
        return err_set(e->err, ERR_LIMIT, "variables are nested more than %d deep", NESTED_MAX);
    if (expand_until(e, '}', &word) < 0)
        return -1;
    e->depth--;
    bool is_set = value && (!colon || *value);
    if (how == '?' && !is_set)
        return err_set(e->err, ERR_INVALID, "variable '%.40s' is not set: %s", name,
                       word.data ? word.data : "");
    const char *use = how == '+'  ? is_set ? word.data : ""
                      : is_set    ? value
                      : word.data ? word.data
                                  : "";
    return expand_add(e, to, use ? use : "", strlen(use ? use : ""));
}

/* e->at is after the dollar sign. */
static int expand_variable(struct expansion *e, struct buf *to) {
    bool braces = *e->at == '{';
    size_t n = name_length(e->at + braces);
    if (n == 0 && braces)
        return err_set(e->err, ERR_INVALID, "'$%.20s' is not a variable", e->at);
    if (n == 0)
        return expand_add(e, to, "$", 1);
    char *name = arena_copy(e->x->arena, e->at + braces, n);
    const char *value = docker_vars_get(e->x->vars, name);
    e->at += braces + n;
    if (braces && *e->at != '}')
        return expand_operator(e, name, value, to);
    e->at += braces;
    return value ? expand_add(e, to, value, strlen(value)) : 0;
}

static int expand_single_quotes(struct expansion *e, struct buf *to) {
    size_t n = strcspn(e->at, "'");
    if (!e->at[n])
        return err_set(e->err, ERR_INVALID, "a quote (') is not closed");
    const char *text = e->at;
    e->at += n + 1;
    return expand_add(e, to, text, n);
}

static int expand_double_quotes(struct expansion *e, struct buf *to) {
    while (*e->at != '"') {
        char c = *e->at;
        if (!c)
            return err_set(e->err, ERR_INVALID, "a quote (\") is not closed");
        e->at++;
        if (c == '$') {
            if (expand_variable(e, to) < 0)
                return -1;
            continue;
        }
        if (c == e->x->escape && (*e->at == '"' || *e->at == '$' || *e->at == c))
            c = *e->at++;
        if (expand_add(e, to, &c, 1) < 0)
            return -1;
    }
    e->at++;
    return 0;
}

/* Expands up to `end`, which is skipped; '\0': up to the end of the text. */
static int expand_until(struct expansion *e, char end, struct buf *to) {
    while (*e->at && (end == '\0' || *e->at != end)) {
        char c = *e->at++;
        int r;
        if (c == '\'')
            r = expand_single_quotes(e, to);
        else if (c == '"')
            r = expand_double_quotes(e, to);
        else if (c == '$')
            r = expand_variable(e, to);
        else if (c == e->x->escape)
            r = *e->at ? expand_add(e, to, e->at++, 1) : 0;
        else
            r = expand_add(e, to, &c, 1);
        if (r < 0)
            return -1;
    }
    if (end && *e->at != end)
        return err_set(e->err, ERR_INVALID, "a variable has no closing brace (})");
    e->at += end != '\0';
    return 0;
}

char *docker_expand(const struct docker_expand *x, const char *word, struct err *err) {
    struct buf to DEFER(buf_done) = BUF(DOCKERFILE_VALUE_MAX);
    struct expansion e = {.x = x, .at = word, .err = err};
    if (expand_until(&e, '\0', &to) < 0)
        return NULL;
    if (to.len >= *x->left) {
        err_set(err, ERR_LIMIT, "the values of the Dockerfile are larger than %d MiB",
                DOCKERFILE_VALUES_MAX >> 20);
        return NULL;
    }
    *x->left -= to.len;
    return arena_copy(x->arena, to.data ? to.data : "", to.len);
}

/* ---- words ---- */

/* The length of the word at `text`. */
static size_t word_length(const char *text, bool quoted, char escape) {
    size_t n = 0;
    char quote = '\0';
    for (; text[n]; n++) {
        char c = text[n];
        if (!quote && (c == ' ' || c == '\t'))
            break;
        if (!quoted)
            continue;
        if (c == escape && text[n + 1] && quote != '\'')
            n++;
        else if (quote)
            quote = c == quote ? '\0' : quote;
        else if (c == '"' || c == '\'')
            quote = c;
    }
    return n;
}

int docker_split(struct arena *arena, const char *text, bool quoted, char escape, char **ret,
                 size_t max) {
    size_t count = 0;
    while (*(text += strspn(text, " \t"))) {
        size_t n = word_length(text, quoted, escape);
        if (count == max)
            return -1;
        ret[count++] = arena_copy(arena, text, n);
        text += n;
    }
    return (int)count;
}
