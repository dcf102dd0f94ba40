#include "tests/unit/unit.h"

#include <string.h>

#include "service/exec/kept.h"

static struct kept_file file(const char *machine, const char *owner, const char *exec,
                             int64_t time_ms) {
    struct kept_file f = {.bytes = 100, .time_ms = time_ms};
    snprintf(f.machine, sizeof(f.machine), "%s", machine);
    snprintf(f.owner, sizeof(f.owner), "%s", owner);
    snprintf(f.exec, sizeof(f.exec), "%s", exec);
    return f;
}

/* The execs that go, in the order of their names: "a c". */
static const char *gone(struct kept_file *files, size_t count, struct kept_limits limits) {
    static char text[64];
    text[0] = '\0';
    kept_choose(files, count, &limits);
    for (char name = 'a'; name <= 'z'; name++)
        for (size_t i = 0; i < count; i++)
            if (files[i].goes && files[i].exec[0] == name)
                snprintf(text + strlen(text), sizeof(text) - strlen(text), "%c", name);
    return text;
}

static void the_oldest_of_a_machine_go(void **state) {
    (void)state;
    struct kept_file f[] = {file("m-1", "ann", "a", 10), file("m-1", "ann", "b", 30),
                            file("m-1", "ann", "c", 20), file("m-2", "ann", "d", 1)};
    assert_string_equal(gone(f, 4, (struct kept_limits){.machine_bytes = 200}), "a");
    assert_string_equal(gone(f, 4, (struct kept_limits){.machine_bytes = 199}), "ac");
    assert_string_equal(gone(f, 4, (struct kept_limits){0}), "");
}

static void the_oldest_of_an_owner_go(void **state) {
    (void)state;
    struct kept_file f[] = {file("m-1", "ann", "a", 10), file("m-2", "ann", "b", 30),
                            file("m-3", "bob", "c", 5), file("m-3", "", "d", 1)};
    assert_string_equal(gone(f, 4, (struct kept_limits){.owner_bytes = 100}), "a");
}

static void what_is_too_old_goes(void **state) {
    (void)state;
    struct kept_file f[] = {file("m-1", "ann", "a", 10), file("m-1", "ann", "b", 20)};
    assert_string_equal(gone(f, 2, (struct kept_limits){.since_ms = 20}), "a");
    assert_string_equal(gone(f, 2, (struct kept_limits){.since_ms = 21}), "ab");
}

/* It counts all the same: others make room for it. */
static void a_command_that_may_write_keeps_its_file(void **state) {
    (void)state;
    struct kept_file f[] = {file("m-1", "ann", "a", 10), file("m-1", "ann", "b", 5)};
    f[0].busy = true;
    f[0].bytes = 1000;
    assert_string_equal(gone(f, 2, (struct kept_limits){.machine_bytes = 500, .since_ms = 100}),
                        "b");
}

static void an_owner_may_be_called_like_a_machine(void **state) {
    (void)state;
    struct kept_file f[] = {file("m-1", "m-2", "a", 10), file("m-2", "m-1", "b", 20)};
    const struct kept_limits limits = {.machine_bytes = 150, .owner_bytes = 150};
    assert_string_equal(gone(f, 2, limits), "");
}

UNIT_MAIN(cmocka_unit_test(the_oldest_of_a_machine_go), cmocka_unit_test(the_oldest_of_an_owner_go),
          cmocka_unit_test(what_is_too_old_goes),
          cmocka_unit_test(a_command_that_may_write_keeps_its_file),
          cmocka_unit_test(an_owner_may_be_called_like_a_machine))
