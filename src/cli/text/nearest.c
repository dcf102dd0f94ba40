#include "cli/text/nearest.h"

#include <stdbool.h>
#include <string.h>

enum { WORD_MAX = 32, PREFIX_MIN = 3 };

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Counts letters that are added, missing, wrong or swapped with their neighbour. */
static size_t mistakes(const char *a, size_t a_len, const char *b, size_t b_len) {
    size_t cost[WORD_MAX + 1][WORD_MAX + 1];
    for (size_t i = 0; i <= a_len; i++)
        for (size_t k = 0; k <= b_len; k++) {
            if (!i || !k) {
                cost[i][k] = i + k;
                continue;
            }
            bool same = a[i - 1] == b[k - 1];
            cost[i][k] =
                least(cost[i - 1][k - 1] + !same, least(cost[i - 1][k], cost[i][k - 1]) + 1);
            if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                cost[i][k] = least(cost[i][k], cost[i - 2][k - 2] + 1);
        }
    return cost[a_len][b_len];
}

void nearest_try(struct nearest *n, const char *candidate) {
    size_t len = strlen(candidate), shorter = least(len, n->len);
    if (!shorter || len > WORD_MAX || n->len > WORD_MAX)
        return;
    size_t allowed = shorter <= 4 ? 1 : shorter <= 7 ? 2 : 3;
    size_t distance = mistakes(n->word, n->len, candidate, len);
    if (shorter >= PREFIX_MIN && strncmp(n->word, candidate, shorter) == 0)
        distance = least(distance, 1);
    if (distance > allowed || distance >= len || (n->best && distance >= n->distance))
        return;
    n->best = candidate;
    n->distance = distance;
}
