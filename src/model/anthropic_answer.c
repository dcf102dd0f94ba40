/* Writes answers and streams in the Anthropic protocol. */

#include "base/utf8.h"
#include "model/anthropic_inner.h"
#include "model/inner.h"

static void put_usage(struct jot *j, const struct model_usage *u) {
    jot_object(j, "usage");
    jot_u64(j, "input_tokens", u->in);
    jot_u64(j, "cache_creation_input_tokens", u->cache_write + u->cache_write_long);
    jot_u64(j, "cache_read_input_tokens", u->cache_read);
    jot_object(j, "cache_creation");
    jot_u64(j, "ephemeral_5m_input_tokens", u->cache_write);
    jot_u64(j, "ephemeral_1h_input_tokens", u->cache_write_long);
    jot_end(j, '}');
    jot_u64(j, "output_tokens", u->out);
    jot_object(j, "output_tokens_details");
    jot_u64(j, "thinking_tokens", u->reasoning);
    jot_end(j, '}');
    jot_end(j, '}');
}

static void anthropic_answer_put_head(struct jot *j, const struct model_answer *a) {
    jot_string(j, "id", a->id);
    jot_string(j, "type", "message");
    jot_string(j, "role", "assistant");
    jot_string(j, "model", a->model);
}

void anthropic_put_answer(const struct model_answer *a, struct jot *j) {
    jot_object(j, NULL);
    anthropic_answer_put_head(j, a);
    jot_array(j, "content");
    for (size_t i = 0; i < a->count; i++)
        if (anthropic_is_sent(&a->parts[i]))
            anthropic_put_part(j, &a->parts[i], false);
    jot_end(j, ']');
    jot_string(j, "stop_reason", anthropic_stop_name(a->stop));
    jot_null(j, "stop_sequence");
    if (a->has_usage)
        put_usage(j, &a->usage);
    jot_end(j, '}');
}

static bool put_stream_head(const struct model_answer *a, struct buf *to) {
    struct record r;
    struct model_usage before = a->usage;
    before.out = before.reasoning = 0;
    record_begin(&r, "message_start");
    jot_object(&r.jot, "message");
    anthropic_answer_put_head(&r.jot, a);
    jot_array(&r.jot, "content");
    jot_end(&r.jot, ']');
    jot_null(&r.jot, "stop_reason");
    jot_null(&r.jot, "stop_sequence");
    if (a->has_usage)
        put_usage(&r.jot, &before);
    jot_end(&r.jot, '}');
    return record_end(&r, "message_start", to);
}

/* Writes the start of a block, without the text or arguments that deltas add later. */
static void put_opening(struct jot *j, const struct model_part *p) {
    jot_object(j, "content_block");
    jot_string(j, "type", p->kind == MODEL_CALL ? "tool_use" : "text");
    if (p->kind == MODEL_CALL) {
        jot_string(j, "id", p->id);
        jot_string(j, "name", p->name);
        jot_object(j, "input");
        jot_end(j, '}');
    } else {
        jot_string(j, "text", "");
    }
    jot_end(j, '}');
}

static bool put_delta(size_t index, const struct model_part *p, const char *text, size_t n,
                      struct buf *to) {
    struct record r;
    record_begin(&r, "content_block_delta");
    jot_u64(&r.jot, "index", index);
    jot_object(&r.jot, "delta");
    jot_string(&r.jot, "type", p->kind == MODEL_CALL ? "input_json_delta" : "text_delta");
    jot_bytes(&r.jot, p->kind == MODEL_CALL ? "partial_json" : "text", text, n);
    jot_end(&r.jot, '}');
    return record_end(&r, "content_block_delta", to);
}

static bool put_block(const struct model_part *p, size_t index, struct buf *to) {
    struct record r;
    bool pieces = p->kind != MODEL_OPAQUE;
    record_begin(&r, "content_block_start");
    jot_u64(&r.jot, "index", index);
    if (pieces)
        put_opening(&r.jot, p);
    else
        jot_raw(&r.jot, "content_block", p->text);
    if (!record_end(&r, "content_block_start", to))
        return false;
    size_t half = pieces ? utf8_end(p->text, p->n / 2) : 0;
    if (pieces && (!put_delta(index, p, p->text, half, to) ||
                   !put_delta(index, p, p->text + half, p->n - half, to)))
        return false;
    record_begin(&r, "content_block_stop");
    jot_u64(&r.jot, "index", index);
    return record_end(&r, "content_block_stop", to);
}

static bool put_stream_tail(const struct model_answer *a, struct buf *to) {
    struct record r;
    record_begin(&r, "message_delta");
    jot_object(&r.jot, "delta");
    jot_string(&r.jot, "stop_reason", anthropic_stop_name(a->stop));
    jot_null(&r.jot, "stop_sequence");
    jot_end(&r.jot, '}');
    if (a->has_usage)
        put_usage(&r.jot, &a->usage);
    if (!record_end(&r, "message_delta", to))
        return false;
    record_begin(&r, "message_stop");
    return record_end(&r, "message_stop", to);
}

bool anthropic_put_stream(const struct model_answer *a, struct buf *to) {
    bool ok = put_stream_head(a, to);
    for (size_t i = 0, index = 0; ok && i < a->count; i++)
        if (anthropic_is_sent(&a->parts[i]))
            ok = put_block(&a->parts[i], index++, to);
    return ok && put_stream_tail(a, to);
}

void anthropic_put_failure(enum model_failure failure, const char *message, bool in_band,
                           struct jot *j) {
    (void)in_band;
    jot_object(j, NULL);
    jot_string(j, "type", "error");
    jot_object(j, "error");
    jot_string(j, "type", model_failure_row(failure)->anthropic);
    jot_string(j, "message", message);
    jot_end(j, '}');
    jot_end(j, '}');
}
