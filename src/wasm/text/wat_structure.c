/*
 * Finds where the parentheses of a text first go wrong.
 *
 * A missing `)` shows only at the end of the text, often far from its place. Two clues show it
 * earlier: a module field that begins inside another one, and a line that is not indented below the
 * parenthesis that is still open.
 */
#include "wasm/text/wat_structure.h"

#include <stdlib.h>
#include <string.h>

#include "base/banned.h"

enum { MOST_LOOKED_AT = 1000 }; /* bounds the time for a text that is nested deeply */

struct open {
    uint32_t token;
    int64_t column; /* -1 if it is not the first token of its line */
};

struct structure {
    const struct wat_text *t;
    struct open *open; /* each '(' that is open, outermost first */
    uint32_t depth;
};

/* The first place where the text contradicts its parentheses. */
struct broken {
    uint32_t open; /* the '(' that should be closed before */
    uint32_t at;   /* the token that comes too early */
    uint32_t missing;
};

static uint32_t line_of(const struct wat_text *t, uint32_t token) {
    return wat_line_at(t->src, t->len, t->tokens[token].pos).line;
}

static bool opens(const struct structure *s, uint32_t token, const char *word) {
    return token + 1 < s->t->count && wat_is(s->t, &s->t->tokens[token + 1], word);
}

static bool opens_one_of(const struct structure *s, uint32_t token, const char *const *words) {
    for (; *words; words++)
        if (opens(s, token, *words))
            return true;
    return false;
}

/* Fields that another field never contains; and, for each field, those that it may begin with. */
static const char *const fields[] = {"func",  "memory", "table", "global", "data",   "elem",
                                     "start", "tag",    "rec",   "import", "export", NULL};
static const struct {
    const char *outer;
    const char *inner[4];
} allowed[] = {
    {"func", {"import", "export", NULL}},
    {"global", {"import", "export", NULL}},
    {"memory", {"import", "export", "data", NULL}},
};

/* Tells if `token` begins a field inside of another one that cannot contain it. */
static bool is_field_inside(const struct structure *s, uint32_t token, uint32_t field) {
    if (s->depth <= field || !opens_one_of(s, token, fields))
        return false;
    for (size_t i = 0; i < sizeof(allowed) / sizeof(*allowed); i++) {
        if (!opens(s, s->open[field].token, allowed[i].outer))
            continue;
        return s->depth > field + 1 || !opens_one_of(s, token, allowed[i].inner);
    }
    return false;
}

/* The column of a token that is the first one of its line; -1 for any other. */
static int64_t column(const struct wat_text *t, uint32_t token) {
    uint32_t pos = t->tokens[token].pos, start = pos;
    while (start > 0 && (t->src[start - 1] == ' ' || t->src[start - 1] == '\t'))
        start--;
    return start == 0 || t->src[start - 1] == '\n' ? (int64_t)(pos - start) : -1;
}

/* Returns how many parentheses are open according to the column of the next one. */
static uint32_t indented_depth(const struct structure *s, int64_t here) {
    uint32_t depth = s->depth, least = depth > MOST_LOOKED_AT ? depth - MOST_LOOKED_AT : 0;
    for (uint32_t i = s->depth; here >= 0 && i > least; i--) {
        int64_t outer = s->open[i - 1].column;
        if (outer >= 0 && outer < here)
            break;
        if (outer >= here)
            depth = i - 1;
    }
    return depth;
}

static void note(const struct structure *s, uint32_t token, uint32_t depth, struct broken *ret) {
    *ret = (struct broken){.open = s->open[depth].token, .at = token, .missing = s->depth - depth};
}

/* Looks for a break before or at the next field. False: neither clue shows one. */
static bool find_break(struct structure *s, struct broken *ret) {
    bool found = false;
    for (uint32_t i = 0; i < s->t->count; i++) {
        const struct wat_token *tok = &s->t->tokens[i];
        uint32_t field = s->depth && opens(s, s->open[0].token, "module");
        if (tok->kind == WAT_LPAR && is_field_inside(s, i, field)) {
            if (!found)
                note(s, i, field, ret);
            return true;
        }
        if (tok->kind != WAT_LPAR && tok->kind != WAT_RPAR)
            continue;
        /* A `)` that begins a line closes the parenthesis of its own column. */
        struct open here = {.token = i, .column = column(s->t, i)};
        bool closes = tok->kind == WAT_RPAR;
        uint32_t depth = indented_depth(s, here.column + (closes && here.column >= 0));
        if (!found && depth < s->depth && depth >= field) {
            note(s, i, depth, ret);
            found = true;
        }
        if (closes)
            s->depth--;
        else
            s->open[s->depth++] = here;
    }
    return found;
}

/* The length of the word after a '(', as far as it is shown; 0: no word. */
static int word_shown(const struct wat_text *t, uint32_t open) {
    if (open + 1 >= t->count || t->tokens[open].kind != WAT_LPAR ||
        t->tokens[open + 1].kind != WAT_ATOM)
        return 0;
    return (int)(t->tokens[open + 1].len < 40 ? t->tokens[open + 1].len : 40);
}

static int explain(const struct wat_text *t, const struct broken *b, struct wat_diags *diags) {
    const struct wat_token *open = &t->tokens[b->open], *early = &t->tokens[b->at];
    int len = word_shown(t, b->open), early_len = word_shown(t, b->at);
    wat_error(diags, open->pos, 1 + (uint32_t)len,
              "unclosed `(%.*s`: it is still open at line %u, where `%.*s%.*s` begins", len,
              t->src + open[len > 0].pos, line_of(t, b->at), 1, t->src + early->pos, early_len,
              t->src + early[early_len > 0].pos);
    return wat_hint(diags, "add %u `)` at the end of line %u", b->missing, line_of(t, b->at - 1));
}

int wat_unclosed(const struct wat_text *t, uint32_t open, struct wat_diags *diags) {
    struct structure s = {.t = t, .open = malloc((t->count + 1) * sizeof(*s.open))};
    struct broken b = {0};
    if (s.open && find_break(&s, &b)) {
        explain(t, &b, diags);
    } else {
        wat_error(diags, t->tokens[open].pos, 1,
                  "unexpected end of the text: this `(` is never closed");
        wat_hint(diags, "add the missing `)`");
    }
    free(s.open);
    return -1;
}

int wat_closed_early(const struct wat_text *t, uint32_t close, struct wat_diags *diags) {
    uint32_t field = close > 0 && t->tokens[close - 1].kind == WAT_RPAR ? t->tokens[close - 1].link
                                                                        : t->tokens[close].link;
    wat_error(diags, t->tokens[close].pos, 1,
              "unexpected token `)`: it closes the module of line %u, but more text follows",
              line_of(t, t->tokens[close].link));
    if (close + 2 < t->count && wat_is(t, &t->tokens[close + 2], "module"))
        return wat_hint(diags, "a text has one module: put all fields into the first");
    return wat_hint(diags, "remove one `)` here or earlier in the field that begins at line %u",
                    line_of(t, field));
}
