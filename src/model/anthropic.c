/* The codec of Anthropic Messages. */
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "model/anthropic_inner.h"
#include "model/inner.h"

/* ---- Writing a request ---- */

static void put_mark(struct jot *j) {
    jot_object(j, "cache_control");
    jot_string(j, "type", "ephemeral");
    jot_end(j, '}');
}

static void put_image(struct jot *j, const struct model_part *p) {
    jot_object(j, NULL);
    jot_string(j, "type", "image");
    jot_object(j, "source");
    jot_string(j, "type", "base64");
    jot_string(j, "media_type", p->media);
    jot_text(j, "data", p);
    jot_end(j, '}');
}

static void put_result(struct jot *j, const struct model_part *p) {
    jot_object(j, NULL);
    jot_string(j, "type", "tool_result");
    jot_string(j, "tool_use_id", p->id);
    jot_array(j, "content");
    if (p->n > 0) {
        jot_object(j, NULL);
        jot_string(j, "type", "text");
        jot_text(j, "text", p);
        jot_end(j, '}');
    }
    for (size_t i = 0; i < p->image_count; i++) {
        put_image(j, &p->images[i]);
        jot_end(j, '}');
    }
    jot_end(j, ']');
    if (p->failed)
        jot_bool(j, "is_error", true);
}

static void anthropic_put_call(struct jot *j, const struct model_part *p) {
    jot_object(j, NULL);
    jot_string(j, "type", "tool_use");
    jot_string(j, "id", p->id);
    jot_string(j, "name", p->name);
    jot_arguments(j, "input", p, false);
}

static void put_words(struct jot *j, const struct model_part *p) {
    jot_object(j, NULL);
    jot_string(j, "type", "text");
    jot_text(j, "text", p);
}

/* Whether a cache mark can be added to the part. Opaque parts are written as they came, so nothing
 * can be added to them. */
static bool can_be_marked(const struct model_part *p) {
    return p->kind != MODEL_OPAQUE;
}

/* Whether the part is sent to the server, which rejects empty texts. */
bool anthropic_is_sent(const struct model_part *p) {
    if (p->kind == MODEL_OPAQUE)
        return p->codec == &model_anthropic;
    return p->kind != MODEL_TEXT || p->n > 0;
}

void anthropic_put_part(struct jot *j, const struct model_part *p, bool marked) {
    static void (*const put[])(struct jot *, const struct model_part *) = {
        [MODEL_TEXT] = put_words,
        [MODEL_IMAGE] = put_image,
        [MODEL_CALL] = anthropic_put_call,
        [MODEL_RESULT] = put_result,
    };
    if (p->kind == MODEL_OPAQUE) {
        jot_raw(j, NULL, p->text);
        return;
    }
    put[p->kind](j, p);
    if (marked)
        put_mark(j);
    jot_end(j, '}');
}

static const char *const role_names[] = {
    [MODEL_USER] = "user",
    [MODEL_ASSISTANT] = "assistant",
    [MODEL_SYSTEM] = "system",
};

/* The server requires tool results to come first in a message. */
static size_t in_order(const struct model_message *m, const struct model_part **ret) {
    size_t n = 0;
    for (int results = 1; results >= 0; results--)
        for (size_t i = 0; i < m->count; i++)
            if (anthropic_is_sent(&m->parts[i]) && (m->parts[i].kind == MODEL_RESULT) == results)
                ret[n++] = &m->parts[i];
    return n;
}

static void put_message(struct jot *j, const struct model_message *m, bool marked) {
    const struct model_part **parts DEFER_FREE = xcalloc(m->count + 1, sizeof(*parts));
    size_t n = in_order(m, parts);
    if (n == 0)
        return;
    jot_object(j, NULL);
    jot_string(j, "role", role_names[m->role]);
    jot_array(j, "content");
    for (size_t i = 0; i < n; i++)
        anthropic_put_part(j, parts[i], marked && i == n - 1 && can_be_marked(parts[i]));
    jot_end(j, ']');
    jot_end(j, '}');
}

/*
 * The two newest user messages get a cache mark: the older is where the cache of the last request
 * ended, the newer is where the next request will look.
 */
static void put_messages(struct jot *j, const struct model_request *r) {
    size_t users = 0, seen = 0;
    for (size_t i = 0; i < r->message_count; i++)
        users += r->messages[i].role == MODEL_USER;
    jot_array(j, "messages");
    for (size_t i = 0; i < r->message_count; i++) {
        seen += r->messages[i].role == MODEL_USER;
        bool marked = r->cache_key && r->messages[i].role == MODEL_USER && seen + 1 >= users;
        put_message(j, &r->messages[i], marked);
    }
    jot_end(j, ']');
}

static void put_tools(struct jot *j, const struct model_request *r) {
    if (r->tool_count == 0)
        return;
    jot_array(j, "tools");
    for (size_t i = 0; i < r->tool_count; i++) {
        jot_object(j, NULL);
        jot_string(j, "name", r->tools[i].name);
        jot_string(j, "description", r->tools[i].description);
        jot_raw(j, "input_schema", r->tools[i].schema);
        if (r->cache_key && !r->system && i == r->tool_count - 1)
            put_mark(j);
        jot_end(j, '}');
    }
    jot_end(j, ']');
}

static void put_system(struct jot *j, const struct model_request *r) {
    if (!r->system)
        return;
    jot_array(j, "system");
    jot_object(j, NULL);
    jot_string(j, "type", "text");
    jot_string(j, "text", r->system);
    if (r->cache_key)
        put_mark(j);
    jot_end(j, '}');
    jot_end(j, ']');
}

static void put_choice(struct jot *j, const struct model_request *r) {
    static const char *const names[] = {[MODEL_CHOICE_AUTO] = "auto",
                                        [MODEL_CHOICE_ANY] = "any",
                                        [MODEL_CHOICE_NONE] = "none",
                                        [MODEL_CHOICE_NAMED] = "tool"};
    if (r->tool_count == 0 || r->choice == MODEL_CHOICE_AUTO)
        return;
    jot_object(j, "tool_choice");
    jot_string(j, "type", names[r->choice]);
    if (r->choice == MODEL_CHOICE_NAMED)
        jot_string(j, "name", r->choice_name);
    jot_end(j, '}');
}

/* Members that change between requests come after the messages, for the provider's cache. */
static void put_request(const struct model_request *r, const struct model_wire *wire,
                        struct jot *j) {
    (void)wire;
    jot_object(j, NULL);
    jot_string(j, "model", r->model);
    put_tools(j, r);
    put_system(j, r);
    put_messages(j, r);
    jot_u64(j, "max_tokens", r->max_tokens);
    put_choice(j, r);
    if (r->effort) {
        jot_object(j, "output_config");
        jot_string(j, "effort", r->effort);
        jot_end(j, '}');
    }
    jot_bool(j, "stream", r->stream);
    jot_end(j, '}');
}

/* ---- Reading a request ---- */

static bool base64_source(const json_t *block, const char **ret_media, const char **ret_data) {
    const json_t *source = json_object_get(block, "source");
    *ret_media = json_member(source, "media_type");
    *ret_data = json_member(source, "data");
    return json_member_is(source, "type", "base64") && *ret_media && *ret_data;
}

static int hear_result_block(struct hearing *h, struct model_part *p, const json_t *block,
                             struct buf *text) {
    const char *media, *data;
    const json_t *words = json_object_get(block, "text");
    if (json_member_is(block, "type", "text") && json_is_string(words))
        return buf_add(text, json_string_value(words), json_string_length(words)) ? 0 : -1;
    if (!json_member_is(block, "type", "image") || !base64_source(block, &media, &data))
        return 0;
    return hear_result_image(h, p, media, data);
}

static int hear_result(struct hearing *h, const json_t *block, struct err *err) {
    size_t i;
    const json_t *item, *content = json_object_get(block, "content");
    const char *id = json_member(block, "tool_use_id");
    struct buf text DEFER(buf_done) = BUF(MODEL_REQUEST_MAX);
    if (!id)
        return err_set(err, ERR_INVALID, "a tool_result has no tool_use_id");
    struct model_part *p = hear(h, MODEL_USER, MODEL_RESULT, err);
    if (!p)
        return -1;
    p->id = arena_copy(&h->heard->arena, id, strlen(id));
    p->failed = json_is_true(json_object_get(block, "is_error"));
    bool fits = !json_is_string(content) ||
                buf_add(&text, json_string_value(content), json_string_length(content));
    json_array_foreach(content, i, item) fits = fits && hear_result_block(h, p, item, &text) == 0;
    if (!fits)
        return err_set(err, ERR_LIMIT, "a tool_result is too large");
    p->text = arena_copy(&h->heard->arena, text.data, text.len);
    p->n = text.len;
    return 0;
}

static int hear_block(struct hearing *h, enum model_role role, const json_t *block,
                      struct err *err) {
    const char *media, *data;
    if (json_member_is(block, "type", "text"))
        return hear_text(h, role, json_object_get(block, "text"), err);
    if (json_member_is(block, "type", "tool_result") && role == MODEL_USER)
        return hear_result(h, block, err);
    if (json_member_is(block, "type", "tool_use") && role == MODEL_ASSISTANT) {
        size_t n;
        const char *input = json_text(&h->heard->arena, json_object_get(block, "input"), &n);
        return hear_call(h, json_member(block, "id"), json_member(block, "name"), input, n, err);
    }
    if (json_member_is(block, "type", "image") && base64_source(block, &media, &data)) {
        struct model_part *p = hear(h, role, MODEL_IMAGE, err);
        return p ? hear_image(h, p, media, data) : -1;
    }
    return json_is_object(block) ? hear_opaque(h, role, &model_anthropic, block, err)
                                 : err_set(err, ERR_INVALID, "a content block is not an object");
}

static int hear_message(struct hearing *h, const json_t *message, struct err *err) {
    size_t i;
    const json_t *block, *content = json_object_get(message, "content");
    int role = -1;
    for (int r = MODEL_USER; r <= MODEL_SYSTEM; r++)
        if (json_member_is(message, "role", role_names[r]))
            role = r;
    if (role < 0)
        return err_set(err, ERR_INVALID,
                       "the role of the message is not user, assistant or system");
    if (json_is_string(content))
        return hear_text(h, (enum model_role)role, content, err);
    if (!json_is_array(content))
        return err_set(err, ERR_INVALID, "the content of the message is not a string or a list");
    json_array_foreach(content, i, block) {
        if (hear_block(h, (enum model_role)role, block, err) < 0)
            return -1;
    }
    return 0;
}

static void hear_choice(struct hearing *h, const json_t *choice) {
    struct model_request *r = &h->heard->request;
    const char *name = json_member(choice, "name");
    if (json_member_is(choice, "type", "any"))
        r->choice = MODEL_CHOICE_ANY;
    if (json_member_is(choice, "type", "none"))
        r->choice = MODEL_CHOICE_NONE;
    if (json_member_is(choice, "type", "tool") && name) {
        r->choice = MODEL_CHOICE_NAMED;
        r->choice_name = arena_copy(&h->heard->arena, name, strlen(name));
    }
}

static int get_request(const json_t *root, struct hearing *h, struct err *err) {
    size_t i;
    const json_t *item, *system = json_object_get(root, "system");
    h->heard->request.max_tokens = json_count(root, "max_tokens");
    if (json_is_string(system) && json_member(root, "system"))
        hear_system(h, json_member(root, "system"));
    json_array_foreach(system, i, item) if (json_member(item, "text"))
        hear_system(h, json_member(item, "text"));
    json_array_foreach(json_object_get(root, "tools"), i, item) {
        if (json_object_get(item, "input_schema") && hear_tool(h, item, "input_schema", err) < 0)
            return -1;
    }
    hear_choice(h, json_object_get(root, "tool_choice"));
    json_array_foreach(json_object_get(root, "messages"), i, item) {
        if (hear_message(h, item, err) < 0)
            return err_wrap(err, "message %zu of the request", i);
    }
    return 0;
}

/* ---- Reading an answer ---- */

static const struct {
    const char *name;
    enum model_stop stop;
} stops[] = {
    {"end_turn", MODEL_STOP_DONE},
    {"tool_use", MODEL_STOP_CALLS},
    {"max_tokens", MODEL_STOP_LENGTH},
    {"stop_sequence", MODEL_STOP_DONE},
    {"pause_turn", MODEL_STOP_PAUSED},
    {"refusal", MODEL_STOP_REFUSED},
    {"model_context_window_exceeded", MODEL_STOP_CONTEXT_FULL},
};
enum { STOP_COUNT = sizeof(stops) / sizeof(*stops) };

/* An unknown stop reason counts as a normal end. */
static enum model_stop stop_named(const char *name) {
    for (size_t i = 0; i < STOP_COUNT; i++)
        if (strcmp(name, stops[i].name) == 0)
            return stops[i].stop;
    return MODEL_STOP_DONE;
}

const char *anthropic_stop_name(enum model_stop stop) {
    for (size_t i = 0; i < STOP_COUNT; i++)
        if (stops[i].stop == stop)
            return stops[i].name;
    return "end_turn";
}

static void set_count(uint64_t *to, const json_t *usage, const char *name) {
    if (json_is_integer(json_object_get(usage, name)))
        *to = json_count(usage, name);
}

/* Token counts are cumulative: a later count replaces an earlier one, and an absent count keeps
 * it. */
static void get_usage(struct model_answer *a, const json_t *usage) {
    uint64_t written = a->usage.cache_write + a->usage.cache_write_long;
    if (!json_is_object(usage))
        return;
    a->has_usage = true;
    set_count(&a->usage.in, usage, "input_tokens");
    set_count(&a->usage.cache_read, usage, "cache_read_input_tokens");
    set_count(&written, usage, "cache_creation_input_tokens");
    set_count(&a->usage.cache_write_long, json_object_get(usage, "cache_creation"),
              "ephemeral_1h_input_tokens");
    if (a->usage.cache_write_long > written)
        a->usage.cache_write_long = written;
    a->usage.cache_write = written - a->usage.cache_write_long;
    set_count(&a->usage.out, usage, "output_tokens");
    set_count(&a->usage.reasoning, json_object_get(usage, "output_tokens_details"),
              "thinking_tokens");
}

static void make_block(struct maker *m, const json_t *block, const char *input, size_t n,
                       const char *bad) {
    if (json_member_is(block, "type", "text"))
        make_json_text(m, json_object_get(block, "text"));
    else if (json_member_is(block, "type", "tool_use"))
        make_call(m, json_member(block, "id"), json_member(block, "name"), input, n, bad);
    else if (json_is_object(block))
        make_opaque(m, &model_anthropic, block);
}

static int get_answer(const json_t *root, struct maker *m, struct err *err) {
    size_t i;
    const json_t *block, *content = json_object_get(root, "content");
    struct model_answer *a = m->answer;
    const char *stop = json_member(root, "stop_reason");
    if (!json_is_array(content) || !stop)
        return model_failure_err(MODEL_FAIL_GARBAGE, "no content, or no stop_reason", err);
    a->id = arena_copy(&a->arena, json_member_or(root, "id", ""),
                       strlen(json_member_or(root, "id", "")));
    a->model = arena_copy(&a->arena, json_member_or(root, "model", ""),
                          strlen(json_member_or(root, "model", "")));
    a->stop = stop_named(stop);
    get_usage(a, json_object_get(root, "usage"));
    json_array_foreach(content, i, block) {
        size_t n = 0;
        struct arena scratch DEFER(arena_done) = {0};
        const json_t *input = json_object_get(block, "input");
        const char *text = input ? json_text(&scratch, input, &n) : "";
        make_block(m, block, text, n, NULL);
    }
    return 0;
}

/* ---- Reading a stream ---- */

static int on_start(struct model_stream *s, const json_t *root, struct err *err) {
    (void)err;
    const json_t *message = json_object_get(root, "message");
    stream_name(s, message);
    get_usage(&s->answer, json_object_get(message, "usage"));
    return 0;
}

static int on_block_start(struct model_stream *s, const json_t *root, struct err *err) {
    json_t *block = json_object_get(root, "content_block");
    uint64_t index = json_count(root, "index");
    if (!json_is_object(block) || stream_find(s, index))
        return stream_fail(s, MODEL_FAIL_GARBAGE, "invalid or repeated content_block_start", err);
    struct block *b = stream_block(s, index);
    if (!b)
        return stream_fail(s, MODEL_FAIL_LARGE, "too many content blocks", err);
    b->start = json_deep_copy(block);
    if (json_member_is(block, "type", "tool_use"))
        stream_saw(s, MODEL_SEEN_CALL, json_object_get(block, "name"));
    if (json_member_is(block, "type", "text"))
        stream_saw(s, MODEL_SEEN_TEXT, json_object_get(block, "text"));
    return 0;
}

static int add_citation(struct block *b, json_t *citation) {
    json_t *list = json_object_get(b->start, "citations");
    if (!json_is_array(list)) {
        json_object_set_new(b->start, "citations", json_array());
        list = json_object_get(b->start, "citations");
    }
    return citation ? json_array_append(list, citation) : 0;
}

static const struct {
    const char *type, *member;
    size_t to; /* offset of the buffer in struct block */
    int seen;  /* enum model_seen_kind of the piece; -1: not displayed */
} deltas[] = {
    {"text_delta", "text", offsetof(struct block, text), MODEL_SEEN_TEXT},
    {"thinking_delta", "thinking", offsetof(struct block, text), MODEL_SEEN_REASONING},
    {"input_json_delta", "partial_json", offsetof(struct block, input), -1},
    {"signature_delta", "signature", offsetof(struct block, signature), -1},
};

static int on_delta(struct model_stream *s, const json_t *root, struct err *err) {
    const json_t *delta = json_object_get(root, "delta");
    struct block *b = stream_find(s, json_count(root, "index"));
    if (!b || b->closed)
        return stream_fail(s, MODEL_FAIL_GARBAGE, "a delta does not belong to an open block", err);
    for (size_t i = 0; i < sizeof(deltas) / sizeof(*deltas); i++) {
        const json_t *text = json_object_get(delta, deltas[i].member);
        if (!json_member_is(delta, "type", deltas[i].type) || !json_is_string(text))
            continue;
        if (!stream_append(s, (struct buf *)((char *)b + deltas[i].to), text))
            return stream_fail(s, MODEL_FAIL_LARGE, NULL, err);
        if (deltas[i].seen >= 0)
            stream_saw(s, (enum model_seen_kind)deltas[i].seen, text);
    }
    if (json_member_is(delta, "type", "citations_delta"))
        add_citation(b, json_object_get(delta, "citation"));
    return 0;
}

static int on_block_stop(struct model_stream *s, const json_t *root, struct err *err) {
    struct block *b = stream_find(s, json_count(root, "index"));
    if (!b)
        return stream_fail(s, MODEL_FAIL_GARBAGE, "content_block_stop without an open block", err);
    b->closed = true;
    return 0;
}

static int on_message_delta(struct model_stream *s, const json_t *root, struct err *err) {
    (void)err;
    const char *stop = json_member(json_object_get(root, "delta"), "stop_reason");
    if (stop)
        s->stop = stop_named(stop);
    get_usage(&s->answer, json_object_get(root, "usage"));
    return 0;
}

static int on_stop(struct model_stream *s, const json_t *root, struct err *err) {
    (void)root;
    if (!s->stop)
        return stream_fail(s, MODEL_FAIL_GARBAGE, "the stream ends without a stop_reason", err);
    s->ended = true;
    return 0;
}

static int on_error(struct model_stream *s, const json_t *root, struct err *err) {
    const json_t *e = json_object_get(root, "error");
    enum model_failure f = model_failure_of(0, json_member(e, "type"), NULL);
    return stream_fail(s, f, json_member(e, "message"), err);
}

static const struct {
    const char *name;
    int (*fn)(struct model_stream *s, const json_t *root, struct err *err);
} events[] = {
    {"message_start", on_start},
    {"content_block_start", on_block_start},
    {"content_block_delta", on_delta},
    {"content_block_stop", on_block_stop},
    {"message_delta", on_message_delta},
    {"message_stop", on_stop},
    {"error", on_error},
};

/* Handles one event of the stream. Unknown events and pings are ignored. */
static int on_record(struct model_stream *s, const char *name, const json_t *root,
                     struct err *err) {
    const char *type = json_member_or(root, "type", name);
    for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++)
        if (strcmp(type, events[i].name) == 0)
            return events[i].fn(s, root, err);
    return 0;
}

/* Appends the collected deltas to a member of the opening block. */
static void complete(json_t *block, const char *member, const struct buf *more) {
    const json_t *first = json_object_get(block, member);
    struct buf whole DEFER(buf_done) = BUF(2 * (size_t)MODEL_ANSWER_MAX);
    if (more->len == 0)
        return;
    if ((!json_is_string(first) ||
         buf_add(&whole, json_string_value(first), json_string_length(first))) &&
        buf_add(&whole, more->data, more->len))
        json_object_set_new(block, member, json_stringn(whole.data, whole.len));
}

static int anthropic_on_end(struct model_stream *s, struct err *err) {
    (void)err;
    for (size_t i = 0; i < s->count; i++) {
        struct block *b = &s->blocks[i];
        bool call = json_member_is(b->start, "type", "tool_use");
        complete(b->start, json_member_is(b->start, "type", "thinking") ? "thinking" : "text",
                 &b->text);
        complete(b->start, "signature", &b->signature);
        if (!call && b->input.len > 0) {
            json_t *input = json_loadb(b->input.data, b->input.len, 0, NULL);
            json_object_set_new(b->start, "input", input ? input : json_object());
        }
        size_t n = b->input.len;
        struct arena scratch DEFER(arena_done) = {0};
        const char *text = n ? b->input.data : "";
        if (call && n == 0 && json_object_size(json_object_get(b->start, "input")) > 0)
            text = json_text(&scratch, json_object_get(b->start, "input"), &n);
        make_block(&s->maker, b->start, text, n, b->closed ? NULL : "the call was never finished");
    }
    return 0;
}

/* ---- Writing an answer ---- */

const struct model_codec model_anthropic = {
    .name = "anthropic",
    .path = "/v1/messages",
    .put_request = put_request,
    .get_request = get_request,
    .put_answer = anthropic_put_answer,
    .get_answer = get_answer,
    .put_stream = anthropic_put_stream,
    .put_failure = anthropic_put_failure,
    .failure_event = "error",
    .on_record = on_record,
    .on_end = anthropic_on_end,
};
