/* The codec of OpenAI Chat Completions, which many other servers use too. */
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/utf8.h"
#include "io/sse.h"
#include "model/openai.h"

static const struct openai_usage_names usage_names = {
    "prompt_tokens", "completion_tokens", "prompt_tokens_details", "completion_tokens_details"};

/* ---- Writing a request ---- */

/* as_it_is: Carrel is the server here, so the client gets the model's arguments unchanged. */
static void chat_put_call(struct jot *j, const struct model_part *p, bool as_it_is) {
    jot_object(j, NULL);
    jot_string(j, "id", p->id);
    jot_string(j, "type", "function");
    jot_object(j, "function");
    jot_string(j, "name", p->name);
    if (as_it_is)
        jot_text(j, "arguments", p);
    else
        jot_arguments(j, "arguments", p, true);
    jot_end(j, '}');
    jot_end(j, '}');
}

/* Writes all texts of a message as one string; null if the message has no text. */
static void put_content(struct jot *j, const struct model_part *parts, size_t count) {
    struct buf all DEFER(buf_done) = BUF(MODEL_REQUEST_MAX);
    for (size_t i = 0; i < count; i++)
        if (parts[i].kind == MODEL_TEXT && !buf_add(&all, parts[i].text, parts[i].n))
            j->failed = true;
    if (all.len > 0)
        jot_bytes(j, "content", all.data, all.len);
    else
        jot_null(j, "content");
}

static size_t count_kind(const struct model_part *parts, size_t count, enum model_part_kind kind) {
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += parts[i].kind == kind;
    return n;
}

static void put_spoken(struct jot *j, const struct model_part *parts, size_t count, bool as_it_is) {
    put_content(j, parts, count);
    if (count_kind(parts, count, MODEL_CALL) == 0)
        return;
    jot_array(j, "tool_calls");
    for (size_t i = 0; i < count; i++)
        if (parts[i].kind == MODEL_CALL)
            chat_put_call(j, &parts[i], as_it_is);
    jot_end(j, ']');
}

static void put_assistant(struct jot *j, const struct model_message *m) {
    if (count_kind(m->parts, m->count, MODEL_TEXT) + count_kind(m->parts, m->count, MODEL_CALL) ==
        0)
        return;
    jot_object(j, NULL);
    jot_string(j, "role", "assistant");
    put_spoken(j, m->parts, m->count, false);
    jot_end(j, '}');
}

static void put_results(struct jot *j, const struct model_message *m) {
    for (size_t i = 0; i < m->count; i++) {
        if (m->parts[i].kind != MODEL_RESULT)
            continue;
        jot_object(j, NULL);
        jot_string(j, "role", "tool");
        jot_string(j, "tool_call_id", m->parts[i].id);
        jot_outcome(j, "content", &m->parts[i]);
        jot_end(j, '}');
    }
}

static void put_image(struct jot *j, const struct model_part *p) {
    jot_object(j, NULL);
    jot_string(j, "type", "image_url");
    jot_object(j, "image_url");
    openai_put_image_url(j, "url", p);
    jot_end(j, '}');
    jot_end(j, '}');
}

static void put_user_part(struct jot *j, const struct model_part *p) {
    if (p->kind == MODEL_TEXT && p->n > 0) {
        jot_object(j, NULL);
        jot_string(j, "type", "text");
        jot_text(j, "text", p);
        jot_end(j, '}');
    } else if (p->kind == MODEL_IMAGE) {
        put_image(j, p);
    } else if (p->kind == MODEL_OPAQUE && p->codec == &model_chat) {
        jot_raw(j, NULL, p->text);
    }
    /* In this format tool results hold text only, so images go into a user message. */
    for (size_t i = 0; i < p->image_count; i++)
        put_image(j, &p->images[i]);
}

static bool user_speaks(const struct model_message *m) {
    for (size_t i = 0; i < m->count; i++) {
        const struct model_part *p = &m->parts[i];
        if ((p->kind == MODEL_TEXT && p->n > 0) || p->kind == MODEL_IMAGE || p->image_count > 0 ||
            (p->kind == MODEL_OPAQUE && p->codec == &model_chat))
            return true;
    }
    return false;
}

static void put_user(struct jot *j, const struct model_message *m) {
    put_results(j, m);
    if (!user_speaks(m))
        return;
    jot_object(j, NULL);
    jot_string(j, "role", "user");
    jot_array(j, "content");
    for (size_t i = 0; i < m->count; i++)
        put_user_part(j, &m->parts[i]);
    jot_end(j, ']');
    jot_end(j, '}');
}

static void put_system_text(struct jot *j, const char *text, size_t n) {
    jot_object(j, NULL);
    jot_string(j, "role", "system");
    jot_bytes(j, "content", text, n);
    jot_end(j, '}');
}

static void put_messages(struct jot *j, const struct model_request *r) {
    jot_array(j, "messages");
    if (r->system)
        put_system_text(j, r->system, strlen(r->system));
    for (size_t i = 0; i < r->message_count; i++) {
        const struct model_message *m = &r->messages[i];
        if (m->role == MODEL_USER)
            put_user(j, m);
        if (m->role == MODEL_ASSISTANT)
            put_assistant(j, m);
        for (size_t k = 0; m->role == MODEL_SYSTEM && k < m->count; k++)
            if (m->parts[k].kind == MODEL_TEXT)
                put_system_text(j, m->parts[k].text, m->parts[k].n);
    }
    jot_end(j, ']');
}

static void put_tools(struct jot *j, const struct model_request *r) {
    if (r->tool_count == 0)
        return;
    jot_array(j, "tools");
    for (size_t i = 0; i < r->tool_count; i++) {
        jot_object(j, NULL);
        jot_string(j, "type", "function");
        jot_object(j, "function");
        jot_string(j, "name", r->tools[i].name);
        jot_string(j, "description", r->tools[i].description);
        jot_raw(j, "parameters", r->tools[i].schema);
        jot_end(j, '}');
        jot_end(j, '}');
    }
    jot_end(j, ']');
}

static void put_request(const struct model_request *r, const struct model_wire *wire,
                        struct jot *j) {
    jot_object(j, NULL);
    jot_string(j, "model", r->model);
    put_tools(j, r);
    put_messages(j, r);
    jot_u64(j, wire->old_max_tokens ? "max_tokens" : "max_completion_tokens", r->max_tokens);
    openai_put_choice(j, r, true);
    if (r->effort)
        jot_string(j, "reasoning_effort", r->effort);
    if (r->cache_key)
        jot_string(j, "prompt_cache_key", r->cache_key);
    jot_bool(j, "stream", r->stream);
    if (r->stream) {
        jot_object(j, "stream_options");
        jot_bool(j, "include_usage", true);
        jot_end(j, '}');
    }
    jot_end(j, '}');
}

/* ---- Reading a request ---- */

static int hear_user_part(struct hearing *h, const json_t *part, struct err *err) {
    const char *media, *data;
    const char *url = json_member(json_object_get(part, "image_url"), "url");
    if (json_member_is(part, "type", "text"))
        return hear_text(h, MODEL_USER, json_object_get(part, "text"), err);
    if (!json_is_object(part))
        return err_set(err, ERR_INVALID, "a content part is not an object");
    if (!json_member_is(part, "type", "image_url") ||
        !data_url(&h->heard->arena, url, &media, &data))
        return hear_opaque(h, MODEL_USER, &model_chat, part, err);
    struct model_part *p = hear(h, MODEL_USER, MODEL_IMAGE, err);
    return p ? hear_image(h, p, media, data) : -1;
}

static int hear_user(struct hearing *h, const json_t *message, struct err *err) {
    size_t i;
    const json_t *part, *content = json_object_get(message, "content");
    if (json_is_string(content))
        return hear_text(h, MODEL_USER, content, err);
    if (!json_is_array(content))
        return err_set(err, ERR_INVALID, "the content of the message is not a string or a list");
    json_array_foreach(content, i, part) {
        if (hear_user_part(h, part, err) < 0)
            return -1;
    }
    return 0;
}

/* Appends the text of a content, which is a string or a list of parts. */
static bool chat_gather(const json_t *content, struct buf *to) {
    size_t i;
    const json_t *part;
    if (json_is_string(content))
        return buf_add(to, json_string_value(content), json_string_length(content));
    json_array_foreach(content, i, part) {
        const json_t *text = json_object_get(part, "text");
        if (json_is_string(text) && !buf_add(to, json_string_value(text), json_string_length(text)))
            return false;
    }
    return true;
}

static int hear_assistant(struct hearing *h, const json_t *message, struct err *err) {
    size_t i;
    const json_t *call;
    struct buf text DEFER(buf_done) = BUF(MODEL_REQUEST_MAX);
    if (!chat_gather(json_object_get(message, "content"), &text))
        return err_set(err, ERR_LIMIT, "the content of the message is too large");
    json_t *whole DEFER(json_decrefp) = json_stringn(text.data ? text.data : "", text.len);
    if (whole && hear_text(h, MODEL_ASSISTANT, whole, err) < 0)
        return -1;
    json_array_foreach(json_object_get(message, "tool_calls"), i, call) {
        const json_t *f = json_object_get(call, "function");
        const json_t *arguments = json_object_get(f, "arguments");
        const char *args = json_string_value(arguments);
        if (hear_call(h, json_member(call, "id"), json_member(f, "name"), args ? args : "",
                      json_string_length(arguments), err) < 0)
            return -1;
    }
    return 0;
}

static int hear_tool_message(struct hearing *h, const json_t *message, struct err *err) {
    const char *id = json_member(message, "tool_call_id");
    struct buf text DEFER(buf_done) = BUF(MODEL_REQUEST_MAX);
    if (!id)
        return err_set(err, ERR_INVALID, "a tool message has no tool_call_id");
    struct model_part *p = hear(h, MODEL_USER, MODEL_RESULT, err);
    if (!p)
        return -1;
    if (!chat_gather(json_object_get(message, "content"), &text))
        return err_set(err, ERR_LIMIT, "the content of the message is too large");
    p->id = arena_copy(&h->heard->arena, id, strlen(id));
    hear_outcome(h, p, text.data ? text.data : "", text.len);
    return 0;
}

/* System messages before the conversation form the system prompt; later ones stay in place. */
static int hear_instruction(struct hearing *h, const json_t *message, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(MODEL_REQUEST_MAX);
    if (!chat_gather(json_object_get(message, "content"), &text))
        return err_set(err, ERR_LIMIT, "the content of the message is too large");
    if (h->count == 0) {
        hear_system(h, text.data ? text.data : "");
        return 0;
    }
    json_t *whole DEFER(json_decrefp) = json_stringn(text.data ? text.data : "", text.len);
    return hear_text(h, MODEL_SYSTEM, whole, err);
}

static const struct {
    const char *role;
    int (*fn)(struct hearing *h, const json_t *message, struct err *err);
} roles[] = {
    {"user", hear_user},          {"assistant", hear_assistant},   {"tool", hear_tool_message},
    {"system", hear_instruction}, {"developer", hear_instruction},
};

static int hear_message(struct hearing *h, const json_t *message, struct err *err) {
    for (size_t i = 0; i < sizeof(roles) / sizeof(*roles); i++)
        if (json_member_is(message, "role", roles[i].role))
            return roles[i].fn(h, message, err);
    return err_set(err, ERR_INVALID,
                   "the role of the message is not user, assistant, tool, system or developer");
}

static int get_request(const json_t *root, struct hearing *h, struct err *err) {
    size_t i;
    const json_t *item;
    struct model_request *r = &h->heard->request;
    r->max_tokens = json_count(root, "max_completion_tokens");
    if (r->max_tokens == 0)
        r->max_tokens = json_count(root, "max_tokens");
    json_array_foreach(json_object_get(root, "tools"), i, item) {
        const json_t *f = json_object_get(item, "function");
        if (f && hear_tool(h, f, "parameters", err) < 0)
            return -1;
    }
    openai_get_choice(h, json_object_get(root, "tool_choice"));
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
    {"stop", MODEL_STOP_DONE},
    {"tool_calls", MODEL_STOP_CALLS},
    {"length", MODEL_STOP_LENGTH},
    {"content_filter", MODEL_STOP_REFUSED},
};

static enum model_stop stop_named(const char *name) {
    for (size_t i = 0; i < sizeof(stops) / sizeof(*stops); i++)
        if (strcmp(name, stops[i].name) == 0)
            return stops[i].stop;
    return MODEL_STOP_DONE;
}

static const char *stop_name(enum model_stop stop) {
    for (size_t i = 0; i < sizeof(stops) / sizeof(*stops); i++)
        if (stops[i].stop == stop)
            return stops[i].name;
    return stop == MODEL_STOP_CONTEXT_FULL ? "length" : "stop";
}

static int get_answer(const json_t *root, struct maker *m, struct err *err) {
    size_t i;
    const json_t *call, *choice = json_array_get(json_object_get(root, "choices"), 0);
    const json_t *message = json_object_get(choice, "message");
    const json_t *refusal = json_object_get(message, "refusal");
    if (!json_is_object(message))
        return model_failure_err(MODEL_FAIL_GARBAGE, "the answer has no message", err);
    openai_name_answer(m->answer, root);
    m->answer->stop = stop_named(json_member_or(choice, "finish_reason", "stop"));
    openai_get_usage(m->answer, json_object_get(root, "usage"), &usage_names);
    make_json_text(m, json_object_get(message, "content"));
    make_json_text(m, refusal);
    m->refused = json_string_length(refusal) > 0;
    json_array_foreach(json_object_get(message, "tool_calls"), i, call) {
        const json_t *f = json_object_get(call, "function");
        const json_t *arguments = json_object_get(f, "arguments");
        const char *text = json_string_value(arguments);
        make_call(m, json_member(call, "id"), json_member(f, "name"), text ? text : "",
                  json_string_length(arguments), NULL);
    }
    return 0;
}

/* ---- Reading a stream ---- */

/* Some servers omit the index: then an id starts a new call, and a delta without id continues it.
 */
static struct block *call_block(struct model_stream *s, const json_t *call) {
    const json_t *index = json_object_get(call, "index");
    const char *id = json_member(call, "id");
    if (json_is_integer(index))
        return stream_block(s, json_count(call, "index"));
    if (id && id[0])
        return stream_block(s, s->count ? s->blocks[s->count - 1].index + 1 : 0);
    return s->count ? &s->blocks[s->count - 1] : NULL;
}

static void chat_keep(char **slot, const char *value) {
    if (value && value[0] && !*slot)
        *slot = xstrndup(value, 512);
}

static int on_call(struct model_stream *s, const json_t *call, struct err *err) {
    const json_t *f = json_object_get(call, "function");
    const json_t *arguments = json_object_get(f, "arguments");
    struct block *b = call_block(s, call);
    if (!b)
        return stream_fail(s, MODEL_FAIL_GARBAGE, "a delta does not belong to a tool call", err);
    if (!b->name && json_member(f, "name"))
        stream_saw(s, MODEL_SEEN_CALL, json_object_get(f, "name"));
    chat_keep(&b->id, json_member(call, "id"));
    chat_keep(&b->name, json_member(f, "name"));
    if (json_is_string(arguments) && !stream_append(s, &b->input, arguments))
        return stream_fail(s, MODEL_FAIL_LARGE, NULL, err);
    return 0;
}

static int on_text(struct model_stream *s, const json_t *delta, const char *name, struct err *err) {
    const json_t *text = json_object_get(delta, name);
    if (!json_is_string(text))
        return 0;
    stream_saw(s, MODEL_SEEN_TEXT, text);
    return stream_append(s, &s->text, text) ? 0 : stream_fail(s, MODEL_FAIL_LARGE, NULL, err);
}

static int on_delta(struct model_stream *s, const json_t *delta, struct err *err) {
    size_t i;
    const json_t *call, *reasoning = json_object_get(delta, "reasoning_content");
    if (!reasoning)
        reasoning = json_object_get(delta, "reasoning");
    if (json_is_string(reasoning))
        stream_saw(s, MODEL_SEEN_REASONING, reasoning);
    if (json_string_length(json_object_get(delta, "refusal")) > 0)
        s->maker.refused = true;
    if (on_text(s, delta, "content", err) < 0 || on_text(s, delta, "refusal", err) < 0)
        return -1;
    json_array_foreach(json_object_get(delta, "tool_calls"), i, call) {
        if (on_call(s, call, err) < 0)
            return -1;
    }
    return 0;
}

static int on_record(struct model_stream *s, const char *name, const json_t *root,
                     struct err *err) {
    (void)name;
    const json_t *e = json_object_get(root, "error");
    const json_t *choice = json_array_get(json_object_get(root, "choices"), 0);
    if (json_is_object(e) || json_is_string(e)) {
        const char *code = json_member(e, "code");
        enum model_failure f = model_failure_of(0, json_member(e, "type"), code);
        return stream_fail(s, f == MODEL_FAIL_GARBAGE ? MODEL_FAIL_SERVER : f,
                           json_member(e, "message"), err);
    }
    stream_name(s, root);
    openai_get_usage(&s->answer, json_object_get(root, "usage"), &usage_names);
    if (json_count(choice, "index") != 0)
        return 0;
    const char *stop = json_member(choice, "finish_reason");
    if (stop)
        s->stop = stop_named(stop);
    return on_delta(s, json_object_get(choice, "delta"), err);
}

static int chat_on_end(struct model_stream *s, struct err *err) {
    if (!s->stop)
        return stream_fail(s, MODEL_FAIL_CUT, "the stream ends without a finish_reason", err);
    make_text(&s->maker, s->text.data, s->text.len);
    for (size_t i = 0; i < s->count; i++) {
        struct block *b = &s->blocks[i];
        make_call(&s->maker, b->id, b->name, b->input.data ? b->input.data : "", b->input.len,
                  NULL);
    }
    return 0;
}

/* ---- Writing an answer ---- */

static void chat_put_head(struct jot *j, const struct model_answer *a, const char *object) {
    jot_string(j, "id", a->id);
    jot_string(j, "object", object);
    jot_i64(j, "created", time(NULL));
    jot_string(j, "model", a->model);
}

static void put_answer(const struct model_answer *a, struct jot *j) {
    jot_object(j, NULL);
    chat_put_head(j, a, "chat.completion");
    jot_array(j, "choices");
    jot_object(j, NULL);
    jot_u64(j, "index", 0);
    jot_object(j, "message");
    jot_string(j, "role", "assistant");
    put_spoken(j, a->parts, a->count, true);
    jot_null(j, "refusal");
    jot_end(j, '}');
    jot_null(j, "logprobs");
    jot_string(j, "finish_reason", stop_name(a->stop));
    jot_end(j, '}');
    jot_end(j, ']');
    if (a->has_usage)
        openai_put_usage(j, &a->usage, &usage_names);
    jot_end(j, '}');
}

static void chunk_begin(struct record *r, const struct model_answer *a) {
    record_begin(r, NULL);
    chat_put_head(&r->jot, a, "chat.completion.chunk");
    jot_array(&r->jot, "choices");
    jot_object(&r->jot, NULL);
    jot_u64(&r->jot, "index", 0);
    jot_object(&r->jot, "delta");
}

static bool chunk_end(struct record *r, const char *stop, struct buf *to) {
    jot_end(&r->jot, '}');
    if (stop)
        jot_string(&r->jot, "finish_reason", stop);
    else
        jot_null(&r->jot, "finish_reason");
    jot_end(&r->jot, '}');
    jot_end(&r->jot, ']');
    return record_end(r, NULL, to);
}

static bool put_text_chunk(const struct model_answer *a, const char *text, size_t n,
                           struct buf *to) {
    struct record r;
    chunk_begin(&r, a);
    jot_bytes(&r.jot, "content", text, n);
    return chunk_end(&r, NULL, to);
}

/* The first piece of a call has its id and name; later pieces have only arguments. */
static bool put_call_chunk(const struct model_answer *a, const struct model_part *p, size_t index,
                           const char *text, size_t n, struct buf *to) {
    struct record r;
    chunk_begin(&r, a);
    jot_array(&r.jot, "tool_calls");
    jot_object(&r.jot, NULL);
    jot_u64(&r.jot, "index", index);
    if (p) {
        jot_string(&r.jot, "id", p->id);
        jot_string(&r.jot, "type", "function");
    }
    jot_object(&r.jot, "function");
    if (p)
        jot_string(&r.jot, "name", p->name);
    jot_bytes(&r.jot, "arguments", text, n);
    jot_end(&r.jot, '}');
    jot_end(&r.jot, '}');
    jot_end(&r.jot, ']');
    return chunk_end(&r, NULL, to);
}

static bool put_part(const struct model_answer *a, const struct model_part *p, size_t *calls,
                     struct buf *to) {
    size_t half = utf8_end(p->text, p->n / 2);
    if (p->kind == MODEL_TEXT)
        return put_text_chunk(a, p->text, half, to) &&
               put_text_chunk(a, p->text + half, p->n - half, to);
    if (p->kind != MODEL_CALL)
        return true;
    size_t index = (*calls)++;
    return put_call_chunk(a, p, index, "", 0, to) &&
           put_call_chunk(a, NULL, index, p->text, half, to) &&
           put_call_chunk(a, NULL, index, p->text + half, p->n - half, to);
}

static bool put_usage_chunk(const struct model_answer *a, struct buf *to) {
    struct record r;
    record_begin(&r, NULL);
    chat_put_head(&r.jot, a, "chat.completion.chunk");
    jot_array(&r.jot, "choices");
    jot_end(&r.jot, ']');
    openai_put_usage(&r.jot, &a->usage, &usage_names);
    return record_end(&r, NULL, to);
}

static bool put_stream(const struct model_answer *a, struct buf *to) {
    struct record r;
    size_t calls = 0;
    chunk_begin(&r, a);
    jot_string(&r.jot, "role", "assistant");
    jot_string(&r.jot, "content", "");
    bool ok = chunk_end(&r, NULL, to);
    for (size_t i = 0; ok && i < a->count; i++)
        ok = put_part(a, &a->parts[i], &calls, to);
    chunk_begin(&r, a);
    ok = chunk_end(&r, stop_name(a->stop), to) && ok;
    if (ok && a->has_usage)
        ok = put_usage_chunk(a, to);
    struct sse_event last = {.data = "[DONE]", .n = 6};
    return ok && sse_put(to, &last);
}

const struct model_codec model_chat = {
    .name = "chat",
    .path = "/chat/completions",
    .put_request = put_request,
    .get_request = get_request,
    .put_answer = put_answer,
    .get_answer = get_answer,
    .put_stream = put_stream,
    .put_failure = openai_put_failure,
    .on_record = on_record,
    .on_end = chat_on_end,
    .last_word = "[DONE]",
};
