/*
 * Background work on the layers of a machine: merges them so that stacks stay short, counts them,
 * and deletes those that no step refers to.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/grants/bases.h"
#include "service/images/live.h"
#include "service/steps/inner.h"
#include "store/compact.h"
#include "store/saved.h"

enum {
    MERGE_LOOK_MS = 5,
    MERGE_TRIES = 12000,
    REST_MS = 50,
    UNMERGED_MANY = 8,
    MERGE_AGAIN = 4, /* retry after this many more layers */
    SAVED_MANY = 3
};

/* A merge of several layers into one. */
struct merging {
    struct live *live;
    struct layers run;
    uint32_t into;
    bool spare; /* only steps use these layers, not the root: spare.c */
    unsigned tries;
    struct loop_timer *timer;
};

static void merging_free(struct merging *m) {
    m->live->steps->merging = NULL;
    if (m->live->steps->wanted) /* the step may have waited for this merge */
        loop_defer(m->live->service->loop, &m->live->steps->start);
    loop_timer_free(m->timer);
    live_unref(m->live);
    free(m);
}

/*
 * A merge that failed may always fail, and each attempt reads the layers. So the next attempt waits
 * for MERGE_AGAIN more layers, or for a full stack.
 */
static void put_off(struct live *l) {
    struct layers now;
    struct err err;
    if (!l->steps->stack || layers_parse(l->steps->stack, &now, &err) < 0)
        return;
    size_t next = now.count + MERGE_AGAIN;
    l->steps->merge_from = next < LAYERS_MAX ? next : LAYERS_MAX;
}

/*
 * Records the merged layer. The mounted root stays; the next root uses the merged layer. False: the
 * merged layer is not used.
 */
static bool put_merged(struct merging *m) {
    struct live *l = m->live;
    struct layers now;
    char text[LAYERS_TEXT_SIZE];
    struct err err = {.text = "the list of layers is too long"};
    if (layers_parse(l->steps->stack ? l->steps->stack : "", &now, &err) == 0 &&
        !compact_apply(&now, &m->run, m->run.v[0].machine, m->into))
        return true; /* after a rewind the root no longer uses these layers */
    if (!layers_print(&now, text, sizeof(text)) ||
        steps_root_put(l, l->steps->layer, text, &err) < 0) {
        log_line(LOG_WARN, "service", "switch to merged layers: %s id=%s", err.text, l->row.id);
        return false;
    }
    steps_root_known(l, l->steps->layer, text);
    images_merged(l, &m->run, m->into);
    l->steps->stale = l->steps->unpruned = true;
    if (l->steps->root_merged) /* a full disk waits for this */
        l->steps->full_look_ms = 0;
    return true;
}

/* Gives the merged layer to the steps. False: some of them keep the old layers. */
static bool put_spare(struct merging *m) {
    struct live *l = m->live;
    struct err err;
    l->steps->sweep = l->steps->unpruned = true;
    if (spare_replace(l, &m->run, m->into, &err) == 0)
        return true;
    log_line(LOG_WARN, "service", "give merged layers to steps: %s id=%s", err.text, l->row.id);
    return false;
}

/*
 * After a failure, or if a step waits for space, the next thing is to drop steps: the waiting step
 * would be refused after a few seconds.
 */
static void spare_known(struct merging *m, const struct err *err) {
    struct live *l = m->live;
    if (err)
        log_line(LOG_WARN, "service", "merge layers of old steps: %s id=%s", err->text, l->row.id);
    l->steps->spare_failed = err || !put_spare(m) || l->steps->full;
    l->steps->full_look_ms = 0; /* the disk may have room now */
    merging_free(m);
}

static void ask_merge(void *arg);
static void compact(struct live *l, bool rested, bool full);

static void merge_known(void *arg, const struct err *err) {
    struct merging *m = arg;
    struct live *l = m->live;
    bool ends = l->row.state == MACHINE_ENDING || l->row.state == MACHINE_ENDED;
    if (err && err->code == ERR_BUSY && !ends && m->tries++ < MERGE_TRIES) {
        loop_timer_start(m->timer, MERGE_LOOK_MS, 0);
        return;
    }
    if (m->spare) {
        spare_known(m, err);
        return;
    }
    bool used = !err && put_merged(m);
    if (used) {
        l->steps->merge_from = 0;
    } else if (!err) {
        put_off(l);
    } else if (!ends) {
        log_line(LOG_WARN, "service", "merge layers: %s id=%s", err->text, l->row.id);
        if (err->code != ERR_LIMIT) /* the next step may find space again */
            put_off(l);
    }
    live_ref(l);
    merging_free(m);
    if (used)
        compact(l, true, false); /* after one merge another one may be possible */
    live_unref(l);
}

static void ask_merge(void *arg) {
    struct merging *m = arg;
    struct live *l = m->live;
    char stack[LAYERS_TEXT_SIZE];
    if (!l->machine || l->row.state == MACHINE_ENDING || l->row.state == MACHINE_ENDED ||
        !layers_print(&m->run, stack, sizeof(stack)))
        merging_free(m);
    else
        l->service->driver->merge(l->machine, stack, m->into, merge_known, m);
}

static void rest_over(void *arg) {
    compact(arg, true, false);
}

static size_t count_unmerged(const struct layers *layers) {
    size_t n = 0;
    for (size_t i = 0; i < layers->count; i++)
        n += !compact_is_counted(&layers->v[i]);
    return n;
}

/* While a user takes one step after the other, a merge is delayed, unless there are many layers. */
static bool may_begin(struct live *l, const struct layers *layers) {
    struct live_steps *p = l->steps;
    if (count_unmerged(layers) >= UNMERGED_MANY || layers->count >= LAYERS_MAX / 2)
        return true;
    if (!p->rest)
        p->rest = loop_timer_new(l->service->loop, rest_over, l);
    loop_timer_start(p->rest, REST_MS, 0);
    return false;
}

static size_t count_saved(const struct layers *layers) {
    size_t n = 0;
    for (size_t i = 0; i < layers->count; i++)
        n += layers->v[i].machine[0] == 'd';
    return n;
}

/*
 * After a restart of the host, a machine has the layers of its saved disk below its own. They are
 * merged into one; otherwise each restart would grow the stack. If there are bases of clones among
 * them, the longest part between two of these is merged.
 */
static struct compaction plan_saved(struct live *l, const struct layers *layers,
                                    const struct bases *bases) {
    struct store *store = l->service->store;
    struct saved_row row DEFER(saved_row_done) = {.source = NULL};
    struct compaction c = {0};
    struct err err;
    size_t first = 0;
    while (first < layers->count && strcmp(layers->v[first].machine, l->row.id) == 0)
        first++;
    if (layers->count - first < SAVED_MANY || store_saved_get(store, l->row.id, &row, &err) < 0)
        return (struct compaction){0};
    for (size_t i = first, n = 0; i < layers->count && strcmp(layers->v[i].machine, row.disk) == 0;
         i++) {
        n = bases_have(bases, &layers->v[i]) ? 0 : n + 1;
        if (n > c.count)
            c = (struct compaction){.first = i + 1 - n, .count = n};
    }
    c.into = row.next++;
    if (c.count < SAVED_MANY || store_saved_put(store, &row, &err) < 0)
        return (struct compaction){0};
    return c;
}

/* Chooses the layers to merge: own ones, or else saved ones. */
static struct compaction choose_run(struct live *l, const struct layers *layers, bool full) {
    uint32_t entries[LAYERS_MAX];
    struct bases bases;
    struct layers above = *layers;
    bool known = steps_weights(l, layers, entries);
    bases_load(l, &bases);
    /* A stack that becomes too deep is merged across the last image: the next one is larger then.
     */
    size_t end = layers->count < LAYERS_MAX / 2 ? images_layers_above(l, layers) : layers->count;
    above.count = 0;
    while (above.count < end && !bases_have(&bases, &layers->v[above.count]))
        above.count++;
    /* A full disk does not wait for a count, and has no room for a base of its own. */
    struct compaction c =
        full ? compact_all(layers, l->row.id, l->steps->layer)
             : compact_plan(&above, l->row.id, l->steps->layer, known ? entries : NULL);
    if (c.count < 2 && count_saved(layers) >= SAVED_MANY && !l->steps->durable.saving)
        c = plan_saved(l, layers, &bases);
    return c;
}

static void merge_begin(struct live *l, const struct layers *run, uint32_t into, bool spare) {
    struct merging *m = xnew(struct merging);
    *m = (struct merging){.live = l, .run = *run, .into = into, .spare = spare};
    m->timer = loop_timer_new(l->service->loop, ask_merge, m);
    l->steps->merging = m;
    live_ref(l);
    ask_merge(m);
}

static void compact(struct live *l, bool rested, bool full) {
    struct layers layers;
    struct err err;
    if (l->steps->merging || l->steps->weighing || l->steps->shelving || !l->machine ||
        !l->steps->stack || layers_parse(l->steps->stack, &layers, &err) < 0 || layers.count < 2 ||
        layers.count < l->steps->merge_from)
        return;
    if (!rested && !may_begin(l, &layers))
        return;
    if (!full && steps_weigh(l, &layers, rest_over))
        return;
    struct compaction c = choose_run(l, &layers, full);
    if (c.count < 2)
        return;
    struct layers run = {.count = c.count};
    memcpy(run.v, layers.v + c.first, c.count * sizeof(*run.v));
    merge_begin(l, &run, c.into, false);
}

bool steps_merge_spare(struct live *l) {
    struct layers run;
    uint32_t into;
    if (l->steps->merging || l->steps->spare_failed || l->steps->durable.saving ||
        l->steps->shelving || !l->machine || !spare_find(l, &run, &into))
        return false;
    merge_begin(l, &run, into, true);
    return true;
}

void steps_compact(struct live *l) {
    compact(l, false, false);
}

void steps_compact_full(struct live *l) {
    compact(l, true, true);
}

void steps_compact_release(struct live *l) {
    struct merging *m = l->steps->merging;
    loop_timer_free(TAKE(l->steps->rest));
    steps_weigh_release(l);
    if (m)
        merging_free(m);
}
