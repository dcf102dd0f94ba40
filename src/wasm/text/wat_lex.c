#include "wasm/text/wat_lex.h"

#include <stdlib.h>
#include <string.h>

#include "base/banned.h"
#include "base/siphash.h"
#include "wasm/text/wat_structure.h"

enum { SPACE = 1, IDCHAR = 2, PUNCT = 4 };

static const uint8_t class_of[256] = {
    [' '] = SPACE,          ['\t'] = SPACE,          ['\n'] = SPACE,         ['\r'] = SPACE,
    ['!'] = IDCHAR,         ['#' ... '\''] = IDCHAR, ['*' ... '+'] = IDCHAR, ['-' ... ':'] = IDCHAR,
    ['<' ... 'Z'] = IDCHAR, ['\\'] = IDCHAR,         ['^' ... 'z'] = IDCHAR, ['|'] = IDCHAR,
    ['~'] = IDCHAR,         [','] = PUNCT,           [';'] = PUNCT,          ['['] = PUNCT,
    [']'] = PUNCT,          ['{'] = PUNCT,           ['}'] = PUNCT,
};

/* The state of one walk over the source. */
struct lexer {
    struct wat_text *t;
    struct wat_diags *diags;
    const char *s;
    uint32_t pos, len;
    uint32_t room;      /* tokens allocated */
    uint32_t sym_room;  /* symbols allocated */
    uint32_t open;      /* innermost '(' that is not closed yet, index + 1 */
    struct buf scratch; /* a quoted name being decoded */
};

static bool has(uint8_t c, int classes) {
    return class_of[c] & classes;
}

static uint8_t at(const struct lexer *lx, uint32_t pos) {
    return pos < lx->len ? (uint8_t)lx->s[pos] : 0;
}

static int no_memory(struct lexer *lx) {
    return wat_error(lx->diags, lx->pos, 1, "out of memory");
}

/* --- UTF-8 --- */

size_t wat_utf8(const char *s, size_t n, uint32_t *ret) {
    const uint8_t *p = (const uint8_t *)s;
    if (n == 0)
        return 0;
    if (p[0] < 0x80)
        return *ret = p[0], 1;
    size_t len = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (p[0] < 0xc0 || p[0] > 0xf7 || n < len)
        return 0;
    uint32_t c = p[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    return *ret = c, len;
}

static int skip_character(struct lexer *lx) {
    uint32_t c;
    size_t n = wat_utf8(lx->s + lx->pos, lx->len - lx->pos, &c);
    if (n == 0)
        return wat_error(lx->diags, lx->pos, 1, "malformed UTF-8 encoding");
    lx->pos += (uint32_t)n;
    return 0;
}

/* --- white space and comments --- */

static int skip_line_comment(struct lexer *lx) {
    while (lx->pos < lx->len && at(lx, lx->pos) != '\n' && at(lx, lx->pos) != '\r')
        if (skip_character(lx) < 0)
            return -1;
    return 0;
}

static int skip_block_comment(struct lexer *lx) {
    uint32_t start = lx->pos;
    uint32_t depth = 0;
    do {
        uint8_t c = at(lx, lx->pos), d = at(lx, lx->pos + 1);
        if (lx->pos >= lx->len)
            return wat_error(lx->diags, start, 2, "unclosed comment: `(;` needs its `;)`");
        if ((c == '(' && d == ';') || (c == ';' && d == ')')) {
            depth += c == '(' ? 1u : -1u;
            lx->pos += 2;
        } else if (skip_character(lx) < 0) {
            return -1;
        }
    } while (depth > 0);
    return 0;
}

static int skip_space(struct lexer *lx) {
    for (;;) {
        uint8_t c = at(lx, lx->pos), d = at(lx, lx->pos + 1);
        if (lx->pos < lx->len && has(c, SPACE)) {
            lx->pos++;
        } else if (c == ';' && d == ';') {
            if (skip_line_comment(lx) < 0)
                return -1;
        } else if (c == '(' && d == ';') {
            if (skip_block_comment(lx) < 0)
                return -1;
        } else {
            return 0;
        }
    }
}

/* --- strings --- */

static int hex_digit(uint8_t c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/*
 * Reads hex digits with single underscores between them, and '}', after `\u{`. Returns the length,
 * or 0.
 */
static uint32_t unicode_escape(const char *s, uint32_t n, uint32_t *ret) {
    uint32_t c = 0, i = 0;
    for (bool digit = false;; i++) {
        if (i >= n)
            return 0;
        if (s[i] == '}')
            return digit ? (*ret = c, i + 1) : 0;
        if (s[i] == '_' ? !digit : hex_digit((uint8_t)s[i]) < 0)
            return 0;
        digit = s[i] != '_';
        if (digit)
            c = c * 16 + (uint32_t)hex_digit((uint8_t)s[i]);
        if (c > 0x10ffff)
            return 0;
    }
}

static const char *const simple_escapes = "t\tn\nr\r\"\"''\\\\";

/* The byte that a one-letter escape stands for, or -1. */
static int simple_escape(char c) {
    for (const char *p = simple_escapes; *p; p += 2)
        if (*p == c)
            return (uint8_t)p[1];
    return -1;
}

/* Length of the escape at s (after the backslash), 0 if it is malformed. */
static uint32_t escape_length(const char *s, uint32_t n) {
    uint32_t c;
    if (n >= 1 && simple_escape(s[0]) >= 0)
        return 1;
    if (n >= 2 && s[0] == 'u' && s[1] == '{') {
        uint32_t used = unicode_escape(s + 2, n - 2, &c);
        return used && (c < 0xd800 || c >= 0xe000) ? used + 2 : 0;
    }
    return n >= 2 && hex_digit((uint8_t)s[0]) >= 0 && hex_digit((uint8_t)s[1]) >= 0 ? 2 : 0;
}

static int bad_escape(struct lexer *lx) {
    wat_error(lx->diags, lx->pos, 2, "illegal escape in a string");
    return wat_hint(lx->diags, "escapes are \\t \\n \\r \\\" \\' \\\\ \\hh and \\u{hex}");
}

static int skip_string(struct lexer *lx) {
    uint32_t start = lx->pos++;
    while (at(lx, lx->pos) != '"') {
        uint8_t c = at(lx, lx->pos);
        if (lx->pos >= lx->len || c == '\n')
            return wat_error(lx->diags, start, lx->pos - start, "unclosed string");
        if (c < 0x20 || c == 0x7f)
            return wat_error(lx->diags, lx->pos, 1, "illegal character in a string");
        if (c == '\\') {
            uint32_t n = escape_length(lx->s + lx->pos + 1, lx->len - lx->pos - 1);
            if (n == 0)
                return bad_escape(lx);
            lx->pos += 1 + n;
        } else if (skip_character(lx) < 0) {
            return -1;
        }
    }
    lx->pos++;
    return 0;
}

static size_t encode_utf8(uint32_t c, char out[4]) {
    if (c < 0x80)
        return out[0] = (char)c, 1;
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((0xf00u >> n) | c);
    return n;
}

/* Appends the bytes that the escape at s stands for. The lexer has already checked it. */
static bool add_escape(const char *s, uint32_t n, struct buf *out) {
    char bytes[4];
    if (n == 1)
        return buf_add(out, &(char){(char)simple_escape(s[0])}, 1);
    if (s[0] == 'u') {
        uint32_t c = 0;
        unicode_escape(s + 2, n - 2, &c);
        return buf_add(out, bytes, encode_utf8(c, bytes));
    }
    bytes[0] = (char)(hex_digit((uint8_t)s[0]) << 4 | hex_digit((uint8_t)s[1]));
    return buf_add(out, bytes, 1);
}

/* Decodes the inside of a string literal that the lexer has checked. */
static bool decode_string(const char *s, uint32_t n, struct buf *out) {
    for (uint32_t i = 0; i < n;) {
        uint32_t run = i;
        while (run < n && s[run] != '\\')
            run++;
        if (!buf_add(out, s + i, run - i))
            return false;
        if (run == n)
            break;
        uint32_t used = escape_length(s + run + 1, n - run - 1);
        if (!add_escape(s + run + 1, used, out))
            return false;
        i = run + 1 + used;
    }
    return true;
}

bool wat_string(const struct wat_text *t, const struct wat_token *tok, struct buf *out) {
    return decode_string(t->src + tok->pos + 1, tok->len - 2, out);
}

/* --- symbols --- */

static uint32_t hash(const char *s, size_t n) {
    return (uint32_t)siphash(siphash_own_key(), s, n);
}

static bool grow_buckets(struct wat_text *t) {
    uint32_t count = t->bucket_count ? t->bucket_count * 2 : 64;
    uint32_t *buckets = calloc(count, sizeof(*buckets));
    if (!buckets)
        return false;
    for (uint32_t i = 0; i < t->sym_count; i++) {
        uint32_t h = hash(t->names.data + t->syms[i].name, t->syms[i].len);
        while (buckets[h & (count - 1)])
            h++;
        buckets[h & (count - 1)] = i + 1;
    }
    free(t->buckets);
    t->buckets = buckets;
    t->bucket_count = count;
    return true;
}

static bool add_symbol(struct lexer *lx, const char *name, uint32_t len) {
    struct wat_text *t = lx->t;
    if (t->sym_count == lx->sym_room) {
        uint32_t room = lx->sym_room ? lx->sym_room * 2 : 32;
        struct wat_sym *syms = realloc(t->syms, room * sizeof(*syms));
        if (!syms)
            return false;
        t->syms = syms;
        lx->sym_room = room;
    }
    t->syms[t->sym_count] = (struct wat_sym){.name = (uint32_t)t->names.len, .len = len};
    t->sym_count++;
    return buf_add(&t->names, name, len) && buf_add(&t->names, "", 1);
}

/* Finds the symbol of a name, or adds it. */
static bool intern(struct lexer *lx, const char *name, uint32_t len, uint32_t *ret) {
    struct wat_text *t = lx->t;
    if (t->sym_count * 2 >= t->bucket_count && !grow_buckets(t))
        return false;
    for (uint32_t h = hash(name, len);; h++) {
        uint32_t *slot = &t->buckets[h & (t->bucket_count - 1)];
        if (!*slot) {
            if (!add_symbol(lx, name, len))
                return false;
            *slot = t->sym_count;
            return *ret = *slot - 1, true;
        }
        const struct wat_sym *s = &t->syms[*slot - 1];
        if (s->len == len && memcmp(t->names.data + s->name, name, len) == 0)
            return *ret = *slot - 1, true;
    }
}

const char *wat_sym_name(const struct wat_text *t, uint32_t sym) {
    return t->names.data + t->syms[sym].name;
}

/* --- tokens --- */

static struct wat_token *wat_lex_push(struct lexer *lx, enum wat_kind kind, uint32_t start) {
    struct wat_text *t = lx->t;
    if (t->count + 1 >= lx->room) {
        uint32_t room = lx->room ? lx->room * 2 : 256;
        struct wat_token *tokens = realloc(t->tokens, room * sizeof(*tokens));
        if (!tokens)
            return no_memory(lx), NULL;
        t->tokens = tokens;
        lx->room = room;
    }
    struct wat_token *tok = &t->tokens[t->count++];
    *tok = (struct wat_token){.pos = start, .len = lx->pos - start, .kind = kind};
    return tok;
}

static bool valid_name(const char *s, size_t n) {
    uint32_t c;
    for (size_t i = 0, used; i < n; i += used)
        if ((used = wat_utf8(s + i, n - i, &c)) == 0)
            return false;
    return true;
}

static int push_id(struct lexer *lx, uint32_t start, bool quoted) {
    const char *name = lx->s + start + 1;
    uint32_t len = lx->pos - start - 1;
    if (quoted) {
        lx->scratch.len = 0;
        if (!decode_string(name + 1, len - 2, &lx->scratch))
            return no_memory(lx);
        name = lx->scratch.data;
        len = (uint32_t)lx->scratch.len;
        if (!valid_name(name, len))
            return wat_error(lx->diags, start, lx->pos - start, "malformed UTF-8 in a name");
    }
    if (len == 0)
        return wat_error(lx->diags, start, 1, "empty identifier: `$` needs a name after it");
    struct wat_token *tok = wat_lex_push(lx, WAT_ID, start);
    return tok && intern(lx, name, len, &tok->link) ? 0 : no_memory(lx);
}

/* Counts of the parts of a run, which is a text without spaces and parentheses. */
struct run {
    uint32_t strings, plain, punct;
};

static int skip_run(struct lexer *lx, struct run *ret) {
    *ret = (struct run){0};
    for (;;) {
        uint8_t c = at(lx, lx->pos);
        if (c == '"') {
            ret->strings++;
            if (skip_string(lx) < 0)
                return -1;
        } else if (has(c, IDCHAR)) {
            ret->plain++;
            lx->pos++;
        } else if (has(c, PUNCT) && !(c == ';' && at(lx, lx->pos + 1) == ';')) {
            ret->punct++;
            lx->pos++;
        } else {
            return 0;
        }
    }
}

/* Signs that editors and models put in place of ASCII. */
static const struct {
    char sign[4];
    const char *hint;
} typographic[] = {
    {"\xe2\x80\x9c", "use straight quotes: \""},    {"\xe2\x80\x9d", "use straight quotes: \""},
    {"\xe2\x80\x98", "use straight quotes: \""},    {"\xe2\x80\x99", "use straight quotes: \""},
    {"\xe2\x88\x92", "use an ASCII minus: -"},      {"\xe2\x80\x93", "use an ASCII minus: -"},
    {"\xef\xbb\xbf", "remove the byte order mark"},
};

static int illegal_character(struct lexer *lx) {
    uint32_t start = lx->pos;
    if (skip_character(lx) < 0)
        return -1;
    wat_error(lx->diags, start, lx->pos - start, "illegal character");
    for (size_t i = 0; i < sizeof(typographic) / sizeof(*typographic); i++)
        if (lx->len - start >= 3 && memcmp(lx->s + start, typographic[i].sign, 3) == 0)
            return wat_hint(lx->diags, "%s", typographic[i].hint);
    return -1;
}

/* Comments of other languages. No token begins like them. */
static bool at_foreign_comment(const struct lexer *lx) {
    uint8_t c = at(lx, lx->pos), d = at(lx, lx->pos + 1);
    return c == '#' || c == ';' || (c == '/' && (d == '/' || d == '*'));
}

/* Reports the first comment of another language, and skips all of them. */
static int skip_foreign_comment(struct lexer *lx) {
    uint32_t start = lx->pos, len = at(lx, start) == '/' ? 2 : 1;
    if (lx->t->foreign_comments++ == 0) {
        wat_error(lx->diags, start, len, "unexpected token `%.*s`", (int)len, lx->s + start);
        wat_hint(lx->diags, "comments begin with `;;`, or stand between `(;` and `;)`");
    }
    if (at(lx, start + 1) != '*' || len == 1)
        return skip_line_comment(lx);
    const char *end = memmem(lx->s + start, lx->len - start, "*/", 2);
    lx->pos = end ? (uint32_t)(end + 2 - lx->s) : lx->len;
    return 0;
}

static int lex_run(struct lexer *lx) {
    uint32_t start = lx->pos;
    struct run run;
    if (at_foreign_comment(lx))
        return skip_foreign_comment(lx);
    if (skip_run(lx, &run) < 0)
        return -1;
    if (lx->pos == start)
        return illegal_character(lx);
    if (run.strings == 1 && run.plain == 0 && run.punct == 0)
        return wat_lex_push(lx, WAT_STRING, start) ? 0 : -1;
    bool dollar = lx->s[start] == '$' && run.punct == 0;
    if (dollar && run.strings == 0)
        return push_id(lx, start, false);
    if (dollar && run.strings == 1 && run.plain == 1 && lx->t->spec >= 30)
        return push_id(lx, start, true);
    bool atom = run.strings == 0 && run.punct == 0;
    return wat_lex_push(lx, atom ? WAT_ATOM : WAT_RESERVED, start) ? 0 : -1;
}

/* Annotations are ignored, but they must be well formed. */
static int skip_annotation(struct lexer *lx) {
    uint32_t start = lx->pos, name = lx->pos += 2;
    struct run run;
    if (skip_run(lx, &run) < 0)
        return -1;
    if (run.strings > 1 || (run.strings && run.plain + run.punct))
        return wat_error(lx->diags, name, lx->pos - name, "malformed annotation id");
    lx->scratch.len = 0;
    if (run.strings && !decode_string(lx->s + name + 1, lx->pos - name - 2, &lx->scratch))
        return no_memory(lx);
    if (lx->pos == name || (run.strings && lx->scratch.len == 0))
        return wat_error(lx->diags, start, 2, "empty annotation id");
    if (run.strings && !valid_name(lx->scratch.data, lx->scratch.len))
        return wat_error(lx->diags, name, lx->pos - name, "malformed UTF-8 in an annotation id");
    for (uint32_t depth = 1; depth > 0;) {
        if (skip_space(lx) < 0)
            return -1;
        if (lx->pos >= lx->len)
            return wat_error(lx->diags, start, 2, "unclosed annotation");
        uint32_t before = lx->pos;
        uint8_t c = at(lx, lx->pos);
        if (c == '(' || c == ')') {
            depth += c == '(' ? 1u : -1u;
            lx->pos++;
        } else if (skip_run(lx, &run) < 0) {
            return -1;
        } else if (lx->pos == before) {
            return illegal_character(lx);
        }
    }
    return 0;
}

static int lex_open(struct lexer *lx) {
    if (at(lx, lx->pos + 1) == '@' && lx->t->spec >= 30)
        return skip_annotation(lx);
    lx->pos++;
    struct wat_token *tok = wat_lex_push(lx, WAT_LPAR, lx->pos - 1);
    if (!tok)
        return -1;
    /* Until the matching ')' is found, link holds the enclosing '('. */
    tok->link = lx->open;
    lx->open = lx->t->count;
    return 0;
}

static int surplus_close(struct lexer *lx) {
    const struct wat_text *t = lx->t;
    uint32_t close = t->count ? t->tokens[0].link : 0;
    if (close > 0 && close + 1 < t->count && wat_is(t, &t->tokens[1], "module"))
        return wat_closed_early(t, close, lx->diags);
    return wat_error(lx->diags, lx->pos, 1, "unexpected token `)`: no `(` is open here");
}

static int lex_close(struct lexer *lx) {
    if (!lx->open)
        return surplus_close(lx);
    lx->pos++;
    struct wat_token *tok = wat_lex_push(lx, WAT_RPAR, lx->pos - 1);
    if (!tok)
        return -1;
    struct wat_token *open = &lx->t->tokens[lx->open - 1];
    tok->link = lx->open - 1;
    lx->open = open->link;
    open->link = lx->t->count - 1;
    return 0;
}

static int lex_all(struct lexer *lx) {
    for (;;) {
        if (skip_space(lx) < 0)
            return -1;
        if (lx->pos >= lx->len)
            return 0;
        uint8_t c = at(lx, lx->pos);
        if ((c == '(' ? lex_open(lx) : c == ')' ? lex_close(lx) : lex_run(lx)) < 0)
            return -1;
    }
}

int wat_text_try(struct wat_text *ret, const char *src, size_t len, int spec,
                 struct wat_diags *diags) {
    *ret = (struct wat_text){.src = src, .len = len, .spec = spec, .names = BUF(len * 2 + 1)};
    if (len > WAT_MAX_SOURCE)
        return wat_error(diags, 0, 0, "the text is larger than %d MiB", WAT_MAX_SOURCE >> 20);
    struct lexer lx = {
        .t = ret, .diags = diags, .s = src, .len = (uint32_t)len, .scratch = BUF(len)};
    int r = lex_all(&lx);
    if (r == 0 && lx.open)
        r = wat_unclosed(ret, lx.open - 1, diags);
    if (r == 0 && !wat_lex_push(&lx, WAT_EOF, lx.len))
        r = -1;
    buf_done(&lx.scratch);
    if (r < 0)
        return wat_text_done(ret), -1;
    ret->count--;
    return 0;
}

int wat_text_init(struct wat_text *ret, const char *src, size_t len, int spec,
                  struct wat_diags *diags) {
    if (wat_text_try(ret, src, len, spec, diags) < 0)
        return -1;
    return ret->foreign_comments ? wat_text_done(ret), -1 : 0;
}

void wat_text_done(struct wat_text *t) {
    free(t->tokens);
    free(t->syms);
    free(t->buckets);
    buf_done(&t->names);
    *t = (struct wat_text){0};
}

bool wat_is(const struct wat_text *t, const struct wat_token *tok, const char *word) {
    return tok->kind == WAT_ATOM && strlen(word) == tok->len &&
           memcmp(t->src + tok->pos, word, tok->len) == 0;
}
