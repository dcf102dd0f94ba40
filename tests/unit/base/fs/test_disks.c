/* What the disks of a store are, as text. */
#include <string.h>

#include "base/fs/disks.h"
#include "tests/unit/unit.h"

static void what_is_printed_parses_again(void **state) {
    (void)state;
    static const struct disks all[] = {{true, false, 0},
                                       {true, true, DISKS_BTRFS_MIN},
                                       {true, true, 8ull << 30},
                                       {true, true, DISKS_BTRFS_MAX}};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) {
        char text[DISKS_TEXT_SIZE];
        struct disks again = {0};
        struct err err;
        disks_print(&all[i], text);
        assert_int_equal(disks_parse(text, &again, &err), 0);
        assert_true(again.said);
        assert_int_equal(again.btrfs, all[i].btrfs);
        assert_int_equal(again.bytes, all[i].bytes);
    }
}

static void anything_else_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "\n",
        "plain",
        "plain\n\n",
        "plains\n",
        "plai\n",
        "btrfs\n",
        "btrfs \n",
        "btrfs 1G\n",
        "btrfs -1\n",
        "btrfs 268435455\n",
        "btrfs 70368744177665\n",
        "btrfs 268435456",
        "btrfs 268435456 \n",
        "btrfs 0000000000000000000000000000268435456\n",
        " btrfs 268435456\n",
        "btrfs 268435456\nplain\n",
        "zfs 268435456\n",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct disks d = {.bytes = 7};
        struct err err;
        assert_int_equal(disks_parse(bad[i], &d, &err), -1);
        assert_int_equal(err.code, ERR_INVALID);
        assert_int_equal(d.bytes, 7);
    }
}

UNIT_MAIN(cmocka_unit_test(what_is_printed_parses_again),
          cmocka_unit_test(anything_else_is_refused))
