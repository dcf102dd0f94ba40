#include "tests/unit/unit.h"

#include <string.h>

#include "cli/text/habits.h"
#include "cli/text/nearest.h"

static const char *of(const char *typed) {
    static const char *const names[] = {"run",   "rm",     "ls",   "logs",      "steps", "stop",
                                        "store", "rewind", "exec", "hibernate", "mem",   "expose"};
    struct nearest n = NEAREST(typed);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        nearest_try(&n, names[i]);
    return n.best ? n.best : "";
}

static void typing_mistakes_are_understood(void **state) {
    (void)state;
    assert_string_equal(of("rn"), "run"); /* a letter is missing; the first candidate stays */
    assert_string_equal(of("runn"), "run");
    assert_string_equal(of("sl"), "ls");
    assert_string_equal(of("setps"), "steps");
    assert_string_equal(of("hibrenate"), "hibernate");
    assert_string_equal(of("rewnd"), "rewind");
}

static void a_beginning_is_enough(void **state) {
    (void)state;
    assert_string_equal(of("hib"), "hibernate");
    assert_string_equal(of("memory"), "mem");
    assert_string_equal(of("expo"), "expose");
}

static void other_words_are_not_guessed(void **state) {
    (void)state;
    const char *const words[] = {"",
                                 "x",
                                 "banana",
                                 "kubernetes",
                                 "no-such-command",
                                 "zz",
                                 "a-word-that-is-longer-than-every-name-in-the-table"};
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        assert_string_equal(of(words[i]), "");
}

static void only_the_counted_part_is_compared(void **state) {
    (void)state;
    struct nearest n = {.word = "meem=2G", .len = 4};
    nearest_try(&n, "mem");
    assert_string_equal(n.best, "mem");
}

static void words_of_other_tools_are_answered(void **state) {
    bool json;
    (void)state;
    assert_string_equal(habit_command("ps", &json), "ls");
    assert_false(json);
    assert_string_equal(habit_command("inspect", &json), "show");
    assert_true(json);
    assert_null(habit_command("images", &json));
    assert_string_equal(habit_answer("images"), "carrel image ls");
    assert_null(habit_answer("run"));
    assert_string_equal(habit_option("--workdir=/x"), "--cwd");
    assert_null(habit_option("--work"));
}

UNIT_MAIN(cmocka_unit_test(typing_mistakes_are_understood), cmocka_unit_test(a_beginning_is_enough),
          cmocka_unit_test(other_words_are_not_guessed),
          cmocka_unit_test(only_the_counted_part_is_compared),
          cmocka_unit_test(words_of_other_tools_are_answered))
