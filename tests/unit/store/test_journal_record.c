#include "tests/unit/unit.h"

#include <string.h>

#include "base/defer.h"
#include "store/journal_record.h"

static struct err err;
static struct journal_slot slot;

static const struct journal_record full = {
    .seq = UINT64_MAX,
    .time_ms = INT64_MIN,
    .kind = JOURNAL_RESULT,
    .owner = "ann",
    .token = "t-abcdefghij23",
    .client = "uid=1000 pid=4711",
    .verb = "exec.start",
    .machine = "m-abcdefghij23",
    .exec = "x-abcdefghij23",
    .argv = (const char *const[]){"sh", "-c", "", "echo \"h\xc3\xa9\\\n\t\x01\x7f\" \xff\xc0"},
    .argc = 4,
    .argv_bytes = 100000,
    .argv_hash = "00",
    .has_exit = true,
    .exit = -1,
    .bytes = 1,
    .intent = 2,
    .reason = "asked",
    .segment = 3,
    .journal = "j-abcdefghij23",
    .prev = "ab",
    .sig = "cd",
    .detail = "{\"a\": [1, -2.5e+3, true, null, {}], \"b\":\"\\u00e9\\n\"}",
};

static void encode(const struct journal_record *r, struct buf *line, uint8_t hash[SHA256_BYTES]) {
    err = (struct err){0};
    if (journal_record_encode(r, hash, line, &err) < 0)
        fail_msg("%s", err.text);
}

static void every_member_survives(void **state) {
    (void)state;
    struct buf line DEFER(buf_done) = BUF(JOURNAL_LINE_MAX),
                    again DEFER(buf_done) = BUF(JOURNAL_LINE_MAX);
    uint8_t prev[SHA256_BYTES] = {9}, hash[SHA256_BYTES] = {9}, hash2[SHA256_BYTES] = {9};
    encode(&full, &line, hash);
    assert_null(memchr(line.data, '\n', line.len - 1));
    assert_int_equal(journal_record_decode(line.data, line.len, prev, &slot, &err), 0);
    assert_memory_equal(slot.hash, hash, sizeof(hash));
    const struct journal_record *r = &slot.record;
    assert_true(r->seq == full.seq && r->time_ms == full.time_ms && r->exit == -1 && r->has_exit);
    assert_string_equal(r->client, full.client);
    assert_int_equal(r->argc, 4);
    assert_string_equal(r->argv[2], "");
    assert_string_equal(r->detail, full.detail);
    encode(r, &again, hash2);
    assert_string_equal(again.data, line.data);
}

static void a_small_record_is_this_line(void **state) {
    (void)state;
    struct buf line DEFER(buf_done) = BUF(JOURNAL_LINE_MAX);
    uint8_t hash[SHA256_BYTES] = {0};
    struct journal_record r = {.seq = 1, .time_ms = 5, .kind = JOURNAL_NOTE, .verb = "v"};
    encode(&r, &line, hash);
    /* sha256 over 32 zero bytes and the line without its hash, by sha256sum(1) */
    assert_string_equal(line.data,
                        "{\"seq\":1,\"time\":5,\"kind\":\"note\",\"verb\":\"v\",\"hash\":"
                        "\"73262d981659b7e3b6428ec7a8b2b01dbcae4c9ff9d075b28587209dcdf90f08\"}\n");
    assert_string_equal(journal_kind_name(JOURNAL_HEAD), "head");
    assert_string_equal(journal_kind_name((enum journal_kind)77), "?");
}

static void there_is_one_way_to_write_a_record(void **state) {
    (void)state;
#define H "\"hash\":\"0000000000000000000000000000000000000000000000000000000000000000\"}"
    static const char *const lines[] = {
        "",
        "{}",
        "{" H,
        "{\"seq\":1," H,
        "{\"seq\":1,\"time\":5," H,
        "{\"seq\":1,\"time\":5,\"kind\":\"other\"," H,
        "{\"seq\":01,\"time\":5,\"kind\":\"note\"," H,
        "{\"seq\":18446744073709551616,\"time\":5,\"kind\":\"note\"," H,
        "{\"seq\":1,\"time\":9223372036854775808,\"kind\":\"note\"," H,
        "{\"seq\":1,\"time\":-0,\"kind\":\"note\"," H,
        "{\"seq\":1, \"time\":5,\"kind\":\"note\"," H,
        "{\"time\":5,\"seq\":1,\"kind\":\"note\"," H,
        "{\"seq\":1,\"time\":5,\"kind\":\"note\",\"bytes\":0," H,
        "{\"seq\":1,\"time\":5,\"kind\":\"note\",\"owner\":\"\"," H,
        "{\"seq\":1,\"time\":5,\"kind\":\"note\",\"argv\":[]," H,
        "{\"seq\":1,\"time\":5,\"kind\":\"note\",\"owner\":\"\\u0041\"," H,
        "{\"seq\":1,\"time\":5,\"kind\":\"note\",\"owner\":\"\\u0000\"," H,
        "{\"seq\":1,\"time\":5,\"kind\":\"note\",\"owner\":\"\\/\"," H,
        "{\"seq\":1,\"time\":5,\"kind\":\"note\",\"owner\":\"\xff\"," H,
        "{\"seq\":1,\"time\":5,\"kind\":\"note\",\"owner\":\"a\tb\"," H,
        "{\"seq\":1,\"time\":5,\"kind\":\"note\",\"owner\":\"a," H,
        "{\"seq\":1,\"time\":5,\"kind\":\"note\",\"other\":1," H,
        "{\"seq\":1,\"time\":5,\"kind\":\"note\",\"owner\":\"a\",\"owner\":\"a\"," H,
        "{\"seq\":1,\"time\":5,\"kind\":\"note\",\"detail\":{," H,
        "{\"seq\":1,\"time\":5,\"kind\":\"note\",\"detail\":," H,
        "{\"seq\":1,\"time\":5,\"kind\":\"note\",\"detail\":1,\"owner\":\"a\"," H,
        "{\"seq\":1,\"time\":5,\"kind\":\"note\",\"hash\":"
        "\"ABCDEF0000000000000000000000000000000000"
        "000000000000000000000000\"}",
        "{\"seq\":1,\"time\":5,\"kind\":\"note\"," H " ",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++)
        if (journal_record_decode(lines[i], strlen(lines[i]), NULL, &slot, &err) == 0)
            fail_msg("accepted: %s", lines[i]);
    const char *good = "{\"seq\":1,\"time\":5,\"kind\":\"note\"," H;
    assert_int_equal(journal_record_decode(good, strlen(good), NULL, &slot, &err), 0);
    assert_int_equal(journal_record_decode(good, strlen(good), slot.hash, &slot, &err), -1);
}

static void what_is_beyond_a_cap_is_refused(void **state) {
    (void)state;
    static char text[JOURNAL_DETAIL_MAX + 2], big[JOURNAL_ARGV_BYTES + 1];
    static const char *many[JOURNAL_ARGV_COUNT + 1];
    struct buf line DEFER(buf_done) = BUF(JOURNAL_LINE_MAX);
    uint8_t hash[SHA256_BYTES] = {0}, zero[SHA256_BYTES] = {0};
    memset(text, '1', sizeof(text) - 1);
    memset(big, 'x', sizeof(big) - 1);
    for (size_t i = 0; i < sizeof(many) / sizeof(*many); i++)
        many[i] = "";
    const struct journal_record cases[] = {
        {.kind = 0},
        {.kind = 6},
        {.kind = JOURNAL_NOTE, .owner = big},
        {.kind = JOURNAL_NOTE, .detail = text},
        {.kind = JOURNAL_NOTE, .detail = "{"},
        {.kind = JOURNAL_NOTE, .detail = "1 2"},
        {.kind = JOURNAL_NOTE, .detail = "[1,\n2]"},
        {.kind = JOURNAL_NOTE, .argc = 1, .argv = (const char *const[]){big}},
        {.kind = JOURNAL_NOTE, .argc = JOURNAL_ARGV_COUNT + 1, .argv = many},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        assert_int_equal(journal_record_encode(&cases[i], hash, &line, &err), -1);
        assert_int_equal(line.len, 0);
        assert_memory_equal(hash, zero, sizeof(hash));
    }
    /* The caps together fit into a line even when every byte is escaped. */
    memset(big, 1, sizeof(big) - 2);
    big[sizeof(big) - 2] = '\0';
    text[JOURNAL_DETAIL_MAX] = '\0';
    char texts[JOURNAL_TEXT_MAX + 1];
    memset(texts, 1, sizeof(texts) - 1);
    texts[sizeof(texts) - 1] = '\0';
    struct journal_record most = {.kind = JOURNAL_NOTE,
                                  .owner = texts,
                                  .token = texts,
                                  .client = texts,
                                  .verb = texts,
                                  .machine = texts,
                                  .exec = texts,
                                  .reason = texts,
                                  .argv_hash = texts,
                                  .detail = text,
                                  .argc = 1,
                                  .argv = (const char *const[]){big}};
    encode(&most, &line, hash);
    assert_int_equal(journal_record_decode(line.data, line.len, zero, &slot, &err), 0);
}

static void scrubbed(const char *text, const char *wanted) {
    static const struct journal_secret secrets[] = {{"KEY", "s3cret", 6},
                                                    {"LONG", "s3cret-and-more", 15},
                                                    {"QUOTED", "a\"b\n", 4},
                                                    {"NONE", "", 0}};
    struct buf out DEFER(buf_done) = BUF(4096);
    assert_true(journal_scrub(text, strlen(text), secrets, 4, &out));
    assert_string_equal(out.data ? out.data : "", wanted);
}

static void secrets_are_replaced_by_their_names(void **state) {
    (void)state;
    scrubbed("", "");
    scrubbed("nothing here", "nothing here");
    scrubbed("s3cret", "[secret KEY]");
    scrubbed("-H s3crets3cret s3cre", "-H [secret KEY][secret KEY] s3cre");
    scrubbed("x=s3cret-and-more!", "x=[secret LONG]!");
    scrubbed("x=s3cret-and-mor", "x=[secret KEY]-and-mor");
    scrubbed("a\"b\n", "[secret QUOTED]");
    scrubbed("{\"v\":\"a\\\"b\\n\"}", "{\"v\":\"[secret QUOTED]\"}");
    struct journal_secret odd = {"a\"b\x01", "pw", 2};
    struct buf out DEFER(buf_done) = BUF(64), small DEFER(buf_done) = BUF(8);
    assert_true(journal_scrub("pw", 2, &odd, 1, &out));
    assert_string_equal(out.data, "[secret a?b?]");
    assert_false(journal_scrub("pwpwpw", 6, &odd, 1, &small));
}

UNIT_MAIN(cmocka_unit_test(every_member_survives), cmocka_unit_test(a_small_record_is_this_line),
          cmocka_unit_test(there_is_one_way_to_write_a_record),
          cmocka_unit_test(what_is_beyond_a_cap_is_refused),
          cmocka_unit_test(secrets_are_replaced_by_their_names))
