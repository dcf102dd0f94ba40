#include "tests/unit/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "spawn/disk/tree.h"
#include "spawn/make/image.h"

/* A host of its own: the places the image is made from, and some it must never touch. */
struct place {
    char dir[32];
    int top, host, store;
};

static void put(int host, const char *path, const char *text) {
    assert_int_equal(tree_file(host, path, text, 0644, geteuid(), getegid()), 0);
}

static int set_up(void **state) {
    static const char *const dirs[] = {"host",
                                       "store",
                                       "host/etc",
                                       "host/etc/ssh",
                                       "host/etc/apt",
                                       "host/etc/apt/auth.conf.d",
                                       "host/etc/ssl",
                                       "host/etc/ssl/certs",
                                       "host/usr",
                                       "host/usr/bin",
                                       "host/var",
                                       "host/var/lib",
                                       "host/var/lib/dpkg",
                                       "host/root",
                                       "host/home"};
    struct place *p = calloc(1, sizeof(*p));
    snprintf(p->dir, sizeof(p->dir), "/tmp/carrel-image-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    p->top = open(p->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++)
        assert_int_equal(mkdirat(p->top, dirs[i], 0755), 0);
    p->host = openat(p->top, "host", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    p->store = openat(p->top, "store", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    put(p->host, "etc/passwd",
        "root:x:0:0:r:/r:/bin/sh\ndaemon:x:1:1::/:/x\nalice:x:1001:1001::/home/alice:/bin/"
        "sh\nnobody:x:65534:65534::/:/x\n");
    put(p->host, "etc/group", "root:x:0:\ndaemon:x:1:\nalice:x:1001:\n");
    put(p->host, "etc/shadow", "root:$6$secret:1::::::\n");
    put(p->host, "etc/ssh/ssh_host_key", "secret");
    put(p->host, "etc/apt/auth.conf.d/x", "secret");
    put(p->host, "etc/os-release", "NAME=x\n");
    put(p->host, "var/lib/dpkg/status", "Package: a\n");
    put(p->host, "var/lib/dpkg/lock", "");
    *state = p;
    return 0;
}

static int tear_down(void **state) {
    struct place *p = *state;
    close(p->host);
    close(p->store);
    close(p->top);
    int tmp DEFER_CLOSE = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    tree_remove(tmp, p->dir + 5);
    free(p);
    return 0;
}

static void build(struct place *p, struct image *image) {
    struct err err;
    if (geteuid() != 0)
        skip(); /* files get owners */
    if (image_open(p->store, p->host, 0, image, &err) < 0)
        fail_msg("%s", err.text);
}

static bool has(const struct image *image, const char *path) {
    return faccessat(image->skeleton, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void only_what_is_listed_is_there(void **state) {
    struct image image;
    build(*state, &image);
    char text[4096];
    assert_true(has(&image, "etc/os-release") && has(&image, "var/lib/dpkg/status") &&
                has(&image, "home/user"));
    assert_false(has(&image, "etc/ssh") || has(&image, "etc/apt/auth.conf.d") ||
                 has(&image, "var/lib/dpkg/lock"));
    assert_true(read_file_at(image.skeleton, "etc/passwd", text, sizeof(text)) > 0);
    assert_null(strstr(text, "alice"));
    assert_non_null(strstr(text, "daemon:x:1:1"));
    assert_non_null(strstr(text, "user:x:1000:1000"));
    assert_true(read_file_at(image.skeleton, "etc/shadow", text, sizeof(text)) > 0);
    assert_null(strstr(text, "secret"));
    image_close(&image);
}

/* Each closed thing beside its open twin, which must arrive: the control. */
static void what_only_root_may_read_stays_out(void **state) {
    static const struct {
        const char *path;
        mode_t dir, file;
        bool copied;
    } rows[] = {
        {"etc/apt/sources.list", 0755, 0600, false},
        {"etc/apt/sources.list.d/open.list", 0755, 0644, true},
        {"etc/apt/sources.list.d/root.list", 0755, 0600, false},
        {"etc/apt/sources.list.d/group.list", 0755, 0640, false},
        {"etc/apt/apt.conf.d/open", 0755, 0644, true},
        {"etc/apt/apt.conf.d/root", 0755, 0400, false},
        {"etc/apt/keyrings/in-a-closed-directory", 0700, 0644, false},
        {"etc/apt/trusted.gpg.d/in-an-unlisted-one", 0711, 0644, false},
        {"etc/wgetrc", 0755, 0600, false},
        {"etc/inputrc", 0755, 0644, true},
        {"etc/default/locale", 0750, 0644, false},
    };
    struct place *p = *state;
    struct image image;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char dir[64];
        snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(rows[i].path, '/') - rows[i].path),
                 rows[i].path);
        assert_int_equal(tree_dir(p->host, dir, rows[i].dir, geteuid(), getegid()), 0);
        assert_int_equal(tree_file(p->host, rows[i].path, "x", rows[i].file, geteuid(), getegid()),
                         0);
    }
    build(p, &image);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (has(&image, rows[i].path) != rows[i].copied)
            fail_msg("%s is%s in the image", rows[i].path, rows[i].copied ? " not" : "");
    image_close(&image);
}

static void packages_that_change_make_it_stale(void **state) {
    struct place *p = *state;
    struct image image, again;
    struct err err;
    build(p, &image);
    assert_false(image_stale(&image, p->host));
    assert_int_equal(image_open(p->store, p->host, 0, &again, &err), 0);
    assert_string_equal(again.key, image.key);
    image_close(&again);
    put(p->host, "var/lib/dpkg/status", "Package: a\nPackage: b\n");
    assert_true(image_stale(&image, p->host));
    assert_int_equal(image_open(p->store, p->host, 0, &again, &err), 0);
    assert_string_not_equal(again.key, image.key);
    assert_false(image_stale(&again, p->host));
    image_close(&again);
    image_close(&image);
}

static void a_half_built_image_is_replaced(void **state) {
    struct place *p = *state;
    struct image image;
    char name[64];
    build(p, &image);
    snprintf(name, sizeof(name), "host-%s", image.key);
    image_close(&image);
    tree_remove(p->store, name);
    snprintf(name + strlen(name), sizeof(name) - strlen(name), ".new");
    assert_int_equal(mkdirat(p->store, name, 0700), 0);
    build(p, &image);
    assert_true(has(&image, "etc/passwd"));
    assert_int_equal(faccessat(p->store, name, F_OK, 0), -1);
    image_close(&image);
}

static void a_host_without_merged_usr_is_refused_and_leaves_nothing(void **state) {
    struct place *p = *state;
    struct image image;
    struct err err = {0};
    assert_int_equal(mkdirat(p->host, "bin", 0755), 0);
    assert_int_equal(image_open(p->store, p->host, 0, &image, &err), -1);
    assert_non_null(strstr(err.text, "/bin"));
    assert_int_equal(unlinkat(p->top, "store", AT_REMOVEDIR), 0);
}

#define WITH_HOST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

UNIT_MAIN(WITH_HOST(only_what_is_listed_is_there), WITH_HOST(what_only_root_may_read_stays_out),
          WITH_HOST(packages_that_change_make_it_stale), WITH_HOST(a_half_built_image_is_replaced),
          WITH_HOST(a_host_without_merged_usr_is_refused_and_leaves_nothing))
