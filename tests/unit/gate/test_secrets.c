#include "tests/unit/unit.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include "base/defer.h"
#include "base/text/secret_forms.h"
#include "gate/secrets.h"
#include "store/owners.h"
#include "store/secrets.h"
#include "tests/unit/scratch.h"

/* ---- texts in pieces ---- */

static void feed(const struct needles *n, const char *text, size_t cut, struct buf *ret) {
    struct buf carry DEFER(buf_done) = BUF(1 << 16);
    size_t len = strlen(text);
    for (size_t at = 0; at < len; at += cut) {
        size_t part = len - at < cut ? len - at : cut;
        assert_true(needles_feed(n, &carry, text + at, part, at + part == len, ret) >= 0);
    }
    assert_int_equal(carry.len, 0);
}

static void a_text_is_masked_however_it_is_cut(void **state) {
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"key sk-12345678 end", "key *********** end"},
        {"sk-sk-12345678", "sk-***********"},
        {"sk-12345678sk-12345678", "**********************"},
        {"sk-1234567", "sk-1234567"},
        {"abcdabcabce", "****abc****"},
        {"none of it", "none of it"},
    };
    struct needles n DEFER(needles_done) = {.count = 0};
    (void)state;
    assert_true(needles_add(&n, "sk-12345678", 11) && needles_add(&n, "abcd", 4) &&
                needles_add(&n, "abce", 4) && needles_add(&n, "abcd", 4));
    assert_int_equal(n.count, 3);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (size_t cut = 1; cut <= strlen(rows[i].in); cut++) {
            struct buf out DEFER(buf_done) = BUF(1 << 16);
            feed(&n, rows[i].in, cut, &out);
            assert_string_equal(out.data, rows[i].out);
        }
}

static void the_longest_text_counts(void **state) {
    struct needles n DEFER(needles_done) = {.count = 0};
    (void)state;
    assert_true(needles_add(&n, "ab", 2) && needles_add(&n, "abcdef", 6));
    for (size_t cut = 1; cut < 10; cut++) {
        struct buf out DEFER(buf_done) = BUF(1 << 16);
        feed(&n, "abcdef abcdx ab", cut, &out);
        assert_string_equal(out.data, "****** **cdx **");
    }
}

/* In each of these the value stands, in some shape: of that part only stars are left. */
static void a_value_is_masked_in_every_shape(void **state) {
    static const struct {
        const char *shape, *in, *part;
    } rows[] = {
        {"as it is", "a sk-real-9f8e7d6c5b4a/+= &x b", "sk-real-9f8e7d6c5b4a/+= &x"},
        {"its long beginning", "a sk-real-9f8e7! b", "sk-real-9f8e7"},
        {"base64 behind 0", "c2stcmVhbC05ZjhlN2Q2YzViNGEvKz0gJng",
         "cmVhbC05ZjhlN2Q2YzViNGEvKz0gJn"},
        {"base64 behind 1", "eHNrLXJlYWwtOWY4ZTdkNmM1YjRhLys9ICZ4",
         "XJlYWwtOWY4ZTdkNmM1YjRhLys9ICZ"},
        {"base64 behind 2", "eHlzay1yZWFsLTlmOGU3ZDZjNWI0YS8rPSAmeA",
         "yZWFsLTlmOGU3ZDZjNWI0YS8rPSAme"},
        {"base64 for addresses", "_3NrLXJlYWwtOWY4ZTdkNmM1YjRhLys9ICZ4",
         "rLXJlYWwtOWY4ZTdkNmM1YjRhLys9IC"},
        {"base32 behind 0", "onvs24tfmfwc2olghbstozbwmm2wendbf4vt2ibgpa",
         "4tfmfwc2olghbstozbwmm2wendbf4vt2ibg"},
        {"base32 behind 1", "PBZWWLLSMVQWYLJZMY4GKN3EGZRTKYRUMEXSWPJAEZ4A",
         "SMVQWYLJZMY4GKN3EGZRTKYRUMEXSWPJAEZ"},
        {"base32 behind 2", "pb4xg2znojswc3bnhftdqzjxmq3ggnlcgrqs6kz5eathq",
         "ojswc3bnhftdqzjxmq3ggnlcgrqs6kz5eat"},
        {"base32 behind 3", "PB4XU43LFVZGKYLMFU4WMODFG5SDMYZVMI2GCLZLHUQCM6A",
         "ZGKYLMFU4WMODFG5SDMYZVMI2GCLZLHUQCM"},
        {"base32 behind 4", "pb4xu5ltnmwxezlbnqwtszrymu3wintdgvrdiyjpfm6sajty",
         "xezlbnqwtszrymu3wintdgvrdiyjpfm6saj"},
        {"hex", "736b2d7265616c2d3966386537643663356234612f2b3d202678",
         "736b2d7265616c2d3966386537643663356234612f2b3d202678"},
        {"HEX", "736B2D7265616C2D3966386537643663356234612F2B3D202678",
         "736B2D7265616C2D3966386537643663356234612F2B3D202678"},
        {"query", "sk-real-9f8e7d6c5b4a%2F%2B%3D%20%26x", "sk-real-9f8e7d6c5b4a%2F%2B%3D%20%26x"},
        {"query, low", "sk-real-9f8e7d6c5b4a%2f%2b%3d%20%26x",
         "sk-real-9f8e7d6c5b4a%2f%2b%3d%20%26x"},
        {"form", "sk-real-9f8e7d6c5b4a%2F%2B%3D+%26x", "sk-real-9f8e7d6c5b4a%2F%2B%3D+%26x"},
        {"percent",
         "%73%6b%2d%72%65%61%6c%2d%39%66%38%65%37%64%36%63%35%62%34%61%2f%2b%3d%20%26%78",
         "%73%6b%2d%72%65%61%6c%2d%39%66%38%65%37%64%36%63%35%62%34%61%2f%2b%3d%20%26%78"},
        {"json, slash", "sk-real-9f8e7d6c5b4a\\/+= &x", "sk-real-9f8e7d6c5b4a\\/+= &x"},
        {"unicode",
         "\\u0073\\u006b\\u002d\\u0072\\u0065\\u0061\\u006c\\u002d\\u0039\\u0066\\u0038\\u0065\\u00"
         "37\\u0064\\u0036\\u0063\\u0035\\u0062\\u0034\\u0061\\u002f\\u002b\\u003d\\u0020\\u0026\\u"
         "0078",
         "\\u0073\\u006b\\u002d\\u0072\\u0065\\u0061\\u006c\\u002d\\u0039\\u0066\\u0038\\u0065\\u00"
         "37\\u0064\\u0036\\u0063\\u0035\\u0062\\u0034\\u0061\\u002f\\u002b\\u003d\\u0020\\u0026\\u"
         "0078"},
        {"html", "sk-real-9f8e7d6c5b4a/+= &amp;x", "sk-real-9f8e7d6c5b4a/+= &amp;x"},
        {"html numbers",
         "&#115;&#107;&#45;&#114;&#101;&#97;&#108;&#45;&#57;&#102;&#56;&#101;&#55;&#100;&#54;&#99;&"
         "#53;&#98;&#52;&#97;&#47;&#43;&#61;&#32;&#38;&#120;",
         "&#115;&#107;&#45;&#114;&#101;&#97;&#108;&#45;&#57;&#102;&#56;&#101;&#55;&#100;&#54;&#99;&"
         "#53;&#98;&#52;&#97;&#47;&#43;&#61;&#32;&#38;&#120;"},
    };
    static const char value[] = "sk-real-9f8e7d6c5b4a/+= &x";
    struct needles n DEFER(needles_done) = {.count = 0};
    (void)state;
    assert_true(secret_forms_add(value, strlen(value), &n));
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (size_t cut = 1; cut <= strlen(rows[i].in); cut += 7) {
            struct buf out DEFER(buf_done) = BUF(1 << 16);
            const char *part = strstr(rows[i].in, rows[i].part);
            feed(&n, rows[i].in, cut, &out);
            assert_non_null(part);
            const char *left = out.data + (part - rows[i].in);
            if (strspn(left, "*") < strlen(rows[i].part))
                fail_msg("%s, cut by %zu: %s became %s", rows[i].shape, cut, rows[i].in, out.data);
        }
}

static void what_only_looks_like_a_value_stays(void **state) {
    static const char *const texts[] = {"sk-real-9f8", "c2stcmVh", "736b2d7265", "sk-", "real"};
    static const char value[] = "sk-real-9f8e7d6c5b4a/+= &x";
    struct needles n DEFER(needles_done) = {.count = 0};
    (void)state;
    assert_true(secret_forms_add(value, strlen(value), &n) && secret_forms_add("abc", 3, &n));
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        struct buf out DEFER(buf_done) = BUF(1 << 16);
        feed(&n, texts[i], 3, &out);
        assert_string_equal(out.data, texts[i]);
    }
}

/* ---- heads ---- */

#define P "carrel-secret-aaaaaaaaaaaaaaaaaaaaaaaaaa"
static const struct secret_grants grants = {
    .list = {{"KEY", "api.test", SECRET_HEADER, P},
             {"PASS", "api.test", SECRET_BASIC, "carrel-secret-bbbbbbbbbbbbbbbbbbbbbbbbbb"},
             {"Q", "api.test", SECRET_QUERY, "carrel-secret-cccccccccccccccccccccccccc"},
             {"Q", "two.test", SECRET_QUERY, "carrel-secret-cccccccccccccccccccccccccc"}},
    .count = 4};

static void parse(const char *text, struct http_head *ret) {
    struct http_parser p;
    http_parse_begin(&p, HTTP_REQUEST, &HTTP_LIMITS_DEFAULT, ret);
    assert_int_equal(http_parse(&p, text, strlen(text)), 1);
}

static void placeholders_stand_only_where_they_may(void **state) {
    static const struct {
        const char *host, *text, *why;
        bool tls;
        size_t uses;
    } rows[] = {
        {"api.test", "GET / HTTP/1.1\r\nHost: a\r\nX-Key: " P "\r\n\r\n", NULL, true, 1},
        {"api.test", "GET / HTTP/1.1\r\nHost: a\r\nX-Key: " P "\r\n\r\n", "only inside TLS", false,
         0},
        {"two.test", "GET / HTTP/1.1\r\nHost: a\r\nX-Key: " P "\r\n\r\n", "this host", true, 0},
        {"other.test", "GET / HTTP/1.1\r\nHost: a\r\nX-Key: " P "\r\n\r\n", "this host", true, 0},
        {"api.test", "GET /" P " HTTP/1.1\r\nHost: a\r\n\r\n", "does not allow", true, 0},
        {"api.test", "GET /?k=" P " HTTP/1.1\r\nHost: a\r\n\r\n", "does not allow", true, 0},
        {"api.test", "GET /?k=carrel-secret-cccccccccccccccccccccccccc HTTP/1.1\r\nHost: a\r\n\r\n",
         NULL, true, 1},
        {"api.test",
         "GET / HTTP/1.1\r\nHost: a\r\nX: carrel-secret-cccccccccccccccccccccccccc\r\n\r\n",
         "does not allow", true, 0},
        {"api.test", "GET / HTTP/1.1\r\nHost: a\r\n" P ": x\r\n\r\n", "does not allow", true, 0},
        /* u:carrel-secret-bbbbbbbbbbbbbbbbbbbbbbbbbb */
        {"api.test",
         "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: basic "
         "dTpjYXJyZWwtc2VjcmV0LWJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJi\r\n\r\n",
         NULL, true, 1},
        {"other.test",
         "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic "
         "dTpjYXJyZWwtc2VjcmV0LWJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJi\r\n\r\n",
         "this host", true, 0},
        {"other.test", "GET /x?y HTTP/1.1\r\nHost: a\r\nA: b\r\n\r\n", NULL, false, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct http_head h;
        struct secret_uses u;
        parse(rows[i].text, &h);
        secrets_check(&grants, rows[i].host, rows[i].tls, &h, &u);
        assert_int_equal(u.count, rows[i].uses);
        if (rows[i].why)
            assert_non_null(strstr(u.why, rows[i].why));
        else
            assert_string_equal(u.why, "");
    }
}

/* The ninth is refused, and is not written behind the array of eight. */
static void a_request_holds_eight_secrets_at_most(void **state) {
    (void)state;
    for (size_t count = SECRET_USES_MAX - 1; count <= SECRET_USES_MAX + 1; count++) {
        struct secret_grants many = {.count = count};
        struct buf text DEFER(buf_done) = BUF(1 << 16);
        assert_true(buf_addf(&text, "GET / HTTP/1.1\r\nHost: api.test\r\n"));
        for (size_t i = 0; i < count; i++) {
            struct secret_grant *g = &many.list[i];
            *g = (struct secret_grant){.way = SECRET_HEADER};
            snprintf(g->name, sizeof(g->name), "KEY%zu", i);
            snprintf(g->host, sizeof(g->host), "api.test");
            snprintf(g->placeholder, sizeof(g->placeholder), "carrel-secret-%026zu", i);
            assert_true(buf_addf(&text, "X-Key-%zu: %s\r\n", i, g->placeholder));
        }
        assert_true(buf_addf(&text, "\r\n"));
        struct http_head head;
        struct secret_uses u;
        parse(text.data, &head);
        secrets_check(&many, "api.test", true, &head, &u);
        if (count <= SECRET_USES_MAX) {
            assert_int_equal(u.count, count);
            assert_string_equal(u.why, "");
        } else {
            assert_int_equal(u.count, 0); /* a refused request uses none of them */
            assert_non_null(strstr(u.why, "uses too many secrets"));
        }
    }
}

/* One secret for two hosts: each request uses the grant of the host that it goes to. */
static void a_secret_for_two_hosts_goes_to_both_and_no_third(void **state) {
    static const char key[] = "GET /?k=carrel-secret-cccccccccccccccccccccccccc HTTP/1.1\r\n"
                              "Host: a\r\n\r\n";
    struct http_head h;
    struct secret_uses u;
    (void)state;
    parse(key, &h);
    for (size_t i = 2; i < 4; i++) {
        secrets_check(&grants, grants.list[i].host, true, &h, &u);
        assert_string_equal(u.why, "");
        assert_int_equal(u.count, 1);
        assert_ptr_equal(u.list[0].grant, &grants.list[i]);
        assert_true(secret_grants_for(&grants, grants.list[i].host));
    }
    secrets_check(&grants, "third.test", true, &h, &u);
    assert_non_null(strstr(u.why, "this host"));
    assert_int_equal(u.count, 0);
    assert_false(secret_grants_for(&grants, "third.test"));
}

static struct http_text text(const char *s) {
    return (struct http_text){s, strlen(s)};
}

static void values_take_their_places(void **state) {
    struct secret_uses u = {.list = {{&grants.list[0], secret_new("v&lue 1!", 8)},
                                     {&grants.list[1], secret_new("p:ss word", 9)},
                                     {&grants.list[2], secret_new("a b/c&d=", 8)}},
                            .count = 3};
    struct buf out DEFER(buf_done) = BUF(1 << 16);
    (void)state;
    assert_true(secrets_put_value(&u, text("X"), text("Bearer " P ", " P), &out));
    assert_string_equal(out.data, "Bearer v&lue 1!, v&lue 1!");
    out.len = 0;
    assert_true(secrets_put_value(&u, text("authorization"),
                                  text("Basic dTpjYXJyZWwtc2VjcmV0LWJiYmJiYmJiYmJiYmJiYmJiYmJiYmJi"
                                       "YmJi"),
                                  &out));
    assert_string_equal(out.data, "Basic dTpwOnNzIHdvcmQ=");
    out.len = 0;
    assert_true(
        secrets_put_query(&u, text("a=1&k=carrel-secret-cccccccccccccccccccccccccc&z=" P), &out));
    assert_string_equal(out.data, "a=1&k=a%20b%2Fc%26d%3D&z=" P);
    secret_uses_done(&u);
}

static void placeholders_differ(void **state) {
    char a[PLACEHOLDER_SIZE], b[PLACEHOLDER_SIZE];
    (void)state;
    placeholder_make(a);
    placeholder_make(b);
    assert_string_not_equal(a, b);
    assert_int_equal(strlen(a), strlen(P));
}

/* ---- the store ---- */

static void what_is_kept_is_sealed(void **state) {
    struct scratch dir DEFER(scratch_done) = scratch_new();
    const struct store_options o = {.home = dir.path, .journal = {.segment_bytes = 1 << 20}};
    struct store *s DEFER(store_closep) = NULL;
    struct secret *value DEFER(secret_freep) = secret_new("a value of ours", 15);
    struct owner_row owner = {.name = "ann", .uid = 1000};
    struct secret *got DEFER(secret_freep) = NULL;
    struct err err;
    (void)state;
    assert_int_equal(store_open(&o, &s, &err), 0);
    assert_int_equal(store_owner_put(s, &owner, &err), 0);
    assert_int_equal(store_secret_get(s, "ann", "KEY", &got, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(store_secret_put(s, "ann", "KEY", value, 5, &err), 0);
    assert_int_equal(store_secret_put(s, "ann", "TWO", value, 5, &err), 0);
    store_close(TAKE(s));
    assert_int_equal(store_open(&o, &s, &err), 0);
    assert_int_equal(store_secret_get(s, "ann", "KEY", &got, &err), 0);
    assert_true(secret_is_in(got, "a value of ours", 15));
    assert_int_equal(store_secret_remove(s, "ann", "KEY", &err), 0);
    assert_int_equal(store_secret_remove(s, "ann", "KEY", &err), -1);
}

/* A row under another's name, or a key of others, opens nothing. */
static void what_was_changed_does_not_open(void **state) {
    struct scratch dir DEFER(scratch_done) = scratch_new();
    const struct store_options o = {.home = dir.path, .journal = {.segment_bytes = 1 << 20}};
    struct store *s DEFER(store_closep) = NULL;
    struct secret *value DEFER(secret_freep) = secret_new("a value of ours", 15);
    struct secret *got = NULL;
    struct owner_row owner = {.name = "ann", .uid = 1000};
    struct err err;
    char path[512], from[512];
    sqlite3 *db;
    (void)state;
    assert_int_equal(store_open(&o, &s, &err), 0);
    assert_int_equal(store_owner_put(s, &owner, &err), 0);
    assert_int_equal(store_secret_put(s, "ann", "KEY", value, 5, &err), 0);
    store_close(TAKE(s));
    snprintf(path, sizeof(path), "%s/carrel.db", o.home);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "UPDATE secrets SET name = 'EVIL'", NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(store_open(&o, &s, &err), 0);
    assert_int_equal(store_secret_get(s, "ann", "EVIL", &got, &err), -1);
    assert_non_null(strstr(err.text, "cannot be decrypted"));
    store_close(TAKE(s));
    snprintf(from, sizeof(from), "%s/secrets.key", o.home);
    assert_int_equal(chmod(from, 0644), 0);
    assert_int_equal(store_open(&o, &s, &err), 0);
    assert_int_equal(store_secret_get(s, "ann", "EVIL", &got, &err), -1);
    assert_non_null(strstr(err.text, "is readable by other users"));
    assert_int_equal(unlink(from), 0);
    assert_int_equal(store_secret_get(s, "ann", "EVIL", &got, &err), -1);
    assert_non_null(strstr(err.text, "is missing"));
}

UNIT_MAIN(cmocka_unit_test(a_value_is_masked_in_every_shape),
          cmocka_unit_test(what_only_looks_like_a_value_stays),
          cmocka_unit_test(a_text_is_masked_however_it_is_cut),
          cmocka_unit_test(the_longest_text_counts),
          cmocka_unit_test(placeholders_stand_only_where_they_may),
          cmocka_unit_test(a_request_holds_eight_secrets_at_most),
          cmocka_unit_test(a_secret_for_two_hosts_goes_to_both_and_no_third),
          cmocka_unit_test(values_take_their_places), cmocka_unit_test(placeholders_differ),
          cmocka_unit_test(what_is_kept_is_sealed),
          cmocka_unit_test(what_was_changed_does_not_open))
