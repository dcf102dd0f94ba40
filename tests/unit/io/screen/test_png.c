#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/defer.h"
#include "io/screen/png.h"

static unsigned long big_endian(const uint8_t *p) {
    return (unsigned long)p[0] << 24 | (unsigned long)p[1] << 16 | (unsigned long)p[2] << 8 | p[3];
}

/* Checks one chunk and its checksum; returns its bytes and moves *at behind it. */
static const uint8_t *chunk(const uint8_t **at, const char *type, size_t *ret_n) {
    const uint8_t *p = *at;
    *ret_n = big_endian(p);
    assert_memory_equal(p + 4, type, 4);
    assert_int_equal(big_endian(p + 8 + *ret_n), crc32(0, p + 4, (uInt)*ret_n + 4));
    *at = p + 12 + *ret_n;
    return p + 8;
}

/* Reads the image back: undoes the filter of each row. */
static void check(const uint8_t *pixels, unsigned w, unsigned h) {
    size_t size, n, row = 1 + 3 * (size_t)w;
    uint8_t *image DEFER_FREE = png_write(pixels, w, h, &size);
    const uint8_t *at = image + 8;
    assert_memory_equal(image, "\x89PNG\r\n\x1a\n", 8);
    const uint8_t *head = chunk(&at, "IHDR", &n);
    assert_int_equal(n, 13);
    assert_int_equal(big_endian(head), w);
    assert_int_equal(big_endian(head + 4), h);
    assert_memory_equal(head + 8, "\10\2\0\0\0", 5);
    const uint8_t *data = chunk(&at, "IDAT", &n);
    uLongf got = row * h;
    uint8_t *rows DEFER_FREE = malloc(got);
    assert_int_equal(uncompress(rows, &got, data, (uLong)n), Z_OK);
    assert_int_equal(got, row * h);
    chunk(&at, "IEND", &n);
    assert_int_equal(n, 0);
    assert_int_equal(at - image, size);
    for (unsigned y = 0; y < h; y++) {
        assert_int_equal(rows[y * row], 2);
        for (unsigned i = 0; i < 3 * w; i++) {
            uint8_t *p = rows + y * row + 1 + i;
            *p = (uint8_t)(*p + (y ? *(p - row) : 0));
            assert_int_equal(*p, pixels[(y * w + i / 3) * 4 + i % 3]);
        }
    }
}

static void pixels_come_back_from_an_image(void **state) {
    enum { MOST = 300 * 200 * 4 };
    uint8_t *pixels DEFER_FREE = calloc(1, MOST);
    (void)state;
    check(pixels, 300, 200);
    unsigned v = 1;
    for (size_t i = 0; i < MOST; i++)
        pixels[i] = (uint8_t)((v = v * 1103515245u + 12345u) >> 16);
    check(pixels, 300, 200);
    check(pixels, 1, 1);
    check(pixels, 1, 200);
    check(pixels, 300, 1);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_come_back_from_an_image),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
