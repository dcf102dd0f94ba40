/*
 * Steps of machines whose root cannot be switched: the upper (the writable layer) is copied
 * instead.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "service/steps/call_inner.h"
#include "service/steps/inner.h"
#include "service/vm/memory.h"

static void not_copied(struct step_call *c, const struct err *failed) {
    struct live *l = c->live;
    struct err err = *failed;
    l->steps->copy_step[0] = '\0'; /* the spawner may have made a copy that no row names */
    bool slow = failed->code == ERR_UNSUPPORTED;
    if (c->row.kind == STEP_SNAP) {
        if (failed->code == ERR_LIMIT)
            step_say_full(l, &err);
        step_refuse(c, &err);
        return;
    }
    l->steps->copies_slowly |= slow;
    step_no_point(c, slow ? c->shared.text : failed->text);
    step_finish(c, false);
}

/* Finds the step with the files of the last copy. False: it was deleted, or there is none. */
static bool find_copy(struct live *l, struct step_row *ret) {
    struct err err;
    return l->steps->copy_step[0] &&
           store_step_find(l->service->store, l->row.id, l->steps->copy_step, ret, &err) == 0 &&
           ret->state == STEP_DONE && ret->has_point && ret->stack;
}

static void ask_copy(struct step_call *c, bool may_share);

/* Nothing was written since the last copy: the step gets the layers of that one. */
static void share_copy(struct step_call *c) {
    struct step_row last DEFER(step_row_done) = {0};
    if (!find_copy(c->live, &last)) {
        ask_copy(c, false);
        return;
    }
    free(c->row.stack);
    c->row.stack = TAKE(last.stack);
    c->row.layer = 0;
    c->row.counted = 1;
    c->row.has_point = 1;
    memcpy(c->live->steps->copy_step, c->row.id, sizeof(c->row.id));
    step_finish(c, false);
}

static void copied(void *arg, const char *how, const struct err *failed) {
    struct step_call *c = arg;
    if (failed) {
        not_copied(c, failed);
        return;
    }
    if (strcmp(how, "same") == 0) {
        share_copy(c);
        return;
    }
    memcpy(c->live->steps->copy_step, c->row.id, sizeof(c->row.id));
    c->live->service->steps->fallbacks[FELL_STEP_COPIED] += strcmp(how, "btrfs") != 0;
    c->row.has_point = 1;
    snprintf(c->row.reason, sizeof(c->row.reason), "%s%s", how, c->memory ? STEP_MEMORY : "");
    step_finish(c, false);
}

static void ask_copy(struct step_call *c, bool may_share) {
    unsigned options = c->row.kind != STEP_SNAP ? STILL_AT_ONCE : 0;
    if (may_share)
        options |= STILL_MAY_SHARE;
    if (c->pauses)
        options |= STILL_STAYS;
    char memory[MEMORY_PATH_SIZE];
    if (c->memory)
        memory_path(c->live->service, c->row.machine, c->row.id, memory);
    still_copy(c->live, c->row.layer, options, c->memory ? memory : NULL, copied, c);
}

/*
 * A step on request is always a copy of its own: an asynchronous write of a frozen process may end
 * right after a copy, and would be missing in a shared one.
 */
void step_take_copy(struct step_call *c) {
    struct step_row last DEFER(step_row_done) = {0};
    ask_copy(c, c->row.kind != STEP_SNAP && find_copy(c->live, &last));
}

bool step_is_copy(const struct step_row *row) {
    struct layers layers;
    struct err err;
    if (row->layer)
        return row->layer >= LAYER_COPIED;
    return row->stack && layers_parse(row->stack, &layers, &err) == 0 && layers.count &&
           layers.v[0].number >= LAYER_COPIED;
}

static void copy_planned(void *arg, const struct err *failed) {
    if (failed)
        step_refuse(arg, failed);
    else
        step_take_copy(arg);
}

/*
 * Layer numbers of copies start at a random value, so that they never meet leftovers of an
 * unfinished copy. Later numbers are consecutive, so that lists of ranges stay short.
 */
static int choose_number(struct live *l, struct err *err) {
    uint32_t chance, *last = &l->steps->last_copy;
    if (*last && *last < LAYER_NUMBER_MAX) {
        (*last)++;
        return 0;
    }
    if (getrandom(&chance, sizeof(chance), 0) != sizeof(chance))
        return err_sys(err, "cannot choose the number of a new layer");
    *last = LAYER_COPIED + chance % (LAYER_NUMBER_MAX - LAYER_COPIED);
    return 0;
}

int step_plan_copy(struct step_call *c, struct err *err) {
    struct live *l = c->live;
    struct layers layers;
    char text[LAYERS_TEXT_SIZE];
    if (choose_number(l, err) < 0)
        return -1;
    c->row.layer = l->steps->last_copy;
    if (steps_load(l, err) < 0 ||
        layers_parse(l->steps->stack ? l->steps->stack : "", &layers, err) < 0 ||
        layers_push(&layers, l->row.id, c->row.layer, err) < 0)
        return -1;
    if (!layers_print(&layers, text, sizeof(text)))
        return err_set(
            err, ERR_LIMIT,
            "the machine has too many layers (directories of file changes) for another step");
    free(c->row.stack);
    c->row.stack = xstrdup(text);
    return 0;
}

/*
 * True if the step may be a copy, since the root cannot be switched. A step that no user requested
 * is copied only where that is cheap, as far as known.
 */
bool step_may_copy(const struct step_call *c) {
    const struct live *l = c->live;
    if (c->uncertain || (l->changing && !c->pauses) || !l->machine)
        return false;
    switch (c->row.kind) {
    case STEP_SNAP: /* the kernel of a vm that is stopped runs on */
        return l->row.state == MACHINE_RUNNING || l->row.state == MACHINE_PAUSED ||
               l->row.state == MACHINE_STOPPED;
    case STEP_EXEC:
    case STEP_FILE:
    case STEP_KEPT:
        return l->row.state == MACHINE_RUNNING && !l->steps->copies_slowly;
    default:
        return false;
    }
}

/* A process that a command left behind was found only during the switch: copy instead. */
bool step_copy_instead(struct step_call *c, const struct err *failed) {
    struct err err;
    if (failed->code != ERR_BUSY || c->row.layer >= LAYER_COPIED || !step_may_copy(c))
        return false;
    c->shared = *failed;
    if (step_plan_copy(c, &err) < 0)
        step_refuse(c, &err);
    else
        step_replan(c, copy_planned);
    return true;
}
