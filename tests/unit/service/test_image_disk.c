#include "tests/unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "service/image_disk.h"

enum { MIB = 1 << 20 };

static char top[64];

static int make_tree(void **state) {
    const char *base = getenv("TMPDIR");
    (void)state;
    snprintf(top, sizeof(top), "%.40s/disk-XXXXXX", base ? base : "/tmp");
    return mkdtemp(top) ? 0 : -1;
}

static int open_top(void) {
    int fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static int wipe_tree(void **state) {
    char command[128];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf '%s'", top);
    return system(command);
}

/* A MiB of blocks; size: what the file says of itself. */
static void put_mib(int dir, const char *name, off_t size) {
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    static char piece[MIB];
    memset(piece, 'x', sizeof(piece));
    assert_int_equal(write(fd, piece, sizeof(piece)), sizeof(piece));
    if (size > MIB)
        assert_int_equal(ftruncate(fd, size), 0);
    assert_int_equal(fsync(fd), 0);
    close(fd);
}

static uint64_t measure(int dir) {
    uint64_t n;
    assert_int_equal(image_disk(dir, 0, &n), 0);
    return n;
}

/* Below: whatever else the filesystem needs for a few entries. */
static void assert_mibs(uint64_t n, uint64_t mibs) {
    assert_in_range(n, mibs * MIB, mibs * MIB + MIB / 2);
}

static void blocks_count_at_every_depth_and_holes_do_not(void **state) {
    int dir = open_top();
    (void)state;
    assert_mibs(measure(dir), 0);
    put_mib(dir, "a", 0);
    assert_int_equal(mkdirat(dir, "d", 0700), 0);
    assert_int_equal(mkdirat(dir, "d/e", 0700), 0);
    put_mib(dir, "d/e/b", (off_t)64 * MIB);
    assert_mibs(measure(dir), 2);
    close(dir);
}

static void a_file_with_two_names_counts_once(void **state) {
    int dir = open_top();
    (void)state;
    put_mib(dir, "a", 0);
    assert_int_equal(mkdirat(dir, "d", 0700), 0);
    assert_int_equal(linkat(dir, "a", dir, "d/b", 0), 0);
    assert_mibs(measure(dir), 1);
    close(dir);
}

/* Else a link would count what is not the image's, or hide in a circle. */
static void links_are_not_followed(void **state) {
    int dir = open_top();
    (void)state;
    assert_int_equal(mkdirat(dir, "d", 0700), 0);
    put_mib(dir, "d/a", 0);
    assert_int_equal(symlinkat("..", dir, "d/up"), 0);
    assert_int_equal(symlinkat("d/a", dir, "again"), 0);
    assert_mibs(measure(dir), 1);
    close(dir);
}

static void a_tree_deeper_than_any_image_is_refused(void **state) {
    int dir = open_top(), at = dup(dir);
    uint64_t n;
    (void)state;
    for (int i = 0; i < 300; i++) {
        assert_int_equal(mkdirat(at, "d", 0700), 0);
        int next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        close(at);
        at = next;
    }
    put_mib(at, "hidden", 0);
    close(at);
    assert_int_equal(image_disk(dir, 0, &n), -ELOOP);
    close(dir);
}

#define TREE_TEST(f) cmocka_unit_test_setup_teardown(f, make_tree, wipe_tree)
UNIT_MAIN(TREE_TEST(blocks_count_at_every_depth_and_holes_do_not),
          TREE_TEST(a_file_with_two_names_counts_once), TREE_TEST(links_are_not_followed),
          TREE_TEST(a_tree_deeper_than_any_image_is_refused))
