#include "base/sort.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/*
 * Heap sort, in place. The C library's qsort() asks the system how much memory it has before it
 * sorts more than a kilobyte, and the filter of a cell's worker ends the process for that.
 */

struct sorted {
    uint8_t *base;
    size_t size;
    int (*compare)(const void *a, const void *b);
};

static void swap(uint8_t *a, uint8_t *b, size_t size) {
    for (size_t i = 0; i < size; i++) {
        uint8_t t = a[i];
        a[i] = b[i];
        b[i] = t;
    }
}

/* Moves element i of a heap of n elements down to its place. */
static void sift(const struct sorted *s, size_t i, size_t n) {
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n &&
            s->compare(s->base + child * s->size, s->base + (child + 1) * s->size) < 0)
            child++;
        if (s->compare(s->base + i * s->size, s->base + child * s->size) >= 0)
            return;
        swap(s->base + i * s->size, s->base + child * s->size, s->size);
    }
}

void heap_sort(void *base, size_t n, size_t size, int (*compare)(const void *a, const void *b)) {
    const struct sorted s = {base, size, compare};
    for (size_t i = n / 2; i-- > 0;)
        sift(&s, i, n);
    for (size_t end = n; end-- > 1;) {
        swap(s.base, s.base + end * size, size);
        sift(&s, 0, end);
    }
}

int by_bytes_of_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

size_t sort_texts_once(char **texts, size_t n) {
    size_t kept = 0;
    if (n)
        qsort(texts, n, sizeof(*texts), by_bytes_of_text);
    for (size_t i = 0; i < n; i++)
        if (kept && strcmp(texts[kept - 1], texts[i]) == 0)
            free(texts[i]);
        else
            texts[kept++] = texts[i];
    return kept;
}
