#include "tests/unit/unit.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/fs_room.h"
#include "store/ballast.h"
#include "tests/unit/scratch.h"

static void the_file_takes_its_room_and_gives_it_up_once(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    int fd DEFER_CLOSE = scratch_open(&dir);
    struct ballast b;
    struct stat st;
    ballast_init(&b, fd);
    assert_true(b.held && !b.full);
    assert_int_equal(fstatat(fd, "ballast", &st, 0), 0);
    assert_true((uint64_t)st.st_size >= b.bytes);
    assert_true((uint64_t)st.st_blocks * 512 >= b.bytes); /* not a hole */
    assert_true(ballast_release(&b));
    assert_true(b.full);
    assert_int_equal(faccessat(fd, "ballast", F_OK, 0), -1);
    assert_false(ballast_release(&b));
}

static void it_is_made_again_when_there_is_room(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    int fd DEFER_CLOSE = scratch_open(&dir);
    struct ballast b;
    ballast_init(&b, fd);
    assert_true(ballast_release(&b));
    ballast_look(&b);
    assert_true(b.held && !b.full);
    assert_int_equal(faccessat(fd, "ballast", F_OK, 0), 0);
}

static void a_disk_with_less_room_than_the_file_is_full(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    int fd DEFER_CLOSE = scratch_open(&dir);
    struct ballast b;
    ballast_init(&b, fd);
    b.bytes = UINT64_MAX / 4; /* more than any disk has */
    ballast_look(&b);
    assert_true(b.full);
    assert_true(ballast_release(&b));
    ballast_look(&b);
    assert_false(b.held);
    assert_int_equal(faccessat(fd, "ballast", F_OK, 0), -1);
}

static void a_ballast_that_cannot_be_is_never_full(void **state) {
    (void)state;
    int proc DEFER_CLOSE = open("/proc/self", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct ballast b;
    ballast_init(&b, proc);
    assert_false(b.full || b.held);
}

static void percentages_are_of_the_whole(void **state) {
    (void)state;
    assert_int_equal(fs_used_percent(&(struct fs_space){.free_bytes = 100, .total_bytes = 1000}),
                     90);
    assert_int_equal(fs_used_percent(&(struct fs_space){.free_bytes = 101, .total_bytes = 1000}),
                     89);
    assert_int_equal(fs_used_percent(&(struct fs_space){.free_bytes = 0, .total_bytes = 1000}),
                     100);
    assert_int_equal(fs_used_percent(&(struct fs_space){.free_bytes = UINT64_MAX}), 0);
}

UNIT_MAIN(cmocka_unit_test(the_file_takes_its_room_and_gives_it_up_once),
          cmocka_unit_test(it_is_made_again_when_there_is_room),
          cmocka_unit_test(a_disk_with_less_room_than_the_file_is_full),
          cmocka_unit_test(a_ballast_that_cannot_be_is_never_full),
          cmocka_unit_test(percentages_are_of_the_whole))
