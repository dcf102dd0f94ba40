#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "io/http.h"

static const struct http_limits small = {.line_max = 64, .head_max = 256, .fields_max = 4};

/* Parses as if the bytes came in two reads; `cut` = n means in one, 0 means byte by byte. */
static int parse_cut(struct http_parser *p, struct http_head *h, enum http_kind kind,
                     const char *bytes, size_t n, size_t cut) {
    http_parse_begin(p, kind, &small, h);
    int r = 0;
    for (size_t k = cut ? cut : 1; r == 0 && k < n; k = cut ? n : k + 1)
        r = http_parse(p, bytes, k);
    return r ? r : http_parse(p, bytes, n);
}

/* Parses in every possible way and checks that it never matters; the result is that of one read. */
static int parse_all_ways(struct http_parser *p, struct http_head *h, enum http_kind kind,
                          const char *text, size_t n) {
    char *bytes DEFER_FREE = malloc(n ? n : 1); /* exactly so large, for the sanitizers */
    memcpy(bytes, text, n);
    int r = parse_cut(p, h, kind, bytes, n, n);
    for (size_t cut = 0; cut < n; cut++) {
        struct http_parser q;
        struct http_head g;
        assert_int_equal(parse_cut(&q, &g, kind, bytes, n, cut), r);
        assert_int_equal(q.refusal.status, p->refusal.status);
        assert_ptr_equal(q.refusal.why, p->refusal.why);
        if (r == 1) {
            assert_int_equal(q.used, p->used);
            assert_int_equal(g.count, h->count);
            assert_int_equal(g.framing, h->framing);
        }
    }
    return r;
}

static const struct {
    const char *text;
    int status;      /* 0: it is fine */
    const char *why; /* part of the reason */
} requests[] = {
    {"GET / HTTP/1.1\r\nHost: a\r\n\r\n", 0, NULL},
    {"GET / HTTP/1.0\r\n\r\n", 0, NULL},
    {"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 0, NULL},
    {"\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400, "not HTTP"},
    {"BREW-IT! /pot HTTP/1.1\r\nHost:\r\n\r\n", 0, NULL},
    {"OPTIONS * HTTP/1.1\r\nHost: a:80\r\n\r\n", 0, NULL},
    {"CONNECT a.b:443 HTTP/1.1\r\nHost: a.b:443\r\n\r\n", 0, NULL},
    {"CONNECT [::1]:443 HTTP/1.1\r\nHost: x\r\n\r\n", 0, NULL},
    {"GET http://a.b/c?d HTTP/1.1\r\nHost: a.b\r\n\r\n", 0, NULL},
    {"GET https://a.b?d HTTP/1.1\r\nHost: a.b\r\n\r\n", 0, NULL},
    {"GET /a%2Fb;c=1/[x]?q={y}|^` HTTP/1.1\r\nHost: a\r\n\r\n", 0, NULL},
    {"GET / HTTP/1.1\r\nHost: a\r\nX: \t caf\xc3\xa9 \t\r\nY:\r\n\r\n", 0, NULL},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0009\r\n\r\n", 0, NULL},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n", 0, NULL},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775799\r\n\r\n", 0, NULL},

    /* the first line */
    {"\x16\x03\x01", 400, "not HTTP"},
    {" GET / HTTP/1.1\r\n", 400, "not HTTP"},
    {"GET\r\n", 400, "method"},
    {"G@T / HTTP/1.1\r\n", 400, "method"},
    {"GET\t/ HTTP/1.1\r\n", 400, "method"},
    {"GET /\r\n", 400, "version"},
    {"GET  / HTTP/1.1\r\n", 400, "version"},
    {"GET / HTTP/1.1 \r\n", 400, "version"},
    {"GET / http/1.1\r\n", 400, "version"},
    {"GET / HTTP/11\r\n", 400, "version"},
    {"GET / HTTP/1.10\r\n", 400, "version"},
    {"GET /a b HTTP/1.1\r\n", 400, "version"},
    {"GET / HTTP/2.0\r\n", 505, "HTTP/1.0 and"},
    {"GET / HTTP/1.2\r\n", 505, "HTTP/1.0 and"},
    {"GET / HTTP/0.9\r\n", 505, "HTTP/1.0 and"},
    {"PRI * HTTP/2.0\r\n\r\n", 505, "HTTP/1.0 and"},
    {"GET * HTTP/1.1\r\n", 400, "only with OPTIONS"},
    {"GET a HTTP/1.1\r\n", 400, "not a path or an http URL"},
    {"GET ftp://a/ HTTP/1.1\r\n", 400, "not a path or an http URL"},
    {"GET http:/// HTTP/1.1\r\n", 400, "host in the request target is malformed"},
    {"GET http://u@a/ HTTP/1.1\r\n", 400, "host in the request target is malformed"},
    {"GET http://a:x/ HTTP/1.1\r\n", 400, "host in the request target is malformed"},
    {"GET /a#b HTTP/1.1\r\n", 400, "percent-encoded"},
    {"GET /\xc3\xa9 HTTP/1.1\r\n", 400, "percent-encoded"},
    {"GET /a\x7f HTTP/1.1\r\n", 400, "percent-encoded"},
    {"GET /a\\b HTTP/1.1\r\n", 400, "percent-encoded"},
    {"GET /\"<> HTTP/1.1\r\n", 400, "percent-encoded"},
    {"CONNECT / HTTP/1.1\r\n", 400, "host:port"},
    {"CONNECT a HTTP/1.1\r\n", 400, "host:port"},
    {"CONNECT a: HTTP/1.1\r\n", 400, "host:port"},
    {"CONNECT :80 HTTP/1.1\r\n", 400, "host:port"},
    {"CONNECT a:65536 HTTP/1.1\r\n", 400, "host:port"},
    {"CONNECT [::1:80 HTTP/1.1\r\n", 400, "host:port"},
    {"GET / HTTP/1.1\nHost: a\n\n", 400, "CR LF"},
    {"GET / HTTP/1.1\r\r\n", 400, "version"},
    {"GET /01234567890123456789012345678901234567890123456789012345 HTTP/1.1\r\n", 414, "line"},

    /* fields */
    {"GET / HTTP/1.1\r\nHost: a\n\r\n", 400, "CR LF"},
    {"GET / HTTP/1.1\r\nHost: a\r\n\n", 400, "CR LF"},
    {"GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", 400, "control byte"},
    {"GET / HTTP/1.1\r\nHost: a\r\n X: y\r\n\r\n", 400, "folded"},
    {"GET / HTTP/1.1\r\n\tHost: a\r\n\r\n", 400, "folded"},
    {"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400, "no valid name followed by a colon"},
    {"GET / HTTP/1.1\r\nHost\r\n\r\n", 400, "no valid name followed by a colon"},
    {"GET / HTTP/1.1\r\n: a\r\n\r\n", 400, "no valid name followed by a colon"},
    {"GET / HTTP/1.1\r\nX(y): a\r\n\r\n", 400, "no valid name followed by a colon"},
    {"GET / HTTP/1.1\r\nX: a\x01\r\n\r\n", 400, "control byte"},
    {"GET / HTTP/1.1\r\nX: a\x7f\r\n\r\n", 400, "control byte"},
    {"GET / HTTP/1.1\r\n\r\n", 400, "header field Host is missing"},
    {"GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", 400, "header field Host is given twice"},
    {"GET / HTTP/1.0\r\nHost: a\r\nhost: b\r\n\r\n", 400, "header field Host is given twice"},
    {"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400, "header field Host is malformed"},
    {"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, "header field Host is malformed"},
    {"GET / HTTP/1.1\r\nHost: a,b@c\r\n\r\n", 400, "header field Host is malformed"},
    {"GET / HTTP/1.1\r\nA:\r\nB:\r\nC:\r\nD:\r\nHost: a\r\n\r\n", 431, "too many"},

    /* where the body ends */
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400,
     "both"},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n", 400,
     "both"},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400, "twice"},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", 400, "twice"},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n", 400, "not a number"},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n", 400, "not a number"},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400, "not a number"},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x1\r\n\r\n", 400, "not a number"},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", 400, "not a number"},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775808\r\n\r\n", 400, "range"},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 400, "range"},
    {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "not allowed in HTTP/1.0"},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501,
     "only the transfer coding chunked"},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", 400, "end in"},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n", 400, "end in"},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 400, "end in"},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;x\r\n\r\n", 400, "end in"},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n", 400, "end in"},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n\r\n", 400, "end in"},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: "
     "chunked\r\n\r\n",
     400, "twice"},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\t\r\n\r\n", 400, "tabs"},
    {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\tchunked\r\n\r\n", 400, "tabs"},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5 \t \r\n\r\n", 400, "tabs"},
    {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\t\r\n\r\n", 400, "tabs"},
    {"POST / HTTP/1.1\r\nHost: a\r\nExpect: 200-ok\r\n\r\n", 417, "Expect"},
};

static void every_request_in_the_table_is_judged_alike_however_cut(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(requests) / sizeof(*requests); i++) {
        struct http_parser p;
        struct http_head h;
        const char *text = requests[i].text;
        int r = parse_all_ways(&p, &h, HTTP_REQUEST, text, strlen(text));
        if (r != (requests[i].status ? -1 : 1) || p.refusal.status != requests[i].status ||
            (requests[i].why && !strstr(p.refusal.why, requests[i].why)))
            fail_msg("'%s': %d, %d %s", text, r, p.refusal.status, p.refusal.why);
        if (r == 1)
            assert_int_equal(p.used, strlen(text));
    }
}

static const struct {
    const char *text;
    const char *why;
    enum http_framing framing;
    bool keep_alive;
} responses[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", NULL, HTTP_SIZED, true},
    {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", NULL, HTTP_NO_BODY, true},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", NULL, HTTP_CHUNKED, true},
    {"HTTP/1.1 200\r\nConnection: keep-alive\r\n\r\n", NULL, HTTP_UNTIL_CLOSE, false},
    {"HTTP/1.1 200 \r\nConnection: X, close\r\nContent-Length: 1\r\n\r\n", NULL, HTTP_SIZED, false},
    {"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", NULL, HTTP_SIZED, false},
    {"HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\n", NULL, HTTP_SIZED,
     true},
    {"HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n", NULL, HTTP_NO_BODY, true},
    {"HTTP/1.1 304 No\r\nContent-Length: 5\r\n\r\n", NULL, HTTP_NO_BODY, true},
    {"HTTP/1.1 100 Go on\r\n\r\n", NULL, HTTP_NO_BODY, true},
    {"HTTP/1.1 200 OK\r\nHost: a b c\r\nContent-Length: 0\r\n\r\n", NULL, HTTP_NO_BODY, true},

    {"GET / HTTP/1.1\r\n", "not HTTP", 0, false},
    {"HTTP/1.1 20 OK\r\n", "malformed", 0, false},
    {"HTTP/1.1 2000 OK\r\n", "malformed", 0, false},
    {"HTTP/1.1  200 OK\r\n", "malformed", 0, false},
    {"HTTP/1.1\r\n", "malformed", 0, false},
    {"HTTP/1.1 099 X\r\n", "between", 0, false},
    {"HTTP/1.1 600 X\r\n", "between", 0, false},
    {"HTTP/3.0 200 OK\r\n", "are supported", 0, false},
    {"HTTQ/1.1 200 OK\r\n", "version", 0, false},
    {"HTTP/1.1 200 a\x01z\r\n", "control", 0, false},
    {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", "both", 0,
     false},
    {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", "twice", 0, false},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "end in", 0, false},
    {"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0", 0, false},
};

static void every_response_in_the_table_is_judged_alike_however_cut(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(responses) / sizeof(*responses); i++) {
        struct http_parser p;
        struct http_head h;
        const char *text = responses[i].text;
        int r = parse_all_ways(&p, &h, HTTP_RESPONSE, text, strlen(text));
        if (r != (responses[i].why ? -1 : 1) ||
            (r == -1 && (!strstr(p.refusal.why, responses[i].why) || p.refusal.status != 502)) ||
            (r == 1 &&
             (h.framing != responses[i].framing || h.keep_alive != responses[i].keep_alive)))
            fail_msg("'%s': %d, %d %s", text, r, p.refusal.status, p.refusal.why);
    }
}

static void parsed(struct http_head *h, const char *text) {
    struct http_parser p;
    http_parse_begin(&p, HTTP_REQUEST, &HTTP_LIMITS_DEFAULT, h);
    assert_int_equal(http_parse(&p, text, strlen(text)), 1);
}

static void a_nul_is_refused_wherever_it_stands(void **state) {
    (void)state;
    static const char good[] = "GET /ab HTTP/1.1\r\nHost: a\r\nX-y: zz\r\n\r\n";
    for (size_t i = 0; i < sizeof(good) - 1; i++) {
        char text[sizeof(good)];
        struct http_parser p;
        struct http_head h;
        memcpy(text, good, sizeof(good));
        text[i] = '\0';
        http_parse_begin(&p, HTTP_REQUEST, &small, &h);
        assert_int_not_equal(http_parse(&p, text, sizeof(good) - 1), 1);
    }
}

static void a_target_is_taken_apart(void **state) {
    static const struct {
        const char *target, *authority, *path, *query;
        enum http_form form;
    } table[] = {
        {"GET /a/b?c=d?e", "host:1", "/a/b", "c=d?e", HTTP_ORIGIN},
        {"GET /?", "host:1", "/", "", HTTP_ORIGIN},
        {"GET //x", "host:1", "//x", NULL, HTTP_ORIGIN},
        {"GET http://h.i:2/p?q", "h.i:2", "/p", "q", HTTP_ABSOLUTE},
        {"GET http://[::1]", "[::1]", "", NULL, HTTP_ABSOLUTE},
        {"GET http://h?q", "h", "", "q", HTTP_ABSOLUTE},
        {"CONNECT h.i:443", "h.i:443", "", NULL, HTTP_AUTHORITY},
        {"OPTIONS *", "host:1", "*", NULL, HTTP_ASTERISK},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        struct http_head h;
        char text[128];
        snprintf(text, sizeof(text), "%s HTTP/1.1\r\nHost: host:1\r\n\r\n", table[i].target);
        parsed(&h, text);
        assert_int_equal(h.form, table[i].form);
        assert_true(http_text_is(h.authority, table[i].authority));
        assert_true(http_text_is(h.path, table[i].path));
        assert_int_equal(h.query.s == NULL, table[i].query == NULL);
        assert_true(http_text_is(h.query, table[i].query ? table[i].query : ""));
    }
}

static void fields_are_found_in_any_case(void **state) {
    struct http_head h;
    (void)state;
    parsed(&h, "GET / HTTP/1.1\r\nhOST: a\r\nX: 1\r\nx: 2\r\nY: \t z z\t\r\n\r\n");
    assert_true(http_text_is(http_field_find(&h, "X")->value, "1"));
    assert_true(http_text_is(http_field_only(&h, "y"), "z z"));
    assert_null(http_field_only(&h, "x").s);
    assert_null(http_field_only(&h, "none").s);
    assert_null(http_field_find(&h, "none"));
    assert_int_equal(http_field_count(&h, "x"), 2);
}

static void lists_are_read_over_all_fields(void **state) {
    struct http_head h;
    (void)state;
    parsed(&h, "GET / HTTP/1.1\r\nHost: a\r\nA: , x ,,Y\t,\r\nA: z\r\nB: xx\r\n\r\n");
    assert_true(http_list_has(&h, "a", "X"));
    assert_true(http_list_has(&h, "a", "y"));
    assert_true(http_list_has(&h, "a", "z"));
    assert_false(http_list_has(&h, "b", "x"));
    assert_false(http_list_has(&h, "a", ""));
}

static void a_connection_is_kept_or_not(void **state) {
    static const struct {
        const char *text;
        bool keep_alive, upgrade, expect;
    } table[] = {
        {"HTTP/1.1\r\nHost: a\r\n\r\n", true, false, false},
        {"HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false, false, false},
        {"HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Close\r\n\r\n", false, false, false},
        {"HTTP/1.0\r\n\r\n", false, false, false},
        {"HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true, false, false},
        {"HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", true, true, false},
        {"HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\n\r\n", true, false, false},
        {"HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", false, false, false},
        {"HTTP/1.1\r\nHost: a\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\n", true, false,
         true},
        {"HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n", true, false, false},
        {"HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n", false, false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        struct http_head h;
        char text[256];
        snprintf(text, sizeof(text), "GET / %s", table[i].text);
        parsed(&h, text);
        assert_int_equal(h.keep_alive, table[i].keep_alive);
        assert_int_equal(h.upgrade, table[i].upgrade);
        assert_int_equal(h.expect_continue, table[i].expect);
    }
}

static void limits_are_exact(void **state) {
    struct http_parser p;
    struct http_head h;
    char text[400];
    (void)state;
    /* A line of exactly line_max, then a head of exactly head_max, then one byte more of each. */
    int n = snprintf(text, sizeof(text), "GET /%050d HTTP/1.1\r\nHost: a\r\n\r\n", 0);
    assert_int_equal(parse_all_ways(&p, &h, HTTP_REQUEST, text, (size_t)n), 1);
    n = snprintf(text, sizeof(text), "GET /%051d HTTP/1.1\r\nHost: a\r\n\r\n", 0);
    assert_int_equal(parse_all_ways(&p, &h, HTTP_REQUEST, text, (size_t)n), -1);
    assert_int_equal(p.refusal.status, 414);
    n = snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: a\r\nX: %0224d\r\n\r\n", 0);
    assert_int_equal(n, 256);
    assert_int_equal(parse_all_ways(&p, &h, HTTP_REQUEST, text, 256), 1);
    n = snprintf(text, sizeof(text), "GET / HTTP/1.1\r\nHost: a\r\nX: %0225d\r\n\r\n", 0);
    assert_int_equal(parse_all_ways(&p, &h, HTTP_REQUEST, text, (size_t)n), -1);
    assert_int_equal(p.refusal.status, 431);
}

static void a_response_to_head_has_no_body(void **state) {
    struct http_parser p;
    struct http_head h;
    const char *text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    (void)state;
    http_parse_begin(&p, HTTP_RESPONSE, &small, &h);
    p.answers_head = true;
    assert_int_equal(http_parse(&p, text, strlen(text)), 1);
    assert_int_equal(h.framing, HTTP_NO_BODY);
    assert_int_equal(h.length, 5);
}

/* Bodies */

static const struct {
    const char *wire;
    const char *data; /* NULL: refused */
    const char *rest; /* what follows the body; or why it is refused; NULL: not ended */
} chunked[] = {
    {"0\r\n\r\n", "", ""},
    {"3\r\nabc\r\n0\r\n\r\nGET", "abc", "GET"},
    {"3\r\nabc\r\nA\r\n0123456789\r\n00\r\n\r\n", "abc0123456789", ""},
    {"3;a=b;c=\"d e\"\r\nabc\r\n0;x\r\n\r\n", "abc", ""},
    {"1\r\nx\r\n0\r\nX-T: y\r\nZ:\r\n\r\nrest", "x", "rest"},
    {"5\r\nab", "ab", NULL},
    {"0\r\nX: y\r\n", "", NULL},

    {"\r\n", NULL, "size of a chunk of the HTTP body is malformed"},
    {"g\r\n", NULL, "size of a chunk of the HTTP body is malformed"},
    {"-1\r\n", NULL, "size of a chunk of the HTTP body is malformed"},
    {" 1\r\n", NULL, "size of a chunk of the HTTP body is malformed"},
    {"1 \r\nx", NULL, "size of a chunk of the HTTP body is malformed"},
    {"0x1\r\nx", NULL, "size of a chunk of the HTTP body is malformed"},
    {"1\nx", NULL, "size of a chunk of the HTTP body is malformed"},
    {"1\rx", NULL, "CR LF"},
    {"8000000000000000\r\n", NULL, "range"},
    {"10000000000000000\r\n", NULL, "range"},
    {"00000000000000001\r\nx", NULL, "range"},
    {"1;a\x01\r\nx", NULL, "control"},
    {"1;a\nx", NULL, "control"},
    {"1\r\nxy\r\n", NULL, "CR LF"},
    {"1\r\nx\n0\r\n", NULL, "CR LF"},
    {"0\r\n\n", NULL, "trailer"},
    {"0\r\n\rx", NULL, "CR LF"},
    {"0\r\n X: y\r\n\r\n", NULL, "trailer"},
    {"0\r\nX : y\r\n\r\n", NULL, "trailer"},
    {"0\r\nX\r\n\r\n", NULL, "trailer"},
    {"0\r\n: y\r\n\r\n", NULL, "trailer"},
    {"0\r\nX: a\nb\r\n\r\n", NULL, "trailer"},
    {"0\r\nX: a\r\r\n\r\n", NULL, "CR LF"},
};

/* Reads a body whose bytes come in pieces of `step`; the data go to *ret. */
static int body_read(struct http_body *b, const char *wire, size_t n, size_t step, char *ret,
                     size_t *taken) {
    size_t have = 0, at = 0, out = 0;
    int r = 0;
    while (r == 0 && at < n) {
        size_t used;
        struct http_text piece;
        if (at == have)
            have = have + step < n ? have + step : n;
        r = http_body_next(b, wire + at, have - at, &used, &piece);
        if (r < 0)
            break;
        memcpy(ret + out, piece.s, piece.n);
        out += piece.n;
        at += used;
    }
    ret[out] = '\0';
    *taken = at;
    return r;
}

static void every_chunked_body_in_the_table_is_judged_alike_however_cut(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof(chunked) / sizeof(*chunked); i++)
        for (size_t step = 1; step <= strlen(chunked[i].wire); step++) {
            struct http_head h = {.framing = HTTP_CHUNKED};
            struct http_body b;
            char data[256];
            size_t taken;
            http_body_begin(&b, &h);
            int r = body_read(&b, chunked[i].wire, strlen(chunked[i].wire), step, data, &taken);
            int want = !chunked[i].data ? -1 : chunked[i].rest != NULL;
            if (r != want || (r == -1 && !strstr(b.refusal.why, chunked[i].rest)) ||
                (r >= 0 && strcmp(data, chunked[i].data) != 0) ||
                (r == 1 && strcmp(chunked[i].wire + taken, chunked[i].rest) != 0))
                fail_msg("'%s' by %zu: %d '%s' %s", chunked[i].wire, step, r, data, b.refusal.why);
            assert_int_equal(http_body_at_close(&b), r == 1);
        }
}

static void what_a_body_throws_away_is_capped(void **state) {
    struct http_head h = {.framing = HTTP_CHUNKED};
    struct http_body b;
    char wire[600], data[600];
    size_t taken;
    (void)state;
    int n = snprintf(wire, sizeof(wire), "1;%0256d\r\nx\r\n", 0);
    http_body_begin(&b, &h);
    assert_int_equal(body_read(&b, wire, (size_t)n, (size_t)n, data, &taken), 0);
    for (int i = 0; i < 70; i++)
        if (body_read(&b, wire, (size_t)n, (size_t)n, data, &taken) < 0)
            break;
    assert_string_equal(b.refusal.why,
                        "chunk extensions or trailers of the HTTP body are too long");
    n = snprintf(wire, sizeof(wire), "1;%0257d\r\nx\r\n", 0);
    http_body_begin(&b, &h);
    assert_int_equal(body_read(&b, wire, (size_t)n, (size_t)n, data, &taken), -1);
    n = snprintf(wire, sizeof(wire), "0\r\n%0300d:\r\n", 0);
    http_body_begin(&b, &h);
    assert_int_equal(body_read(&b, wire, (size_t)n, (size_t)n, data, &taken), 0);
    for (int i = 0; i < 70; i++)
        if (body_read(&b, wire + 3, (size_t)n - 3, (size_t)n, data, &taken) < 0)
            break;
    assert_string_equal(b.refusal.why,
                        "chunk extensions or trailers of the HTTP body are too long");
}

static void a_sized_body_takes_no_more_than_its_own(void **state) {
    struct http_head h = {.framing = HTTP_SIZED, .length = 5};
    struct http_body b;
    struct http_text piece;
    size_t used;
    (void)state;
    http_body_begin(&b, &h);
    assert_int_equal(http_body_next(&b, "abc", 3, &used, &piece), 0);
    assert_int_equal(http_body_certain(&b), 2);
    assert_false(http_body_at_close(&b));
    assert_int_equal(http_body_next(&b, "deGET", 5, &used, &piece), 1);
    assert_int_equal(used, 2);
    assert_true(http_text_is(piece, "de"));
    assert_true(http_body_at_close(&b));
}

/* Writing */

static void what_is_written_parses_equal(void **state) {
    struct buf b DEFER(buf_done) = BUF(4096);
    struct http_head h, g;
    (void)state;
    parsed(&h, "PUT /a?b HTTP/1.0\r\nhost:  a\r\nX:\r\nContent-Length: 7\r\n\r\n");
    assert_true(http_put_head(&b, &h));
    parsed(&g, b.data);
    assert_true(http_text_same(g.target, h.target));
    assert_int_equal(g.minor, 0);
    assert_int_equal(g.count, 3);
    assert_int_equal(g.length, 7);
    assert_true(http_text_is(g.fields[0].name, "host"));
}

static void nothing_can_be_injected(void **state) {
    struct buf b DEFER(buf_done) = BUF(4096);
    (void)state;
    assert_false(http_put_field(&b, HTTP_TEXT("X"), HTTP_TEXT("a\r\nY: b")));
    assert_false(http_put_field(&b, HTTP_TEXT("X"), HTTP_TEXT("a\0")));
    assert_false(http_put_field(&b, HTTP_TEXT("X: y"), HTTP_TEXT("a")));
    assert_false(http_put_field(&b, HTTP_TEXT(""), HTTP_TEXT("a")));
    assert_false(http_put_request_line(&b, HTTP_TEXT("GET /"), HTTP_TEXT("/")));
    assert_false(http_put_request_line(&b, HTTP_TEXT("GET"), HTTP_TEXT("/ HTTP/1.1\r\nX:")));
    assert_false(http_put_request_line(&b, HTTP_TEXT("GET"), HTTP_TEXT("")));
    assert_false(http_put_status_line(&b, 99));
    assert_int_equal(b.len, 0);
}

static void a_full_buffer_is_left_as_it_was(void **state) {
    struct buf b DEFER(buf_done) = BUF(20);
    (void)state;
    assert_true(http_put_status_line(&b, 200));
    assert_false(http_put_field(&b, HTTP_TEXT("X"), HTTP_TEXT("abc")));
    assert_string_equal(b.data, "HTTP/1.1 200 OK\r\n");
}

static void every_status_has_a_line(void **state) {
    (void)state;
    for (int status = 100; status <= 599; status++) {
        struct buf b DEFER(buf_done) = BUF(64);
        struct http_parser p;
        struct http_head h;
        assert_true(http_put_status_line(&b, status) && http_put_end(&b));
        http_parse_begin(&p, HTTP_RESPONSE, &small, &h);
        assert_int_equal(http_parse(&p, b.data, b.len), 1);
        assert_int_equal(h.status, status);
    }
    assert_string_equal(http_status_name(404), "404 Not Found");
    assert_null(http_status_name(299));
}

static void chunk_lines_are_hexadecimal(void **state) {
    char line[HTTP_CHUNK_LINE_MAX];
    (void)state;
    assert_int_equal(http_chunk_line(line, 0), 3);
    assert_memory_equal(line, "0\r\n", 3);
    assert_int_equal(http_chunk_line(line, 8000), 6);
    assert_memory_equal(line, "1f40\r\n", 6);
    assert_int_equal(http_chunk_line(line, UINT64_MAX), 18);
}

#define CASE(f) cmocka_unit_test(f)
UNIT_MAIN(CASE(every_request_in_the_table_is_judged_alike_however_cut),
          CASE(every_response_in_the_table_is_judged_alike_however_cut),
          CASE(a_nul_is_refused_wherever_it_stands), CASE(a_target_is_taken_apart),
          CASE(fields_are_found_in_any_case), CASE(lists_are_read_over_all_fields),
          CASE(a_connection_is_kept_or_not), CASE(limits_are_exact),
          CASE(a_response_to_head_has_no_body),
          CASE(every_chunked_body_in_the_table_is_judged_alike_however_cut),
          CASE(what_a_body_throws_away_is_capped), CASE(a_sized_body_takes_no_more_than_its_own),
          CASE(what_is_written_parses_equal), CASE(nothing_can_be_injected),
          CASE(a_full_buffer_is_left_as_it_was), CASE(every_status_has_a_line),
          CASE(chunk_lines_are_hexadecimal))
