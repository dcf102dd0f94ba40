#include "store/compact.h"

#include <string.h>

#include "store/steps.h"

enum { LOG_MAX = 30 };

static bool is_spare(const struct layer *l) {
    return l->number >= LAYER_SPARE && l->number < LAYER_COPIED;
}

/* The number of a spare layer says nothing about its weight. */
static uint32_t log_in(const struct layer *l) {
    uint32_t log = is_spare(l) ? 0 : l->number / LAYER_MERGED;
    return log < LOG_MAX ? log : LOG_MAX;
}

static uint64_t weight(const struct layer *l, uint32_t entries) {
    uint32_t log = log_in(l);
    return log ? 1ull << log : entries ? entries : 1;
}

static uint32_t log_of(uint64_t weight) {
    uint32_t log = 0;
    while (weight >>= 1)
        log++;
    return log < LOG_MAX ? log : LOG_MAX;
}

/*
 * No number is used twice, because saved_plan() finds copies in the store by it. `upper` only
 * grows, and each merge below the same upper covers the merge before it, so it gets a larger log.
 */
static uint32_t merged_number(const struct layer *top, uint64_t weight, uint32_t upper) {
    uint32_t log = log_of(weight);
    bool numbered = top->number < LAYER_COPIED && !is_spare(top);
    uint32_t least = 1 + (numbered ? top->number / LAYER_MERGED : log_in(top));
    return (log > least ? log : least) * LAYER_MERGED + upper % LAYER_MERGED;
}

bool compact_is_counted(const struct layer *l) {
    return l->number >= LAYER_MERGED && !is_spare(l);
}

struct compaction compact_plan(const struct layers *l, const char *machine, uint32_t upper,
                               const uint32_t entries[LAYERS_MAX]) {
    struct compaction c = {0};
    uint64_t total = 0, merged = 0;
    for (size_t i = 0; i < l->count && strcmp(l->v[i].machine, machine) == 0; i++) {
        uint64_t more = weight(&l->v[i], entries ? entries[i] : 0);
        if (i && more >> LOG_MAX)
            break; /* a copy that was taken beside processes: its files cannot be linked */
        bool light = i && more <= total;
        total += more;
        if (light) {
            c.count = i + 1;
            merged = total;
        }
    }
    if (c.count)
        c.into = merged_number(&l->v[0], merged, upper);
    return c;
}

struct compaction compact_all(const struct layers *l, const char *machine, uint32_t upper) {
    struct compaction c = {0};
    uint64_t total = 0;
    while (c.count < l->count && strcmp(l->v[c.count].machine, machine) == 0)
        total += weight(&l->v[c.count++], 0);
    if (c.count < 2)
        return (struct compaction){0};
    c.into = merged_number(&l->v[0], total, upper);
    return c;
}

bool compact_apply(struct layers *l, const struct layers *run, const char *machine, uint32_t into) {
    for (size_t at = 0; run->count && at + run->count <= l->count; at++) {
        size_t same = 0;
        while (same < run->count && l->v[at + same].number == run->v[same].number &&
               strcmp(l->v[at + same].machine, machine) == 0)
            same++;
        if (same < run->count)
            continue;
        l->v[at].number = into;
        memmove(&l->v[at + 1], &l->v[at + run->count],
                (l->count - at - run->count) * sizeof(*l->v));
        l->count -= run->count - 1;
        return true;
    }
    return false;
}
