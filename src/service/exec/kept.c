#include "service/exec/kept.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/map.h"

static int newest_first(const void *a, const void *b) {
    const struct kept_file *x = a, *y = b;
    return (x->time_ms < y->time_ms) - (x->time_ms > y->time_ms);
}

/* Returns the sum of file sizes of a machine or owner, by its name. `next` cannot run out: the
 * array has two sums per file. */
static uint64_t *sum_of(struct map *sums, const char *name, uint64_t **next) {
    uint64_t *sum = map_get(sums, name);
    if (!sum) {
        sum = (*next)++;
        map_put(sums, name, sum);
    }
    return sum;
}

static bool kept_is_over(uint64_t sum, uint64_t limit) {
    return limit && sum > limit;
}

/* Separate maps, because an owner may have the same name as a machine. */
void kept_choose(struct kept_file *files, size_t count, const struct kept_limits *limits) {
    struct map machines = {0}, owners = {0};
    uint64_t *sums = xcalloc(2 * count + 1, sizeof(*sums)), *next = sums;
    if (count)
        qsort(files, count, sizeof(*files), newest_first);
    for (size_t i = 0; i < count; i++) {
        struct kept_file *f = &files[i];
        uint64_t *machine = sum_of(&machines, f->machine, &next);
        uint64_t *owner = f->owner[0] ? sum_of(&owners, f->owner, &next) : NULL;
        f->goes = !f->busy && ((limits->since_ms && f->time_ms < limits->since_ms) ||
                               kept_is_over(*machine + f->bytes, limits->machine_bytes) ||
                               (owner && kept_is_over(*owner + f->bytes, limits->owner_bytes)));
        if (f->goes)
            continue;
        *machine += f->bytes;
        if (owner)
            *owner += f->bytes;
    }
    map_done(&machines);
    map_done(&owners);
    free(sums);
}
