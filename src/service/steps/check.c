#include "service/steps/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/log.h"
#include "machine/compare.h"
#include "service/images/live.h"
#include "service/steps/barrier.h"
#include "service/steps/inner.h"

enum { NAMED_MAX = 65536, LAYER_TEXT_SIZE = ID_SIZE + 11 };

/* A sorted set of layers. */
struct set {
    struct layer *v;
    size_t count, size;
};

/* A check of all machines, one after the other. */
struct checking {
    struct service *service;
    struct live **machines;
    size_t count, at;
    struct set named, there;      /* of the machine that is being checked */
    struct set missing, suspects; /* layers missing in this pass, and in the pass before */
    size_t next;                  /* index in `named` of the next layer to look for */
    size_t stacks;
    bool again; /* second pass over this machine */
    bool malformed;
    int disk, userns;
    bool unread;
    struct store_check check;
    store_problem_fn *problem;
    store_check_fn *done;
    void *arg;
};

/* ---- sets ---- */

static int check_by_name(const void *a, const void *b) {
    const struct layer *x = a, *y = b;
    int machines = strcmp(x->machine, y->machine);
    return machines ? machines : (x->number > y->number) - (x->number < y->number);
}

static void set_add(struct set *s, const char *machine, uint32_t number) {
    if (s->count == s->size) {
        s->size = s->size ? 2 * s->size : 64;
        s->v = xrealloc(s->v, s->size, sizeof(*s->v));
    }
    struct layer *l = &s->v[s->count++];
    snprintf(l->machine, sizeof(l->machine), "%s", machine);
    l->number = number;
}

static void set_sort(struct set *s) {
    size_t kept = 0;
    if (s->count)
        qsort(s->v, s->count, sizeof(*s->v), check_by_name);
    for (size_t i = 0; i < s->count; i++)
        if (!kept || check_by_name(&s->v[kept - 1], &s->v[i]) != 0)
            s->v[kept++] = s->v[i];
    s->count = kept;
}

static bool set_has(const struct set *s, const struct layer *l) {
    return s->count && bsearch(l, s->v, s->count, sizeof(*s->v), check_by_name);
}

/* ---- one machine ---- */

static void next_machine(struct checking *c);

static struct live *subject(const struct checking *c) {
    return c->machines[c->at];
}

static void check_tell(struct checking *c, const struct layer *layer, const char *what,
                       const char *remedy) {
    char text[LAYER_TEXT_SIZE] = "";
    if (layer)
        snprintf(text, sizeof(text), "%s/%" PRIu32, layer->machine, layer->number);
    const struct store_problem p = {subject(c)->row.id, layer ? text : NULL, what, remedy};
    c->check.problems++;
    c->problem(c->arg, &p);
}

/*
 * Adds the layers of the machine's own steps and root, and those on its disk that other machines
 * use.
 */
static void add_stack(void *arg, const char *machine, const char *stack) {
    struct checking *c = arg;
    const char *id = subject(c)->row.id;
    struct layers *layers DEFER_FREE = xnew(struct layers);
    struct err err;
    bool own = strcmp(machine, id) == 0;
    if (!stack || layers_parse(stack, layers, &err) < 0) {
        c->malformed |= own && stack;
        return;
    }
    c->stacks += own;
    for (size_t i = 0; i < layers->count && c->named.count < NAMED_MAX; i++)
        if (own || strcmp(layers->v[i].machine, id) == 0)
            set_add(&c->named, layers->v[i].machine, layers->v[i].number);
}

static void suspect(struct checking *c, const struct layer *layer) {
    set_add(&c->missing, layer->machine, layer->number);
}

static void look_at_next(void *arg);

static void view_known(void *arg, int root, int usr, const struct err *err) {
    struct checking *c = arg;
    close_fd(&root);
    close_fd(&usr);
    if (err && (err->code == ERR_NOT_FOUND || err->code == ERR_INTERNAL))
        suspect(c, &c->named.v[c->next]);
    c->next++;
    look_at_next(c);
}

static bool ends(const struct live *l) {
    return !l->machine || l->row.state == MACHINE_ENDING || l->row.state == MACHINE_ENDED;
}

static void tell_missing(struct checking *c, const struct layer *layer) {
    bool own = strcmp(layer->machine, subject(c)->row.id) == 0;
    check_tell(c, layer,
               own ? "a layer is missing"
                   : "a layer of a machine that it was forked from is missing",
               "return to a complete step with carrel rewind, or fork one with carrel fork --at");
}

static void tell_all(struct checking *c) {
    const struct live *l = subject(c);
    c->check.machines++;
    c->check.layers += c->named.count;
    c->check.stacks += c->stacks;
    for (size_t i = 0; i < c->there.count; i++)
        c->check.leftovers += !set_has(&c->named, &c->there.v[i]);
    if (c->malformed)
        check_tell(c, NULL, "the list of layers of a step in the database is unreadable",
                   "return to a complete step with carrel rewind");
    if (image_id_valid(l->row.image) && !image_is_whole(c->service, l->row.image))
        check_tell(c, NULL, "the image of the machine is missing or was changed",
                   "import or build the same image again");
    for (size_t i = 0; i < c->missing.count; i++)
        if (set_has(&c->suspects, &c->missing.v[i]))
            tell_missing(c, &c->missing.v[i]);
}

static void begin_machine(void *arg);

/*
 * Layers may be merged during the check: references and disk are not read at the same instant. A
 * layer that is missing in two passes in a row was referenced all the time between them, so it is
 * really missing.
 */
static void looked(struct checking *c) {
    set_sort(&c->missing);
    if (ends(subject(c))) {
        c->check.unchecked++;
    } else if (c->missing.count && !c->again) {
        struct set seen = c->suspects;
        c->suspects = c->missing;
        c->missing = seen;
        c->again = true;
        begin_machine(c);
        return;
    } else {
        tell_all(c);
    }
    next_machine(c);
}

/* Layers of ancestors are on disks that only the spawner can read. */
static void look_at_next(void *arg) {
    struct checking *c = arg;
    struct live *l = subject(c);
    for (; c->next < c->named.count && !ends(l); c->next++) {
        const struct layer *layer = &c->named.v[c->next];
        char text[LAYER_TEXT_SIZE];
        if (strcmp(layer->machine, l->row.id) != 0) {
            snprintf(text, sizeof(text), "%s/%" PRIu32, layer->machine, layer->number);
            l->service->driver->view(l->machine, text, view_known, c);
            return;
        }
        if (!set_has(&c->there, layer))
            suspect(c, layer);
    }
    looked(c);
}

/* ---- the disk of a machine ---- */

/* Lists the layers on the disk of the machine. */
static void read_disk(void *arg) {
    static const struct compare_order order = {.task = COMPARE_SIZES};
    struct checking *c = arg;
    struct buf records DEFER(buf_done) = BUF(COMPARE_OUT_MAX);
    struct changes_record r;
    struct err err;
    c->unread =
        compare_run(c->service->place->libexec, &order, &c->disk, 1, c->userns, &records, &err) < 0;
    if (c->unread) {
        log_line(LOG_WARN, "service", "list the layers of a machine: %s", err.text);
        return;
    }
    const char *at = records.data, *end = at + records.len;
    while (changes_read(&at, end, &r) == 1 && r.type == CHANGES_SIZE)
        set_add(&c->there, subject(c)->row.id, r.size.layer);
}

static void disk_read(void *arg) {
    struct checking *c = arg;
    struct live *l = subject(c);
    struct err err;
    close_fd(&c->disk);
    close_fd(&c->userns);
    c->named.count = c->missing.count = c->stacks = 0;
    c->malformed = false;
    /* References are read after the disk: a layer may be deleted once nothing refers to it. */
    if (c->unread || steps_load(l, &err) < 0 ||
        store_stacks_all(c->service->store, add_stack, c, &err) < 0) {
        c->check.unchecked++;
        next_machine(c);
        return;
    }
    set_add(&c->named, l->row.id, l->steps->layer);
    set_sort(&c->named);
    set_sort(&c->there);
    c->next = 0;
    look_at_next(c);
}

static void disk_known(void *arg, int disk, int userns, const struct err *err) {
    struct checking *c = arg;
    c->disk = disk;
    c->userns = userns;
    c->there.count = 0;
    if (err) {
        c->check.unchecked++;
        next_machine(c);
    } else {
        loop_work(c->service->loop, read_disk, disk_read, c);
    }
}

/* Waits while a step is taken, because its layers come and go. */
static void begin_machine(void *arg) {
    struct checking *c = arg;
    struct live *l = subject(c);
    if (barrier_wait_settled(l, begin_machine, c))
        return;
    if (ends(l)) {
        c->check.unchecked++;
        next_machine(c);
        return;
    }
    l->service->driver->disk(l->machine, NULL, disk_known, c);
}

/* ---- all machines ---- */

static void check_finish(struct checking *c) {
    c->done(c->arg, &c->check, NULL);
    for (size_t i = 0; i < c->count; i++)
        live_unref(c->machines[i]);
    free(c->machines);
    free(c->named.v);
    free(c->there.v);
    free(c->missing.v);
    free(c->suspects.v);
    free(c);
}

static void next_machine(struct checking *c) {
    c->again = false;
    if (++c->at >= c->count)
        check_finish(c);
    else
        begin_machine(c);
}

void service_store_check(struct service *s, const struct caller *who, store_problem_fn *problem,
                         store_check_fn *done, void *arg) {
    struct err err;
    struct live *l;
    if (allow(who, SCOPE_READ, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    struct checking *c = xnew(struct checking);
    *c = (struct checking){.service = s,
                           .disk = -1,
                           .userns = -1,
                           .problem = problem,
                           .done = done,
                           .arg = arg,
                           .at = SIZE_MAX};
    for (size_t at = 0; (l = map_next(&s->machines, &at));)
        c->count += may_see(who, l->row.owner);
    c->machines = xcalloc(c->count + 1, sizeof(struct live *));
    c->count = 0;
    for (size_t at = 0; (l = map_next(&s->machines, &at));)
        if (may_see(who, l->row.owner)) {
            live_ref(l);
            c->machines[c->count++] = l;
        }
    next_machine(c);
}
