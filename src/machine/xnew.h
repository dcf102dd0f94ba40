/* Small things of fixed size: without memory for them nothing can go on. */
#pragma once

#include <stdlib.h>

static inline void *xcalloc(size_t size) {
    void *p = calloc(1, size);
    if (!p)
        abort();
    return p;
}

/* Zeroed; free() it. */
#define xnew(type) ((type *)xcalloc(sizeof(type)))
