/* Copies of layers: what they hold, what they may take, and what becomes of them meanwhile. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "spawn/disk/duplicate.h"
#include "spawn/disk/tree.h"
#include "spawn/make/mounts.h"
#include "tests/sync_record.h"
#include "tests/unit/scratch.h"
#include "tests/unit/unit.h"

enum { DISK_BYTES = 1 << 20, HALF = DISK_BYTES / 2, DEEP = 18 };

static const struct duplicate_plan to_store = {.from = 1, .into = 7, .durable = true};

/* A disk of a megabyte with an empty layer 1, and a store. */
struct disks {
    struct scratch dir;
    int from, store;
};

static void disks_done(struct disks *d) {
    close(d->from);
    close(d->store);
    scratch_done(&d->dir);
}

static struct disks disks_new(void) {
    static const struct mount_option size = {"size", "1m"};
    struct disks d = {.dir = scratch_new(), .from = mount_new("tmpfs", &size, 1, 0)};
    d.store = scratch_open(&d.dir);
    if (d.from == -EPERM || d.from == -ENOSYS) {
        close(d.store);
        scratch_done(&d.dir);
        skip(); /* only root makes disks, and valgrind 3.19 does not know how */
    }
    assert_true(d.from >= 0 && d.store >= 0);
    assert_int_equal(mkdirat(d.from, "1", 0755), 0);
    assert_int_equal(mkdirat(d.from, "1/u", 0755), 0);
    assert_int_equal(mkdirat(d.from, "1/U", 0755), 0);
    return d;
}

static int open_dir(int dir, const char *name) {
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void put_file(int dir, const char *name, size_t bytes) {
    static const char zeros[4096];
    int fd DEFER_CLOSE = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    for (size_t done = 0; done < bytes; done += sizeof(zeros))
        assert_int_equal(write(fd, zeros, sizeof(zeros)), sizeof(zeros));
}

static void put_links(int dir, const char *name, int count) {
    for (int i = 0; i < count; i++) {
        char other[16];
        snprintf(other, sizeof(other), "l%d", i);
        assert_int_equal(linkat(dir, name, dir, other, 0), 0);
    }
}

/* So deep that the path to it is too long for a path. */
static int put_deep(int dir) {
    char name[251];
    memset(name, 'd', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    int at = open_dir(dir, ".");
    for (int i = 0; i < DEEP; i++) {
        assert_int_equal(mkdirat(at, name, 0700), 0);
        int below = open_dir(at, name);
        close(at);
        at = below;
    }
    return at;
}

static bool is_there(int dir, const char *name) {
    return faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void names_of_one_file_stay_so_and_holes_stay_holes(void **state) {
    (void)state;
    struct stat st, linked;
    struct disks d DEFER(disks_done) = disks_new();
    int part DEFER_CLOSE = open_dir(d.from, "1/u");
    put_file(part, "f", HALF);
    put_links(part, "f", 8);
    put_file(part, "holes", 4096);
    int holes DEFER_CLOSE = openat(part, "holes", O_WRONLY | O_CLOEXEC);
    assert_int_equal(ftruncate(holes, 1ll << 30), 0);
    assert_int_equal(duplicate_layer(d.from, d.store, &to_store, NULL), 0);
    assert_int_equal(fstatat(d.store, "7/u/f", &st, 0), 0);
    assert_int_equal(fstatat(d.store, "7/u/l7", &linked, 0), 0);
    assert_true(st.st_size == HALF && st.st_nlink == 9 && st.st_ino == linked.st_ino);
    assert_int_equal(fstatat(d.store, "7/u/holes", &st, 0), 0);
    assert_true(st.st_size == 1ll << 30 && st.st_blocks < 64);
}

/* All of it is on the disk before it has its name. The control is a copy that need not outlive the
 * host. */
static void a_copy_in_the_store_is_on_the_disk(void **state) {
    (void)state;
    struct duplicate_plan plan = to_store;
    struct disks d DEFER(disks_done) = disks_new();
    int part DEFER_CLOSE = open_dir(d.from, "1/u");
    put_file(part, "f", 4096);
    sync_forget();
    assert_int_equal(duplicate_layer(d.from, d.store, &plan, NULL), 0);
    assert_string_equal(sync_seen.early, "");
    assert_null(sync_unsynced(d.dir.path));
    plan = (struct duplicate_plan){.from = 1, .into = 8};
    assert_int_equal(duplicate_layer(d.from, d.store, &plan, NULL), 0);
    assert_string_not_equal(sync_seen.early, "");
}

/* Names that cannot become links become copies: many of them would be many disks. */
static void a_copy_in_the_store_takes_no_more_than_its_disk_could_hold(void **state) {
    (void)state;
    struct disks d DEFER(disks_done) = disks_new();
    int part DEFER_CLOSE = open_dir(d.from, "1/u"), deep DEFER_CLOSE = put_deep(part);
    put_file(deep, "f", HALF);
    put_links(deep, "f", 8);
    assert_int_equal(duplicate_layer(d.from, d.store, &to_store, NULL), -EDQUOT);
    assert_false(is_there(d.store, "7"));
    assert_false(is_there(d.store, "7.new"));
    for (int i = 1; i < 8; i++) {
        char name[16];
        snprintf(name, sizeof(name), "l%d", i);
        assert_int_equal(unlinkat(deep, name, 0), 0);
    }
    assert_int_equal(duplicate_layer(d.from, d.store, &to_store, NULL), 0);
    assert_true(is_there(d.store, "7"));
}

/* The step before stays until the next one is whole: there is room for both, and no more. */
static void all_copies_together_have_an_end_too(void **state) {
    (void)state;
    struct duplicate_plan plan = to_store;
    struct disks d DEFER(disks_done) = disks_new();
    int part DEFER_CLOSE = open_dir(d.from, "1/u");
    put_file(part, "f", DISK_BYTES / 4 * 3);
    assert_int_equal(duplicate_layer(d.from, d.store, &plan, NULL), 0);
    plan.into++;
    assert_int_equal(duplicate_layer(d.from, d.store, &plan, NULL), 0);
    plan.into++;
    assert_int_equal(duplicate_layer(d.from, d.store, &plan, NULL), -EDQUOT);
    assert_int_equal(tree_remove(d.store, "7"), 0);
    assert_int_equal(duplicate_layer(d.from, d.store, &plan, NULL), 0);
}

/* Whoever lets go of a layer does not ask who reads it. */
struct thrower {
    int disk, store;
};

static void *throw_away(void *arg) {
    const struct thrower *t = arg;
    while (!is_there(t->store, "7.new/U") && !is_there(t->store, "7"))
        usleep(10);
    renameat(t->disk, "1", t->disk, "trash");
    return NULL;
}

static void what_was_thrown_away_meanwhile_is_not_copied(void **state) {
    (void)state;
    enum { FILES = 1000, TRIES = 20 };
    struct disks d DEFER(disks_done) = disks_new();
    struct thrower thrower = {d.from, d.store};
    int part DEFER_CLOSE = open_dir(d.from, "1/U"), r = 0;
    for (int i = 0; i < FILES; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%d", i);
        put_file(part, name, 0);
    }
    for (int i = 0; r == 0 && i < TRIES; i++) { /* it may come too late */
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, throw_away, &thrower), 0);
        r = duplicate_layer(d.from, d.store, &to_store, NULL);
        bool made = is_there(d.store, "7");
        assert_int_equal(made, r == 0);
        assert_false(is_there(d.store, "7.new"));
        if (!made) /* so that it does not wait for ever */
            assert_int_equal(mkdirat(d.store, "7", 0700), 0);
        pthread_join(thread, NULL);
        assert_int_equal(tree_remove(d.store, "7"), 0);
        assert_int_equal(renameat(d.from, "trash", d.from, "1"), 0);
    }
    assert_int_equal(r, -ESTALE);
}

static void a_layer_is_known_again(void **state) {
    (void)state;
    struct disks d DEFER(disks_done) = disks_new();
    int held DEFER_CLOSE = layer_hold(d.from, 1);
    assert_true(held >= 0);
    assert_int_equal(layer_still(d.from, 1, held), 0);
    assert_int_equal(renameat(d.from, "1", d.from, "trash"), 0);
    assert_int_equal(layer_still(d.from, 1, held), -ESTALE);
    assert_int_equal(mkdirat(d.from, "1", 0755), 0);
    assert_int_equal(layer_still(d.from, 1, held), -ESTALE);
    assert_int_equal(layer_hold(d.from, 2), -ENOENT);
}

UNIT_MAIN(cmocka_unit_test(names_of_one_file_stay_so_and_holes_stay_holes),
          cmocka_unit_test(a_copy_in_the_store_is_on_the_disk),
          cmocka_unit_test(a_copy_in_the_store_takes_no_more_than_its_disk_could_hold),
          cmocka_unit_test(all_copies_together_have_an_end_too),
          cmocka_unit_test(what_was_thrown_away_meanwhile_is_not_copied),
          cmocka_unit_test(a_layer_is_known_again))
