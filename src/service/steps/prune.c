/*
 * Deletes old steps: beyond a number, an age, or a share of the machine's disk, the oldest steps
 * without a name are deleted, and then the layers that no step or root refers to.
 *
 * Mounted layers are never touched. The newest step that switched the root refers to exactly those,
 * so it and all later steps stay, except copies that were taken while commands ran. A refresh of
 * the root keeps this invariant: it gives that step the layers of the new root.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/exec/live.h"
#include "service/steps/inner.h"
#include "service/vm/memory.h"

enum { DISK_PERCENT = 80, AGE_LOOK_MS = 1000, SWEPT_MS = 1000, LAYERS_NAMED_MAX = 65536 };

/* ---- layers that are still used ---- */

struct named {
    const char *machine;
    uint32_t *numbers;
    size_t count;
    bool failed;
};

static void add_stack(void *arg, const char *stack) {
    struct named *n = arg;
    struct layers layers;
    struct err err;
    if (layers_parse(stack, &layers, &err) < 0) {
        n->failed = true;
        return;
    }
    for (size_t i = 0; i < layers.count; i++)
        if (strcmp(layers.v[i].machine, n->machine) == 0 && n->count < LAYERS_NAMED_MAX)
            n->numbers[n->count++] = layers.v[i].number;
    n->failed |= n->count == LAYERS_NAMED_MAX;
}

static int by_number(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Prints numbers of layers as "3 7-9 12". False: no room, so nothing may be deleted. */
static bool print_ranges(const struct named *n, char *text, size_t size) {
    size_t at = 0;
    text[0] = '\0';
    for (size_t i = 0, end; i < n->count && at < size; i = end) {
        for (end = i + 1; end < n->count && n->numbers[end] - n->numbers[end - 1] <= 1; end++)
            ;
        at += (size_t)snprintf(text + at, size - at,
                               n->numbers[i] == n->numbers[end - 1] ? "%s%" PRIu32
                                                                    : "%s%" PRIu32 "-%" PRIu32,
                               at ? " " : "", n->numbers[i], n->numbers[end - 1]);
    }
    return at < size;
}

/* Checks the disk again without a new step, at growing intervals. */
static void look_again(struct live *l) {
    enum { DOUBLINGS = 3 };
    unsigned n = l->steps->full_looks < DOUBLINGS ? l->steps->full_looks++ : DOUBLINGS;
    l->steps->unpruned = true;
    l->steps->full_look_ms = loop_now_ms(l->service->loop) + ((uint64_t)SWEPT_MS << n);
}

static void prune_kept(void *arg, const struct err *err) {
    struct live *l = arg;
    l->steps->pruning = false;
    if (err && err->code != ERR_GONE && err->code != ERR_NOT_FOUND) {
        log_line(LOG_WARN, "service", "delete old layers: %s id=%s", err->text, l->row.id);
        l->steps->sweep = true; /* layers of deleted steps still exist */
        look_again(l);
    }
    live_unref(l);
}

bool layers_named(struct service *s, const char *disk, const char *stack, char text[RANGES_SIZE],
                  struct err *err) {
    struct named n = {.machine = disk};
    n.numbers = xcalloc(LAYERS_NAMED_MAX, sizeof(*n.numbers));
    err_set(err, ERR_LIMIT, "the list of layers to keep is too long");
    bool known = store_stacks_with(s->store, disk, add_stack, &n, err) == 0;
    layers_each_held(s, disk, add_stack, &n);
    if (stack)
        add_stack(&n, stack);
    qsort(n.numbers, n.count, sizeof(*n.numbers), by_number);
    bool fits = known && !n.failed && print_ranges(&n, text, RANGES_SIZE);
    free(n.numbers);
    return fits;
}

static void drop_layers(struct live *l) {
    char *text DEFER_FREE = xmalloc(RANGES_SIZE);
    struct err err;
    if (layers_named(l->service, l->row.id, NULL, text, &err) && l->machine)
        l->service->driver->keep(l->machine, text, prune_kept, l);
    else
        prune_kept(l, &err);
}

/* ---- choice of the steps to delete ---- */

static bool switched_root(const struct step_row *row) {
    return (row->layer && row->layer < LAYER_COPIED) || row->kind == STEP_REWIND ||
           row->kind == STEP_FORK;
}

int steps_newest_switch(struct live *l, struct step_row *ret, struct err *err) {
    struct step_list list DEFER(step_list_done) = {0};
    *ret = (struct step_row){0};
    if (store_step_list(l->service->store, l->row.id, 0, false, STORE_PAGE_MAX, &list, err) < 0)
        return -1;
    for (size_t i = 0; i < list.count && !ret->number; i++)
        if (switched_root(&list.rows[i])) {
            *ret = list.rows[i];
            list.rows[i].what = list.rows[i].stack = NULL;
        }
    return 0;
}

/*
 * True if the step must stay because of the mounted layers. A copy that was taken while commands
 * ran is never the root, unless a rewind made it so: then `mounted` is the step of that rewind.
 */
static bool stays_mounted(const struct step_row *row, uint32_t mounted) {
    return row->number == mounted || (row->number > mounted && !step_is_copy(row));
}

static void forget_memory(const struct live *l, const struct step_list *list, uint32_t mounted) {
    for (size_t i = 0; i < list->count; i++)
        if (!stays_mounted(&list->rows[i], mounted) && step_has_memory(&list->rows[i]))
            memory_forget(l->service, l->row.id, list->rows[i].id);
}

static int drop_steps(struct live *l, size_t count, size_t *ret_dropped, struct err *err) {
    struct step_list list DEFER(step_list_done) = {0};
    struct step_row mounted DEFER(step_row_done) = {0};
    struct store *store = l->service->store;
    *ret_dropped = 0;
    if (steps_newest_switch(l, &mounted, err) < 0 ||
        store_step_oldest(store, l->row.id, count, &list, err) < 0 || store_begin(store, err) < 0)
        return -1;
    for (size_t i = 0; i < list.count; i++) {
        if (stays_mounted(&list.rows[i], mounted.number))
            continue;
        if (store_step_delete(store, list.rows[i].id, err) < 0) {
            store_rollback(store);
            return -1;
        }
        (*ret_dropped)++;
    }
    if (store_commit(store, err) == 0) {
        forget_memory(l, &list, mounted.number);
        return 0;
    }
    store_rollback(store);
    return -1;
}

static void prune_tell(struct live *l, size_t dropped, const char *why) {
    char json[128];
    snprintf(json, sizeof(json), "{\"steps\":%zu,\"reason\":\"%s\"}", dropped, why);
    event_tell(l->service, l->row.owner, l->row.id, "steps.dropped", json);
}

/* Counts the steps that are older than steps_keep. */
static int count_aged(struct live *l, size_t *ret, struct err *err) {
    struct step_list list DEFER(step_list_done) = {0};
    uint64_t keep = l->service->conf->steps_keep_ms;
    *ret = 0;
    if (!keep)
        return 0;
    if (store_step_oldest(l->service->store, l->row.id, STORE_PAGE_MAX, &list, err) < 0)
        return -1;
    int64_t since = wall_ms() - (int64_t)keep;
    while (*ret < list.count && list.rows[*ret].created_ms < since)
        (*ret)++;
    return 0;
}

/* Counts only the machine's own disk; shared layers count for their owners. */
static bool is_full(const struct live *l, const struct machine_stats *stats) {
    uint64_t limit = l->row.disk_bytes, keep = l->service->conf->steps_keep_bytes;
    uint64_t most = limit ? limit / 100 * DISK_PERCENT : UINT64_MAX;
    if (keep && keep < most)
        most = keep;
    return l->steps->full ||
           (stats && (stats->disk_files_permille > 10 * DISK_PERCENT || stats->disk_bytes > most));
}

/* The mounted layers were merged, but the merged ones are not mounted yet. */
static bool is_merged(struct live *l) {
    struct step_row newest DEFER(step_row_done) = {0};
    struct err err;
    return steps_newest_switch(l, &newest, &err) == 0 && newest.stack && l->steps->stack &&
           strcmp(newest.stack, l->steps->stack) != 0;
}

/* True if the machine is idle. A new root frees layers without deleting steps. */
static bool may_refresh(struct live *l) {
    const struct live_steps *p = l->steps;
    /* While layers are being saved, the newest step must keep its layers. */
    return p->stale && !p->full && !p->taking && !p->wanted && !p->held && !p->durable.saving &&
           !execs_running(l) && !l->watched && !l->changing && l->row.state == MACHINE_RUNNING &&
           is_merged(l);
}

/*
 * The disk is full: merges layers that no step needs separately, so that no step is lost. First
 * come layers of old steps, then once those of the root: with a new root on the merged layer, more
 * layers are in old steps only. While layers are saved, none is merged, so this waits. A step that
 * needs space at once waits for neither. False: there is nothing to merge.
 */
static bool merge_instead(struct live *l) {
    if (l->steps->durable.saving && !l->steps->full)
        return true;
    if (steps_merge_spare(l))
        return true;
    if (l->steps->root_merged || l->steps->full)
        return false;
    l->steps->root_merged = true;
    steps_compact_full(l);
    return l->steps->merging;
}

static void prune_dropped(struct live *l, uint64_t left, size_t dropped, bool full,
                          const char *why) {
    l->steps->full = l->steps->spare_failed = l->steps->root_merged = false;
    l->steps->full_looks = 0;
    l->steps->freeing = true;
    l->steps->count = left;
    prune_tell(l, dropped, why);
    l->steps->unpruned = full; /* the freed space may not be enough */
    drop_layers(l);
}

/* No step was dropped. A merge or a new root that found no space may succeed now. */
static void prune_nothing(struct live *l, bool full, bool refused) {
    if (full) {
        steps_compact_full(l);
        l->steps->stale = true;
    }
    /* A merge or a new root frees layers that no step refers to: check the disk again. */
    if (refused || full)
        look_again(l);
    else
        l->steps->full_looks = 0;
    prune_kept(l, NULL);
}

/* Deletes steps that are too many or too old. If there are none, a full disk merges layers, and if
 * there is nothing to merge, loses the oldest quarter of its steps. */
static void prune_oldest(struct live *l, uint64_t steps, size_t aged, bool full) {
    struct err err = {.text = ""};
    uint64_t keep = l->service->conf->steps_keep;
    size_t dropped = 0, quarter = (size_t)steps / 4 + 1;
    size_t many = steps > keep ? (size_t)(steps - keep) : 0;
    size_t most = many > aged ? many : aged;
    const char *why = many >= aged ? "count" : "age";
    if (most && l->steps->full && most < quarter)
        most = quarter; /* a step waits for space */
    bool refused = most && drop_steps(l, most, &dropped, &err) < 0;
    l->steps->count = steps;
    if (full && !dropped && !refused) {
        if (merge_instead(l)) {
            l->steps->full_looks = 0;
            look_again(l);
            prune_kept(l, NULL);
            return;
        }
        why = "disk";
        refused = drop_steps(l, quarter, &dropped, &err) < 0;
    }
    if (refused)
        log_line(LOG_WARN, "service", "delete old steps: %s id=%s", err.text, l->row.id);
    if (dropped)
        prune_dropped(l, steps - dropped, dropped, full, why);
    else
        prune_nothing(l, full, refused);
}

static void disk_known(void *arg, const struct machine_stats *stats, const struct err *failed) {
    struct live *l = arg;
    struct err err = {.text = ""};
    uint64_t steps = 0, bytes;
    size_t aged = 0;
    bool full = is_full(l, stats);
    if (stats)
        l->disk_bytes = stats->disk_bytes;
    /* A step or rewind that found no space waits for this check, and has changed nothing. */
    bool idle = !l->steps->taking && !l->steps->held;
    bool quiet = !l->steps->merging && (idle || l->steps->full) && l->machine;
    if (failed || !quiet ||
        store_step_count(l->service->store, l->row.id, &steps, &bytes, &err) < 0 ||
        count_aged(l, &aged, &err) < 0) {
        look_again(l);
        prune_kept(l, NULL);
        return;
    }
    if (full && may_refresh(l)) {
        l->steps->stale = false;
        l->steps->sweep = l->steps->unpruned = true;
        steps_refresh(l);
        prune_kept(l, NULL);
        return;
    }
    if (l->steps->sweep) {
        l->steps->sweep = false;
        look_again(l);
        drop_layers(l);
        return;
    }
    prune_oldest(l, steps, aged, full);
}

void steps_want_sweep(struct live *l) {
    l->steps->sweep = l->steps->unpruned = true;
}

void steps_prune(struct live *l) {
    bool ends = l->row.state == MACHINE_ENDING || l->row.state == MACHINE_ENDED;
    uint64_t now = loop_now_ms(l->service->loop);
    if (l->service->conf->steps_keep_ms && l->steps->count && now >= l->steps->age_look_ms) {
        l->steps->unpruned = true;
        l->steps->age_look_ms = now + AGE_LOOK_MS;
    }
    if (now < l->steps->full_look_ms && !l->steps->full)
        return;
    if (!l->steps->unpruned || l->steps->pruning || !l->machine || ends)
        return;
    l->steps->unpruned = false;
    l->steps->pruning = true;
    live_ref(l);
    l->service->driver->stats(l->machine, disk_known, l);
}

bool steps_make_room(struct live *l, const struct err *err, unsigned *tries) {
    enum { TRIES = 25, FREEING_TRIES = 250 };
    if (err->code != ERR_LIMIT || !l->machine ||
        (*tries)++ >= (l->steps->freeing ? FREEING_TRIES : TRIES))
        return false;
    /*
     * While deleted steps are still being freed, their space may be enough: prune again only
     * rarely.
     */
    if (!l->steps->freeing || *tries % TRIES == 0) {
        l->steps->full = l->steps->unpruned = true;
        steps_prune(l);
    }
    return true;
}
