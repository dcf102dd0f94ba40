#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "io/gzip.h"

enum { N = 200000, STEP = 777 };

static size_t squeeze(struct gzip *z, const char *in, size_t n, char *out, size_t size,
                      bool *over) {
    size_t at = 0, len = 0, used, got;
    int r = 0;
    struct err err;
    while (r == 0) {
        size_t piece = n - at < STEP ? n - at : STEP;
        size_t room = size - len < STEP ? size - len : STEP;
        r = gzip_go(z, in + at, piece, at + piece == n, out + len, room, &used, &got, &err);
        at += used;
        len += got;
    }
    *over = r == 1;
    return len;
}

static void what_is_packed_comes_back(void **state) {
    char *in DEFER_FREE = malloc(N), *packed DEFER_FREE = malloc(2 * N),
             *out DEFER_FREE = malloc(N + 1);
    bool over;
    (void)state;
    for (size_t i = 0; i < N; i++)
        in[i] = (char)(i * i >> 5);
    struct gzip *p = gzip_new(), *u = gunzip_new();
    size_t n = squeeze(p, in, N, packed, 2 * N, &over);
    assert_true(over && n < N);
    assert_int_equal(squeeze(u, packed, n, out, N + 1, &over), N);
    assert_true(over);
    assert_memory_equal(in, out, N);
    gzip_free(p);
    gzip_free(u);
}

static void a_stream_that_is_cut_or_goes_on_is_refused(void **state) {
    char packed[100], out[200];
    struct err err;
    size_t used, got;
    bool over;
    (void)state;
    struct gzip *p = gzip_new();
    size_t n = squeeze(p, "some text", 9, packed, sizeof(packed), &over);
    gzip_free(p);
    struct gzip *cut = gunzip_new();
    squeeze(cut, packed, n - 1, out, sizeof(out), &over);
    assert_false(over);
    gzip_free(cut);
    struct gzip *more = gunzip_new();
    assert_int_equal(squeeze(more, packed, n, out, sizeof(out), &over), 9);
    assert_int_equal(gzip_go(more, "x", 1, true, out, sizeof(out), &used, &got, &err), -1);
    gzip_free(more);
    struct gzip *other = gunzip_new();
    assert_int_equal(gzip_go(other, "not gzip", 8, true, out, sizeof(out), &used, &got, &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
    gzip_free(other);
}

#define CASE(f) cmocka_unit_test(f)
UNIT_MAIN(CASE(what_is_packed_comes_back), CASE(a_stream_that_is_cut_or_goes_on_is_refused))
