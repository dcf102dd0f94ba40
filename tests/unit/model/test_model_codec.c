/* One conversation in three wire formats: what is written is read back, and a stream is what it is
 * however it was cut. */
#include "tests/unit/unit.h"

#include <jansson.h>

#include "base/defer.h"
#include "model/codec.h"

static const struct model_codec *const all[] = {&model_anthropic, &model_chat, &model_responses};
enum { CODECS = 3 };
#define EACH_CODEC(c)                               \
    for (size_t c##_i = 0; c##_i < CODECS; c##_i++) \
        for (const struct model_codec *c = all[c##_i], *c##_once = c; c##_once; c##_once = NULL)

static void decref(json_t **j) {
    json_decref(*j);
}

static void must(int r, const struct err *err) {
    if (r < 0)
        fail_msg("%s [%s]", err->text, err->remedy);
}

/* ---- A conversation with everything in it ---- */

#define TEXT_PART(t) \
    { .kind = MODEL_TEXT, .text = (t), .n = sizeof(t) - 1 }
static const struct model_tool tools[] = {
    {"exec", "Run a command.",
     "{\"type\":\"object\",\"properties\":{\"cmd\":{\"type\":\"string\"}}}"},
    {"read", "Read a file.", "{\"type\":\"object\"}"},
};
static const struct model_part picture = {
    .kind = MODEL_IMAGE, .text = "iVBORw==", .n = 8, .media = "image/png"};
static const struct model_part task[] = {
    TEXT_PART("fix the test \xc3\xa9"),
    {.kind = MODEL_IMAGE, .text = "R0lG", .n = 4, .media = "image/gif"}};
static const struct model_part turn[] = {
    TEXT_PART("I look."),
    {.kind = MODEL_CALL, .id = "c1", .name = "exec", .text = "{\"cmd\":\"ls\"}", .n = 12},
    {.kind = MODEL_CALL, .id = "c2", .name = "read", .text = "{}", .n = 2}};
static const struct model_part results[] = {
    {.kind = MODEL_RESULT, .id = "c1", .text = "a\nb\n", .n = 4},
    {.kind = MODEL_RESULT,
     .id = "c2",
     .text = "no such file",
     .n = 12,
     .failed = true,
     .images = &picture,
     .image_count = 1},
    TEXT_PART("time left: 3 min")};
static const struct model_part last_turn[] = {TEXT_PART("Done.")};
static const struct model_part thanks[] = {TEXT_PART("go on")};
static const struct model_message messages[] = {{MODEL_USER, task, 2},
                                                {MODEL_ASSISTANT, turn, 3},
                                                {MODEL_USER, results, 3},
                                                {MODEL_ASSISTANT, last_turn, 1},
                                                {MODEL_USER, thanks, 1}};

static struct model_request conversation(size_t count) {
    return (struct model_request){.model = "some-model",
                                  .system = "You are careful.",
                                  .tools = tools,
                                  .tool_count = 2,
                                  .messages = messages,
                                  .message_count = count,
                                  .max_tokens = 1000,
                                  .cache_key = "run-1",
                                  .stream = true};
}

static void encode(const struct model_codec *c, const struct model_request *r, struct buf *to) {
    struct err err = {0};
    must(model_put_request(c, r, NULL, to, &err), &err);
}

static json_t *encode_json(const struct model_codec *c, const struct model_request *r) {
    struct buf b DEFER(buf_done) = BUF(1 << 20);
    encode(c, r, &b);
    json_t *root = json_loadb(b.data, b.len, 0, NULL);
    assert_non_null(root);
    return root;
}

static const json_t *at(const json_t *j, const char *path) {
    char name[64];
    while (*path) {
        size_t n = strcspn(path, ".");
        snprintf(name, sizeof(name), "%.*s", (int)n, path);
        j = json_is_array(j) ? json_array_get(j, strtoul(name, NULL, 10))
                             : json_object_get(j, name);
        path += n + (path[n] == '.');
    }
    return j;
}

static const char *str(const json_t *j, const char *path) {
    const char *s = json_string_value(at(j, path));
    return s ? s : "(none)";
}

/* ---- Requests ---- */

static void an_anthropic_request_is_as_its_server_wants_it(void **state) {
    (void)state;
    struct model_request r = conversation(3);
    json_t *j DEFER(decref) = encode_json(&model_anthropic, &r);
    assert_string_equal(str(j, "model"), "some-model");
    assert_string_equal(str(j, "system.0.text"), "You are careful.");
    assert_string_equal(str(j, "system.0.cache_control.type"), "ephemeral");
    assert_string_equal(str(j, "tools.0.input_schema.properties.cmd.type"), "string");
    assert_string_equal(str(j, "messages.0.content.1.source.media_type"), "image/gif");
    assert_string_equal(str(j, "messages.1.content.1.input.cmd"), "ls");
    assert_string_equal(str(j, "messages.2.content.0.tool_use_id"), "c1");
    assert_true(json_is_true(at(j, "messages.2.content.1.is_error")));
    assert_string_equal(str(j, "messages.2.content.1.content.1.source.data"), "iVBORw==");
    assert_string_equal(str(j, "messages.2.content.2.text"), "time left: 3 min");
    assert_string_equal(str(j, "messages.2.content.2.cache_control.type"), "ephemeral");
    assert_int_equal(json_integer_value(at(j, "max_tokens")), 1000);
}

static void a_chat_request_has_texts_only_in_its_results(void **state) {
    (void)state;
    struct model_request r = conversation(3);
    json_t *j DEFER(decref) = encode_json(&model_chat, &r);
    assert_string_equal(str(j, "messages.0.role"), "system");
    assert_string_equal(str(j, "messages.1.content.1.image_url.url"), "data:image/gif;base64,R0lG");
    assert_string_equal(str(j, "messages.2.tool_calls.0.function.arguments"), "{\"cmd\":\"ls\"}");
    assert_string_equal(str(j, "messages.3.role"), "tool");
    assert_string_equal(str(j, "messages.3.content"), "a\nb\n");
    assert_string_equal(str(j, "messages.4.content"), "The call failed.\nno such file");
    assert_string_equal(str(j, "messages.5.role"), "user");
    assert_string_equal(str(j, "messages.5.content.0.type"), "image_url");
    assert_string_equal(str(j, "tools.1.function.name"), "read");
    assert_string_equal(str(j, "prompt_cache_key"), "run-1");
    assert_int_equal(json_integer_value(at(j, "max_completion_tokens")), 1000);
    assert_true(json_is_true(at(j, "stream_options.include_usage")));
}

static void an_old_chat_server_gets_the_old_name_of_the_limit(void **state) {
    (void)state;
    struct err err = {0};
    struct model_request r = conversation(1);
    struct buf b DEFER(buf_done) = BUF(1 << 20);
    must(model_put_request(&model_chat, &r, &(struct model_wire){.old_max_tokens = true}, &b, &err),
         &err);
    assert_non_null(strstr(b.data, "\"max_tokens\":1000"));
    assert_null(strstr(b.data, "max_completion_tokens"));
}

static void a_responses_request_keeps_nothing_on_the_server(void **state) {
    (void)state;
    struct model_request r = conversation(3);
    json_t *j DEFER(decref) = encode_json(&model_responses, &r);
    assert_string_equal(str(j, "instructions"), "You are careful.");
    assert_true(json_is_false(at(j, "store")));
    assert_string_equal(str(j, "input.0.content.0.type"), "input_text");
    assert_string_equal(str(j, "input.1.content.0.type"), "output_text");
    assert_string_equal(str(j, "input.2.type"), "function_call");
    assert_string_equal(str(j, "input.2.call_id"), "c1");
    assert_string_equal(str(j, "input.4.type"), "function_call_output");
    assert_string_equal(str(j, "input.4.output"), "a\nb\n");
    assert_string_equal(str(j, "input.5.output.1.image_url"), "data:image/png;base64,iVBORw==");
    assert_string_equal(str(j, "tools.0.name"), "exec");
}

static void choices_of_tools_are_written_in_each_format(void **state) {
    (void)state;
    struct model_request r = conversation(1);
    r.choice = MODEL_CHOICE_NAMED;
    r.choice_name = "exec";
    EACH_CODEC(c) {
        struct buf b DEFER(buf_done) = BUF(1 << 20);
        struct model_heard h DEFER(model_heard_done) = {0};
        struct err err = {0};
        encode(c, &r, &b);
        must(model_get_request(c, b.data, b.len, &h, &err), &err);
        assert_int_equal(h.request.choice, MODEL_CHOICE_NAMED);
        assert_string_equal(h.request.choice_name, "exec");
    }
    r.choice = MODEL_CHOICE_ANY;
    json_t *a DEFER(decref) = encode_json(&model_anthropic, &r);
    json_t *o DEFER(decref) = encode_json(&model_chat, &r);
    assert_string_equal(str(a, "tool_choice.type"), "any");
    assert_string_equal(str(o, "tool_choice"), "required");
}

static void a_request_without_model_or_limit_is_refused(void **state) {
    (void)state;
    EACH_CODEC(c) {
        struct buf b DEFER(buf_done) = BUF(1 << 20);
        struct err err = {0};
        struct model_request r = conversation(1);
        r.model = "";
        assert_int_equal(model_put_request(c, &r, NULL, &b, &err), -1);
        assert_int_equal(err.code, ERR_INVALID);
        assert_non_null(strstr(err.remedy, "--model"));
        r = conversation(1);
        r.max_tokens = 0;
        assert_int_equal(model_put_request(c, &r, NULL, &b, &err), -1);
        assert_int_equal(b.len, 0);
    }
}

static void a_request_that_does_not_fit_leaves_the_buffer_as_it_was(void **state) {
    (void)state;
    EACH_CODEC(c) {
        struct buf b DEFER(buf_done) = BUF(200);
        struct err err = {0};
        struct model_request r = conversation(5);
        assert_true(buf_add(&b, "x", 1));
        assert_int_equal(model_put_request(c, &r, NULL, &b, &err), -1);
        assert_int_equal(err.code, ERR_LIMIT);
        assert_int_equal(b.len, 1);
    }
}

/* Takes out every occurrence. */
static void strip(struct buf *b, const char *mark) {
    for (char *hit; (hit = strstr(b->data, mark));) {
        memmove(hit, hit + strlen(mark), strlen(hit + strlen(mark)) + 1);
        b->len -= strlen(mark);
    }
}

/* Where the newest message ends: what is behind it may differ. */
static size_t stable_length(const struct buf *b, const char *after) {
    const char *end = strstr(b->data, after);
    assert_non_null(end);
    return (size_t)(end - b->data);
}

static void later_requests_begin_with_the_bytes_of_earlier_ones(void **state) {
    (void)state;
    static const char mark[] = ",\"cache_control\":{\"type\":\"ephemeral\"}";
    static const char *const ends[CODECS] = {"],\"max_tokens\"", "],\"max_completion_tokens\"",
                                             "],\"max_output_tokens\""};
    for (size_t c = 0; c < CODECS; c++)
        for (size_t n = 1; n < 5; n++) {
            struct buf early DEFER(buf_done) = BUF(1 << 20), late DEFER(buf_done) = BUF(1 << 20);
            struct model_request r = conversation(n), more = conversation(n + 1);
            encode(all[c], &r, &early);
            encode(all[c], &more, &late);
            strip(&early, mark);
            strip(&late, mark);
            assert_memory_equal(early.data, late.data, stable_length(&early, ends[c]));
        }
}

/* At most four marks are allowed, and the older one stands where the last request had its newest.
 */
static void an_anthropic_cache_is_looked_for_where_it_was_written(void **state) {
    (void)state;
    struct model_request r = conversation(5);
    json_t *j DEFER(decref) = encode_json(&model_anthropic, &r);
    assert_string_equal(str(j, "messages.2.content.2.cache_control.type"), "ephemeral");
    assert_string_equal(str(j, "messages.4.content.0.cache_control.type"), "ephemeral");
    assert_null(at(j, "messages.0.content.1.cache_control"));
    r.cache_key = NULL;
    struct buf b DEFER(buf_done) = BUF(1 << 20);
    encode(&model_anthropic, &r, &b);
    assert_null(strstr(b.data, "cache_control"));
}

static void what_a_client_wrote_a_server_reads(void **state) {
    (void)state;
    EACH_CODEC(c) {
        struct buf b DEFER(buf_done) = BUF(1 << 20);
        struct model_heard h DEFER(model_heard_done) = {0};
        struct err err = {0};
        struct model_request r = conversation(5);
        encode(c, &r, &b);
        must(model_get_request(c, b.data, b.len, &h, &err), &err);
        const struct model_request *q = &h.request;
        assert_string_equal(q->model, "some-model");
        assert_string_equal(q->system, "You are careful.");
        assert_true(q->stream);
        assert_int_equal(q->max_tokens, 1000);
        assert_int_equal(q->tool_count, 2);
        assert_string_equal(q->tools[0].schema, tools[0].schema);
        assert_int_equal(q->message_count, 5);
        assert_int_equal(q->messages[1].count, 3);
        assert_string_equal(q->messages[1].parts[1].text, "{\"cmd\":\"ls\"}");
        assert_string_equal(q->messages[1].parts[1].name, "exec");
        assert_int_equal(q->messages[2].parts[0].kind, MODEL_RESULT);
        assert_string_equal(q->messages[2].parts[0].id, "c1");
        assert_false(q->messages[2].parts[0].failed);
        assert_true(q->messages[2].parts[1].failed);
        assert_string_equal(q->messages[2].parts[1].text, "no such file");
        assert_string_equal(q->messages[0].parts[1].media, "image/gif");
        assert_string_equal(q->messages[4].parts[0].text, "go on");
    }
}

static void opaque_parts_go_back_only_where_they_came_from(void **state) {
    (void)state;
    EACH_CODEC(from) {
        const struct model_part parts[] = {{.kind = MODEL_OPAQUE,
                                            .text = "{\"type\":\"reasoning\",\"x\":1}",
                                            .n = 26,
                                            .codec = from},
                                           TEXT_PART("so")};
        const struct model_message m[] = {
            {MODEL_USER, thanks, 1}, {MODEL_ASSISTANT, parts, 2}, {MODEL_USER, thanks, 1}};
        struct model_request r = conversation(1);
        r.messages = m;
        r.message_count = 3;
        EACH_CODEC(to) {
            struct buf b DEFER(buf_done) = BUF(1 << 20);
            encode(to, &r, &b);
            /* Chat has no such thing in an assistant's message. */
            assert_int_equal(strstr(b.data, "\"type\":\"reasoning\"") != NULL,
                             from == to && to != &model_chat);
        }
    }
}

static void arguments_that_are_not_json_are_sent_back_as_an_object(void **state) {
    (void)state;
    const struct model_part bad[] = {{.kind = MODEL_CALL,
                                      .id = "c9",
                                      .name = "exec",
                                      .text = "{\"cmd\": \"l",
                                      .n = 10,
                                      .bad = "why"}};
    const struct model_message m[] = {{MODEL_USER, thanks, 1}, {MODEL_ASSISTANT, bad, 1}};
    struct model_request r = conversation(1);
    r.messages = m;
    r.message_count = 2;
    json_t *a DEFER(decref) = encode_json(&model_anthropic, &r);
    assert_string_equal(str(a, "messages.1.content.0.input.malformed_arguments"), "{\"cmd\": \"l");
    json_t *o DEFER(decref) = encode_json(&model_chat, &r);
    assert_string_equal(str(o, "messages.2.tool_calls.0.function.arguments"),
                        "{\"malformed_arguments\":\"{\\\"cmd\\\": \\\"l\"}");
}

static void requests_of_no_sense_are_refused_with_a_place(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "[]",
        "{}",
        "{\"model\":\"m\"}",
        "{\"model\":\"m\",\"messages\":[],\"input\":[]}",
        "{\"model\":\"m\",\"messages\":[{\"role\":\"who\",\"content\":\"x\"}],\"input\":[{\"role\":"
        "\"who\",\"content\":\"x\"}]}",
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":7}],\"input\":[{\"role\":"
        "\"user\",\"content\":7}]}",
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":[7]}],\"input\":[7]}"};
    EACH_CODEC(c)
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct model_heard h = {0};
        struct err err = {0};
        assert_int_equal(model_get_request(c, bad[i], strlen(bad[i]), &h, &err), -1);
        assert_int_equal(err.code, ERR_INVALID);
        assert_true(err.text[0]);
        if (i >= 5)
            assert_true(strstr(err.text, "message 0") || strstr(err.text, "item 0"));
    }
}

/* A message may have MODEL_PARTS_MAX parts; one result more is too many. */
static void too_many_results_are_refused_as_too_many(void **state) {
    (void)state;
    static const struct {
        const struct model_codec *codec;
        const char *head, *result, *tail;
    } rows[] = {{&model_anthropic,
                 "{\"model\":\"m\",\"max_tokens\":9,\"messages\":[{\"role\":\"user\",\"content\":[",
                 "{\"type\":\"tool_result\",\"tool_use_id\":\"c\",\"content\":\"x\"}", "]}]}"},
                {&model_chat, "{\"model\":\"m\",\"messages\":[",
                 "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"x\"}", "]}"},
                {&model_responses, "{\"model\":\"m\",\"input\":[",
                 "{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"x\"}", "]}"}};
    for (size_t r = 0; r < sizeof(rows) / sizeof(*rows); r++)
        for (size_t more = 0; more < 2; more++) {
            struct buf b DEFER(buf_done) = BUF(1 << 20);
            struct model_heard h DEFER(model_heard_done) = {0};
            struct err err = {0};
            assert_true(buf_addf(&b, "%s%s", rows[r].head, rows[r].result));
            for (size_t i = 1; i < MODEL_PARTS_MAX + more; i++)
                assert_true(buf_addf(&b, ",%s", rows[r].result));
            assert_true(buf_addf(&b, "%s", rows[r].tail));
            int got = model_get_request(rows[r].codec, b.data, b.len, &h, &err);
            if (more == 0) {
                must(got, &err);
                continue;
            }
            assert_int_equal(got, -1);
            assert_int_equal(err.code, ERR_LIMIT);
            assert_non_null(
                strstr(err.text, "the request has more messages or parts than are allowed"));
        }
}

/* ---- Answers ---- */

#define CALL_PART(i, t, a) \
    { .kind = MODEL_CALL, .id = (i), .name = (t), .text = (a), .n = sizeof(a) - 1 }
static const struct model_part answer_parts[] = {
    TEXT_PART("Let me l\xc3\xb6\xc3\xb6k.\n\"quoted\""),
    CALL_PART("c1", "exec", "{\"cmd\":\"make -j2 \xe2\x9c\x93\"}"),
    CALL_PART("c2", "read", "{\"path\":\"/a\"}"),
};

static struct model_answer an_answer(void) {
    return (struct model_answer){
        .id = "msg_1",
        .model = "some-model",
        .stop = MODEL_STOP_CALLS,
        .parts = answer_parts,
        .count = 3,
        .calls = 2,
        .usage = {.in = 10, .cache_read = 200, .cache_write = 30, .out = 40, .reasoning = 5},
        .has_usage = true};
}

static void check_answer(const struct model_answer *a, const struct model_answer *wanted) {
    assert_string_equal(a->id, wanted->id);
    assert_string_equal(a->model, wanted->model);
    assert_int_equal(a->stop, wanted->stop);
    assert_int_equal(a->count, wanted->count);
    assert_int_equal(a->calls, wanted->calls);
    assert_int_equal(a->has_usage, wanted->has_usage);
    assert_memory_equal(&a->usage, &wanted->usage, sizeof(a->usage));
    for (size_t i = 0; i < a->count; i++) {
        assert_int_equal(a->parts[i].kind, wanted->parts[i].kind);
        assert_int_equal(a->parts[i].n, wanted->parts[i].n);
        assert_memory_equal(a->parts[i].text, wanted->parts[i].text, a->parts[i].n);
        assert_null(a->parts[i].bad);
        if (a->parts[i].kind == MODEL_CALL) {
            assert_string_equal(a->parts[i].id, wanted->parts[i].id);
            assert_string_equal(a->parts[i].name, wanted->parts[i].name);
        }
    }
}

static void a_whole_answer_is_read_as_it_was_written(void **state) {
    (void)state;
    struct model_answer wanted = an_answer();
    EACH_CODEC(c) {
        struct buf b DEFER(buf_done) = BUF(1 << 20);
        struct model_answer got DEFER(model_answer_done) = {0};
        struct err err = {0};
        enum model_failure failure;
        must(model_put_answer(c, &wanted, &b, &err), &err);
        must(model_get_answer(c, b.data, b.len, &got, &failure, &err), &err);
        assert_int_equal(failure, MODEL_FAIL_NONE);
        check_answer(&got, &wanted);
    }
}

/* Everything that was seen, as one text. */
static void see(void *arg, const struct model_seen *seen) {
    struct buf *b = arg;
    assert_true(buf_addf(b, "[%d:%.*s]", (int)seen->kind, (int)seen->n, seen->text));
}

/* Feeds bytes in two pieces; 0 and the answer, or -1. */
static int read_stream(const struct model_codec *c, const char *bytes, size_t n, size_t cut,
                       struct buf *seen, struct model_answer *ret, enum model_failure *ret_failure,
                       struct err *err) {
    struct model_stream *s DEFER(model_stream_freep) = model_stream_new(c, seen ? see : NULL, seen);
    int r = model_stream_feed(s, bytes, cut, err);
    if (r == 0)
        r = model_stream_feed(s, bytes + cut, n - cut, err);
    if (r == 0)
        r = model_stream_end(s, ret, err);
    *ret_failure = r < 0 ? model_stream_failure(s) : MODEL_FAIL_NONE;
    return r;
}

static void a_stream_is_the_same_wherever_it_is_cut(void **state) {
    (void)state;
    struct model_answer wanted = an_answer();
    EACH_CODEC(c) {
        struct buf b DEFER(buf_done) = BUF(1 << 20), first DEFER(buf_done) = BUF(1 << 16);
        struct err err = {0};
        must(model_put_stream(c, &wanted, &b, &err), &err);
        for (size_t cut = 0; cut <= b.len; cut++) {
            struct buf seen DEFER(buf_done) = BUF(1 << 16);
            struct model_answer got DEFER(model_answer_done) = {0};
            enum model_failure failure;
            must(read_stream(c, b.data, b.len, cut, cut ? &seen : &first, &got, &failure, &err),
                 &err);
            check_answer(&got, &wanted);
            if (cut)
                assert_string_equal(seen.data, first.data);
        }
        assert_non_null(strstr(first.data, "[2:exec]"));
        assert_non_null(strstr(first.data, "[0:Let me"));
    }
}

/* Up to the last record: that one may lack its blank line and still count. */
static void of_a_stream_that_was_cut_nothing_is_handed_out(void **state) {
    (void)state;
    struct model_answer wanted = an_answer();
    EACH_CODEC(c) {
        struct buf b DEFER(buf_done) = BUF(1 << 20);
        struct err err = {0};
        must(model_put_stream(c, &wanted, &b, &err), &err);
        for (size_t n = 0; n + 2 < b.len; n++) {
            struct model_answer got = {.count = 77};
            enum model_failure failure;
            assert_int_equal(read_stream(c, b.data, n, n / 2, NULL, &got, &failure, &err), -1);
            assert_true(failure == MODEL_FAIL_CUT || failure == MODEL_FAIL_GARBAGE);
            assert_true(model_failure_row(failure)->retry);
            assert_int_equal(got.count, 77);
        }
    }
}

static void line_ends_of_every_kind_are_understood(void **state) {
    (void)state;
    struct model_answer wanted = an_answer();
    static const char *const ends[] = {"\r\n", "\r", "\n"};
    EACH_CODEC(c)
    for (size_t e = 0; e < 3; e++) {
        struct buf b DEFER(buf_done) = BUF(1 << 20), other DEFER(buf_done) = BUF(1 << 20);
        struct model_answer got DEFER(model_answer_done) = {0};
        struct err err = {0};
        enum model_failure failure;
        must(model_put_stream(c, &wanted, &b, &err), &err);
        assert_true(buf_addf(&other, "\xef\xbb\xbf: hello%s", ends[e]));
        for (size_t i = 0; i < b.len; i++)
            assert_true(b.data[i] == '\n' ? buf_add(&other, ends[e], strlen(ends[e]))
                                          : buf_add(&other, b.data + i, 1));
        must(read_stream(c, other.data, other.len, other.len / 3, NULL, &got, &failure, &err),
             &err);
        check_answer(&got, &wanted);
    }
}

static void an_error_in_the_stream_ends_it(void **state) {
    (void)state;
    struct model_answer wanted = an_answer();
    static const enum model_failure kinds[] = {MODEL_FAIL_BUSY, MODEL_FAIL_RATE, MODEL_FAIL_SERVER};
    EACH_CODEC(c)
    for (size_t k = 0; k < 3; k++) {
        struct buf b DEFER(buf_done) = BUF(1 << 20);
        struct err err = {0};
        enum model_failure failure;
        struct model_answer got = {.count = 77};
        must(model_put_stream(c, &wanted, &b, &err), &err);
        /* Half of it, to the end of a record, then the error, then all the rest again. */
        size_t half = (size_t)(strstr(b.data + b.len / 2, "\n\n") + 2 - b.data);
        struct buf all_of_it DEFER(buf_done) = BUF(1 << 20);
        assert_true(buf_add(&all_of_it, b.data, half));
        assert_int_equal(model_put_failure(c, kinds[k], "so sorry", true, &all_of_it), 0);
        assert_true(buf_add(&all_of_it, b.data + half, b.len - half));
        assert_int_equal(
            read_stream(c, all_of_it.data, all_of_it.len, 9, NULL, &got, &failure, &err), -1);
        assert_int_equal(failure, kinds[k]);
        assert_non_null(strstr(err.text, "so sorry"));
        assert_int_equal(got.count, 77);
    }
}

static int read_text(const struct model_codec *c, const char *text, struct model_answer *ret,
                     enum model_failure *ret_failure, struct err *err) {
    return read_stream(c, text, strlen(text), strlen(text) / 2, NULL, ret, ret_failure, err);
}

static const char anthropic_stream[] =
    "event: message_start\n"
    "data: "
    "{\"type\":\"message_start\",\"message\":{\"id\":\"msg_9\",\"model\":\"m-1\",\"content\":[],"
    "\"usage\":"
    "{\"input_tokens\":7,\"cache_creation_input_tokens\":50,\"cache_read_input_tokens\":3,\"output_"
    "tokens\":1,"
    "\"cache_creation\":{\"ephemeral_1h_input_tokens\":20}}}}\n\n"
    "event: ping\ndata: {\"type\":\"ping\"}\n\n"
    "event: content_block_start\n"
    "data: "
    "{\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\","
    "\"thinking\":\"\",\"signature\":\"\"}}\n\n"
    "data: "
    "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\","
    "\"thinking\":\"hm\"}}\n\n"
    "data: "
    "{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\","
    "\"signature\":\"c2ln\"}}\n\n"
    "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n"
    "data: "
    "{\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"novel_block\","
    "\"x\":[1,2]}}\n\n"
    "data: "
    "{\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"novel_delta\",\"y\":1}}"
    "\n\n"
    "data: {\"type\":\"content_block_stop\",\"index\":1}\n\n"
    "data: "
    "{\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"tool_use\",\"id\":"
    "\"t1\",\"name\":\"exec\",\"input\":{}}}\n\n"
    "data: "
    "{\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\","
    "\"partial_json\":\"\"}}\n\n"
    "data: {\"type\":\"content_block_stop\",\"index\":2}\n\n"
    "data: {\"type\":\"novel_event\"}\n\n"
    "data: "
    "{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null},"
    "\"usage\":{\"output_tokens\":99}}\n\n"
    "data: {\"type\":\"message_stop\"}\n\n";

static void thinking_and_unknown_blocks_are_kept_as_they_came(void **state) {
    (void)state;
    struct model_answer a DEFER(model_answer_done) = {0};
    struct err err = {0};
    enum model_failure failure;
    must(read_text(&model_anthropic, anthropic_stream, &a, &failure, &err), &err);
    assert_int_equal(a.count, 3);
    assert_int_equal(a.parts[0].kind, MODEL_OPAQUE);
    assert_string_equal(a.parts[0].text,
                        "{\"type\":\"thinking\",\"thinking\":\"hm\",\"signature\":\"c2ln\"}");
    assert_string_equal(a.parts[1].text, "{\"type\":\"novel_block\",\"x\":[1,2]}");
    assert_string_equal(a.parts[2].text, "{}");
    assert_null(a.parts[2].bad);
    assert_int_equal(a.stop, MODEL_STOP_CALLS);
    assert_int_equal(a.usage.in, 7);
    assert_int_equal(a.usage.cache_read, 3);
    assert_int_equal(a.usage.cache_write, 30);
    assert_int_equal(a.usage.cache_write_long, 20);
    assert_int_equal(a.usage.out, 99);
}

#define CHAT_CALL(arguments, stop)                                                           \
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\"," \
    "\"function\":{\"name\":\"exec\",\"arguments\":\"" arguments                             \
    "\"}}]},\"finish_reason\":null}]}\n\n"                                                   \
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"" stop                \
    "\"}]}\n\ndata: [DONE]\n\n"

static void calls_with_malformed_arguments_are_reported_as_bad(void **state) {
    (void)state;
    static const char *const streams[] = {CHAT_CALL("{\\\"cmd\\\":", "tool_calls"),
                                          CHAT_CALL("[1]", "tool_calls"),
                                          CHAT_CALL("{} {}", "tool_calls")};
    for (size_t i = 0; i < 3; i++) {
        struct model_answer a DEFER(model_answer_done) = {0};
        struct err err = {0};
        enum model_failure failure;
        must(read_text(&model_chat, streams[i], &a, &failure, &err), &err);
        assert_int_equal(a.calls, 1);
        assert_non_null(a.parts[0].bad);
        assert_non_null(strstr(a.parts[0].bad, "arguments"));
    }
}

/* Arguments that had not begun look like none at all. */
static void a_call_at_the_limit_of_tokens_is_bad_even_if_it_looks_whole(void **state) {
    (void)state;
    static const char *const streams[] = {CHAT_CALL("", "length"),
                                          CHAT_CALL("{\\\"cmd\\\":\\\"rm -rf /tmp\\\"}", "length")};
    for (size_t i = 0; i < 2; i++) {
        struct model_answer a DEFER(model_answer_done) = {0};
        struct err err = {0};
        enum model_failure failure;
        must(read_text(&model_chat, streams[i], &a, &failure, &err), &err);
        assert_int_equal(a.stop, MODEL_STOP_LENGTH);
        assert_non_null(strstr(a.parts[0].bad, "cut off"));
    }
}

static void a_stop_with_calls_is_a_call(void **state) {
    (void)state;
    struct model_answer a DEFER(model_answer_done) = {0};
    struct err err = {0};
    enum model_failure failure;
    must(read_text(&model_chat, CHAT_CALL("{}", "stop"), &a, &failure, &err), &err);
    assert_int_equal(a.stop, MODEL_STOP_CALLS);
    assert_false(a.has_usage);
}

static void calls_without_index_or_id_and_with_the_same_id_stay_apart(void **state) {
    (void)state;
    static const char text[] =
        "data: "
        "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"id\":\"x\",\"function\":{\"name\":\"a\","
        "\"arguments\":\"{\"}}]}}]}\n\n"
        "data: "
        "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":\"}\"}}]}}]}\n\n"
        "data: "
        "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"id\":\"x\",\"function\":{\"name\":\"b\","
        "\"arguments\":\"{}\"}}]}}]}\n\n"
        "data: "
        "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":7,\"function\":{\"name\":\"c\"}}]},"
        "\"finish_reason\":\"stop\"}]}\n\n"
        "data: [DONE]";
    struct model_answer a DEFER(model_answer_done) = {0};
    struct err err = {0};
    enum model_failure failure;
    must(read_text(&model_chat, text, &a, &failure, &err), &err);
    assert_int_equal(a.calls, 3);
    assert_string_equal(a.parts[0].id, "x");
    assert_string_equal(a.parts[0].text, "{}");
    assert_string_equal(a.parts[1].id, "x_2");
    assert_string_equal(a.parts[2].id, "call_3");
}

static void a_call_without_a_name_is_bad(void **state) {
    (void)state;
    struct model_answer a DEFER(model_answer_done) = {0};
    struct err err = {0};
    enum model_failure failure;
    must(read_text(&model_chat,
                   "data: "
                   "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"x\"}]},"
                   "\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
                   &a, &failure, &err),
         &err);
    assert_string_equal(a.parts[0].bad, "the call has no tool name");
}

static void refusals_are_seen_in_every_format(void **state) {
    (void)state;
    static const char *const streams[CODECS] = {
        "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"refusal\"}}\n\ndata: "
        "{\"type\":\"message_stop\"}\n\n",
        "data: "
        "{\"choices\":[{\"delta\":{\"refusal\":\"no\"},\"finish_reason\":\"stop\"}]}\n\ndata: "
        "[DONE]\n\n",
        "data: "
        "{\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"type\":\"message\","
        "\"content\":[{\"type\":\"refusal\","
        "\"refusal\":\"no\"}]}}\n\ndata: {\"type\":\"response.completed\",\"response\":{}}\n\n"};
    for (size_t i = 0; i < CODECS; i++) {
        struct model_answer a DEFER(model_answer_done) = {0};
        struct err err = {0};
        enum model_failure failure;
        must(read_text(all[i], streams[i], &a, &failure, &err), &err);
        assert_int_equal(a.stop, MODEL_STOP_REFUSED);
    }
}

static void an_incomplete_response_is_cut_at_its_length(void **state) {
    (void)state;
    static const char text[] =
        "data: "
        "{\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"type\":\"function_"
        "call\",\"call_id\":\"c\",\"name\":\"exec\","
        "\"arguments\":\"{}\",\"status\":\"incomplete\"}}\n\n"
        "data: "
        "{\"type\":\"response.incomplete\",\"response\":{\"status\":\"incomplete\",\"incomplete_"
        "details\":{\"reason\":\"max_output_tokens\"},"
        "\"usage\":{\"input_tokens\":9,\"input_tokens_details\":{\"cached_tokens\":4},\"output_"
        "tokens\":2}}}\n\n";
    struct model_answer a DEFER(model_answer_done) = {0};
    struct err err = {0};
    enum model_failure failure;
    must(read_text(&model_responses, text, &a, &failure, &err), &err);
    assert_int_equal(a.stop, MODEL_STOP_LENGTH);
    assert_non_null(a.parts[0].bad);
    assert_int_equal(a.usage.in, 5);
    assert_int_equal(a.usage.cache_read, 4);
}

static void a_failed_response_tells_what_it_used(void **state) {
    (void)state;
    static const char text[] = "data: "
                               "{\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":"
                               "\"server_error\",\"message\":\"oh\"},"
                               "\"usage\":{\"input_tokens\":9,\"output_tokens\":2}}}\n\n";
    struct model_stream *s DEFER(model_stream_freep) =
        model_stream_new(&model_responses, NULL, NULL);
    struct err err = {0};
    struct model_usage usage;
    assert_int_equal(model_stream_feed(s, text, strlen(text), &err), -1);
    assert_int_equal(model_stream_failure(s), MODEL_FAIL_SERVER);
    assert_true(model_stream_usage(s, &usage));
    assert_int_equal(usage.out, 2);
}

static void garbage_is_told_from_an_answer(void **state) {
    (void)state;
    static const char *const bad[] = {"data: <html>\n\n", "data: [1]\n\n", "data: {\"type\":\n\n"};
    EACH_CODEC(c)
    for (size_t i = 0; i < 3; i++) {
        struct model_answer a = {0};
        struct err err = {0};
        enum model_failure failure;
        assert_int_equal(read_text(c, bad[i], &a, &failure, &err), -1);
        assert_int_equal(failure, MODEL_FAIL_GARBAGE);
        assert_int_equal(model_get_answer(c, bad[i] + 6, strlen(bad[i]) - 6, &a, &failure, &err),
                         -1);
        assert_int_equal(failure, MODEL_FAIL_GARBAGE);
        assert_int_equal(model_get_answer(c, "{}", 2, &a, &failure, &err), -1);
    }
}

static void an_answer_without_end_is_cut_off_by_us(void **state) {
    (void)state;
    struct buf piece DEFER(buf_done) = BUF(2 << 20);
    assert_true(buf_addf(&piece, "data: {\"choices\":[{\"delta\":{\"content\":\""));
    for (int i = 0; i < 1 << 14; i++)
        assert_true(buf_addf(&piece, "%064d", i));
    assert_true(buf_addf(&piece, "\"}}]}\n\n"));
    struct model_stream *s DEFER(model_stream_freep) = model_stream_new(&model_chat, NULL, NULL);
    struct err err = {0};
    int r = 0, rounds = 0;
    for (; r == 0 && rounds < 20; rounds++)
        r = model_stream_feed(s, piece.data, piece.len, &err);
    assert_int_equal(r, -1);
    assert_int_equal(rounds, 9); /* 8 MiB are allowed, in pieces of one */
    assert_int_equal(model_stream_failure(s), MODEL_FAIL_LARGE);
    assert_false(model_failure_row(MODEL_FAIL_LARGE)->retry);
    /* One line that never ends. */
    struct model_stream *t DEFER(model_stream_freep) = model_stream_new(&model_chat, NULL, NULL);
    for (r = 0, rounds = 0; r == 0 && rounds < 40; rounds++)
        r = model_stream_feed(t, piece.data, piece.len - 2, &err);
    assert_int_equal(model_stream_failure(t), MODEL_FAIL_LARGE);
}

static void two_hundred_calls_are_read_and_a_thousand_are_too_many(void **state) {
    (void)state;
    for (int count = 200; count <= 1000; count += 800) {
        struct buf b DEFER(buf_done) = BUF(4 << 20);
        struct model_answer a DEFER(model_answer_done) = {0};
        struct err err = {0};
        enum model_failure failure;
        for (int i = 0; i < count; i++)
            assert_true(buf_addf(&b,
                                 "data: "
                                 "{\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":%d,\"id\":"
                                 "\"c%d\",\"function\":{\"name\":\"exec\"}}]}}]}\n\n",
                                 i, i));
        assert_true(buf_addf(
            &b, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: "
                "[DONE]\n\n"));
        int r = read_stream(&model_chat, b.data, b.len, 100, NULL, &a, &failure, &err);
        assert_int_equal(r, count == 200 ? 0 : -1);
        if (count == 200)
            assert_int_equal(a.calls, 200);
    }
}

/* ---- Failures ---- */

static void failures_are_told_apart_by_words_and_status(void **state) {
    (void)state;
    static const struct {
        int status;
        const char *body;
        enum model_failure wanted;
        enum err_code code;
    } rows[] = {
        {429,
         "{\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\",\"message\":\"slow down\"}}",
         MODEL_FAIL_RATE, ERR_BUSY},
        {429,
         "{\"error\":{\"type\":\"insufficient_quota\",\"code\":\"insufficient_quota\",\"message\":"
         "\"pay\"}}",
         MODEL_FAIL_SPENT, ERR_LIMIT},
        {429,
         "{\"error\":{\"type\":\"rate_limit_error\",\"message\":\"x\",\"details\":{\"error_code\":"
         "\"enforced_spend_limit_reached\"}}}",
         MODEL_FAIL_SPENT, ERR_LIMIT},
        {400,
         "{\"error\":{\"type\":\"invalid_request_error\",\"code\":\"context_length_exceeded\","
         "\"message\":\"long\"}}",
         MODEL_FAIL_CONTEXT, ERR_LIMIT},
        {404, "{\"error\":{\"type\":\"invalid_request_error\",\"message\":\"no model\"}}",
         MODEL_FAIL_NOT_FOUND, ERR_NOT_FOUND},
        {401, "", MODEL_FAIL_KEY, ERR_DENIED},
        {502, "<html>bad gateway</html>", MODEL_FAIL_SERVER, ERR_UNKNOWN},
        {529, "{}", MODEL_FAIL_BUSY, ERR_BUSY},
        {413, "", MODEL_FAIL_CONTEXT, ERR_LIMIT},
        {418, "", MODEL_FAIL_INVALID, ERR_INVALID},
        {302, "", MODEL_FAIL_GARBAGE, ERR_UNKNOWN},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct err err = {0};
        assert_int_equal(
            model_failure_read(rows[i].status, rows[i].body, strlen(rows[i].body), &err),
            rows[i].wanted);
        assert_int_equal(err.code, rows[i].code);
        assert_true(err.remedy[0]);
    }
}

static void what_providers_write_cannot_break_a_line(void **state) {
    (void)state;
    struct err err = {0};
    model_failure_err(MODEL_FAIL_SERVER, "one\ntwo\x1b[31m", &err);
    assert_null(strpbrk(err.text, "\n\x1b"));
    assert_non_null(strstr(err.text, "one two"));
}

/* Trying again what cannot succeed costs the owner money, or the provider's patience. */
static void only_what_may_succeed_is_tried_again(void **state) {
    (void)state;
    static const enum model_failure again[] = {
        MODEL_FAIL_RATE, MODEL_FAIL_SERVER,  MODEL_FAIL_BUSY,   MODEL_FAIL_GARBAGE,
        MODEL_FAIL_CUT,  MODEL_FAIL_CONNECT, MODEL_FAIL_TIMEOUT};
    bool retry[MODEL_FAIL_COUNT] = {false};
    for (size_t i = 0; i < sizeof(again) / sizeof(*again); i++)
        retry[again[i]] = true;
    for (enum model_failure f = 0; f < MODEL_FAIL_COUNT; f++)
        assert_int_equal(model_failure_row(f)->retry, retry[f]);
}

static void failures_we_send_are_read_as_what_they_are(void **state) {
    (void)state;
    static const enum model_failure kinds[] = {MODEL_FAIL_KEY,    MODEL_FAIL_RATE,
                                               MODEL_FAIL_BUSY,   MODEL_FAIL_NOT_FOUND,
                                               MODEL_FAIL_SERVER, MODEL_FAIL_SPENT};
    EACH_CODEC(c)
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        struct buf b DEFER(buf_done) = BUF(4096);
        struct err err = {0};
        assert_int_equal(model_put_failure(c, kinds[i], "a \"b\"", false, &b), 0);
        assert_int_equal(
            model_failure_read(model_failure_row(kinds[i])->status, b.data, b.len, &err), kinds[i]);
        assert_non_null(strstr(err.text, "a \"b\""));
    }
}

static void codecs_are_found_by_name(void **state) {
    (void)state;
    EACH_CODEC(c)
    assert_ptr_equal(model_codec_named(model_codec_name(c)), c);
    assert_null(model_codec_named("gopher"));
    assert_string_equal(model_codec_path(&model_anthropic), "/v1/messages");
}

UNIT_MAIN(cmocka_unit_test(an_anthropic_request_is_as_its_server_wants_it),
          cmocka_unit_test(a_chat_request_has_texts_only_in_its_results),
          cmocka_unit_test(an_old_chat_server_gets_the_old_name_of_the_limit),
          cmocka_unit_test(a_responses_request_keeps_nothing_on_the_server),
          cmocka_unit_test(choices_of_tools_are_written_in_each_format),
          cmocka_unit_test(a_request_without_model_or_limit_is_refused),
          cmocka_unit_test(a_request_that_does_not_fit_leaves_the_buffer_as_it_was),
          cmocka_unit_test(later_requests_begin_with_the_bytes_of_earlier_ones),
          cmocka_unit_test(an_anthropic_cache_is_looked_for_where_it_was_written),
          cmocka_unit_test(what_a_client_wrote_a_server_reads),
          cmocka_unit_test(opaque_parts_go_back_only_where_they_came_from),
          cmocka_unit_test(arguments_that_are_not_json_are_sent_back_as_an_object),
          cmocka_unit_test(requests_of_no_sense_are_refused_with_a_place),
          cmocka_unit_test(too_many_results_are_refused_as_too_many),
          cmocka_unit_test(a_whole_answer_is_read_as_it_was_written),
          cmocka_unit_test(a_stream_is_the_same_wherever_it_is_cut),
          cmocka_unit_test(of_a_stream_that_was_cut_nothing_is_handed_out),
          cmocka_unit_test(line_ends_of_every_kind_are_understood),
          cmocka_unit_test(an_error_in_the_stream_ends_it),
          cmocka_unit_test(thinking_and_unknown_blocks_are_kept_as_they_came),
          cmocka_unit_test(calls_with_malformed_arguments_are_reported_as_bad),
          cmocka_unit_test(a_call_at_the_limit_of_tokens_is_bad_even_if_it_looks_whole),
          cmocka_unit_test(a_stop_with_calls_is_a_call),
          cmocka_unit_test(calls_without_index_or_id_and_with_the_same_id_stay_apart),
          cmocka_unit_test(a_call_without_a_name_is_bad),
          cmocka_unit_test(refusals_are_seen_in_every_format),
          cmocka_unit_test(an_incomplete_response_is_cut_at_its_length),
          cmocka_unit_test(a_failed_response_tells_what_it_used),
          cmocka_unit_test(garbage_is_told_from_an_answer),
          cmocka_unit_test(an_answer_without_end_is_cut_off_by_us),
          cmocka_unit_test(two_hundred_calls_are_read_and_a_thousand_are_too_many),
          cmocka_unit_test(failures_are_told_apart_by_words_and_status),
          cmocka_unit_test(what_providers_write_cannot_break_a_line),
          cmocka_unit_test(only_what_may_succeed_is_tried_again),
          cmocka_unit_test(failures_we_send_are_read_as_what_they_are),
          cmocka_unit_test(codecs_are_found_by_name))
