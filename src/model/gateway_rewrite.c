/* Requests of the gateway: chooses the provider, and completes the request. */
#include <string.h>

#include "base/defer.h"
#include "model/gateway_inner.h"
#include "model/json.h"
#include "model/reach.h"

/* ---- The provider ---- */

static void rewrite_price(struct forward *f) {
    const struct gateway_config *c = &f->gateway->config;
    f->paid = (struct paid){
        .ledger = c->ledger,
        .account = f->account,
        .model = f->provider.model,
        .row = c->conf ? model_row(c->conf->known, c->conf->known_count, f->provider.model) : NULL};
}

/* A login has one provider. Its calls are counted like those of a key. */
static int rewrite_aim_login(struct forward *f, const char *model, struct err *err) {
    if (gateway_login_aim(f, model, err) < 0)
        return -1;
    f->target = 0;
    f->target_count = 1;
    rewrite_price(f);
    return 0;
}

/* Chooses the model that is tried now, with its price. */
static int rewrite_aim(struct forward *f, struct err *err) {
    const struct gateway_config *c = &f->gateway->config;
    const char *target = f->targets[f->target];
    model_provider_done(&f->provider);
    if (model_provider_find(c->conf, target, c->env, c->env_arg, &f->provider, err) < 0)
        return -1;
    if (f->provider.codec != f->codec) {
        err_set(err, ERR_INVALID, "model '%.80s' cannot be used with this API format", target);
        return err_remedy(err, "post to a path that ends in %s",
                          f->provider.codec ? model_codec_path(f->provider.codec) : "(none)");
    }
    rewrite_price(f);
    /* A request of Gemini has no such member; it is for check_reach(), and is not sent. */
    json_object_set_new(f->root, "model", json_string(f->provider.model));
    return 0;
}

/* Skips models whose provider has no key, unless no other one is left. */
static int rewrite_find(struct forward *f, struct err *err) {
    const char *model = f->path_model[0] ? f->path_model : json_member(f->root, "model");
    if (!model || !model[0])
        return err_set(err, ERR_INVALID, "the request has no member 'model'");
    if (f->login)
        return rewrite_aim_login(f, model, err);
    gateway_find_targets(f, model);
    for (f->target = 0; rewrite_aim(f, err) < 0; f->target++)
        if (f->target + 1 == f->target_count)
            return -1;
    return 0;
}

/* ---- The request ---- */

static const char *const limit_names[] = {"max_completion_tokens", "max_output_tokens",
                                          "max_tokens", "maxOutputTokens"};
enum { LIMIT_NAMES = sizeof(limit_names) / sizeof(*limit_names) };

static const char *limit_name(const struct forward *f) {
    if (f->codec == &model_gemini)
        return limit_names[3];
    if (f->codec == &model_responses)
        return limit_names[1];
    return f->codec == &model_chat && !f->provider.wire.old_max_tokens ? limit_names[0]
                                                                       : limit_names[2];
}

/* The object of the request that has the limit. */
static json_t *limit_place(const struct forward *f) {
    json_t *config = json_object_get(f->root, "generationConfig");
    if (f->codec != &model_gemini)
        return f->root;
    if (json_is_object(config))
        return config;
    json_object_set_new(f->root, "generationConfig", json_object());
    return json_object_get(f->root, "generationConfig");
}

void gateway_set_limit(struct forward *f, uint64_t max_tokens) {
    json_t *place = limit_place(f);
    bool any = false;
    for (size_t i = 0; i < LIMIT_NAMES; i++)
        if (json_object_get(place, limit_names[i])) {
            json_object_set_new(place, limit_names[i], json_integer((json_int_t)max_tokens));
            any = true;
        }
    if (!any)
        json_object_set_new(place, limit_name(f), json_integer((json_int_t)max_tokens));
    f->max_tokens = max_tokens;
}

/* The service behind a login of Codex refuses requests with a limit of output tokens. */
bool gateway_takes_no_limit(const struct forward *f) {
    return f->login && f->codec == &model_responses;
}

/*
 * Finds the token limit of the answer. A request without one gets the limit of carrel.conf, if
 * there is any: Codex sends none, and takes an answer that reaches a limit for a failure.
 */
static void find_limit(struct forward *f) {
    const struct conf_model *row = f->paid.row;
    uint64_t wanted = 0;
    if (f->kind != GATEWAY_CALL)
        return;
    const json_t *place =
        f->codec == &model_gemini ? json_object_get(f->root, "generationConfig") : f->root;
    for (size_t i = 0; i < LIMIT_NAMES; i++) {
        uint64_t n = json_count(place, limit_names[i]);
        wanted = n > wanted ? n : wanted;
    }
    f->max_tokens = wanted ? wanted : GATEWAY_MAX_TOKENS;
    if (!wanted && row && row->max_tokens && !gateway_takes_no_limit(f))
        gateway_set_limit(f, row->max_tokens);
}

/*
 * Gemini also accepts the names of its members in snake case. They get the other name, so that
 * find_limit() and check_count() see them. Two names for one member are refused.
 */
static int rename_member(json_t *object, const char *from, const char *to, struct err *err) {
    json_t *value = json_object_get(object, from);
    if (!value)
        return 0;
    if (json_object_get(object, to))
        return err_set(err, ERR_INVALID, "the request has both '%s' and '%s'", from, to);
    json_object_set(object, to, value);
    json_object_del(object, from);
    return 0;
}

static int rename_gemini(json_t *root, struct err *err) {
    if (rename_member(root, "generation_config", "generationConfig", err) < 0)
        return -1;
    json_t *config = json_object_get(root, "generationConfig");
    if (rename_member(config, "candidate_count", "candidateCount", err) < 0)
        return -1;
    return rename_member(config, "max_output_tokens", "maxOutputTokens", err);
}

/* Several answers would cost more than the reserved worst case. */
static int check_count(const json_t *root, struct err *err) {
    const json_t *config = json_object_get(root, "generationConfig");
    const json_t *counts[] = {json_object_get(root, "n"),
                              json_object_get(config, "candidateCount")};
    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
        if (counts[i] && json_integer_value(counts[i]) != 1)
            return err_set(err, ERR_INVALID, "the request must ask for one answer only");
    return 0;
}

static void want_usage(struct forward *f) {
    json_t *root = f->root, *options = json_object_get(root, "stream_options");
    f->wants_usage = json_is_true(json_object_get(options, "include_usage"));
    if (f->codec != &model_chat || !f->stream || f->kind != GATEWAY_CALL)
        return;
    if (!json_is_object(options)) {
        json_object_set_new(root, "stream_options", json_object());
        options = json_object_get(root, "stream_options");
    }
    json_object_set_new(options, "include_usage", json_true());
}

/* Refuses members that are not known, because one of them may make the provider fetch something. */
static int check_embed(const json_t *root, struct err *err) {
    static const char *const known[] = {"model", "input", "encoding_format", "dimensions", "user"};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)root, name, value) {
        size_t i = 0;
        while (i < sizeof(known) / sizeof(*known) && strcmp(known[i], name) != 0)
            i++;
        if (i == sizeof(known) / sizeof(*known))
            return err_set(err, ERR_INVALID, "unknown member '%.60s' of a request for embeddings",
                           name);
    }
    return 0;
}

/* The provider is trusted, but the servers that it contacts are not. */
static int check_reach(const struct forward *f, const json_t *root, struct err *err) {
    const struct gateway_config *c = &f->gateway->config;
    char what[MODEL_REACH_SIZE];
    if (f->kind == GATEWAY_EMBED)
        return check_embed(root, err);
    if (!c->reaches || !model_reaches_out(f->codec, root, what))
        return 0;
    return c->reaches(c->reaches_arg, f->account, what, err);
}

int gateway_rewrite(struct forward *f, struct err *err) {
    if (rewrite_find(f, err) < 0)
        return -1;
    if (f->codec == &model_gemini && rename_gemini(f->root, err) < 0)
        return -1;
    if (check_count(f->root, err) < 0)
        return -1;
    if (f->codec != &model_gemini)
        f->stream = f->kind == GATEWAY_CALL && json_is_true(json_object_get(f->root, "stream"));
    find_limit(f);
    want_usage(f);
    return check_reach(f, f->root, err);
}

/* ---- The next provider ---- */

/* Each model is checked, because a model that searches by itself is known only by its name. */
bool gateway_next_target(struct forward *f) {
    struct err err = {0};
    size_t before = f->target;
    while (++f->target < f->target_count)
        if (rewrite_aim(f, &err) == 0 && check_reach(f, f->root, &err) == 0)
            return true;
    f->target = before;
    (void)rewrite_aim(f, &err); /* the outcome is reported for the provider that has failed */
    return false;
}
