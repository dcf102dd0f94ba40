/*
 * Default options of AddressSanitizer, because workers start without an environment. Workers drop
 * rights that the leak check needs, so `make valgrind` finds leaks instead. Tests preload libraries
 * before the sanitizer's, so the link order is not checked.
 */
const char *__asan_default_options(void);

const char *__asan_default_options(void) {
    return "detect_leaks=0:verify_asan_link_order=0";
}
