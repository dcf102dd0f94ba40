/* The codec of OpenAI Responses, without server state: every request has the whole conversation. */
#include <string.h>

#include "base/defer.h"
#include "base/utf8.h"
#include "model/openai.h"
#include "model/responses_inner.h"

const struct openai_usage_names responses_usage_names = {
    "input_tokens", "output_tokens", "input_tokens_details", "output_tokens_details"};

/* ---- Writing a request ---- */

static void put_words(struct jot *j, const char *type, const struct model_part *p) {
    jot_object(j, NULL);
    jot_string(j, "type", type);
    jot_text(j, "text", p);
    jot_end(j, '}');
}

static void put_image(struct jot *j, const struct model_part *p) {
    jot_object(j, NULL);
    jot_string(j, "type", "input_image");
    openai_put_image_url(j, "image_url", p);
    jot_end(j, '}');
}

static void item_begin(struct jot *j, const char *role) {
    jot_object(j, NULL);
    jot_string(j, "type", "message");
    jot_string(j, "role", role);
    jot_array(j, "content");
}

static void item_end(struct jot *j) {
    jot_end(j, ']');
    jot_end(j, '}');
}

static void put_result(struct jot *j, const struct model_part *p) {
    jot_object(j, NULL);
    jot_string(j, "type", "function_call_output");
    jot_string(j, "call_id", p->id);
    if (p->image_count == 0) {
        jot_outcome(j, "output", p);
    } else {
        jot_array(j, "output");
        jot_object(j, NULL);
        jot_string(j, "type", "input_text");
        jot_outcome(j, "text", p);
        jot_end(j, '}');
        for (size_t i = 0; i < p->image_count; i++)
            put_image(j, &p->images[i]);
        jot_end(j, ']');
    }
    jot_end(j, '}');
}

static void responses_put_call(struct jot *j, const struct model_part *p) {
    jot_object(j, NULL);
    jot_string(j, "type", "function_call");
    jot_string(j, "call_id", p->id);
    jot_string(j, "name", p->name);
    jot_arguments(j, "arguments", p, true);
    jot_end(j, '}');
}

static bool is_said(const struct model_part *p) {
    return (p->kind == MODEL_TEXT && p->n > 0) || p->kind == MODEL_IMAGE;
}

/* Writes the texts and images of a user's message as one item. */
static void put_user(struct jot *j, const struct model_message *m) {
    size_t said = 0;
    for (size_t i = 0; i < m->count; i++) {
        if (m->parts[i].kind == MODEL_RESULT)
            put_result(j, &m->parts[i]);
        if (m->parts[i].kind == MODEL_OPAQUE && m->parts[i].codec == &model_responses)
            jot_raw(j, NULL, m->parts[i].text);
        said += is_said(&m->parts[i]);
    }
    if (said == 0)
        return;
    item_begin(j, m->role == MODEL_SYSTEM ? "developer" : "user");
    for (size_t i = 0; i < m->count; i++) {
        if (m->parts[i].kind == MODEL_IMAGE)
            put_image(j, &m->parts[i]);
        else if (is_said(&m->parts[i]))
            put_words(j, "input_text", &m->parts[i]);
    }
    item_end(j);
}

/* Keeps the order of the parts: reasoning must come before the call that it led to. */
static void put_assistant(struct jot *j, const struct model_message *m) {
    for (size_t i = 0; i < m->count; i++) {
        const struct model_part *p = &m->parts[i];
        if (p->kind == MODEL_CALL)
            responses_put_call(j, p);
        if (p->kind == MODEL_OPAQUE && p->codec == &model_responses)
            jot_raw(j, NULL, p->text);
        if (p->kind != MODEL_TEXT || p->n == 0)
            continue;
        item_begin(j, "assistant");
        put_words(j, "output_text", p);
        item_end(j);
    }
}

static void put_tools(struct jot *j, const struct model_request *r) {
    if (r->tool_count == 0)
        return;
    jot_array(j, "tools");
    for (size_t i = 0; i < r->tool_count; i++) {
        jot_object(j, NULL);
        jot_string(j, "type", "function");
        jot_string(j, "name", r->tools[i].name);
        jot_string(j, "description", r->tools[i].description);
        jot_raw(j, "parameters", r->tools[i].schema);
        jot_bool(j, "strict", false);
        jot_end(j, '}');
    }
    jot_end(j, ']');
}

static void put_request(const struct model_request *r, const struct model_wire *wire,
                        struct jot *j) {
    (void)wire;
    jot_object(j, NULL);
    jot_string(j, "model", r->model);
    put_tools(j, r);
    if (r->system)
        jot_string(j, "instructions", r->system);
    jot_array(j, "input");
    for (size_t i = 0; i < r->message_count; i++) {
        if (r->messages[i].role == MODEL_ASSISTANT)
            put_assistant(j, &r->messages[i]);
        else
            put_user(j, &r->messages[i]);
    }
    jot_end(j, ']');
    jot_u64(j, "max_output_tokens", r->max_tokens);
    openai_put_choice(j, r, false);
    if (r->effort) {
        jot_object(j, "reasoning");
        jot_string(j, "effort", r->effort);
        jot_end(j, '}');
    }
    if (r->cache_key)
        jot_string(j, "prompt_cache_key", r->cache_key);
    jot_bool(j, "store", false);
    jot_array(j, "include");
    jot_string(j, NULL, "reasoning.encrypted_content");
    jot_end(j, ']');
    jot_bool(j, "stream", r->stream);
    jot_end(j, '}');
}

/* ---- Reading a request ---- */

static int hear_content_part(struct hearing *h, enum model_role role, const json_t *part,
                             struct err *err) {
    const char *media, *data;
    if (json_is_string(json_object_get(part, "text")))
        return hear_text(h, role, json_object_get(part, "text"), err);
    if (!json_member_is(part, "type", "input_image") ||
        !data_url(&h->heard->arena, json_member(part, "image_url"), &media, &data))
        return 0;
    struct model_part *p = hear(h, role, MODEL_IMAGE, err);
    return p ? hear_image(h, p, media, data) : -1;
}

static int hear_content(struct hearing *h, enum model_role role, const json_t *content,
                        struct err *err) {
    size_t i;
    const json_t *part;
    if (json_is_string(content))
        return hear_text(h, role, content, err);
    if (!json_is_array(content))
        return err_set(err, ERR_INVALID, "the content of the message is not a string or a list");
    json_array_foreach(content, i, part) {
        if (hear_content_part(h, role, part, err) < 0)
            return -1;
    }
    return 0;
}

static void hear_instructions(struct hearing *h, const json_t *content) {
    size_t i;
    const json_t *part;
    if (json_is_string(content))
        hear_system(h, json_string_value(content));
    json_array_foreach(content, i, part) if (json_member(part, "text"))
        hear_system(h, json_member(part, "text"));
}

static int hear_message(struct hearing *h, const json_t *item, struct err *err) {
    const json_t *content = json_object_get(item, "content");
    if (json_member_is(item, "role", "user"))
        return hear_content(h, MODEL_USER, content, err);
    if (json_member_is(item, "role", "assistant"))
        return hear_content(h, MODEL_ASSISTANT, content, err);
    if (!json_member_is(item, "role", "system") && !json_member_is(item, "role", "developer"))
        return err_set(err, ERR_INVALID,
                       "the role of the message is not user, assistant, system or developer");
    if (h->count > 0)
        return hear_content(h, MODEL_SYSTEM, content, err);
    hear_instructions(h, content);
    return 0;
}

static int hear_output_part(struct hearing *h, struct model_part *p, const json_t *part,
                            struct buf *text) {
    const char *media, *data;
    const json_t *words = json_object_get(part, "text");
    if (json_is_string(words))
        return buf_add(text, json_string_value(words), json_string_length(words)) ? 0 : -1;
    if (!data_url(&h->heard->arena, json_member(part, "image_url"), &media, &data))
        return 0;
    return hear_result_image(h, p, media, data);
}

static int hear_output(struct hearing *h, const json_t *item, struct err *err) {
    size_t i;
    const json_t *part, *output = json_object_get(item, "output");
    const char *id = json_member(item, "call_id");
    struct buf text DEFER(buf_done) = BUF(MODEL_REQUEST_MAX);
    if (!id)
        return err_set(err, ERR_INVALID, "a function_call_output has no call_id");
    struct model_part *p = hear(h, MODEL_USER, MODEL_RESULT, err);
    if (!p)
        return -1;
    p->id = arena_copy(&h->heard->arena, id, strlen(id));
    bool fits = !json_is_string(output) ||
                buf_add(&text, json_string_value(output), json_string_length(output));
    json_array_foreach(output, i, part) fits = fits && hear_output_part(h, p, part, &text) == 0;
    if (!fits)
        return err_set(err, ERR_LIMIT, "a function_call_output is too large");
    hear_outcome(h, p, text.data ? text.data : "", text.len);
    return 0;
}

static int hear_item(struct hearing *h, const json_t *item, struct err *err) {
    const json_t *arguments = json_object_get(item, "arguments");
    if (!json_is_object(item))
        return err_set(err, ERR_INVALID, "the item is not a JSON object");
    if (!json_member(item, "type") || json_member_is(item, "type", "message"))
        return hear_message(h, item, err);
    if (json_member_is(item, "type", "function_call_output"))
        return hear_output(h, item, err);
    if (json_member_is(item, "type", "function_call")) {
        const char *text = json_string_value(arguments);
        return hear_call(h, json_member(item, "call_id"), json_member(item, "name"),
                         text ? text : "", json_string_length(arguments), err);
    }
    return hear_opaque(h, MODEL_ASSISTANT, &model_responses, item, err);
}

static int get_request(const json_t *root, struct hearing *h, struct err *err) {
    size_t i;
    const json_t *item, *input = json_object_get(root, "input");
    h->heard->request.max_tokens = json_count(root, "max_output_tokens");
    hear_instructions(h, json_object_get(root, "instructions"));
    json_array_foreach(json_object_get(root, "tools"), i, item) {
        if (json_member_is(item, "type", "function") && hear_tool(h, item, "parameters", err) < 0)
            return -1;
    }
    openai_get_choice(h, json_object_get(root, "tool_choice"));
    if (json_is_string(input))
        return hear_text(h, MODEL_USER, input, err);
    json_array_foreach(input, i, item) {
        if (hear_item(h, item, err) < 0)
            return err_wrap(err, "item %zu of the member 'input' of the request", i);
    }
    return 0;
}

/* ---- Reading an answer ---- */

static void make_message(struct maker *m, const json_t *item) {
    size_t i;
    const json_t *part;
    json_array_foreach(json_object_get(item, "content"), i, part) {
        const json_t *refusal = json_object_get(part, "refusal");
        make_json_text(m, json_object_get(part, "text"));
        make_json_text(m, refusal);
        if (json_string_length(refusal) > 0)
            m->refused = true;
    }
}

static void make_item(struct maker *m, const json_t *item) {
    const json_t *arguments = json_object_get(item, "arguments");
    if (json_member_is(item, "type", "message")) {
        make_message(m, item);
    } else if (json_member_is(item, "type", "function_call")) {
        const char *text = json_string_value(arguments);
        const char *bad = json_member_is(item, "status", "incomplete")
                              ? "the answer was cut off before this call was complete"
                              : NULL;
        make_call(m, json_member(item, "call_id"), json_member(item, "name"), text ? text : "",
                  json_string_length(arguments), bad);
    } else if (json_is_object(item)) {
        make_opaque(m, &model_responses, item);
    }
}

static enum model_stop stop_of(const json_t *response) {
    const json_t *why = json_object_get(response, "incomplete_details");
    if (!json_member_is(response, "status", "incomplete"))
        return MODEL_STOP_DONE;
    return json_member_is(why, "reason", "content_filter") ? MODEL_STOP_REFUSED : MODEL_STOP_LENGTH;
}

static int get_answer(const json_t *root, struct maker *m, struct err *err) {
    size_t i;
    const json_t *item, *output = json_object_get(root, "output");
    bool ended =
        json_member_is(root, "status", "completed") || json_member_is(root, "status", "incomplete");
    if (!json_is_array(output) || !ended)
        return model_failure_err(MODEL_FAIL_GARBAGE, "missing or incomplete output", err);
    openai_name_answer(m->answer, root);
    m->answer->stop = stop_of(root);
    openai_get_usage(m->answer, json_object_get(root, "usage"), &responses_usage_names);
    json_array_foreach(output, i, item) make_item(m, item);
    return 0;
}

/* ---- Reading a stream ---- */

static int on_item_added(struct model_stream *s, const json_t *root, struct err *err) {
    const json_t *item = json_object_get(root, "item");
    (void)err;
    if (json_member_is(item, "type", "function_call"))
        stream_saw(s, MODEL_SEEN_CALL, json_object_get(item, "name"));
    return 0;
}

/* Takes a finished item, which repeats all its deltas. So the deltas are for display only. */
static int on_item_done(struct model_stream *s, const json_t *root, struct err *err) {
    const json_t *item = json_object_get(root, "item");
    struct block *b = stream_block(s, json_count(root, "output_index"));
    if (!b)
        return stream_fail(s, MODEL_FAIL_LARGE, "too many output items", err);
    if (!json_is_object(item) || b->start)
        return stream_fail(s, MODEL_FAIL_GARBAGE, "invalid or repeated output item", err);
    struct arena scratch DEFER(arena_done) = {0};
    size_t n;
    (void)json_text(&scratch, item, &n);
    s->bytes += n;
    if (s->bytes > 2 * (size_t)MODEL_ANSWER_MAX)
        return stream_fail(s, MODEL_FAIL_LARGE, NULL, err);
    b->start = json_deep_copy(item);
    return 0;
}

static int on_text(struct model_stream *s, const json_t *root, struct err *err) {
    (void)err;
    stream_saw(s, MODEL_SEEN_TEXT, json_object_get(root, "delta"));
    return 0;
}

static int on_reasoning(struct model_stream *s, const json_t *root, struct err *err) {
    (void)err;
    stream_saw(s, MODEL_SEEN_REASONING, json_object_get(root, "delta"));
    return 0;
}

static int on_created(struct model_stream *s, const json_t *root, struct err *err) {
    (void)err;
    stream_name(s, json_object_get(root, "response"));
    return 0;
}

static int take_output(struct model_stream *s, const json_t *output, struct err *err) {
    size_t i;
    json_t *item;
    json_array_foreach(output, i, item) {
        struct block *b = stream_block(s, i);
        if (!b)
            return stream_fail(s, MODEL_FAIL_LARGE, "too many output items", err);
        b->start = json_deep_copy(item);
    }
    return 0;
}

static int on_finished(struct model_stream *s, const json_t *root, struct err *err) {
    const json_t *response = json_object_get(root, "response");
    stream_name(s, response);
    openai_get_usage(&s->answer, json_object_get(response, "usage"), &responses_usage_names);
    s->stop =
        json_member_is(root, "type", "response.incomplete") ? stop_of(response) : MODEL_STOP_DONE;
    s->ended = true;
    return s->count ? 0 : take_output(s, json_object_get(response, "output"), err);
}

static int fail_with(struct model_stream *s, const json_t *e, struct err *err) {
    enum model_failure f = model_failure_of(0, json_member(e, "type"), json_member(e, "code"));
    return stream_fail(s, f == MODEL_FAIL_GARBAGE ? MODEL_FAIL_SERVER : f,
                       json_member(e, "message"), err);
}

static int on_failed(struct model_stream *s, const json_t *root, struct err *err) {
    const json_t *response = json_object_get(root, "response");
    openai_get_usage(&s->answer, json_object_get(response, "usage"), &responses_usage_names);
    return fail_with(s, json_object_get(response, "error"), err);
}

static int on_error(struct model_stream *s, const json_t *root, struct err *err) {
    const json_t *inner = json_object_get(root, "error");
    return fail_with(s, json_is_object(inner) ? inner : root, err);
}

static const struct {
    const char *name;
    int (*fn)(struct model_stream *s, const json_t *root, struct err *err);
} events[] = {
    {"response.created", on_created},
    {"response.output_item.added", on_item_added},
    {"response.output_item.done", on_item_done},
    {"response.output_text.delta", on_text},
    {"response.refusal.delta", on_text},
    {"response.reasoning_summary_text.delta", on_reasoning},
    {"response.reasoning_text.delta", on_reasoning},
    {"response.completed", on_finished},
    {"response.incomplete", on_finished},
    {"response.failed", on_failed},
    {"error", on_error},
};

static int on_record(struct model_stream *s, const char *name, const json_t *root,
                     struct err *err) {
    const char *type = json_member_or(root, "type", name);
    for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++)
        if (strcmp(type, events[i].name) == 0)
            return events[i].fn(s, root, err);
    return 0;
}

static int by_index(const void *a, const void *b) {
    uint64_t x = ((const struct block *)a)->index, y = ((const struct block *)b)->index;
    return x < y ? -1 : x > y;
}

static int responses_on_end(struct model_stream *s, struct err *err) {
    (void)err;
    if (s->count > 1)
        qsort(s->blocks, s->count, sizeof(*s->blocks), by_index);
    for (size_t i = 0; i < s->count; i++)
        make_item(&s->maker, s->blocks[i].start);
    return 0;
}

/* ---- Writing a stream ---- */

const struct model_codec model_responses = {
    .name = "responses",
    .path = "/responses",
    .put_request = put_request,
    .get_request = get_request,
    .put_answer = responses_put_answer,
    .get_answer = get_answer,
    .put_stream = responses_put_stream,
    .put_failure = responses_put_failure,
    .failure_event = "error",
    .on_record = on_record,
    .on_end = responses_on_end,
};
