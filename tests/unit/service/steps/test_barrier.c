/* The step barrier of a machine, over a real store whose disk is full when a test says so. */
#include "tests/unit/unit.h"

#include <stdlib.h>

#include "service/steps/barrier.h"
#include "service/steps/inner.h"
#include "store/events.h"
#include "store/owners.h"
#include "tests/unit/faults.h"
#include "tests/unit/loops.h"
#include "tests/unit/scratch.h"
#include "tests/unit/stores.h"

struct world {
    struct scratch dir;
    struct service service;
    struct live live;
    struct live_steps steps;
    bool written;
};

/* A caller that wants to change the machine, and asks again when it is called. */
struct waiter {
    struct world *world;
    bool closes; /* it changes the root, so that those behind it wait on */
    int turn;
    unsigned calls;
    struct err err;
};

static int world_new(void **state) {
    struct world *w = calloc(1, sizeof(*w));
    struct err err;
    w->dir = scratch_new();
    w->service.loop = loop_new(&err);
    w->service.store = unit_store_of(w->dir.path, &unit_ann);
    w->service.commits = commits_new(w->service.loop, w->service.store);
    w->live = (struct live){.service = &w->service, .refs = 1, .steps = &w->steps};
    barrier_init(&w->live);
    *state = w;
    return 0;
}

static int world_free(void **state) {
    struct world *w = *state;
    faults_set(0, 0, false, false, false);
    barrier_release(&w->live);
    commits_free(w->service.commits);
    assert_int_equal(w->live.refs, 1);
    store_close(w->service.store);
    loop_free(w->service.loop);
    scratch_done(&w->dir);
    free(w);
    return 0;
}

static void ask(void *arg) {
    struct waiter *c = arg;
    c->calls++;
    c->turn = barrier_enter(&c->world->live, ask, c, &c->err);
    if (c->turn == 0 && c->closes)
        barrier_close(&c->world->live);
    if (c->calls > 1)
        loop_stop(c->world->service.loop);
}

/* Until who waits is called, or never is. */
static void run(struct world *w) {
    unit_loop_run(w->service.loop, 60000);
}

static int deed_write(void *arg, struct err *err) {
    struct world *w = arg;
    struct event_row row = {.owner = "ann", .type = "deed", .machine = "m"};
    return store_event_add(w->service.store, &row, &row.id, err);
}

static void deed_done(void *arg, const struct err *failed) {
    struct world *w = arg;
    assert_null(failed);
    w->written = true;
}

/* Something is done to the machine, and there is no room to write it down. */
static void do_unwritten(struct world *w) {
    faults_set(1, ENOSPC, true, false, false);
    commit_run(w->service.commits, &w->live.lane, &(struct commit){deed_write, deed_done, NULL, w});
    assert_false(w->written);
}

static void open_barrier_lets_everybody_in(void **state) {
    struct world *w = *state;
    struct waiter c = {.world = w};
    ask(&c);
    assert_int_equal(c.turn, 0);
    assert_false(barrier_wait(&w->live, ask, &c));
}

static void a_change_waits_until_the_one_before_it_is_written(void **state) {
    struct world *w = *state;
    struct waiter c = {.world = w};
    do_unwritten(w);
    ask(&c);
    assert_int_equal(c.turn, 1);
    faults_set(0, 0, false, false, false);
    run(w);
    assert_int_equal(c.calls, 2);
    assert_int_equal(c.turn, 0);
    assert_true(w->written);
}

static void who_waits_long_for_a_full_disk_is_refused(void **state) {
    struct world *w = *state;
    struct waiter c = {.world = w};
    do_unwritten(w);
    ask(&c);
    assert_int_equal(c.turn, 1);
    run(w);
    assert_int_equal(c.turn, -1);
    assert_int_equal(c.err.code, ERR_LIMIT);
    assert_false(w->written);
    /* Who only looks does not wait for that. */
    assert_false(barrier_wait_settled(&w->live, ask, &c));
    assert_false(barrier_wait_root(&w->live, ask, &c));
}

static void who_reads_waits_for_a_root_alone(void **state) {
    struct world *w = *state;
    struct waiter c = {.world = w};
    do_unwritten(w);
    assert_false(barrier_wait_root(&w->live, ask, &c));
    barrier_close(&w->live);
    assert_true(barrier_wait_root(&w->live, ask, &c));
}

static void caller_that_closes_the_barrier_holds_up_those_behind_it(void **state) {
    struct world *w = *state;
    struct waiter a = {.world = w, .closes = true}, b = {.world = w};
    barrier_close(&w->live);
    ask(&a);
    ask(&b);
    assert_true(a.turn == 1 && b.turn == 1);
    barrier_open(&w->live);
    assert_int_equal(a.turn, 0);
    assert_int_equal(b.calls, 1);
    barrier_open(&w->live);
    assert_int_equal(b.calls, 2);
    assert_int_equal(b.turn, 0);
}

static void opened_barrier_stays_shut_until_the_last_change_is_written(void **state) {
    struct world *w = *state;
    struct waiter c = {.world = w};
    barrier_close(&w->live);
    ask(&c);
    do_unwritten(w);
    barrier_open(&w->live);
    assert_int_equal(c.calls, 1);
}

static void a_machine_takes_no_changes_before_it_is_heard(void **state) {
    struct world *w = *state;
    struct waiter c = {.world = w}, late = {.world = w};
    w->live.machine = (struct machine *)w; /* only that there is one matters */
    ask(&c);
    assert_int_equal(c.turn, 1);
    w->live.reach.tries = 4;
    ask(&late);
    assert_int_equal(late.turn, -1);
    assert_int_equal(late.err.code, ERR_BUSY);
    w->live.reach.heard = true;
    barrier_heard(&w->live);
    assert_int_equal(c.calls, 2);
    assert_int_equal(c.turn, 0);
}

static void nobody_waits_for_a_machine_that_ends(void **state) {
    struct world *w = *state;
    struct waiter c = {.world = w};
    barrier_close(&w->live);
    w->live.row.state = MACHINE_ENDING;
    ask(&c);
    assert_int_equal(c.turn, 0);
}

#define WORLD(f) cmocka_unit_test_setup_teardown(f, world_new, world_free)
UNIT_MAIN(WORLD(open_barrier_lets_everybody_in),
          WORLD(a_change_waits_until_the_one_before_it_is_written),
          WORLD(who_waits_long_for_a_full_disk_is_refused), WORLD(who_reads_waits_for_a_root_alone),
          WORLD(caller_that_closes_the_barrier_holds_up_those_behind_it),
          WORLD(opened_barrier_stays_shut_until_the_last_change_is_written),
          WORLD(a_machine_takes_no_changes_before_it_is_heard),
          WORLD(nobody_waits_for_a_machine_that_ends))
