#include "model/rehearsal_http.h"

#include <inttypes.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/parse.h"
#include "model/codec.h"

struct rehearsal_http {
    struct loop *loop;
    struct rehearsal *script;
    const struct secret *key;
    uint64_t count;
};

/* One request that is being answered. */
struct play {
    struct rehearsal_http *server;
    const struct model_codec *codec;
    struct http_exchange *x;
    struct buf rest; /* the second half of a slow answer */
    struct loop_timer *timer;
};

static void play_free(struct play *p) {
    loop_timer_free(p->timer);
    buf_done(&p->rest);
    free(p);
}

struct rehearsal_http *rehearsal_http_new(struct loop *loop, struct rehearsal *script,
                                          const struct secret *key) {
    struct rehearsal_http *r = xnew(struct rehearsal_http);
    *r = (struct rehearsal_http){.loop = loop, .script = script, .key = key};
    return r;
}

void rehearsal_http_free(struct rehearsal_http *r) {
    free(r);
}

uint64_t rehearsal_http_count(const struct rehearsal_http *r) {
    return r->count;
}

/* ---- Answers ---- */

#define JSON_TYPE \
    { "Content-Type", "application/json" }
#define STREAM_TYPE \
    { "Content-Type", "text/event-stream" }

static void rehearsal_http_refuse(struct play *p, enum model_failure failure, int status,
                                  const char *message, const struct http_pair *fields) {
    struct buf body DEFER(buf_done) = BUF(16 << 10);
    struct http_exchange *x = p->x;
    (void)model_put_failure(p->codec, failure, message, false, &body);
    play_free(p);
    http_reply(x, status, fields ? fields : HTTP_FIELDS(JSON_TYPE), body.data, body.len);
}

static void refuse_status(struct play *p, const struct rehearsal_turn *t) {
    char ms[24], seconds[24];
    snprintf(ms, sizeof(ms), "%" PRIu64, t->retry_after_ms);
    snprintf(seconds, sizeof(seconds), "%" PRIu64, (t->retry_after_ms + 999) / 1000);
    enum model_failure failure = model_failure_of(t->status, NULL, NULL);
    const struct http_pair said[] = {
        JSON_TYPE, {"retry-after-ms", ms}, {"retry-after", seconds}, {NULL, NULL}};
    rehearsal_http_refuse(p, failure, t->status, "a fault of the rehearsal script",
                          t->retry_after_ms ? said : NULL);
}

/* Returns the end of the stream record that contains the middle of the answer. */
static size_t middle(const struct buf *b) {
    const char *end = memmem(b->data + b->len / 2, b->len - b->len / 2, "\n\n", 2);
    return end ? (size_t)(end + 2 - b->data) : b->len / 2;
}

static void send_rest(void *arg) {
    struct play *p = arg;
    struct http_exchange *x = p->x;
    http_write(x, p->rest.data, p->rest.len);
    play_free(p);
    http_end(x);
}

static void on_gone(struct http_exchange *x) {
    struct play *p = x->user;
    if (!p)
        return;
    play_free(p);
    x->user = NULL;
    http_drop(x);
}

static void answer_slowly(struct play *p, const struct buf *body, uint64_t wait_ms) {
    size_t half = body->len / 2;
    http_write(p->x, body->data, half);
    p->rest = BUF(body->len);
    if (!buf_add(&p->rest, body->data + half, body->len - half))
        abort();
    p->x->user = p;
    p->x->on_gone = on_gone;
    p->timer = loop_timer_new(p->server->loop, send_rest, p);
    loop_timer_start(p->timer, wait_ms, 0);
}

static void answer_partly(struct play *p, const struct buf *body, bool with_error) {
    struct buf error DEFER(buf_done) = BUF(4096);
    struct http_exchange *x = p->x;
    size_t half = middle(body);
    http_write(x, body->data, half);
    if (with_error &&
        model_put_failure(p->codec, MODEL_FAIL_BUSY, "overloaded: a fault of the rehearsal script",
                          true, &error) == 0)
        http_write(x, error.data, error.len);
    play_free(p);
    http_end(x);
}

/* Sends the head, then as much of the body as the fault allows. */
static void rehearsal_http_answer(struct play *p, const struct buf *body, bool stream,
                                  enum rehearsal_fault fault, const struct rehearsal_turn *t) {
    struct http_exchange *x = p->x;
    int64_t length = stream ? -1 : (int64_t)body->len;
    http_begin(x, 200, stream ? HTTP_FIELDS(STREAM_TYPE) : HTTP_FIELDS(JSON_TYPE), length);
    if (fault == REHEARSAL_SLOW) {
        answer_slowly(p, body, t->wait_ms);
        return;
    }
    if (fault == REHEARSAL_CUT || fault == REHEARSAL_ERROR) {
        answer_partly(p, body, fault == REHEARSAL_ERROR && stream);
        return;
    }
    http_write(x, body->data, body->len);
    play_free(p);
    http_end(x);
}

static int encode(struct play *p, const struct model_request *r, const struct rehearsal_turn *t,
                  const struct rehearsal_ask *ask, struct buf *body, struct err *err) {
    struct model_answer a DEFER(model_answer_done) = {0};
    rehearsal_answer(t, ask, r->model, &a);
    return r->stream ? model_put_stream(p->codec, &a, body, err)
                     : model_put_answer(p->codec, &a, body, err);
}

static void play(struct play *p, const struct model_request *r, const struct rehearsal_ask *ask) {
    struct err err = {0};
    struct buf body DEFER(buf_done) = BUF(MODEL_REQUEST_MAX);
    const struct rehearsal_turn *t = rehearsal_find(p->server->script, ask, &err);
    if (!t || encode(p, r, t, ask, &body, &err) < 0) {
        rehearsal_http_refuse(p, MODEL_FAIL_SCRIPT, 400, err.text, NULL);
        return;
    }
    enum rehearsal_fault fault = rehearsal_fault(p->server->script, t);
    struct http_exchange *x = p->x;
    switch (fault) {
    case REHEARSAL_STATUS:
        refuse_status(p, t);
        return;
    case REHEARSAL_RESET:
        play_free(p);
        http_hold(x);
        http_drop(x);
        return;
    case REHEARSAL_GARBAGE:
        play_free(p);
        http_reply(x, 200, HTTP_FIELDS({"Content-Type", "text/html"}), "<html>hello</html>", 18);
        return;
    case REHEARSAL_FINE:
    case REHEARSAL_CUT:
    case REHEARSAL_ERROR:
    case REHEARSAL_SLOW:
        rehearsal_http_answer(p, &body, r->stream, fault, t);
    }
}

/* ---- Requests ---- */

static bool has_key(const struct http_exchange *x, const struct secret *key) {
    struct buf wanted DEFER(secret_wipe) = BUF(SECRET_MAX + 16);
    struct http_text plain = http_field_only(x->head, "x-api-key");
    struct http_text bearer = http_field_only(x->head, "authorization");
    if (!key)
        return true;
    if (!buf_add(&wanted, "Bearer ", 7) || !secret_reveal(key, &wanted))
        return false;
    return http_text_is(bearer, wanted.data) || http_text_is(plain, wanted.data + 7);
}

static void take_turns(const struct http_exchange *x, struct rehearsal_ask *ask) {
    char text[24];
    uint64_t turns;
    struct http_text said = http_field_only(x->head, "carrel-turn");
    if (!said.s || said.n >= sizeof(text))
        return;
    memcpy(text, said.s, said.n);
    text[said.n] = '\0';
    if (parse_u64(text, 0, 1u << 30, &turns, NULL) == 0)
        ask->turns = turns;
}

static void on_body(struct http_exchange *x, const char *body, size_t n) {
    struct play *p = x->user;
    struct err err = {0};
    struct model_heard heard DEFER(model_heard_done) = {0};
    x->user = NULL;
    x->on_gone = NULL;
    p->server->count++;
    if (!has_key(x, p->server->key)) {
        rehearsal_http_refuse(p, MODEL_FAIL_KEY, 401, "the API key is wrong", NULL);
        return;
    }
    if (model_get_request(p->codec, body, n, &heard, &err) < 0) {
        rehearsal_http_refuse(p, MODEL_FAIL_INVALID, 400, err.text, NULL);
        return;
    }
    struct rehearsal_ask ask = rehearsal_read(&heard.request);
    take_turns(x, &ask);
    play(p, &heard.request, &ask);
}

static bool ends_with(struct http_text path, const char *end) {
    size_t n = strlen(end);
    return path.n >= n && memcmp(path.s + path.n - n, end, n) == 0;
}

static const struct model_codec *codec_for(const struct http_head *head) {
    const struct model_codec *const all[] = {&model_anthropic, &model_chat, &model_responses};
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        if (http_text_is(head->method, "POST") && ends_with(head->path, model_codec_path(all[i])))
            return all[i];
    return NULL;
}

/* While the body is collected the HTTP server owns the exchange, so this frees only the struct
 * play. */
static void on_gone_early(struct http_exchange *x) {
    if (x->user)
        play_free(x->user);
    x->user = NULL;
}

void rehearsal_http_request(struct http_exchange *x, void *arg) {
    const struct model_codec *codec = codec_for(x->head);
    static const char none[] = "{\"error\":{\"message\":\"unknown path\",\"type\":"
                               "\"invalid_request_error\",\"param\":null,\"code\":null}}";
    if (!codec) {
        http_reply(x, 404, HTTP_FIELDS(JSON_TYPE), none, strlen(none));
        return;
    }
    struct play *p = xnew(struct play);
    *p = (struct play){.server = arg, .codec = codec, .x = x};
    x->user = p;
    x->on_gone = on_gone_early;
    http_collect(x, MODEL_REQUEST_MAX, on_body);
}
