/*
 * Providers of models: format, base URL and key, from carrel.conf, from the environment, or given
 * with a run. Model names are never built in.
 *
 * A model is asked for as PROVIDER/MODEL. Providers that are known without configuration:
 *
 *   anthropic         ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL
 *   openai            OPENAI_API_KEY, OPENAI_BASE_URL: Chat Completions, also of compatible servers
 *   openai-responses  the same with Responses
 *   google            GEMINI_API_KEY, GOOGLE_GEMINI_BASE_URL: for machines only
 *   rehearsal         no key; the script comes with the run
 */
#pragma once

#include "base/secret.h"
#include "model/codec.h"
#include "model/rehearsal.h"
#include "store/conf.h"

struct model_provider {
    char name[32];
    const struct model_codec *codec; /* NULL: the provider `rehearsal` */
    char url[CONF_TEXT_SIZE];
    char auth[16];    /* "bearer", or the name of a field */
    char version[24]; /* version of the Anthropic API */
    struct model_wire wire;
    bool charges_whole; /* an answer costs all of it, even if nobody reads it to its end */
    struct secret *key; /* API key, owned by this struct; NULL: none */
    char model[128];
};
void model_provider_done(struct model_provider *p);

/* Looks up a variable, like getenv(); a run has its own variables. The name of an owner's secret
 * has the prefix MODEL_ENV_SECRET. */
#define MODEL_ENV_SECRET "secret:"
typedef const char *model_env_fn(void *arg, const char *name);

/*
 * Finds the provider and the model of `wanted`, PROVIDER/MODEL or an alias, whose first model
 * counts; NULL or "": the default of carrel.conf. Errors: ERR_INVALID without a model,
 * ERR_NOT_FOUND for an unknown provider, ERR_DENIED if its key is missing.
 */
int model_provider_find(const struct conf *conf, const char *wanted, model_env_fn *env, void *arg,
                        struct model_provider *ret, struct err *err);

/* Returns the name of the provider number `i`: those of carrel.conf, then built-in ones that it
 * does not replace; NULL: there are not so many. */
const char *model_provider_name(const struct conf *conf, size_t i);
/* Returns the format of a provider of that list. */
const char *model_provider_format(const struct conf *conf, const char *name);
/* What is known of a provider of that list, whether it can be called or not. */
struct model_provider_facts {
    const char *key; /* variable of the environment, or secret, with the API key; empty: none */
    const char *url; /* unless a variable of the environment replaces it */
    bool is_secret;
};
void model_provider_facts(const struct conf *conf, const char *name,
                          struct model_provider_facts *ret);

/* Finds an alias of carrel.conf; NULL: none. */
const struct conf_alias *model_alias(const struct conf *conf, const char *name);

/* Whether carrel.conf defines the provider of `wanted`, PROVIDER/MODEL or an alias. */
bool model_is_configured(const struct conf *conf, const char *wanted);

/* Whether a variable sets the base URL of a provider. */
bool model_env_is_url(const char *name);

/* A model_env_fn that reads the environment of this process. */
const char *model_env_process(void *arg, const char *name);
