/*
 * An arena: memory that is freed all at once, for data parsed from one message.
 *
 * Single allocations cannot be freed. The arena has no cap: the caller caps its input. Aborts when
 * memory is exhausted.
 */
#pragma once

#include <stddef.h>

struct arena_chunk;

/* struct arena a DEFER(arena_done) = {0}; */
struct arena {
    struct arena_chunk *chunks; /* the newest first */
};

void arena_done(struct arena *a);

/* Returns zeroed memory, aligned for any type. */
void *arena_alloc(struct arena *a, size_t size);
/* Copies the bytes and adds a NUL. */
char *arena_copy(struct arena *a, const void *bytes, size_t n);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * Makes room for one more item at the end of an array, which starts as NULL and grows by doubling.
 * Returns the array, which may have moved.
 */
void *arena_grow(struct arena *a, void *items, size_t count, size_t item_size);
