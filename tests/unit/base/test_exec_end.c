#include "base/exec_end.h"
#include "tests/unit/unit.h"

static void an_exited_command_is_told_apart_by_its_reason(void **state) {
    (void)state;
    for (int end = EXEC_END_EXIT; end <= EXEC_END_MEMORY; end++)
        assert_int_equal(exec_end_of("exited", exec_end_word((enum exec_end)end)), end);
}

static void an_exit_without_a_known_reason_is_an_exit(void **state) {
    (void)state;
    assert_int_equal(exec_end_of("exited", NULL), EXEC_END_EXIT);
    assert_int_equal(exec_end_of("exited", ""), EXEC_END_EXIT);
    assert_int_equal(exec_end_of("exited", "a sentence"), EXEC_END_EXIT);
}

/* A program may be called "timeout": the sentence about it must not count as the word. */
static void a_sentence_does_not_change_what_a_state_says(void **state) {
    (void)state;
    assert_int_equal(exec_end_of("failed", "timeout"), EXEC_END_FAILED);
    assert_int_equal(exec_end_of("unknown", "exit"), EXEC_END_UNKNOWN);
    assert_int_equal(exec_end_of("running", "exit"), EXEC_END_NONE);
    assert_int_equal(exec_end_of("starting", NULL), EXEC_END_NONE);
    assert_int_equal(exec_end_of("", NULL), EXEC_END_NONE);
}

static void only_ends_of_commands_that_ran_have_a_word(void **state) {
    (void)state;
    assert_null(exec_end_word(EXEC_END_NONE));
    assert_null(exec_end_word(EXEC_END_FAILED));
    assert_null(exec_end_word(EXEC_END_UNKNOWN));
    assert_null(exec_end_word(EXEC_END_UNANSWERED));
    assert_null(exec_end_word(EXEC_END_DETACHED));
    assert_null(exec_end_word(EXEC_END_COUNT));
}

static void the_status_is_that_of_a_shell(void **state) {
    (void)state;
    static const struct {
        enum exec_end end;
        uint32_t code, signal;
        int64_t status;
    } rows[] = {
        {EXEC_END_EXIT, 0, 0, 0},       {EXEC_END_EXIT, 7, 0, 7},
        {EXEC_END_SIGNAL, 0, 15, 143},  {EXEC_END_KILLED, 0, 9, 137},
        {EXEC_END_MEMORY, 0, 9, 137},   {EXEC_END_MEMORY, 137, 0, 137},
        {EXEC_END_TIMEOUT, 0, 9, 124},  {EXEC_END_UNANSWERED, 0, 0, 124},
        {EXEC_END_FAILED, 127, 0, 127}, {EXEC_END_UNKNOWN, 0, 0, -1},
        {EXEC_END_NONE, 0, 0, -1},      {EXEC_END_DETACHED, 0, 0, -1},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        assert_int_equal(exec_end_status(rows[i].end, rows[i].code, rows[i].signal),
                         rows[i].status);
}

UNIT_MAIN(cmocka_unit_test(an_exited_command_is_told_apart_by_its_reason),
          cmocka_unit_test(an_exit_without_a_known_reason_is_an_exit),
          cmocka_unit_test(a_sentence_does_not_change_what_a_state_says),
          cmocka_unit_test(only_ends_of_commands_that_ran_have_a_word),
          cmocka_unit_test(the_status_is_that_of_a_shell))
