/* Requests that ask for another method or path than their first line says. */
#include "tests/unit/unit.h"

#include "gate/override.h"
#include "gate/path.h"

static void parse(const char *text, struct http_head *ret) {
    struct http_parser p;
    http_parse_begin(&p, HTTP_REQUEST, &HTTP_LIMITS_DEFAULT, ret);
    assert_int_equal(http_parse(&p, text, strlen(text)), 1);
}

#define HEAD(target, field) "POST " target " HTTP/1.1\r\nHost: a\r\n" field "\r\n"

#define FORM "Content-Type: application/x-www-form-urlencoded; charset=utf-8\r\n"
#define PARTS "Content-Type: multipart/form-data; boundary=x\r\n"
#define JSON "Content-Type: application/problem+json\r\n"
#define ODD "Content-Type: application/x-www-form-urlencoded; charset="

static void a_head_that_overrides_is_refused_where_a_rule_cares(void **state) {
    static const struct {
        const char *text;
        bool methods, paths; /* which care refuses it */
    } rows[] = {
        {HEAD("/", ""), false, false},
        {HEAD("/", "X-HTTP-Method-Override: DELETE\r\n"), true, false},
        {HEAD("/", "x-http-method: DELETE\r\n"), true, false},
        {HEAD("/", "X-Method-Override: PUT\r\n"), true, false},
        {HEAD("/", "X_HTTP_Method_Override: PUT\r\n"), true, false},
        {HEAD("/", "X-Original-URL: /admin\r\n"), false, true},
        {HEAD("/", "X-Rewrite-URL: /admin\r\n"), false, true},
        {HEAD("/", "X-Forwarded-Prefix: /admin\r\n"), false, true},
        {HEAD("/", "X-Forwarded-Path: /admin\r\n"), false, true},
        {HEAD("/", "X-Forwarded-For: 1.2.3.4\r\n"), false, false},
        {HEAD("/", "X-HTTP-Methods: a\r\n"), false, false},
        {HEAD("/", FORM "Content-Encoding: gzip\r\n"), true, false},
        {HEAD("/", PARTS "Content_Encoding: br\r\n"), true, false},
        {HEAD("/", FORM "Content-Encoding: identity\r\n"), false, false},
        {HEAD("/", JSON "Content-Encoding: gzip\r\n"), false, false},
        {HEAD("/", ODD "ibm037\r\n"), true, false},
        {HEAD("/", ODD "\"utf-16\"\r\n"), true, false},
        {HEAD("/", ODD "utf-16; x=utf-8\r\n"), true, false},
        {HEAD("/", ODD "utf-8; charset=utf-7\r\n"), true, false},
        {HEAD("/", ODD "\"UTF-8\"; a=b\r\n"), false, false},
        {HEAD("/", "Content-Type: text/plain; charset=utf-16\r\n"), false, false},
        {HEAD("/?_method=DELETE", ""), true, false},
        {HEAD("/?a=1&_method=DELETE", ""), true, false},
        {HEAD("/?a=1;_method=DELETE", ""), true, false},
        {HEAD("/?%5fmethod=DELETE", ""), true, false},
        {HEAD("/?_m%65thod=DELETE", ""), true, false},
        {HEAD("/?%&_method=DELETE", ""), true, false},
        {HEAD("/?%4&_method=DELETE", ""), true, false},
        {HEAD("/?.method=DELETE", ""), true, false},
        {HEAD("/?+_method=DELETE", ""), true, false},
        {HEAD("/?_method", ""), true, false},
        {HEAD("/?_METHOD=DELETE", ""), true, false},
        {HEAD("/?%5FM%45thod=DELETE", ""), true, false},
        {HEAD("/?_method[]=PUT", ""), true, false},
        {HEAD("/?_methods=1", ""), false, false},
        {HEAD("/?a=_method", ""), false, false},
        {HEAD("/?a=_method&b=1", ""), false, false},
        {HEAD("/?x_method=1", ""), false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct http_head h;
        parse(rows[i].text, &h);
        for (int care = 0; care < 4; care++) {
            struct policy_care c = {.methods = care & 1, .paths = care & 2};
            bool refused = override_in_head(&h, c) != NULL;
            if (refused != ((rows[i].methods && c.methods) || (rows[i].paths && c.paths)))
                fail_msg("care %d, refused %d: %s", care, refused, rows[i].text);
        }
    }
}

static bool feed(const struct http_head *h, bool methods, const char *body, size_t cut) {
    struct override_scan s;
    override_begin(&s, h, (struct policy_care){.methods = methods});
    for (size_t at = 0, n = strlen(body); at < n; at += cut)
        if (override_feed(&s, body + at, n - at < cut ? n - at : cut))
            return true;
    return false;
}

static void a_form_that_overrides_is_found_however_it_is_cut(void **state) {
    static const struct {
        const char *head, *body;
        bool found;
    } rows[] = {
        {HEAD("/", FORM), "a=1&_method=PUT", true},
        {HEAD("/", FORM), "%5Fmethod=PUT", true},
        {HEAD("/", FORM), "a=1&_Method=PUT", true},
        {HEAD("/", FORM), "a=%&_method=PUT", true},
        {HEAD("/", FORM), "a=_method&b=2", false},
        {HEAD("/", FORM), "methods=1&my_method=2", false},
        {HEAD("/", PARTS), "--x\r\nContent-Disposition: form-data; name=\"_method\"\r\n\r\nPUT",
         true},
        {HEAD("/", PARTS), "--x\r\nContent-Disposition: form-data; name=_METHOD\r\n\r\nPUT", true},
        {HEAD("/", PARTS), "--x\r\nContent-Disposition: form-data; name=\"a\"; x='_method'\r\n",
         true},
        {HEAD("/", PARTS), "--x\r\nContent-Disposition: form-data; name=\"_methods\"\r\n", false},
        {HEAD("/", PARTS), "--x\r\nContent-Disposition: form-data; name=\"my_method\"\r\n", false},
        {HEAD("/", PARTS), "--x\r\n\r\ndef class_method(self, _method, __method)\r\n", false},
        {HEAD("/", PARTS), "--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1", false},
        {HEAD("/", "Content-Type: application/json\r\n"), "{\"a\":\"&_method=PUT\"}", false},
        {HEAD("/", FORM PARTS), "_method=PUT", true},
        {HEAD("/", PARTS FORM), "_method=PUT", true},
        {HEAD("/", FORM PARTS), "--x\r\nContent-Disposition: form-data; name=\"_method\"\r\n",
         true},
        {HEAD("/", "Content_Type: application/x-www-form-urlencoded\r\n"), "_method=PUT", true},
        {HEAD("/", "Content-Type: text/x, application/x-www-form-urlencoded\r\n"), "_method=PUT",
         true},
        {HEAD("/", JSON), "{\"_method\":\"PUT\"}", true},
        {HEAD("/", JSON), "{\"a\\\"\":1,\"_METHOD\" \n: \"PUT\"}", true},
        {HEAD("/", JSON), "{\"a\":{\"\\u005fmethod\":\"PUT\"}}", true},
        {HEAD("/", JSON), "{\"_m\\u0065thod\":\"PUT\"}", true},
        {HEAD("/", JSON), "{\"\\u015fmethod\":\"PUT\"}", false},
        {HEAD("/", JSON), "{\"a\":\"_method\",\"b\":[\"_method\"]}", false},
        {HEAD("/", JSON), "{\"a\":\"say \\\"_method\\\": no\"}", false},
        {HEAD("/", JSON), "{\"_methods\":1,\"my_method\":2,\"_metho\":3,\"\":4}", false},
        {HEAD("/", ""), "_method=PUT", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct http_head h;
        parse(rows[i].head, &h);
        for (size_t cut = 1; cut <= strlen(rows[i].body); cut++) {
            if (feed(&h, true, rows[i].body, cut) != rows[i].found)
                fail_msg("cut by %zu: %s", cut, rows[i].body);
            assert_false(feed(&h, false, rows[i].body, cut));
        }
    }
}

static void paths_that_two_readers_take_apart_differently(void **state) {
    static const struct {
        const char *path;
        bool plain;
    } rows[] = {
        {"/", true},
        {"/v1/x", true},
        {"/v1/x/", true},
        {"/v1/...", true},
        {"/v1/.a", true},
        {"/v1/a;b=1", true},
        {"/v1/a%20b", true},
        {"/v1/a%23b", true},
        {"/v1/\xc3\xa9", true},
        {"/v1/%c3%a9", true},
        {"/v1/%e2%82%ac", true},
        {"/v1/%f0%9f%98%80", true},
        {"v1", false},
        {"", false},
        {"/v1//x", false},
        {"/v1/.", false},
        {"/v1/./x", false},
        {"/v1/..", false},
        {"/v1/../x", false},
        {"/v1/..;/x", false},
        {"/v1/..;a=b/x", false},
        {"/v1/.;/x", false},
        {"/v1/..%3b/x", false},
        {"/v1/..%3B/x", false},
        {"/v1/;/x", false},
        {"/v1/;a/x", false},
        {"/v1/%2e%2e/x", false},
        {"/v1/%2E/x", false},
        {"/v1/.%2e/x", false},
        {"/v1/a%2fb", false},
        {"/v1/a%2Fb", false},
        {"/v1/a%5cb", false},
        {"/v1/a\\b", false},
        {"/v1/%252e%252e/x", false},
        {"/v1/%25", false},
        {"/v1/%", false},
        {"/v1/%2", false},
        {"/v1/%zz", false},
        {"/v1/%u002e", false},
        {"/v1/%00", false},
        {"/v1/%0a", false},
        {"/v1/%7f", false},
        {"/v1/a b", false},
        {"/v1/a#b", false},
        {"/v1/%c0%ae%c0%ae/x", false},
        {"/v1/\xc0\xae\xc0\xae/x", false},
        {"/v1/%c0%af", false},
        {"/v1/%c1%9c", false},
        {"/v1/%e0%80%ae", false},
        {"/v1/%f0%80%80%ae", false},
        {"/v1/%f8%80%80%80%ae", false},
        {"/v1/%ed%a0%80", false},
        {"/v1/%f4%90%80%80", false},
        {"/v1/%ae", false},
        {"/v1/%e9", false},
        {"/v1/%c3", false},
        {"/v1/%c3/x", false},
        {"/v1/%ef%bc%8e%ef%bc%8e/x", false},
        {"/v1/%ef%bc%8fx", false},
        {"/v1/%e2%88%95x", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (path_is_plain(rows[i].path) != rows[i].plain)
            fail_msg("'%s' is %s", rows[i].path, rows[i].plain ? "plain" : "not plain");
}

UNIT_MAIN(cmocka_unit_test(a_head_that_overrides_is_refused_where_a_rule_cares),
          cmocka_unit_test(a_form_that_overrides_is_found_however_it_is_cut),
          cmocka_unit_test(paths_that_two_readers_take_apart_differently))
