#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include "base/wire/plan.h"

static char bytes[PLAN_MAX_BYTES];
static struct plan_message in, out;

static void turn_round(void) {
    size_t n = plan_encode(&in, bytes);
    struct err err = {0};
    assert_true(n >= 4 && n <= PLAN_MAX_BYTES);
    if (plan_decode(bytes, n, &out, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(out.type, in.type);
}

static void set(enum plan_type type) {
    in = (struct plan_message){.type = type};
    snprintf(in.plan.id, sizeof(in.plan.id), "m-abcdefghij23");
}

static void the_largest_plan_survives(void **state) {
    (void)state;
    set(PLAN_CREATE);
    struct plan *p = &in.plan;
    snprintf(p->image, sizeof(p->image), "host");
    memset(p->hostname, 'h', sizeof(p->hostname) - 1);
    p->mem_bytes = UINT64_MAX;
    p->cpu_milli = 1;
    p->pids = 2;
    p->disk_bytes = 1ull << 63;
    p->deadline_ms = 3;
    p->linger = 1;
    p->grant_count = PLAN_MAX_GRANTS;
    for (size_t i = 0; i < PLAN_MAX_GRANTS; i++) {
        p->grants[i].mode = (enum plan_grant_mode)(1 + i % 3);
        memset(p->grants[i].path, 'p', PLAN_PATH_SIZE - 1);
        p->grants[i].path[0] = '/';
    }
    turn_round();
    assert_memory_equal(&out.plan, &in.plan, sizeof(in.plan));
}

static void requests_about_a_machine_survive(void **state) {
    (void)state;
    static const enum plan_type types[] = {PLAN_FACTS, PLAN_DESTROY, PLAN_FREEZE, PLAN_LIMITS,
                                           PLAN_DEADLINE};
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        set(types[i]);
        in.tag = 1000 + i;
        turn_round();
        assert_string_equal(out.plan.id, in.plan.id);
        assert_int_equal(out.tag, 1000 + i);
    }
}

static void requests_carry_what_they_change_and_nothing_else(void **state) {
    (void)state;
    set(PLAN_LIMITS);
    in.plan.mem_bytes = 1;
    in.plan.cpu_milli = PLAN_UNLIMITED;
    in.plan.pids = 3;
    in.plan.disk_bytes = 4;
    in.plan.deadline_ms = 5;
    turn_round();
    assert_true(out.plan.mem_bytes == 1 && out.plan.cpu_milli == PLAN_UNLIMITED);
    assert_true(out.plan.pids == 3 && out.plan.disk_bytes == 4 && out.plan.deadline_ms == 0);
    set(PLAN_DEADLINE);
    in.plan.deadline_ms = 5;
    in.plan.mem_bytes = 1;
    turn_round();
    assert_true(out.plan.deadline_ms == 5 && out.plan.mem_bytes == 0);
    set(PLAN_FREEZE);
    in.frozen = 1;
    turn_round();
    assert_int_equal(out.frozen, 1);
}

static void grants_keep_mode_and_marks(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        set(PLAN_CREATE);
        in.plan.grant_count = 1;
        in.plan.grants[0] = (struct plan_grant){
            .mode = PLAN_GRANT_RW, .path = "/x", .private = i & 1, .volume = i & 2};
        turn_round();
        assert_int_equal(out.plan.grants[0].mode, PLAN_GRANT_RW);
        assert_int_equal(out.plan.grants[0].private, i & 1);
        assert_int_equal(out.plan.grants[0].volume, (i & 2) != 0);
    }
}

static void pages_and_rows_survive(void **state) {
    (void)state;
    set(PLAN_LIST);
    in.cursor = 77;
    turn_round();
    assert_int_equal(out.cursor, 77);
    set(PLAN_IDS);
    in.cursor = 78;
    memset(in.text, 'm', sizeof(in.text) - 1);
    turn_round();
    assert_true(out.cursor == 78 && strlen(out.text) == sizeof(in.text) - 1);
    set(PLAN_STATS_ARE);
    in.row_count = PLAN_ROWS_MAX;
    for (size_t i = 0; i < PLAN_ROWS_MAX; i++) {
        snprintf(in.rows[i].id, sizeof(in.rows[i].id), "m-abcdefghij%c%c", (int)('a' + i % 26),
                 'z');
        memset(&in.rows[i].stats, (int)i, sizeof(in.rows[i].stats));
    }
    turn_round();
    assert_int_equal(out.row_count, PLAN_ROWS_MAX);
    assert_memory_equal(out.rows, in.rows, sizeof(in.rows));
}

static void answers_survive(void **state) {
    (void)state;
    static const enum plan_type bare[] = {PLAN_STATUS, PLAN_STOP, PLAN_DONE};
    for (size_t i = 0; i < 3; i++) {
        set(bare[i]);
        turn_round();
    }
    set(PLAN_TEXT);
    memset(in.text, 't', sizeof(in.text) - 1);
    turn_round();
    assert_string_equal(out.text, in.text);
    set(PLAN_CREATED);
    turn_round();
    assert_string_equal(out.text, "");
    set(PLAN_FACTS_ARE);
    in.facts = (struct plan_facts){1, 2, 3, 4, 5, 6, 7};
    turn_round();
    assert_memory_equal(&out.facts, &in.facts, sizeof(in.facts));
}

static void errors_keep_code_text_and_remedy(void **state) {
    (void)state;
    struct err err;
    err_set(&err, ERR_UNSUPPORTED, "no such thing");
    err_remedy(&err, "get one");
    plan_error(&in, &err);
    turn_round();
    assert_int_equal(out.error.code, ERR_UNSUPPORTED);
    assert_string_equal(out.error.text, "no such thing");
    assert_string_equal(out.error.remedy, "get one");
}

static void refused(size_t n) {
    struct err err = {0};
    assert_int_equal(plan_decode(bytes, n, &out, &err), -1);
    assert_int_not_equal(err.code, 0);
}

static void every_cut_is_refused_or_shorter(void **state) {
    (void)state;
    set(PLAN_CREATE);
    in.plan.grant_count = 1;
    in.plan.grants[0] = (struct plan_grant){PLAN_GRANT_RO, "/x"};
    size_t n = plan_encode(&in, bytes);
    for (size_t cut = 0; cut < n; cut++) {
        struct err err;
        if (plan_decode(bytes, cut, &out, &err) == 0)
            assert_true(out.plan.grant_count == 0 || cut == n);
    }
}

/* A CREATE with one field of our making behind the id. */
static size_t with_field(unsigned tag, const char *value, size_t len) {
    set(PLAN_FACTS);
    size_t n = plan_encode(&in, bytes);
    bytes[2] = PLAN_CREATE;
    const char head[] = {(char)tag, (char)(tag >> 8), (char)len, (char)(len >> 8)};
    memcpy(bytes + n, head, 4);
    memcpy(bytes + n + 4, value, len);
    return n + 4 + len;
}

static void hostile_fields_are_refused(void **state) {
    (void)state;
    refused(with_field(99, "x", 1));        /* unknown */
    refused(with_field(40, "x", 1));        /* another message's */
    refused(with_field(4, "1234567", 7));   /* a short number */
    refused(with_field(2, "ho\0st", 5));    /* NUL in a text */
    refused(with_field(12, "12345678", 8)); /* a second tag */
    refused(with_field(11, "\1x", 2));      /* a relative path */
    refused(with_field(11, "\0/x", 3));     /* no mode */
    refused(with_field(11, "\4/x", 3));     /* no such mode */
    refused(with_field(11, "\1/\0x", 4));
    refused(with_field(11, "\1", 1));
    char longest[PLAN_PATH_SIZE + 8];
    memset(longest, 'p', sizeof(longest));
    longest[0] = 1;
    longest[1] = '/';
    refused(with_field(11, longest, PLAN_PATH_SIZE + 1));
    memset(longest, 'h', sizeof(longest));
    refused(with_field(2, longest, PLAN_NAME_SIZE));
}

static void hostile_heads_are_refused(void **state) {
    (void)state;
    refused(0);
    refused(3);
    set(PLAN_STATUS);
    size_t n = plan_encode(&in, bytes);
    bytes[0] = PLAN_VERSION + 1;
    refused(n);
    n = plan_encode(&in, bytes);
    bytes[2] = 62;
    refused(n);
    set(PLAN_FACTS);
    snprintf(in.plan.id, sizeof(in.plan.id), "../../../etc/");
    refused(plan_encode(&in, bytes));
}

static void one_grant_too_many_is_refused(void **state) {
    (void)state;
    set(PLAN_CREATE);
    in.plan.grant_count = PLAN_MAX_GRANTS;
    for (size_t i = 0; i < PLAN_MAX_GRANTS; i++)
        in.plan.grants[i] = (struct plan_grant){PLAN_GRANT_COW, "/x"};
    size_t n = plan_encode(&in, bytes);
    memcpy(bytes + n, "\x0b\0\3\0\1/y", 7);
    refused(n + 7);
}

static void one_row_too_many_is_refused(void **state) {
    (void)state;
    set(PLAN_STATS);
    in.row_count = PLAN_ROWS_MAX;
    for (size_t i = 0; i < PLAN_ROWS_MAX; i++)
        memcpy(in.rows[i].id, "m-abcdefghij23", ID_SIZE);
    size_t n = plan_encode(&in, bytes), one = (n - 4 - 12) / PLAN_ROWS_MAX;
    memcpy(bytes + n, bytes + n - one, one);
    refused(n + one);
    in.row_count = 1;
    n = plan_encode(&in, bytes);
    bytes[n - one + 4] = '/'; /* the id */
    refused(n);
}

static void every_request_has_one_reply_and_no_reply_has_any(void **state) {
    (void)state;
    for (int type = PLAN_CREATE; type <= PLAN_CLAIM; type++)
        assert_true(plan_reply((enum plan_type)type) >= PLAN_CREATED &&
                    plan_reply((enum plan_type)type) != PLAN_ERROR);
    assert_int_equal(PLAN_HELLO, 63); /* of every version */
    assert_int_equal(plan_reply(PLAN_HELLO), PLAN_TEXT);
    for (int type = PLAN_CREATED; type <= PLAN_VIEW_IS; type++)
        assert_int_equal(plan_reply((enum plan_type)type), 0);
    assert_int_equal(plan_reply(PLAN_STATS), PLAN_STATS_ARE);
    assert_int_equal(plan_reply(PLAN_ROOT), PLAN_ROOT_IS);
    assert_int_equal(plan_reply(PLAN_DESTROY), PLAN_DONE);
    assert_int_equal(plan_reply((enum plan_type)0), 0);
}

/* Who reads the code alone would take it for no error. */
static void an_error_without_a_code_is_an_error(void **state) {
    (void)state;
    static struct plan_message m;
    static char packet[PLAN_MAX_BYTES];
    struct err err;
    static const uint64_t codes[] = {0, ERR_TIMEOUT + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
        m = (struct plan_message){.type = PLAN_ERROR, .error_code = codes[i]};
        assert_int_equal(plan_decode(packet, plan_encode(&m, packet), &m, &err), 0);
        assert_int_equal(m.error.code, ERR_INTERNAL);
    }
}

static void what_a_list_tells_survives(void **state) {
    (void)state;
    const struct plan_found all[] = {
        {.id = "m-4kq2x7w3n5ab", .image = "host", .layer = 1},
        {.id = "m-4kq2x7w3n5ab",
         .store = "s-4kq2x7w3n5ab",
         .image = "i-0123456789abcdef0123456789abcdef0123456789abcdef",
         .layer = 999999999,
         .mem_bytes = UINT64_MAX,
         .cpu_milli = UINT64_MAX,
         .pids = UINT64_MAX,
         .disk_bytes = UINT64_MAX,
         .left_ms = UINT64_MAX,
         .vm = 1},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        char line[PLAN_FOUND_SIZE];
        struct plan_found back = {.id = ""};
        size_t n = plan_found_print(&all[i], line);
        assert_int_equal(line[n - 1], '\n');
        line[n - 1] = '\0';
        assert_true(plan_found_parse(line, &back));
        assert_memory_equal(&back, &all[i], sizeof(back));
    }
    struct plan_found old;
    assert_true(plan_found_parse("m-4kq2x7w3n5ab", &old)); /* of an older spawner */
    assert_int_equal(old.store[0], '\0');
    static const char *const bad[] = {"",
                                      "x",
                                      "m-4kq2x7w3n5ab s-4kq2x7w3n5ab",
                                      "m-4kq2x7w3n5ab s-4kq2x7w3n5ab host 1 2 3 4 5",
                                      "m-4kq2x7w3n5ab s-../etc host 1 2 3 4 5 6",
                                      "m-4kq2x7w3n5abm-4kq2x7w3n5abm-4kq2x7w3n5ab"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_false(plan_found_parse(bad[i], &old));
}

UNIT_MAIN(cmocka_unit_test(what_a_list_tells_survives),
          cmocka_unit_test(every_request_has_one_reply_and_no_reply_has_any),
          cmocka_unit_test(an_error_without_a_code_is_an_error),
          cmocka_unit_test(the_largest_plan_survives),
          cmocka_unit_test(requests_about_a_machine_survive), cmocka_unit_test(answers_survive),
          cmocka_unit_test(errors_keep_code_text_and_remedy),
          cmocka_unit_test(every_cut_is_refused_or_shorter),
          cmocka_unit_test(hostile_fields_are_refused), cmocka_unit_test(hostile_heads_are_refused),
          cmocka_unit_test(one_grant_too_many_is_refused),
          cmocka_unit_test(requests_carry_what_they_change_and_nothing_else),
          cmocka_unit_test(grants_keep_mode_and_marks), cmocka_unit_test(pages_and_rows_survive),
          cmocka_unit_test(one_row_too_many_is_refused))
