#include "model/client.h"

#include <sys/random.h>
#include <time.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "model/retry.h"

enum { ATTEMPTS = 8, BACK_OFF_MS = 500, ERROR_BODY_MAX = 64 << 10 };

struct model_call {
    struct loop *loop;
    struct fetcher *fetcher;
    struct model_call_options options;
    struct model_call_events events;
    void *arg;
    char account[ACCOUNT_ID_SIZE];
    struct buf body; /* the request, the same for every attempt */
    char url[CONF_TEXT_SIZE + 32];
    bool stream;
    struct model_size size;
    uint64_t max_tokens;
    struct rehearsal_ask ask; /* for a rehearsal (scripted model); its text is in `body` */
    unsigned attempt;         /* number of attempts so far */
    uint64_t deadline;        /* end of all attempts, on the loop's clock; 0: none */

    /* The members from here to `err` belong to the current attempt. */
    struct paid paid;
    struct model_guess guess; /* the cost that is held; zero without a ledger */
    struct fetch *fetch;
    struct model_stream *reader;
    struct buf whole; /* an answer that is not a stream, or the body of an error */
    int status;
    bool sent;
    bool said_retry, may_retry; /* what the field x-should-retry of the answer says */
    uint64_t retry_after_ms;    /* 0: the provider did not say */
    enum model_failure failure; /* the failure that was found while the answer was read */
    struct err err;

    struct loop_timer *timer;
    struct model_answer answer;
    bool telling;   /* a callback is running */
    bool cancelled; /* the callback cancelled the call: freed after the callback returns */
};

static void attempt_start(void *arg);

/* ---- Freeing and callbacks ---- */

static void attempt_clear(struct model_call *c) {
    model_stream_free(c->reader);
    c->reader = NULL;
    buf_done(&c->whole);
    c->whole = BUF(MODEL_REQUEST_MAX);
    c->status = 0;
    c->sent = c->said_retry = c->may_retry = false;
    c->retry_after_ms = 0;
    c->failure = MODEL_FAIL_NONE;
    c->err = (struct err){0};
}

static void call_free(struct model_call *c) {
    attempt_clear(c);
    loop_timer_free(c->timer);
    model_answer_done(&c->answer);
    buf_done(&c->body);
    buf_done(&c->whole);
    free(c);
}

/* Call before a callback: it may cancel the model call, which client_told() then frees. */
static void client_tell(struct model_call *c) {
    c->telling = true;
}

/* Call after a callback. False: the callback cancelled the call, and the call was freed. */
static bool client_told(struct model_call *c) {
    c->telling = false;
    if (!c->cancelled)
        return true;
    call_free(c);
    return false;
}

static void on_seen(void *arg, const struct model_seen *seen) {
    struct model_call *c = arg;
    if (c->events.on_seen && !c->cancelled)
        c->events.on_seen(c->arg, seen);
}

/* ---- The end of an attempt ---- */

static void client_finish(struct model_call *c, enum model_failure failure) {
    struct model_call_events events = c->events;
    void *arg = c->arg;
    struct err err = c->err;
    struct model_answer answer DEFER(model_answer_done) = c->answer;
    c->answer = (struct model_answer){0};
    call_free(c);
    events.on_done(arg, failure == MODEL_FAIL_NONE ? &answer : NULL, failure, &err);
}

static uint64_t wait_of(const struct model_call *c) {
    uint32_t random = 0;
    if (c->retry_after_ms)
        return c->retry_after_ms;
    (void)!getrandom(&random, sizeof(random), GRND_NONBLOCK);
    return model_back_off(c->attempt, c->options.back_off_ms, random);
}

static bool tries_again(const struct model_call *c, enum model_failure failure, uint64_t wait_ms) {
    bool can_help = c->said_retry ? c->may_retry : model_failure_row(failure)->retry;
    if (!can_help || c->attempt >= c->options.attempts_max)
        return false;
    return !c->deadline || loop_now_ms(c->loop) + wait_ms < c->deadline;
}

static void attempt_fail(struct model_call *c, enum model_failure failure) {
    uint64_t wait_ms = wait_of(c);
    if (!tries_again(c, failure, wait_ms)) {
        if (c->attempt > 1)
            err_wrap(&c->err, "the model call failed after %u attempts", c->attempt);
        client_finish(c, failure);
        return;
    }
    client_tell(c);
    if (c->events.on_retry)
        c->events.on_retry(c->arg, c->attempt, wait_ms, &c->err);
    if (!client_told(c))
        return;
    attempt_clear(c);
    loop_timer_start(c->timer, wait_ms, 0);
}

/* ---- Paying ---- */

static struct model_subject client_subject(const struct model_call *c) {
    return (struct model_subject){c->account, c->options.provider->model, c->options.row};
}

static void attempt_win(struct model_call *c) {
    const struct model_subject who = client_subject(c);
    bool known = c->answer.has_usage;
    if (c->paid.ledger && known)
        model_estimate_learn(ledger_estimates(c->paid.ledger), &who, &c->size, &c->answer.usage);
    paid_settle(&c->paid, known ? &c->answer.usage : NULL);
    if (!known)
        c->answer.usage = c->guess.usage;
    client_finish(c, MODEL_FAIL_NONE);
}

/* An answer that was cut costs the held amount, or what was received of it if that is more. */
static void attempt_settle_part(struct model_call *c) {
    const struct model_subject who = client_subject(c);
    struct model_usage usage = {0};
    if (!c->reader || !c->paid.ledger) {
        paid_settle(&c->paid, NULL);
        return;
    }
    if (!model_stream_usage(c->reader, &usage) || model_usage_total(&usage) <= usage.out)
        usage.in = c->guess.usage.in;
    const uint64_t received =
        model_estimate_text(ledger_estimates(c->paid.ledger), &who, model_stream_bytes(c->reader));
    if (received > usage.out)
        usage.out = received;
    bool is_more = model_cost(c->options.row, &usage).micro > c->guess.cost.micro ||
                   model_usage_total(&usage) > c->guess.cost.tokens;
    paid_settle(&c->paid, is_more ? &usage : NULL);
}

/* ---- Receiving an answer ---- */

static void on_head(void *arg, const struct fetch *f, int status) {
    struct model_call *c = arg;
    const char *should = fetch_field(f, "x-should-retry");
    c->sent = true;
    c->status = status;
    c->said_retry = should && (strcmp(should, "true") == 0 || strcmp(should, "false") == 0);
    c->may_retry = should && strcmp(should, "true") == 0;
    if (!model_retry_after(fetch_field(f, "retry-after-ms"), fetch_field(f, "retry-after"),
                           time(NULL), &c->retry_after_ms))
        c->retry_after_ms = 0;
    if (status != 200)
        c->whole = BUF(ERROR_BODY_MAX);
    else if (c->stream)
        c->reader = model_stream_new(c->options.provider->codec, on_seen, c);
}

static bool on_bytes(void *arg, const char *bytes, size_t n) {
    struct model_call *c = arg;
    if (!c->reader)
        return buf_add(&c->whole, bytes, n);
    client_tell(c);
    int r = model_stream_feed(c->reader, bytes, n, &c->err);
    if (!client_told(c))
        return false;
    c->failure = model_stream_failure(c->reader);
    return r == 0;
}

static enum model_failure read_answer(struct model_call *c) {
    enum model_failure failure = MODEL_FAIL_NONE;
    const char *body = c->whole.data ? c->whole.data : "";
    if (c->reader) {
        int r = model_stream_end(c->reader, &c->answer, &c->err);
        return r < 0 ? model_stream_failure(c->reader) : MODEL_FAIL_NONE;
    }
    if (model_get_answer(c->options.provider->codec, body, c->whole.len, &c->answer, &failure,
                         &c->err) < 0)
        return failure;
    return MODEL_FAIL_NONE;
}

static const enum model_failure failures[] = {
    [FETCH_DONE] = MODEL_FAIL_NONE,       [FETCH_STOPPED] = MODEL_FAIL_LARGE,
    [FETCH_CONNECT] = MODEL_FAIL_CONNECT, [FETCH_TRUST] = MODEL_FAIL_TRUST,
    [FETCH_TIMEOUT] = MODEL_FAIL_TIMEOUT, [FETCH_CUT] = MODEL_FAIL_CUT,
    [FETCH_LARGE] = MODEL_FAIL_LARGE,
};

/* A request that the provider refused costs nothing. */
static void client_on_end(void *arg, enum fetch_end end, const char *why) {
    struct model_call *c = arg;
    c->fetch = NULL;
    bool refused = c->status != 0 && c->status != 200;
    if (refused) { /* the status says enough, even if the body of the error was cut off */
        paid_nothing(&c->paid);
        attempt_fail(c, model_failure_read(c->status, c->whole.data, c->whole.len, &c->err));
        return;
    }
    client_tell(c);
    if (end == FETCH_DONE)
        c->failure = read_answer(c);
    if (!client_told(c))
        return;
    if (end == FETCH_DONE && c->failure == MODEL_FAIL_NONE) {
        attempt_win(c);
        return;
    }
    if (c->failure == MODEL_FAIL_NONE) {
        c->failure = failures[end];
        model_failure_err(c->failure, why, &c->err);
    }
    if (end == FETCH_CONNECT || end == FETCH_TRUST)
        paid_nothing(&c->paid);
    else
        attempt_settle_part(c);
    attempt_fail(c, c->failure);
}

/* ---- Sending a request ---- */

static size_t put_field(struct http_pair *fields, size_t n, const char *name, const char *value) {
    fields[n] = (struct http_pair){name, value};
    return n + 1;
}

static int send_request(struct model_call *c, struct err *err) {
    static const struct fetch_events events = {on_head, on_bytes, client_on_end};
    const struct model_provider *p = c->options.provider;
    bool bearer = strcmp(p->auth, "bearer") == 0;
    struct http_pair fields[5] = {0};
    char turn[24];
    snprintf(turn, sizeof(turn), "%llu", (unsigned long long)c->options.turn);
    size_t n = put_field(fields, 0, "Content-Type", "application/json");
    n = put_field(fields, n, "Accept", c->stream ? "text/event-stream" : "application/json");
    if (p->codec == &model_anthropic)
        n = put_field(fields, n, "anthropic-version", p->version);
    if (c->options.tells_turn)
        put_field(fields, n, "Carrel-Turn", turn);
    struct fetch_request r = {
        .method = "POST",
        .url = c->url,
        .fields = fields,
        .secret_field = bearer ? "Authorization" : p->auth,
        .secret_lead = bearer ? "Bearer " : "",
        .secret = p->key,
        .body = c->body.data,
        .n = c->body.len,
        .connect_ms = c->options.connect_ms,
        .idle_ms = c->options.idle_ms,
        .max_bytes = 4 * (uint64_t)MODEL_ANSWER_MAX,
    };
    return fetch_start(c->fetcher, &r, &events, c, &c->fetch, err);
}

/* Plays a turn of a rehearsal in this process, with the same faults as over HTTP. */
static void rehearse(struct model_call *c) {
    struct rehearsal *script = c->options.rehearsal;
    const struct rehearsal_turn *turn = rehearsal_find(script, &c->ask, &c->err);
    static const enum model_failure kinds[] = {[REHEARSAL_GARBAGE] = MODEL_FAIL_GARBAGE,
                                               [REHEARSAL_CUT] = MODEL_FAIL_CUT,
                                               [REHEARSAL_RESET] = MODEL_FAIL_CUT,
                                               [REHEARSAL_ERROR] = MODEL_FAIL_BUSY};
    enum rehearsal_fault fault = turn ? rehearsal_fault(script, turn) : REHEARSAL_FINE;
    c->failure = turn ? MODEL_FAIL_NONE : MODEL_FAIL_SCRIPT;
    uint64_t wait_ms = 0;
    if (fault == REHEARSAL_SLOW) {
        wait_ms = turn->wait_ms;
    } else if (fault == REHEARSAL_STATUS) {
        c->retry_after_ms = turn->retry_after_ms;
        c->failure = model_failure_of(turn->status, NULL, NULL);
    } else if (fault != REHEARSAL_FINE) {
        c->failure = kinds[fault];
    }
    if (c->failure != MODEL_FAIL_NONE && turn)
        model_failure_err(c->failure, "a fault of the rehearsal script", &c->err);
    if (c->failure == MODEL_FAIL_NONE)
        rehearsal_answer(turn, &c->ask, c->options.provider->model, &c->answer);
    c->status = -1; /* tells attempt_start() that its timer ends the turn */
    loop_timer_start(c->timer, wait_ms, 0);
}

static bool show_parts(struct model_call *c) {
    client_tell(c);
    for (size_t i = 0; i < c->answer.count; i++) {
        const struct model_part *p = &c->answer.parts[i];
        struct model_seen seen = {MODEL_SEEN_TEXT, p->text, p->n};
        if (p->kind == MODEL_CALL)
            seen = (struct model_seen){MODEL_SEEN_CALL, p->name, strlen(p->name)};
        on_seen(c, &seen);
    }
    return client_told(c);
}

static void rehearsal_end(struct model_call *c) {
    if (c->failure == MODEL_FAIL_NONE) {
        if (show_parts(c))
            attempt_win(c);
        return;
    }
    if (c->failure == MODEL_FAIL_CUT || c->failure == MODEL_FAIL_GARBAGE)
        paid_settle(&c->paid, NULL);
    else
        paid_nothing(&c->paid);
    attempt_fail(c, c->failure);
}

static void attempt_send(struct model_call *c) {
    if (!c->options.provider->codec) {
        rehearse(c);
        return;
    }
    if (send_request(c, &c->err) == 0)
        return;
    paid_nothing(&c->paid);
    client_finish(c, MODEL_FAIL_INVALID);
}

static void on_held(void *arg, const struct err *err) {
    struct model_call *c = arg;
    if (!err) {
        attempt_send(c);
        return;
    }
    c->err = *err;
    client_finish(c, MODEL_FAIL_BUDGET);
}

static void attempt_pay(struct model_call *c) {
    const struct model_subject who = client_subject(c);
    if (!c->paid.ledger) {
        attempt_send(c);
        return;
    }
    c->guess = model_estimate(ledger_estimates(c->paid.ledger), &who, &c->size, c->max_tokens);
    if (paid_hold(&c->paid, &c->guess.cost, &c->guess.cost, on_held, c, &c->err) < 0)
        client_finish(c, MODEL_FAIL_BUDGET);
}

/* Called by the loop: starts the first attempt or a retry, or ends the turn of a rehearsal. */
static void attempt_start(void *arg) {
    struct model_call *c = arg;
    if (c->status < 0) {
        rehearsal_end(c);
        return;
    }
    c->attempt++;
    attempt_pay(c);
}

/* ---- A call ---- */

static int encode(struct model_call *c, const struct model_request *request, struct err *err) {
    const struct model_provider *p = c->options.provider;
    struct model_request r = *request;
    r.model = p->model;
    c->stream = r.stream;
    if (p->codec) {
        snprintf(c->url, sizeof(c->url), "%s%s", p->url, model_codec_path(p->codec));
        return model_put_request(p->codec, &r, &p->wire, &c->body, err);
    }
    if (!c->options.rehearsal)
        return err_set(err, ERR_INVALID, "the model provider 'rehearsal' needs a script");
    c->ask = rehearsal_read(&r);
    c->ask.turns = c->options.turn;
    if (!buf_add(&c->body, c->ask.last ? c->ask.last : "", c->ask.n))
        return err_set(err, ERR_LIMIT, "the last tool result of the conversation is too large");
    c->ask.last = c->body.data;
    return 0;
}

/* Measures the request as the gateway does. A rehearsal has only the last tool result. */
static void client_measure(struct model_call *c) {
    const struct model_codec *codec = c->options.provider->codec;
    json_t *root = codec ? json_loadb(c->body.data, c->body.len, 0, NULL) : NULL;
    c->size = root ? model_size_of(codec, root) : (struct model_size){.bytes = c->body.len};
    json_decref(root);
}

static void set_options(struct model_call *c, const struct model_call_options *o) {
    c->options = *o;
    if (!o->attempts_max)
        c->options.attempts_max = ATTEMPTS;
    if (!o->back_off_ms)
        c->options.back_off_ms = BACK_OFF_MS;
    if (o->deadline_ms)
        c->deadline = loop_now_ms(c->loop) + o->deadline_ms;
    snprintf(c->account, sizeof(c->account), "%s", o->account ? o->account : "");
    c->paid = (struct paid){
        .ledger = o->ledger, .account = c->account, .model = o->provider->model, .row = o->row};
}

int model_call_start(struct loop *loop, struct fetcher *fetcher,
                     const struct model_request *request, const struct model_call_options *options,
                     const struct model_call_events *events, void *arg, struct model_call **ret,
                     struct err *err) {
    struct model_call *c = xnew(struct model_call);
    *c = (struct model_call){.loop = loop,
                             .fetcher = fetcher,
                             .events = *events,
                             .arg = arg,
                             .body = BUF(MODEL_REQUEST_MAX),
                             .whole = BUF(MODEL_REQUEST_MAX)};
    set_options(c, options);
    c->timer = loop_timer_new(loop, attempt_start, c);
    if (encode(c, request, err) < 0) {
        call_free(c);
        return -1;
    }
    client_measure(c);
    c->max_tokens = request->max_tokens;
    loop_timer_start(c->timer, 0, 0);
    *ret = c;
    return 0;
}

/* An attempt that was never sent costs nothing. */
void model_call_cancel(struct model_call *c) {
    bool under_way = c->fetch != NULL;
    if (c->fetch)
        fetch_cancel(c->fetch);
    if (under_way)
        attempt_settle_part(c);
    else
        paid_nothing(&c->paid);
    if (c->telling)
        c->cancelled = true;
    else
        call_free(c);
}
