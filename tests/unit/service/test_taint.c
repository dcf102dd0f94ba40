/* The table of flows, and which paths of the host are one place. */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/defer.h"
#include "service/taint.h"

static void every_flow_says_from_where_to_where(void **state) {
    (void)state;
    for (size_t i = 0; i < TAINT_FLOWS; i++) {
        const struct taint_flow_row *row = &taint_flows[i];
        assert_true(row->name && row->from && row->to && row->when);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(row->name, taint_flows[k].name);
    }
}

static void a_path_overlaps_what_it_holds_and_what_holds_it(void **state) {
    static const struct {
        const char *a, *b;
        bool overlap;
    } rows[] = {
        {"/a/b", "/a/b", true},  {"/a/b", "/a/b/", true},    {"/a/b", "/a/b/c", true},
        {"/a", "/a/b/c", true},  {"/", "/a", true},          {"/a/b", "/a/bc", false},
        {"/a/b", "/a/c", false}, {"/a/b/c", "/a/bb", false}, {"a/b", "a/b", false},
        {"", "/a", false},       {"NAME", "/a", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (int turned = 0; turned < 2; turned++)
            if (taint_overlaps(turned ? rows[i].b : rows[i].a, turned ? rows[i].a : rows[i].b) !=
                rows[i].overlap)
                fail_msg("'%s' and '%s'", rows[i].a, rows[i].b);
}

static void a_descriptor_says_where_it_leads(void **state) {
    char path[200], little[4];
    int fd = open("/proc/self/../..", O_PATH | O_CLOEXEC);
    (void)state;
    assert_true(taint_real_path(fd, path, sizeof(path)));
    assert_string_equal(path, "/");
    close_fd(&fd);
    fd = open("/usr", O_PATH | O_CLOEXEC);
    assert_false(taint_real_path(fd, little, sizeof(little)));
    close_fd(&fd);
    assert_false(taint_real_path(-1, path, sizeof(path)));
}

UNIT_MAIN(cmocka_unit_test(every_flow_says_from_where_to_where),
          cmocka_unit_test(a_path_overlaps_what_it_holds_and_what_holds_it),
          cmocka_unit_test(a_descriptor_says_where_it_leads))
