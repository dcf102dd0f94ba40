/* The layers of a machine's root: in the store, and as this daemon knows them. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "service/steps/call_inner.h"
#include "service/steps/inner.h"

int steps_load(struct live *l, struct err *err) {
    struct live_steps *p = l->steps;
    struct root_row row DEFER(root_row_done) = {.stack = NULL};
    if (p->loaded)
        return 0;
    if (store_root_get(l->service->store, l->row.id, &row, err) == 0) {
        p->layer = row.layer;
        p->stack = TAKE(row.stack);
    } else if (err->code != ERR_NOT_FOUND) {
        return -1;
    }
    p->loaded = true;
    return 0;
}

int steps_root_put(struct live *l, uint32_t layer, const char *stack, struct err *err) {
    struct root_row row = {.layer = layer, .stack = (char *)stack};
    memcpy(row.machine, l->row.id, sizeof(row.machine));
    return store_root_put(l->service->store, &row, err);
}

void steps_root_known(struct live *l, uint32_t layer, const char *stack) {
    char *copy = xstrdup(stack);
    free(l->steps->stack);
    l->steps->stack = copy;
    l->steps->layer = layer;
    l->steps->loaded = true;
}

int steps_next_stack(struct live *l, char text[LAYERS_TEXT_SIZE], struct err *err) {
    struct layers layers;
    if (steps_load(l, err) < 0 ||
        layers_parse(l->steps->stack ? l->steps->stack : "", &layers, err) < 0)
        return -1;
    if (layers_push(&layers, l->row.id, l->steps->layer, err) < 0) {
        steps_compact(l);
        return err_remedy(err, "layers are being merged: try again in a moment");
    }
    return layers_print(&layers, text, LAYERS_TEXT_SIZE)
               ? 0
               : err_set(err, ERR_LIMIT,
                         "the machine has too many layers (directories of file changes) for "
                         "another step");
}
