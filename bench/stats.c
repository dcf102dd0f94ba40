#include "stats.h"

#include <stdlib.h>
#include <time.h>

void samples_add(struct samples *s, uint64_t value) {
    if (s->n == s->cap) {
        s->cap = s->cap ? 2 * s->cap : 64;
        s->v = realloc(s->v, s->cap * sizeof(*s->v));
        if (!s->v)
            abort();
    }
    s->v[s->n++] = value;
}

void samples_done(struct samples *s) {
    free(s->v);
    *s = (struct samples){0};
}

static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

uint64_t samples_quantile(struct samples *s, unsigned per_mille) {
    if (s->n == 0)
        return 0;
    qsort(s->v, s->n, sizeof(*s->v), compare);
    size_t at = s->n * per_mille / 1000;
    return s->v[at < s->n ? at : s->n - 1];
}

uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
