/*
 * What AddressSanitizer is told where nobody can: workers of ours start without an environment, and
 * give up what a search for leaks would need. Leaks are left to make valgrind. Tests put libraries
 * of theirs before the sanitizer's.
 */
const char *__asan_default_options(void);

const char *__asan_default_options(void) {
    return "detect_leaks=0:verify_asan_link_order=0";
}
