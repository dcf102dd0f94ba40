/* Budgets: held before, exact after, shared with children, and never lost in a crash. */
#include "tests/unit/unit.h"

#include <signal.h>
#include <sys/wait.h>

#include "base/defer.h"
#include "store/accounts.h"
#include "store/spending/spending.h"
#include "tests/unit/faults.h"
#include "tests/unit/scratch.h"
#include "tests/unit/stores.h"

enum { SEGMENT = 65536 };

static void put(struct store *s, const char *id, const char *parent, uint64_t tokens,
                uint64_t micro) {
    struct account_row row = {.limit_tokens = tokens, .limit_micro = micro, .created_ms = 1};
    struct err err = {0};
    snprintf(row.id, sizeof(row.id), "%s", id);
    snprintf(row.parent, sizeof(row.parent), "%s", parent);
    if (store_account_put(s, &row, &err) < 0)
        fail_msg("%s", err.text);
}

static int hold(struct store *s, const char *account, uint64_t tokens, uint64_t micro,
                char id[ID_SIZE], struct err *err) {
    struct hold h = {.account = account,
                     .model = "m",
                     .currency = "USD",
                     .amount = {tokens, micro},
                     .least = {tokens, micro},
                     .priced = true,
                     .now_ms = 1};
    return store_hold(s, &h, id, err);
}

static struct account_row get(struct store *s, const char *id) {
    struct account_row row;
    struct err err = {0};
    if (store_account_get(s, id, &row, &err) < 0)
        fail_msg("%s", err.text);
    return row;
}

/* owner, a machine of it, its fork, and a run in the fork. */
static struct store *family(const char *home) {
    struct store *s = unit_store(home, SEGMENT);
    put(s, "owner:ann", "", 1000, 5000);
    put(s, "machine:m", "owner:ann", 600, 0);
    put(s, "machine:fork", "machine:m", 0, 0);
    put(s, "run:r", "machine:fork", 400, 4000);
    return s;
}

static void a_call_is_held_for_all_and_settled_with_what_it_cost(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s DEFER(store_closep) = family(dir.path);
    static const char *const line[] = {"owner:ann", "machine:m", "machine:fork", "run:r"};
    char id[ID_SIZE];
    struct err err = {0};
    assert_int_equal(hold(s, "run:r", 300, 3000, id, &err), 0);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(get(s, line[i]).held_tokens, 300);
        assert_int_equal(get(s, line[i]).spent_tokens, 0);
    }
    assert_int_equal(store_hold_settle(s, id, &(struct cost){120, 700}, NULL, &err), 0);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(get(s, line[i]).held_tokens, 0);
        assert_int_equal(get(s, line[i]).held_micro, 0);
        assert_int_equal(get(s, line[i]).spent_tokens, 120);
        assert_int_equal(get(s, line[i]).spent_micro, 700);
        assert_int_equal(get(s, line[i]).calls, 1);
    }
    /* Settled is settled. */
    assert_int_equal(store_hold_settle(s, id, &(struct cost){120, 700}, NULL, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(get(s, "run:r").spent_tokens, 120);
}

static void the_smallest_budget_of_the_line_counts(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s DEFER(store_closep) = family(dir.path);
    char id[ID_SIZE];
    struct err err = {0};
    struct cost left;
    assert_int_equal(hold(s, "run:r", 401, 1, id, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
    assert_string_equal(err.text, "budget of run:r 400 tokens, spent 0, this call may take 401");
    assert_int_equal(hold(s, "machine:fork", 601, 1, id, &err), -1);
    assert_string_equal(err.text, "budget 600 tokens, spent 0, this call may take 601");
    assert_string_equal(err.remedy, "carrel models raise m --tokens 2000");
    assert_int_equal(hold(s, "machine:fork", 2150000, 1, id, &err), -1);
    assert_string_equal(err.text, "budget 600 tokens, spent 0, this call may take 2,150,000");
    assert_string_equal(err.remedy, "carrel models raise m --tokens 10000000");
    assert_int_equal(hold(s, "machine:fork", 15000, 1, id, &err), -1);
    assert_string_equal(err.remedy, "carrel models raise m --tokens 40000"); /* 50000 has 500 */
    assert_int_equal(hold(s, "run:r", 1, 4001, id, &err), -1);
    assert_string_equal(err.text,
                        "budget of run:r 0.004 USD, spent 0, this call may take 0.004001");
    assert_int_equal(get(s, "owner:ann").held_tokens, 0);
    assert_int_equal(store_account_left(s, "machine:fork", &left, &err), 0);
    assert_int_equal(left.tokens, 600);
    assert_int_equal(left.micro, 5000);
}

static void a_fork_shares_what_is_left_and_never_doubles_it(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s DEFER(store_closep) = family(dir.path);
    char id[ID_SIZE];
    struct err err = {0};
    put(s, "machine:fork2", "machine:m", 0, 0);
    assert_int_equal(hold(s, "machine:fork", 300, 1, id, &err), 0);
    assert_int_equal(hold(s, "machine:fork2", 300, 1, id, &err), 0);
    assert_int_equal(hold(s, "machine:fork2", 1, 1, id, &err), -1);
    assert_int_equal(err.code, ERR_BUSY); /* it may fit once the other calls are settled */
    assert_int_equal(hold(s, "machine:m", 1, 1, id, &err), -1);
    assert_non_null(strstr(err.text, "budget 600 tokens"));
}

/* Two calls at once: what the first may cost is not there for the second until it is settled. */
static void calls_side_by_side_share_one_limit_of_money(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s DEFER(store_closep) = unit_store(dir.path, SEGMENT);
    char first[ID_SIZE], second[ID_SIZE];
    struct err err = {0};
    struct cost left;
    put(s, "owner:ann", "", 0, 100);
    put(s, "run:a", "owner:ann", 0, 0);
    put(s, "run:b", "owner:ann", 0, 0);
    assert_int_equal(hold(s, "run:a", 5, 60, first, &err), 0);
    assert_int_equal(store_account_left(s, "run:b", &left, &err), 0);
    assert_int_equal(left.micro, 40);
    assert_int_equal(hold(s, "run:b", 5, 41, second, &err), -1);
    assert_int_equal(err.code, ERR_BUSY);
    assert_int_equal(hold(s, "run:b", 5, 101, second, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
    assert_string_equal(err.remedy, "raise owner_money in carrel.conf");
    assert_int_equal(hold(s, "run:b", 5, 40, second, &err), 0);
    assert_int_equal(hold(s, "run:a", 5, 1, second, &err), -1);
    assert_int_equal(store_hold_settle(s, first, &(struct cost){5, 10}, NULL, &err), 0);
    assert_int_equal(get(s, "owner:ann").held_micro, 40);
    assert_int_equal(hold(s, "run:a", 5, 51, second, &err), -1);
    assert_int_equal(hold(s, "run:a", 5, 50, second, &err), 0);
}

/* A call that has a smaller form waits for other calls as long as that form can fit. */
static void a_smaller_form_of_a_call_decides_whether_it_waits(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s DEFER(store_closep) = unit_store(dir.path, SEGMENT);
    char first[ID_SIZE], id[ID_SIZE];
    struct err err = {0};
    struct hold h = {.account = "machine:m", .model = "m", .amount = {200, 0}, .least = {50, 0}};
    put(s, "owner:ann", "", 0, 0);
    put(s, "machine:m", "owner:ann", 100, 0);
    assert_int_equal(store_hold(s, &h, id, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT); /* nothing to wait for */
    assert_int_equal(hold(s, "machine:m", 60, 0, first, &err), 0);
    assert_int_equal(store_hold(s, &h, id, &err), -1);
    assert_int_equal(err.code, ERR_BUSY);
    assert_int_equal(store_hold_settle(s, first, &(struct cost){60, 0}, NULL, &err), 0);
    assert_int_equal(hold(s, "machine:m", 10, 0, first, &err), 0);
    assert_int_equal(store_hold(s, &h, id, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT); /* 60 are spent for good */
}

static void four_calls_of_a_budget_are_in_progress_at_most(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s DEFER(store_closep) = family(dir.path);
    char id[ACCOUNT_FLIGHTS_MAX][ID_SIZE], more[ID_SIZE];
    struct err err = {0};
    put(s, "machine:free", "", 0, 0);
    for (size_t i = 0; i < ACCOUNT_FLIGHTS_MAX; i++)
        assert_int_equal(hold(s, i & 1 ? "machine:fork" : "run:r", 1, 1, id[i], &err), 0);
    assert_int_equal(hold(s, "owner:ann", 1, 1, more, &err), -1);
    assert_int_equal(err.code, ERR_BUSY);
    assert_int_equal(hold(s, "owner:ann", 5000, 1, more, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT); /* waiting would not help */
    assert_int_equal(hold(s, "machine:free", 1, 1, more, &err), 0);
    assert_int_equal(store_hold_settle(s, id[1], &(struct cost){1, 1}, NULL, &err), 0);
    assert_int_equal(hold(s, "machine:m", 1, 1, more, &err), 0);
    assert_int_equal(hold(s, "machine:m", 1, 1, more, &err), -1);
    /* An account without a limit has no such rule. */
    for (size_t i = 0; i < 2 * ACCOUNT_FLIGHTS_MAX; i++)
        assert_int_equal(hold(s, "machine:free", 1, 1, more, &err), 0);
}

static void a_call_nobody_knows_the_usage_of_costs_what_was_held(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s DEFER(store_closep) = family(dir.path);
    char id[ID_SIZE];
    struct err err = {0};
    assert_int_equal(hold(s, "run:r", 300, 3000, id, &err), 0);
    assert_int_equal(store_hold_keep(s, id, &err), 0);
    assert_int_equal(get(s, "owner:ann").spent_tokens, 300);
    assert_int_equal(get(s, "owner:ann").held_tokens, 0);
}

static void what_cost_more_than_was_held_is_charged_all_the_same(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s DEFER(store_closep) = family(dir.path);
    char id[ID_SIZE];
    struct err err = {0};
    struct cost left;
    assert_int_equal(hold(s, "run:r", 10, 10, id, &err), 0);
    assert_int_equal(store_hold_settle(s, id, &(struct cost){5000, 9000}, NULL, &err), 0);
    assert_int_equal(get(s, "run:r").spent_tokens, 5000);
    assert_int_equal(get(s, "run:r").spent_micro, 9000);
    assert_int_equal(store_account_left(s, "run:r", &left, &err), 0);
    assert_int_equal(left.tokens, 0);
    assert_int_equal(left.micro, 0);
    assert_int_equal(hold(s, "run:r", 1, 1, id, &err), -1);
}

static void without_a_price_a_budget_in_money_refuses(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s DEFER(store_closep) = family(dir.path);
    char id[ID_SIZE];
    struct err err = {0};
    struct hold h = {.account = "run:r", .model = "new-model", .amount = {1, 0}, .least = {1, 0}};
    assert_int_equal(store_hold(s, &h, id, &err), -1);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "new-model"));
    assert_non_null(strstr(err.remedy, "carrel.conf"));
    put(s, "owner:cat", "", 0, 100); /* in money alone */
    h.account = "owner:cat";
    assert_int_equal(store_hold(s, &h, id, &err), -1);
    assert_int_equal(err.code, ERR_UNSUPPORTED);
    put(s, "owner:ben", "", 100, 0);
    h.account = "owner:ben";
    assert_int_equal(store_hold(s, &h, id, &err), 0);
}

static void limits_change_and_parents_do_not(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s DEFER(store_closep) = family(dir.path);
    char id[ID_SIZE];
    struct err err = {0};
    assert_int_equal(hold(s, "run:r", 400, 1, id, &err), 0);
    put(s, "run:r", "owner:ann", 500, 4000);
    assert_string_equal(get(s, "run:r").parent, "machine:fork");
    assert_int_equal(get(s, "run:r").held_tokens, 400);
    assert_int_equal(hold(s, "run:r", 100, 1, id, &err), 0);
}

static void accounts_that_make_no_sense_are_refused(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s DEFER(store_closep) = family(dir.path);
    char id[ID_SIZE], name[32], parent[32] = "owner:ann";
    struct err err = {0};
    struct account_row row = {.id = "x", .parent = "nobody"};
    assert_int_equal(store_account_put(s, &row, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(store_account_put(s, &(struct account_row){0}, &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
    assert_int_equal(hold(s, "nobody", 1, 1, id, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(hold(s, "run:r", UINT64_MAX, 1, id, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
    for (int i = 1; i < ACCOUNT_DEPTH_MAX; i++) {
        snprintf(name, sizeof(name), "deep%d", i);
        put(s, name, parent, 0, 0);
        memcpy(parent, name, sizeof(parent));
    }
    row = (struct account_row){.id = "too-deep"};
    snprintf(row.parent, sizeof(row.parent), "%s", parent);
    assert_int_equal(store_account_put(s, &row, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
    /* The deepest one still reaches the first. */
    assert_int_equal(hold(s, parent, 7, 1, id, &err), 0);
    assert_int_equal(get(s, "owner:ann").held_tokens, 7);
}

/* ---- Crashes ---- */

/* A child dies by SIGKILL after so many steps of: hold, settle, hold. */
static void die_after(const char *home, int steps) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct store *s = unit_store(home, SEGMENT);
        char id[ID_SIZE];
        if (steps >= 1 && hold(s, "run:r", 100, 1000, id, NULL) < 0)
            _exit(1);
        if (steps >= 2 && store_hold_settle(s, id, &(struct cost){10, 50}, NULL, NULL) < 0)
            _exit(1);
        if (steps >= 3 && hold(s, "machine:m", 30, 200, id, NULL) < 0)
            _exit(1);
        kill(getpid(), SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static void a_kill_between_hold_and_settle_leaves_the_hold_charged(void **state) {
    (void)state;
    static const struct {
        size_t left;
        uint64_t owner, run, micro;
    } wanted[] = {{0, 0, 0, 0}, {1, 100, 100, 1000}, {0, 10, 10, 50}, {1, 40, 10, 250}};
    for (int steps = 0; steps < 4; steps++) {
        struct scratch dir DEFER(scratch_done) = scratch_new();
        store_close(family(dir.path));
        die_after(dir.path, steps);
        struct store *s DEFER(store_closep) = unit_store(dir.path, SEGMENT);
        struct account_row before = get(s, "owner:ann");
        assert_int_equal(before.spent_tokens + before.held_tokens, wanted[steps].owner);
        size_t count = 99;
        struct err err = {0};
        assert_int_equal(store_holds_charge(s, &count, &err), 0);
        assert_int_equal(count, wanted[steps].left);
        assert_int_equal(get(s, "owner:ann").spent_tokens, wanted[steps].owner);
        assert_int_equal(get(s, "owner:ann").spent_micro, wanted[steps].micro);
        assert_int_equal(get(s, "owner:ann").held_tokens, 0);
        assert_int_equal(get(s, "run:r").spent_tokens, wanted[steps].run);
        assert_int_equal(store_holds_charge(s, &count, &err), 0);
        assert_int_equal(count, 0);
    }
}

/* Every write of a hold and a settlement fails once: all or nothing, and the line agrees. */
static void a_disk_that_fails_leaves_all_or_nothing(void **state) {
    (void)state;
    int failed = 0, done = 0;
    for (int nth = 1; nth < 60; nth++) {
        struct scratch dir DEFER(scratch_done) = scratch_new();
        struct store *s = family(dir.path);
        char id[ID_SIZE];
        struct err err = {0};
        faults_set(nth, ENOSPC, false, nth & 1, false);
        bool held = hold(s, "run:r", 100, 1000, id, &err) == 0;
        bool settled = held && store_hold_settle(s, id, &(struct cost){10, 50}, NULL, &err) == 0;
        faults_set(0, 0, false, false, false);
        store_close(s);
        s = unit_store(dir.path, SEGMENT);
        struct account_row run = get(s, "run:r"), owner = get(s, "owner:ann");
        assert_int_equal(run.spent_tokens, owner.spent_tokens);
        assert_int_equal(run.held_tokens, owner.held_tokens);
        assert_int_equal(run.held_tokens, held && !settled ? 100 : 0);
        assert_int_equal(run.spent_tokens, settled ? 10 : 0);
        store_close(s);
        failed += !settled;
        done += settled;
    }
    assert_true(failed > 0 && done > 0);
}

/* Settles a call of this day (since 1970). */
static void spend_on(struct store *s, const char *account, const char *model, int64_t day,
                     struct cost cost) {
    char id[ID_SIZE];
    struct err err = {0};
    const struct hold h = {.account = account,
                           .model = model,
                           .amount = cost,
                           .least = cost,
                           .priced = true,
                           .now_ms = day * 86400 * 1000 + 5};
    const struct cost_parts parts = {.in = 1, .cache_read = 2, .cache_write = 3, .out = 4};
    if (store_hold(s, &h, id, &err) < 0 || store_hold_settle(s, id, &cost, &parts, &err) < 0)
        fail_msg("%s", err.text);
}

static void spending_is_summed_by_day_model_machine_and_owner(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s DEFER(store_closep) = family(dir.path);
    static const struct {
        const char *owner;
        enum spending_by by;
        int64_t since;
        size_t count;
        const char *first;
        uint64_t calls, tokens, micro;
    } cases[] = {
        {"ann", SPENDING_BY_DAY, 0, 2, "1974-02-03", 2, 70, 701},
        {"ann", SPENDING_BY_DAY, 1495, 0, NULL, 0, 0, 0},
        {"ann", SPENDING_BY_MODEL, 0, 2, "big", 1, 30, 700},
        {"ann", SPENDING_BY_MACHINE, 0, 3, "fork", 1, 30, 700},
        {"ann", SPENDING_BY_MACHINE, 1494, 2, "fork", 1, 30, 700},
        {"ann", SPENDING_BY_OWNER, 0, 1, "ann", 3, 90, 706},
        {NULL, SPENDING_BY_OWNER, 0, 2, "bob", 1, 900, 900},
    };
    put(s, "owner:bob", "", 0, 0);
    spend_on(s, "machine:m", "small", 1493, (struct cost){20, 5});
    spend_on(s, "owner:ann", "small", 1494, (struct cost){40, 1});
    spend_on(s, "run:r", "big", 1494, (struct cost){30, 700});
    spend_on(s, "owner:bob", "big", 1494, (struct cost){900, 900});
    spend_on(s, "machine:m", "free", 1494, (struct cost){0, 0});
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct spending_row *rows = NULL;
        size_t count = 0;
        struct err err = {0};
        assert_int_equal(
            store_spending(s, cases[i].owner, cases[i].by, cases[i].since, &rows, &count, &err), 0);
        assert_int_equal(count, cases[i].count);
        if (count) {
            assert_string_equal(rows[0].key, cases[i].first);
            assert_int_equal(rows[0].calls, cases[i].calls);
            assert_int_equal(rows[0].cost.tokens, cases[i].tokens);
            assert_int_equal(rows[0].cost.micro, cases[i].micro);
            assert_int_equal(rows[0].parts.cache_write, 3 * cases[i].calls);
            assert_int_equal(rows[0].parts.out, 4 * cases[i].calls);
        }
        free(rows);
    }
}

static void old_spending_is_dropped(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct store *s DEFER(store_closep) = family(dir.path);
    struct spending_row *rows = NULL;
    size_t count = 0;
    struct err err = {0};
    spend_on(s, "machine:m", "old", 1000, (struct cost){1, 1});
    spend_on(s, "machine:m", "kept", 1001, (struct cost){1, 1});
    spend_on(s, "machine:m", "new", 1001 + SPENDING_DAYS, (struct cost){1, 1});
    assert_int_equal(store_spending(s, "ann", SPENDING_BY_MODEL, 0, &rows, &count, &err), 0);
    assert_int_equal(count, 2);
    assert_string_equal(rows[0].key, "kept");
    assert_string_equal(rows[1].key, "new");
    free(rows);
}

UNIT_MAIN(cmocka_unit_test(a_call_is_held_for_all_and_settled_with_what_it_cost),
          cmocka_unit_test(the_smallest_budget_of_the_line_counts),
          cmocka_unit_test(a_fork_shares_what_is_left_and_never_doubles_it),
          cmocka_unit_test(calls_side_by_side_share_one_limit_of_money),
          cmocka_unit_test(a_smaller_form_of_a_call_decides_whether_it_waits),
          cmocka_unit_test(four_calls_of_a_budget_are_in_progress_at_most),
          cmocka_unit_test(a_call_nobody_knows_the_usage_of_costs_what_was_held),
          cmocka_unit_test(what_cost_more_than_was_held_is_charged_all_the_same),
          cmocka_unit_test(without_a_price_a_budget_in_money_refuses),
          cmocka_unit_test(limits_change_and_parents_do_not),
          cmocka_unit_test(accounts_that_make_no_sense_are_refused),
          cmocka_unit_test(a_kill_between_hold_and_settle_leaves_the_hold_charged),
          cmocka_unit_test(a_disk_that_fails_leaves_all_or_nothing),
          cmocka_unit_test(spending_is_summed_by_day_model_machine_and_owner),
          cmocka_unit_test(old_spending_is_dropped))
