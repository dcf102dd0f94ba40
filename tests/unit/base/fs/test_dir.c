#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/dir.h"
#include "tests/unit/scratch.h"

/* A directory with a directory "d", a file "f" and a link "l" to the directory. */
static int open_example(const struct scratch *dir) {
    int at = scratch_open(dir);
    assert_int_equal(mkdirat(at, "d", 0700), 0);
    assert_int_equal(mknodat(at, "f", S_IFREG | 0600, 0), 0);
    assert_int_equal(symlinkat("d", at, "l"), 0);
    return at;
}

static void only_dot_and_dot_dot_are_dots(void **state) {
    (void)state;
    assert_true(is_dots("."));
    assert_true(is_dots(".."));
    static const char *const others[] = {"", "...", ".a", "..a", "a", "a.", "a.."};
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        assert_false(is_dots(others[i]));
        assert_false(is_dots_part(others[i], strlen(others[i])));
    }
    assert_true(is_dots_part("./a", 1));
    assert_true(is_dots_part("../a", 2));
    assert_false(is_dots_part("..a", 3));
}

static void a_list_has_all_names_and_the_dots(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    int at DEFER_CLOSE = open_example(&dir), names = 0, dots = 0;
    DIR *d DEFER(dir_close) = dir_list(at, ".");
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        *(is_dots(e->d_name) ? &dots : &names) += 1;
    assert_int_equal(names, 3);
    assert_int_equal(dots, 2);
}

static void links_and_files_are_not_opened_as_directories(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    int at DEFER_CLOSE = open_example(&dir);
    static const char *const others[] = {"l", "f"};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(dir_open(at, others[i]), -ENOTDIR);
        assert_int_equal(dir_open_path(at, others[i]), -ENOTDIR);
        assert_null(dir_list(at, others[i]));
        assert_int_equal(errno, ENOTDIR);
    }
    assert_int_equal(dir_open(at, "none"), -ENOENT);
    assert_int_equal(dir_open_path(at, "none"), -ENOENT);
}

static void open_directories_are_closed_on_exec(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    int at DEFER_CLOSE = open_example(&dir);
    int fd DEFER_CLOSE = dir_open(at, "d"), path DEFER_CLOSE = dir_open_path(at, "d");
    DIR *d DEFER(dir_close) = dir_list(at, "d");
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(fcntl(path, F_GETFD), FD_CLOEXEC);
    assert_int_equal(fcntl(dirfd(d), F_GETFD), FD_CLOEXEC);
    assert_true(fcntl(path, F_GETFL) & O_PATH);
}

static void take_closes_a_descriptor_that_it_cannot_list(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    int at DEFER_CLOSE = open_example(&dir);
    int file = openat(at, "f", O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0);
    assert_null(dir_take(file));
    assert_int_equal(errno, ENOTDIR);
    assert_int_equal(fcntl(file, F_GETFD), -1);
    assert_null(dir_take(-1));
}

static void close_leaves_null_behind(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    int at DEFER_CLOSE = open_example(&dir);
    DIR *d = dir_list(at, "d");
    int fd = dirfd(d);
    dir_close(&d);
    assert_null(d);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    dir_close(&d);
}

UNIT_MAIN(cmocka_unit_test(only_dot_and_dot_dot_are_dots),
          cmocka_unit_test(a_list_has_all_names_and_the_dots),
          cmocka_unit_test(links_and_files_are_not_opened_as_directories),
          cmocka_unit_test(open_directories_are_closed_on_exec),
          cmocka_unit_test(take_closes_a_descriptor_that_it_cannot_list),
          cmocka_unit_test(close_leaves_null_behind))
