#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "io/http_coding.h"
#include "io/zstream.h"

static size_t pack(const char *in, size_t n, char *out, size_t size) {
    struct zpack *z = zpack_new();
    size_t at = 0, len = 0, used;
    bool done = false;
    while (!done) {
        size_t piece = n - at < 1000 ? n - at : 1000;
        len += zpack_go(z, in + at, piece, at + piece == n, out + len, size - len, &used, &done);
        at += used;
    }
    zpack_free(z);
    return len;
}

static void what_is_packed_is_unpacked_in_pieces_of_any_size(void **state) {
    enum { N = 300000 };
    char *in DEFER_FREE = malloc(N), *packed DEFER_FREE = malloc(2 * N),
             *out DEFER_FREE = malloc(N);
    struct err err;
    (void)state;
    for (size_t i = 0; i < N; i++)
        in[i] = (char)(i * i >> 3);
    size_t len = pack(in, N, packed, 2 * N);
    for (size_t step = 1; step < 5000; step = step * 7 + 1) {
        struct zunpack *z = zunpack_new();
        size_t at = 0, got = 0, used, n;
        assert_false(zunpack_is_whole(z));
        while (at < len || got < N) {
            size_t piece = len - at < step ? len - at : step;
            size_t room = N - got < 4096 ? N - got : 4096;
            assert_int_equal(zunpack_go(z, packed + at, piece, out + got, room, &used, &n, &err),
                             0);
            assert_true(used || n);
            at += used;
            got += n;
            assert_true(zunpack_is_whole(z) == (at == len && got == N));
        }
        assert_memory_equal(in, out, N);
        zunpack_free(z);
    }
}

static void what_is_no_zstd_is_refused(void **state) {
    struct zunpack *z = zunpack_new();
    struct err err;
    char out[100];
    size_t used, n;
    (void)state;
    assert_int_equal(zunpack_go(z, "plain text", 10, out, sizeof(out), &used, &n, &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
    zunpack_free(z);
}

static void a_bomb_is_stopped(void **state) {
    enum { ZEROES = 1 << 20 };
    char *zeroes DEFER_FREE = calloc(1, ZEROES), *packed DEFER_FREE = malloc(ZEROES);
    char *out DEFER_FREE = malloc(ZSTREAM_OUT);
    struct zpack *c = zpack_new();
    struct zunpack *z = zunpack_new();
    struct err err;
    size_t used, n, len, at;
    bool done;
    int r = 0;
    unsigned long long total = 0;
    (void)state;
    for (int i = 0; i < 4096 && r == 0; i++) {
        len = zpack_go(c, zeroes, ZEROES, false, packed, ZEROES, &used, &done);
        for (at = 0, n = 1; r == 0 && (at < len || n); at += used) {
            r = zunpack_go(z, packed + at, len - at, out, ZSTREAM_OUT, &used, &n, &err);
            total += n;
        }
    }
    assert_int_equal(r, -1);
    assert_int_equal(err.code, ERR_LIMIT);
    assert_true(total < 2ull << 30);
    zpack_free(c);
    zunpack_free(z);
}

static void codings_are_found_in_their_list(void **state) {
    static const struct {
        const char *field;
        bool wanted;
    } table[] = {
        {"zstd", true},          {"gzip, zstd", true},    {"gzip,ZSTD;q=0.5 , br", true},
        {"zstd;q=0", false},     {"zstd ; q=0.0", false}, {"", false},
        {"xzstd", false},        {"zstdx", false},        {"*", false},
        {"gzip;q=1, br", false}, {",,zstd,", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
        if (http_coding_wanted((struct http_text){table[i].field, strlen(table[i].field)},
                               "zstd") != table[i].wanted)
            fail_msg("'%s'", table[i].field);
}

#define CASE(f) cmocka_unit_test(f)
UNIT_MAIN(CASE(what_is_packed_is_unpacked_in_pieces_of_any_size), CASE(what_is_no_zstd_is_refused),
          CASE(a_bomb_is_stopped), CASE(codings_are_found_in_their_list))
