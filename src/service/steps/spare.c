/*
 * Layers that no step needs separately: every stack (list of layers) that names one of them names
 * all of them, one below the other. Once they are merged, the versions of files that no step shows
 * are free. So this comes before a full disk costs a step.
 *
 * Mounted layers, and layers that forks use, are left alone.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "service/steps/inner.h"
#include "store/compact.h"
#include "store/saved.h"

enum { USES_MAX = 1 << 17, MIXED = UINT32_MAX };

/* One mention of a layer in a stack, with its neighbours in there; 0: none of this machine. */
struct use {
    uint32_t number, above, below;
    bool own; /* in a step that may be given other layers */
};

struct uses {
    const char *machine;
    struct use *v;
    size_t count;
    bool own, failed;
};

static uint32_t number_at(const struct uses *u, const struct layers *l, size_t i) {
    return i < l->count && strcmp(l->v[i].machine, u->machine) == 0 ? l->v[i].number : 0;
}

static void uses_add(void *arg, const char *stack) {
    struct uses *u = arg;
    struct layers l;
    struct err err;
    if (layers_parse(stack, &l, &err) < 0 || u->count + l.count > USES_MAX) {
        u->failed = true;
        return;
    }
    for (size_t i = 0; i < l.count; i++)
        if (number_at(u, &l, i))
            u->v[u->count++] = (struct use){.number = l.v[i].number,
                                            .above = i ? number_at(u, &l, i - 1) : 0,
                                            .below = number_at(u, &l, i + 1),
                                            .own = u->own};
}

/* Calls `each` for every step of the machine with a restore point, but the mounted one. */
static int each_step(struct live *l, int (*each)(void *arg, struct step_row *row, struct err *err),
                     void *arg, struct err *err) {
    struct step_row mounted DEFER(step_row_done) = {0};
    uint32_t before = 0;
    if (steps_newest_switch(l, &mounted, err) < 0)
        return -1;
    for (;;) {
        struct step_list list DEFER(step_list_done) = {0};
        if (store_step_list(l->service->store, l->row.id, before, false, STORE_PAGE_MAX, &list,
                            err) < 0)
            return -1;
        for (size_t i = 0; i < list.count; i++) {
            struct step_row *row = &list.rows[i];
            if (row->has_point && row->stack && row->number != mounted.number &&
                each(arg, row, err) < 0)
                return -1;
            before = row->number;
        }
        if (list.count < STORE_PAGE_MAX)
            return 0;
    }
}

static int add_own(void *arg, struct step_row *row, struct err *err) {
    (void)err;
    uses_add(arg, row->stack);
    return 0;
}

/* Adds the stacks that must keep their layers: those of the root, and of forks. */
static int add_kept(struct live *l, struct uses *u, struct err *err) {
    struct step_row mounted DEFER(step_row_done) = {0};
    if (steps_newest_switch(l, &mounted, err) < 0)
        return -1;
    uses_add(u, mounted.stack ? mounted.stack : "");
    uses_add(u, l->steps->stack ? l->steps->stack : "");
    return store_stacks_of_others(l->service->store, l->row.id, uses_add, u, err);
}

static int by_layer(const void *a, const void *b) {
    uint32_t x = ((const struct use *)a)->number, y = ((const struct use *)b)->number;
    return (x > y) - (x < y);
}

/* A layer and its neighbours in all stacks; MIXED: not the same everywhere. */
struct joint {
    uint32_t number, above, below;
};

static uint32_t same_or_mixed(uint32_t a, uint32_t b) {
    return a == b ? a : MIXED;
}

/* Fills `ret` with the layers that only own steps name, sorted by number. */
static size_t find_joints(struct uses *u, struct joint *ret) {
    size_t count = 0;
    qsort(u->v, u->count, sizeof(*u->v), by_layer);
    for (size_t i = 0, end; i < u->count; i = end) {
        struct joint j = {u->v[i].number, u->v[i].above, u->v[i].below};
        size_t own = 0;
        for (end = i; end < u->count && u->v[end].number == j.number; end++) {
            own += u->v[end].own;
            j.above = same_or_mixed(j.above, u->v[end].above);
            j.below = same_or_mixed(j.below, u->v[end].below);
        }
        if (own == end - i && j.number < LAYER_COPIED)
            ret[count++] = j;
    }
    return count;
}

static const struct joint *joint_of(const struct joint *v, size_t count, uint32_t number) {
    size_t low = 0, high = count;
    while (low < high) {
        size_t at = low + (high - low) / 2;
        if (v[at].number == number)
            return &v[at];
        if (v[at].number < number)
            low = at + 1;
        else
            high = at;
    }
    return NULL;
}

/* The layer that is below `j` wherever one of the two is named; NULL: none. */
static const struct joint *joint_below(const struct joint *v, size_t count, const struct joint *j) {
    const struct joint *b = j->below && j->below != MIXED ? joint_of(v, count, j->below) : NULL;
    return b && b->above == j->number ? b : NULL;
}

static void longest_run(const struct joint *v, size_t count, const char *machine,
                        struct layers *ret) {
    for (size_t i = 0; i < count; i++) {
        struct layers run = {.count = 0};
        for (const struct joint *j = &v[i]; j && run.count < LAYERS_MAX;
             j = joint_below(v, count, j)) {
            struct layer *layer = &run.v[run.count++];
            snprintf(layer->machine, sizeof(layer->machine), "%s", machine);
            layer->number = j->number;
        }
        if (run.count > ret->count)
            *ret = run;
    }
}

/* True if the store may have a copy of a layer with this number. */
static bool is_saved(struct live *l, uint32_t number) {
    struct saved_row row DEFER(saved_row_done) = {.source = NULL};
    struct layers layers;
    struct err err;
    if (store_saved_get(l->service->store, l->row.id, &row, &err) < 0)
        return err.code != ERR_NOT_FOUND;
    if (layers_parse(row.source ? row.source : "", &layers, &err) < 0)
        return true;
    for (size_t i = 0; i < layers.count; i++)
        if (layers.v[i].number == number)
            return true;
    return false;
}

/*
 * Numbers start at a random value, so that they do not meet those of an earlier daemon; the spawner
 * refuses the number of a layer that exists. Copies in the store are found by number, so a number
 * that one of them has is not used.
 */
bool spare_number(struct live *l, uint32_t *ret) {
    uint32_t chance, *last = &l->steps->last_spare;
    if (*last && *last + 1 < LAYER_COPIED)
        (*last)++;
    else if (getrandom(&chance, sizeof(chance), 0) == sizeof(chance))
        *last = LAYER_SPARE + chance % (LAYER_COPIED - LAYER_SPARE);
    else
        return false;
    *ret = *last;
    return !is_saved(l, *ret);
}

bool spare_find(struct live *l, struct layers *ret, uint32_t *ret_into) {
    struct use *v DEFER_FREE = xcalloc(USES_MAX, sizeof(*v));
    struct uses u = {.machine = l->row.id, .v = v};
    struct joint *joints DEFER_FREE = NULL;
    struct err err;
    ret->count = 0;
    if (add_kept(l, &u, &err) < 0)
        return false;
    u.own = true;
    if (each_step(l, add_own, &u, &err) < 0 || u.failed || !u.count)
        return false;
    joints = xcalloc(u.count, sizeof(*joints));
    longest_run(joints, find_joints(&u, joints), l->row.id, ret);
    return ret->count >= 2 && spare_number(l, ret_into);
}

struct replacing {
    struct live *live;
    const struct layers *run;
    uint32_t into;
};

static int replace_in(void *arg, struct step_row *row, struct err *err) {
    const struct replacing *r = arg;
    struct layers layers;
    char text[LAYERS_TEXT_SIZE];
    if (layers_parse(row->stack, &layers, err) < 0)
        return -1;
    if (!compact_apply(&layers, r->run, r->live->row.id, r->into) ||
        !layers_print(&layers, text, sizeof(text)))
        return 0; /* the step keeps its layers, which then stay */
    free(row->stack);
    row->stack = xstrdup(text);
    row->counted = 1; /* its own layer may be gone */
    return store_step_update(r->live->service->store, row, err);
}

int spare_replace(struct live *l, const struct layers *run, uint32_t into, struct err *err) {
    struct replacing r = {l, run, into};
    struct store *store = l->service->store;
    if (store_begin(store, err) < 0)
        return -1;
    if (each_step(l, replace_in, &r, err) == 0 && store_commit(store, err) == 0)
        return 0;
    store_rollback(store);
    return -1;
}
