#include "tests/unit/unit.h"

#include <jansson.h>

#include "base/defer.h"
#include "gate/refusal.h"

static struct refusal plain(void) {
    return (struct refusal){.machine = "m-1",
                            .host = "api.example.com",
                            .port = 443,
                            .knows_protocol = true,
                            .protocol = PROTOCOL_TLS,
                            .rule = 7,
                            .why = "no rule allows the request",
                            .remedy = REMEDY_ALLOW};
}

/* ---- remedies ---- */

static void each_cause_has_its_own_remedy(void **state) {
    (void)state;
    static const struct {
        enum remedy remedy;
        const char *ends;
    } rows[] = {
        {REMEDY_NONE, ""},
        {REMEDY_ALLOW, "can allow this host: carrel net m-1 allow api.example.com"},
        {REMEDY_RULE, ": carrel net m-1 rm 7"},
        {REMEDY_CONF,
         "[e2b] of carrel.conf denies it, but the owner of this machine can allow this "
         "host: carrel net m-1 allow api.example.com"},
        {REMEDY_LOCAL, ": carrel net m-1 allow --local api.example.com"},
        {REMEDY_TAINT, ": carrel net m-1 allow --tainted api.example.com"},
        {REMEDY_APPROVE, ": carrel pending"},
        {REMEDY_RETRY, "and the program can then send it again: carrel pending"},
        {REMEDY_SECRET_HOST, ": carrel grant add m-1 --secret NAME@api.example.com"},
        {REMEDY_SECRET_PLACE, ": carrel grants m-1"},
        {REMEDY_SECRET_TLS, "use https:// for requests with a secret"},
        {REMEDY_SECRET_LOST, ": carrel secret set NAME"},
    };
    assert_int_equal(sizeof(rows) / sizeof(*rows), REMEDIES);
    for (size_t i = 0; i < REMEDIES; i++) {
        struct refusal r = plain();
        char text[REMEDY_SIZE];
        r.remedy = rows[i].remedy;
        refusal_remedy(&r, text);
        size_t n = strlen(rows[i].ends);
        assert_true(strlen(text) >= n);
        assert_string_equal(text + strlen(text) - n, rows[i].ends);
        assert_int_equal(!*text, rows[i].remedy == REMEDY_NONE);
    }
}

static void a_remedy_names_a_target_that_a_rule_accepts(void **state) {
    (void)state;
    static const struct {
        const char *host;
        uint16_t port;
        bool knows;
        enum policy_protocol protocol;
        const char *target;
    } rows[] = {
        {"a.example", 80, true, PROTOCOL_HTTP, "a.example"},
        {"a.example", 8080, true, PROTOCOL_HTTP, "a.example:8080"},
        {"a.example", 443, true, PROTOCOL_HTTP, "a.example:443"},
        {"a.example", 443, true, PROTOCOL_TLS, "a.example"},
        {"a.example", 5432, true, PROTOCOL_TCP, "tcp://a.example:5432"},
        {"a.example", 443, false, PROTOCOL_WEB, "tcp://a.example:443"},
        {"2001:db8::1", 80, true, PROTOCOL_HTTP, "[2001:db8::1]"},
        {"2001:db8::1", 99, true, PROTOCOL_TCP, "tcp://[2001:db8::1]:99"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct refusal r = plain();
        struct policy_rule rule = {.action = POLICY_ALLOW};
        char text[REMEDY_SIZE];
        r.host = rows[i].host;
        r.port = rows[i].port;
        r.knows_protocol = rows[i].knows;
        r.protocol = rows[i].protocol;
        refusal_remedy(&r, text);
        const char *target = strrchr(text, ' ') + 1;
        assert_string_equal(target, rows[i].target);
        assert_int_equal(policy_target_read(target, &rule, NULL), 0);
        assert_string_equal(rule.host, rows[i].host);
    }
}

static void the_longest_names_fit(void **state) {
    (void)state;
    char host[NAME_SIZE], machine[65], text[REMEDY_SIZE];
    memset(host, 'h', sizeof(host) - 1);
    memset(machine, 'm', sizeof(machine) - 1);
    host[sizeof(host) - 1] = machine[sizeof(machine) - 1] = '\0';
    for (int remedy = 0; remedy < REMEDIES; remedy++) {
        struct buf out DEFER(buf_done) = BUF(16384);
        struct refusal r = plain();
        r.host = host;
        r.machine = machine;
        r.port = 65535;
        r.protocol = PROTOCOL_TCP;
        r.rule = UINT64_MAX;
        r.remedy = (enum remedy)remedy;
        refusal_remedy(&r, text);
        assert_true(refusal_put(&r, &out));
    }
}

static void a_denial_of_the_policy_has_the_remedy_of_its_cause(void **state) {
    (void)state;
    struct policy_rule denies = {.action = POLICY_DENY}, allows = {.action = POLICY_ALLOW};
    struct policy_rule conf = {.action = POLICY_DENY, .from = "conf"};
    struct policy_rule client = {.action = POLICY_DENY, .from = "client"};
    assert_int_equal(remedy_of(&(struct policy_answer){.rule = NULL}), REMEDY_ALLOW);
    assert_int_equal(remedy_of(&(struct policy_answer){.rule = &denies}), REMEDY_RULE);
    assert_int_equal(remedy_of(&(struct policy_answer){.rule = &allows}), REMEDY_NONE);
    assert_int_equal(remedy_of(&(struct policy_answer){.rule = &conf}), REMEDY_CONF);
    assert_int_equal(remedy_of(&(struct policy_answer){.rule = &client}), REMEDY_RULE);
    assert_int_equal(remedy_of(&(struct policy_answer){.rule = &allows, .by_taint = true}),
                     REMEDY_TAINT);
}

/* ---- the answer ---- */

static const char *line_of(const struct buf *out) {
    static char line[512];
    snprintf(line, sizeof(line), "%.*s", (int)strcspn(out->data, "\r"), out->data);
    return line;
}

static const char *body_of(const struct buf *out) {
    return strstr(out->data, "\r\n\r\n") + 4;
}

static void the_reason_phrase_has_cause_and_remedy(void **state) {
    (void)state;
    struct buf out DEFER(buf_done) = BUF(16384);
    struct refusal r = plain();
    assert_true(refusal_put(&r, &out));
    assert_string_equal(line_of(&out),
                        "HTTP/1.1 403 Forbidden: no rule allows the request; the owner of this "
                        "machine can allow this host: carrel net m-1 allow api.example.com");
    assert_string_equal(body_of(&out),
                        "machine 'm-1' may not reach 'api.example.com:443': no rule allows the "
                        "request; the owner of this machine can allow this host: carrel net m-1 "
                        "allow api.example.com\n");
    assert_non_null(strstr(out.data, "\r\nContent-Type: text/plain; charset=utf-8\r\n"));
}

static void a_remedy_that_does_not_fit_into_the_phrase_is_left_out_whole(void **state) {
    (void)state;
    struct buf out DEFER(buf_done) = BUF(16384);
    struct refusal r = plain();
    char host[NAME_SIZE];
    memset(host, 'h', sizeof(host) - 1);
    host[sizeof(host) - 1] = '\0';
    r.host = host;
    assert_true(refusal_put(&r, &out));
    assert_string_equal(line_of(&out), "HTTP/1.1 403 Forbidden: no rule allows the request");
    assert_non_null(strstr(body_of(&out), "; the owner of this machine can allow this host"));
}

static void a_phrase_cannot_end_the_line(void **state) {
    (void)state;
    struct buf out DEFER(buf_done) = BUF(16384);
    assert_true(refusal_put_status(502, "a\r\nSet-Cookie: x\x7f\xc3\xa4\tz", &out));
    assert_string_equal(out.data, "HTTP/1.1 502 Bad Gateway: a??Set-Cookie: x????z\r\n");
}

static void a_json_body_has_the_error_as_a_text(void **state) {
    (void)state;
    struct buf out DEFER(buf_done) = BUF(16384);
    struct refusal r = plain();
    r.wants_json = true;
    r.timed_out = true;
    assert_true(refusal_put(&r, &out));
    assert_non_null(strstr(out.data, "\r\nContent-Type: application/json\r\n"));
    assert_non_null(strstr(out.data, "\r\nCarrel-Gate: timeout\r\n"));
    json_t *body = json_loads(body_of(&out), 0, NULL);
    assert_true(json_is_string(json_object_get(body, "error")));
    const char *error = json_string_value(json_object_get(body, "error"));
    assert_non_null(strstr(error, ": no rule allows the request; the owner"));
    assert_string_equal(json_string_value(json_object_get(body, "code")), "timeout");
    assert_string_equal(json_string_value(json_object_get(body, "cause")), r.why);
    assert_non_null(json_object_get(body, "remedy"));
    json_decref(body);
}

static void an_answer_to_head_has_no_body(void **state) {
    (void)state;
    struct buf out DEFER(buf_done) = BUF(16384);
    struct refusal r = plain();
    r.no_body = true;
    assert_true(refusal_put(&r, &out));
    assert_string_equal(body_of(&out), "");
}

static void json_is_sent_to_clients_that_name_it(void **state) {
    (void)state;
    static const struct {
        const char *accept;
        bool json;
    } rows[] = {
        {"", false},
        {"*/*", false},
        {"text/html, */*;q=0.1", false},
        {"application/json", true},
        {"text/html, APPLICATION/JSON ; q=0.5", true},
        {"application/vnd.npm.install-v1+json; q=1.0, application/json; q=0.8, */*", true},
        {"application/vnd.pypi.simple.v1+json", true},
        {"json", false},
        {"application/xjson", false},
        {"application/jsonx", false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct http_field field = {.name = HTTP_TEXT("accept"),
                                   .value = {rows[i].accept, strlen(rows[i].accept)}};
        struct http_head h = {.count = 1};
        h.fields[0] = field;
        assert_int_equal(refusal_wants_json(&h), rows[i].json);
    }
}

UNIT_MAIN(cmocka_unit_test(each_cause_has_its_own_remedy),
          cmocka_unit_test(a_remedy_names_a_target_that_a_rule_accepts),
          cmocka_unit_test(the_longest_names_fit),
          cmocka_unit_test(a_denial_of_the_policy_has_the_remedy_of_its_cause),
          cmocka_unit_test(the_reason_phrase_has_cause_and_remedy),
          cmocka_unit_test(a_remedy_that_does_not_fit_into_the_phrase_is_left_out_whole),
          cmocka_unit_test(a_phrase_cannot_end_the_line),
          cmocka_unit_test(a_json_body_has_the_error_as_a_text),
          cmocka_unit_test(an_answer_to_head_has_no_body),
          cmocka_unit_test(json_is_sent_to_clients_that_name_it))
