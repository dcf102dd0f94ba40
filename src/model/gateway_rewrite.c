/* Requests of the gateway: chooses the provider, and completes the request. */
#include <string.h>

#include "base/defer.h"
#include "model/gateway_inner.h"
#include "model/json.h"
#include "model/reach.h"

/* ---- The provider ---- */

static const char *known_provider(const struct model_codec *codec) {
    if (codec == &model_anthropic)
        return "anthropic";
    return codec == &model_chat ? "openai" : "openai-responses";
}

static bool is_provider(const struct conf *conf, const char *name, size_t n) {
    static const char *const known[] = {"anthropic", "openai", "openai-responses"};
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (strlen(known[i]) == n && memcmp(known[i], name, n) == 0)
            return true;
    for (size_t i = 0; conf && i < conf->provider_count; i++)
        if (strlen(conf->providers[i].name) == n && memcmp(conf->providers[i].name, name, n) == 0)
            return true;
    return false;
}

/* Model names may contain slashes. */
static void full_name(const struct conf *conf, const struct model_codec *codec, const char *model,
                      char *ret, size_t size) {
    const char *slash = strchr(model, '/');
    const char *provider = known_provider(codec);
    if (slash && is_provider(conf, model, (size_t)(slash - model))) {
        snprintf(ret, size, "%s", model);
        return;
    }
    for (size_t i = conf ? conf->provider_count : 0; i > 0; i--)
        if (strcmp(conf->providers[i - 1].format, model_codec_name(codec)) == 0)
            provider = conf->providers[i - 1].name;
    snprintf(ret, size, "%s/%s", provider, model);
}

static int find_provider(struct forward *f, struct err *err) {
    const struct gateway_config *c = &f->gateway->config;
    const char *model = json_member(f->root, "model");
    char name[192];
    if (!model || !model[0])
        return err_set(err, ERR_INVALID, "the request has no member 'model'");
    full_name(c->conf, f->codec, model, name, sizeof(name));
    if (model_provider_find(c->conf, name, c->env, c->env_arg, &f->provider, err) < 0)
        return -1;
    if (f->provider.codec == f->codec)
        return 0;
    err_set(err, ERR_INVALID, "model '%.80s' cannot be used with this API format", model);
    return err_remedy(err, "post to a path that ends in %s",
                      f->provider.codec ? model_codec_path(f->provider.codec) : "(none)");
}

/* ---- The request ---- */

static const char *const limit_names[] = {"max_completion_tokens", "max_output_tokens",
                                          "max_tokens"};
enum { LIMIT_NAMES = sizeof(limit_names) / sizeof(*limit_names) };

static const char *limit_name(const struct forward *f) {
    if (f->codec == &model_responses)
        return limit_names[1];
    return f->codec == &model_chat && !f->provider.wire.old_max_tokens ? limit_names[0]
                                                                       : limit_names[2];
}

void gateway_set_limit(struct forward *f, uint64_t max_tokens) {
    bool any = false;
    for (size_t i = 0; i < LIMIT_NAMES; i++)
        if (json_object_get(f->root, limit_names[i])) {
            json_object_set_new(f->root, limit_names[i], json_integer((json_int_t)max_tokens));
            any = true;
        }
    if (!any)
        json_object_set_new(f->root, limit_name(f), json_integer((json_int_t)max_tokens));
    f->max_tokens = max_tokens;
}

/* Finds the token limit of the answer. Adds the default if the request has none. */
static void find_limit(struct forward *f) {
    const struct conf_model *row = f->paid.row;
    uint64_t wanted = 0;
    if (f->kind != GATEWAY_CALL)
        return;
    for (size_t i = 0; i < LIMIT_NAMES; i++) {
        uint64_t n = json_count(f->root, limit_names[i]);
        wanted = n > wanted ? n : wanted;
    }
    if (wanted)
        f->max_tokens = wanted;
    else
        gateway_set_limit(f, row && row->max_tokens ? row->max_tokens : GATEWAY_MAX_TOKENS);
}

/* Several answers would cost more than the reserved worst case. */
static int check_count(const json_t *root, struct err *err) {
    const json_t *n = json_object_get(root, "n");
    return n && json_integer_value(n) != 1
               ? err_set(err, ERR_INVALID, "the member 'n' of the request must be 1")
               : 0;
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
    const struct conf *conf = f->gateway->config.conf;
    if (find_provider(f, err) < 0 || check_count(f->root, err) < 0)
        return -1;
    f->stream = f->kind == GATEWAY_CALL && json_is_true(json_object_get(f->root, "stream"));
    f->paid = (struct paid){
        .ledger = f->gateway->config.ledger,
        .account = f->account,
        .model = f->provider.model,
        .row = conf ? model_row(conf->known, conf->known_count, f->provider.model) : NULL};
    json_object_set_new(f->root, "model", json_string(f->provider.model));
    find_limit(f);
    want_usage(f);
    return check_reach(f, f->root, err);
}
