/*
 * A map from short texts to pointers: ids to machines, names to metrics.
 *
 * Open addressing, grows by doubling, keys are not copied: they live in what they lead to. One
 * iteration at a time may remove the entry it stands on.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct map_slot {
    const char *key; /* NULL: empty */
    void *value;     /* NULL with a key: removed */
};

struct map {
    struct map_slot *slots;
    size_t size; /* a power of two, or 0 */
    size_t used; /* slots that are not empty, removed ones too */
    size_t count;
};

void map_done(struct map *m);
void *map_get(const struct map *m, const char *key);

/* Replaces; value is not NULL. */
void map_put(struct map *m, const char *key, void *value);
void *map_take(struct map *m, const char *key); /* removes; NULL: was not there */

/* for (size_t at = 0; (p = map_next(&m, &at));) */
void *map_next(const struct map *m, size_t *at);
