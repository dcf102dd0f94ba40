/* Hints for the most frequent mistakes: old names, missing signedness, spelling errors. */
#include "wasm/text/wat_enc.h"

#include <string.h>

#include "base/banned.h"

/* Names from before the standard or from other languages, and what to use instead. */
static const struct {
    const char *wrong, *right;
} renamed[] = {
    {"get_local", "local.get"},
    {"set_local", "local.set"},
    {"tee_local", "local.tee"},
    {"get_global", "global.get"},
    {"set_global", "global.set"},
    {"current_memory", "memory.size"},
    {"grow_memory", "memory.grow"},
    {"i32.wrap/i64", "i32.wrap_i64"},
    {"i64.extend_u/i32", "i64.extend_i32_u"},
    {"i64.extend_s/i32", "i64.extend_i32_s"},
    {"i32.not", "i32.eqz, or i32.xor with -1 for bits"},
    {"i64.not", "i64.eqz, or i64.xor with -1 for bits"},
    {"i32.neg", "i32.sub from (i32.const 0)"},
    {"i64.neg", "i64.sub from (i64.const 0)"},
    {"i32.mod", "i32.rem_s or i32.rem_u"},
    {"i64.mod", "i64.rem_s or i64.rem_u"},
    {"i32.abs", "select between the value and its negation; integers have no abs"},
    {"f64.convert_i32", "f64.convert_i32_s or f64.convert_i32_u"},
    {"anyfunc", "funcref"},
    {"then", "`(if (condition) (then …))`: then stands only inside a folded if"},
    {"param", "`(param …)` before `(result …)`, and both before locals and instructions"},
    {"result", "`(result …)` only before locals and instructions"},
    {"local", "`(local …)` only before the first instruction"},
    {"else", "`(if (condition) (then …) (else …))`: else stands only inside a folded if"},
    {"end", "`)`: a folded block ends with its parenthesis"},
    {"func", "`(func …)` only in the module: functions do not nest"},
    {"let", "`(local $x i32)` before the first instruction, then `(local.set $x …)`"},
    {"mut", "`(mut i32)` in parentheses, in place of the type"},
    {"for", "`(loop $l … (br_if $l (condition)))`"},
    {"i32.inc", "i32.add with (i32.const 1)"},
    {"i32.dec", "i32.sub with (i32.const 1)"},
    {"local.inc", "`(local.set $i (i32.add (local.get $i) (i32.const 1)))`"},
    {"local.dec", "`(local.set $i (i32.sub (local.get $i) (i32.const 1)))`"},
    {"f64.rem", "f64.div, f64.trunc, f64.mul and f64.sub: floats have no remainder"},
    {"f64.mod", "f64.div, f64.trunc, f64.mul and f64.sub: floats have no remainder"},
    {"f64.pow", "a function of your own: no instruction computes powers"},
    {"i32.min", "select: integers have no min"},
    {"i32.max", "select: integers have no max"},
    {"string.const", "`(data (i32.const 0) \"…\")`, and its address and length"},
    {"switch", "br_table"},
    {"while", "`(loop $l … (br_if $l (condition)))`"},
    {"break", "`br $label` of a block around the loop"},
    {"continue", "`br $label` of the loop"},
};

static bool hint_renamed(struct enc *e, const char *name, size_t len) {
    for (size_t i = 0; i < sizeof(renamed) / sizeof(*renamed); i++) {
        if (strlen(renamed[i].wrong) == len && !memcmp(renamed[i].wrong, name, len)) {
            wat_hint(e->diags, "use %s", renamed[i].right);
            return true;
        }
    }
    return false;
}

/*
 * Suggests `i32.div_s` or `i32.div_u` for `i32.div`, which does not say whether numbers are signed.
 */
static bool hint_sign(struct enc *e, const char *name, size_t len) {
    char with[64];
    if (len > sizeof(with) - 3)
        return false;
    memcpy(with, name, len);
    memcpy(with + len, "_s", 3);
    if (find_op(e, with, len + 2) == OP_COUNT)
        return false;
    wat_hint(e->diags, "choose how numbers are read: `%.*s_s` (signed) or `%.*s_u` (unsigned)",
             (int)len, name, (int)len, name);
    return true;
}

enum { LONGEST = 48 };

/* The number of edits between two words; larger numbers are returned as `most` + 1. */
static unsigned distance(const char *a, size_t n, const char *b, size_t m, unsigned most) {
    unsigned row[LONGEST + 1];
    if (n > LONGEST || m > LONGEST || (n > m ? n - m : m - n) > most)
        return most + 1;
    for (size_t j = 0; j <= m; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= m; j++) {
            unsigned swap = diagonal + (a[i - 1] != b[j - 1]);
            unsigned gap = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = swap < gap ? swap : gap;
        }
    }
    return row[m];
}

static unsigned tolerance(size_t len) {
    return len < 2 ? 0 : len < 4 ? 1 : len < 8 ? 2 : 3;
}

static void hint_level(struct enc *e, const char *name, size_t len) {
    for (int op = 0; op < OP_COUNT; op++) {
        const struct wasm_op_info *info = &wasm_ops[op];
        if (strlen(info->text) == len && !memcmp(info->text, name, len))
            wat_hint(e->diags,
                     "this instruction requires WebAssembly %d.%d; the text is read as %d.%d",
                     info->level / 10, info->level % 10, e->spec / 10, e->spec % 10);
    }
}

void hint_instruction(struct enc *e, const struct wat_token *tok) {
    const char *name = e->t->src + tok->pos, *best = NULL;
    unsigned least = tolerance(tok->len) + 1;
    if (hint_renamed(e, name, tok->len) || hint_sign(e, name, tok->len))
        return;
    for (int op = 0; op < OP_COUNT; op++) {
        const struct wasm_op_info *info = &wasm_ops[op];
        if (info->level > e->spec)
            continue;
        unsigned d = distance(name, tok->len, info->text, strlen(info->text), least - 1);
        if (d < least) {
            least = d;
            best = info->text;
        }
    }
    if (best)
        wat_hint(e->diags, "did you mean `%s`?", best);
    else
        hint_level(e, name, tok->len);
}

/* Type names of other languages, and what to use instead. */
static const struct {
    const char *word, *meant;
} foreign_types[] = {
    {"int", "i32"},
    {"bool", "i32"},
    {"char", "i32"},
    {"u8", "i32"},
    {"u32", "i32"},
    {"s32", "i32"},
    {"long", "i64"},
    {"u64", "i64"},
    {"s64", "i64"},
    {"float", "f32"},
    {"double", "f64"},
    {"anyfunc", "funcref"},
    {"ptr", "i32, an address in memory"},
    {"string", "two i32: the address and length of its bytes in memory"},
};

static bool hint_type(struct enc *e, const struct wat_token *tok) {
    for (size_t i = 0; i < sizeof(foreign_types) / sizeof(*foreign_types); i++) {
        if (!wat_is(e->t, tok, foreign_types[i].word))
            continue;
        wat_hint(e->diags, "use %s", foreign_types[i].meant);
        return true;
    }
    return false;
}

bool is_name_like(const struct enc *e, const struct wat_token *tok) {
    char c = e->t->src[tok->pos];
    return tok->kind == WAT_ATOM && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_');
}

static bool is_made_of(const char *s, size_t len, const char *set) {
    for (size_t i = 0; i < len; i++)
        if (!strchr(set, s[i]))
            return false;
    return len > 0;
}

bool hint_punctuation(struct enc *e, const struct wat_token *tok) {
    const char *s = e->t->src + tok->pos;
    if (tok->kind != WAT_ATOM && tok->kind != WAT_RESERVED)
        return false;
    if (s[tok->len - 1] == ',')
        wat_hint(e->diags, "remove the comma: blanks separate words");
    else if (s[tok->len - 1] == ';')
        wat_hint(e->diags, "remove the `;`: blanks separate instructions");
    else if (is_made_of(s, tok->len, "`") || (tok->len > 3 && is_made_of(s, 3, "`")))
        wat_hint(e->diags, "remove the ``` lines: only the program is read");
    else if (tok->len > 1 && is_made_of(s, tok->len, "."))
        wat_hint(e->diags, "write the text that `...` stands for");
    else if (is_made_of(s, tok->len, "="))
        wat_hint(e->diags, "values are set by instructions: `(local.set $x (i32.const 1))`");
    else if (is_made_of(s, tok->len, "+-*/%<>=!&|^"))
        wat_hint(e->diags, "operators are instructions and come first: `(i32.add …)`");
    else
        return false;
    return true;
}

/* True at the second name of `(param $a i32 $b i32)` or `(local $a $b i32)`. */
static bool is_second_name(const struct enc *e, const struct wat_token *tok) {
    const struct wat_token *p = tok - 1;
    if (tok->kind != WAT_ID || tok - e->t->tokens < 4)
        return false;
    p -= p->kind == WAT_ATOM;
    return p->kind == WAT_ID && (wat_is(e->t, p - 1, "param") || wat_is(e->t, p - 1, "local"));
}

/* Hints that depend on the kind of the token; false: none fits. */
static bool hint_misplaced(struct enc *e, const struct wat_token *tok, const char *what) {
    if (is_second_name(e, tok))
        wat_hint(e->diags, "one name in each: `(param $a i32) (param $b i32)`");
    else if (tok->kind == WAT_LPAR && strstr(what, "a label"))
        wat_hint(e->diags, "the label comes first: `(br_if $label (condition))`");
    else if (tok->kind == WAT_STRING && strstr(what, "a size"))
        wat_hint(e->diags, "a memory with a name for the host is `(memory (export \"m\") 1)`");
    else if (tok->kind == WAT_RPAR && strstr(what, "`func` or a reference type"))
        wat_hint(e->diags, "say where in the table: `(elem (i32.const 0) $f)`");
    else if (is_name_like(e, tok) && strstr(what, "a module field"))
        wat_hint(e->diags, "only the program is read: remove text that is not part of it");
    else
        return false;
    return true;
}

void hint_expected(struct enc *e, const struct wat_token *tok, const char *what) {
    int len = (int)(tok->len < 40 ? tok->len : 40);
    const char *s = e->t->src + tok->pos;
    if (hint_punctuation(e, tok) || hint_misplaced(e, tok, what))
        return;
    if (tok->kind == WAT_ATOM && s[0] == '\'')
        wat_hint(e->diags, "write strings in double quotes");
    else if (strstr(what, "in quotes") && is_name_like(e, tok))
        wat_hint(e->diags, "write \"%.*s\"", len, s);
    else if ((strstr(what, " index") || strstr(what, "a label")) && is_name_like(e, tok))
        wat_hint(e->diags, "names start with `$`: `$%.*s`", len, s);
    else if (strstr(what, " type") && !hint_type(e, tok) && is_name_like(e, tok))
        wat_hint(e->diags, "types are i32, i64, f32, f64%s; names start with `$`",
                 e->spec >= 20 ? ", v128, funcref, externref" : "");
    else if (tok->kind == WAT_LPAR && wat_is(e->t, tok + 1, "export"))
        wat_hint(e->diags, "inline exports come right after the name: `(memory (export \"m\") 1)`");
    else if (tok->kind == WAT_RESERVED && (s[0] == '{' || s[0] == '['))
        wat_hint(e->diags, "use parentheses: the text format has no other brackets");
}

static const char *const space_words[WAT_SPACE_COUNT] = {
    [WAT_TYPES] = "a type",      [WAT_FUNCS] = "a function",     [WAT_TABLES] = "a table",
    [WAT_MEMORIES] = "a memory", [WAT_GLOBALS] = "a global",     [WAT_TAGS] = "a tag",
    [WAT_ELEMS] = "an elem",     [WAT_DATAS] = "a data segment", [WAT_LOCALS] = "a local",
    [WAT_LABELS] = "a label",
};

/* Lists the names of the blocks around an instruction, innermost first. */
static void hint_labels(struct enc *e) {
    char list[120] = "";
    size_t used = 0;
    for (uint32_t i = e->label_count; i > 0; i--) {
        const struct label *l = &e->labels[i - 1];
        const char *name = l->sym ? wat_sym_name(e->t, l->sym - 1) : "";
        if (!l->sym)
            continue;
        if (used + strlen(name) + 8 > sizeof(list)) {
            snprintf(list + used, sizeof(list) - used, ", ...");
            break;
        }
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s$%s", used ? ", " : "", name);
    }
    if (used)
        wat_hint(e->diags, "labels in scope, innermost first: %s", list);
    else if (e->label_count)
        wat_hint(e->diags,
                 "the blocks around this have no names: add one, `(block $name …)`, or use "
                 "a number; 0 is the innermost");
    else
        wat_hint(e->diags, "no block is around this; `return` leaves the function");
}

/* Lists the names of one space, because none is like the unknown one. */
static void hint_names(struct enc *e, enum wat_space space) {
    static const char *const words[WAT_SPACE_COUNT] = {[WAT_FUNCS] = "functions",
                                                       [WAT_LOCALS] = "parameters and locals",
                                                       [WAT_GLOBALS] = "globals",
                                                       [WAT_TYPES] = "types"};
    char list[120] = "";
    size_t used = 0;
    for (uint32_t i = 0; words[space] && i < e->t->sym_count; i++) {
        const struct wat_sym *s = &e->t->syms[i];
        if (!s->index[space])
            continue;
        if (used + s->len + 8 > sizeof(list)) {
            snprintf(list + used, sizeof(list) - used, ", ...");
            break;
        }
        used += (size_t)snprintf(list + used, sizeof(list) - used, "%s$%s", used ? ", " : "",
                                 wat_sym_name(e->t, i));
    }
    if (used)
        wat_hint(e->diags, "%s with a name: %s", words[space], list);
}

void hint_name(struct enc *e, enum wat_space space, const struct wat_token *tok) {
    const struct wat_sym *wanted = &e->t->syms[tok->link];
    const char *name = wat_sym_name(e->t, tok->link);
    uint32_t best = 0;
    unsigned least = tolerance(wanted->len) + 1;
    if (e->diags->more) /* each search takes time, so bound their number */
        return;
    for (int other = 0; other < WAT_SPACE_COUNT; other++) {
        if (wanted->index[other]) {
            wat_hint(e->diags, "$%s is %s, not %s", name, space_words[other], space_words[space]);
            return;
        }
    }
    if (space == WAT_LABELS) {
        hint_labels(e);
        return;
    }
    for (uint32_t i = 0; i < e->t->sym_count; i++) {
        const struct wat_sym *s = &e->t->syms[i];
        if (!s->index[space])
            continue;
        unsigned d = distance(name, wanted->len, wat_sym_name(e->t, i), s->len, least - 1);
        if (d < least) {
            least = d;
            best = i + 1;
        }
    }
    if (best)
        wat_hint(e->diags, "did you mean $%s?", wat_sym_name(e->t, best - 1));
    else
        hint_names(e, space);
}

/* The words after which a name is defined. */
static const char *const binders[WAT_SPACE_COUNT][2] = {
    [WAT_TYPES] = {"type"},      [WAT_FUNCS] = {"func"},     [WAT_TABLES] = {"table"},
    [WAT_MEMORIES] = {"memory"}, [WAT_GLOBALS] = {"global"}, [WAT_TAGS] = {"tag"},
    [WAT_ELEMS] = {"elem"},      [WAT_DATAS] = {"data"},     [WAT_LOCALS] = {"param", "local"},
};

static bool binds(const struct enc *e, const struct wat_token *tok, enum wat_space space) {
    for (int i = 0; i < 2; i++)
        if (binders[space][i] && wat_is(e->t, tok, binders[space][i]))
            return true;
    return false;
}

void hint_duplicate(struct enc *e, enum wat_space space, const struct wat_token *tok) {
    const struct wat_token *first = NULL;
    if (e->diags->more) /* each search takes time, so bound their number */
        return;
    /* A local belongs to one function, so look for the last definition before this one. */
    for (const struct wat_token *p = tok - 1; p > e->t->tokens; p--)
        if (p->kind == WAT_ID && p->link == tok->link && binds(e, p - 1, space)) {
            first = p;
            if (space == WAT_LOCALS)
                break;
        }
    if (first)
        wat_hint(e->diags, "it is defined at line %u already: rename one of them",
                 wat_line_at(e->t->src, e->t->len, first->pos).line);
}

/* The number type that an instruction works on, from its name; i32 if it does not say. */
static const char *operand_type(enum wasm_op op, const char *number, size_t len) {
    static const char *const types[] = {"i32", "i64", "f32", "f64"};
    for (size_t i = 0; op < OP_COUNT && i < 4; i++)
        if (strncmp(wasm_ops[op].text, types[i], 3) == 0 && !strchr(wasm_ops[op].text, '_'))
            return types[i];
    return memchr(number, '.', len) ? "f64" : "i32";
}

/* `offset` and `align` that are not written as `offset=4` right after the instruction. */
static bool hint_memarg(struct enc *e, const struct wat_token *tok, enum wasm_op op) {
    const char *s = e->t->src + tok->pos;
    if (tok->kind != WAT_ATOM || op == OP_COUNT)
        return false;
    const char *key = s[0] == 'o' ? "offset" : "align";
    if (tok->len < strlen(key) || memcmp(s, key, strlen(key)) != 0)
        return false;
    wat_hint(e->diags, "`%s=` and its number are one word, right after `%s`", key,
             wasm_ops[op].text);
    return true;
}

void hint_operand(struct enc *e, const struct wat_token *tok, enum wasm_op op) {
    const char *s = e->t->src + tok->pos;
    int len = (int)(tok->len < 40 ? tok->len : 40);
    const char *open = op == OP_COUNT ? "" : "(", *close = op == OP_COUNT ? "" : ")";
    const char *rule = op == OP_COUNT ? "an operand is an instruction of its own"
                                      : "an operand is an instruction in parentheses";
    if (hint_punctuation(e, tok) || hint_memarg(e, tok, op))
        return;
    if (tok->kind == WAT_ID) {
        const uint32_t *index = e->t->syms[tok->link].index;
        const char *word = index[WAT_LOCALS]    ? "local.get"
                           : index[WAT_GLOBALS] ? "global.get"
                           : index[WAT_FUNCS]   ? "call"
                                                : "local.get";
        wat_hint(e->diags, "%s: `%s%s %.*s%s`", rule, open, word, len, s, close);
    } else if (tok->kind == WAT_ATOM && !is_name_like(e, tok)) {
        const char *type = operand_type(op, s, tok->len);
        wat_hint(e->diags, "%s: `%s%s.const %.*s%s`", rule, open, type, len, s, close);
    } else if (tok->kind == WAT_ATOM && op != OP_COUNT) {
        wat_hint(e->diags, "%s: `(%.*s …)`; without parentheses, operands come before `%s`", rule,
                 len, s, wasm_ops[op].text);
    }
}

void hint_number(struct enc *e, const struct wat_token *tok, const char *type) {
    const char *s = e->t->src + tok->pos;
    int len = (int)(tok->len < 40 ? tok->len : 40);
    if (hint_punctuation(e, tok))
        return;
    if (tok->kind == WAT_ID)
        hint_operand(e, tok, OP_NOP);
    else if (tok->kind == WAT_LPAR)
        wat_hint(e->diags, "a constant is a number; for a computed value, leave `%s.const` out",
                 type);
    else if (tok->kind == WAT_STRING)
        wat_hint(e->diags, "put text into memory, `(data (i32.const 0) %.*s)`, and use its address",
                 len, s);
    else if (tok->len == 3 && s[0] == '\'' && s[2] == '\'')
        wat_hint(e->diags, "a character is its code: `%s.const %d`", type, s[1]);
    else if (wat_is(e->t, tok, "true") || wat_is(e->t, tok, "false"))
        wat_hint(e->diags, "true is 1, false is 0");
    else if (type[0] == 'i' && memchr(s, '.', tok->len) && !is_name_like(e, tok))
        wat_hint(e->diags,
                 "integers have no fractions: use f64 for the value and its instructions");
}
