/* The limits of an archive, each at the last that is allowed and at the first that is not. */
#include "tests/unit/unit.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/defer.h"
#include "image/spool.h"
#include "image/unpack.h"
#include "tests/unit/scratch.h"

enum { ROOM = 4 << 20 };

struct case_of {
    const char *dir; /* with a slash; NULL: none */
    unsigned files;
    size_t bytes;        /* of each file */
    unsigned attributes; /* of each file */
    size_t attribute_bytes;
};

/* A tar of files 0, 1, ... that belong to whoever runs the test, who may give them no one else. */
static size_t make_archive(const struct case_of *c, char *to) {
    static char zeros[128 << 10];
    struct archive *a = archive_write_new();
    size_t used = 0;
    archive_write_set_format_pax(a);
    assert_int_equal(archive_write_set_option(a, "pax", "xattrheader", "SCHILY"), ARCHIVE_OK);
    assert_int_equal(archive_write_open_memory(a, to, ROOM, &used), ARCHIVE_OK);
    for (unsigned i = 0; i < c->files; i++) {
        struct archive_entry *e = archive_entry_new();
        char name[32];
        snprintf(name, sizeof(name), "%s%u", c->dir ? c->dir : "", i);
        archive_entry_set_pathname(e, name);
        archive_entry_set_filetype(e, AE_IFREG);
        archive_entry_set_perm(e, 0644);
        archive_entry_set_uid(e, geteuid());
        archive_entry_set_gid(e, getegid());
        archive_entry_set_size(e, (int64_t)c->bytes);
        for (unsigned k = 0; k < c->attributes; k++) {
            /* Of the host's policy: it counts, and is never set. */
            snprintf(name, sizeof(name), "security.test%u", k);
            archive_entry_xattr_add_entry(e, name, zeros, c->attribute_bytes);
        }
        assert_int_equal(archive_write_header(a, e), ARCHIVE_OK);
        assert_int_equal(archive_write_data(a, zeros, c->bytes), c->bytes);
        archive_entry_free(e);
    }
    assert_int_equal(archive_write_close(a), ARCHIVE_OK);
    archive_write_free(a);
    return used;
}

static struct archive *open_archive(const struct case_of *c, char *bytes) {
    size_t n = make_archive(c, bytes);
    struct archive *a = unpack_reader();
    assert_non_null(a);
    assert_int_equal(archive_read_open_memory(a, bytes, n), ARCHIVE_OK);
    return a;
}

static void free_bytes(char **bytes) {
    free(*bytes);
}

/* 0, or the code of the error. */
static int unpacked(struct case_of c, struct image_limits limits) {
    struct scratch dir DEFER(scratch_done) = scratch_new();
    char *bytes DEFER(free_bytes) = malloc(ROOM);
    assert_non_null(bytes);
    int root DEFER_CLOSE = scratch_open(&dir);
    struct report report = {.fd = -1};
    struct unpack u = unpack_begin(root, (struct image_ids){.shared = false}, &report);
    struct archive *a DEFER(unpack_reader_free) = open_archive(&c, bytes);
    struct err err = {.code = 0};
    u.limits = limits;
    int r = unpack_rest(&u, a, false, &err);
    unpack_done(&u);
    return r < 0 ? (int)err.code : 0;
}

static void an_image_has_so_many_entries_and_bytes(void **state) {
    (void)state;
    const struct image_limits few = {.entries = 3, .bytes = 1 << 20};
    assert_int_equal(unpacked((struct case_of){.files = 3}, few), 0);
    assert_int_equal(unpacked((struct case_of){.files = 4}, few), ERR_LIMIT);
    const struct image_limits small = {.entries = 10, .bytes = 100};
    assert_int_equal(unpacked((struct case_of){.files = 2, .bytes = 50}, small), 0);
    assert_int_equal(unpacked((struct case_of){.files = 2, .bytes = 51}, small), ERR_LIMIT);
    assert_int_equal(unpacked((struct case_of){.files = 1, .bytes = 101}, small), ERR_LIMIT);
}

/* Four times what an image may hold: a layer is read twice, and was laid aside before. */
static void what_is_left_out_takes_time_too(void **state) {
    (void)state;
    const struct image_limits small = {.entries = 10, .bytes = 100};
    const struct image_limits quota = {.entries = 10, .bytes = 1 << 20, .disk = 100};
    assert_int_equal(unpacked((struct case_of){"dev/", .files = 4, .bytes = 100}, small), 0);
    assert_int_equal(unpacked((struct case_of){"dev/", .files = 4, .bytes = 101}, small),
                     ERR_LIMIT);
    assert_int_equal(unpacked((struct case_of){"dev/", .files = 4, .bytes = 100}, quota), 0);
    assert_int_equal(unpacked((struct case_of){"dev/", .files = 4, .bytes = 101}, quota),
                     ERR_LIMIT);
}

static void an_entry_has_so_many_attributes(void **state) {
    (void)state;
    const struct image_limits all = IMAGE_LIMITS;
    const struct case_of most = {.files = 1, .attributes = 64, .attribute_bytes = 1024};
    struct case_of more = most;
    assert_int_equal(unpacked(most, all), 0);
    more.attributes = 65;
    more.attribute_bytes = 1;
    assert_int_equal(unpacked(more, all), ERR_LIMIT);
    more = most;
    more.attribute_bytes = 1025;
    assert_int_equal(unpacked(more, all), ERR_LIMIT);
}

static int laid_aside(struct case_of c, uint64_t limit) {
    struct scratch dir DEFER(scratch_done) = scratch_new();
    char *bytes DEFER(free_bytes) = malloc(ROOM);
    assert_non_null(bytes);
    int root DEFER_CLOSE = scratch_open(&dir);
    struct report report = {.fd = -1};
    struct unpack u = unpack_begin(root, (struct image_ids){.shared = false}, &report);
    struct spool s = {.dir = root, .limit = limit, .unpack = &u, .report = &report};
    struct archive *a DEFER(unpack_reader_free) = open_archive(&c, bytes);
    struct archive_entry *e;
    struct err err = {.code = 0};
    int r;
    while ((r = unpack_next(&u, a, &e, &err)) > 0 && (r = spool_take(&s, a, e, &err)) == 0)
        ;
    spool_done(&s);
    unpack_done(&u);
    return r < 0 ? (int)err.code : 0;
}

static void so_much_is_laid_aside(void **state) {
    (void)state;
    const struct case_of most = {.files = SPOOL_FILES_MAX}, more = {.files = SPOOL_FILES_MAX + 1};
    assert_int_equal(laid_aside(most, 1), 0);
    assert_int_equal(laid_aside(more, 1), ERR_LIMIT);
    assert_int_equal(laid_aside((struct case_of){.files = 2, .bytes = 50}, 100), 0);
    assert_int_equal(laid_aside((struct case_of){.files = 2, .bytes = 51}, 100), ERR_LIMIT);
}

UNIT_MAIN(cmocka_unit_test(an_image_has_so_many_entries_and_bytes),
          cmocka_unit_test(what_is_left_out_takes_time_too),
          cmocka_unit_test(an_entry_has_so_many_attributes),
          cmocka_unit_test(so_much_is_laid_aside))
