/*
 * The models that a call of the gateway tries, in order: those of an alias, the one that the client
 * named with its provider, or a plain name at all providers of carrel.conf with the format.
 */
#include <string.h>

#include "model/gateway_inner.h"

static const char *known_provider(const struct model_codec *codec) {
    if (codec == &model_anthropic)
        return "anthropic";
    if (codec == &model_gemini)
        return "google";
    return codec == &model_chat ? "openai" : "openai-responses";
}

static bool is_provider(const struct conf *conf, const char *name, size_t n) {
    static const char *const known[] = {"anthropic", "openai", "openai-responses", "google"};
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if (strlen(known[i]) == n && memcmp(known[i], name, n) == 0)
            return true;
    for (size_t i = 0; conf && i < conf->provider_count; i++)
        if (strlen(conf->providers[i].name) == n && memcmp(conf->providers[i].name, name, n) == 0)
            return true;
    return false;
}

static bool has_format(const struct conf *conf, const char *target,
                       const struct model_codec *codec) {
    size_t n = strcspn(target, "/");
    for (size_t i = 0; conf && i < conf->provider_count; i++)
        if (strlen(conf->providers[i].name) == n && memcmp(conf->providers[i].name, target, n) == 0)
            return strcmp(conf->providers[i].format, model_codec_name(codec)) == 0;
    const char *known = known_provider(codec);
    return strlen(known) == n && memcmp(known, target, n) == 0;
}

static void targets_add(struct forward *f, const char *provider, const char *slash,
                        const char *model) {
    if (f->target_count == GATEWAY_TARGETS_MAX)
        return;
    snprintf(f->targets[f->target_count++], sizeof(f->targets[0]), "%s%s%s", provider, slash,
             model);
}

/* An alias without a model of this format keeps its first one, for the error. */
static void targets_add_alias(struct forward *f, const struct conf *conf,
                              const struct conf_alias *alias) {
    for (size_t i = 0; i < alias->count; i++)
        if (has_format(conf, alias->targets[i], f->codec))
            targets_add(f, alias->targets[i], "", "");
    if (f->target_count == 0)
        targets_add(f, alias->targets[0], "", "");
}

/* Names of models may contain slashes. */
void gateway_find_targets(struct forward *f, const char *model) {
    const struct conf *conf = f->gateway->config.conf;
    const struct conf_alias *alias = model_alias(conf, model);
    const char *slash = strchr(model, '/');
    f->target_count = 0;
    if (alias) {
        targets_add_alias(f, conf, alias);
    } else if (slash && is_provider(conf, model, (size_t)(slash - model))) {
        targets_add(f, model, "", "");
    } else {
        for (size_t i = 0; conf && i < conf->provider_count; i++)
            if (strcmp(conf->providers[i].format, model_codec_name(f->codec)) == 0)
                targets_add(f, conf->providers[i].name, "/", model);
        if (f->target_count == 0)
            targets_add(f, known_provider(f->codec), "/", model);
    }
}
