#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>

#include "base/alloc.h"
#include "base/err.h"

enum { CHUNK = 4096 - 64, ALIGN = 16 };

struct arena_chunk {
    struct arena_chunk *next;
    size_t used, size;
    char data[] __attribute__((aligned(ALIGN)));
};

void arena_done(struct arena *a) {
    while (a->chunks) {
        struct arena_chunk *c = a->chunks;
        a->chunks = c->next;
        free(c);
    }
}

static struct arena_chunk *chunk_new(struct arena *a, size_t size) {
    if (size > SIZE_MAX / 2)
        abort();
    struct arena_chunk *c = xcalloc(1, sizeof(*c) + size);
    c->size = size;
    c->next = a->chunks;
    a->chunks = c;
    return c;
}

void *arena_alloc(struct arena *a, size_t size) {
    struct arena_chunk *c = a->chunks;
    size_t need = (size + ALIGN - 1) / ALIGN * ALIGN;
    if (need < size)
        abort();
    if (!c || c->size - c->used < need)
        c = chunk_new(a, need > CHUNK ? need : CHUNK);
    void *p = c->data + c->used;
    c->used += need;
    return p;
}

char *arena_copy(struct arena *a, const void *bytes, size_t n) {
    char *p = arena_alloc(a, n + 1);
    if (n > 0)
        memcpy(p, bytes, n);
    return p;
}

char *arena_printf(struct arena *a, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0)
        abort();
    char *p = arena_alloc(a, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

/* The room is always a power of two, so the array is full if `count` is a power of two. */
void *arena_grow(struct arena *a, void *items, size_t count, size_t item_size) {
    if (count & (count - 1) || (count == 0 && items))
        return items;
    size_t room = count ? 2 * count : 1;
    if (room > SIZE_MAX / 4 / item_size)
        abort();
    void *moved = arena_alloc(a, room * item_size);
    if (count > 0)
        memcpy(moved, items, count * item_size);
    return moved;
}
