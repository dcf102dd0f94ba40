/*
 * Memory that goes away all at once: for what is read from one message and dies with it.
 *
 * Nothing in it is freed alone. It has no cap of its own: who fills it caps what comes in.
 * Aborts when memory is gone.
 */
#pragma once

#include <stddef.h>

struct arena_chunk;

/* struct arena a DEFER(arena_done) = {0}; */
struct arena {
    struct arena_chunk *chunks; /* the newest first */
};

void arena_done(struct arena *a);

/* Zeroed, aligned for anything. */
void *arena_alloc(struct arena *a, size_t size);
/* A copy with a NUL behind it. */
char *arena_copy(struct arena *a, const void *bytes, size_t n);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * Room for one more at the end of an array that starts as NULL and grows by doubling: returns the
 * array, which may have moved.
 */
void *arena_grow(struct arena *a, void *items, size_t count, size_t item_size);
