#include "tests/unit/unit.h"

#include <fcntl.h>
#include <unistd.h>

#include "io/vm/kernel.h"
#include "io/vm/modules.h"

static const char dep[] =
    "kernel/fs/fuse/fuse.ko:\n"
    "kernel/fs/fuse/virtiofs.ko.xz: kernel/fs/fuse/fuse.ko kernel/virtio/virtio.ko "
    "kernel/virtio/ring.ko\n"
    "kernel/net/net-dev.ko: kernel/virtio/virtio.ko kernel/virtio/ring.ko\n"
    "kernel/virtiofs-not.ko: kernel/x.ko";
static const char builtin[] = "kernel/char/console.ko\nkernel/lib/other.ko\n";

static void modules_come_after_those_they_depend_on_and_once(void **state) {
    (void)state;
    struct modules m = {0};
    struct err err;
    assert_int_equal(modules_add(&m, dep, builtin, "virtiofs", &err), 0);
    assert_int_equal(modules_add(&m, dep, builtin, "net_dev", &err), 0);
    assert_int_equal(modules_add(&m, dep, builtin, "fuse", &err), 0);
    static const char *const want[] = {"kernel/virtio/ring.ko", "kernel/virtio/virtio.ko",
                                       "kernel/fs/fuse/fuse.ko", "kernel/fs/fuse/virtiofs.ko.xz",
                                       "kernel/net/net-dev.ko"};
    assert_int_equal(m.count, 5);
    for (int i = 0; i < 5; i++)
        assert_string_equal(m.path[i], want[i]);
}

static void module_in_the_kernel_is_not_loaded(void **state) {
    (void)state;
    struct modules m = {0};
    struct err err;
    assert_int_equal(modules_add(&m, dep, builtin, "console", &err), 0);
    assert_int_equal(m.count, 0);
}

static void missing_module_is_named(void **state) {
    (void)state;
    static const char *const names[] = {"virtio_not", "virtiof", "irtiofs", "consol", ""};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        struct modules m = {0};
        struct err err;
        assert_int_equal(modules_add(&m, dep, builtin, names[i], &err), -1);
        assert_int_equal(err.code, ERR_UNSUPPORTED);
        assert_non_null(strstr(err.text, names[i]));
    }
}

static void too_many_modules_are_refused(void **state) {
    (void)state;
    char text[4096] = "a.ko:";
    struct modules m = {0};
    struct err err;
    for (int i = 0; i < MODULES_MAX; i++) {
        size_t n = strlen(text);
        snprintf(text + n, sizeof(text) - n, " k/%d.ko", i);
    }
    assert_int_equal(modules_add(&m, text, "", "a", &err), -1);
    memset(text, 'x', sizeof(text) - 1);
    memcpy(text, "a.ko: ", 6);
    m = (struct modules){0};
    assert_int_equal(modules_add(&m, text, "", "a", &err), -1);
}

static void path_of_a_kernel_says_its_version(void **state) {
    (void)state;
    struct kernel k;
    struct err err;
    assert_int_equal(kernel_named("/boot/vmlinuz-6.1.0-5-amd64", &k, &err), 0);
    assert_string_equal(k.version, "6.1.0-5-amd64");
    assert_string_equal(k.modules, "/boot/../lib/modules/6.1.0-5-amd64");
    static const char *const bad[] = {"vmlinuz-6", "/boot/vmlinuz-", "/boot/linux", "", "/"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_int_equal(kernel_named(bad[i], &k, &err), -1);
}

static void put_kernel(const char *dir, const char *version) {
    char path[256];
    snprintf(path, sizeof(path), "%s/vmlinuz-%s", dir, version);
    close(open(path, O_WRONLY | O_CREAT, 0600));
}

static void cloud_kernel_comes_first_and_then_the_newest(void **state) {
    (void)state;
    char dir[] = "/tmp/carrel-kernels-XXXXXX";
    static const char *const want[] = {"6.12.1-cloud-amd64", "6.1.9-cloud-amd64", "6.18", "6.9"};
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 4; i++)
        put_kernel(dir, want[(i + 2) % 4]);
    struct kernel k;
    struct err err;
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(kernel_pick(dir, i, &k, &err), 0);
        assert_string_equal(k.version, want[i]);
    }
    assert_int_equal(kernel_pick(dir, 4, &k, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(kernel_pick(dir, 0, &k, &err), 0);
        unlink(k.path);
    }
    rmdir(dir);
    assert_int_equal(kernel_pick(dir, 0, &k, &err), -1);
}

UNIT_MAIN(cmocka_unit_test(modules_come_after_those_they_depend_on_and_once),
          cmocka_unit_test(module_in_the_kernel_is_not_loaded),
          cmocka_unit_test(missing_module_is_named), cmocka_unit_test(too_many_modules_are_refused),
          cmocka_unit_test(path_of_a_kernel_says_its_version),
          cmocka_unit_test(cloud_kernel_comes_first_and_then_the_newest))
