#include "tests/unit/unit.h"

#include <arpa/inet.h>

#include "base/defer.h"
#include "gate/policy.h"

static struct err err;

static struct policy_rule rule(enum policy_action action, const char *target) {
    struct policy_rule r = {.action = action};
    if (policy_target_read(target, &r, &err) < 0)
        fail_msg("%s", err.text);
    return r;
}

static void add(struct policy *p, enum policy_action action, const char *target) {
    struct policy_rule r = rule(action, target);
    assert_int_equal(policy_add(p, &r, &err), 0);
}

static void a_target_is_written_as_it_was_read(void **state) {
    (void)state;
    static const char *const texts[] = {"example.com",
                                        "*.example.com",
                                        "*",
                                        "https://a.b",
                                        "http://a.b:8080/v1/x",
                                        "tcp://db.example:5432",
                                        "https://a.b:8443/v1",
                                        "a.b:8080",
                                        "tcp://10.1.2.3:22",
                                        "https://[2001:db8::1]:444",
                                        "tcp://*:22",
                                        "https://*.a.b/x/",
                                        "10.1.2.0/24",
                                        "10.0.0.0/8:8080",
                                        "tcp://10.1.2.4/30:5432",
                                        "http://10.0.0.0/8"}; /* a path */
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        char text[POLICY_TARGET_SIZE];
        struct policy_rule r = rule(POLICY_ALLOW, texts[i]);
        policy_target_write(&r, text);
        assert_string_equal(text, texts[i]);
    }
}

static void a_bad_target_is_refused(void **state) {
    (void)state;
    static const char *const texts[] = {"",
                                        "a b",
                                        "tcp://db",
                                        "a.b/path",
                                        "tcp://a.b:1/x",
                                        "a.b:0",
                                        "a.b:65536",
                                        "a.b:x",
                                        "a.b:",
                                        "*a.b",
                                        "a.*.b",
                                        "https://",
                                        "ftp://a.b",
                                        "https://a/../x",
                                        "https://a/%2e",
                                        "https://a/x?y",
                                        "127.1",
                                        "https://[::1",
                                        "a\nb",
                                        "https://a//b",
                                        "a.b:80:80",
                                        "10.0.0.0/0",
                                        "10.0.0.0/33",
                                        "10.0.0.0/",
                                        "10.0.0.0/8/8",
                                        "10.0.0.0/008",
                                        "10.0.0.0/8x",
                                        "10.0.0.0/-1",
                                        "10.1/16",
                                        "tcp://10.0.0.0/8",
                                        "[fd00::]/8"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        struct policy_rule r = {.id = 7};
        if (policy_target_read(texts[i], &r, &err) == 0)
            fail_msg("'%s' was taken", texts[i]);
        assert_int_equal(err.code, ERR_INVALID);
        assert_int_equal(r.id, 7);
    }
}

static struct policy_answer ask(const struct policy *p, const char *host, uint16_t port,
                                int protocol, const char *method, const char *path) {
    struct policy_query q = {.host = host,
                             .port = port,
                             .knows_protocol = protocol >= 0,
                             .protocol =
                                 protocol < 0 ? PROTOCOL_WEB : (enum policy_protocol)protocol,
                             .method = method,
                             .path = path,
                             .now_ms = 1000};
    return policy_decide(p, &q);
}

#define IS(answer, verdict) \
    assert_true((answer).want == POLICY_KNOWN && (answer).action == (verdict))

static void nothing_is_allowed_by_itself(void **state) {
    (void)state;
    struct policy p = {.count = 0};
    struct policy_answer a = ask(&p, "example.com", 443, -1, NULL, NULL);
    IS(a, POLICY_DENY);
    assert_null(a.rule);
    assert_string_equal(a.why, "no rule allows the request");
}

static void a_name_alone_is_the_web_there(void **state) {
    (void)state;
    struct policy p DEFER(policy_done) = {.count = 0};
    add(&p, POLICY_ALLOW, "example.com");
    assert_int_equal(ask(&p, "example.com", 443, -1, NULL, NULL).want, POLICY_WANTS_PROTOCOL);
    IS(ask(&p, "example.com", 443, PROTOCOL_TLS, NULL, NULL), POLICY_ALLOW);
    IS(ask(&p, "example.com", 80, PROTOCOL_HTTP, NULL, NULL), POLICY_ALLOW);
    IS(ask(&p, "example.com", 443, PROTOCOL_HTTP, NULL, NULL), POLICY_DENY);
    IS(ask(&p, "example.com", 80, PROTOCOL_TLS, NULL, NULL), POLICY_DENY);
    IS(ask(&p, "example.com", 443, PROTOCOL_TCP, NULL, NULL), POLICY_DENY);
    IS(ask(&p, "example.com", 22, -1, NULL, NULL), POLICY_DENY);
    IS(ask(&p, "a.example.com", 443, -1, NULL, NULL), POLICY_DENY);
    IS(ask(&p, "example.com.evil", 443, -1, NULL, NULL), POLICY_DENY);
}

static void tcp_needs_no_first_byte(void **state) {
    (void)state;
    struct policy p DEFER(policy_done) = {.count = 0};
    add(&p, POLICY_ALLOW, "tcp://git.example:22");
    IS(ask(&p, "git.example", 22, -1, NULL, NULL), POLICY_ALLOW);
    IS(ask(&p, "git.example", 22, PROTOCOL_TLS, NULL, NULL), POLICY_ALLOW);
    IS(ask(&p, "git.example", 23, -1, NULL, NULL), POLICY_DENY);
}

static void the_newest_rule_decides(void **state) {
    (void)state;
    struct policy p DEFER(policy_done) = {.count = 0};
    add(&p, POLICY_ALLOW, "*.example.com");
    add(&p, POLICY_DENY, "bad.example.com");
    add(&p, POLICY_ASK, "maybe.example.com");
    IS(ask(&p, "bad.example.com", 443, PROTOCOL_TLS, NULL, NULL), POLICY_DENY);
    IS(ask(&p, "maybe.example.com", 443, PROTOCOL_TLS, NULL, NULL), POLICY_ASK);
    IS(ask(&p, "ok.example.com", 443, PROTOCOL_TLS, NULL, NULL), POLICY_ALLOW);
    add(&p, POLICY_ALLOW, "bad.example.com");
    IS(ask(&p, "bad.example.com", 443, PROTOCOL_TLS, NULL, NULL), POLICY_ALLOW);
    assert_int_equal(p.count, 3); /* it took the place of the older one */
    assert_int_equal(p.rules[2].id, 4);
    assert_int_equal(policy_remove(&p, 4, &err), 0);
    assert_int_equal(policy_remove(&p, 4, &err), -1);
    IS(ask(&p, "bad.example.com", 443, PROTOCOL_TLS, NULL, NULL), POLICY_ALLOW);
}

static void a_range_is_written_with_its_first_address(void **state) {
    (void)state;
    char text[POLICY_TARGET_SIZE];
    struct policy_rule r = rule(POLICY_ALLOW, "10.1.2.200/24:99");
    policy_target_write(&r, text);
    assert_string_equal(text, "10.1.2.0/24:99");
    r = rule(POLICY_ALLOW, "10.1.2.200/32");
    policy_target_write(&r, text);
    assert_string_equal(text, "10.1.2.200");
    assert_int_equal(r.host_kind, HOST_EXACT);
}

static void a_range_has_addresses_and_no_names(void **state) {
    (void)state;
    static const struct {
        const char *host;
        enum policy_action action;
    } rows[] = {
        {"10.1.2.0", POLICY_ALLOW},         {"10.1.3.255", POLICY_ALLOW},
        {"10.1.4.0", POLICY_DENY},          {"10.1.1.255", POLICY_DENY},
        {"::ffff:10.1.2.3", POLICY_DENY},   {"10.1.2.3.example", POLICY_DENY},
        {"64:ff9b::10.1.2.3", POLICY_DENY}, {"a.example", POLICY_DENY},
        {"110.1.2.3", POLICY_DENY},         {"10.1.2", POLICY_DENY},
    };
    struct policy p DEFER(policy_done) = {.count = 0};
    add(&p, POLICY_ALLOW, "10.1.2.0/23");
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (ask(&p, rows[i].host, 443, PROTOCOL_TLS, NULL, NULL).action != rows[i].action)
            fail_msg("%s", rows[i].host);
    IS(ask(&p, "10.1.2.0", 22, PROTOCOL_TCP, NULL, NULL), POLICY_DENY);
}

static void a_denied_address_is_denied_by_name_too(void **state) {
    (void)state;
    static const struct {
        const char *first, *second, *address;
        bool denied;
    } rows[] = {
        {"deny 10.1.0.0/16", NULL, "10.1.2.3", true},
        {"deny 10.1.0.0/16", NULL, "10.2.2.3", false},
        {"deny 10.1.2.3", NULL, "10.1.2.3", true},
        {"deny 10.1.2.4", NULL, "10.1.2.3", false},
        {"deny [2001:db8::1]", NULL, "2001:db8::1", true},
        {"deny 10.1.0.0/16", "allow 10.1.2.0/24", "10.1.2.3", false},
        {"allow 10.1.0.0/16", "deny 10.1.2.0/24", "10.1.2.3", true},
        {"deny 10.1.0.0/16", NULL, "::ffff:10.1.2.3", true},
        {"deny 10.1.2.3", NULL, "64:ff9b::10.1.2.3", true},
        {"deny 10.1.0.0/16", "allow 10.2.0.0/16", "::ffff:10.1.2.3", true},
        {"deny other.example", NULL, "10.1.2.3", false},
        {"deny 10.1.0.0/16:8443", NULL, "10.1.2.3", false}, /* another port */
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct policy p DEFER(policy_done) = {.count = 0};
        add(&p, POLICY_ALLOW, "*");
        const char *more[] = {rows[i].first, rows[i].second};
        for (size_t k = 0; k < 2 && more[k]; k++)
            add(&p, *more[k] == 'd' ? POLICY_DENY : POLICY_ALLOW, strchr(more[k], ' ') + 1);
        struct policy_query q = {
            .host = "a.example", .port = 443, .knows_protocol = true, .protocol = PROTOCOL_TLS};
        struct sockaddr_in6 six = {.sin6_family = AF_INET6};
        struct sockaddr_in four = {.sin_family = AF_INET};
        bool is_six = inet_pton(AF_INET6, rows[i].address, &six.sin6_addr) == 1;
        assert_true(is_six || inet_pton(AF_INET, rows[i].address, &four.sin_addr) == 1);
        const struct sockaddr *to =
            is_six ? (const struct sockaddr *)&six : (const struct sockaddr *)&four;
        if ((policy_denies_address(&p, 1, &q, to) != NULL) != rows[i].denied)
            fail_msg("row %zu: %s", i, rows[i].first);
        assert_null(policy_denies_address(&p, p.last_id, &q, to)); /* no newer rule */
    }
}

static void methods_and_paths_wait_for_the_request(void **state) {
    (void)state;
    struct policy p DEFER(policy_done) = {.count = 0};
    struct policy_rule r = rule(POLICY_ALLOW, "https://api.example/v1");
    assert_int_equal(policy_methods_read("get,POST", r.methods, &err), 0);
    assert_int_equal(policy_add(&p, &r, &err), 0);
    assert_int_equal(ask(&p, "api.example", 443, PROTOCOL_TLS, NULL, NULL).want,
                     POLICY_WANTS_REQUEST);
    static const struct {
        const char *method, *path;
        enum policy_action action;
    } rows[] = {
        {"GET", "/v1", POLICY_ALLOW},
        {"POST", "/v1/x", POLICY_ALLOW},
        {"DELETE", "/v1/x", POLICY_DENY},
        {"get", "/v1", POLICY_DENY},
        {"GETS", "/v1", POLICY_DENY},
        {"GE", "/v1", POLICY_DENY},
        {"", "/v1", POLICY_DENY},
        {"POS", "/v1", POLICY_DENY},
        {"GET,POST", "/v1", POLICY_DENY},
        {"GET", "/v1/%252e%252e/v2", POLICY_DENY},
        {"GET", "/v1/..;/v2", POLICY_DENY},
        {"GET", "/v1/%c0%ae%c0%ae/v2", POLICY_DENY},
        {"GET", "/v", POLICY_DENY},
        {"GET", "/v10", POLICY_DENY},
        {"GET", "/", POLICY_DENY},
        {"GET", "/v1/../v2", POLICY_DENY},
        {"GET", "/v1/%2e%2e/v2", POLICY_DENY},
        {"GET", "/v1//x", POLICY_DENY},
        {"GET", "/v1/%2fx", POLICY_DENY},
        {"GET", "/v1/a%20b", POLICY_ALLOW},
        {"GET", "/v1\\..\\v2", POLICY_DENY},
        {"GET", "/v1/%", POLICY_DENY},
        {"GET", "/v1/.", POLICY_DENY},
        {"GET", "/v1/x/", POLICY_ALLOW},
        {"GET", "/v1/...", POLICY_ALLOW},
        {"GET", "/V1", POLICY_DENY},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct policy_answer a =
            ask(&p, "api.example", 443, PROTOCOL_TLS, rows[i].method, rows[i].path);
        if (a.action != rows[i].action)
            fail_msg("%s %s: %s", rows[i].method, rows[i].path, policy_action_name(a.action));
    }
}

/* Whatever a rule decides: one that is refused for its method is about methods, too. */
static void it_is_known_what_rules_are_about(void **state) {
    (void)state;
    struct policy p DEFER(policy_done) = {.count = 0};
    struct policy_rule r = rule(POLICY_DENY, "http://api.example");
    assert_int_equal(policy_methods_read("DELETE", r.methods, &err), 0);
    add(&p, POLICY_ALLOW, "http://api.example");
    assert_int_equal(policy_add(&p, &r, &err), 0);
    add(&p, POLICY_ALLOW, "http://paths.example/v1");
    r = rule(POLICY_ALLOW, "http://old.example/v1");
    r.expires_ms = 1000;
    assert_int_equal(policy_add(&p, &r, &err), 0);
    static const struct {
        const char *host;
        bool methods, paths;
    } rows[] = {{"api.example", true, false},
                {"paths.example", false, true},
                {"old.example", false, false},
                {"other.example", false, false}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const struct policy_query q = {.host = rows[i].host,
                                       .port = 80,
                                       .knows_protocol = true,
                                       .protocol = PROTOCOL_HTTP,
                                       .now_ms = 1000};
        struct policy_care care = policy_cares(&p, &q);
        if (care.methods != rows[i].methods || care.paths != rows[i].paths)
            fail_msg("%s", rows[i].host);
    }
}

static void an_exact_rule_is_for_one_request(void **state) {
    (void)state;
    static const struct {
        const char *path, *query;
        bool fits, fits_root; /* the rule for /a?x=1, and that for / */
    } rows[] = {
        {"/a", "x=1", true, false},    {"/a", NULL, false, false},   {"/a", "x=2", false, false},
        {"/a", "x=1&y", false, false}, {"/a/", "x=1", false, false}, {"/a/b", "x=1", false, false},
        {"/", NULL, false, true},      {"/", "", false, true},       {"/", "x=1", false, false},
        {"/b", NULL, false, false},
    };
    struct policy p DEFER(policy_done) = {.count = 0}, back DEFER(policy_done) = {.count = 0};
    struct policy_rule one = rule(POLICY_ALLOW, "http://api.example/a"),
                       root = rule(POLICY_ALLOW, "http://root.example"),
                       wrong = rule(POLICY_ALLOW, "api.example");
    one.exact = root.exact = wrong.exact = true;
    snprintf(one.query, sizeof(one.query), "x=1");
    assert_int_equal(policy_add(&p, &one, &err), 0);
    assert_int_equal(policy_add(&p, &root, &err), 0);
    assert_int_equal(policy_add(&p, &wrong, &err), -1);
    struct policy_rule wide = rule(POLICY_ASK, "http://api.example/a");
    assert_int_equal(policy_add(&p, &wide, &err), 0);
    assert_int_equal(p.count, 3); /* the exact one is another */
    policy_remove(&p, wide.id, &err);
    struct buf text DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&text);
    policy_write(&p, &j, NULL);
    assert_int_equal(policy_read(text.data, &back, &err), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (int of_root = 0; of_root < 2; of_root++) {
            const struct policy_query q = {.host = of_root ? "root.example" : "api.example",
                                           .port = 80,
                                           .knows_protocol = true,
                                           .protocol = PROTOCOL_HTTP,
                                           .method = "GET",
                                           .path = rows[i].path,
                                           .query = rows[i].query};
            bool fits = policy_decide(&back, &q).action == POLICY_ALLOW;
            if (fits != (of_root ? rows[i].fits_root : rows[i].fits))
                fail_msg("%s%s?%s", q.host, q.path, q.query ? q.query : "");
        }
}

static void a_rule_ends_when_it_says(void **state) {
    (void)state;
    struct policy p DEFER(policy_done) = {.count = 0};
    struct policy_rule r = rule(POLICY_ALLOW, "example.com");
    r.expires_ms = 1000; /* what ask() calls now */
    policy_add(&p, &r, &err);
    IS(ask(&p, "example.com", 443, PROTOCOL_TLS, NULL, NULL), POLICY_DENY);
    p.rules[0].expires_ms = 1001;
    IS(ask(&p, "example.com", 443, PROTOCOL_TLS, NULL, NULL), POLICY_ALLOW);
}

static void rules_are_kept_as_json(void **state) {
    (void)state;
    struct policy p DEFER(policy_done) = {.count = 0}, back DEFER(policy_done) = {.count = 0};
    struct policy_rule r = rule(POLICY_ASK, "https://api.example/v1");
    snprintf(r.methods, sizeof(r.methods), "GET");
    r.local = true;
    r.bytes_max = 1 << 20;
    r.rate = 1000;
    r.hold_ms = 5000;
    add(&p, POLICY_ALLOW, "old.example");
    policy_remove(&p, 1, &err);
    assert_int_equal(policy_add(&p, &r, &err), 0);
    struct buf text DEFER(buf_done) = BUF(4096), again DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&text), k = JOT(&again);
    policy_write(&p, &j, NULL);
    assert_int_equal(policy_read(text.data, &back, &err), 0);
    policy_write(&back, &k, NULL);
    assert_string_equal(text.data, again.data);
    assert_int_equal(back.rules[0].id, 2);
    assert_int_equal(back.last_id, 2);
    assert_int_equal(back.rules[0].hold_ms, 5000);
}

static void bad_json_leaves_the_policy_as_it_was(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "{}",
        "[]",
        "{\"rules\":{}}",
        "{\"rules\":[{}]}",
        "{\"rules\":[{\"action\":\"allow\"}]}",
        "{\"rules\":[{\"action\":\"let\",\"target\":\"a.b\"}]}",
        "{\"rules\":[{\"action\":\"allow\",\"target\":\"a b\"}]}",
        "{\"rules\":[{\"action\":\"allow\",\"target\":\"a.b\",\"extra\":1}]}",
        "{\"rules\":[{\"action\":\"allow\",\"target\":\"a.b\",\"rate\":-1}]}",
        "{\"rules\":[{\"action\":\"allow\",\"target\":\"a.b\",\"rate\":\"1\"}]}",
        "{\"rules\":[{\"action\":\"allow\",\"target\":\"a.b\",\"local\":1}]}",
        "{\"rules\":[{\"action\":\"allow\",\"target\":\"a.b\",\"methods\":\"GET\"}]}",
        "{\"rules\":[{\"action\":\"ask\",\"target\":\"a.b\",\"hold_ms\":290001}]}",
    };
    struct policy p DEFER(policy_done) = {.count = 0};
    add(&p, POLICY_ALLOW, "kept.example");
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
        if (policy_read(texts[i], &p, &err) == 0)
            fail_msg("%s was taken", texts[i]);
        assert_int_equal(p.count, 1);
    }
}

static void there_are_only_so_many_rules(void **state) {
    (void)state;
    struct policy p DEFER(policy_done) = {.count = 0};
    char target[32];
    for (int i = 0; i < POLICY_RULES_MAX; i++) {
        snprintf(target, sizeof(target), "n%d.example", i);
        add(&p, POLICY_ALLOW, target);
    }
    struct policy_rule r = rule(POLICY_ALLOW, "one.more");
    assert_int_equal(policy_add(&p, &r, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
}

static void add_from(struct policy *p, enum policy_action action, const char *target,
                     const char *from) {
    struct policy_rule r = rule(action, target);
    snprintf(r.from, sizeof(r.from), "%s", from);
    assert_int_equal(policy_add(p, &r, &err), 0);
}

static void given_rules_are_replaced_and_lose_to_the_owner(void **state) {
    (void)state;
    struct policy p DEFER(policy_done) = {.count = 0}, given DEFER(policy_done) = {.count = 0};
    add_from(&p, POLICY_ALLOW, "*", "conf");
    add(&p, POLICY_DENY, "bad.example");
    add_from(&p, POLICY_ALLOW, "old.example", "client");
    add_from(&given, POLICY_DENY, "*", "client");
    add_from(&given, POLICY_ALLOW, "bad.example", "client");
    add_from(&given, POLICY_ALLOW, "new.example", "client");
    assert_int_equal(policy_set_given(&p, &given, &err), 0);
    assert_int_equal(p.count, 4);
    assert_int_equal(p.rules[3].id, 2); /* a rule of the owner keeps its id */
    assert_int_equal(p.rules[0].id, 4); /* ids are never used again */
    IS(ask(&p, "new.example", 443, PROTOCOL_TLS, NULL, NULL), POLICY_ALLOW);
    IS(ask(&p, "old.example", 443, PROTOCOL_TLS, NULL, NULL), POLICY_DENY);
    IS(ask(&p, "bad.example", 443, PROTOCOL_TLS, NULL, NULL), POLICY_DENY);
    assert_string_equal(p.rules[0].from, "client");
    given.count = 0;
    assert_int_equal(policy_set_given(&p, &given, &err), 0);
    assert_int_equal(p.count, 1);
}

static void too_many_given_rules_change_nothing(void **state) {
    (void)state;
    struct policy p DEFER(policy_done) = {.count = 0}, given DEFER(policy_done) = {.count = 0};
    char target[32];
    add(&p, POLICY_DENY, "bad.example");
    add_from(&p, POLICY_ALLOW, "*", "conf");
    for (int i = 0; i < POLICY_RULES_MAX; i++) {
        snprintf(target, sizeof(target), "n%d.example", i);
        add_from(&given, POLICY_ALLOW, target, "client");
    }
    assert_int_equal(policy_set_given(&p, &given, &err), -1);
    assert_int_equal(err.code, ERR_LIMIT);
    assert_int_equal(p.count, 2);
    given.count--;
    assert_int_equal(policy_set_given(&p, &given, &err), 0);
    assert_int_equal(p.count, POLICY_RULES_MAX);
}

static void a_taint_closes_a_guarded_policy_and_is_kept(void **state) {
    (void)state;
    struct policy p DEFER(policy_done) = {.guarded = true}, q DEFER(policy_done) = {.rules = NULL};
    static const struct {
        const char *host;
        bool trusted, tainted, ask;
        enum policy_action after;
    } rows[] = {{"good.test", true, false, false, POLICY_DENY},
                {"any.test", false, false, false, POLICY_DENY},
                {"kept.test", false, true, false, POLICY_ALLOW},
                {"ask.test", false, false, true, POLICY_ASK}};
    enum { ROWS = sizeof(rows) / sizeof(*rows) };
    for (size_t i = 0; i < ROWS; i++) {
        struct policy_rule r = rule(rows[i].ask ? POLICY_ASK : POLICY_ALLOW, rows[i].host);
        r.trusted = rows[i].trusted;
        r.tainted = rows[i].tainted;
        assert_int_equal(policy_add(&p, &r, &err), 0);
    }
    assert_false(policy_taint(&p, 1, "good.test", 5));
    assert_true(policy_taint(&p, 2, "any.test", 7));
    assert_false(policy_taint(&p, 3, "kept.test", 9));
    struct buf text DEFER(buf_done) = BUF(1 << 16);
    struct jot j = JOT(&text);
    policy_write(&p, &j, NULL);
    assert_int_equal(policy_read(text.data, &q, &err), 0);
    assert_string_equal(q.tainted, "any.test");
    assert_int_equal(q.tainted_ms, 7);
    for (size_t i = 0; i < ROWS; i++) {
        const struct policy_query query = {
            .host = rows[i].host, .port = 80, .knows_protocol = true, .protocol = PROTOCOL_HTTP};
        assert_int_equal(policy_decide(&q, &query).action, rows[i].after);
    }
}

/* What cannot be shown as it was is still a taint. */
static void a_taint_is_kept_however_long_or_odd_its_source(void **state) {
    (void)state;
    char cut[3 * NAME_SIZE + 1] = "";
    for (size_t i = 0; i < NAME_SIZE; i++)
        memcpy(cut + 3 * i, "\u20ac", 4);
    const char *const sources[] = {cut, cut + 1, cut + 2, "\xff\xfe", "a\nb"};
    for (size_t i = 0; i < sizeof(sources) / sizeof(*sources); i++) {
        struct policy p DEFER(policy_done) = {.guarded = true},
                        q DEFER(policy_done) = {.rules = NULL};
        struct buf text DEFER(buf_done) = BUF(1 << 16);
        struct jot j = JOT(&text);
        assert_true(policy_taint(&p, 0, sources[i], 7));
        policy_write(&p, &j, NULL);
        assert_int_equal(policy_read(text.data, &q, &err), 0);
        assert_true(policy_is_closed(&q));
    }
    static const char *const odd[] = {"7", "true", "null", "\"\"", "[]"};
    for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
        struct policy q DEFER(policy_done) = {.rules = NULL};
        char json[80];
        snprintf(json, sizeof(json), "{\"guarded\":true,\"tainted\":%s,\"rules\":[]}", odd[i]);
        assert_int_equal(policy_read(json, &q, &err), 0);
        assert_true(policy_is_closed(&q));
    }
}

static void presets_only_install_once_it_is_tainted(void **state) {
    (void)state;
    static const struct {
        const char *preset, *method, *path;
        enum policy_action after;
    } rows[] = {
        {"apt", "GET", "/debian/dists/stable/InRelease", POLICY_ALLOW},
        {"apt", "HEAD", "/debian/pool/main/c/curl.deb", POLICY_ALLOW},
        {"apt", "GET", "/cgi-bin/x", POLICY_DENY},
        {"pip", "GET", "/simple/requests/", POLICY_ALLOW},
        {"pip", "GET", "/packages/ab/cd/x-1.whl", POLICY_ALLOW},
        {"pip", "POST", "/legacy/", POLICY_DENY},
        {"pip", "POST", "/simple/requests/", POLICY_DENY},
        {"npm", "GET", "/left-pad", POLICY_ALLOW},
        {"npm", "GET", "/@types%2fnode", POLICY_ALLOW},
        {"npm", "GET", "/@types%2Fnode", POLICY_ALLOW},
        {"npm", "GET", "/@types/node/-/node-1.0.0.tgz", POLICY_ALLOW},
        {"npm", "GET", "/@types%2f..%2f-%2fwhoami", POLICY_DENY},
        {"npm", "GET", "/@types%252f..", POLICY_DENY},
        {"npm", "GET", "/-/whoami", POLICY_DENY},
        {"npm", "GET", "/%2d/whoami", POLICY_DENY},
        {"npm", "GET", "/%40types%2fnode", POLICY_ALLOW},
        {"npm", "PUT", "/left-pad", POLICY_DENY},
        {"npm", "POST", "/-/npm/v1/security/audits/quick", POLICY_DENY},
        {"npm", "GET", "/a/../-/whoami", POLICY_DENY},
        {"cargo", "GET", "/config.json", POLICY_ALLOW},
        {"cargo", "GET", "/se/rd/serde", POLICY_ALLOW},
        {"cargo", "GET", "/1/a", POLICY_ALLOW},
        {"cargo", "GET", "/api/v1/crates/serde/1.0.0/download", POLICY_ALLOW},
        {"cargo", "PUT", "/api/v1/crates/new", POLICY_DENY},
        {"cargo", "GET", "/api/v1/me", POLICY_DENY},
        {"go", "GET", "/example.com/secret/@v/list", POLICY_DENY},
        /* What a server may read as another path is none of those. */
        {"apt", "GET", "//debian/dists/stable/InRelease", POLICY_DENY},
        {"apt", "GET", "/debian//pool/main/c/curl.deb", POLICY_DENY},
        {"apt", "GET", "/debian/./pool/main/c/curl.deb", POLICY_DENY},
        {"apt", "GET", "/debian%2fpool/main/c/curl.deb", POLICY_DENY},
        {"apt", "GET", "/debian/pool/%2e%2e/%2E%2E/x", POLICY_DENY},
        {"pip", "GET", "//simple/requests/", POLICY_DENY},
        {"pip", "GET", "/simple//requests/", POLICY_DENY},
        {"pip", "GET", "/./simple/requests/", POLICY_DENY},
        {"pip", "GET", "/simple/%2e%2e/legacy/", POLICY_DENY},
        {"pip", "GET", "/simple%2Frequests/", POLICY_DENY},
        {"pip", "GET", "/SIMPLE/requests/", POLICY_DENY},
        {"pip", "get", "/simple/requests/", POLICY_DENY},
        {"npm", "GET", "//-/whoami", POLICY_DENY},
        {"npm", "GET", "/./-/whoami", POLICY_DENY},
        {"npm", "GET", "/%2f-/whoami", POLICY_DENY},
        {"npm", "GET", "/-%2fwhoami", POLICY_DENY},
        {"npm", "GET", "/-%2Fwhoami", POLICY_DENY},
        {"npm", "GET", "/%2D/whoami", POLICY_DENY},
        {"npm", "get", "/left-pad", POLICY_DENY},
        {"cargo", "GET", "//api/v1/me", POLICY_DENY},
        {"cargo", "GET", "/./api/v1/me", POLICY_DENY},
        {"cargo", "GET", "/api%2fv1%2fme", POLICY_DENY},
        {"cargo", "GET", "/API/v1/me", POLICY_DENY},
        {"cargo", "GET", "/Config.json", POLICY_DENY},
        {"cargo", "GET", "/api/v1/crates/serde/1.0.0/../../../me", POLICY_DENY},
        {"cargo", "GET", "/api/v1/crates/serde/1.0.0//download", POLICY_DENY},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct policy p DEFER(policy_done) = {.guarded = true};
        struct policy_rule r = rule(POLICY_ALLOW, "https://packages.example");
        snprintf(r.preset, sizeof(r.preset), "%s", rows[i].preset);
        assert_int_equal(policy_add(&p, &r, &err), 0);
        IS(ask(&p, "packages.example", 443, PROTOCOL_TLS, NULL, NULL), POLICY_ALLOW);
        assert_true(policy_taint(&p, 0, "a stranger", 5));
        assert_int_equal(ask(&p, "packages.example", 443, PROTOCOL_TLS, NULL, NULL).want,
                         POLICY_WANTS_REQUEST);
        struct policy_answer a =
            ask(&p, "packages.example", 443, PROTOCOL_TLS, rows[i].method, rows[i].path);
        if (a.action != rows[i].after)
            fail_msg("%s %s %s: %s", rows[i].preset, rows[i].method, rows[i].path,
                     policy_action_name(a.action));
        assert_int_equal(a.by_taint, rows[i].after == POLICY_DENY);
        p.rules[0].tainted = true; /* granted for that */
        IS(ask(&p, "packages.example", 443, PROTOCOL_TLS, NULL, NULL), POLICY_ALLOW);
        p.rules[0].tainted = false;
        p.guarded = false;
        IS(ask(&p, "packages.example", 443, PROTOCOL_TLS, NULL, NULL), POLICY_ALLOW);
    }
}

/* The throw-away database of a machine is its own. */
static void its_own_database_stays(void **state) {
    (void)state;
    struct policy p DEFER(policy_done) = {.guarded = true};
    struct policy_rule r = rule(POLICY_ALLOW, "tcp://own.db.carrel:5432");
    snprintf(r.preset, sizeof(r.preset), "postgres");
    assert_int_equal(policy_add(&p, &r, &err), 0);
    assert_true(policy_taint(&p, 0, "a stranger", 5));
    IS(ask(&p, "own.db.carrel", 5432, -1, NULL, NULL), POLICY_ALLOW);
}

static void ports_are_shown_until_it_is_tainted_and_then_on_purpose(void **state) {
    (void)state;
    struct policy p DEFER(policy_done) = {.guarded = true}, q DEFER(policy_done) = {.rules = NULL};
    assert_true(policy_shows(&p, 8000));
    assert_true(policy_taint(&p, 0, "a stranger", 5));
    assert_false(policy_shows(&p, 8000));
    for (uint16_t port = 8000; port < 8000 + 2 * POLICY_SHOWN_MAX; port++)
        policy_show(&p, port, true);
    policy_show(&p, 8000, true);
    assert_int_equal(p.shown_count, POLICY_SHOWN_MAX);
    policy_show(&p, 8001, false);
    struct buf text DEFER(buf_done) = BUF(1 << 16);
    struct jot j = JOT(&text);
    policy_write(&p, &j, NULL);
    assert_int_equal(policy_read(text.data, &q, &err), 0);
    assert_true(policy_shows(&q, 8000));
    assert_false(policy_shows(&q, 8001));
    assert_false(policy_shows(&q, 8000 + POLICY_SHOWN_MAX));
    q.guarded = false;
    assert_true(policy_shows(&q, 8001));
}

static void a_policy_without_a_rule_in_force_allows_nothing(void **state) {
    (void)state;
    struct policy p DEFER(policy_done) = {.rules = NULL};
    assert_false(policy_allows_any(&p, 5));
    add(&p, POLICY_DENY, "a.test");
    assert_false(policy_allows_any(&p, 5));
    add(&p, POLICY_ALLOW, "b.test");
    assert_true(policy_allows_any(&p, 5));
    p.rules[1].expires_ms = 5;
    assert_true(policy_allows_any(&p, 4) && !policy_allows_any(&p, 5));
    p.rules[1].expires_ms = 0;
    p.guarded = true;
    snprintf(p.tainted, sizeof(p.tainted), "b.test");
    assert_false(policy_allows_any(&p, 5));
    p.rules[1].action = POLICY_ASK; /* the owner still decides about each request */
    assert_true(policy_allows_any(&p, 5));
}

UNIT_MAIN(cmocka_unit_test(a_policy_without_a_rule_in_force_allows_nothing),
          cmocka_unit_test(presets_only_install_once_it_is_tainted),
          cmocka_unit_test(its_own_database_stays),
          cmocka_unit_test(ports_are_shown_until_it_is_tainted_and_then_on_purpose),
          cmocka_unit_test(a_taint_closes_a_guarded_policy_and_is_kept),
          cmocka_unit_test(a_taint_is_kept_however_long_or_odd_its_source),
          cmocka_unit_test(a_target_is_written_as_it_was_read),
          cmocka_unit_test(a_bad_target_is_refused), cmocka_unit_test(nothing_is_allowed_by_itself),
          cmocka_unit_test(a_name_alone_is_the_web_there),
          cmocka_unit_test(tcp_needs_no_first_byte), cmocka_unit_test(the_newest_rule_decides),
          cmocka_unit_test(methods_and_paths_wait_for_the_request),
          cmocka_unit_test(it_is_known_what_rules_are_about),
          cmocka_unit_test(an_exact_rule_is_for_one_request),
          cmocka_unit_test(a_rule_ends_when_it_says), cmocka_unit_test(rules_are_kept_as_json),
          cmocka_unit_test(bad_json_leaves_the_policy_as_it_was),
          cmocka_unit_test(a_range_is_written_with_its_first_address),
          cmocka_unit_test(a_range_has_addresses_and_no_names),
          cmocka_unit_test(a_denied_address_is_denied_by_name_too),
          cmocka_unit_test(there_are_only_so_many_rules),
          cmocka_unit_test(given_rules_are_replaced_and_lose_to_the_owner),
          cmocka_unit_test(too_many_given_rules_change_nothing))
