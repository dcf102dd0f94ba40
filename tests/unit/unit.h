/* What every unit test includes: cmocka, in the order it wants, and main(). */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Sanitizers bring a malloc and system calls of their own. */
#ifndef __has_feature
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#define UNIT_SANITIZED 1
#else
#define UNIT_SANITIZED 0
#endif

static inline bool unit_has(const char *text, size_t n, const char *word) {
    size_t len = strlen(word);
    for (size_t i = 0; i + len <= n; i++)
        if (memcmp(text + i, word, len) == 0)
            return true;
    return false;
}

/* cmocka says "not ok" of a test that was skipped, which whoever reads TAP takes for a failure. */
static inline ssize_t unit_write(void *out, const char *text, size_t n) {
    bool skipped = n > 6 && memcmp(text, "not ok", 6) == 0 && unit_has(text, n, "# SKIP");
    const size_t lie = skipped ? strlen("not ") : 0;
    fwrite(text + lie, 1, n - lie, out);
    fflush(out);
    return (ssize_t)n;
}

static inline void unit_honest_tap(void) {
    stdout = fopencookie(stdout, "w", (cookie_io_functions_t){.write = unit_write});
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
}

#define UNIT_MAIN(...)                                    \
    int main(void) {                                      \
        const struct CMUnitTest tests[] = {__VA_ARGS__};  \
        unit_honest_tap();                                \
        return cmocka_run_group_tests(tests, NULL, NULL); \
    }
