/*
 * Layers that somebody reads: a diff, a count of files, a worker that makes an image. No layer of
 * such a list is deleted, even if its step is.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "service/steps/inner.h"

void layers_hold(struct service *s, struct layers_hold *h, const char *stack) {
    *h = (struct layers_hold){.next = s->steps->holds, .stack = xstrdup(stack ? stack : "")};
    s->steps->holds = h;
}

/* The layers that stayed only for this list are deleted on the next tick. */
static void layers_hold_sweep(struct service *s, const char *stack) {
    struct layers *held DEFER_FREE = xnew(struct layers);
    struct err err;
    if (layers_parse(stack, held, &err) < 0)
        return;
    for (size_t i = 0; i < held->count; i++) {
        struct live *l = map_get(&s->machines, held->v[i].machine);
        if (l)
            steps_want_sweep(l);
    }
}

void layers_release(struct service *s, struct layers_hold *h) {
    if (!h->stack)
        return;
    struct layers_hold **at = &s->steps->holds;
    while (*at != h)
        at = &(*at)->next;
    *at = h->next;
    if (h->has_kept)
        layers_hold_sweep(s, h->stack);
    free(TAKE(h->stack));
}

void layers_each_held(struct service *s, const char *disk,
                      void (*each)(void *arg, const char *stack), void *arg) {
    for (struct layers_hold *h = s->steps->holds; h; h = h->next) {
        if (!strstr(h->stack, disk))
            continue;
        h->has_kept = true;
        each(arg, h->stack);
    }
}
