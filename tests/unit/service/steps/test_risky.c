/* Which commands get a restore point first, by the policy `risky`. */
#include "tests/unit/unit.h"

#include "service/steps/risky.h"

enum { WORDS = 6 };

static void programs_that_remove_or_install_are_risky(void **state) {
    (void)state;
    static const char *const rows[][WORDS] = {
        {"rm", "-rf", "x"},
        {"/usr/bin/git", "reset", "--hard"},
        {"apt-get", "install", "jq"},
        {"sh", "-c", "cd /tmp && rm x"},
        {"bash", "-c", "echo hello > file"},
        {"bash", "-c", "(/bin/mv a b)"},
        {"sh", "-c", "x=$(git status)"},
        {"env", "A=1", "make"},
        {"sudo", "-n", "dd", "of=/dev/null"},
        {"timeout", "5", "sh", "-c", "pip install x"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (!is_risky(rows[i]))
            fail_msg("row %zu: '%s' is risky", i, rows[i][0]);
}

static void commands_that_only_look_are_not_risky(void **state) {
    (void)state;
    static const char *const rows[][WORDS] = {
        {NULL},
        {"ls", "-l"},
        {"cat", "rm"}, /* an argument, not a program */
        {"echo", ">", "x"},
        {"grep", "-r", "git", "."},
        {"sh", "-c", "ls | wc -l"},
        {"sh", "-c", "cat firmware arms"}, /* "rm" inside a word */
        {"sh", "-c", ""},
        {"sh"},
        {"rm/", "x"},
        {"", "rm"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (is_risky(rows[i]))
            fail_msg("row %zu: '%s' is not risky", i, rows[i][0]);
}

UNIT_MAIN(cmocka_unit_test(programs_that_remove_or_install_are_risky),
          cmocka_unit_test(commands_that_only_look_are_not_risky))
