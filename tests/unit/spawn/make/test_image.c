#include "tests/unit/unit.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
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
    int watch; /* fanotify descriptor of change_status() */
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

/* ---- the package database ---- */

#define HELLO_MD5 "b1946ac92492d2347c6235b4d2611184" /* of "hello\n" */

static void put_below(struct place *p, const char *path, const char *text, mode_t dir_mode) {
    char dir[128];
    snprintf(dir, sizeof(dir), "%.*s", (int)(strrchr(path, '/') - path), path);
    assert_int_equal(tree_dir(p->host, dir, dir_mode, geteuid(), getegid()), 0);
    put(p->host, path, text);
}

static void expect_text(const struct image *image, const char *path, const char *wanted) {
    char text[4096];
    assert_true(read_file_at(image->skeleton, path, text, sizeof(text)) >= 0);
    assert_string_equal(text, wanted);
}

static void database_names_what_is_in_the_image(void **state) {
    struct place *p = *state;
    struct image image;
    assert_int_equal(symlinkat("usr/lib", p->host, "lib"), 0);
    put_below(p, "etc/tool/same", "hello\n", 0755);
    put_below(p, "etc/tool/changed", "password of this host\n", 0755);
    put_below(p, "etc/tool/of-the-admin", "hello\n", 0755);
    put_below(p, "etc/closed/same", "hello\n", 0700);
    put_below(p, "var/lib/dpkg/info/tool.conffiles",
              "/etc/tool/same\n/etc/tool/changed\n/etc/tool/gone\n", 0755);
    put(p->host, "var/lib/dpkg/info/tool.md5sums",
        HELLO_MD5 "  etc/closed/same\n" HELLO_MD5 "  usr/bin/tool\n");
    put(p->host, "var/lib/dpkg/info/tool.list",
        "/.\n/boot\n/etc\n/etc/closed\n/etc/closed/same\n/etc/tool\n/etc/tool/changed\n"
        "/etc/tool/gone\n/etc/tool/same\n/home\n/lib/tool\n/usr\n/usr/bin/tool\n");
    put(p->host, "var/lib/dpkg/status",
        "Package: tool\nStatus: install ok installed\nConffiles:\n /etc/tool/same " HELLO_MD5
        "\n /etc/tool/changed " HELLO_MD5 "\n /etc/tool/gone " HELLO_MD5
        " obsolete\nDescription: reads\n /etc/tool/gone and more\n\n"
        "Package: other\nStatus: install ok installed\nConffiles:\n /etc/gone " HELLO_MD5
        "\nDescription: other\n");
    build(p, &image);
    assert_true(has(&image, "etc/tool/same") && has(&image, "etc/closed"));
    assert_false(has(&image, "etc/tool/changed") || has(&image, "etc/tool/of-the-admin") ||
                 has(&image, "etc/closed/same") || has(&image, "boot"));
    expect_text(&image, "var/lib/dpkg/info/tool.list",
                "/.\n/etc\n/etc/closed\n/etc/tool\n/etc/tool/same\n/home\n/lib/tool\n/usr\n"
                "/usr/bin/tool\n");
    expect_text(&image, "var/lib/dpkg/info/tool.conffiles", "/etc/tool/same\n");
    expect_text(&image, "var/lib/dpkg/info/tool.md5sums", HELLO_MD5 "  usr/bin/tool\n");
    expect_text(
        &image, "var/lib/dpkg/status",
        "Package: tool\nStatus: install ok installed\nConffiles:\n /etc/tool/same " HELLO_MD5
        "\nDescription: reads\n /etc/tool/gone and more\n\n"
        "Package: other\nStatus: install ok installed\nDescription: other\n\n");
    image_close(&image);
}

static void packages_at_work_on_the_host_are_settled_in_the_image(void **state) {
    struct place *p = *state;
    struct image image;
    put_below(p, "var/lib/dpkg/updates/0001", "Package: tool\n", 0755);
    put_below(p, "var/lib/dpkg/info/tool.list", "/.\n", 0755);
    put(p->host, "var/lib/dpkg/info/held:arm64.list", "/.\n");
    put(p->host, "var/lib/dpkg/status",
        "Package: tool\nStatus: install reinstreq half-installed\nVersion: 1\n"
        "Config-Version: 0\nTriggers-Awaited: held\n\n"
        "Package: held\nStatus: hold ok triggers-pending\nArchitecture: arm64\n"
        "Triggers-Pending: /usr/lib\n\n"
        "Package: new\nStatus: install reinstreq half-installed\n\n"
        "Package: removed\nStatus: deinstall ok config-files\n");
    build(p, &image);
    assert_true(has(&image, "var/lib/dpkg/updates"));
    assert_false(has(&image, "var/lib/dpkg/updates/0001"));
    expect_text(&image, "var/lib/dpkg/status",
                "Package: tool\nStatus: install ok installed\nVersion: 1\n\n"
                "Package: held\nStatus: hold ok installed\nArchitecture: arm64\n\n"
                "Package: removed\nStatus: deinstall ok config-files\n\n");
    image_close(&image);
}

/* A package manager that changes the status file once, while a file of the host is being opened. */
static void *change_status(void *arg) {
    const struct place *p = arg;
    struct fanotify_event_metadata e;
    if (read(p->watch, &e, sizeof(e)) != sizeof(e))
        return NULL;
    put(p->host, "var/lib/dpkg/status", "Package: after\n");
    struct fanotify_response allow = {.fd = e.fd, .response = FAN_ALLOW};
    fanotify_mark(p->watch, FAN_MARK_FLUSH, 0, AT_FDCWD, NULL);
    (void)!write(p->watch, &allow, sizeof(allow));
    close(e.fd);
    return NULL;
}

static void image_is_of_one_state_of_the_packages(void **state) {
    struct place *p = *state;
    struct image image;
    pthread_t at_work;
    put(p->host, "etc/inputrc", "x");
    p->watch = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY | O_CLOEXEC);
    if (p->watch < 0 ||
        fanotify_mark(p->watch, FAN_MARK_ADD, FAN_OPEN_PERM, p->host, "etc/inputrc") < 0)
        skip(); /* this kernel or user cannot hold an open() */
    assert_int_equal(pthread_create(&at_work, NULL, change_status, p), 0);
    build(p, &image);
    assert_int_equal(pthread_join(at_work, NULL), 0);
    close(p->watch);
    assert_false(image_stale(&image, p->host));
    expect_text(&image, "var/lib/dpkg/status", "Package: after\n\n");
    image_close(&image);
}

#define WITH_HOST(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

UNIT_MAIN(WITH_HOST(only_what_is_listed_is_there), WITH_HOST(what_only_root_may_read_stays_out),
          WITH_HOST(packages_that_change_make_it_stale), WITH_HOST(a_half_built_image_is_replaced),
          WITH_HOST(a_host_without_merged_usr_is_refused_and_leaves_nothing),
          WITH_HOST(database_names_what_is_in_the_image),
          WITH_HOST(packages_at_work_on_the_host_are_settled_in_the_image),
          WITH_HOST(image_is_of_one_state_of_the_packages))
