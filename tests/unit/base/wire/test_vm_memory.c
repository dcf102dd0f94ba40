#include "tests/unit/scratch.h"
#include "tests/unit/unit.h"

#include <string.h>
#include <sys/stat.h>

#include "base/defer.h"
#include "base/wire/vm_memory.h"

enum { STREAM = 3 << 20, TABLE = 100 };

static struct vm_memory_head some_head(void) {
    struct vm_memory_head head = {
        .mem_bytes = 4 << 20, .stream_bytes = STREAM, .table_bytes = TABLE};
    vm_memory_begin(&head);
    return head;
}

/* A whole file. Returns a descriptor of it. */
static int write_file(const char *path) {
    struct vm_memory_head head = some_head();
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, VM_MEMORY_STREAM + STREAM + TABLE), 0);
    assert_int_equal(pwrite(fd, "memory", 6, VM_MEMORY_STREAM + STREAM / 2), 6);
    assert_int_equal(vm_memory_sum(&head, fd), 0);
    assert_int_equal(pwrite(fd, &head, sizeof(head), 0), sizeof(head));
    return fd;
}

static bool opens(const char *path) {
    struct vm_memory_head head;
    struct err err;
    int fd;
    if (vm_memory_open(path, &fd, &head, &err) < 0)
        return false;
    assert_int_equal(head.stream_bytes, STREAM);
    close(fd);
    return true;
}

static void sizes_of_a_file_add_up_or_it_is_refused(void **state) {
    (void)state;
    const uint64_t size = VM_MEMORY_STREAM + STREAM + TABLE;
    struct vm_memory_head head = some_head();
    assert_true(vm_memory_fits(&head, size));
    assert_false(vm_memory_fits(&head, size - 1) || vm_memory_fits(&head, size + 1));
    head.magic[0]++;
    assert_false(vm_memory_fits(&head, size));
    const struct vm_memory_head bad[] = {
        {.mem_bytes = STREAM, .stream_bytes = 0, .table_bytes = STREAM + TABLE},
        {.mem_bytes = STREAM, .stream_bytes = STREAM + TABLE, .table_bytes = 0},
        {.mem_bytes = UINT64_MAX, .stream_bytes = STREAM, .table_bytes = TABLE},
        {.mem_bytes = UINT64_MAX - VM_MEMORY_DEVICES_MAX + 1,
         .stream_bytes = STREAM,
         .table_bytes = TABLE},
        {.mem_bytes = UINT64_MAX / 2 - 1,
         .stream_bytes = UINT64_MAX - VM_MEMORY_STREAM,
         .table_bytes = TABLE},
        {.mem_bytes = STREAM, .stream_bytes = STREAM, .table_bytes = UINT64_MAX},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        head = bad[i];
        vm_memory_begin(&head);
        assert_false(
            vm_memory_fits(&head, VM_MEMORY_STREAM + head.stream_bytes + head.table_bytes));
    }
    head = some_head();
    head.mem_bytes = 0;
    head.stream_bytes = VM_MEMORY_DEVICES_MAX + 1;
    assert_false(vm_memory_fits(&head, VM_MEMORY_STREAM + head.stream_bytes + TABLE));
    head.table_bytes = VM_MEMORY_TABLE_MAX + 1;
    head.stream_bytes = 1;
    assert_false(vm_memory_fits(&head, VM_MEMORY_STREAM + 1 + head.table_bytes));
}

static void a_damaged_byte_is_found_wherever_it_is(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    char path[128];
    snprintf(path, sizeof(path), "%s/m", dir.path);
    int fd DEFER_CLOSE = write_file(path);
    assert_true(opens(path));
    const off_t at[] = {20,
                        80,
                        95,
                        VM_MEMORY_STREAM,
                        VM_MEMORY_STREAM + (2 << 20),
                        VM_MEMORY_STREAM + STREAM + TABLE - 1};
    for (size_t i = 0; i < sizeof(at) / sizeof(*at); i++) {
        uint8_t was, is;
        assert_int_equal(pread(fd, &was, 1, at[i]), 1);
        is = was ^ 1;
        assert_int_equal(pwrite(fd, &is, 1, at[i]), 1);
        assert_false(opens(path));
        assert_int_equal(pwrite(fd, &was, 1, at[i]), 1);
        assert_true(opens(path));
    }
    assert_int_equal(ftruncate(fd, 50), 0);
    assert_false(opens(path));
}

static void a_file_that_others_can_write_is_not_believed(void **state) {
    (void)state;
    struct scratch dir DEFER(scratch_done) = scratch_new();
    char path[128], link[128];
    snprintf(path, sizeof(path), "%s/m", dir.path);
    snprintf(link, sizeof(link), "%s/l", dir.path);
    int fd DEFER_CLOSE = write_file(path);
    assert_true(opens(path));
    assert_int_equal(symlink(path, link), 0);
    assert_false(opens(link));
    assert_false(opens(dir.path));
    assert_int_equal(fchmod(fd, 0620), 0);
    assert_false(opens(path));
    assert_int_equal(fchmod(fd, 0600), 0);
    if (geteuid() == 0) {
        assert_int_equal(fchown(fd, 1000, 1000), 0);
        assert_false(opens(path));
    }
}

UNIT_MAIN(cmocka_unit_test(sizes_of_a_file_add_up_or_it_is_refused),
          cmocka_unit_test(a_damaged_byte_is_found_wherever_it_is),
          cmocka_unit_test(a_file_that_others_can_write_is_not_believed))
