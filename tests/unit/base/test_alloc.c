#include "tests/unit/unit.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"

struct thing {
    int number;
    char name[100];
};

static void new_memory_is_zeroed(void **state) {
    (void)state;
    struct thing *t DEFER_FREE = xnew(struct thing);
    static const struct thing zero;
    assert_memory_equal(t, &zero, sizeof(zero));
    uint64_t *many DEFER_FREE = xcalloc(10, sizeof(*many));
    for (size_t i = 0; i < 10; i++)
        assert_true(many[i] == 0);
}

static void a_size_of_zero_gives_memory(void **state) {
    (void)state;
    void *a DEFER_FREE = xcalloc(0, 8), *b DEFER_FREE = xcalloc(8, 0), *c DEFER_FREE = xmalloc(0);
    void *d DEFER_FREE = xrealloc(NULL, 0, 8);
    assert_true(a && b && c && d);
}

static void realloc_keeps_what_was_there(void **state) {
    (void)state;
    char *text = xstrdup("abc");
    text = xrealloc(text, 1000, 1);
    assert_string_equal(text, "abc");
    free(text);
}

static void copies_of_texts_end_with_nul(void **state) {
    (void)state;
    char *all DEFER_FREE = xstrdup("abcdef"), *part DEFER_FREE = xstrndup("abcdef", 3);
    assert_string_equal(all, "abcdef");
    assert_string_equal(part, "abc");
}

static void a_formatted_text_is_as_long_as_it_must_be(void **state) {
    (void)state;
    char *text DEFER_FREE = xformat("%s-%0300d", "abc", 7);
    assert_int_equal(strlen(text), 304);
    assert_int_equal(strncmp(text, "abc-000", 7), 0);
    assert_int_equal(text[303], '7');
}

/* Whether a process that asks for so many elements gets them. */
static bool gets(void *(*alloc)(size_t count, size_t size), size_t count, size_t size) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        _exit(alloc(count, size) ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
#ifndef __SANITIZE_ADDRESS__ /* which ends the process in its own way */
    assert_true(WIFEXITED(status) || WTERMSIG(status) == SIGABRT);
#endif
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void *grow(size_t count, size_t size) {
    return xrealloc(NULL, count, size);
}

static void too_much_memory_aborts(void **state) {
    (void)state;
    size_t volatile half = SIZE_MAX / 2;
    assert_false(gets(xcalloc, half, 4));
    assert_false(gets(grow, half, 4));
    assert_true(gets(xcalloc, 1, 4));
    assert_true(gets(grow, 1, 4));
}

UNIT_MAIN(cmocka_unit_test(new_memory_is_zeroed), cmocka_unit_test(a_size_of_zero_gives_memory),
          cmocka_unit_test(realloc_keeps_what_was_there),
          cmocka_unit_test(copies_of_texts_end_with_nul),
          cmocka_unit_test(a_formatted_text_is_as_long_as_it_must_be),
          cmocka_unit_test(too_much_memory_aborts))
