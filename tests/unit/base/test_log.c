#include "tests/unit/unit.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

/* What log_line() writes to stderr. */
static size_t logged(enum log_level level, const char *text, char *got, size_t size) {
    int ends[2], saved = dup(STDERR_FILENO);
    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    dup2(ends[1], STDERR_FILENO);
    log_line(level, "unit", "%s", text);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(ends[1]);
    ssize_t n = read(ends[0], got, size - 1);
    close(ends[0]);
    got[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

static void a_line_has_time_level_and_module(void **state) {
    (void)state;
    char got[2048];
    size_t n = logged(LOG_WARN, "something key=1", got, sizeof(got));
    assert_string_equal(got + 24, " warn unit something key=1\n");
    assert_int_equal(got[10], 'T');
    assert_int_equal(got[23], 'Z');
    assert_int_equal(n, strlen(got));
}

static void hostile_text_cannot_start_another_line(void **state) {
    (void)state;
    char got[2048];
    logged(LOG_ERROR, "a\nb\r\x1b[2J\x7f", got, sizeof(got));
    assert_string_equal(got + 24, " error unit a?b??[2J?\n");
}

static void long_text_is_cut_to_one_line(void **state) {
    (void)state;
    char text[5000], got[6000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    size_t n = logged(LOG_ERROR, text, got, sizeof(got));
    assert_true(n <= 1024 && got[n - 1] == '\n');
}

static void below_the_level_nothing_is_said(void **state) {
    (void)state;
    char got[256];
    assert_int_equal(logged(LOG_DEBUG, "x", got, sizeof(got)), 0);
    log_set_level(LOG_DEBUG);
    assert_int_not_equal(logged(LOG_DEBUG, "x", got, sizeof(got)), 0);
    log_set_level(LOG_NOTE);
}

UNIT_MAIN(cmocka_unit_test(a_line_has_time_level_and_module),
          cmocka_unit_test(hostile_text_cannot_start_another_line),
          cmocka_unit_test(long_text_is_cut_to_one_line),
          cmocka_unit_test(below_the_level_nothing_is_said))
