#include "base/amount.h"

#include <stdbool.h>
#include <stdio.h>

#define SECOND 1000000ull

void amount_duration(uint64_t us, char ret[AMOUNT_SIZE]) {
    static const struct {
        uint64_t seconds;
        const char *unit;
    } parts[] = {{86400, "d"}, {3600, "h"}, {60, "m"}, {1, "s"}};
    uint64_t s = us / SECOND, rest;
    size_t at = 0;
    if (us && us < SECOND) {
        snprintf(ret, AMOUNT_SIZE, us < 1000 ? "%.0fus" : "%.0fms",
                 us < 1000 ? (double)us : (double)(us / 1000));
        return;
    }
    if (s < 10 && us % SECOND >= SECOND / 10) {
        snprintf(ret, AMOUNT_SIZE, "%.1fs", (double)(us / (SECOND / 10)) / 10);
        return;
    }
    while (at < 3 && s < parts[at].seconds)
        at++;
    int n = snprintf(ret, AMOUNT_SIZE, "%.0f%s", (double)(s / parts[at].seconds), parts[at].unit);
    rest = at < 3 ? s % parts[at].seconds / parts[at + 1].seconds : 0;
    if (rest)
        snprintf(ret + n, AMOUNT_SIZE - (size_t)n, " %.0f%s", (double)rest, parts[at + 1].unit);
}

/* Whether the size can be written exactly in this unit: at most five digits and two decimals. */
static bool size_fits(uint64_t bytes, unsigned long long unit) {
    return bytes >= unit && bytes / unit < 100000 && bytes % unit * 100 % unit == 0;
}

void amount_size(uint64_t bytes, char ret[AMOUNT_SIZE]) {
    static const char units[] = "BKMGT";
    size_t largest = 0, at;
    while (largest < 4 && bytes >> 10 * largest >= 1024)
        largest++;
    for (at = largest; at && !size_fits(bytes, 1ull << 10 * at); at--)
        ;
    if (!size_fits(bytes, 1ull << 10 * at))
        at = largest;
    unsigned long long unit = 1ull << 10 * at, part = bytes % unit * 100 / unit;
    int n = snprintf(ret, AMOUNT_SIZE, "%llu", (unsigned long long)bytes / unit);
    if (part)
        n += snprintf(ret + n, AMOUNT_SIZE - (size_t)n, part % 10 ? ".%02llu" : ".%llu",
                      part % 10 ? part : part / 10);
    if (bytes)
        snprintf(ret + n, AMOUNT_SIZE - (size_t)n, "%c", units[at]);
}

/* Writes a number that has `digits` decimals, without zeros at its end. A double is not exact. */
static void amount_decimal(uint64_t value, int digits, char ret[AMOUNT_SIZE]) {
    unsigned long long unit = digits == 3 ? 1000 : 1000000;
    int n = snprintf(ret, AMOUNT_SIZE, "%llu.%0*llu", (unsigned long long)value / unit, digits,
                     (unsigned long long)value % unit);
    while (ret[n - 1] == '0')
        n--;
    ret[ret[n - 1] == '.' ? n - 1 : n] = '\0';
}

void amount_show(enum amount_unit unit, uint64_t value, char ret[AMOUNT_SIZE]) {
    switch (unit) {
    case AMOUNT_BYTES:
        amount_size(value, ret);
        return;
    case AMOUNT_MS:
        amount_duration(value * 1000, ret);
        return;
    case AMOUNT_MILLIS:
    case AMOUNT_MICROS:
        amount_decimal(value, unit == AMOUNT_MILLIS ? 3 : 6, ret);
        return;
    case AMOUNT_ONES:
        break;
    }
    snprintf(ret, AMOUNT_SIZE, "%llu", (unsigned long long)value);
}
