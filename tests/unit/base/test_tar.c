#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include "base/tar.h"

static struct tar_reader reader;
static struct tar_entry entry, got;

/* Reads back what tar_put() wrote. */
static size_t round_trip(void) {
    static uint8_t head[TAR_HEAD_MAX];
    size_t n = tar_put(head, &entry);
    memset(&reader, 0, sizeof(reader));
    for (size_t at = 0; at < n; at += TAR_BLOCK)
        assert_int_equal(tar_next(&reader, head + at, &got),
                         at + TAR_BLOCK < n ? TAR_MORE : TAR_ENTRY);
    assert_string_equal(got.path, entry.path);
    assert_string_equal(got.target, entry.target);
    assert_int_equal(got.kind, entry.kind);
    assert_int_equal(got.mode, entry.mode);
    assert_int_equal(got.size, entry.size);
    assert_int_equal(got.mtime, entry.mtime);
    return n;
}

/* A name of n bytes, with slashes every `every`. */
static void name(char *to, size_t n, size_t every) {
    for (size_t i = 0; i < n; i++)
        to[i] = every && i % every == every - 1 ? '/' : 'n';
    to[n] = '\0';
}

static void plain(size_t path, size_t every) {
    memset(&entry, 0, sizeof(entry));
    entry.mode = 0754;
    entry.mtime = 1234567890;
    name(entry.path, path, every);
}

static void names_of_every_length_come_back(void **state) {
    (void)state;
    for (size_t n = 1; n <= 300; n++) {
        plain(n, 0);
        assert_int_equal(round_trip(), n <= 100 ? TAR_BLOCK : 3 * TAR_BLOCK);
        plain(n, 70);
        if (entry.path[n - 1] != '/')
            round_trip();
    }
    plain(TAR_NAME_MAX, 0);
    entry.kind = TAR_SYMLINK;
    name(entry.target, TAR_NAME_MAX, 0);
    assert_true(round_trip() <= TAR_HEAD_MAX);
}

static void a_long_path_is_cut_at_a_slash_where_it_can_be(void **state) {
    (void)state;
    plain(200, 101);
    assert_int_equal(round_trip(), TAR_BLOCK);
    plain(256, 156);
    assert_int_equal(round_trip(), TAR_BLOCK);
    plain(257, 156);
    assert_int_equal(round_trip(), 3 * TAR_BLOCK);
}

static void sizes_up_to_the_largest(void **state) {
    (void)state;
    const uint64_t sizes[] = {0, 1, 511, 512, 8589934591, 8589934592, INT64_MAX / 20};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        plain(5, 0);
        entry.size = sizes[i];
        assert_int_equal(round_trip(), sizes[i] >> 33 ? 3 * TAR_BLOCK : TAR_BLOCK);
    }
    assert_int_equal(tar_padding(0), 0);
    assert_int_equal(tar_padding(1), 511);
    assert_int_equal(tar_padding(512), 0);
}

static void only_files_have_contents(void **state) {
    (void)state;
    static uint8_t head[TAR_HEAD_MAX];
    const enum tar_kind kinds[] = {TAR_DIR, TAR_SYMLINK, TAR_HARDLINK};
    for (size_t i = 0; i < 3; i++) {
        plain(5, 0);
        entry.kind = kinds[i];
        entry.size = 1000;
        tar_put(head, &entry);
        memset(&reader, 0, sizeof(reader));
        assert_int_equal(tar_next(&reader, head, &got), TAR_ENTRY);
        assert_int_equal(got.size, 0);
    }
}

static void a_changed_byte_is_noticed(void **state) {
    (void)state;
    static uint8_t head[TAR_HEAD_MAX];
    plain(20, 0);
    for (size_t at = 0; at < TAR_BLOCK; at++) {
        if (at >= 148 && at < 156)
            continue; /* the sum itself: blanks around its digits mean nothing */
        tar_put(head, &entry);
        head[at] ^= 0x10;
        memset(&reader, 0, sizeof(reader));
        assert_int_equal(tar_next(&reader, head, &got), TAR_BAD);
    }
}

static void zeros_are_the_end(void **state) {
    (void)state;
    static const uint8_t zeros[TAR_BLOCK];
    memset(&reader, 0, sizeof(reader));
    assert_int_equal(tar_next(&reader, zeros, &got), TAR_END);
}

/* Writes the header of a pax entry whose contents have `size` bytes. */
static void pax_head(uint8_t head[TAR_HEAD_MAX], uint64_t size) {
    plain(20, 0);
    entry.size = size;
    tar_put(head, &entry);
    head[156] = 'x';
    memset(head + 148, ' ', 8);
    unsigned sum = 0;
    for (size_t i = 0; i < TAR_BLOCK; i++)
        sum += head[i];
    snprintf((char *)head + 148, 8, "%06o", sum);
    head[155] = ' ';
}

static enum tar_step read_pax(uint64_t size, const uint8_t contents[TAR_BLOCK]) {
    static uint8_t head[TAR_HEAD_MAX];
    pax_head(head, size);
    memset(&reader, 0, sizeof(reader));
    enum tar_step step = tar_next(&reader, head, &got);
    return step == TAR_MORE ? tar_next(&reader, contents, &got) : step;
}

static void an_extended_header_has_a_largest_size(void **state) {
    (void)state;
    static const uint8_t zeros[TAR_BLOCK];
    assert_int_equal(read_pax(TAR_META_MAX, zeros), TAR_MORE);
    assert_int_equal(read_pax(TAR_META_MAX + 1, zeros), TAR_BAD);
}

static void a_name_with_a_zero_byte_is_refused(void **state) {
    (void)state;
    static const uint8_t good[TAR_BLOCK] = "12 path=abc\n", bad[TAR_BLOCK] = "12 path=a\0c\n";
    assert_int_equal(read_pax(12, good), TAR_MORE);
    assert_int_equal(read_pax(12, bad), TAR_BAD);
}

UNIT_MAIN(cmocka_unit_test(an_extended_header_has_a_largest_size),
          cmocka_unit_test(a_name_with_a_zero_byte_is_refused),
          cmocka_unit_test(names_of_every_length_come_back),
          cmocka_unit_test(a_long_path_is_cut_at_a_slash_where_it_can_be),
          cmocka_unit_test(sizes_up_to_the_largest), cmocka_unit_test(only_files_have_contents),
          cmocka_unit_test(a_changed_byte_is_noticed), cmocka_unit_test(zeros_are_the_end))
