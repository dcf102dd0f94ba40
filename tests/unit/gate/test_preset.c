#include "tests/unit/unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "gate/preset.h"
#include "tests/unit/need.h"
#include "tests/unit/scratch.h"

static void scan(const char *text, const char *marker, bool bare, const char *wanted) {
    struct preset_targets t = {.count = 0};
    struct buf all DEFER(buf_done) = BUF(8192);
    preset_scan(text, strlen(text), marker, bare, &t);
    for (size_t i = 0; i < t.count; i++)
        assert_true(buf_addf(&all, "%s%s", i ? " " : "", t.list[i]));
    assert_string_equal(all.data ? all.data : "", wanted);
}

static void addresses_become_targets(void **state) {
    (void)state;
    scan("deb http://deb.example/debian stable main\n# deb http://no.example/x y\n", NULL, false,
         "http://deb.example");
    scan("URIs: https://me:pass@mirror.example:8443/debian http://two.example\n", NULL, false,
         "https://mirror.example:8443 http://two.example");
    scan("registry=https://npm.example/\nother=https://no.example/\n", "registry", false,
         "https://npm.example");
    scan("index-url = \"https://pip.example/simple\"\nextra-index-url=https://pip.example/x\n",
         "index-url", false, "https://pip.example");
    scan("ftp://a.example file:///x cdrom:[x]/ http:// https://* http://a b\n", NULL, false,
         "http://a");
    scan("", NULL, false, "");
    scan("no newline at the end http://last.example", NULL, false, "http://last.example");
}

static void names_count_where_they_are_wanted(void **state) {
    (void)state;
    scan("GOPROXY=https://proxy.example,direct\nGOSUMDB=sum.example\nX=no.example\n", "GO", true,
         "https://proxy.example https://sum.example");
    scan("PyPI = Index(\n    \"https://a.example/\", file_domain=\"files.example\"\n",
         "file_domain", true, "https://a.example https://files.example");
    scan("GOSUMDB=off GOFLAGS=-mod=mod v1.2.3\n", NULL, true, "");
}

static void put(int root, const char *dir, const char *name, const char *text, mode_t mode) {
    char path[256];
    for (const char *p = dir; *p; p++)
        if (p[1] == '/' || p[1] == '\0') {
            snprintf(path, sizeof(path), "%.*s", (int)(p - dir) + 1, dir);
            mkdirat(root, path, 0755);
        }
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    int fd DEFER_CLOSE = openat(root, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
}

static void a_preset_is_what_the_image_says(void **state) {
    need_openat2();
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct preset_targets t;
    struct err err;
    int root DEFER_CLOSE = open(dir.path, O_RDONLY | O_DIRECTORY);
    (void)state;
    assert_int_equal(preset_read("apt", root, &t, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    put(root, "etc/apt/sources.list.d", "a.sources", "URIs: http://one.example/x\n", 0644);
    put(root, "etc/apt/sources.list.d", "b.list", "deb http://two.example/x y z\n", 0644);
    put(root, "etc/apt/sources.list.d", "c.bak", "deb http://no.example/x y z\n", 0644);
    put(root, "etc/apt/sources.list.d", "secret.list", "deb http://no.example/x y z\n", 0600);
    assert_int_equal(preset_read("apt", root, &t, &err), 0);
    assert_int_equal(t.count, 2);
    put(root, "usr/lib/go-1.21", "go.env", "GOPROXY=https://proxy.example,direct\n", 0644);
    assert_int_equal(preset_read("go", root, &t, &err), 0);
    assert_string_equal(t.list[0], "https://proxy.example");
    /* A default counts only where nothing is configured. */
    put(root, "usr/share/nodejs/npm/lib/utils/config", "definitions.js",
        "  default: 'https://default.example/',\n", 0644);
    assert_int_equal(preset_read("npm", root, &t, &err), 0);
    assert_string_equal(t.list[0], "https://default.example");
    put(root, "etc", "npmrc", "registry=http://mirror.example:4873/\n", 0644);
    assert_int_equal(preset_read("npm", root, &t, &err), 0);
    assert_int_equal(t.count, 1);
    assert_string_equal(t.list[0], "http://mirror.example:4873");
    assert_true(preset_exists("pip") && preset_exists("cargo") && !preset_exists("apt.example"));
}

static void what_is_kept_says_the_same(void **state) {
    need_openat2();
    struct scratch dir DEFER(scratch_done) = scratch_new();
    struct preset_targets t;
    struct err err;
    (void)state;
    char path[128];
    assert_int_equal(mkdir(scratch_file(&dir, "root", path), 0755), 0);
    int root DEFER_CLOSE = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdir(scratch_file(&dir, "kept", path), 0755), 0);
    int kept DEFER_CLOSE = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    put(root, "etc/apt", "sources.list", "deb http://deb.example/debian stable main\n", 0644);
    put(root, "etc", "npmrc", "registry=https://closed.example/\n", 0600);
    put(root, "etc", "shadow", "secret", 0644);
    put(root, "usr/lib/go-9", "go.env", "GOPROXY=https://proxy.example\n", 0644);
    put(root, "etc/pip", "real", "index-url = https://pip.example\n", 0644);
    assert_int_equal(symlinkat("/etc/pip/real", root, "etc/pip.conf"), 0);
    for (int again = 0; again < 2; again++) /* what was begun is finished */
        assert_int_equal(preset_keep(root, kept), 0);
    assert_int_equal(preset_read("apt", kept, &t, &err), 0);
    assert_string_equal(t.list[0], "http://deb.example");
    assert_int_equal(preset_read("pip", kept, &t, &err), 0);
    assert_string_equal(t.list[0], "https://pip.example");
    assert_int_equal(preset_read("go", kept, &t, &err), 0);
    assert_string_equal(t.list[0], "https://proxy.example");
    assert_int_equal(preset_read("npm", kept, &t, &err), -1);
    assert_int_equal(faccessat(kept, "etc/shadow", F_OK, 0), -1);
}

UNIT_MAIN(cmocka_unit_test(what_is_kept_says_the_same), cmocka_unit_test(addresses_become_targets),
          cmocka_unit_test(names_count_where_they_are_wanted),
          cmocka_unit_test(a_preset_is_what_the_image_says))
