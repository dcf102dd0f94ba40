#include <fcntl.h>

#include "spawn/fuse/nodes.h"
#include "tests/unit/unit.h"

static int any_file(struct statx *ret, uint64_t ino) {
    int fd = open("/", O_PATH | O_CLOEXEC);
    assert_int_equal(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, ret), 0);
    ret->stx_ino += ino;
    return fd;
}

static uint64_t add(struct nodes *n, uint64_t ino) {
    struct statx st;
    uint64_t id = 0;
    int fd = any_file(&st, ino);
    assert_int_equal(nodes_add(n, fd, &st, &id), 0);
    return id;
}

static bool is_open(int fd) {
    return fcntl(fd, F_GETFD) >= 0;
}

static void a_file_has_one_number_until_it_is_forgotten_as_often_as_it_was_found(void **state) {
    (void)state;
    struct nodes n;
    struct statx st;
    assert_int_equal(nodes_init(&n, any_file(&st, 0)), 0);
    assert_int_equal(add(&n, 0), 1);
    uint64_t a = add(&n, 1), b = add(&n, 2);
    assert_int_not_equal(a, b);
    assert_int_equal(add(&n, 1), a);
    int fd = nodes_get(&n, a)->fd;
    uint64_t generation = nodes_get(&n, a)->generation;
    nodes_forget(&n, a, 1);
    assert_true(nodes_get(&n, a) && is_open(fd));
    nodes_forget(&n, a, 5);
    assert_true(!nodes_get(&n, a) && !is_open(fd));
    assert_int_equal(add(&n, 3), a);
    assert_int_not_equal(nodes_get(&n, a)->generation, generation);
    assert_non_null(nodes_get(&n, b));
}

static void the_same_inode_over_another_mount_is_another_file(void **state) {
    (void)state;
    struct nodes n;
    struct statx st;
    uint64_t id;
    assert_int_equal(nodes_init(&n, any_file(&st, 0)), 0);
    int fd = any_file(&st, 0);
    st.stx_mnt_id++;
    assert_int_equal(nodes_add(&n, fd, &st, &id), 0);
    assert_int_not_equal(id, 1);
}

static void numbers_of_another_server_stay_and_those_between_are_free(void **state) {
    (void)state;
    struct nodes n;
    struct statx st;
    const struct node like = {.type = S_IFDIR, .lookups = 2, .generation = 40};
    assert_int_equal(nodes_init(&n, any_file(&st, 0)), 0);
    int fd = any_file(&st, 5);
    nodes_restore(&n, 1, any_file(&st, 5), &st, &like);
    nodes_restore(&n, 3, fd, &st, &like);
    nodes_restore(&n, 5, -1, &st, &like);
    nodes_restored(&n, 50);
    assert_true(nodes_get(&n, 3) && nodes_get(&n, 3)->generation == 40);
    assert_true(!nodes_get(&n, 2) && !nodes_get(&n, 4) && !nodes_get(&n, 5));
    assert_int_equal(add(&n, 5), 3); /* the same file */
    assert_int_equal(add(&n, 6), 2);
    assert_true(nodes_get(&n, 2)->generation > 50);
    assert_int_equal(add(&n, 7), 4);
    assert_int_equal(add(&n, 8), 6); /* 5 is taken, though its file is lost */
    nodes_forget(&n, 3, 3);
    assert_true(!nodes_get(&n, 3) && !is_open(fd));
}

static void handles_of_another_server_stay_and_lost_ones_are_not_given_again(void **state) {
    (void)state;
    struct handles h = {0};
    struct statx st;
    assert_int_equal(handles_restore(&h, 2, any_file(&st, 0), false), 0);
    assert_int_equal(handles_restore(&h, 70, -1, false), 0);
    handles_restored(&h);
    assert_true(handles_get(&h, 2, false) >= 0 && handles_get(&h, 70, false) < 0);
    for (int i = 0; i < 80; i++) {
        int64_t id = handles_add(&h, any_file(&st, 0), true);
        assert_true(id > 0 && id != 2 && id != 70);
    }
}

static void numbers_that_nobody_was_told_lead_nowhere(void **state) {
    (void)state;
    struct nodes n;
    struct statx st;
    assert_int_equal(nodes_init(&n, any_file(&st, 0)), 0);
    for (uint64_t i = 0; i < 3; i++) {
        const uint64_t wrong[] = {0, 2, UINT64_MAX};
        assert_null(nodes_get(&n, wrong[i]));
        nodes_forget(&n, wrong[i], 1);
    }
    nodes_forget(&n, 1, UINT64_MAX); /* the root stays */
    assert_non_null(nodes_get(&n, 1));
}

static void a_handle_is_found_only_as_what_it_is(void **state) {
    (void)state;
    struct handles h = {0};
    int64_t ids[200];
    for (int i = 0; i < 200; i++)
        ids[i] = handles_add(&h, open("/", O_PATH | O_CLOEXEC), i % 2);
    assert_true(handles_get(&h, (uint64_t)ids[3], true) >= 0);
    assert_int_equal(handles_get(&h, (uint64_t)ids[3], false), -1);
    assert_int_equal(handles_get(&h, 0, false), -1);
    assert_int_equal(handles_get(&h, 1000, false), -1);
    int fd = handles_get(&h, (uint64_t)ids[3], true);
    handles_close(&h, (uint64_t)ids[3], false);
    assert_true(is_open(fd));
    handles_close(&h, (uint64_t)ids[3], true);
    handles_close(&h, (uint64_t)ids[3], true);
    assert_true(!is_open(fd));
    assert_int_equal(handles_get(&h, (uint64_t)ids[3], true), -1);
    assert_int_equal(handles_add(&h, open("/", O_PATH | O_CLOEXEC), false), ids[3]);
}

UNIT_MAIN(cmocka_unit_test(a_file_has_one_number_until_it_is_forgotten_as_often_as_it_was_found),
          cmocka_unit_test(the_same_inode_over_another_mount_is_another_file),
          cmocka_unit_test(numbers_of_another_server_stay_and_those_between_are_free),
          cmocka_unit_test(handles_of_another_server_stay_and_lost_ones_are_not_given_again),
          cmocka_unit_test(numbers_that_nobody_was_told_lead_nowhere),
          cmocka_unit_test(a_handle_is_found_only_as_what_it_is))
