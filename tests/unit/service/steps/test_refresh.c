/*
 * New roots, merged layers and old steps, over a real store and a disk that only remembers: what is
 * mounted, what is being saved and what a step has shown must stay, whatever is let go of.
 */
#include "tests/unit/unit.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/defer.h"
#include "service/exec/inner.h"
#include "service/images/live.h"
#include "service/steps/durable.h"
#include "service/steps/inner.h"
#include "store/conf.h"
#include "store/saved.h"
#include "tests/unit/scratch.h"
#include "tests/unit/stores.h"

enum { LAYERS = 64, DISK = 1000000 };

/* The newest version of the files in it. */
struct held {
    uint32_t number;
    int64_t version;
};

struct world {
    struct machine machine; /* first: what the driver is handed */
    struct scratch dir;
    struct conf conf;
    struct service service;
    struct live live;
    struct held layers[LAYERS];
    size_t count;
    char *mounted; /* below the upper */
    uint32_t upper;
    int64_t version, sealed; /* of the files now; of those in layers */
    unsigned roots, removals;
    bool full, broken;         /* broken: nothing is removed, and that is said */
    char saving[ID_SIZE + 16]; /* a layer that is being copied to the store; empty: none */
    bool hold_saves;
    machine_done_fn *saved;
    void *saved_arg;
};

/* ---- a disk that remembers ---- */

/* Answers never come from within the call. */
struct answer {
    struct loop_call call;
    struct world *w;
    machine_done_fn *done;
    machine_root_fn *root;
    machine_copy_fn *copy;
    machine_stats_fn *stats;
    void *arg;
    bool changed, failed;
};

static void give(void *arg) {
    struct answer a = *(struct answer *)arg;
    struct machine_stats stats = {.disk_bytes = a.w->full ? DISK : 0};
    struct err err;
    free(arg);
    if (a.failed)
        err_set(&err, ERR_INTERNAL, "the disk is broken");
    if (a.done)
        a.done(a.arg, a.failed ? &err : NULL);
    else if (a.root)
        a.root(a.arg, a.changed, NULL);
    else if (a.copy)
        a.copy(a.arg, "copy", NULL);
    else
        a.stats(a.arg, &stats, NULL);
}

static void later(struct machine *m, struct answer a) {
    struct answer *copy = malloc(sizeof(*copy));
    a.w = (struct world *)m;
    *copy = a;
    copy->call = (struct loop_call){.fn = give, .arg = copy};
    loop_defer(a.w->service.loop, &copy->call);
}

static struct held *find(struct world *w, uint32_t number) {
    for (size_t i = 0; i < w->count; i++)
        if (w->layers[i].number == number)
            return &w->layers[i];
    return NULL;
}

static void put(struct world *w, uint32_t number, int64_t version) {
    assert_null(find(w, number));
    assert_true(w->count < LAYERS);
    w->layers[w->count++] = (struct held){number, version};
}

/* What a stack shows; each of its layers must be there. */
static int64_t version_of(struct world *w, const char *stack) {
    struct layers layers;
    struct err err;
    int64_t newest = 0;
    assert_int_equal(layers_parse(stack ? stack : "", &layers, &err), 0);
    for (size_t i = 0; i < layers.count; i++) {
        const struct held *h = find(w, layers.v[i].number);
        assert_non_null(h);
        newest = h->version > newest ? h->version : newest;
    }
    return newest;
}

/* Nobody can look into it: all its layers weigh the same. */
static void disk_unseen(struct machine *m, const char *name, machine_view_fn *done, void *arg) {
    (void)name;
    struct err err;
    (void)m;
    err_set(&err, ERR_UNSUPPORTED, "a disk that only remembers");
    done(arg, -1, -1, &err);
}

static void disk_alone(struct machine *m, machine_done_fn *done, void *arg) {
    later(m, (struct answer){.done = done, .arg = arg});
}

static void disk_freeze(struct machine *m, bool frozen, machine_done_fn *done, void *arg) {
    (void)frozen;
    later(m, (struct answer){.done = done, .arg = arg});
}

static void disk_stats(struct machine *m, machine_stats_fn *done, void *arg) {
    later(m, (struct answer){.stats = done, .arg = arg});
}

static void disk_root(struct machine *m, const char *stack, uint32_t layer, unsigned how,
                      machine_root_fn *done, void *arg) {
    struct world *w = (struct world *)m;
    bool changed = w->version > w->sealed;
    if (changed || !(how & ROOT_IF_CHANGED)) {
        if (changed)
            put(w, w->upper, w->version);
        w->sealed = w->version;
        assert_int_equal(version_of(w, stack), w->version);
        free(w->mounted);
        w->mounted = strdup(stack);
        w->upper = layer;
        w->roots++;
    }
    later(m, (struct answer){.root = done, .arg = arg, .changed = changed});
}

static void disk_merge(struct machine *m, const char *stack, uint32_t layer, machine_done_fn *done,
                       void *arg) {
    struct world *w = (struct world *)m;
    struct held *same = find(w, layer); /* merged of the same layers before */
    if (!same)
        put(w, layer, version_of(w, stack));
    else
        assert_int_equal(same->version, version_of(w, stack));
    later(m, (struct answer){.done = done, .arg = arg});
}

static void disk_copy(struct machine *m, uint32_t number, machine_copy_fn *done, void *arg) {
    if (number)
        put((struct world *)m, number, ((struct world *)m)->version);
    later(m, (struct answer){.copy = done, .arg = arg});
}

/* "3 7-9 12" */
static bool is_in(uint32_t number, const char *ranges) {
    for (const char *at = ranges; *at;) {
        char *end;
        unsigned long from = strtoul(at, &end, 10), to = from;
        if (*end == '-')
            to = strtoul(end + 1, &end, 10);
        if (number >= from && number <= to)
            return true;
        at = end + strspn(end, " ");
    }
    return false;
}

static void disk_keep(struct machine *m, const char *ranges, machine_done_fn *done, void *arg) {
    struct world *w = (struct world *)m;
    size_t kept = 0;
    for (size_t i = 0; i < w->count; i++)
        if (w->broken || is_in(w->layers[i].number, ranges))
            w->layers[kept++] = w->layers[i];
    w->removals += w->count != kept;
    w->count = kept;
    version_of(w, w->mounted);
    version_of(w, w->saving);
    later(m, (struct answer){.done = done, .arg = arg, .failed = w->broken});
}

static void disk_save(struct machine *m, const char *layer, const char *disk, uint32_t number,
                      machine_done_fn *done, void *arg) {
    struct world *w = (struct world *)m;
    (void)disk, (void)number;
    version_of(w, layer);
    if (!w->hold_saves) {
        later(m, (struct answer){.done = done, .arg = arg});
        return;
    }
    snprintf(w->saving, sizeof(w->saving), "%s", layer);
    w->saved = done;
    w->saved_arg = arg;
}

static void disk_shed(struct machine_host *host, const char *disk, const char *ranges,
                      machine_done_fn *done, void *arg) {
    (void)host, (void)disk, (void)ranges;
    done(arg, NULL);
}

static const struct machine_driver disk_driver = {
    .alone = disk_alone,
    .disk = disk_unseen,
    .freeze = disk_freeze,
    .stats = disk_stats,
    .root = disk_root,
    .merge = disk_merge,
    .copy = disk_copy,
    .keep = disk_keep,
    .save = disk_save,
    .shed = disk_shed,
};

/* ---- the world ---- */

static int world_new(void **state) {
    struct world *w = calloc(1, sizeof(*w));
    struct err err;
    char existing[ID_SIZE];
    w->dir = scratch_new();
    w->conf = (struct conf){.steps_keep = 1000, .durable_after_ms = 1};
    struct service *s = &w->service;
    *s = (struct service){.driver = &disk_driver, .conf = &w->conf, .loop = loop_new(&err)};
    s->store = unit_store_of(w->dir.path, &unit_ann);
    s->commits = commits_new(s->loop, s->store);
    s->events_call = (struct loop_call){.fn = events_tell, .arg = s};
    s->steps = service_steps_new();
    s->images = service_images_new();
    struct live *l = &w->live;
    *l = (struct live){.service = s, .refs = 1, .machine = &w->machine, .reach = {.heard = true}};
    l->execs = live_execs_new();
    l->row = (struct machine_row){.owner = "ann",
                                  .kind = "box",
                                  .image = "host",
                                  .state = MACHINE_RUNNING,
                                  .created_ms = wall_ms(),
                                  .disk_bytes = DISK,
                                  .idle_action = IDLE_PAUSE,
                                  .steps = STEPS_MANUAL};
    snprintf(l->row.id, sizeof(l->row.id), "%s", id_new('m').text);
    assert_int_equal(store_machine_add(s->store, &l->row, existing, &err), 0);
    steps_init(l);
    w->upper = 1;
    *state = w;
    return 0;
}

static int world_free(void **state) {
    struct world *w = *state;
    struct live *l = &w->live;
    steps_release(l);
    steps_free(l);
    live_execs_free(l->execs);
    service_steps_free(w->service.steps);
    service_images_free(w->service.images);
    loop_call_cancel(w->service.loop, &w->service.events_call);
    commits_free(w->service.commits);
    assert_int_equal(l->refs, 1);
    store_close(w->service.store);
    loop_free(w->service.loop);
    scratch_done(&w->dir);
    free(w->mounted);
    free(w);
    return 0;
}

static void stop_when_quiet(void *arg) {
    struct world *w = arg;
    const struct live_steps *p = w->live.steps;
    bool saves = w->live.steps->durable.saving && !w->hold_saves;
    if (!p->taking && !p->wanted && !p->pruning && !p->merging && !saves)
        loop_stop(w->service.loop);
}

/* Until nothing is under way. What waits for a time begins only when a test says so. */
static void settle(struct world *w) {
    struct loop_timer *t = loop_timer_new(w->service.loop, stop_when_quiet, w);
    loop_timer_start(t, 1, 1);
    loop_run(w->service.loop);
    loop_timer_free(t);
    loop_timer_free(TAKE(w->live.steps->rest));
}

static void taken(void *arg, const struct step_row *row, const struct err *err) {
    assert_null(err);
    snprintf(arg, ID_SIZE, "%s", row->id);
}

/* Its status says which version it is of. */
static void snap(struct world *w, char ret[ID_SIZE]) {
    struct step_cause cause = {.kind = STEP_SNAP, .status = w->version};
    steps_take(&w->live, &cause, taken, ret);
    settle(w);
}

static void write_and_snap(struct world *w, char ret[ID_SIZE]) {
    w->version++;
    snap(w, ret);
}

/* The layers become one; the root that is mounted stays. */
static void merge(struct world *w) {
    steps_compact_full(&w->live);
    settle(w);
    assert_null(strchr(w->live.steps->stack, ' '));
    assert_string_not_equal(w->live.steps->stack, w->mounted);
}

/* The disk is full, and looked at. */
static void look(struct world *w) {
    w->live.steps->full_look_ms = 0;
    w->live.steps->unpruned = true;
    steps_prune(&w->live);
    settle(w);
}

static struct step_row step(struct world *w, const char *id) {
    struct step_row row = {0};
    struct err err;
    assert_int_equal(store_step_find(w->service.store, w->live.row.id, id, &row, &err), 0);
    return row;
}

/* Every step shows what it was taken of. */
static size_t check_steps(struct world *w) {
    struct step_list list DEFER(step_list_done) = {0};
    struct err err;
    assert_int_equal(
        store_step_list(w->service.store, w->live.row.id, 0, false, STORE_PAGE_MAX, &list, &err),
        0);
    for (size_t i = 0; i < list.count; i++)
        if (list.rows[i].status >= 0)
            assert_int_equal(version_of(w, list.rows[i].stack), list.rows[i].status);
    return list.count;
}

/* What a daemon that comes later takes for mounted. */
static void check_root(struct world *w) {
    struct root_row row DEFER(root_row_done) = {.stack = NULL};
    struct err err;
    assert_int_equal(store_root_get(w->service.store, w->live.row.id, &row, &err), 0);
    assert_int_equal(row.layer, w->upper);
    assert_string_equal(row.stack, w->mounted);
}

/* ---- tests ---- */

static void a_new_root_of_the_same_files_lets_go_of_the_old_layers(void **state) {
    struct world *w = *state;
    char first[ID_SIZE], second[ID_SIZE];
    write_and_snap(w, first);
    write_and_snap(w, second);
    merge(w);
    w->full = true;
    look(w);
    assert_int_equal(w->roots, 3);
    assert_int_equal(check_steps(w), 2);
    struct step_row newest DEFER(step_row_done) = step(w, "last");
    assert_string_equal(newest.id, second);
    assert_string_equal(newest.stack, w->live.steps->stack);
    check_root(w);
    look(w); /* what only the old root held */
    assert_int_equal(w->removals, 1);
    for (int i = 0; i < 4; i++)
        look(w);
    assert_int_equal(check_steps(w), 1);
    assert_int_equal(w->count, 1);
}

static void what_was_written_since_the_newest_step_becomes_one(void **state) {
    struct world *w = *state;
    char first[ID_SIZE], second[ID_SIZE];
    write_and_snap(w, first);
    write_and_snap(w, second);
    merge(w);
    w->version++;
    w->full = true;
    look(w);
    assert_int_equal(w->roots, 3);
    assert_int_equal(check_steps(w), 3);
    struct step_row kept DEFER(step_row_done) = step(w, "last");
    assert_int_equal(kept.kind, STEP_KEPT);
    assert_int_equal(version_of(w, kept.stack), w->version);
    assert_string_equal(kept.stack, w->mounted);
    check_root(w);
    for (int i = 0; i < 8; i++) /* also what is merged only when the disk is full */
        look(w);
    assert_int_equal(check_steps(w), 1);
    assert_int_equal(version_of(w, w->mounted), w->version);
    assert_int_equal(w->count, 1);
    check_root(w);
}

static void a_full_disk_merges_what_no_step_needs_apart_before_it_drops_one(void **state) {
    struct world *w = *state;
    char ids[7][ID_SIZE];
    struct err err;
    for (int i = 0; i < 6; i++)
        write_and_snap(w, ids[i]);
    merge(w);
    write_and_snap(w, ids[6]); /* its root has the merged layer: the others are in old steps only */
    assert_int_equal(store_step_delete(w->service.store, ids[1], &err), 0);
    assert_int_equal(store_step_delete(w->service.store, ids[2], &err), 0);
    size_t layers = w->count;
    w->full = true;
    look(w); /* 4, 3 and 2 are in three steps, one below the other, and nowhere else */
    look(w);
    assert_int_equal(check_steps(w), 5);
    assert_int_equal(w->count, layers - 2);
    struct step_row fourth DEFER(step_row_done) = step(w, ids[3]);
    assert_non_null(strchr(fourth.stack, ' '));
    assert_null(strchr(strchr(fourth.stack, ' ') + 1, ' '));
    check_root(w);
    for (int i = 0; i < 4; i++)
        look(w); /* the layers of the root are merged, then nothing is left to merge */
    assert_true(check_steps(w) < 5);
    assert_int_equal(version_of(w, w->mounted), w->version);
}

static void layers_of_a_fork_are_not_merged_for_a_full_disk(void **state) {
    struct world *w = *state;
    char ids[4][ID_SIZE], stack[LAYERS_TEXT_SIZE], existing[ID_SIZE];
    struct machine_row fork = w->live.row;
    struct root_row root = {.layer = 1, .stack = stack};
    struct err err;
    for (int i = 0; i < 3; i++)
        write_and_snap(w, ids[i]);
    struct step_row third DEFER(step_row_done) = step(w, ids[2]);
    snprintf(stack, sizeof(stack), "%s", third.stack);
    merge(w);
    write_and_snap(w, ids[3]);
    snprintf(fork.id, sizeof(fork.id), "%s", id_new('m').text);
    snprintf(root.machine, sizeof(root.machine), "%s", fork.id);
    assert_int_equal(store_machine_add(w->service.store, &fork, existing, &err), 0);
    assert_int_equal(store_root_put(w->service.store, &root, &err), 0);
    assert_int_equal(store_step_delete(w->service.store, ids[0], &err), 0);
    w->full = true;
    look(w); /* layers that stay for the fork are not merged for a step */
    struct step_row still DEFER(step_row_done) = step(w, ids[2]);
    assert_string_equal(still.stack, stack);
    for (int i = 0; i < 6; i++)
        look(w);
    assert_int_equal(version_of(w, stack), 3);
    assert_int_equal(version_of(w, w->mounted), w->version);
}

static void a_full_disk_gets_no_new_root_while_a_step_is_saved(void **state) {
    struct world *w = *state;
    char first[ID_SIZE], second[ID_SIZE];
    struct err err;
    w->hold_saves = true;
    write_and_snap(w, first);
    write_and_snap(w, second);
    merge(w);
    durable_look(&w->live, UINT64_MAX);
    assert_true(w->saving[0]);
    w->full = true;
    for (int i = 0; i < 4; i++)
        look(w);
    assert_int_equal(w->roots, 2);
    assert_int_equal(version_of(w, w->saving), 2);
    w->hold_saves = false;
    w->saving[0] = '\0';
    w->saved(w->saved_arg, NULL);
    settle(w);
    struct saved_row row DEFER(saved_row_done) = {.source = NULL};
    assert_int_equal(store_saved_get(w->service.store, w->live.row.id, &row, &err), 0);
    assert_string_equal(row.step, second);
    for (int i = 0; i < 2; i++) /* the control: now it does */
        look(w);
    assert_int_equal(w->roots, 3);
    check_steps(w);
}

static void a_copy_is_nobodys_root(void **state) {
    struct world *w = *state;
    char first[ID_SIZE], second[ID_SIZE], copy[ID_SIZE];
    write_and_snap(w, first);
    write_and_snap(w, second);
    merge(w);
    w->live.execs->running = 1; /* so that the root cannot be switched */
    w->version++;
    snap(w, copy);
    struct step_row before DEFER(step_row_done) = step(w, copy);
    assert_true(before.layer >= LAYER_COPIED && w->roots == 2);
    struct step_row mounted DEFER(step_row_done) = {0};
    struct err err;
    assert_int_equal(steps_newest_switch(&w->live, &mounted, &err), 0);
    assert_string_equal(mounted.id, second);
    assert_string_equal(mounted.stack, w->mounted);
    w->full = true;
    for (int i = 0; i < 4; i++) /* older steps go, but never what is mounted */
        look(w);
    assert_int_equal(check_steps(w), 2);
    w->live.execs->running = 0;
    look(w); /* what was written is in the copy, and in no root's layer yet */
    look(w);
    assert_int_equal(w->roots, 3);
    check_steps(w);
    check_root(w);
}

static void layers_that_could_not_be_removed_go_later(void **state) {
    struct world *w = *state;
    char first[ID_SIZE], second[ID_SIZE];
    write_and_snap(w, first);
    write_and_snap(w, second);
    merge(w);
    w->full = w->broken = true;
    for (int i = 0; i < 6; i++) /* the new root; what it let go of stays, and so do steps */
        look(w);
    assert_int_equal(w->roots, 3);
    assert_int_equal(w->count, 3);
    assert_int_equal(check_steps(w), 2);
    w->broken = w->full = false;
    look(w);
    assert_int_equal(w->count, 2);
}

static void add_step(struct world *w, uint32_t layer, const char *tail) {
    struct err err;
    char stack[2 * ID_SIZE + 32];
    struct step_row row = {.kind = STEP_EXEC, .state = STEP_DONE, .layer = layer, .stack = stack};
    snprintf(row.id, sizeof(row.id), "%s", id_new('s').text);
    snprintf(row.machine, sizeof(row.machine), "%s", w->live.row.id);
    snprintf(stack, sizeof(stack), "%s/%u%s", w->live.row.id, layer, tail);
    assert_int_equal(store_step_add(w->service.store, &row, &err), 0);
}

static uint64_t count_steps(struct world *w) {
    uint64_t count, bytes;
    struct err err;
    assert_int_equal(store_step_count(w->service.store, w->live.row.id, &count, &bytes, &err), 0);
    return count;
}

static bool is_there(struct world *w, const char *id) {
    struct step_row row DEFER(step_row_done) = {0};
    struct err err;
    return store_step_find(w->service.store, w->live.row.id, id, &row, &err) == 0;
}

static void history_beyond_the_limit_loses_its_oldest_steps(void **state) {
    struct world *w = *state;
    char ids[4][ID_SIZE];
    for (int i = 0; i < 4; i++)
        write_and_snap(w, ids[i]);
    w->conf.steps_keep = 4;
    look(w); /* the control: as many as may be */
    assert_int_equal(check_steps(w), 4);
    w->conf.steps_keep = 2;
    look(w);
    assert_int_equal(check_steps(w), 2);
    assert_true(is_there(w, ids[2]) && is_there(w, ids[3]));
    check_root(w);
}

static void a_step_with_a_name_is_never_dropped(void **state) {
    struct world *w = *state;
    struct step_cause cause = {.kind = STEP_SNAP, .status = 1, .name = "good"};
    char ids[4][ID_SIZE];
    w->version = 1;
    steps_take(&w->live, &cause, taken, ids[0]);
    settle(w);
    for (int i = 1; i < 4; i++)
        write_and_snap(w, ids[i]);
    w->conf.steps_keep = 2;
    look(w);
    assert_int_equal(check_steps(w), 2);
    assert_true(is_there(w, ids[0]) && is_there(w, ids[3]));
}

static void the_step_that_is_mounted_stays_whatever_the_limit(void **state) {
    struct world *w = *state;
    char ids[3][ID_SIZE];
    for (int i = 0; i < 3; i++)
        write_and_snap(w, ids[i]);
    w->conf.steps_keep = 0;
    for (int i = 0; i < 3; i++)
        look(w);
    assert_int_equal(check_steps(w), 1);
    assert_true(is_there(w, ids[2]));
    check_root(w);
}

static void a_step_that_is_too_old_is_dropped(void **state) {
    struct world *w = *state;
    char young[ID_SIZE];
    add_step(w, 7, ""); /* of 1970 */
    write_and_snap(w, young);
    look(w); /* the control: no age is too old */
    assert_int_equal(count_steps(w), 2);
    w->conf.steps_keep_ms = UINT64_C(24) * 3600 * 1000;
    look(w);
    assert_int_equal(count_steps(w), 1);
    assert_true(is_there(w, young));
}

static void a_stack_that_cannot_be_read_lets_nothing_go(void **state) {
    struct world *w = *state;
    char text[RANGES_SIZE];
    struct err err;
    add_step(w, 7, "");
    assert_true(layers_named(&w->service, w->live.row.id, NULL, text, &err));
    assert_string_equal(text, "7");
    add_step(w, 9, " nothing");
    assert_false(layers_named(&w->service, w->live.row.id, NULL, text, &err));
}

static void more_layers_than_can_be_told_let_nothing_go(void **state) {
    enum { MANY = RANGES_SIZE / 10 };
    struct world *w = *state;
    char text[RANGES_SIZE];
    struct err err;
    assert_int_equal(store_begin(w->service.store, &err), 0);
    for (uint32_t i = 1; i < MANY; i++)
        add_step(w, LAYER_COPIED + 2 * i, "");
    assert_true(layers_named(&w->service, w->live.row.id, NULL, text, &err));
    for (uint32_t i = 0; i < 3; i++)
        add_step(w, LAYER_COPIED + 2 * (MANY + i), "");
    assert_false(layers_named(&w->service, w->live.row.id, NULL, text, &err));
    store_rollback(w->service.store);
}

#define WORLD(f) cmocka_unit_test_setup_teardown(f, world_new, world_free)
UNIT_MAIN(WORLD(a_new_root_of_the_same_files_lets_go_of_the_old_layers),
          WORLD(what_was_written_since_the_newest_step_becomes_one),
          WORLD(a_full_disk_merges_what_no_step_needs_apart_before_it_drops_one),
          WORLD(layers_of_a_fork_are_not_merged_for_a_full_disk),
          WORLD(a_full_disk_gets_no_new_root_while_a_step_is_saved), WORLD(a_copy_is_nobodys_root),
          WORLD(layers_that_could_not_be_removed_go_later),
          WORLD(history_beyond_the_limit_loses_its_oldest_steps),
          WORLD(a_step_with_a_name_is_never_dropped),
          WORLD(the_step_that_is_mounted_stays_whatever_the_limit),
          WORLD(a_step_that_is_too_old_is_dropped),
          WORLD(a_stack_that_cannot_be_read_lets_nothing_go),
          WORLD(more_layers_than_can_be_told_let_nothing_go))
