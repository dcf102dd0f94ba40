/* Joins the lines of a Dockerfile to instructions, and reads its directives and here-documents. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/defer.h"
#include "cli/image/dockerfile_inner.h"
#include "cli/image/recipe.h"

enum { HEREDOCS_MAX = 8, HEREDOC_NAME = 64 };

/* A physical line: its text without the line end. */
struct line {
    const char *s;
    size_t n;
};

static bool line_take(struct docker_reader *r, struct line *ret) {
    if (!*r->at)
        return false;
    size_t n = strcspn(r->at, "\n");
    *ret = (struct line){r->at, n};
    r->at += n + (r->at[n] == '\n');
    r->number++;
    if (ret->n && ret->s[ret->n - 1] == '\r')
        ret->n--;
    return true;
}

static void line_trim(struct line *l) {
    while (l->n && (l->s[0] == ' ' || l->s[0] == '\t')) {
        l->s++;
        l->n--;
    }
    while (l->n && (l->s[l->n - 1] == ' ' || l->s[l->n - 1] == '\t'))
        l->n--;
}

/* Reads a directive such as "# escape=`". False: the line is not one, so none may follow. */
static int line_directive(struct docker_reader *r, struct line l, struct err *err) {
    const char *equals = memchr(l.s, '=', l.n);
    if (l.n < 2 || l.s[0] != '#' || !equals)
        return 0;
    struct line name = {l.s + 1, (size_t)(equals - l.s) - 1};
    struct line value = {equals + 1, l.n - (size_t)(equals - l.s) - 1};
    line_trim(&name);
    line_trim(&value);
    for (size_t i = 0; i < name.n; i++)
        if (!isalnum((unsigned char)name.s[i]))
            return 0;
    if (name.n == 6 && strncasecmp(name.s, "escape", 6) == 0) {
        if (value.n != 1 || !strchr("\\`", value.s[0]))
            return err_set(err, ERR_INVALID,
                           "line %u of the Dockerfile: the escape character must be \\ or `",
                           r->number - 1);
        r->escape = value.s[0];
    }
    return name.n > 0;
}

/* Removes an escape character at the end of the line, which joins the next line to it. */
static bool line_continues(struct line *l, char escape) {
    size_t n = l->n;
    while (n && (l->s[n - 1] == ' ' || l->s[n - 1] == '\t'))
        n--;
    if (n == 0 || l->s[n - 1] != escape || (n > 1 && l->s[n - 2] == escape))
        return false;
    l->n = n - 1;
    return true;
}

/* Adds the lines of one instruction to `to`. 1, 0 at the end of the text, or -1. */
static int line_join(struct docker_reader *r, struct buf *to, unsigned *ret_number,
                     struct err *err) {
    bool more = false;
    struct line l;
    while (line_take(r, &l)) {
        struct line bare = l;
        line_trim(&bare);
        if (!r->begun) {
            int is = line_directive(r, bare, err);
            if (is < 0)
                return -1;
            r->begun = !is;
        }
        if (bare.n == 0 || bare.s[0] == '#')
            continue;
        if (!more) {
            *ret_number = r->number - 1;
            l.n -= (size_t)(bare.s - l.s);
            l.s = bare.s;
        }
        more = line_continues(&l, r->escape);
        if (!buf_add(to, l.s, l.n))
            return err_set(err, ERR_LIMIT, "line %u of the Dockerfile is too long", *ret_number);
        if (!more)
            return 1;
    }
    return to->len > 0;
}

/* ---- here-documents ---- */

struct heredoc {
    char name[HEREDOC_NAME];
    bool strips_tabs; /* <<- */
};

/* Reads the delimiter after "<<". Returns the text after it, or NULL if there is no delimiter. */
static const char *heredoc_name(const char *at, struct heredoc *ret) {
    ret->strips_tabs = *at == '-';
    at += ret->strips_tabs;
    char quote = *at == '"' || *at == '\'' ? *at++ : '\0';
    size_t n = strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-");
    if (n == 0 || n >= sizeof(ret->name) || (quote && at[n] != quote))
        return NULL;
    snprintf(ret->name, sizeof(ret->name), "%.*s", (int)n, at);
    return at + n + (quote != '\0');
}

/* Finds the here-documents of a shell command; "<<<" and quoted text are none. */
static size_t heredoc_find(const char *text, struct heredoc *ret, const char **ret_rest) {
    size_t count = 0;
    char quote = '\0';
    for (const char *p = text; *p; p++) {
        if (quote) {
            quote = *p == quote ? '\0' : quote;
        } else if (*p == '\\' && p[1]) {
            p++;
        } else if (*p == '"' || *p == '\'') {
            quote = *p;
        } else if (strncmp(p, "<<<", 3) == 0) {
            p += 2;
        } else if (strncmp(p, "<<", 2) == 0 && count < HEREDOCS_MAX) {
            const char *rest = heredoc_name(p + 2, &ret[count]);
            if (!rest)
                continue;
            count++;
            *ret_rest = rest;
            p = rest - 1;
        }
    }
    return count;
}

static int heredoc_read(struct docker_reader *r, const struct heredoc *h, bool sole, struct buf *to,
                        unsigned number, struct err *err) {
    struct line l;
    while (line_take(r, &l)) {
        struct line bare = l;
        while (h->strips_tabs && bare.n && bare.s[0] == '\t') {
            bare.s++;
            bare.n--;
        }
        bool ends = bare.n == strlen(h->name) && strncmp(bare.s, h->name, bare.n) == 0;
        const struct line *kept = sole ? &bare : &l;
        if (ends && sole)
            return 0;
        if (!buf_add(to, kept->s, kept->n) || !buf_add(to, "\n", 1))
            return err_set(err, ERR_LIMIT, "line %u of the Dockerfile: here-document is too long",
                           number);
        if (ends)
            return 0;
    }
    return err_set(err, ERR_INVALID,
                   "line %u of the Dockerfile: here-document '%s' has no line that ends it", number,
                   h->name);
}

static int heredoc_take(struct docker_reader *r, struct docker_line *l, struct err *err) {
    struct heredoc docs[HEREDOCS_MAX];
    struct buf body DEFER(buf_done) = BUF(RECIPE_BYTES_MAX);
    const char *rest = "";
    bool shell = strcmp(l->name, "RUN") == 0;
    if (!shell && strcmp(l->name, "COPY") != 0 && strcmp(l->name, "ADD") != 0)
        return 0;
    size_t count = heredoc_find(l->rest, docs, &rest);
    l->sole =
        shell && count == 1 && strncmp(l->rest, "<<", 2) == 0 && rest[strspn(rest, " \t")] == '\0';
    for (size_t i = 0; i < count; i++)
        if (heredoc_read(r, &docs[i], l->sole, &body, l->number, err) < 0)
            return -1;
    if (count)
        l->body = arena_copy(r->arena, body.data ? body.data : "", body.len);
    return 0;
}

int docker_next(struct docker_reader *r, struct docker_line *ret, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(RECIPE_BYTES_MAX);
    *ret = (struct docker_line){0};
    int more = line_join(r, &text, &ret->number, err);
    if (more <= 0)
        return more;
    char *name = arena_copy(r->arena, text.data ? text.data : "", text.len);
    size_t n = strcspn(name, " \t");
    struct line rest = {name + n, strlen(name) - n};
    line_trim(&rest);
    ret->rest = arena_copy(r->arena, rest.s, rest.n);
    name[n] = '\0';
    for (char *p = name; *p; p++)
        *p = (char)toupper((unsigned char)*p);
    ret->name = name;
    return heredoc_take(r, ret, err) < 0 ? -1 : 1;
}
