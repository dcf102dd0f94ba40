/* Writes an answer in the form of OpenAI's Responses API, whole or as a stream of events. */
#include <time.h>

#include "base/utf8.h"
#include "model/openai.h"
#include "model/responses_inner.h"

static bool is_item(const struct model_part *p) {
    if (p->kind == MODEL_OPAQUE)
        return p->codec == &model_responses;
    return p->kind == MODEL_TEXT || p->kind == MODEL_CALL;
}

/* Writes an output item. Its id is made from its kind and its number `n`. */
static void put_item(struct jot *j, const char *name, const struct model_part *p, size_t n,
                     bool done) {
    char id[32];
    if (p->kind == MODEL_OPAQUE) {
        jot_raw(j, name, p->text);
        return;
    }
    jot_object(j, name);
    snprintf(id, sizeof(id), "%s_%zu", p->kind == MODEL_CALL ? "fc" : "msg", n);
    jot_string(j, "id", id);
    jot_string(j, "type", p->kind == MODEL_CALL ? "function_call" : "message");
    jot_string(j, "status", done ? "completed" : "in_progress");
    if (p->kind == MODEL_CALL) {
        jot_string(j, "call_id", p->id);
        jot_string(j, "name", p->name);
        jot_bytes(j, "arguments", p->text, done ? p->n : 0);
    } else {
        jot_string(j, "role", "assistant");
        jot_array(j, "content");
        if (done) {
            jot_object(j, NULL);
            jot_string(j, "type", "output_text");
            jot_text(j, "text", p);
            jot_array(j, "annotations");
            jot_end(j, ']');
            jot_end(j, '}');
        }
        jot_end(j, ']');
    }
    jot_end(j, '}');
}

static void put_ending(struct jot *j, const struct model_answer *a) {
    bool cut = a->stop == MODEL_STOP_LENGTH || a->stop == MODEL_STOP_CONTEXT_FULL ||
               a->stop == MODEL_STOP_REFUSED;
    jot_string(j, "status", cut ? "incomplete" : "completed");
    jot_null(j, "error");
    if (!cut) {
        jot_null(j, "incomplete_details");
        return;
    }
    jot_object(j, "incomplete_details");
    jot_string(j, "reason", a->stop == MODEL_STOP_REFUSED ? "content_filter" : "max_output_tokens");
    jot_end(j, '}');
}

static void put_response(struct jot *j, const char *name, const struct model_answer *a, bool done) {
    jot_object(j, name);
    jot_string(j, "id", a->id);
    jot_string(j, "object", "response");
    jot_i64(j, "created_at", time(NULL));
    jot_string(j, "model", a->model);
    if (done) {
        put_ending(j, a);
    } else {
        jot_string(j, "status", "in_progress");
        jot_null(j, "error");
        jot_null(j, "incomplete_details");
    }
    jot_array(j, "output");
    for (size_t i = 0, n = 0; done && i < a->count; i++)
        if (is_item(&a->parts[i]))
            put_item(j, NULL, &a->parts[i], n++, true);
    jot_end(j, ']');
    jot_null(j, "instructions");
    jot_bool(j, "parallel_tool_calls", true);
    jot_array(j, "tools");
    jot_end(j, ']');
    jot_string(j, "tool_choice", "auto");
    jot_null(j, "temperature");
    jot_null(j, "top_p");
    jot_object(j, "metadata");
    jot_end(j, '}');
    if (done && a->has_usage)
        openai_put_usage(j, &a->usage, &responses_usage_names);
    jot_end(j, '}');
}

void responses_put_answer(const struct model_answer *a, struct jot *j) {
    put_response(j, NULL, a, true);
}

struct writer {
    const struct model_answer *answer;
    struct buf *to;
    uint64_t sequence;
    size_t item;
    struct record r;
};

static struct jot *event_begin(struct writer *w, const char *type) {
    record_begin(&w->r, type);
    jot_u64(&w->r.jot, "sequence_number", w->sequence++);
    return &w->r.jot;
}

static void event_place(struct writer *w, const struct model_part *p) {
    char id[32];
    snprintf(id, sizeof(id), "%s_%zu", p->kind == MODEL_CALL ? "fc" : "msg", w->item);
    jot_string(&w->r.jot, "item_id", id);
    jot_u64(&w->r.jot, "output_index", w->item);
    if (p->kind == MODEL_TEXT)
        jot_u64(&w->r.jot, "content_index", 0);
}

static bool event_end(struct writer *w, const char *type) {
    return record_end(&w->r, type, w->to);
}

static bool put_whole(struct writer *w, const char *type, bool done) {
    put_response(event_begin(w, type), "response", w->answer, done);
    return event_end(w, type);
}

static bool put_item_event(struct writer *w, const char *type, const struct model_part *p,
                           bool done) {
    struct jot *j = event_begin(w, type);
    jot_u64(j, "output_index", w->item);
    put_item(j, "item", p, w->item, done);
    return event_end(w, type);
}

static bool put_part_event(struct writer *w, const char *type, const struct model_part *p,
                           bool done) {
    struct jot *j = event_begin(w, type);
    event_place(w, p);
    jot_object(j, "part");
    jot_string(j, "type", "output_text");
    jot_bytes(j, "text", p->text, done ? p->n : 0);
    jot_array(j, "annotations");
    jot_end(j, ']');
    jot_end(j, '}');
    return event_end(w, type);
}

static bool put_piece(struct writer *w, const char *type, const struct model_part *p,
                      const char *member, const char *text, size_t n) {
    struct jot *j = event_begin(w, type);
    event_place(w, p);
    jot_bytes(j, member, text, n);
    if (p->kind == MODEL_TEXT) {
        jot_array(j, "logprobs");
        jot_end(j, ']');
    }
    return event_end(w, type);
}

static bool put_pieces(struct writer *w, const char *type, const struct model_part *p) {
    size_t half = utf8_end(p->text, p->n / 2);
    return put_piece(w, type, p, "delta", p->text, half) &&
           put_piece(w, type, p, "delta", p->text + half, p->n - half);
}

static bool put_text_events(struct writer *w, const struct model_part *p) {
    return put_part_event(w, "response.content_part.added", p, false) &&
           put_pieces(w, "response.output_text.delta", p) &&
           put_piece(w, "response.output_text.done", p, "text", p->text, p->n) &&
           put_part_event(w, "response.content_part.done", p, true);
}

static bool put_call_events(struct writer *w, const struct model_part *p) {
    static const char type[] = "response.function_call_arguments.done";
    if (!put_pieces(w, "response.function_call_arguments.delta", p))
        return false;
    struct jot *j = event_begin(w, type);
    event_place(w, p);
    jot_string(j, "name", p->name);
    jot_text(j, "arguments", p);
    return event_end(w, type);
}

static bool put_part(struct writer *w, const struct model_part *p) {
    bool ok = put_item_event(w, "response.output_item.added", p, false);
    if (p->kind == MODEL_TEXT)
        ok = ok && put_text_events(w, p);
    if (p->kind == MODEL_CALL)
        ok = ok && put_call_events(w, p);
    ok = ok && put_item_event(w, "response.output_item.done", p, true);
    w->item++;
    return ok;
}

bool responses_put_stream(const struct model_answer *a, struct buf *to) {
    struct writer w = {.answer = a, .to = to};
    bool cut = a->stop == MODEL_STOP_LENGTH || a->stop == MODEL_STOP_CONTEXT_FULL ||
               a->stop == MODEL_STOP_REFUSED;
    bool ok =
        put_whole(&w, "response.created", false) && put_whole(&w, "response.in_progress", false);
    for (size_t i = 0; ok && i < a->count; i++)
        if (is_item(&a->parts[i]))
            ok = put_part(&w, &a->parts[i]);
    return ok && put_whole(&w, cut ? "response.incomplete" : "response.completed", true);
}

void responses_put_failure(enum model_failure failure, const char *message, bool in_band,
                           struct jot *j) {
    const struct model_failure_row *row = model_failure_row(failure);
    if (!in_band) {
        openai_put_failure(failure, message, false, j);
        return;
    }
    jot_object(j, NULL);
    jot_string(j, "type", "error");
    jot_string(j, "code", row->openai_code ? row->openai_code : row->openai_type);
    jot_string(j, "message", message);
    jot_null(j, "param");
    jot_u64(j, "sequence_number", 0);
    jot_end(j, '}');
}
