/* The vectors of RFC 1321, and that it does not matter how the bytes are cut. */
#include "tests/unit/unit.h"

#include <string.h>

#include "base/md5.h"

static void md5_check(const char *text, size_t step, const char *wanted) {
    struct md5 m;
    char hex[MD5_HEX];
    md5_init(&m);
    for (size_t at = 0, n = strlen(text); at < n; at += step)
        md5_add(&m, text + at, n - at < step ? n - at : step);
    md5_end_hex(&m, hex);
    assert_string_equal(hex, wanted);
}

static void known_texts_have_their_md5(void **state) {
    static const char digits[] =
        "12345678901234567890123456789012345678901234567890123456789012345678901234567890";
    (void)state;
    md5_check("", 1, "d41d8cd98f00b204e9800998ecf8427e");
    md5_check("abc", 3, "900150983cd24fb0d6963f7d28e17f72");
    md5_check("message digest", 14, "f96b697d7cb7938d525a2f31aaf161d0");
    for (size_t step = 1; step <= sizeof(digits); step++)
        md5_check(digits, step, "57edf4a22be3c955ac49da2e2107b67a");
}

UNIT_MAIN(cmocka_unit_test(known_texts_have_their_md5))
