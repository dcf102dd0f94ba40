#include "tests/unit/unit.h"

#include "io/http_crowd.h"

static void strangers_leave_a_quarter_to_the_owner(void **state) {
    (void)state;
    struct crowd c = {.max = 1024};
    /* Users of this host, one after the other, then TCP: each takes what it is given. */
    for (unsigned user = 0; user < 20; user++)
        for (c.same = 0; crowd_admits(&c, user < 19 ? CROWD_USER : CROWD_TCP); c.same++) {
            c.all++;
            c.strangers++;
        }
    assert_int_equal(c.all, 768);
    /* And some more who are only told that it is full. */
    for (; crowd_answers(&c, CROWD_USER); c.all++)
        c.strangers++;
    assert_int_equal(c.all, 832);
    unsigned mine = 0;
    for (c.same = 0; crowd_admits(&c, CROWD_OWNER); c.same = ++mine)
        c.all++;
    assert_int_equal(mine, 192);
    assert_true(crowd_answers(&c, CROWD_OWNER));
}

static void each_has_its_share_and_no_more(void **state) {
    (void)state;
    struct crowd c = {.max = 1024, .all = 255, .strangers = 255, .same = 255};
    assert_true(crowd_admits(&c, CROWD_USER));
    c.same = 256;
    assert_false(crowd_admits(&c, CROWD_USER));
    assert_true(crowd_admits(&c, CROWD_TCP));
    c.same = c.all = c.strangers = 512;
    assert_false(crowd_admits(&c, CROWD_TCP));
    c.same = 0;
    assert_true(crowd_admits(&c, CROWD_USER));
}

static void the_owner_may_have_all(void **state) {
    (void)state;
    struct crowd c = {.max = 1024, .all = 1023, .same = 1023};
    assert_true(crowd_admits(&c, CROWD_OWNER));
    c.all = 1024;
    assert_false(crowd_admits(&c, CROWD_OWNER));
    assert_true(crowd_answers(&c, CROWD_OWNER));
    assert_false(crowd_answers(&c, CROWD_TCP));
    c.all = 1024 + 64;
    assert_false(crowd_answers(&c, CROWD_OWNER));
}

static void a_small_server_still_serves_strangers(void **state) {
    (void)state;
    struct crowd c = {.max = 3};
    assert_true(crowd_admits(&c, CROWD_USER));
    assert_true(crowd_admits(&c, CROWD_TCP));
}

UNIT_MAIN(cmocka_unit_test(strangers_leave_a_quarter_to_the_owner),
          cmocka_unit_test(each_has_its_share_and_no_more),
          cmocka_unit_test(the_owner_may_have_all),
          cmocka_unit_test(a_small_server_still_serves_strangers))
