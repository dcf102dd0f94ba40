#include "tests/unit/unit.h"

#include "base/defer.h"
#include "mcp/mcp.h"

/* A server of one tool that answers at once, and one that waits; what was sent is kept. */
struct desk {
    struct mcp_session *session;
    char sent[64][4096];
    bool last[64];
    size_t count;
    struct mcp_request *held;
    size_t cancelled, wrong;
    int status; /* of the last answer with one */
    char reply[256];
};

static void send_it(void *arg, void *stream, const char *json, size_t n, bool last) {
    struct desk *d = arg;
    (void)stream;
    assert_true(d->count < 64 && n < 4096);
    memcpy(d->sent[d->count], json ? json : "", n);
    d->sent[d->count][n] = '\0';
    d->last[d->count++] = last;
}

static void it_was_wrong(void *arg, void *stream, int status) {
    struct desk *d = arg;
    (void)stream;
    d->wrong++;
    d->status = status;
}

static bool list(void *arg, enum mcp_list what, size_t from, size_t max, struct jot *j) {
    (void)arg;
    if (what != MCP_TOOLS)
        return false;
    for (size_t i = from; i < from + max && i < 120; i++)
        jot_u64(j, NULL, i);
    return from + max < 120;
}

static void handle(void *arg, struct mcp_request *r) {
    struct desk *d = arg;
    const char *name = json_string_value(json_object_get(r->params, "name"));
    if (name && strcmp(name, "wait") == 0) {
        d->held = r;
        return;
    }
    mcp_answer(r, "{\"ok\":true}", 11);
}

static void cancel(void *arg, struct mcp_request *r) {
    struct desk *d = arg;
    d->cancelled++;
    d->held = NULL;
    mcp_answer(r, "{}", 2);
}

static int subscribe(void *arg, const char *uri, bool on, struct err *err) {
    (void)arg;
    (void)on;
    return strncmp(uri, "x://", 4) == 0 ? 0 : err_set(err, ERR_NOT_FOUND, "no such thing");
}

static const struct mcp_backend backend = {.name = "desk",
                                           .title = "Desk",
                                           .version = "1",
                                           .list = list,
                                           .handle = handle,
                                           .cancel = cancel,
                                           .subscribe = subscribe};

static void desk_open(struct desk *d) {
    *d = (struct desk){0};
    const struct mcp_wire wire = {d, send_it, it_was_wrong};
    d->session = mcp_session_new(&backend, d, &wire);
}

static void desk_close(struct desk *d) {
    mcp_session_free(d->session);
}

static enum mcp_receipt say(struct desk *d, const char *json) {
    char *error = NULL;
    json_t *m = mcp_parse(json, strlen(json), &error);
    assert_non_null(m);
    return mcp_take(d->session, m, NULL);
}

static const char *answer_to(struct desk *d, const char *json) {
    size_t before = d->count;
    assert_int_equal(say(d, json), MCP_ASKED);
    assert_int_equal(d->count, before + 1);
    assert_true(d->last[before]);
    return d->sent[before];
}

static void greet(struct desk *d) {
    assert_non_null(strstr(
        answer_to(d, "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{"
                     "\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"elicitation\":{}}}}"),
        "\"protocolVersion\":\"2025-11-25\""));
}

#define ASK(id, method, params) \
    "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"" method "\",\"params\":" params "}"

static void versions_are_agreed_on(void **state) {
    static const struct {
        const char *wanted, *got;
    } rows[] = {{"2025-11-25", "2025-11-25"}, {"2025-06-18", "2025-06-18"},
                {"2025-03-26", "2025-06-18"}, {"2024-11-05", "2025-06-18"},
                {"2026-07-28", "2025-11-25"}, {"nonsense", "2025-11-25"}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct desk d;
        char text[256], want[64];
        desk_open(&d);
        snprintf(text, sizeof(text),
                 ASK("1", "initialize", "{\"protocolVersion\":\"%s\",\"capabilities\":{}}"),
                 rows[i].wanted);
        snprintf(want, sizeof(want), "\"protocolVersion\":\"%s\"", rows[i].got);
        assert_non_null(strstr(answer_to(&d, text), want));
        desk_close(&d);
    }
    assert_true(mcp_version_known("2025-03-26", 10));
    assert_false(mcp_version_known("2026-07-28", 10));
}

#define META(version, more)                                              \
    "{\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"" version \
    "\",\"io.modelcontextprotocol/clientCapabilities\":{\"elicitation\":{}}}" more "}"

static void stateless_requests_need_no_initialize(void **state) {
    static const struct {
        const char *message, *answer;
        int status;
    } rows[] = {
        {ASK("1", "server/discover", META("2026-07-28", "")),
         "\"supportedVersions\":[\"2026-07-28\"", 0},
        {ASK("1", "tools/list", META("2026-07-28", "")),
         "\"resultType\":\"complete\",\"ttlMs\":0,\"cacheScope\":\"private\"", 0},
        {ASK("1", "tools/list", META("2999-01-01", "")), "\"requested\":\"2999-01-01\"", 400},
        {ASK("1", "server/discover", "{}"), "-32602", 400},
        {ASK("1", "ping", META("2026-07-28", "")), "-32601", 404},
        {ASK("1", "initialize", META("2026-07-28", "")), "-32601", 404},
        {ASK("1", "resources/subscribe", META("2026-07-28", ",\"uri\":\"x://\"")), "-32601", 404},
        {ASK("1", "tools/list", "{}"), "-32600", 400},
    };
    struct desk d;
    (void)state;
    desk_open(&d);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        d.status = 0;
        assert_non_null(strstr(answer_to(&d, rows[i].message), rows[i].answer));
        assert_int_equal(d.status, rows[i].status);
    }
    desk_close(&d);
}

static void a_question_of_a_stateless_request_is_its_result(void **state) {
    struct desk d;
    (void)state;
    desk_open(&d);
    say(&d, ASK("7", "tools/call", META("2026-07-28", ",\"name\":\"wait\"")));
    assert_int_equal(mcp_abilities(d.held), MCP_CAN_ELICIT);
    assert_null(mcp_input(d.held, "q"));
    mcp_need_input(d.held, "{\"q\":{\"method\":\"elicitation/create\"}}", "s");
    assert_non_null(strstr(d.sent[d.count - 1],
                           "\"id\":7,\"result\":{\"resultType\":\"input_required\","
                           "\"inputRequests\":{\"q\":"));
    say(&d, ASK("8", "tools/call",
                META("2026-07-28", ",\"name\":\"wait\",\"inputResponses\":{\"q\":{},\"n\":1}")));
    assert_non_null(mcp_input(d.held, "q"));
    assert_null(mcp_input(d.held, "n"));
    mcp_answer(d.held, "{}", 2);
    assert_non_null(strstr(d.sent[d.count - 1], "\"result\":{\"resultType\":\"complete\"}"));
    desk_close(&d);
}

static void messages_that_make_no_sense_are_refused(void **state) {
    static const struct {
        const char *message, *code;
    } rows[] = {
        {"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", "-32600"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"ping\"}", "-32600"},
        {"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"ping\"}", "-32600"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1}", "-32600"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":[]}", "-32600"},
        {ASK("1", "tools/list", "{\"cursor\":\"7\"}"), "-32602"},
        {ASK("1", "tools/list", "{\"cursor\":3}"), "-32602"},
        {ASK("1", "tools/call", "{}"), "-32602"},
        {ASK("1", "tools/call", "{\"name\":\"x\",\"arguments\":[]}"), "-32602"},
        {ASK("1", "logging/setLevel", "{\"level\":\"loud\"}"), "-32602"},
        {ASK("1", "resources/subscribe", "{\"uri\":\"y://\"}"), "-32002"},
        {ASK("1", "resources/subscribe", "{}"), "-32602"},
        {ASK("1", "initialize", "{\"protocolVersion\":\"2025-11-25\"}"), "-32600"},
        {ASK("1", "no/such", "{}"), "-32601"},
    };
    struct desk d;
    (void)state;
    desk_open(&d);
    greet(&d);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        size_t wrong = d.wrong;
        assert_non_null(strstr(answer_to(&d, rows[i].message), rows[i].code));
        assert_int_equal(d.wrong - wrong, strcmp(rows[i].code, "-32600") == 0);
    }
    desk_close(&d);
}

static void bytes_that_are_no_message_have_an_answer_too(void **state) {
    static const struct {
        const char *bytes, *code;
    } rows[] = {{"", "-32700"},    {"{", "-32700"}, {"nope", "-32700"},
                {"[]", "-32600"},  {"7", "-32700"}, {"{\"a\":1,\"a\":2}", "-32700"},
                {"\xff", "-32700"}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char *error DEFER_FREE = NULL;
        assert_null(mcp_parse(rows[i].bytes, strlen(rows[i].bytes), &error));
        assert_non_null(strstr(error, rows[i].code));
        assert_non_null(strstr(error, "\"id\":null"));
    }
}

static void nothing_but_ping_comes_before_initialize(void **state) {
    struct desk d;
    (void)state;
    desk_open(&d);
    assert_non_null(strstr(answer_to(&d, ASK("1", "tools/list", "{}")), "-32600"));
    assert_string_equal(answer_to(&d, ASK("\"p\"", "ping", "{}")),
                        "{\"jsonrpc\":\"2.0\",\"id\":\"p\",\"result\":{}}");
    greet(&d);
    assert_non_null(strstr(answer_to(&d, ASK("1", "tools/list", "{}")), "\"tools\":[0,1,"));
    desk_close(&d);
}

static void lists_come_in_pages(void **state) {
    struct desk d;
    (void)state;
    desk_open(&d);
    greet(&d);
    assert_non_null(strstr(answer_to(&d, ASK("1", "tools/list", "{}")), "\"nextCursor\":\"p50\""));
    const char *second = answer_to(&d, ASK("2", "tools/list", "{\"cursor\":\"p50\"}"));
    assert_non_null(strstr(second, "\"tools\":[50,"));
    assert_non_null(strstr(second, "\"nextCursor\":\"p100\""));
    assert_null(strstr(answer_to(&d, ASK("3", "tools/list", "{\"cursor\":\"p100\"}")), "Cursor"));
    desk_close(&d);
}

static void a_cancelled_request_has_no_answer(void **state) {
    struct desk d;
    (void)state;
    desk_open(&d);
    greet(&d);
    size_t before = d.count;
    assert_int_equal(say(&d, ASK("7", "tools/call", "{\"name\":\"wait\"}")), MCP_ASKED);
    assert_int_equal(d.count, before);
    assert_int_equal(say(&d,
                         "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":"
                         "{\"requestId\":\"7\"}}"),
                     MCP_TAKEN);
    assert_int_equal(d.cancelled, 0); /* a text is not a number */
    say(&d, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":"
            "7}}");
    assert_int_equal(d.cancelled, 1);
    assert_int_equal(d.count, before + 1);
    assert_string_equal(d.sent[before], ""); /* only the stream's end */
    assert_true(d.last[before]);
    say(&d, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":"
            "7}}"); /* once more: nothing */
    assert_int_equal(d.count, before + 1);
    desk_close(&d);
}

static void the_end_of_a_session_cancels_what_is_under_way(void **state) {
    struct desk d;
    (void)state;
    desk_open(&d);
    greet(&d);
    say(&d, ASK("7", "tools/call", "{\"name\":\"wait\"}"));
    size_t before = d.count;
    desk_close(&d);
    assert_int_equal(d.cancelled, 1);
    assert_int_equal(d.count, before);
}

static void an_id_that_is_in_use_is_refused(void **state) {
    struct desk d;
    (void)state;
    desk_open(&d);
    greet(&d);
    say(&d, ASK("7", "tools/call", "{\"name\":\"wait\"}"));
    assert_non_null(strstr(answer_to(&d, ASK("7", "ping", "{}")), "-32600"));
    mcp_answer(d.held, "{}", 2);
    assert_non_null(strstr(answer_to(&d, ASK("7", "ping", "{}")), "result"));
    desk_close(&d);
}

static void only_so_many_requests_are_under_way(void **state) {
    struct desk d;
    char text[160];
    (void)state;
    desk_open(&d);
    greet(&d);
    size_t before = d.count;
    for (int i = 0; i < MCP_REQUESTS_MAX; i++) {
        snprintf(text, sizeof(text),
                 "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"tools/call\",\"params\":{\"name\":"
                 "\"wait\"}}",
                 i + 10);
        say(&d, text);
    }
    assert_int_equal(d.count, before);
    assert_non_null(strstr(answer_to(&d, ASK("9", "tools/call", "{\"name\":\"wait\"}")), "-32000"));
    assert_non_null(strstr(answer_to(&d, ASK("9", "ping", "{}")), "result"));
    desk_close(&d);
    assert_int_equal(d.cancelled, MCP_REQUESTS_MAX);
}

static void progress_goes_only_to_who_asked(void **state) {
    struct desk d;
    (void)state;
    desk_open(&d);
    greet(&d);
    say(&d, ASK("7", "tools/call", "{\"name\":\"wait\"}"));
    size_t before = d.count;
    mcp_progress(d.held, 1, 2, "half");
    assert_int_equal(d.count, before);
    mcp_answer(d.held, "{}", 2);
    say(&d, ASK("8", "tools/call", "{\"name\":\"wait\",\"_meta\":{\"progressToken\":\"t\"}}"));
    mcp_progress(d.held, 0.5, 2, "half");
    assert_string_equal(
        d.sent[d.count - 1],
        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{"
        "\"progressToken\":\"t\",\"progress\":0.5,\"total\":2,\"message\":\"half\"}}");
    assert_false(d.last[d.count - 1]);
    desk_close(&d);
}

static void log_levels_are_kept(void **state) {
    struct desk d;
    (void)state;
    desk_open(&d);
    greet(&d);
    size_t before = d.count;
    mcp_log(d.session, NULL, MCP_DEBUG, "x", "1");
    assert_int_equal(d.count, before);
    mcp_log(d.session, NULL, MCP_INFO, "x", "1");
    assert_non_null(strstr(d.sent[before], "\"level\":\"info\""));
    answer_to(&d, ASK("1", "logging/setLevel", "{\"level\":\"error\"}"));
    before = d.count;
    mcp_log(d.session, NULL, MCP_WARNING, "x", "1");
    assert_int_equal(d.count, before);
    desk_close(&d);
}

static void reply_came(void *arg, const json_t *result) {
    struct desk *d = arg;
    const char *action = json_string_value(json_object_get(result, "action"));
    snprintf(d->reply, sizeof(d->reply), "%s", result ? action : "refused");
}

static void questions_are_answered_once(void **state) {
    struct desk d;
    (void)state;
    desk_open(&d);
    greet(&d);
    say(&d, ASK("7", "tools/call", "{\"name\":\"wait\"}"));
    assert_int_equal(mcp_abilities(d.held), MCP_CAN_ELICIT);
    mcp_ask(d.held, "elicitation/create", "{}", reply_came, &d);
    assert_non_null(strstr(d.sent[d.count - 1], "\"id\":\"carrel-1\""));
    say(&d, "{\"jsonrpc\":\"2.0\",\"id\":\"carrel-9\",\"result\":{\"action\":\"accept\"}}");
    assert_string_equal(d.reply, "");
    say(&d, "{\"jsonrpc\":\"2.0\",\"id\":\"carrel-1\",\"result\":{\"action\":\"accept\"}}");
    assert_string_equal(d.reply, "accept");
    say(&d, "{\"jsonrpc\":\"2.0\",\"id\":\"carrel-1\",\"result\":{\"action\":\"decline\"}}");
    assert_string_equal(d.reply, "accept");
    mcp_ask(d.held, "elicitation/create", "{}", reply_came, &d);
    say(&d, "{\"jsonrpc\":\"2.0\",\"id\":\"carrel-2\",\"error\":{\"code\":-1}}");
    assert_string_equal(d.reply, "refused");
    mcp_ask(d.held, "elicitation/create", "{}", reply_came, &d);
    mcp_answer(d.held, "{}", 2);
    d.reply[0] = '\0';
    say(&d, "{\"jsonrpc\":\"2.0\",\"id\":\"carrel-3\",\"result\":{\"action\":\"accept\"}}");
    assert_string_equal(d.reply, ""); /* nobody waits any more */
    desk_close(&d);
}

static void count_uri(void *arg, const char *uri) {
    (void)uri;
    ++*(size_t *)arg;
}

static void subscriptions_are_counted_once(void **state) {
    struct desk d;
    size_t n = 0;
    (void)state;
    desk_open(&d);
    greet(&d);
    for (int i = 0; i < 2; i++)
        assert_non_null(
            strstr(answer_to(&d, ASK("1", "resources/subscribe", "{\"uri\":\"x://a\"}")), "{}"));
    mcp_subscriptions(d.session, count_uri, &n);
    assert_int_equal(n, 1);
    mcp_updated(d.session, "x://a");
    assert_non_null(strstr(d.sent[d.count - 1], "notifications/resources/updated"));
    answer_to(&d, ASK("1", "resources/unsubscribe", "{\"uri\":\"x://a\"}"));
    n = 0;
    mcp_subscriptions(d.session, count_uri, &n);
    assert_int_equal(n, 0);
    desk_close(&d);
}

UNIT_MAIN(cmocka_unit_test(versions_are_agreed_on),
          cmocka_unit_test(stateless_requests_need_no_initialize),
          cmocka_unit_test(a_question_of_a_stateless_request_is_its_result),
          cmocka_unit_test(messages_that_make_no_sense_are_refused),
          cmocka_unit_test(bytes_that_are_no_message_have_an_answer_too),
          cmocka_unit_test(nothing_but_ping_comes_before_initialize),
          cmocka_unit_test(lists_come_in_pages),
          cmocka_unit_test(a_cancelled_request_has_no_answer),
          cmocka_unit_test(the_end_of_a_session_cancels_what_is_under_way),
          cmocka_unit_test(an_id_that_is_in_use_is_refused),
          cmocka_unit_test(only_so_many_requests_are_under_way),
          cmocka_unit_test(progress_goes_only_to_who_asked), cmocka_unit_test(log_levels_are_kept),
          cmocka_unit_test(questions_are_answered_once),
          cmocka_unit_test(subscriptions_are_counted_once))
