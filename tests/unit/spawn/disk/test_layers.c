/* Stacks of layers as text, the mount table of a box, and removing what boxes wrote. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/layers.h"
#include "spawn/disk/wipe.h"
#include "spawn/make/mountinfo.h"
#include "tests/unit/unit.h"

#define A "m-aaaaaaaaaaaa"
#define B "m-bbbbbbbbbbbb"

static void what_is_printed_parses_again(void **state) {
    (void)state;
    struct layers l = {.count = 0}, again;
    char text[LAYERS_TEXT_SIZE];
    struct err err;
    assert_int_equal(layers_parse("", &l, &err), 0);
    assert_int_equal(l.count, 0);
    assert_int_equal(layers_push(&l, A, 7, &err), 0);
    assert_int_equal(layers_push(&l, B, LAYER_NUMBER_MAX, &err), 0);
    assert_true(layers_print(&l, text, sizeof(text)));
    assert_string_equal(text, B "/999999999 " A "/7");
    assert_int_equal(layers_parse(text, &again, &err), 0);
    assert_int_equal(again.count, 2);
    assert_string_equal(again.v[0].machine, B);
    assert_int_equal(again.v[1].number, 7);
    assert_true(layers_have(&again, A, 7));
    assert_false(layers_have(&again, A, 8));
    assert_false(layers_have(&again, B, 7));
}

static void anything_else_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "x",
        A,
        A "/",
        A "/0",
        A "/07",
        A "/1 ",
        " " A "/1",
        A "/1  " A "/2",
        A "/-1",
        A "/1000000000",
        "s-aaaaaaaaaaaa/1",
        A "/1x",
        A "/../1",
    };
    struct layers l;
    struct err err;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_int_equal(layers_parse(bad[i], &l, &err), -1);
        assert_int_equal(err.code, ERR_INVALID);
    }
}

static void a_stack_has_an_end(void **state) {
    (void)state;
    struct layers l = {.count = 0};
    char text[LAYERS_TEXT_SIZE], more[LAYERS_TEXT_SIZE + 64];
    struct err err;
    for (uint32_t i = 0; i < LAYERS_MAX; i++)
        assert_int_equal(layers_push(&l, A, LAYER_NUMBER_MAX - i, &err), 0);
    assert_true(layers_print(&l, text, sizeof(text)));
    assert_int_equal(layers_parse(text, &l, &err), 0);
    assert_int_equal(l.count, LAYERS_MAX);
    snprintf(more, sizeof(more), "%s " A "/1", text);
    assert_int_equal(layers_parse(more, &l, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
    assert_int_equal(layers_parse(text, &l, &err), 0);
    assert_int_equal(layers_push(&l, A, 1, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
    assert_false(layers_print(&l, text, 40));
}

static void mounts_are_read_with_their_escapes(void **state) {
    (void)state;
    static const char text[] = "12 1 0:5 / / rw - overlay none rw\n"
                               "rubbish\n"
                               "13 12 0:6 /x/y /a\\040b\\134 rw,nosuid - tmpfs none rw\n"
                               "14 12 0:7 / /last";
    const char *at = text;
    struct mount_line line;
    assert_true(mountinfo_next(&at, &line));
    assert_int_equal(line.id, 12);
    assert_int_equal(line.parent, 1);
    assert_string_equal(line.path, "/");
    assert_true(mountinfo_next(&at, &line));
    assert_int_equal(line.id, 13);
    assert_string_equal(line.path, "/a b\\");
    assert_true(mountinfo_next(&at, &line));
    assert_string_equal(line.path, "/last");
    assert_false(mountinfo_next(&at, &line));
}

static void trash_goes_however_deep(void **state) {
    (void)state;
    char dir[] = "/tmp/carrel-wipe-XXXXXX";
    assert_non_null(mkdtemp(dir));
    int top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(top, "trash", 0700), 0);
    int at = openat(top, "trash", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < 500; i++) {
        assert_int_equal(mkdirat(at, "d", 0700), 0);
        int below = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int file = openat(below, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0);
        assert_true(file >= 0);
        close(file);
        assert_int_equal(symlinkat("/", below, "l"), 0);
        close(at);
        at = below;
    }
    close(at);
    wipe_trash(top);
    assert_int_equal(faccessat(top, "trash", F_OK, 0), -1);
    assert_int_equal(errno, ENOENT);
    wipe_trash(top); /* there is none */
    close(top);
    assert_int_equal(rmdir(dir), 0);
}

/* A disk whose trash a thread deletes as soon as it is empty, as the last act of wipe_trash(). */
struct wiped_disk {
    int top;
    atomic_bool ends;
};

/* It waits a little each time: two threads without a pause can starve each other. */
static void *delete_trash_until_the_end(void *arg) {
    const struct timespec pause = {.tv_nsec = 1000};
    struct wiped_disk *d = arg;
    while (!d->ends) {
        unlinkat(d->top, "trash", AT_REMOVEDIR);
        nanosleep(&pause, NULL);
    }
    return NULL;
}

static void a_tree_goes_to_the_trash_while_the_trash_is_deleted(void **state) {
    (void)state;
    char dir[] = "/tmp/carrel-wipe-XXXXXX", name[16];
    pthread_t thread;
    assert_non_null(mkdtemp(dir));
    struct wiped_disk d = {.top = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    assert_int_equal(trash_put(d.top, "tree", "0"), -ENOENT);
    assert_int_equal(pthread_create(&thread, NULL, delete_trash_until_the_end, &d), 0);
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "t%d", i);
        assert_int_equal(mkdirat(d.top, "tree", 0700), 0);
        assert_int_equal(trash_put(d.top, "tree", name), 0);
        assert_int_equal(faccessat(d.top, "tree", F_OK, AT_SYMLINK_NOFOLLOW), -1);
        snprintf(name, sizeof(name), "trash/t%d", i);
        assert_int_equal(unlinkat(d.top, name, AT_REMOVEDIR), 0);
    }
    d.ends = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    wipe_trash(d.top);
    close(d.top);
    assert_int_equal(rmdir(dir), 0);
}

UNIT_MAIN(cmocka_unit_test(what_is_printed_parses_again),
          cmocka_unit_test(anything_else_is_refused), cmocka_unit_test(a_stack_has_an_end),
          cmocka_unit_test(mounts_are_read_with_their_escapes),
          cmocka_unit_test(trash_goes_however_deep),
          cmocka_unit_test(a_tree_goes_to_the_trash_while_the_trash_is_deleted))
