#include "tests/unit/unit.h"

#include <sys/mman.h>
#include <unistd.h>

#include "gate/dns.h"

static char asked[256];

static uint32_t lookup(void *arg, const char *name) {
    snprintf(asked, sizeof(asked), "%s", name);
    return arg ? 0 : 0xc6120005;
}

/* A query for one name: labels with their lengths, then type and class. */
static size_t query(uint8_t *q, const char *labels, size_t n, unsigned type) {
    static const uint8_t head[12] = {0x12, 0x34, 0x01, 0x00, 0, 1};
    memcpy(q, head, 12);
    memcpy(q + 12, labels, n);
    const uint8_t tail[] = {0, (uint8_t)(type >> 8), (uint8_t)type, 0, 1};
    memcpy(q + 12 + n, tail, 5);
    return 12 + n + 5;
}

#define QUERY(q, labels, type) query(q, labels, sizeof(labels) - 1, type)

static unsigned code(const uint8_t *r) {
    return r[3] & 15;
}

static void every_name_has_an_address(void **state) {
    (void)state;
    uint8_t q[64], r[DNS_MESSAGE_MAX];
    size_t n = QUERY(q, "\3WWW\7example\3com", 1);
    size_t len = dns_answer(q, n, lookup, NULL, r);
    assert_int_equal(len, n + 16);
    assert_string_equal(asked, "www.example.com");
    assert_memory_equal(r, "\x12\x34\x81\x80\0\1\0\1\0\0\0\0", 12);
    assert_memory_equal(r + 12, q + 12, n - 12); /* the question, in the case it was asked in */
    assert_memory_equal(r + n, "\xc0\x0c\0\1\0\1\0\0\x01\x2c\0\4\xc6\x12\0\5", 16);
}

static void other_types_exist_for_no_name(void **state) {
    (void)state;
    static const unsigned types[] = {28, 65, 64, 16, 15, 255, 6};
    uint8_t q[64], r[DNS_MESSAGE_MAX];
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
        size_t n = QUERY(q, "\7example\3com", types[i]);
        assert_int_equal(dns_answer(q, n, lookup, NULL, r), n);
        assert_int_equal(code(r), 0);
        assert_int_equal(r[7], 0);
    }
}

static void nonsense_has_no_name(void **state) {
    (void)state;
    uint8_t q[64], r[DNS_MESSAGE_MAX];
    size_t n = QUERY(q, "\3a b\3com", 1);
    assert_int_equal(dns_answer(q, n, lookup, NULL, r), n);
    assert_int_equal(code(r), 3);
    n = QUERY(q, "\3a.b\3com", 1);
    dns_answer(q, n, lookup, NULL, r);
    assert_int_equal(code(r), 3);
    n = QUERY(q,
              "\3"
              "127\1"
              "1",
              1);
    dns_answer(q, n, lookup, NULL, r);
    assert_int_equal(code(r), 3);
    n = QUERY(q,
              "\1"
              "1\7in-addr\4arpa",
              12);
    dns_answer(q, n, lookup, NULL, r);
    assert_int_equal(code(r), 3);
}

/* The byte behind the query cannot be read. */
static void a_query_that_is_cut_is_read_no_further(void **state) {
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t whole[64], r[DNS_MESSAGE_MAX];
    uint8_t *room =
        mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(room, MAP_FAILED);
    assert_int_equal(mprotect(room + page, page, PROT_NONE), 0);
    size_t n = QUERY(whole, "\3www\7example\3com", 1);
    for (size_t cut = 0; cut < n; cut++) {
        uint8_t *q = room + page - cut;
        memcpy(q, whole, cut);
        size_t len = dns_answer(q, cut, lookup, NULL, r);
        assert_int_equal(len, cut < 12 ? 0 : 12);
        assert_true(cut < 12 || code(r) == 1);
    }
    munmap(room, 2 * page);
}

static void localhost_is_the_machine_itself(void **state) {
    (void)state;
    uint8_t q[64], r[DNS_MESSAGE_MAX];
    size_t n = QUERY(q, "\3foo\11localhost", 1);
    size_t len = dns_answer(q, n, lookup, NULL, r);
    assert_memory_equal(r + len - 4, "\x7f\0\0\1", 4);
}

static void a_full_table_is_a_failure(void **state) {
    (void)state;
    uint8_t q[64], r[DNS_MESSAGE_MAX];
    size_t n = QUERY(q, "\7example\3com", 1);
    assert_int_equal(dns_answer(q, n, lookup, asked, r), n);
    assert_int_equal(code(r), 2);
}

static void what_is_no_query_gets_no_answer(void **state) {
    (void)state;
    uint8_t q[64], r[DNS_MESSAGE_MAX];
    size_t n = QUERY(q, "\7example\3com", 1);
    q[2] |= 0x80;
    assert_int_equal(dns_answer(q, n, lookup, NULL, r), 0);
    q[2] = 0x28;
    assert_int_equal(dns_answer(q, n, lookup, NULL, r), 12);
    assert_int_equal(code(r), 4);
}

static void a_query_that_is_cut_is_malformed(void **state) {
    (void)state;
    uint8_t q[64], r[DNS_MESSAGE_MAX];
    size_t n = QUERY(q, "\7example\3com", 1);
    for (size_t cut = 0; cut < n; cut++) {
        size_t len = dns_answer(q, cut, lookup, NULL, r);
        assert_int_equal(len, cut < 12 ? 0 : 12);
        assert_true(cut < 12 || code(r) == 1);
    }
    QUERY(q, "\xc0\x0c", 1);
    dns_answer(q, 12 + 2 + 5, lookup, NULL, r);
    assert_int_equal(code(r), 1);
}

UNIT_MAIN(cmocka_unit_test(every_name_has_an_address),
          cmocka_unit_test(other_types_exist_for_no_name), cmocka_unit_test(nonsense_has_no_name),
          cmocka_unit_test(a_query_that_is_cut_is_read_no_further),
          cmocka_unit_test(localhost_is_the_machine_itself),
          cmocka_unit_test(a_full_table_is_a_failure),
          cmocka_unit_test(what_is_no_query_gets_no_answer),
          cmocka_unit_test(a_query_that_is_cut_is_malformed))
