/* Parse a JSON text that the kernel first writes: bytes, branches, recursion. */
#include "kernel.h"

enum { TEXT_MAX = 1 << 16 };

static char text[TEXT_MAX];
static size_t text_len;

static void put(char c) {
    if (text_len < TEXT_MAX)
        text[text_len++] = c;
}

static void put_text(const char *s) {
    while (*s)
        put(*s++);
}

static void put_number(uint32_t x) {
    char digits[10];
    int n = 0;
    do
        digits[n++] = (char)('0' + x % 10);
    while (x /= 10);
    while (n)
        put(digits[--n]);
}

static void write_text(void) {
    uint32_t seed = 42;
    put('[');
    while (text_len < TEXT_MAX - 400) {
        put_text("{\"id\": ");
        put_number(next_random(&seed));
        put_text(", \"name\": \"record \\u00e9\\n");
        put_number(next_random(&seed) & 0xffff);
        put_text("\", \"score\": -");
        put_number(next_random(&seed) & 0xfff);
        put_text(".25e-2, \"tags\": [\"alpha\", \"beta\", true, false, null], \"next\": {\"a\": "
                 "[[], {}]}}, ");
    }
    put_text("0]");
    put(0);
}

struct parser {
    const char *p;
    uint32_t sum;
};

static void parse_value(struct parser *j);

static void skip_space(struct parser *j) {
    while (*j->p == ' ' || *j->p == '\n' || *j->p == '\t' || *j->p == '\r')
        j->p++;
}

static uint32_t hex_digit(char c) {
    return (uint32_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
}

static uint32_t parse_escape(struct parser *j) {
    char c = *j->p++;
    if (c == 'n')
        return '\n';
    if (c != 'u')
        return (uint32_t)c;
    uint32_t x = 0;
    for (int i = 0; i < 4; i++)
        x = x * 16 + hex_digit(*j->p++);
    return x;
}

static void parse_string(struct parser *j) {
    j->p++;
    while (*j->p != '"') {
        uint32_t c = (uint8_t)*j->p++;
        if (c == '\\')
            c = parse_escape(j);
        j->sum = mix(j->sum, c);
    }
    j->p++;
}

static double parse_digits(struct parser *j, double value, double *scale) {
    while (*j->p >= '0' && *j->p <= '9') {
        value = value * 10 + (*j->p++ - '0');
        *scale *= 10;
    }
    return value;
}

static void parse_number(struct parser *j) {
    int negative = *j->p == '-', shrink = 0;
    double ignored = 1, scale = 1, exponent = 0;
    j->p += negative;
    double value = parse_digits(j, 0, &ignored);
    if (*j->p == '.') {
        j->p++;
        value = parse_digits(j, value, &scale);
    }
    if (*j->p == 'e') {
        j->p++;
        shrink = *j->p == '-';
        j->p += shrink;
        exponent = parse_digits(j, 0, &ignored);
    }
    for (value /= scale; exponent > 0; exponent--)
        value = shrink ? value / 10 : value * 10;
    j->sum = mix(j->sum, (uint32_t)(int32_t)(negative ? -value : value / 4));
}

static void parse_members(struct parser *j, char close, int has_keys) {
    j->p++;
    for (skip_space(j); *j->p != close; skip_space(j)) {
        if (has_keys) {
            parse_string(j);
            skip_space(j);
            j->p++;
        }
        parse_value(j);
        skip_space(j);
        if (*j->p == ',')
            j->p++;
    }
    j->p++;
}

static void parse_word(struct parser *j) {
    while (*j->p >= 'a' && *j->p <= 'z')
        j->sum = mix(j->sum, (uint32_t)*j->p++);
}

static NOINLINE void parse_value(struct parser *j) {
    skip_space(j);
    switch (*j->p) {
    case '{':
        parse_members(j, '}', 1);
        break;
    case '[':
        parse_members(j, ']', 0);
        break;
    case '"':
        parse_string(j);
        break;
    case 't':
    case 'f':
    case 'n':
        parse_word(j);
        break;
    default:
        parse_number(j);
    }
}

KERNEL uint32_t run(uint32_t n) {
    if (!text_len)
        write_text();
    struct parser j = {.sum = 0};
    for (uint32_t i = 0; i < n; i++) {
        j.p = text;
        parse_value(&j);
    }
    return j.sum;
}
