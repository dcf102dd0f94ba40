/* Heads of requests to exposed ports: every credential is found, and none is passed on. */
#include "tests/unit/unit.h"

#include "base/defer.h"
#include "gate/ingress.h"
#include "gate/ingress_head.h"

static void parse(const char *text, enum http_kind kind, struct http_head *ret) {
    struct http_parser p;
    http_parse_begin(&p, kind, &HTTP_LIMITS_DEFAULT, ret);
    if (http_parse(&p, text, strlen(text)) != 1)
        fail_msg("%s: %s", p.refusal.why, text);
}

#define HEAD(target, fields) "GET " target " HTTP/1.1\r\nHost: h\r\n" fields "\r\n"

static void every_credential_is_found_and_left_out(void **state) {
    static const struct {
        const char *text;
        size_t found;
        bool in_query;
        const char *target, *cookie; /* what is left */
    } rows[] = {
        {HEAD("/", ""), 0, false, "/", NULL},
        {HEAD("/?a=1&b", ""), 0, false, "/?a=1&b", NULL},
        {HEAD("/?", ""), 0, false, "/?", NULL},
        {HEAD("/?carrel_token=TOK", ""), 1, true, "/", NULL},
        {HEAD("/x?a=1&carrel_token=TOK&b=2", ""), 1, true, "/x?a=1&b=2", NULL},
        {HEAD("/x?carrel_token=TOK&carrel_token=TOK", ""), 2, true, "/x", NULL},
        {HEAD("/x?a=1&carrel_token=TOK&b=2&carrel_token=old", ""), 2, true, "/x?a=1&b=2", NULL},
        {HEAD("/?carrel%5Ftoken=TOK", ""), 1, true, "/", NULL},
        {HEAD("/?c%61rrel_token=TOK;x=1", ""), 1, true, "/?x=1", NULL},
        {HEAD("/?carrel_token", ""), 1, true, "/", NULL},
        {HEAD("/?carrel_tokens=1&xcarrel_token=2", ""), 0, false,
         "/?carrel_tokens=1&xcarrel_token=2", NULL},
        {HEAD("/", "Cookie: carrel_expose=TOK\r\n"), 1, false, "/", NULL},
        {HEAD("/", "Cookie: a=1; carrel_expose=TOK; b=2\r\n"), 1, false, "/", "a=1; b=2"},
        {HEAD("/", "Cookie: carrel_expose=old; carrel_expose=TOK\r\n"), 2, false, "/", NULL},
        {HEAD("/", "Cookie: carrel_expose=old;carrel_expose=TOK;a=1\r\n"), 2, false, "/", "a=1"},
        {HEAD("/", "Cookie: a=1;b=2\r\n"), 0, false, "/", "a=1;b=2"},
        {HEAD("/", "Cookie: a=1\r\nCookie: carrel_expose=TOK\r\n"), 1, false, "/", "a=1"},
        {HEAD("/", "Cookie: carrel_expose =TOK\r\n"), 1, false, "/", NULL},
        {HEAD("/", "Carrel-Token: TOK\r\ncarrel-token: old\r\n"), 2, false, "/", NULL},
        {HEAD("/", "e2b-traffic-access-token: TOK\r\nCarrel-Token: old\r\n"), 2, false, "/", NULL},
        {HEAD("/?carrel_token=TOK", "Cookie: carrel_expose=old\r\nCarrel-Token: x\r\n"), 3, true,
         "/", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct http_head h, back;
        struct ingress_tokens t;
        struct buf out DEFER(buf_done) = BUF(1 << 16);
        parse(rows[i].text, HTTP_REQUEST, &h);
        ingress_tokens_find(&h, &t);
        if (t.count != rows[i].found || t.in_query != rows[i].in_query)
            fail_msg("%zu found: %s", t.count, rows[i].text);
        assert_true(ingress_put_request(&h, &out));
        parse(out.data, HTTP_REQUEST, &back);
        assert_true(http_text_is(back.target, rows[i].target));
        struct http_text cookie = http_field_only(&back, "Cookie");
        if (rows[i].cookie ? !http_text_is(cookie, rows[i].cookie) : cookie.s != NULL)
            fail_msg("%s became %s", rows[i].text, out.data);
        if (rows[i].found && strstr(out.data, "TOK"))
            fail_msg("%s became %s", rows[i].text, out.data);
        assert_int_equal(http_field_count(&back, "Carrel-Token"), 0);
    }
}

static void a_key_is_known_by_its_form(void **state) {
#define HEX64 "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define LETTERS52 "abcdefghijklmnopqrstuvwxyz234567abcdefghijklmnopqrst"
    static const struct {
        const char *value;
        bool has;
    } rows[] = {
        {"", false},
        {"crl_", false},
        {"crl_" LETTERS52, true},
        {"Bearer crl_" LETTERS52, true},
        {"crl_crl_" LETTERS52 ", x", true},
        {"crl_1" LETTERS52, false},
        {"e2b_" HEX64, false},
        {"e2b_" HEX64 "0", true},
        {"e2b_" HEX64 "g", false},
        {"Bearer console-" HEX64, true},
        {"console-e2b_" HEX64 "f", true},
        {HEX64, false},
        {"Basic dXNlcjpwYXNz", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (ingress_has_key((struct http_text){rows[i].value, strlen(rows[i].value)}) !=
            rows[i].has)
            fail_msg("'%s'", rows[i].value);
}

static void too_many_are_noticed(void **state) {
    struct buf text DEFER(buf_done) = BUF(1 << 14);
    struct http_head h;
    struct ingress_tokens t;
    (void)state;
    assert_true(buf_addf(&text, "GET /?"));
    for (int i = 0; i <= INGRESS_TOKENS_MAX; i++)
        assert_true(buf_addf(&text, "carrel_token=%d&", i));
    assert_true(buf_addf(&text, "a HTTP/1.1\r\nHost: h\r\n\r\n"));
    parse(text.data, HTTP_REQUEST, &h);
    ingress_tokens_find(&h, &t);
    assert_int_equal(t.count, INGRESS_TOKENS_MAX);
    assert_int_equal(t.all, INGRESS_TOKENS_MAX + 1);
}

static void a_token_elsewhere_becomes_stars(void **state) {
    struct buf head DEFER(buf_done) = BUF(4096);
    (void)state;
    assert_true(buf_addf(&head, "Referer: http://h/?carrel_token=TOKEN&x\r\nX: TOKENTOKEN\r\n"));
    ingress_mask(&head, HTTP_TEXT("TOKEN"));
    assert_string_equal(head.data, "Referer: http://h/?carrel_token=*****&x\r\nX: **********\r\n");
    ingress_mask(&head, HTTP_TEXT(""));
}

static void a_websocket_is_opened_by_its_own_origin_only(void **state) {
    static const struct {
        const char *fields;
        bool ok;
    } rows[] = {
        {"", true},
        {"Origin: http://h\r\n", true},
        {"Origin: https://h\r\n", true},
        {"Origin: HTTP://H\r\n", true},
        {"Origin: http://evil\r\n", false},
        {"Origin: http://h.evil\r\n", false},
        {"Origin: http://h:81\r\n", false},
        {"Origin: null\r\n", false},
        {"Origin: \r\n", false},
        {"Origin: http://h\r\nOrigin: http://evil\r\n", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char text[256];
        struct http_head h;
        snprintf(text, sizeof(text), HEAD("/", "%s"), rows[i].fields);
        parse(text, HTTP_REQUEST, &h);
        if (ingress_origin_ok(&h) != rows[i].ok)
            fail_msg("%s", text);
    }
}

static void a_preview_opens_pages_and_other_sites_do_nothing_else(void **state) {
    static const struct {
        const char *method, *fields;
        bool in_frame, foreign;
    } rows[] = {
        {"GET", "", false, false},
        {"POST", "", false, false},
        {"GET",
         "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n",
         true, false},
        {"GET",
         "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n",
         false, false},
        {"POST",
         "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n",
         true, true},
        {"GET",
         "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n",
         false, true},
        {"GET", "Sec-Fetch-Site: cross-site\r\n", false, true},
        {"POST", "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: cors\r\n", false, true},
        {"POST", "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: navigate\r\n", false, true},
        {"GET", "Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: navigate\r\n", false, false},
        {"POST", "Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\n", false, false},
        {"POST", "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: cors\r\n", false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char text[512];
        struct http_head h;
        snprintf(text, sizeof(text), "%s / HTTP/1.1\r\nHost: h\r\n%s\r\n", rows[i].method,
                 rows[i].fields);
        parse(text, HTTP_REQUEST, &h);
        if (ingress_in_frame(&h) != rows[i].in_frame || ingress_foreign(&h) != rows[i].foreign)
            fail_msg("%s", text);
    }
}

static void the_origins_of_all_ports_have_one_name(void **state) {
    static const struct {
        const char *domain, *origins;
        bool tls;
        uint16_t listens;
    } rows[] = {
        {"", "http://*.localhost:7071", false, 7071},
        {"", "http://*.localhost", false, 80},
        {"boxes.example", "https://*.boxes.example", true, 443},
        {"boxes.example", "https://*.boxes.example:80", true, 80},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct buf out DEFER(buf_done) = BUF(256);
        assert_true(ingress_origins_put(&out, rows[i].domain, rows[i].tls, rows[i].listens));
        assert_string_equal(out.data, rows[i].origins);
    }
}

static void an_answer_is_the_last_of_its_connection(void **state) {
    static const char text[] = "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: "
                               "timeout=9\r\nContent-Length: 1\r\n\r\n";
    struct http_head h;
    struct buf out DEFER(buf_done) = BUF(4096);
    (void)state;
    parse(text, HTTP_RESPONSE, &h);
    assert_true(ingress_put_answer(&h, &out));
    assert_string_equal(out.data,
                        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n");
}

static void a_name_leads_to_a_port_of_a_machine(void **state) {
    static const struct {
        const char *host;
        bool here, below; /* without a domain, and with example.com */
        uint16_t port;
    } rows[] = {
        {"8000-m-aaaaaaaaaaaa.localhost", true, true, 8000},
        {"8000-m-aaaaaaaaaaaa.localhost:7071", true, true, 8000},
        {"8000-maaaaaaaaaaaa.localhost", true, true, 8000},
        {"8000-MAAAAAAAAAAAA.LocalHost", true, true, 8000},
        {"maaaaaaaaaaaa.localhost", true, true, 0},
        {"m-aaaaaaaaaaaa.localhost", true, true, 0},
        {"8000-maaaaaaaaaaaa.example.com", false, true, 8000},
        {"8000-m-aaaaaaaaaaaa.EXAMPLE.com:80", false, true, 8000},
        {"maaaaaaaaaaaa.example.com", false, true, 0},
        {"example.com", false, false, 0},
        {".example.com", false, false, 0},
        {"localhost", false, false, 0},
        {"", false, false, 0},
        {"8000-maaaaaaaaaaaa.example.org", false, false, 0},
        {"8000-maaaaaaaaaaaaexample.com", false, false, 0},
        {"8000-maaaaaaaaaaaa.example.com.evil.org", false, false, 0},
        {"8000-maaaaaaaaaaaa.evil.example.com", false, false, 0},
        {"x.8000-maaaaaaaaaaaa.example.com", false, false, 0},
        {"8000-maaaaaaaaaaaa.example.com.", false, false, 0},
        {"0-maaaaaaaaaaaa.localhost", false, false, 0},
        {"08000-maaaaaaaaaaaa.localhost", false, false, 0},
        {"65536-maaaaaaaaaaaa.localhost", false, false, 0},
        {"-1-maaaaaaaaaaaa.localhost", false, false, 0},
        {"+1-maaaaaaaaaaaa.localhost", false, false, 0},
        {"8000-maaaaaaaaaaa.localhost", false, false, 0},
        {"8000-xaaaaaaaaaaaa.localhost", false, false, 0},
        {"8000-8000-maaaaaaaaaaaa.localhost", false, false, 0},
        {"8000-.localhost", false, false, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct http_text host = {rows[i].host, strlen(rows[i].host)};
        struct ingress_door door;
        if (ingress_door_read(host, "", &door) != rows[i].here)
            fail_msg("%s", rows[i].host);
        if (ingress_door_read(host, "example.com", &door) != rows[i].below)
            fail_msg("below the domain: %s", rows[i].host);
        if (!rows[i].below)
            continue;
        assert_string_equal(door.machine, "m-aaaaaaaaaaaa");
        assert_int_equal(door.port, rows[i].port);
    }
}

static void an_address_is_no_name(void **state) {
    static const char *const addresses[] = {"127.0.0.1", "127.0.0.1:7071", "localhost",
                                            "LocalHost:7071", "192.0.2.1:80"};
    static const char *const names[] = {"",
                                        ":7071",
                                        "127.1",
                                        "0x7f000001",
                                        "2130706433",
                                        "127.0.0.1.example.com",
                                        "localhost.example.com",
                                        ".localhost",
                                        "8000-maaaaaaaaaaaa.localhost",
                                        "[::1]",
                                        "127.0.0.1 "};
    (void)state;
    for (size_t i = 0; i < sizeof(addresses) / sizeof(*addresses); i++)
        if (!ingress_host_is_address((struct http_text){addresses[i], strlen(addresses[i])}))
            fail_msg("%s", addresses[i]);
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (ingress_host_is_address((struct http_text){names[i], strlen(names[i])}))
            fail_msg("%s", names[i]);
}

static void the_domain_has_the_port_of_an_unusual_listener(void **state) {
    static const struct {
        const char *domain;
        bool tls;
        uint16_t port;
        const char *text;
    } rows[] = {
        {"", false, 7071, "localhost:7071"},
        {"example.com", false, 80, "example.com"},
        {"example.com", true, 443, "example.com"},
        {"example.com", true, 80, "example.com:80"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct buf out DEFER(buf_done) = BUF(128);
        assert_true(ingress_domain_put(&out, rows[i].domain, rows[i].tls, rows[i].port));
        assert_string_equal(out.data, rows[i].text);
    }
}

/* Called for connections only. */
static const struct ingress_hooks no_hooks = {NULL, NULL, NULL, NULL, NULL};

static void a_taken_default_port_is_replaced_and_a_named_one_is_not(void **state) {
    static const struct ingress_config config = {.domain = "", .certificate = "", .key = ""};
    struct loop *loop = loop_new(NULL);
    struct ingress *first = ingress_new(loop, &no_hooks, NULL, &config);
    struct ingress *second = ingress_new(loop, &no_hooks, NULL, &config);
    struct ingress *third = ingress_new(loop, &no_hooks, NULL, &config);
    struct err err = {0};
    char named[32];
    (void)state;
    assert_int_equal(ingress_listen(first, "", &err), 0);
    assert_int_equal(ingress_listen(second, "", &err), 0);
    assert_true(ingress_port(first) >= 7071 && ingress_port(second) >= 7071);
    assert_int_not_equal(ingress_port(second), ingress_port(first));
    snprintf(named, sizeof(named), "127.0.0.1:%u", ingress_port(first));
    assert_int_equal(ingress_listen(third, named, &err), -1);
    assert_non_null(strstr(err.text, named));
    assert_non_null(strstr(err.remedy, "[gate] ingress"));
    ingress_free(first);
    ingress_free(second);
    ingress_free(third);
    loop_freep(&loop);
}

UNIT_MAIN(cmocka_unit_test(every_credential_is_found_and_left_out),
          cmocka_unit_test(a_key_is_known_by_its_form), cmocka_unit_test(too_many_are_noticed),
          cmocka_unit_test(a_token_elsewhere_becomes_stars),
          cmocka_unit_test(a_websocket_is_opened_by_its_own_origin_only),
          cmocka_unit_test(a_preview_opens_pages_and_other_sites_do_nothing_else),
          cmocka_unit_test(the_origins_of_all_ports_have_one_name),
          cmocka_unit_test(an_answer_is_the_last_of_its_connection),
          cmocka_unit_test(the_domain_has_the_port_of_an_unusual_listener),
          cmocka_unit_test(a_name_leads_to_a_port_of_a_machine),
          cmocka_unit_test(an_address_is_no_name),
          cmocka_unit_test(a_taken_default_port_is_replaced_and_a_named_one_is_not))
