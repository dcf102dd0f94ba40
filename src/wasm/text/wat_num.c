#include "wasm/text/wat_num.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/banned.h"

static int digit_of(char c, unsigned base) {
    int d = c >= '0' && c <= '9' ? c - '0' : (c | 0x20) >= 'a' ? (c | 0x20) - 'a' + 10 : 99;
    return d < (int)base ? d : -1;
}

static bool has_hex_prefix(const char *s, size_t n) {
    return n >= 2 && s[0] == '0' && s[1] == 'x';
}

/* --- integers --- */

enum wat_num wat_unsigned(const char *s, size_t n, uint64_t max, uint64_t *ret) {
    unsigned base = has_hex_prefix(s, n) ? 16 : 10;
    uint64_t value = 0;
    bool fits = true, digit = false;
    for (size_t i = base == 16 ? 2 : 0; i < n; i++) {
        if (s[i] == '_' && digit) {
            digit = false;
            continue;
        }
        int d = digit_of(s[i], base);
        if (d < 0)
            return WAT_NUM_SYNTAX;
        digit = true;
        fits = fits && value <= (UINT64_MAX - (unsigned)d) / base;
        value = value * base + (unsigned)d;
    }
    if (!digit)
        return WAT_NUM_SYNTAX;
    if (!fits || value > max)
        return WAT_NUM_RANGE;
    return *ret = value, WAT_NUM_OK;
}

enum wat_num wat_int(const char *s, size_t n, unsigned bits, uint64_t *ret) {
    bool negative = n > 0 && s[0] == '-';
    size_t sign = negative || (n > 0 && s[0] == '+');
    uint64_t mask = bits == 64 ? UINT64_MAX : (1ull << bits) - 1, value;
    uint64_t max = negative ? 1ull << (bits - 1) : mask;
    enum wat_num status = wat_unsigned(s + sign, n - sign, max, &value);
    if (status == WAT_NUM_OK)
        *ret = (negative ? 0 - value : value) & mask;
    return status;
}

/* --- floats --- */

struct format {
    int precision; /* significand bits with the hidden bit */
    int least;     /* exponent of the smallest subnormal */
    uint64_t infinity;
};

static const struct format *format_of(unsigned bits) {
    static const struct format f32 = {24, -149, 0x7f800000};
    static const struct format f64 = {53, -1074, 0x7ff0000000000000};
    return bits == 32 ? &f32 : &f64;
}

/*
 * Rounds m * 2^exp to the format. The top bit of m is set; `rest`: digits below m are not all zero.
 */
static enum wat_num round_to(const struct format *f, uint64_t m, int exp, bool rest,
                             uint64_t *ret) {
    int unit = exp + 64 - f->precision;
    if (unit < f->least)
        unit = f->least;
    int shift = unit - exp;
    if (shift > 64)
        return *ret = 0, WAT_NUM_OK;
    uint64_t kept = shift == 64 ? 0 : m >> shift;
    uint64_t half = 1ull << (shift - 1), below = m & (half - 1);
    if ((m & half) && (below || rest || (kept & 1)))
        kept++;
    /* A carry out of the significand correctly increments the exponent field. */
    if (unit - f->least > 2100)
        return WAT_NUM_RANGE;
    uint64_t value = ((uint64_t)(unit - f->least) << (f->precision - 1)) + kept;
    return value >= f->infinity ? WAT_NUM_RANGE : (*ret = value, WAT_NUM_OK);
}

enum { EXPONENT_CAP = 1000000 };

/* Reads the decimal exponent after e or p. False: malformed. */
static bool read_exponent(const char *s, size_t n, int *ret) {
    bool negative = n > 0 && s[0] == '-', digit = false;
    int value = 0;
    for (size_t i = negative || (n > 0 && s[0] == '+'); i < n; i++) {
        if (s[i] == '_' && digit) {
            digit = false;
            continue;
        }
        int d = digit_of(s[i], 10);
        if (d < 0)
            return false;
        digit = true;
        value = value >= EXPONENT_CAP ? EXPONENT_CAP : value * 10 + d;
    }
    return digit ? (*ret = negative ? -value : value, true) : false;
}

/* The parts of a float literal. Digits may contain underscores, whose places were checked. */
struct parts {
    const char *whole, *fraction;
    size_t whole_len, fraction_len;
    int exponent;
};

static size_t digits_length(const char *s, size_t n, unsigned base, bool *ok) {
    bool digit = false;
    size_t i = 0;
    for (; i < n; i++) {
        bool underscore = s[i] == '_' && digit;
        if (!underscore && digit_of(s[i], base) < 0)
            break;
        digit = !underscore;
    }
    *ok = digit;
    return i;
}

static bool split_float(const char *s, size_t n, unsigned base, struct parts *ret) {
    bool ok;
    *ret = (struct parts){.whole = s};
    size_t i = ret->whole_len = digits_length(s, n, base, &ok);
    if (!ok)
        return false;
    if (i < n && s[i] == '.') {
        ret->fraction = s + ++i;
        size_t used = digits_length(s + i, n - i, base, &ok);
        if (used && !ok)
            return false;
        ret->fraction_len = used;
        i += used;
    }
    if (i == n)
        return true;
    char mark = (char)(s[i] | 0x20);
    return mark == (base == 16 ? 'p' : 'e') && read_exponent(s + i + 1, n - i - 1, &ret->exponent);
}

/* Iterates over the digits of both parts, in order, for the readers below. */
struct digits {
    const struct parts *parts;
    size_t i;
};

static int next_digit(struct digits *d, unsigned base, bool *in_fraction) {
    const struct parts *p = d->parts;
    for (;; d->i++) {
        *in_fraction = d->i >= p->whole_len;
        size_t at = *in_fraction ? d->i - p->whole_len : d->i;
        if (*in_fraction && at >= p->fraction_len)
            return -1;
        char c = *in_fraction ? p->fraction[at] : p->whole[at];
        if (c != '_')
            return d->i++, digit_of(c, base);
    }
}

static int clamp_exponent(int64_t e) {
    return (int)(e > EXPONENT_CAP ? EXPONENT_CAP : e < -EXPONENT_CAP ? -EXPONENT_CAP : e);
}

static enum wat_num read_hex_float(const struct format *f, const struct parts *p, uint64_t *ret) {
    uint64_t m = 0;
    int64_t exp = p->exponent;
    bool rest = false, in_fraction;
    struct digits all = {.parts = p};
    for (int d; (d = next_digit(&all, 16, &in_fraction)) >= 0;) {
        if (m >> 60)
            rest = rest || d, exp += in_fraction ? 0 : 4;
        else
            m = m << 4 | (unsigned)d, exp -= in_fraction ? 4 : 0;
    }
    if (m == 0)
        return *ret = 0, WAT_NUM_OK;
    int top = __builtin_clzll(m);
    return round_to(f, m << top, clamp_exponent(exp - top), rest, ret);
}

/* --- decimal floats: an exact ratio of two big numbers --- */

enum {
    BIG_WORDS = 160,   /* 10^1210 needs 126 words */
    DIGITS_KEPT = 800, /* further digits change the rounding only by being zero or not */
    LARGEST_POWER = 310,
    SMALLEST_POWER = -400,
};

struct big {
    uint32_t w[BIG_WORDS]; /* least significant word first */
    int n;
};

static void big_mul_add(struct big *b, uint32_t factor, uint32_t carry) {
    uint64_t c = carry;
    for (int i = 0; i < b->n; i++) {
        c += (uint64_t)b->w[i] * factor;
        b->w[i] = (uint32_t)c;
        c >>= 32;
    }
    if (c)
        b->w[b->n++] = (uint32_t)c;
}

static void big_mul_pow10(struct big *b, int power) {
    for (; power >= 9; power -= 9)
        big_mul_add(b, 1000000000, 0);
    for (; power > 0; power--)
        big_mul_add(b, 10, 0);
}

static int big_bits(const struct big *b) {
    return b->n * 32 - __builtin_clz(b->w[b->n - 1]);
}

static void big_shift(struct big *b, int bits) {
    int words = bits / 32;
    memmove(b->w + words, b->w, (size_t)b->n * sizeof(*b->w));
    memset(b->w, 0, (size_t)words * sizeof(*b->w));
    b->n += words;
    big_mul_add(b, 1u << bits % 32, 0);
}

static int big_compare(const struct big *a, const struct big *b) {
    if (a->n != b->n)
        return a->n - b->n;
    for (int i = a->n - 1; i >= 0; i--)
        if (a->w[i] != b->w[i])
            return a->w[i] < b->w[i] ? -1 : 1;
    return 0;
}

static void big_subtract(struct big *a, const struct big *b) {
    int64_t borrow = 0;
    for (int i = 0; i < a->n; i++) {
        borrow += (int64_t)a->w[i] - (i < b->n ? b->w[i] : 0);
        a->w[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
    while (a->n > 0 && a->w[a->n - 1] == 0)
        a->n--;
}

/* Collects the digits; *ret_power is the power of ten of the last digit kept. */
static int read_digits(const struct parts *p, struct big *ret, int *ret_power) {
    int kept = 0;
    int64_t power = p->exponent;
    bool rest = false, in_fraction;
    struct digits all = {.parts = p};
    for (int d; (d = next_digit(&all, 10, &in_fraction)) >= 0;) {
        if (kept >= DIGITS_KEPT) {
            rest = rest || d;
            power += in_fraction ? 0 : 1;
            continue;
        }
        power -= in_fraction ? 1 : 0;
        if (kept == 0 && d == 0)
            continue;
        big_mul_add(ret, 10, (uint32_t)d);
        kept++;
    }
    if (rest) {
        big_mul_add(ret, 10, 1);
        kept++, power--;
    }
    *ret_power = clamp_exponent(power);
    return kept;
}

static enum wat_num divide(const struct format *f, struct big *num, struct big *den,
                           uint64_t *ret) {
    int exp = big_bits(num) - big_bits(den);
    big_shift(exp < 0 ? num : den, exp < 0 ? -exp : exp);
    if (big_compare(num, den) < 0) {
        big_mul_add(num, 2, 0);
        exp--;
    }
    uint64_t m = 0;
    for (int i = 0; i < 64; i++) {
        m <<= 1;
        if (big_compare(num, den) >= 0) {
            big_subtract(num, den);
            m |= 1;
        }
        big_mul_add(num, 2, 0);
    }
    return round_to(f, m, exp - 63, num->n > 0, ret);
}

static enum wat_num read_decimal_float(const struct format *f, const struct parts *p,
                                       uint64_t *ret) {
    struct big num = {.n = 0}, den = {.w = {1}, .n = 1};
    int power, kept = read_digits(p, &num, &power);
    if (kept == 0 || kept + power < SMALLEST_POWER)
        return *ret = 0, WAT_NUM_OK;
    if (kept + power > LARGEST_POWER)
        return WAT_NUM_RANGE;
    big_mul_pow10(power < 0 ? &den : &num, power < 0 ? -power : power);
    return divide(f, &num, &den, ret);
}

static enum wat_num read_nan(const char *s, size_t n, const struct format *f, uint64_t *ret) {
    uint64_t payload = 1ull << (f->precision - 2);
    if (n > 3) {
        if (n < 7 || memcmp(s + 3, ":0x", 3) != 0)
            return WAT_NUM_SYNTAX;
        enum wat_num status = wat_unsigned(s + 4, n - 4, UINT64_MAX, &payload);
        if (status != WAT_NUM_OK)
            return status;
        if (payload == 0 || payload >= 1ull << (f->precision - 1))
            return WAT_NUM_RANGE;
    }
    return *ret = f->infinity | payload, WAT_NUM_OK;
}

static enum wat_num read_magnitude(const char *s, size_t n, const struct format *f, uint64_t *ret) {
    if (n == 3 && memcmp(s, "inf", 3) == 0)
        return *ret = f->infinity, WAT_NUM_OK;
    if (n >= 3 && memcmp(s, "nan", 3) == 0)
        return read_nan(s, n, f, ret);
    struct parts parts;
    unsigned base = has_hex_prefix(s, n) ? 16 : 10;
    size_t prefix = base == 16 ? 2 : 0;
    if (!split_float(s + prefix, n - prefix, base, &parts))
        return WAT_NUM_SYNTAX;
    return base == 16 ? read_hex_float(f, &parts, ret) : read_decimal_float(f, &parts, ret);
}

enum wat_num wat_float(const char *s, size_t n, unsigned bits, uint64_t *ret) {
    bool negative = n > 0 && s[0] == '-';
    size_t sign = negative || (n > 0 && s[0] == '+');
    uint64_t value;
    enum wat_num status = read_magnitude(s + sign, n - sign, format_of(bits), &value);
    if (status == WAT_NUM_OK)
        *ret = value | (negative ? 1ull << (bits - 1) : 0);
    return status;
}

/* --- printing --- */

static double as_double(uint64_t value, unsigned bits) {
    if (bits == 32) {
        uint32_t v = (uint32_t)value;
        float f;
        memcpy(&f, &v, sizeof(f));
        return (double)f;
    }
    double d;
    memcpy(&d, &value, sizeof(d));
    return d;
}

static void print_special(uint64_t magnitude, const char *sign, const struct format *f,
                          char out[WAT_NUM_TEXT]) {
    uint64_t payload = magnitude & ((1ull << (f->precision - 1)) - 1);
    if (payload == 0)
        snprintf(out, WAT_NUM_TEXT, "%sinf", sign);
    else if (payload == 1ull << (f->precision - 2))
        snprintf(out, WAT_NUM_TEXT, "%snan", sign);
    else
        snprintf(out, WAT_NUM_TEXT, "%snan:0x%" PRIx64, sign, payload);
}

/* Undoes the decimal separator of a locale: the text format always uses a point. */
static void undo_locale(char *text) {
    for (; *text; text++)
        if (!strchr("+-0123456789e", *text))
            *text = '.';
}

void wat_print_float(uint64_t value, unsigned bits, char out[WAT_NUM_TEXT]) {
    const struct format *f = format_of(bits);
    uint64_t magnitude = value & ~(1ull << (bits - 1)), back = 0;
    if (magnitude >= f->infinity) {
        print_special(magnitude, magnitude == value ? "" : "-", f, out);
        return;
    }
    for (int digits = bits == 32 ? 6 : 15; digits <= 17; digits++) {
        snprintf(out, WAT_NUM_TEXT, "%.*g", digits, as_double(value, bits));
        undo_locale(out);
        if (wat_float(out, strlen(out), bits, &back) == WAT_NUM_OK && back == value)
            return;
    }
}
