#include "base/hex.h"

#include <string.h>

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool hex_read(const char *digits, size_t n, uint8_t *ret) {
    for (size_t i = 0; i < n; i++) {
        int high = hex_digit(digits[2 * i]);
        int low = high < 0 ? -1 : hex_digit(digits[2 * i + 1]);
        if (low < 0)
            return false;
        ret[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

bool hex_is(const char *text, size_t count) {
    return strspn(text, "0123456789abcdef") == count && !text[count];
}
