#include "tests/unit/unit.h"

#include "base/defer.h"
#include "gate/pg_wire.h"

/* A packet of that code; words: NUL-terminated texts, as they stand there. */
static size_t packet(uint8_t *to, uint32_t code, const void *body, size_t n) {
    uint32_t size = (uint32_t)n + 8;
    const uint8_t head[8] = {0,
                             0,
                             (uint8_t)(size >> 8),
                             (uint8_t)size,
                             (uint8_t)(code >> 24),
                             (uint8_t)(code >> 16),
                             (uint8_t)(code >> 8),
                             (uint8_t)code};
    memcpy(to, head, sizeof(head));
    memcpy(to + 8, body, n);
    return size;
}

enum { V3 = 3 << 16, CANCEL = 80877102, TLS = 80877103, KERBEROS = 80877104 };
#define WORDS(text) text "\0", sizeof(text "\0")

static enum pg_first read_one(uint32_t code, const void *body, size_t n, struct pg_startup *ret) {
    static uint8_t bytes[512];
    return pg_first_read(bytes, packet(bytes, code, body, n), ret);
}

static void a_session_says_who_it_is_and_where(void **state) {
    (void)state;
    struct pg_startup s;
    assert_int_equal(read_one(V3, WORDS("user\0a\0options\0-c x=y\0database\0b"), &s), PG_STARTUP);
    assert_string_equal(s.user, "a");
    assert_string_equal(s.database, "b");
    assert_false(s.replicates);
    /* As the server takes it. */
    assert_int_equal(read_one(V3, WORDS("user\0a"), &s), PG_STARTUP);
    assert_string_equal(s.database, "a");
    assert_int_equal(read_one(V3 + 2, WORDS("database\0\0user\0a"), &s), PG_STARTUP);
    assert_string_equal(s.database, "a");
    assert_int_equal(read_one(V3, WORDS("user\0a\0replication\0false"), &s), PG_STARTUP);
    assert_true(s.replicates);
}

static void what_could_be_read_otherwise_is_bad(void **state) {
    (void)state;
    struct pg_startup s;
    assert_int_equal(read_one(V3, WORDS("user\0a\0user\0b"), &s), PG_BAD);
    assert_int_equal(read_one(V3, WORDS("user\0a\0database\0b\0database\0c"), &s), PG_BAD);
    assert_int_equal(read_one(V3, WORDS("database\0b"), &s), PG_BAD);
    assert_int_equal(read_one(V3, WORDS("user\0"), &s), PG_BAD);
    assert_int_equal(read_one(V3, WORDS("user\0a\0\0database\0b"), &s), PG_BAD);
    assert_int_equal(read_one(V3, "user\0a", 6, &s), PG_BAD);
    assert_int_equal(read_one(V3, "user\0a\0", 7, &s), PG_BAD);
    assert_int_equal(read_one(V3, "", 0, &s), PG_BAD);
    assert_int_equal(read_one(2 << 16, WORDS("user\0a"), &s), PG_BAD);
    assert_int_equal(read_one(TLS, "x", 1, &s), PG_BAD);
    assert_int_equal(read_one(CANCEL, "1234567", 7, &s), PG_BAD);
    assert_int_equal(pg_first_read((const uint8_t *)"\x16\x03\x01", 3, &s), PG_BAD);
    assert_int_equal(pg_first_read((const uint8_t *)"G", 1, &s), PG_BAD);
    assert_int_equal(pg_first_read((const uint8_t *)"\0\0\0\7", 4, &s), PG_BAD);
    assert_int_equal(pg_first_read((const uint8_t *)"\0\0\x27\x11", 4, &s), PG_BAD);
}

static void cut_anywhere_it_wants_more(void **state) {
    (void)state;
    uint8_t bytes[64];
    struct pg_startup s;
    size_t n = packet(bytes, V3, WORDS("user\0a\0database\0b"));
    for (size_t i = 0; i < n; i++)
        assert_int_equal(pg_first_read(bytes, i, &s), PG_MORE);
    assert_int_equal(pg_first_read(bytes, n, &s), PG_STARTUP);
    assert_int_equal(s.size, n);
}

static void tls_is_asked_for_in_eight_bytes(void **state) {
    (void)state;
    uint8_t bytes[PG_REQUEST_BYTES];
    struct pg_startup s;
    pg_put_tls_request(bytes);
    assert_int_equal(pg_first_read(bytes, sizeof(bytes), &s), PG_WANTS_TLS);
    assert_int_equal(read_one(KERBEROS, "", 0, &s), PG_WANTS_TLS);
}

static void a_session_is_stopped_by_its_own_key(void **state) {
    (void)state;
    static const uint8_t told[] = "K\0\0\0\x0c\0\0\0\7abcd";
    struct pg_startup s, other;
    struct pg_message m;
    struct pg_key key = {0}, none = {0};
    assert_int_equal(pg_message_read(told, sizeof(told) - 1, &m), 1);
    assert_true(pg_key_read(&m, &key));
    assert_int_equal(read_one(CANCEL, "\0\0\0\7abcd", 8, &s), PG_CANCEL);
    assert_true(pg_key_equal(&s.key, &key));
    assert_int_equal(read_one(CANCEL, "\0\0\0\7abcx", 8, &other), PG_CANCEL);
    assert_false(pg_key_equal(&other.key, &key));
    assert_int_equal(read_one(CANCEL, "\0\0\0\7abcdd", 9, &other), PG_CANCEL);
    assert_false(pg_key_equal(&other.key, &key));
    assert_false(pg_key_equal(&none, &none));
}

static void an_offer_is_passed_on_without_what_is_bound_to_tls(void **state) {
    (void)state;
    static const uint8_t offer[] = "R\0\0\0\x2a\0\0\0\x0aSCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0";
    static const uint8_t want[] = "R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0";
    static const uint8_t only[] = "R\0\0\0\x1c\0\0\0\x0aSCRAM-SHA-256-PLUS\0";
    struct buf out DEFER(buf_done) = BUF(100);
    struct pg_message m;
    for (size_t n = 0; n < sizeof(offer); n++)
        assert_int_equal(pg_message_read(offer, n, &m), 0);
    assert_int_equal(pg_message_read(offer, sizeof(offer), &m), 1);
    assert_true(pg_offers_ways(&m) && pg_put_ways(&m, &out));
    assert_int_equal(out.len, sizeof(want));
    assert_memory_equal(out.data, want, sizeof(want));
    assert_int_equal(pg_message_read(only, sizeof(only), &m), 1);
    assert_false(pg_put_ways(&m, &out));
    assert_int_equal(pg_message_read((const uint8_t *)"R\0\0\0\3", 5, &m), -1);
    assert_int_equal(pg_message_read((const uint8_t *)"R\xff\0\0\3", 5, &m), -1);
}

UNIT_MAIN(cmocka_unit_test(a_session_says_who_it_is_and_where),
          cmocka_unit_test(what_could_be_read_otherwise_is_bad),
          cmocka_unit_test(cut_anywhere_it_wants_more),
          cmocka_unit_test(tls_is_asked_for_in_eight_bytes),
          cmocka_unit_test(a_session_is_stopped_by_its_own_key),
          cmocka_unit_test(an_offer_is_passed_on_without_what_is_bound_to_tls))
