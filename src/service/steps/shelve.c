/*
 * Moves the layers of all steps of a machine to the store. durable.c saves the newest step only,
 * because it guards against the loss of a box. Here the box is about to end, so that every step
 * must stay.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/image_id.h"
#include "service/steps/durable.h"
#include "service/steps/inner.h"
#include "store/saved.h"

enum { SHELF_MAX = 512, SHELF_LOOK_MS = 20 };

/* A layer, and its place in the store. */
struct shelf {
    struct layer from, to;
    bool missing; /* it has to be copied */
};

struct shelving {
    struct live *live;
    struct saved_row row;   /* the row to write */
    struct step_list steps; /* all finished steps */
    struct shelf shelf[SHELF_MAX];
    size_t count, at;
    char *root; /* what lies below the root from then on */
    int (*write)(void *arg, struct err *err);
    struct loop_timer *timer;
    machine_done_fn *done;
    void *arg;
};

static void shelving_free(struct shelving *v) {
    v->live->steps->shelving = NULL;
    loop_timer_free(v->timer);
    saved_row_done(&v->row);
    step_list_done(&v->steps);
    free(v->root);
    live_unref(v->live);
    free(v);
}

void shelve_release(struct live *l) {
    if (l->steps->shelving)
        shelving_free(l->steps->shelving);
}

static void shelve_finish(struct shelving *v, const struct err *err) {
    machine_done_fn *done = v->done;
    void *arg = v->arg;
    struct live *l = v->live;
    live_ref(l);
    shelving_free(v);
    done(arg, err);
    live_unref(l);
}

/* ---- places ---- */

static const struct shelf *shelf_find(const struct shelving *v, const struct layer *l) {
    for (size_t i = 0; i < v->count; i++)
        if (v->shelf[i].from.number == l->number &&
            strcmp(v->shelf[i].from.machine, l->machine) == 0)
            return &v->shelf[i];
    return NULL;
}

/* Gives each layer of a stack a place. from, to: layers that durable.c has copied already. */
static int shelf_add(struct shelving *v, const char *stack, const struct layers *from,
                     const struct layers *to, struct err *err) {
    struct layers layers;
    if (layers_parse(stack ? stack : "", &layers, err) < 0)
        return -1;
    for (size_t i = 0; i < layers.count; i++) {
        struct shelf *s = &v->shelf[v->count];
        if (shelf_find(v, &layers.v[i]))
            continue;
        if (v->count == SHELF_MAX || v->row.next >= LAYER_NUMBER_MAX)
            return err_set(err, ERR_LIMIT, "machine '%s' has more than %d layers (file changes)",
                           v->row.machine, SHELF_MAX);
        uint32_t number = saved_copy_of(&layers.v[i], &v->row, from, to);
        s->from = layers.v[i];
        s->missing = number == 0;
        s->to.number = number ? number : v->row.next++;
        snprintf(s->to.machine, sizeof(s->to.machine), "%s", v->row.disk);
        v->count++;
    }
    return 0;
}

static int shelf_text(const struct shelving *v, const char *stack, char text[LAYERS_TEXT_SIZE],
                      struct err *err) {
    struct layers layers;
    if (layers_parse(stack ? stack : "", &layers, err) < 0)
        return -1;
    for (size_t i = 0; i < layers.count; i++) {
        const struct shelf *s = shelf_find(v, &layers.v[i]);
        if (!s)
            return err_set(err, ERR_INTERNAL, "a layer of machine '%s' has no copy",
                           v->row.machine);
        layers.v[i] = s->to;
    }
    return layers_print(&layers, text, LAYERS_TEXT_SIZE)
               ? 0
               : err_set(err, ERR_LIMIT, "machine '%s' has too many layers (file changes)",
                         v->row.machine);
}

/* The numbers of the copies are reserved before any copy is made. */
static int shelve_prepare(struct shelving *v, const char *stack, struct err *err) {
    struct live *l = v->live;
    struct layers from, to;
    if (steps_load(l, err) < 0 || durable_row(l, &v->row, err) < 0 ||
        store_step_list(l->service->store, l->row.id, 0, false, STORE_PAGE_MAX, &v->steps, err) < 0)
        return -1;
    if (v->steps.count == STORE_PAGE_MAX)
        return err_set(err, ERR_LIMIT, "machine '%s' has %d steps or more", l->row.id,
                       STORE_PAGE_MAX);
    stack = stack ? stack : l->steps->stack;
    v->root = xstrdup(stack ? stack : "");
    if (layers_parse(v->row.source ? v->row.source : "", &from, err) < 0 ||
        layers_parse(v->row.stack ? v->row.stack : "", &to, err) < 0 ||
        shelf_add(v, v->root, &from, &to, err) < 0)
        return -1;
    for (size_t i = 0; i < v->steps.count; i++)
        if (v->steps.rows[i].has_point && shelf_add(v, v->steps.rows[i].stack, &from, &to, err) < 0)
            return -1;
    durable_boot(v->row.boot);
    return store_saved_put(l->service->store, &v->row, err);
}

/* ---- the rows ---- */

static int shelve_write_steps(struct shelving *v, char text[LAYERS_TEXT_SIZE], struct err *err) {
    for (size_t i = 0; i < v->steps.count; i++) {
        const struct step_row *step = &v->steps.rows[i];
        if (step->has_point && (shelf_text(v, step->stack, text, err) < 0 ||
                                store_step_move(v->live->service->store, step->id, text, err) < 0))
            return -1;
    }
    return 0;
}

/* The newest step becomes the durable one. A machine without a step has the files of its image. */
static int shelve_write_saved(struct shelving *v, struct err *err) {
    struct step_row step DEFER(step_row_done) = {.what = NULL};
    struct store *store = v->live->service->store;
    bool any = durable_newest(v->live, &step, err) == 0;
    if (!any && err->code != ERR_NOT_FOUND)
        return -1;
    snprintf(v->row.step, sizeof(v->row.step), "%s", any ? step.id : "");
    free(v->row.source);
    free(v->row.stack);
    v->row.source = xstrdup(any && step.stack ? step.stack : ""); /* moved already */
    v->row.stack = xstrdup(v->row.source);
    v->row.boot[0] = '\0';
    if (store_saved_put(store, &v->row, err) < 0)
        return -1;
    return any ? store_step_durable(store, v->row.machine, v->row.step, err) : 0;
}

static int shelve_write_root(struct shelving *v, char text[LAYERS_TEXT_SIZE], struct err *err) {
    struct live *l = v->live;
    if (shelf_text(v, v->root, text, err) < 0)
        return -1;
    /* If the root has lower layers, upper 1 is already used by the box that was prepared. */
    return steps_root_put(l, *text || image_id_valid(l->row.image) ? 2 : 1, text, err);
}

static int shelve_write(struct shelving *v, struct err *err) {
    struct store *store = v->live->service->store;
    char *text DEFER_FREE = xmalloc(LAYERS_TEXT_SIZE);
    if (store_begin(store, err) < 0)
        return -1;
    if (shelve_write_steps(v, text, err) == 0 && shelve_write_saved(v, err) == 0 &&
        shelve_write_root(v, text, err) == 0 && (!v->write || v->write(v->arg, err) == 0) &&
        store_commit(store, err) == 0)
        return 0;
    store_rollback(store);
    return -1;
}

/* ---- copies ---- */

static void shelve_next(void *arg);

static void shelve_copied(void *arg, const struct err *err) {
    struct shelving *v = arg;
    if (err && err->code == ERR_BUSY) {
        loop_timer_start(v->timer, SHELF_LOOK_MS, 0);
    } else if (err) {
        shelve_finish(v, err);
    } else {
        v->at++;
        shelve_next(v);
    }
}

static void shelve_end(struct shelving *v) {
    struct live *l = v->live;
    struct err err;
    bool written = shelve_write(v, &err) == 0;
    if (written) { /* the root is that of the next box: nothing may merge layers of the old one */
        free(TAKE(l->steps->stack));
        l->steps->loaded = false;
    }
    live_ref(l);
    shelve_finish(v, written ? NULL : &err);
    durable_shed(l);
    live_unref(l);
}

static void shelve_next(void *arg) {
    struct shelving *v = arg;
    struct live *l = v->live;
    struct err err;
    char layer[ID_SIZE + 16];
    while (v->at < v->count && !v->shelf[v->at].missing)
        v->at++;
    if (!l->machine || l->ending) {
        err_set(&err, ERR_GONE, "machine '%s' is ending", l->row.id);
        shelve_finish(v, &err);
    } else if (v->at == v->count) {
        shelve_end(v);
    } else {
        const struct shelf *s = &v->shelf[v->at];
        snprintf(layer, sizeof(layer), "%s/%u", s->from.machine, s->from.number);
        l->service->driver->save(l->machine, layer, v->row.disk, s->to.number, shelve_copied, v);
    }
}

void steps_shelve(struct live *l, machine_done_fn *done, void *arg) {
    steps_shelve_at(l, NULL, NULL, done, arg);
}

void steps_shelve_at(struct live *l, const char *stack, int (*write)(void *arg, struct err *err),
                     machine_done_fn *done, void *arg) {
    struct shelving *v = xnew(struct shelving);
    struct err err;
    v->live = l;
    v->write = write;
    v->done = done;
    v->arg = arg;
    v->timer = loop_timer_new(l->service->loop, shelve_next, v);
    l->steps->shelving = v;
    live_ref(l);
    if (shelve_prepare(v, stack, &err) < 0)
        shelve_finish(v, &err);
    else
        shelve_next(v);
}
