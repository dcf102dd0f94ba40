#include "service/grants/bases.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/steps/live.h"
#include "store/grants.h"

/* "layer" and "exec" of the detail of a grant; empty: it has none. */
struct base {
    struct layers layer; /* at most one */
    char exec[ID_SIZE];
};

static void base_read(const struct grant_row *row, struct base *ret) {
    json_t *detail = json_loads(row->detail ? row->detail : "{}", 0, NULL);
    const char *layer = json_string_value(json_object_get(detail, "layer"));
    const char *exec = json_string_value(json_object_get(detail, "exec"));
    struct err err;
    if (layers_parse(layer ? layer : "", &ret->layer, &err) < 0 || ret->layer.count != 1)
        ret->layer.count = 0;
    snprintf(ret->exec, sizeof(ret->exec), "%s", exec ? exec : "");
    json_decref(detail);
}

static int base_write(const struct live *l, struct grant_row *row, const struct layer *layer,
                      struct err *err) {
    char text[ID_SIZE + 16];
    json_t *detail = json_loads(row->detail ? row->detail : "{}", 0, NULL);
    snprintf(text, sizeof(text), "%s/%u", layer->machine, layer->number);
    json_object_set_new(detail, "layer", json_string(text));
    free(row->detail);
    row->detail = detail ? json_dumps(detail, JSON_COMPACT) : NULL;
    json_decref(detail);
    return row->detail ? store_grant_put(l->service->store, row, err)
                       : err_set(err, ERR_INTERNAL, "out of memory for a grant");
}

/* Finds the layer of a new clone: the topmost one of the step after the clone. */
static bool base_find(const struct live *l, const char *exec, struct layers *ret) {
    struct step_row step DEFER(step_row_done) = {.what = NULL};
    struct err err;
    if (!exec[0] || store_step_find(l->service->store, l->row.id, exec, &step, &err) < 0 ||
        !step.has_point || layers_parse(step.stack ? step.stack : "", ret, &err) < 0)
        return false;
    ret->count = ret->count > 0;
    return ret->count;
}

/* Reads the base of a grant. It is recorded as soon as it is known. */
static void base_load(const struct live *l, struct grant_row *row, struct base *ret) {
    struct err err;
    base_read(row, ret);
    if (ret->layer.count || !base_find(l, ret->exec, &ret->layer))
        return;
    if (base_write(l, row, &ret->layer.v[0], &err) < 0)
        log_line(LOG_WARN, "service", "record the layer of a clone: %s id=%s", err.text, l->row.id);
}

void bases_load(const struct live *l, struct bases *ret) {
    struct grant_list list DEFER(grant_list_done) = {0};
    struct base *base DEFER_FREE = xnew(struct base);
    struct err err;
    ret->count = 0;
    if (store_grant_list(l->service->store, l->row.id, "repo", &list, &err) < 0)
        return;
    for (size_t i = 0; i < list.count && ret->count < BASES_MAX; i++) {
        base_load(l, &list.rows[i], base);
        if (base->layer.count)
            ret->v[ret->count++] = base->layer.v[0];
    }
}

bool bases_have(const struct bases *b, const struct layer *l) {
    for (size_t i = 0; i < b->count; i++)
        if (b->v[i].number == l->number && strcmp(b->v[i].machine, l->machine) == 0)
            return true;
    return false;
}

/* The part of the machine's stack from this layer on. False: the stack does not have the layer. */
static bool stack_from(const struct live *l, const struct layer *layer,
                       char ret[LAYERS_TEXT_SIZE]) {
    struct layers *now DEFER_FREE = xnew(struct layers);
    const struct bases base = {.v = {*layer}, .count = 1};
    const char *stack = steps_stack(l);
    struct err err;
    size_t at = 0;
    if (layers_parse(stack ? stack : "", now, &err) < 0)
        return false;
    while (at < now->count && !bases_have(&base, &now->v[at]))
        at++;
    now->count -= at;
    memmove(now->v, now->v + at, now->count * sizeof(*now->v));
    return now->count && layers_print(now, ret, LAYERS_TEXT_SIZE);
}

bool bases_stack(const struct live *l, const char *exec, char ret[LAYERS_TEXT_SIZE]) {
    struct grant_list list DEFER(grant_list_done) = {0};
    struct base *base DEFER_FREE = xnew(struct base);
    struct err err;
    if (store_grant_list(l->service->store, l->row.id, "repo", &list, &err) < 0)
        return false;
    for (size_t i = 0; i < list.count; i++) {
        base_read(&list.rows[i], base);
        if (strcmp(base->exec, exec) == 0 && base->layer.count)
            return stack_from(l, &base->layer.v[0], ret);
    }
    return false;
}

int bases_move(const struct live *l, const char *from, const char *to, struct err *err) {
    struct grant_list list DEFER(grant_list_done) = {0};
    struct base *base DEFER_FREE = xnew(struct base);
    struct layers *old DEFER_FREE = xcalloc(2, sizeof(*old)), *new = old + 1;
    if (layers_parse(from, old, err) < 0 || layers_parse(to, new, err) < 0 ||
        store_grant_list(l->service->store, l->row.id, "repo", &list, err) < 0)
        return -1;
    for (size_t i = 0; i < list.count; i++) {
        base_load(l, &list.rows[i], base);
        const struct bases one = {.v = {base->layer.v[0]}, .count = base->layer.count};
        for (size_t k = 0; k < old->count && k < new->count; k++)
            if (bases_have(&one, &old->v[k]) && base_write(l, &list.rows[i], &new->v[k], err) < 0)
                return -1;
    }
    return 0;
}
