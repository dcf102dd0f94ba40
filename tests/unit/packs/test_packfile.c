#include "tests/unit/outcome.h"
#include "tests/unit/unit.h"

#include <zstd.h>

#include "base/defer.h"
#include "packs/bytes.h"
#include "packs/packfile.h"

enum { HEAD = 20, FRAME_ROW = 8, CHUNK_ROW = 36 };

static void hash_of(const void *bytes, size_t n, uint8_t ret[SHA256_BYTES]) {
    struct sha256 sum;
    sha256_init(&sum);
    sha256_add(&sum, bytes, n);
    sha256_end(&sum, ret);
}

static void add_chunk(struct packfile_frame *f, const void *bytes, size_t n) {
    uint8_t hash[SHA256_BYTES];
    hash_of(bytes, n, hash);
    ok(packfile_frame_add(f, bytes, n, hash, &err));
}

/* Two frames: "one" and "two!", then "three". */
static struct buf sample(void) {
    struct packfile_maker m DEFER(packfile_done) = packfile_begin();
    struct packfile_frame a DEFER(packfile_frame_done) = packfile_frame_begin();
    struct packfile_frame b DEFER(packfile_frame_done) = packfile_frame_begin();
    struct buf pack = BUF(PACKFILE_MAX + 1);
    add_chunk(&a, "one", 3);
    add_chunk(&a, "two!", 4);
    add_chunk(&b, "three", 5);
    ok(packfile_frame_compress(&a, &err));
    ok(packfile_frame_compress(&b, &err));
    assert_false(packfile_is_full(&m, &a));
    ok(packfile_add(&m, &a, &err));
    ok(packfile_add(&m, &b, &err));
    ok(packfile_end(&m, &pack, &err));
    return pack;
}

static void chunks_come_out_as_they_went_in(void **state) {
    (void)state;
    struct buf pack DEFER(buf_done) = sample();
    struct packfile p;
    struct packfile_part part = {.count = 0};
    static uint8_t raw[PACKFILE_FRAME_MAX];
    ok(packfile_read(pack.data, pack.len, &p, &err));
    assert_int_equal(p.frame_count, 2);
    assert_int_equal(p.chunk_count, 3);
    assert_true(packfile_next(&p, &part));
    assert_int_equal(part.count, 2);
    ok(packfile_open(&p, &part, raw, &err));
    assert_memory_equal(raw, "onetwo!", 7);
    assert_true(packfile_next(&p, &part));
    assert_int_equal(part.first, 2);
    ok(packfile_open(&p, &part, raw, &err));
    assert_memory_equal(raw, "three", 5);
    assert_false(packfile_next(&p, &part));
}

static void equal_chunks_give_equal_packs(void **state) {
    (void)state;
    struct buf a DEFER(buf_done) = sample(), b DEFER(buf_done) = sample();
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len);
}

/* Bytes that cannot be compressed, so that a pack fills up. */
static void a_full_pack_has_between_4_and_16_mib(void **state) {
    (void)state;
    struct packfile_maker m DEFER(packfile_done) = packfile_begin();
    struct buf pack DEFER(buf_done) = BUF(PACKFILE_MAX + 1);
    uint8_t *bytes DEFER_FREE = malloc(CUT_MAX);
    uint64_t x = 88172645463325252u;
    struct packfile p;
    for (;;) {
        struct packfile_frame f DEFER(packfile_frame_done) = packfile_frame_begin();
        for (size_t i = 0; i < CUT_MAX; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            bytes[i] = (uint8_t)(x >> 32);
        }
        add_chunk(&f, bytes, CUT_MAX);
        assert_false(packfile_frame_has_room(&f, 1));
        ok(packfile_frame_compress(&f, &err));
        if (packfile_is_full(&m, &f))
            break;
        ok(packfile_add(&m, &f, &err));
    }
    ok(packfile_end(&m, &pack, &err));
    assert_in_range(pack.len, 4 << 20, PACKFILE_MAX);
    ok(packfile_read(pack.data, pack.len, &p, &err));
}

static void put32(struct buf *b, size_t at, uint32_t value) {
    for (int i = 0; i < 4; i++)
        b->data[at + (size_t)i] = (char)(value >> 8 * i);
}

/* One number of the sample is another one. */
static void each_wrong_number_is_refused(void **state) {
    (void)state;
    const size_t chunks = HEAD + 2 * FRAME_ROW;
    const struct {
        size_t at;
        uint32_t value;
        enum err_code code;
    } rows[] = {
        {0, 0, ERR_INVALID},              /* the magic */
        {4, 0x024b4341, ERR_UNSUPPORTED}, /* version 2 */
        {8, 2, ERR_UNSUPPORTED},          /* a pack of a disk */
        {8, 0, ERR_INVALID},              /* kind */
        {12, 0, ERR_INVALID},             /* frames */
        {12, 1, ERR_INVALID},
        {12, PACKFILE_FRAMES_MAX + 1, ERR_INVALID},
        {16, 0, ERR_INVALID}, /* chunks */
        {16, 2, ERR_INVALID},
        {16, 4, ERR_INVALID},
        {16, PACKFILE_CHUNKS_MAX + 1, ERR_INVALID},
        {HEAD, 0, ERR_INVALID}, /* chunks of the first frame */
        {HEAD, 1, ERR_INVALID},
        {HEAD, 3, ERR_INVALID},
        {HEAD, UINT32_MAX, ERR_INVALID},
        {HEAD + 4, 0, ERR_INVALID}, /* its bytes */
        {HEAD + 4, UINT32_MAX, ERR_INVALID},
        {HEAD + FRAME_ROW + 4, 1, ERR_INVALID}, /* bytes follow the last frame */
        {chunks + 32, 0, ERR_INVALID},          /* size of the first chunk */
        {chunks + 32, CUT_MAX + 1, ERR_INVALID},
        {chunks + 32, CUT_MAX, ERR_INVALID}, /* the frame is larger than 1 MiB */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct buf pack DEFER(buf_done) = sample();
        struct packfile p;
        put32(&pack, rows[i].at, rows[i].value);
        refused(rows[i].code, packfile_read(pack.data, pack.len, &p, &err));
    }
}

static void every_shorter_pack_is_refused(void **state) {
    (void)state;
    struct buf pack DEFER(buf_done) = sample();
    struct packfile p;
    for (size_t n = 0; n < pack.len; n++)
        refused(ERR_INVALID, packfile_read(pack.data, n, &p, &err));
    assert_true(buf_add(&pack, "x", 1));
    refused(ERR_INVALID, packfile_read(pack.data, pack.len, &p, &err));
}

static void a_pack_of_more_than_16_mib_is_refused(void **state) {
    (void)state;
    char *bytes DEFER_FREE = calloc(1, PACKFILE_MAX + 1);
    struct packfile p;
    refused(ERR_LIMIT, packfile_read(bytes, PACKFILE_MAX + 1, &p, &err));
}

static int open_first(const struct buf *pack) {
    static uint8_t raw[PACKFILE_FRAME_MAX];
    struct packfile p;
    struct packfile_part part = {.count = 0};
    ok(packfile_read(pack->data, pack->len, &p, &err));
    assert_true(packfile_next(&p, &part));
    return packfile_open(&p, &part, raw, &err);
}

static void a_chunk_that_does_not_match_its_hash_is_refused(void **state) {
    (void)state;
    struct buf pack DEFER(buf_done) = sample();
    ok(open_first(&pack));
    pack.data[HEAD + 2 * FRAME_ROW + CHUNK_ROW] ^= 1; /* hash of the second chunk */
    refused(ERR_INVALID, open_first(&pack));
}

static void a_chunk_that_is_longer_than_its_frame_is_refused(void **state) {
    (void)state;
    struct buf pack DEFER(buf_done) = sample();
    put32(&pack, HEAD + 2 * FRAME_ROW + 32, 4);
    refused(ERR_INVALID, open_first(&pack));
}

/* A frame without data, which zstd would skip, in front of the real one. */
static void a_frame_with_hidden_bytes_is_refused(void **state) {
    (void)state;
    static const uint8_t hidden[] = {0x50, 0x2a, 0x4d, 0x18, 1, 0, 0, 0, 'x'};
    struct packfile_maker m DEFER(packfile_done) = packfile_begin();
    struct packfile_frame f DEFER(packfile_frame_done) = packfile_frame_begin();
    struct buf pack DEFER(buf_done) = BUF(PACKFILE_MAX + 1), own DEFER(buf_done) = BUF(4096);
    add_chunk(&f, "one", 3);
    ok(packfile_frame_compress(&f, &err));
    assert_true(buf_add(&own, hidden, sizeof(hidden)) &&
                buf_add(&own, f.stored.data, f.stored.len));
    buf_drop(&f.stored, f.stored.len);
    assert_true(buf_add(&f.stored, own.data, own.len));
    ok(packfile_add(&m, &f, &err));
    ok(packfile_end(&m, &pack, &err));
    refused(ERR_INVALID, open_first(&pack));
}

UNIT_MAIN(cmocka_unit_test(chunks_come_out_as_they_went_in),
          cmocka_unit_test(equal_chunks_give_equal_packs),
          cmocka_unit_test(a_full_pack_has_between_4_and_16_mib),
          cmocka_unit_test(each_wrong_number_is_refused),
          cmocka_unit_test(every_shorter_pack_is_refused),
          cmocka_unit_test(a_pack_of_more_than_16_mib_is_refused),
          cmocka_unit_test(a_chunk_that_does_not_match_its_hash_is_refused),
          cmocka_unit_test(a_chunk_that_is_longer_than_its_frame_is_refused),
          cmocka_unit_test(a_frame_with_hidden_bytes_is_refused))
