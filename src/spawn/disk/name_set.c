#include "spawn/disk/name_set.h"

#include <stdlib.h>
#include <string.h>

#include "base/siphash.h"

enum { NAMES_FIRST = 64 };

void name_set_init(struct name_set *n, size_t *room) {
    *n = (struct name_set){.room = room};
}

void name_set_done(struct name_set *n) {
    *n->room += n->count;
    free(n->slots);
    *n = (struct name_set){.room = n->room};
}

static uint64_t name_hash(const char *name) {
    uint64_t hash = siphash(siphash_own_key(), name, strlen(name));
    return hash ? hash : 1;
}

/* Returns the slot of the hash, or the free one where it belongs. */
static uint64_t *slot_of(uint64_t *slots, size_t size, uint64_t hash) {
    size_t at = hash & (size - 1);
    while (slots[at] && slots[at] != hash)
        at = (at + 1) & (size - 1);
    return &slots[at];
}

/* Keeps at least half of the slots free. */
static bool names_grow(struct name_set *n) {
    if (2 * (n->count + 1) <= n->size)
        return true;
    size_t size = n->size ? 2 * n->size : NAMES_FIRST;
    uint64_t *slots = calloc(size, sizeof(*slots));
    if (!slots)
        return false;
    for (size_t i = 0; i < n->size; i++)
        if (n->slots[i])
            *slot_of(slots, size, n->slots[i]) = n->slots[i];
    free(n->slots);
    n->slots = slots;
    n->size = size;
    return true;
}

void name_set_add(struct name_set *n, const char *name) {
    if (n->full)
        return;
    if (!*n->room || !names_grow(n)) {
        n->full = true;
        return;
    }
    uint64_t hash = name_hash(name), *slot = slot_of(n->slots, n->size, hash);
    if (*slot)
        return;
    *slot = hash;
    n->count++;
    (*n->room)--;
}

bool name_set_may_have(const struct name_set *n, const char *name) {
    if (n->full || !n->size)
        return n->full;
    return *slot_of(n->slots, n->size, name_hash(name)) != 0;
}
