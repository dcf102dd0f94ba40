/* Answers of the gateway: refusals, and what a provider sends, with its usage. */
#include <string.h>
#include <strings.h>

#include "base/defer.h"
#include "model/gateway_inner.h"
#include "model/json.h"

/* ---- Outcomes ---- */

void gateway_tell(struct forward *f, int status, const struct model_usage *usage, bool is_exact,
                  const char *why) {
    const struct gateway_config *c = &f->gateway->config;
    bool held = f->paid.hold[0];
    const struct gateway_call call = {
        .account = f->account,
        .provider = f->provider.name,
        .model = f->provider.model,
        .status = status,
        .usage = usage ? *usage : (struct model_usage){0},
        .cost = usage  ? model_cost(f->paid.row, usage)
                : held ? f->guess.cost
                       : (struct cost){0},
        .is_exact = is_exact && (usage || !held),
        .lowered_to = f->lowered ? f->max_tokens : 0,
        .why = why,
    };
    if (c->told && !f->told)
        c->told(c->told_arg, &call);
    f->told = true;
}

/* ---- Refusals by the gateway ---- */

/*
 * The status that makes clients show the message at once. Codex repeats every call but one that got
 * 400. Claude Code repeats one that got 401 or 5xx for minutes without a word, and Gemini CLI one
 * that got 5xx.
 */
static const struct {
    enum model_failure failure;
    int status, for_responses;
} final_statuses[] = {
    {MODEL_FAIL_BUDGET, 402, 400},
    {MODEL_FAIL_KEY, 403, 400},
    {MODEL_FAIL_CONNECT, 424, 400}, /* see connect_again() */
    {MODEL_FAIL_TRUST, 424, 400},
};
enum { FINAL_STATUSES = sizeof(final_statuses) / sizeof(*final_statuses) };

/* 0: the client may repeat the call. */
static int final_status(const struct forward *f, enum model_failure failure) {
    for (size_t i = 0; i < FINAL_STATUSES; i++)
        if (final_statuses[i].failure == failure)
            return f->codec == &model_responses ? final_statuses[i].for_responses
                                                : final_statuses[i].status;
    return 0;
}

static int refusal_status(const struct forward *f, enum model_failure failure) {
    int final = final_status(f, failure);
    return final ? final : model_failure_row(failure)->status;
}

static void refusal_reply(struct forward *f, enum model_failure failure, const char *text) {
    struct buf body DEFER(buf_done) = BUF(16 << 10);
    struct http_exchange *x = f->x;
    int status = refusal_status(f, failure);
    bool may_retry = !final_status(f, failure) && model_failure_row(failure)->retry;
    (void)model_put_failure(f->codec, failure, text, false, &body);
    forward_detach(f);
    forward_free(f);
    http_reply(x, status,
               HTTP_FIELDS({"Content-Type", "application/json"},
                           {"x-should-retry", may_retry ? "true" : "false"}),
               body.data, body.len);
}

void gateway_refuse(struct forward *f, enum model_failure failure, const struct err *err) {
    char text[sizeof(err->text) + sizeof(err->remedy) + 8];
    bool is_budget = failure == MODEL_FAIL_BUDGET;
    snprintf(text, sizeof(text), "%s%s%s%s", err->text,
             !err->remedy[0] ? ""
             : is_budget     ? ": "
                             : " (",
             err->remedy, err->remedy[0] && !is_budget ? ")" : "");
    gateway_tell(f, refusal_status(f, failure), &(struct model_usage){0}, true, err->text);
    refusal_reply(f, failure, text);
}

enum model_failure gateway_failure(const struct err *err) {
    switch (err->code) {
    case ERR_LIMIT:
    case ERR_UNSUPPORTED:
        return MODEL_FAIL_BUDGET;
    case ERR_NOT_FOUND:
        return MODEL_FAIL_NOT_FOUND;
    case ERR_DENIED:
        return MODEL_FAIL_DENIED;
    case ERR_INVALID:
        return MODEL_FAIL_INVALID;
    case ERR_BUSY:
        return MODEL_FAIL_BUSY;
    default:
        return MODEL_FAIL_SERVER;
    }
}

/* ---- The provider's answer ---- */

static const char *const passed_names[] = GATEWAY_PASSED;

static void copy_field(char *to, size_t size, const struct fetch *fetch, const char *name) {
    const char *value = fetch_field(fetch, name);
    snprintf(to, size, "%s", value && strlen(value) < size ? value : "");
}

/* The gateway asks for no compression, and finds no key in a compressed answer. */
static bool is_compressed(const struct fetch *fetch) {
    const char *coding = fetch_field(fetch, "Content-Encoding");
    if (fetch_field_count(fetch, "Content-Encoding") > 1)
        return true; /* fetch_field() returns the last one only */
    return coding && coding[0] && strcasecmp(coding, "identity") != 0;
}

/* Writes the fields of the answer to the client; first: how many of the passed ones to leave out.
 */
static void answer_fields(const struct forward *f, struct http_pair *ret, char limit[24],
                          size_t first) {
    size_t n = 0;
    while (ret[n].name)
        n++;
    for (size_t i = first; i < GATEWAY_PASSED_COUNT; i++)
        if (f->passed[i][0])
            ret[n++] = (struct http_pair){passed_names[i], f->passed[i]};
    snprintf(limit, 24, "%llu", (unsigned long long)f->max_tokens);
    if (f->lowered)
        ret[n] = (struct http_pair){"carrel-max-tokens", limit};
}

static void answer_on_head(void *arg, const struct fetch *fetch, int status) {
    struct forward *f = arg;
    struct http_pair fields[GATEWAY_PASSED_COUNT + 3] = {{"Content-Type", "text/event-stream"}};
    char limit[24];
    f->status = status;
    f->is_unmasked = !gateway_mask_start(f) || is_compressed(fetch);
    for (size_t i = 0; i < GATEWAY_PASSED_COUNT; i++) {
        copy_field(f->passed[i], sizeof(f->passed[i]), fetch, passed_names[i]);
        if (!gateway_mask_field(f, f->passed[i], sizeof(f->passed[i])))
            f->passed[i][0] = '\0';
    }
    if (status != 200 || !f->stream || f->is_unmasked)
        return;
    f->reader = model_stream_new(f->codec, NULL, NULL);
    f->begun = true;
    answer_fields(f, fields, limit, 1);
    if (f->x)
        http_begin(f->x, 200, fields, -1);
}

/* bytes NULL: the end of the stream. */
static bool pass_bytes(struct forward *f, const char *bytes, size_t n) {
    struct buf safe DEFER(buf_done) = BUF(GATEWAY_ANSWER_MAX),
                    out DEFER(buf_done) = BUF(GATEWAY_ANSWER_MAX);
    bool is_stripped = f->codec == &model_chat && !f->wants_usage;
    if (!f->x)
        return true;
    if (f->is_unmasked || !gateway_mask(f, bytes ? bytes : "", n, !bytes, &safe))
        return false;
    if (is_stripped && ((safe.len && !usage_strip_feed(&f->strip, safe.data, safe.len, &out)) ||
                        (!bytes && !usage_strip_end(&f->strip, &out))))
        return false;
    const struct buf *pass = is_stripped ? &out : &safe;
    if (pass->len > 0)
        (void)http_write(f->x, pass->data, pass->len);
    return true;
}

static bool input_is_known(const struct forward *f, struct model_usage *ret) {
    return f->reader && model_stream_usage(f->reader, ret) && model_usage_total(ret) > ret->out;
}

bool gateway_may_leave(const struct forward *f) {
    struct model_usage usage;
    return !f->provider.charges_whole && input_is_known(f, &usage);
}

/* The usage is parsed on the way. */
static bool answer_on_bytes(void *arg, const char *bytes, size_t n) {
    struct forward *f = arg;
    if (!f->begun)
        return buf_add(&f->whole, bytes, n);
    (void)model_stream_feed(f->reader, bytes, n, NULL);
    return f->x ? pass_bytes(f, bytes, n) : !gateway_may_leave(f);
}

/* ---- Usage ---- */

static struct model_subject subject_of(const struct forward *f) {
    return (struct model_subject){f->account, f->provider.model, f->paid.row};
}

static bool embed_usage(const struct forward *f, struct model_usage *ret) {
    json_t *root DEFER(json_decrefp) =
        json_loadb(f->whole.data ? f->whole.data : "", f->whole.len, JSON_ALLOW_NUL, NULL);
    const json_t *usage = json_object_get(root, "usage");
    *ret = (struct model_usage){.in = json_count(usage, "prompt_tokens")};
    return ret->in > 0;
}

/* Only a complete stream has reported its whole usage. */
static bool read_usage(struct forward *f, struct model_usage *ret) {
    struct model_answer answer DEFER(model_answer_done) = {0};
    if (f->kind != GATEWAY_CALL)
        return f->kind != GATEWAY_EMBED || embed_usage(f, ret);
    bool ok = f->reader ? model_stream_end(f->reader, &answer, NULL) == 0
                        : model_get_answer(f->codec, f->whole.data ? f->whole.data : "",
                                           f->whole.len, &answer, NULL, NULL) == 0;
    f->complete = ok;
    *ret = answer.usage;
    return ok && answer.has_usage;
}

/* The usage of a stream that was cut: reported input, else the estimate, and received output. */
static bool part_usage(const struct forward *f, struct model_usage *ret) {
    const struct model_subject who = subject_of(f);
    if (!f->begun || !f->paid.ledger)
        return false;
    *ret = (struct model_usage){0};
    if (!input_is_known(f, ret))
        ret->in = f->guess.usage.in;
    uint64_t out =
        model_estimate_text(ledger_estimates(f->paid.ledger), &who, model_stream_bytes(f->reader));
    if (out > ret->out)
        ret->out = out;
    return true;
}

void gateway_settle_part(struct forward *f, int status, const char *why) {
    struct model_usage usage;
    const struct model_usage *known = part_usage(f, &usage) ? &usage : NULL;
    gateway_tell(f, status, known, false, why);
    paid_settle(&f->paid, known);
}

static void answer_settle(struct forward *f, enum fetch_end end, const char *why) {
    struct model_usage usage = {0};
    const struct model_subject who = subject_of(f);
    bool refused = f->status != 0 && f->status != 200;
    bool costs = !refused && end != FETCH_CONNECT && end != FETCH_TRUST;
    bool left = end == FETCH_STOPPED && !f->x; /* see answer_on_bytes() */
    bool known = !costs || ((end == FETCH_DONE || left) && read_usage(f, &usage));
    if (left)
        why = GATEWAY_LEFT;
    if (!known) {
        gateway_settle_part(f, f->x ? f->status : 0, end == FETCH_DONE ? NULL : why);
        return;
    }
    if (costs && f->kind != GATEWAY_COUNT && f->paid.ledger)
        model_estimate_learn(ledger_estimates(f->paid.ledger), &who, &f->size, &usage);
    gateway_tell(f, f->x ? f->status : 0, &usage, true, end == FETCH_DONE ? NULL : why);
    paid_settle(&f->paid, &usage);
}

/* ---- The end of an answer ---- */

static void reply_whole(struct forward *f) {
    struct http_pair fields[GATEWAY_PASSED_COUNT + 3] = {0};
    char limit[24];
    struct http_exchange *x = f->x;
    if (!f->passed[0][0])
        snprintf(f->passed[0], sizeof(f->passed[0]), "application/json");
    answer_fields(f, fields, limit, 0);
    forward_detach(f);
    http_reply(x, f->status, fields, f->whole.data, f->whole.len);
    forward_free(f);
}

/*
 * Ends a stream to the client. Clients repeat a call whose stream is cut, and lose the reason, so a
 * stream that the provider cut gets an error event.
 */
static void end_stream(struct forward *f, enum model_failure failure) {
    struct buf event DEFER(buf_done) = BUF(16 << 10);
    struct http_exchange *x = f->x;
    if (failure != MODEL_FAIL_NONE &&
        model_put_failure(f->codec, failure, model_failure_row(failure)->says, true, &event) == 0)
        (void)http_write(x, event.data, event.len);
    forward_detach(f);
    forward_free(f);
    http_end(x);
}

void gateway_forget_answer(struct forward *f) {
    buf_done(&f->whole);
    f->whole = BUF(GATEWAY_ANSWER_MAX);
    f->status = 0;
    memset(f->passed, 0, sizeof(f->passed));
}

/* Tries the next model if the provider is overloaded, fails or cannot be reached. */
static bool fail_over(struct forward *f, enum fetch_end end) {
    bool failed = end == FETCH_DONE ? f->status == 429 || f->status >= 500 : end == FETCH_CONNECT;
    if (!failed || f->begun || !f->x || f->target + 1 >= f->target_count)
        return false;
    paid_nothing(&f->paid);
    if (!gateway_next_target(f))
        return false;
    gateway_forget_answer(f);
    gateway_pay(f);
    return true;
}

static void connect_on_time(void *arg) {
    gateway_pay(arg);
}

/*
 * A provider that cannot be reached is tried again here, for some seconds: nothing was sent, so
 * nothing can be charged twice, and agents that are told to try again do so silently for minutes.
 */
static bool connect_again(struct forward *f, enum fetch_end end) {
    enum { TRIES = 4, FIRST_MS = 1000 };
    if (end != FETCH_CONNECT || !f->x || f->connects + 1 >= TRIES)
        return false;
    paid_nothing(&f->paid);
    if (!f->again)
        f->again = loop_timer_new(f->gateway->config.loop, connect_on_time, f);
    loop_timer_start(f->again, (uint64_t)FIRST_MS << f->connects++, 0);
    return true;
}

/* The provider's answer is about the owner's key or login, not about the client's. */
static void refuse_key(struct forward *f) {
    char text[160];
    snprintf(text, sizeof(text),
             "the vendor rejected the login '%s' (the owner logs in again: carrel login %s)",
             f->login ? f->login->name : "", f->login ? f->login->name : "");
    refusal_reply(f, MODEL_FAIL_KEY,
                  f->login ? text
                           : "the model provider rejected the key that the owner of this machine "
                             "set for it (the owner sets it again, see docs/reference/models.md)");
}

static void answer_on_end(void *arg, enum fetch_end end, const char *why) {
    static const enum model_failure failures[] = {
        [FETCH_DONE] = MODEL_FAIL_GARBAGE,    [FETCH_STOPPED] = MODEL_FAIL_LARGE,
        [FETCH_CONNECT] = MODEL_FAIL_CONNECT, [FETCH_TRUST] = MODEL_FAIL_TRUST,
        [FETCH_TIMEOUT] = MODEL_FAIL_TIMEOUT, [FETCH_CUT] = MODEL_FAIL_CUT,
        [FETCH_LARGE] = MODEL_FAIL_LARGE,
    };
    struct forward *f = arg;
    f->fetch = NULL;
    if (gateway_login_again(f, end) || fail_over(f, end) || connect_again(f, end))
        return;
    answer_settle(f, end, why);
    if (!f->x) {
        forward_free(f);
        return;
    }
    if (f->begun) {
        (void)pass_bytes(f, NULL, 0);
        bool was_cut = !f->complete && model_stream_failure(f->reader) == MODEL_FAIL_CUT;
        end_stream(f, end != FETCH_DONE ? failures[end]
                      : was_cut         ? MODEL_FAIL_CUT
                                        : MODEL_FAIL_NONE);
        return;
    }
    if (end == FETCH_DONE && f->status == 401) {
        refuse_key(f);
        return;
    }
    if (f->kind == GATEWAY_LIST && end == FETCH_DONE && f->status == 200 &&
        !gateway_login_cut_list(f))
        f->status = 0; /* not an answer of the vendor */
    if (gateway_login_leaks(f) || f->is_unmasked || !gateway_mask_whole(f))
        f->status = 0;
    if (end == FETCH_DONE && f->status >= 200) {
        reply_whole(f);
        return;
    }
    struct err err = {0};
    model_failure_err(failures[end], why, &err);
    gateway_refuse(f, failures[end], &err);
}

const struct fetch_events gateway_events = {answer_on_head, answer_on_bytes, answer_on_end};
