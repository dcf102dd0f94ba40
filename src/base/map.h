/*
 * A map from short texts to pointers: ids to machines, names to metrics.
 *
 * Open addressing, grows by doubling. Keys are not copied: they usually are members of the values.
 * An iteration may remove the entry that it just returned.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct map_slot {
    const char *key; /* NULL: the slot is empty */
    void *value;     /* NULL with a key: the entry was removed */
};

struct map {
    struct map_slot *slots;
    size_t size; /* a power of two, or 0 */
    size_t used; /* slots that are not empty, including removed entries */
    size_t count;
};

void map_done(struct map *m);
void *map_get(const struct map *m, const char *key);

/* Adds or replaces an entry; value must not be NULL. */
void map_put(struct map *m, const char *key, void *value);
void *map_take(struct map *m, const char *key); /* removes the entry; NULL: not found */

/* for (size_t at = 0; (p = map_next(&m, &at));) */
void *map_next(const struct map *m, size_t *at);
