/*
 * Gemini's generateContent, for the gateway only: reads the usage of answers and writes errors. It
 * writes no requests, so runs cannot use this format.
 */
#include <string.h>

#include "model/inner.h"

/* ---- Reading answers ---- */

static void gemini_usage(struct model_answer *a, const json_t *root) {
    const json_t *u = json_object_get(root, "usageMetadata");
    if (!json_is_object(u))
        return;
    uint64_t cached = json_count(u, "cachedContentTokenCount");
    uint64_t in = json_count(u, "promptTokenCount") + json_count(u, "toolUsePromptTokenCount");
    uint64_t thoughts = json_count(u, "thoughtsTokenCount");
    a->usage = (struct model_usage){.in = in > cached ? in - cached : 0,
                                    .cache_read = cached,
                                    .out = json_count(u, "candidatesTokenCount") + thoughts,
                                    .reasoning = thoughts};
    a->has_usage = true;
}

static enum model_stop gemini_stop(const char *reason) {
    static const struct {
        const char *reason;
        enum model_stop stop;
    } rows[] = {{"STOP", MODEL_STOP_DONE}, {"MAX_TOKENS", MODEL_STOP_LENGTH}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (strcmp(reason, rows[i].reason) == 0)
            return rows[i].stop;
    return MODEL_STOP_REFUSED;
}

/* Finds why an answer ended, or why the request was blocked; NULL: the answer goes on. */
static const char *gemini_reason(const json_t *root) {
    const json_t *candidate = json_array_get(json_object_get(root, "candidates"), 0);
    const char *reason = json_member(candidate, "finishReason");
    return reason ? reason : json_member(json_object_get(root, "promptFeedback"), "blockReason");
}

static const json_t *gemini_parts(const json_t *root) {
    const json_t *candidate = json_array_get(json_object_get(root, "candidates"), 0);
    return json_object_get(json_object_get(candidate, "content"), "parts");
}

static int gemini_get_answer(const json_t *root, struct maker *m, struct err *err) {
    const char *reason = gemini_reason(root);
    const json_t *part;
    size_t i;
    if (!reason)
        return model_failure_err(MODEL_FAIL_GARBAGE, "the answer has no candidate", err);
    gemini_usage(m->answer, root);
    m->answer->stop = gemini_stop(reason);
    json_array_foreach(gemini_parts(root), i, part)
        make_json_text(m, json_object_get(part, "text"));
    return 0;
}

/* Counts the bytes of a part: a text, or the arguments of a call. */
static bool gemini_append(struct model_stream *s, const json_t *part) {
    const json_t *text = json_object_get(part, "text");
    const json_t *call = json_object_get(part, "functionCall");
    if (json_is_string(text))
        return stream_append(s, &s->text, text);
    s->bytes += call ? json_dumpb(call, NULL, 0, JSON_COMPACT) : 0;
    return s->bytes <= MODEL_ANSWER_MAX;
}

/* Every record is a whole answer of its own; the usage is that of all records so far. */
static int gemini_on_record(struct model_stream *s, const char *name, const json_t *root,
                            struct err *err) {
    const json_t *part, *error = json_object_get(root, "error");
    const char *reason = gemini_reason(root);
    size_t i;
    (void)name;
    if (json_is_object(error))
        return stream_fail(s, model_failure_of((int)json_count(error, "code"), NULL, NULL),
                           json_member(error, "message"), err);
    gemini_usage(&s->answer, root);
    json_array_foreach(gemini_parts(root), i, part) {
        if (!gemini_append(s, part))
            return stream_fail(s, MODEL_FAIL_LARGE, NULL, err);
    }
    if (reason) {
        s->stop = gemini_stop(reason);
        s->ended = true;
    }
    return 0;
}

static int gemini_on_end(struct model_stream *s, struct err *err) {
    (void)err;
    make_text(&s->maker, s->text.data ? s->text.data : "", s->text.len);
    return 0;
}

/* ---- Writing errors ---- */

static const char *gemini_word(enum model_failure failure) {
    switch (model_failure_row(failure)->code) {
    case ERR_INVALID:
        return "INVALID_ARGUMENT";
    case ERR_NOT_FOUND:
        return "NOT_FOUND";
    case ERR_DENIED:
        return "PERMISSION_DENIED";
    case ERR_LIMIT:
        return "FAILED_PRECONDITION";
    case ERR_BUSY:
        return "UNAVAILABLE";
    default:
        return "INTERNAL";
    }
}

static void gemini_put_failure(enum model_failure failure, const char *message, bool in_band,
                               struct jot *j) {
    (void)in_band;
    jot_object(j, NULL);
    jot_object(j, "error");
    jot_u64(j, "code", (uint64_t)model_failure_row(failure)->status);
    jot_string(j, "message", message);
    jot_string(j, "status", gemini_word(failure));
    jot_end(j, '}');
    jot_end(j, '}');
}

const struct model_codec model_gemini = {
    .name = "gemini",
    .path = "/v1beta/models/MODEL:generateContent",
    .get_answer = gemini_get_answer,
    .put_failure = gemini_put_failure,
    .on_record = gemini_on_record,
    .on_end = gemini_on_end,
};
