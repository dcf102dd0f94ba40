/*
 * Memory for small objects. These functions never return NULL: they abort when memory is exhausted.
 * The caller checks a size that comes from outside against a cap. src/wasm does not use this file:
 * the engine is embedded and never aborts.
 */
#pragma once

#include <stdlib.h>
#include <string.h>

static inline void *alloc_check(void *p) {
    if (!p)
        abort();
    return p;
}

/* Returns zeroed memory, also for a count or size of 0. */
static inline void *xcalloc(size_t count, size_t size) {
    return alloc_check(calloc(count ? count : 1, size ? size : 1));
}

#define xnew(type) ((type *)xcalloc(1, sizeof(type)))

/* Returns memory that is not zeroed. */
static inline void *xmalloc(size_t size) {
    return alloc_check(malloc(size ? size : 1));
}

/* Resizes an array. Aborts also if count times size does not fit in a size_t. */
static inline void *xrealloc(void *p, size_t count, size_t size) {
    return alloc_check(reallocarray(p, count ? count : 1, size ? size : 1));
}

static inline char *xstrdup(const char *text) {
    return alloc_check(strdup(text));
}

static inline char *xstrndup(const char *text, size_t max) {
    return alloc_check(strndup(text, max));
}

/* Formats a new string, like printf(). The caller frees it. */
char *xformat(const char *fmt, ...) __attribute__((format(printf, 1, 2), returns_nonnull));
