/* A set of names: what it says of names that it has, has not, and has no room for. */
#include <stdio.h>

#include "spawn/disk/name_set.h"
#include "tests/unit/unit.h"

static void put_names(struct name_set *n, unsigned from, unsigned to) {
    char name[16];
    for (unsigned i = from; i < to; i++) {
        snprintf(name, sizeof(name), "f%u", i);
        name_set_add(n, name);
    }
}

static unsigned count_maybe(const struct name_set *n, unsigned from, unsigned to) {
    unsigned count = 0;
    char name[16];
    for (unsigned i = from; i < to; i++) {
        snprintf(name, sizeof(name), "f%u", i);
        count += name_set_may_have(n, name);
    }
    return count;
}

static void a_name_that_was_added_is_found_and_no_other(void **state) {
    (void)state;
    size_t room = 1000;
    struct name_set n;
    name_set_init(&n, &room);
    assert_int_equal(count_maybe(&n, 0, 10), 0);
    put_names(&n, 0, 900);
    put_names(&n, 0, 900);
    assert_int_equal(room, 100);
    assert_int_equal(count_maybe(&n, 0, 900), 900);
    assert_int_equal(count_maybe(&n, 900, 2000), 0);
    name_set_done(&n);
    assert_int_equal(room, 1000);
}

static void a_set_without_room_denies_no_name(void **state) {
    (void)state;
    size_t room = 100;
    struct name_set n, other;
    name_set_init(&n, &room);
    name_set_init(&other, &room);
    put_names(&n, 0, 100);
    assert_int_equal(count_maybe(&n, 100, 200), 0);
    put_names(&n, 100, 101);
    assert_int_equal(count_maybe(&n, 0, 200), 200);
    put_names(&other, 0, 1);
    assert_int_equal(count_maybe(&other, 0, 200), 200);
    name_set_done(&n);
    name_set_done(&other);
    assert_int_equal(room, 100);
}

UNIT_MAIN(cmocka_unit_test(a_name_that_was_added_is_found_and_no_other),
          cmocka_unit_test(a_set_without_room_denies_no_name))
