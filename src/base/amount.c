#include "base/amount.h"

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
