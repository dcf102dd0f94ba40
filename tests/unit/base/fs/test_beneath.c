#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/beneath.h"
#include "tests/unit/scratch.h"

/*
 * own/          what is lent to somebody
 *   file, sub/file, sub/up -> .., in -> sub, out -> ../other, far -> absolute, last -> file
 * other/secret  what is not
 */
struct scene {
    struct scratch top;
    int own;
};

static void put(int dir, const char *path) {
    int fd DEFER_CLOSE = openat(dir, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
}

static int scene_make(void **state) {
    static struct scene s;
    s.top = scratch_new();
    int top DEFER_CLOSE = open(s.top.path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    char other[128];
    scratch_file(&s.top, "other", other);
    if (top < 0 || mkdirat(top, "own", 0700) < 0 || mkdirat(top, "other", 0700) < 0 ||
        mkdirat(top, "own/sub", 0700) < 0 || symlinkat("sub", top, "own/in") < 0 ||
        symlinkat("../other", top, "own/out") < 0 || symlinkat(other, top, "own/far") < 0 ||
        symlinkat("file", top, "own/last") < 0 || symlinkat("..", top, "own/sub/up") < 0 ||
        mkfifoat(top, "own/pipe", 0600) < 0)
        return -1;
    put(top, "own/file");
    put(top, "own/sub/file");
    put(top, "other/secret");
    s.own = openat(top, "own", O_PATH | O_DIRECTORY | O_CLOEXEC);
    *state = &s;
    return s.own < 0 ? -1 : 0;
}

static int scene_drop(void **state) {
    struct scene *s = *state;
    close(s->own);
    scratch_done(&s->top);
    return 0;
}

static int opened(int fd) {
    if (fd < 0)
        return fd;
    close(fd);
    return 0;
}

static void what_leads_out_is_not_opened(void **state) {
    const struct scene *s = *state;
    static const char *const paths[] = {"out/secret",  "far/secret",      "../other/secret",
                                        "..",          "sub/../..",       "in/up/../other",
                                        "/etc/passwd", "in/up/out/secret"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
        assert_int_equal(beneath_open(s->own, paths[i], O_RDONLY), -EXDEV);
        assert_true(beneath_leaves(beneath_open_plain(s->own, paths[i], O_RDONLY)));
        /* The control: all of them are there. */
        assert_int_equal(opened(openat(s->own, paths[i], O_RDONLY | O_CLOEXEC)), 0);
    }
}

static void what_stays_is_opened(void **state) {
    const struct scene *s = *state;
    static const char *const paths[] = {"file",       "sub/file",    "in/file",
                                        "in/up/file", "sub/../file", ""};
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++)
        assert_int_equal(opened(beneath_open(s->own, paths[i], O_RDONLY)), 0);
    assert_int_equal(beneath_open(s->own, "missing", O_RDONLY), -ENOENT);
    int fd = beneath_open(s->own, "file", O_RDONLY);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    close(fd);
}

static void a_plain_path_has_no_links_at_all(void **state) {
    const struct scene *s = *state;
    const char *name;
    assert_int_equal(beneath_open_plain(s->own, "in/file", O_RDONLY), -ELOOP);
    assert_int_equal(beneath_open_plain(s->own, "last", O_RDONLY), -ELOOP);
    assert_int_equal(opened(beneath_open_plain(s->own, "sub/file", O_RDONLY)), 0);
    assert_int_equal(beneath_parent(s->own, "in/file", O_PATH, &name), -ELOOP);
    assert_int_equal(beneath_parent(s->own, "../other/secret", O_PATH, &name), -EXDEV);
    assert_int_equal(beneath_parent(s->own, "/etc", O_PATH, &name), -EXDEV);
    assert_int_equal(opened(beneath_parent(s->own, "sub/new", O_PATH, &name)), 0);
    assert_string_equal(name, "new");
    assert_int_equal(opened(beneath_parent(s->own, "new", O_PATH, &name)), 0);
    assert_string_equal(name, "new");
}

static void a_file_is_a_file(void **state) {
    const struct scene *s = *state;
    struct err err;
    assert_int_equal(opened(beneath_open_file(s->own, "in/file", &err)), 0);
    assert_int_equal(beneath_open_file(s->own, "last", &err), -1);
    assert_int_equal(err.code, ERR_DENIED);
    assert_int_equal(beneath_open_file(s->own, "out/secret", &err), -1);
    assert_int_equal(err.code, ERR_DENIED);
    assert_int_equal(beneath_open_file(s->own, "pipe", &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
    assert_int_equal(beneath_open_file(s->own, "sub", &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
}

#define IN_SCENE(f) cmocka_unit_test_setup_teardown(f, scene_make, scene_drop)

UNIT_MAIN(IN_SCENE(what_leads_out_is_not_opened), IN_SCENE(what_stays_is_opened),
          IN_SCENE(a_plain_path_has_no_links_at_all), IN_SCENE(a_file_is_a_file))
