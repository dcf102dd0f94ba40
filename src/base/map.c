#include "base/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/siphash.h"

/* A keyed hash, because a machine chooses some keys: host names, or paths of its files. */
static size_t hash(const char *key) {
    return (size_t)siphash(siphash_own_key(), key, strlen(key));
}

void map_done(struct map *m) {
    free(m->slots);
    *m = (struct map){0};
}

/* Finds the slot of the key, or the empty slot where the search ends. */
static struct map_slot *map_find(const struct map *m, const char *key) {
    size_t at = hash(key) & (m->size - 1);
    while (m->slots[at].key && !(m->slots[at].value && strcmp(m->slots[at].key, key) == 0))
        at = (at + 1) & (m->size - 1);
    return &m->slots[at];
}

void *map_get(const struct map *m, const char *key) {
    return m->size ? map_find(m, key)->value : NULL;
}

static void grow(struct map *m) {
    struct map old = *m;
    m->size = old.count * 2 < old.size ? old.size : old.size ? old.size * 2 : 16;
    m->slots = xcalloc(m->size, sizeof(*m->slots));
    m->used = m->count = 0;
    for (size_t i = 0; i < old.size; i++)
        if (old.slots[i].value)
            map_put(m, old.slots[i].key, old.slots[i].value);
    free(old.slots);
}

void map_put(struct map *m, const char *key, void *value) {
    if (m->used * 4 >= m->size * 3)
        grow(m);
    struct map_slot *slot = map_find(m, key);
    if (!slot->key) {
        m->used++;
        m->count++;
    }
    *slot = (struct map_slot){key, value};
}

void *map_take(struct map *m, const char *key) {
    struct map_slot *slot = m->size ? map_find(m, key) : NULL;
    if (!slot || !slot->key)
        return NULL;
    void *value = slot->value;
    slot->value = NULL;
    slot->key = ""; /* the old key may be freed now; "" is never a key */
    m->count--;
    return value;
}

void *map_next(const struct map *m, size_t *at) {
    while (*at < m->size) {
        void *value = m->slots[(*at)++].value;
        if (value)
            return value;
    }
    return NULL;
}
