/* Streamed answers: the part that all three formats share. */
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "model/inner.h"

/* The size limit of a record: the last record may repeat the whole answer, with all characters
 * escaped. */
enum { RECORD_MAX = 2 * MODEL_ANSWER_MAX };

struct model_stream *model_stream_new(const struct model_codec *codec, model_seen_fn *fn,
                                      void *arg) {
    struct model_stream *s = xnew(struct model_stream);
    s->codec = codec;
    s->fn = fn;
    s->arg = arg;
    s->answer.id = s->answer.model = "";
    s->maker.answer = &s->answer;
    s->text = BUF(MODEL_ANSWER_MAX);
    sse_reader_init(&s->sse, RECORD_MAX);
    return s;
}

static void block_done(struct block *b) {
    json_decref(b->start);
    buf_done(&b->text);
    buf_done(&b->input);
    buf_done(&b->signature);
    free(b->id);
    free(b->name);
}

void model_stream_free(struct model_stream *s) {
    if (!s)
        return;
    for (size_t i = 0; i < s->count; i++)
        block_done(&s->blocks[i]);
    free(s->blocks);
    buf_done(&s->text);
    sse_reader_done(&s->sse);
    model_answer_done(&s->answer);
    free(s);
}

void model_stream_freep(struct model_stream **s) {
    model_stream_free(*s);
}

void stream_saw(struct model_stream *s, enum model_seen_kind kind, const json_t *string) {
    struct model_seen seen = {kind, json_string_value(string), json_string_length(string)};
    if (s->fn && seen.n > 0)
        s->fn(s->arg, &seen);
}

void stream_name(struct model_stream *s, const json_t *object) {
    const char *id = json_member(object, "id"), *model = json_member(object, "model");
    if (id && !s->answer.id[0])
        s->answer.id = arena_copy(&s->answer.arena, id, strnlen(id, 200));
    if (model && !s->answer.model[0])
        s->answer.model = arena_copy(&s->answer.arena, model, strnlen(model, 200));
}

/* Finds a block by its number. Searches from the newest block, because most deltas belong to it. */
struct block *stream_find(struct model_stream *s, uint64_t index) {
    for (size_t i = s->count; i > 0; i--)
        if (s->blocks[i - 1].index == index)
            return &s->blocks[i - 1];
    return NULL;
}

struct block *stream_block(struct model_stream *s, uint64_t index) {
    struct block *b = stream_find(s, index);
    if (b || s->count == MODEL_PARTS_MAX)
        return b;
    if ((s->count & (s->count - 1)) == 0) {
        size_t room = s->count ? 2 * s->count : 1;
        struct block *more = xrealloc(s->blocks, room, sizeof(*more));
        s->blocks = more;
    }
    b = &s->blocks[s->count++];
    *b = (struct block){.index = index,
                        .text = BUF(MODEL_ANSWER_MAX),
                        .input = BUF(MODEL_ANSWER_MAX),
                        .signature = BUF(MODEL_ANSWER_MAX)};
    return b;
}

bool stream_append(struct model_stream *s, struct buf *to, const json_t *string) {
    size_t n = json_string_length(string);
    s->bytes += n;
    return s->bytes <= MODEL_ANSWER_MAX && buf_add(to, json_string_value(string), n);
}

int stream_fail(struct model_stream *s, enum model_failure failure, const char *detail,
                struct err *err) {
    s->failed = true;
    s->failure = failure;
    return model_failure_err(failure, detail, err);
}

static int take_record(struct model_stream *s, struct err *err) {
    const struct buf *data = &s->sse.data;
    if (s->ended || data->len == 0)
        return 0;
    if (s->codec->last_word && strcmp(data->data, s->codec->last_word) == 0) {
        s->ended = true;
        return 0;
    }
    json_error_t why;
    json_t *root DEFER(json_decrefp) = json_loadb(data->data, data->len, JSON_ALLOW_NUL, &why);
    if (!json_is_object(root))
        return stream_fail(s, MODEL_FAIL_GARBAGE,
                           root ? "a stream record is not a JSON object" : why.text, err);
    return s->codec->on_record(s, s->sse.name, root, err);
}

int model_stream_feed(struct model_stream *s, const char *bytes, size_t n, struct err *err) {
    if (s->failed)
        return stream_fail(s, s->failure, NULL, err);
    while (n > 0) {
        size_t used;
        int got = sse_read(&s->sse, bytes, n, &used);
        if (got < 0)
            return stream_fail(s, MODEL_FAIL_LARGE, "a record of the stream", err);
        if (got > 0 && take_record(s, err) < 0)
            return -1;
        bytes += used;
        n -= used;
    }
    return 0;
}

int model_stream_end(struct model_stream *s, struct model_answer *ret, struct err *err) {
    if (s->failed)
        return stream_fail(s, s->failure, NULL, err);
    int got = sse_read_end(&s->sse);
    if (got < 0)
        return stream_fail(s, MODEL_FAIL_LARGE, "a record of the stream", err);
    if (got > 0 && take_record(s, err) < 0)
        return -1;
    if (!s->ended)
        return stream_fail(s, MODEL_FAIL_CUT, NULL, err);
    if (s->codec->on_end(s, err) < 0)
        return -1;
    if (make_end(&s->maker, s->stop, err) < 0)
        return stream_fail(s, MODEL_FAIL_LARGE, NULL, err);
    *ret = s->answer;
    s->answer = (struct model_answer){.id = "", .model = ""};
    s->maker = (struct maker){.answer = &s->answer};
    s->failed = true; /* the answer was moved to the caller: no second one can be taken */
    s->failure = MODEL_FAIL_CUT;
    return 0;
}

enum model_failure model_stream_failure(const struct model_stream *s) {
    return s->failed ? s->failure : MODEL_FAIL_NONE;
}

bool model_stream_usage(const struct model_stream *s, struct model_usage *ret) {
    if (s->answer.has_usage)
        *ret = s->answer.usage;
    return s->answer.has_usage;
}

size_t model_stream_bytes(const struct model_stream *s) {
    return s->bytes;
}
