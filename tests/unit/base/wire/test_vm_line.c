#include "tests/unit/unit.h"

#include "base/wire/vm_line.h"

static bool read_text(const char *text, struct vm_line *ret) {
    return vm_line_read(text, strlen(text), ret);
}

static void words_of_the_guest_are_read_among_others(void **state) {
    (void)state;
    struct vm_line l;
    assert_true(read_text("console=ttyS0 carrel.hostname=m-1.x quiet carrel.net=1 "
                          "carrel.init=system  xcarrel.y=1\n",
                          &l));
    assert_string_equal(l.hostname, "m-1.x");
    assert_true(l.has_net && l.starts_system);
    assert_true(read_text("carrel.hostname=a", &l));
    assert_true(!l.has_net && !l.starts_system);
    assert_true(read_text("carrel.hostname=a carrel.net=0 carrel.init=guest", &l));
    assert_true(!l.has_net && !l.starts_system);
}

static void wrong_words_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "quiet",
        "carrel.hostname=",
        "carrel.hostname=a/b",
        "carrel.hostname=-a",
        "carrel.hostname=.",
        "carrel.hostname=a carrel.net=2",
        "carrel.hostname=a carrel.net=",
        "carrel.hostname=a carrel.init=systemd",
        "carrel.hostname=a carrel.",
        "carrel.hostname=a carrel.nets=1",
        ("carrel.hostname="
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct vm_line l = {.hostname = "old", .has_net = true};
        assert_false(read_text(bad[i], &l));
        assert_string_equal(l.hostname, "");
        assert_false(l.has_net);
    }
}

static void a_written_line_reads_as_it_was(void **state) {
    (void)state;
    struct vm_line l = {.hostname = "m-9", .has_net = true, .starts_system = true}, again;
    char text[128] = "quiet";
    assert_true(vm_line_write(&l, text + 5, sizeof(text) - 5));
    assert_string_equal(text, "quiet carrel.hostname=m-9 carrel.init=system carrel.net=1");
    assert_true(read_text(text, &again));
    assert_memory_equal(&l, &again, sizeof(l));
    assert_false(vm_line_write(&l, text, 20));
    assert_false(vm_line_write(&(struct vm_line){.hostname = "a b"}, text, sizeof(text)));
    assert_false(vm_line_write(&(struct vm_line){0}, text, sizeof(text)));
}

UNIT_MAIN(cmocka_unit_test(words_of_the_guest_are_read_among_others),
          cmocka_unit_test(wrong_words_are_refused),
          cmocka_unit_test(a_written_line_reads_as_it_was))
