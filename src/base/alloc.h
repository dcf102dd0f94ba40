/*
 * Memory for small things, without a way to fail: these functions abort when memory is gone,
 * because nothing can go on then. A size that comes from outside has a cap, and is checked by
 * whoever asks for it. src/wasm does not use this file: the engine is embedded and never aborts.
 */
#pragma once

#include <stdlib.h>
#include <string.h>

static inline void *alloc_check(void *p) {
    if (!p)
        abort();
    return p;
}

/* Zeroed. A count or size of 0 gives memory too. */
static inline void *xcalloc(size_t count, size_t size) {
    return alloc_check(calloc(count ? count : 1, size ? size : 1));
}

#define xnew(type) ((type *)xcalloc(1, sizeof(type)))

/* Not zeroed. */
static inline void *xmalloc(size_t size) {
    return alloc_check(malloc(size ? size : 1));
}

/* Aborts also when count times size does not fit in a size_t. */
static inline void *xrealloc(void *p, size_t count, size_t size) {
    return alloc_check(reallocarray(p, count ? count : 1, size ? size : 1));
}

static inline char *xstrdup(const char *text) {
    return alloc_check(strdup(text));
}

static inline char *xstrndup(const char *text, size_t max) {
    return alloc_check(strndup(text, max));
}

/* A text of its own, printed as printf() does. */
char *xformat(const char *fmt, ...) __attribute__((format(printf, 1, 2), returns_nonnull));
