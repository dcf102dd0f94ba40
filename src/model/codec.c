#include "model/codec.h"

#include "base/amount.h"
#include "base/defer.h"
#include "io/http_buf.h"
#include "io/sse.h"
#include "model/inner.h"

static const struct model_codec *const codecs[] = {&model_anthropic, &model_chat, &model_responses,
                                                   &model_gemini};

const struct model_codec *model_codec_named(const char *name) {
    for (size_t i = 0; i < sizeof(codecs) / sizeof(*codecs); i++)
        if (strcmp(name, codecs[i]->name) == 0)
            return codecs[i];
    return NULL;
}

const char *model_codec_name(const struct model_codec *codec) {
    return codec->name;
}

const char *model_codec_path(const struct model_codec *codec) {
    return codec->path;
}

/* ---- Writing parts that all formats share ---- */

void jot_text(struct jot *j, const char *name, const struct model_part *p) {
    jot_bytes(j, name, p->text, p->n);
}

/* The model must see its malformed call again, but servers accept only a JSON object as
 * arguments. */
void jot_arguments(struct jot *j, const char *name, const struct model_part *call, bool as_text) {
    struct buf own DEFER(buf_done) = BUF(8 * (size_t)MODEL_ANSWER_MAX);
    struct jot inner = JOT(&own);
    if (call->bad) {
        jot_object(&inner, NULL);
        jot_text(&inner, "malformed_arguments", call);
        jot_end(&inner, '}');
    } else if (!buf_add(&own, call->text, call->n)) {
        inner.failed = true;
    }
    if (inner.failed)
        j->failed = true;
    else if (as_text)
        jot_bytes(j, name, own.data, own.len);
    else
        jot_raw(j, name, own.data);
}

void jot_outcome(struct jot *j, const char *name, const struct model_part *result) {
    static const char lead[] = OUTCOME_FAILED;
    struct buf own DEFER(buf_done) = BUF(result->n + sizeof(lead));
    if (!result->failed) {
        jot_text(j, name, result);
        return;
    }
    if (!buf_add(&own, lead, strlen(lead)) || !buf_add(&own, result->text, result->n))
        j->failed = true;
    else
        jot_bytes(j, name, own.data, own.len);
}

void record_begin(struct record *r, const char *type) {
    *r = (struct record){.body = BUF(8 * (size_t)MODEL_ANSWER_MAX)};
    r->jot = JOT(&r->body);
    jot_object(&r->jot, NULL);
    if (type)
        jot_string(&r->jot, "type", type);
}

bool record_end(struct record *r, const char *name, struct buf *to) {
    r->jot.out = &r->body;
    jot_end(&r->jot, '}');
    struct sse_event e = {.name = name, .data = r->body.data, .n = r->body.len};
    bool ok = !r->jot.failed && sse_put(to, &e);
    buf_done(&r->body);
    return ok;
}

/* ---- Writing ---- */

static int check_request(const struct model_request *r, struct err *err) {
    if (!r->model || !r->model[0]) {
        err_set(err, ERR_INVALID, "the request does not name a model");
        return err_remedy(
            err, "name the model with --model, or set 'default' in [models] of carrel.conf");
    }
    if (r->max_tokens == 0)
        return err_set(err, ERR_INVALID, "the token limit of the answer must be greater than 0");
    if (r->message_count == 0)
        return err_set(err, ERR_INVALID, "the request has no messages");
    return 0;
}

static int codec_finish(const struct jot *j, struct buf *to, size_t before, const char *what,
                        struct err *err) {
    if (!j->failed)
        return 0;
    char max[AMOUNT_SIZE];
    http_roll_back(to, before);
    amount_size(to->max, max);
    return err_set(err, ERR_LIMIT, "the %s is larger than the limit of %s", what, max);
}

int model_put_request(const struct model_codec *codec, const struct model_request *request,
                      const struct model_wire *wire, struct buf *to, struct err *err) {
    struct jot j = JOT(to);
    size_t before = to->len;
    if (check_request(request, err) < 0)
        return -1;
    if (!codec->put_request) {
        err_set(err, ERR_UNSUPPORTED, "runs cannot use a provider with the format %s", codec->name);
        return err_remedy(err, "use a provider with the format anthropic, chat or responses");
    }
    codec->put_request(request, wire ? wire : &(struct model_wire){0}, &j);
    return codec_finish(&j, to, before, "request to the model", err);
}

int model_put_answer(const struct model_codec *codec, const struct model_answer *answer,
                     struct buf *to, struct err *err) {
    struct jot j = JOT(to);
    size_t before = to->len;
    codec->put_answer(answer, &j);
    return codec_finish(&j, to, before, "answer of the model", err);
}

int model_put_stream(const struct model_codec *codec, const struct model_answer *answer,
                     struct buf *to, struct err *err) {
    struct jot j = JOT(to);
    size_t before = to->len;
    j.failed = !codec->put_stream(answer, to);
    return codec_finish(&j, to, before, "answer of the model", err);
}

int model_put_failure(const struct model_codec *codec, enum model_failure failure,
                      const char *message, bool in_band, struct buf *to) {
    struct buf body DEFER(buf_done) = BUF(16 << 10);
    struct jot j = JOT(&body);
    codec->put_failure(failure, message, in_band, &j);
    if (j.failed)
        return -1;
    struct sse_event e = {.name = codec->failure_event, .data = body.data, .n = body.len};
    if (in_band)
        return sse_put(to, &e) ? 0 : -1;
    return buf_add(to, body.data, body.len) ? 0 : -1;
}

/* ---- Reading ---- */

int model_get_request(const struct model_codec *codec, const char *bytes, size_t n,
                      struct model_heard *ret, struct err *err) {
    json_error_t why;
    struct model_heard heard DEFER(model_heard_done) = {0};
    struct hearing h = {.heard = &heard};
    if (n > MODEL_REQUEST_MAX)
        return err_set(err, ERR_LIMIT, "the request to the model is larger than %d MiB",
                       MODEL_REQUEST_MAX >> 20);
    json_t *root DEFER(json_decrefp) = json_loadb(bytes, n, JSON_ALLOW_NUL, &why);
    if (!root)
        return err_set(err, ERR_INVALID, "the request to the model is not JSON: %s", why.text);
    const char *model = json_member(root, "model");
    if (!model || !model[0])
        return err_set(err, ERR_INVALID, "the request to the model has no member 'model'");
    heard.request.model = arena_copy(&heard.arena, model, strlen(model));
    heard.request.stream = json_is_true(json_object_get(root, "stream"));
    if (codec->get_request(root, &h, err) < 0 || hear_end(&h, err) < 0)
        return -1;
    *ret = heard;
    heard = (struct model_heard){0};
    return 0;
}

int model_get_answer(const struct model_codec *codec, const char *bytes, size_t n,
                     struct model_answer *ret, enum model_failure *ret_failure, struct err *err) {
    json_error_t why;
    enum model_failure own;
    enum model_failure *failure = ret_failure ? ret_failure : &own;
    struct model_answer answer DEFER(model_answer_done) = {.id = "", .model = ""};
    struct maker m = {.answer = &answer};
    json_t *root DEFER(json_decrefp) = json_loadb(bytes, n, JSON_ALLOW_NUL, &why);
    *failure = MODEL_FAIL_GARBAGE;
    if (!json_is_object(root))
        return model_failure_err(MODEL_FAIL_GARBAGE, root ? "not a JSON object" : why.text, err);
    if (json_is_object(json_object_get(root, "error"))) {
        *failure = model_failure_read(0, bytes, n, err);
        return -1;
    }
    if (codec->get_answer(root, &m, err) < 0)
        return -1;
    if (m.failed)
        *failure = MODEL_FAIL_LARGE;
    if (make_end(&m, answer.stop, err) < 0)
        return -1;
    *failure = MODEL_FAIL_NONE;
    *ret = answer;
    answer = (struct model_answer){0};
    return 0;
}
