/* Layers that become one: what shows of them, and that nothing else does. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/defer.h"
#include "spawn/disk/merge.h"
#include "tests/sync_record.h"
#include "tests/unit/scratch.h"
#include "tests/unit/unit.h"

/* A disk with three empty layers, of which the third is the uppermost. */
struct disk {
    struct scratch dir;
    struct merge_plan plan;
};

static void disk_done(struct disk *d) {
    close(d->plan.disk);
    scratch_done(&d->dir);
}

static struct disk disk_new(void) {
    static const char *const dirs[] = {"1", "1/u", "1/U", "2", "2/u", "2/U", "3", "3/u", "3/U"};
    if (geteuid() != 0)
        skip(); /* only root makes whiteouts */
    struct disk d = {.dir = scratch_new(), .plan = {.into = 9, .from = {3, 2, 1}, .count = 3}};
    d.plan.disk = scratch_open(&d.dir);
    assert_true(d.plan.disk >= 0);
    for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++)
        assert_int_equal(mkdirat(d.plan.disk, dirs[i], 0755), 0);
    return d;
}

static void put_file(const struct disk *d, const char *path, const char *text) {
    int fd DEFER_CLOSE = openat(d->plan.disk, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void put_whiteout(const struct disk *d, const char *path) {
    assert_int_equal(mknodat(d->plan.disk, path, S_IFCHR, 0), 0);
}

/* Its text, "whiteout", or "none". */
static const char *shown(const struct disk *d, const char *path) {
    static char text[64];
    struct stat st;
    if (fstatat(d->plan.disk, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? "none" : strerror(errno);
    if (S_ISCHR(st.st_mode))
        return "whiteout";
    int fd DEFER_CLOSE = openat(d->plan.disk, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void the_uppermost_of_each_name_shows(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"9/u/all", "three"},  {"9/u/lower", "two"},
        {"9/u/lowest", "one"}, {"9/u/gone", "whiteout"},
        {"9/u/back", "three"}, {"9/u/d/x", "two"},
        {"9/u/d/y", "one"},    {"9/u/d/z", "whiteout"},
        {"9/u/file", "three"}, {"9/u/file/under", "Not a directory"},
        {"9/U/usr", "one"},    {"9/u/.wht", "none"}};
    struct disk d DEFER(disk_done) = disk_new();
    assert_int_equal(mkdirat(d.plan.disk, "1/u/d", 0755), 0);
    assert_int_equal(mkdirat(d.plan.disk, "2/u/d", 0755), 0);
    assert_int_equal(mkdirat(d.plan.disk, "1/u/file", 0755), 0);
    put_file(&d, "1/u/file/under", "one");
    put_file(&d, "1/u/all", "one");
    put_file(&d, "2/u/all", "two");
    put_file(&d, "3/u/all", "three");
    put_file(&d, "1/u/lower", "one");
    put_file(&d, "2/u/lower", "two");
    put_file(&d, "1/u/lowest", "one");
    put_file(&d, "1/u/gone", "one");
    put_file(&d, "2/u/gone", "two");
    put_whiteout(&d, "3/u/gone");
    put_whiteout(&d, "2/u/back");
    put_file(&d, "3/u/back", "three");
    put_file(&d, "1/u/d/x", "one");
    put_file(&d, "1/u/d/y", "one");
    put_file(&d, "1/u/d/z", "one");
    put_whiteout(&d, "2/u/d/z");
    put_file(&d, "2/u/d/x", "two");
    put_file(&d, "3/u/file", "three");
    put_file(&d, "1/U/usr", "one");
    assert_int_equal(merge_layers(&d.plan), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        assert_string_equal(shown(&d, rows[i][0]), rows[i][1]);
    assert_int_equal(merge_done(&d.plan), 1);
}

#define OPAQUE "trusted.overlay.opaque"

static int open_dir(const struct disk *d, const char *path) {
    int fd = openat(d->plan.disk, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

/* A directory that was removed and made anew shows nothing of the old one, which may also lie below
 * all that is merged. */
static void what_was_made_anew_hides_the_old(void **state) {
    (void)state;
    char mark[4] = "";
    struct disk d DEFER(disk_done) = disk_new();
    assert_int_equal(mkdirat(d.plan.disk, "1/u/d", 0755), 0);
    assert_int_equal(mkdirat(d.plan.disk, "2/u/d", 0755), 0);
    put_file(&d, "1/u/d/old", "one");
    put_file(&d, "2/u/d/new", "two");
    int dir DEFER_CLOSE = open_dir(&d, "2/u/d");
    if (fsetxattr(dir, OPAQUE, "y", 1, 0) < 0)
        skip(); /* not the root of the host, or a filesystem without attributes */
    assert_int_equal(merge_layers(&d.plan), 0);
    assert_string_equal(shown(&d, "9/u/d/new"), "two");
    assert_string_equal(shown(&d, "9/u/d/old"), "none");
    int merged DEFER_CLOSE = open_dir(&d, "9/u/d");
    assert_int_equal(fgetxattr(merged, OPAQUE, mark, sizeof(mark)), 1);
    assert_string_equal(mark, "y");
}

static void what_layers_of_the_store_cost_goes_over(void **state) {
    (void)state;
    struct disk d DEFER(disk_done) = disk_new();
    put_file(&d, "1/cost", "1000 10\n");
    put_file(&d, "3/cost", "300 5\n"); /* the second is older than costs are */
    d.plan.saved = true;
    assert_int_equal(merge_layers(&d.plan), 0);
    assert_string_equal(shown(&d, "9/cost"), "1300 15\n");
    assert_string_equal(shown(&d, "1/cost"), "none");
    assert_string_equal(shown(&d, "3/cost"), "none");
}

/* All of it is on the disk before it has its name, and the name before the others may go. */
static void a_merged_layer_of_the_store_is_on_the_disk(void **state) {
    (void)state;
    struct disk d DEFER(disk_done) = disk_new();
    put_file(&d, "1/cost", "1000 10\n");
    put_file(&d, "1/u/f", "one");
    sync_forget();
    assert_int_equal(merge_layers(&d.plan), 0); /* the control: of a box that lives it is not */
    assert_string_not_equal(sync_seen.early, "");
    assert_int_equal(renameat(d.plan.disk, "9", d.plan.disk, "8"), 0);
    put_file(&d, "2/u/f", "two");
    sync_forget();
    d.plan.saved = true;
    assert_int_equal(merge_layers(&d.plan), 0);
    assert_string_equal(sync_seen.early, "");
    assert_false(sync_folder_is_unsynced(d.dir.path));
}

static void of_the_home_directories_nothing_else_is_left(void **state) {
    (void)state;
    static const char *const rows[][2] = {
        {"9/u/home/user/f", "three"}, {"9/u/home/user/old", "one"}, {"9/u/home/etc/f", "one"},
        {"9/u/root", "whiteout"},     {"9/u/etc", "none"},          {"9/u/file", "none"},
        {"9/U/usr", "none"},          {"9/from", "home\n3\n2\n1\n"}};
    struct disk d DEFER(disk_done) = disk_new();
    static const char *const dirs[] = {"1/u/home", "1/u/home/user", "1/u/home/etc", "1/u/etc",
                                       "1/u/root", "3/u/home",      "3/u/home/user"};
    for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++)
        assert_int_equal(mkdirat(d.plan.disk, dirs[i], 0755), 0);
    put_file(&d, "1/u/home/user/old", "one");
    put_file(&d, "1/u/home/etc/f", "one");
    put_file(&d, "1/u/etc/f", "one");
    put_file(&d, "3/u/home/user/f", "three");
    put_file(&d, "3/u/file", "three");
    put_file(&d, "1/U/usr", "one");
    put_whiteout(&d, "3/u/root");
    d.plan.home = true;
    assert_int_equal(merge_layers(&d.plan), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        assert_string_equal(shown(&d, rows[i][0]), rows[i][1]);
    assert_int_equal(merge_done(&d.plan), 1);
    d.plan.home = false;
    assert_int_equal(merge_done(&d.plan), -EEXIST); /* the control: another merge of them */
}

static void a_layer_that_is_not_there_is_no_layer_merged(void **state) {
    (void)state;
    struct disk d DEFER(disk_done) = disk_new();
    d.plan.from[1] = 7;
    assert_int_equal(merge_layers(&d.plan), -ENOENT);
    assert_string_equal(shown(&d, "9"), "none");
    assert_string_equal(shown(&d, "9.new"), "none");
}

/* More names than are kept in memory: they are looked up on the disk then. */
static void of_very_many_names_the_uppermost_shows(void **state) {
    (void)state;
    enum { COUNT = 65536 + 500 };
    struct disk d DEFER(disk_done) = disk_new();
    char path[32];
    d.plan.count = 2;
    for (int i = 0; i < COUNT; i++) {
        snprintf(path, sizeof(path), "3/u/f%d", i);
        assert_int_equal(mknodat(d.plan.disk, path, S_IFREG | 0600, 0), 0);
    }
    for (int i = 0; i < COUNT + 500; i += 250) {
        snprintf(path, sizeof(path), "2/u/f%d", i);
        put_file(&d, path, "two");
    }
    assert_int_equal(merge_layers(&d.plan), 0);
    for (int i = 0; i < COUNT + 500; i += 250) {
        snprintf(path, sizeof(path), "9/u/f%d", i);
        assert_string_equal(shown(&d, path), i < COUNT ? "" : "two");
    }
}

UNIT_MAIN(cmocka_unit_test(the_uppermost_of_each_name_shows),
          cmocka_unit_test(what_was_made_anew_hides_the_old),
          cmocka_unit_test(of_very_many_names_the_uppermost_shows),
          cmocka_unit_test(what_layers_of_the_store_cost_goes_over),
          cmocka_unit_test(a_merged_layer_of_the_store_is_on_the_disk),
          cmocka_unit_test(of_the_home_directories_nothing_else_is_left),
          cmocka_unit_test(a_layer_that_is_not_there_is_no_layer_merged))
