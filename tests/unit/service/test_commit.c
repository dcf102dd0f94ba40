/* Commit, then acknowledge: over a real store, whose disk is full or fails when a test says so. */
#include "tests/unit/unit.h"

#include <sqlite3.h>
#include <stdlib.h>

#include "base/defer.h"
#include "service/commit.h"
#include "store/events.h"
#include "store/owners.h"
#include "tests/unit/faults.h"
#include "tests/unit/scratch.h"

enum { WORDS = 200 };

/* What happened, in order, as letters. */
struct world {
    struct scratch dir;
    struct loop *loop;
    struct store *store;
    struct commits *commits;
    struct commit_lane lane, other;
    char said[WORDS];
};

struct deed {
    struct world *world;
    char letter; /* small: written; large: done; '!' before it: never */
    bool impossible, again;
    bool late, locked; /* locked: by another program */
};

static unsigned broken;

static void on_broken(const struct err *why) {
    assert_true(why->remedy[0]);
    broken++;
}

static void world_say(struct world *w, char letter) {
    size_t n = strlen(w->said);
    assert_true(n + 1 < WORDS);
    w->said[n] = letter;
}

static void lane_filled(void *arg) {
    world_say(arg, '[');
}

static void lane_emptied(void *arg) {
    world_say(arg, ']');
}

static int world_new(void **state) {
    struct world *w = calloc(1, sizeof(*w));
    struct err err;
    w->dir = scratch_new();
    struct store_options options = {.home = w->dir.path, .broken = on_broken};
    struct owner_row owner = {.name = "ann", .uid = 1000};
    w->loop = loop_new(&err);
    assert_int_equal(store_open(&options, &w->store, &err), 0);
    assert_int_equal(store_owner_put(w->store, &owner, &err), 0);
    w->commits = commits_new(w->loop, w->store);
    w->lane = (struct commit_lane){.filled = lane_filled, .emptied = lane_emptied, .arg = w};
    w->other = (struct commit_lane){.arg = w};
    *state = w;
    broken = 0;
    return 0;
}

static int world_free(void **state) {
    struct world *w = *state;
    faults_set(0, 0, false, false, false);
    commits_free(w->commits);
    store_close(w->store);
    loop_free(w->loop);
    scratch_done(&w->dir);
    free(w);
    return 0;
}

static int deed_write(void *arg, struct err *err) {
    struct deed *d = arg;
    struct event_row row = {.owner = "ann", .type = "deed"};
    assert_true(store_in_transaction(d->world->store));
    if (d->impossible)
        return err_set(err, ERR_NOT_FOUND, "there is no such row");
    snprintf(row.machine, sizeof(row.machine), "%c", d->letter);
    return store_event_add(d->world->store, &row, &row.id, err);
}

static size_t deeds_of(struct store *s, char letter) {
    struct event_list list DEFER(event_list_done) = {0};
    const char machine[] = {letter, '\0'};
    struct event_filter filter = {.machine = machine, .type = "deed", .limit = 100};
    assert_int_equal(store_event_list(s, 0, &filter, &list, NULL), 0);
    return list.count;
}

/* It is told only of what is written. */
static void deed_done(void *arg, const struct err *failed) {
    struct deed *d = arg;
    assert_false(store_in_transaction(d->world->store));
    if (failed)
        world_say(d->world, '!');
    else
        assert_int_equal(deeds_of(d->world->store, d->letter), 1);
    world_say(d->world, d->letter);
    if (d->again) { /* one leads to the next, in the same lane */
        d->again = false;
        d->letter = 'z';
        commit_run(d->world->commits, &d->world->lane,
                   &(struct commit){deed_write, deed_done, NULL, d});
    }
}

static void deed_late(void *arg, const struct err *why) {
    struct deed *d = arg;
    assert_int_equal(why->code, d->locked ? ERR_BUSY : ERR_LIMIT);
    assert_false(d->late);
    d->late = true;
    loop_stop(d->world->loop);
}

static void run_in(struct commit_lane *lane, struct deed *d) {
    commit_run(d->world->commits, lane, &(struct commit){deed_write, deed_done, deed_late, d});
}

static void stop_when_empty(void *arg) {
    lane_emptied(arg);
    loop_stop(((struct world *)arg)->loop);
}

/* Until the lane is empty. */
static void run_loop(struct world *w) {
    w->lane.emptied = stop_when_empty;
    assert_true(commit_waits(&w->lane));
    loop_run(w->loop);
}

static void with_room_it_is_done_at_once(void **state) {
    struct world *w = *state;
    struct deed a = {w, 'a'}, b = {w, 'b'};
    run_in(&w->lane, &a);
    run_in(&w->lane, &b);
    assert_string_equal(w->said, "ab");
    assert_false(commit_waits(&w->lane));
}

static void on_a_full_disk_nobody_is_told_before_there_is_room(void **state) {
    struct world *w = *state;
    struct deed a = {w, 'a'}, b = {w, 'b'}, c = {w, 'c'};
    faults_set(1, ENOSPC, true, false, false);
    run_in(&w->lane, &a);
    run_in(&w->lane, &b);
    assert_string_equal(w->said, "[");
    assert_true(commit_waits(&w->lane));
    assert_int_equal(deeds_of(w->store, 'a'), 0);
    faults_set(0, 0, false, false, false);
    run_in(&w->lane, &c); /* there is room, but others come first */
    assert_string_equal(w->said, "[");
    run_loop(w);
    assert_string_equal(w->said, "[abc]");
    assert_int_equal(broken, 0);
}

static void a_lane_does_not_wait_for_another(void **state) {
    struct world *w = *state;
    struct deed a = {w, 'a'}, b = {w, 'b'};
    faults_set(1, ENOSPC, true, false, false);
    run_in(&w->lane, &a);
    faults_set(0, 0, false, false, false);
    run_in(&w->other, &b);
    assert_string_equal(w->said, "[b");
    run_loop(w);
    assert_string_equal(w->said, "[ba]");
}

static void who_waits_long_is_told_once_and_it_is_done_later(void **state) {
    struct world *w = *state;
    struct deed a = {w, 'a'};
    struct err err;
    faults_set(1, ENOSPC, true, false, false);
    run_in(&w->lane, &a);
    assert_false(commit_is_late(&w->lane));
    loop_run(w->loop); /* deed_late() stops it */
    assert_true(a.late && commit_is_late(&w->lane));
    assert_int_equal(commit_why_late(&w->lane, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
    faults_set(0, 0, false, false, false);
    run_loop(w);
    assert_string_equal(w->said, "[a]");
    assert_false(commit_is_late(&w->lane));
}

static sqlite3 *lock_database(struct world *w) {
    char path[4096];
    sqlite3 *other = NULL;
    snprintf(path, sizeof(path), "%s/carrel.db", w->dir.path);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    return other;
}

static void check_told_of_lock(struct world *w, sqlite3 *other, const struct deed *d) {
    struct err err;
    loop_run(w->loop); /* deed_late() stops it */
    assert_true(d->late && commit_is_late(&w->lane));
    assert_int_equal(commit_why_late(&w->lane, &err), -1);
    assert_int_equal(err.code, ERR_BUSY);
    assert_non_null(strstr(err.text, "locked"));
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    run_loop(w);
    assert_string_equal(w->said, "[a]");
}

static void a_lock_of_another_program_is_not_told_as_a_full_disk(void **state) {
    struct world *w = *state;
    struct deed a = {w, 'a', .locked = true};
    sqlite3 *other = lock_database(w);
    run_in(&w->lane, &a);
    check_told_of_lock(w, other, &a);
}

static void a_lock_that_follows_a_full_disk_is_told(void **state) {
    struct world *w = *state;
    struct deed a = {w, 'a', .locked = true};
    faults_set(1, ENOSPC, true, false, false);
    run_in(&w->lane, &a);
    faults_set(0, 0, false, false, false);
    check_told_of_lock(w, lock_database(w), &a);
}

static void what_can_never_be_written_does_not_hold_up_the_rest(void **state) {
    struct world *w = *state;
    struct deed a = {w, 'a', .impossible = true}, b = {w, 'b'}, c = {w, 'c', .impossible = true};
    run_in(&w->lane, &a);
    assert_string_equal(w->said, "!a");
    faults_set(1, ENOSPC, true, false, false);
    run_in(&w->lane, &b);
    run_in(&w->lane, &c);
    faults_set(0, 0, false, false, false);
    run_loop(w);
    assert_string_equal(w->said, "!a[b!c]");
}

static void one_may_lead_to_the_next(void **state) {
    struct world *w = *state;
    struct deed a = {w, 'a', .again = true};
    faults_set(1, ENOSPC, true, false, false);
    run_in(&w->lane, &a);
    faults_set(0, 0, false, false, false);
    run_loop(w);
    assert_string_equal(w->said, "[az]");
}

static void an_intent_is_written_now_or_never(void **state) {
    struct world *w = *state;
    struct deed a = {w, 'a'}, b = {w, 'b'}, c = {w, 'c'};
    const struct commit intent = {deed_write, deed_done, NULL, &b};
    struct err err;
    assert_int_equal(commit_once(w->commits, &w->lane, &intent, &err), 0);
    assert_int_equal(deeds_of(w->store, 'b'), 1);
    faults_set(1, ENOSPC, true, false, false);
    const struct commit refused = {deed_write, deed_done, NULL, &c};
    assert_int_equal(commit_once(w->commits, &w->lane, &refused, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
    assert_false(commit_waits(&w->lane));
    run_in(&w->lane, &a);
    faults_set(0, 0, false, false, false);
    /* There is room, but what was done before it is not written. */
    assert_int_equal(commit_once(w->commits, &w->lane, &refused, &err), -1);
    run_loop(w);
    assert_int_equal(deeds_of(w->store, 'c'), 0);
    assert_string_equal(w->said, "[a]");
}

static void a_disk_that_fails_is_told_at_once_and_takes_no_more(void **state) {
    struct world *w = *state;
    struct deed a = {w, 'a'}, b = {w, 'b'};
    struct err err;
    faults_set(1, EIO, false, false, false);
    run_in(&w->lane, &a);
    assert_int_equal(broken, 1);
    faults_set(0, 0, false, false, false);
    run_in(&w->lane, &b);
    assert_string_equal(w->said, "!a!b"); /* the daemon has left by then */
    assert_int_equal(store_check(w->store, &err), -1);
}

static void a_journal_that_fails_is_told_at_once(void **state) {
    struct world *w = *state;
    struct journal_record record = {.kind = JOURNAL_NOTE, .verb = "test"};
    struct err err;
    faults_set(1, ENOSPC, false, false, false);
    assert_int_equal(store_log(w->store, &record, NULL, &err), -1);
    assert_true(store_is_full(w->store));
    assert_int_equal(broken, 0);
    faults_set(1, EIO, false, false, false);
    assert_int_equal(store_log(w->store, &record, NULL, &err), -1);
    assert_false(store_is_full(w->store));
    assert_int_equal(broken, 1);
}

static void a_quota_is_a_full_disk(void **state) {
    struct world *w = *state;
    struct deed a = {w, 'a'};
    faults_set(1, EDQUOT, true, false, false);
    run_in(&w->lane, &a);
    assert_string_equal(w->said, "[");
    assert_int_equal(broken, 0);
    faults_set(0, 0, false, false, false);
    run_loop(w);
    assert_string_equal(w->said, "[a]");
}

#define WORLD(f) cmocka_unit_test_setup_teardown(f, world_new, world_free)

UNIT_MAIN(WORLD(with_room_it_is_done_at_once),
          WORLD(on_a_full_disk_nobody_is_told_before_there_is_room),
          WORLD(a_lane_does_not_wait_for_another),
          WORLD(who_waits_long_is_told_once_and_it_is_done_later),
          WORLD(a_lock_of_another_program_is_not_told_as_a_full_disk),
          WORLD(a_lock_that_follows_a_full_disk_is_told),
          WORLD(what_can_never_be_written_does_not_hold_up_the_rest),
          WORLD(one_may_lead_to_the_next), WORLD(an_intent_is_written_now_or_never),
          WORLD(a_disk_that_fails_is_told_at_once_and_takes_no_more),
          WORLD(a_journal_that_fails_is_told_at_once), WORLD(a_quota_is_a_full_disk))
