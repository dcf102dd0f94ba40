#include "model/provider.h"

#include <string.h>

#include "base/defer.h"

static const struct {
    const char *name, *format, *url, *url_env, *key_env;
} known[] = {
    {"anthropic", "anthropic", "https://api.anthropic.com", "ANTHROPIC_BASE_URL",
     "ANTHROPIC_API_KEY"},
    {"openai", "chat", "https://api.openai.com/v1", "OPENAI_BASE_URL", "OPENAI_API_KEY"},
    {"openai-responses", "responses", "https://api.openai.com/v1", "OPENAI_BASE_URL",
     "OPENAI_API_KEY"},
    {"google", "gemini", "https://generativelanguage.googleapis.com", "GOOGLE_GEMINI_BASE_URL",
     "GEMINI_API_KEY"},
};
#define REHEARSAL "rehearsal"
enum { KNOWN = sizeof(known) / sizeof(*known) };

void model_provider_done(struct model_provider *p) {
    secret_free(p->key);
    p->key = NULL;
}

bool model_env_is_url(const char *name) {
    for (size_t i = 0; i < KNOWN; i++)
        if (strcmp(known[i].url_env, name) == 0)
            return true;
    return false;
}

const char *model_env_process(void *arg, const char *name) {
    (void)arg;
    return getenv(name);
}

/* Splits PROVIDER/MODEL at the first slash; names of models may contain slashes. */
static int provider_split(const char *wanted, struct conf_provider *ret, char model[128],
                          struct err *err) {
    const char *slash = strchr(wanted, '/');
    size_t n = slash ? (size_t)(slash - wanted) : 0;
    if (!slash || n == 0 || n >= sizeof(ret->name) || !slash[1] || strlen(slash + 1) >= 128) {
        err_set(err, ERR_INVALID, "model '%.100s' is not written as PROVIDER/MODEL", wanted);
        return err_remedy(err, "for example: --model anthropic/NAME");
    }
    memcpy(ret->name, wanted, n);
    ret->name[n] = '\0';
    memcpy(model, slash + 1, strlen(slash + 1) + 1);
    return 0;
}

static bool from_conf(const struct conf *conf, const char *name, struct conf_provider *ret) {
    for (size_t i = 0; conf && i < conf->provider_count; i++)
        if (strcmp(conf->providers[i].name, name) == 0) {
            *ret = conf->providers[i];
            return true;
        }
    return false;
}

const char *model_provider_name(const struct conf *conf, size_t i) {
    struct conf_provider replaced;
    if (i < conf->provider_count)
        return conf->providers[i].name;
    i -= conf->provider_count;
    for (size_t k = 0; k < KNOWN; k++)
        if (!from_conf(conf, known[k].name, &replaced) && i-- == 0)
            return known[k].name;
    return NULL;
}

const char *model_provider_format(const struct conf *conf, const char *name) {
    for (size_t i = 0; i < conf->provider_count; i++)
        if (strcmp(conf->providers[i].name, name) == 0)
            return conf->providers[i].format;
    for (size_t i = 0; i < KNOWN; i++)
        if (strcmp(known[i].name, name) == 0)
            return known[i].format;
    return "";
}

void model_provider_facts(const struct conf *conf, const char *name,
                          struct model_provider_facts *ret) {
    *ret = (struct model_provider_facts){"", "", false};
    for (size_t i = 0; i < conf->provider_count; i++) {
        const struct conf_provider *p = &conf->providers[i];
        bool is_secret = p->key_secret[0];
        if (strcmp(p->name, name) == 0) {
            *ret = (struct model_provider_facts){is_secret ? p->key_secret : p->key_env, p->url,
                                                 is_secret};
            return;
        }
    }
    for (size_t i = 0; i < KNOWN; i++)
        if (strcmp(known[i].name, name) == 0)
            *ret = (struct model_provider_facts){known[i].key_env, known[i].url, false};
}

static int set_url(char *to, size_t size, const char *value, struct err *err) {
    size_t n = strlen(value);
    while (n > 0 && value[n - 1] == '/')
        n--;
    bool http = strncmp(value, "http://", 7) == 0 || strncmp(value, "https://", 8) == 0;
    if (!http || n >= size || strpbrk(value, " \r\n\t?#@"))
        return err_set(
            err, ERR_INVALID,
            "'%.100s' is not a base URL of a model provider: write http(s)://HOST[/PATH] "
            "without ?, # and @",
            value);
    memcpy(to, value, n);
    to[n] = '\0';
    return 0;
}

/* Finds a provider that needs no configuration. 1: found. */
static int from_table(const char *name, model_env_fn *env, void *arg, struct conf_provider *ret,
                      struct err *err) {
    for (size_t i = 0; i < KNOWN; i++) {
        if (strcmp(known[i].name, name) != 0)
            continue;
        const char *url = env(arg, known[i].url_env);
        snprintf(ret->format, sizeof(ret->format), "%s", known[i].format);
        snprintf(ret->key_env, sizeof(ret->key_env), "%s", known[i].key_env);
        if (set_url(ret->url, sizeof(ret->url), url && url[0] ? url : known[i].url, err) < 0)
            return err_wrap(err, "variable %s", known[i].url_env);
        return 1;
    }
    return 0;
}

static int unknown(const struct conf *conf, const char *name, struct err *err) {
    struct buf all DEFER(buf_done) = BUF(sizeof(err->remedy));
    for (size_t i = 0; i < KNOWN; i++)
        (void)!buf_addf(&all, " %s", known[i].name);
    for (size_t i = 0; conf && i < conf->provider_count; i++)
        (void)!buf_addf(&all, " %s", conf->providers[i].name);
    err_set(err, ERR_NOT_FOUND, "unknown model provider '%s'", name);
    return err_remedy(err, "use one of:%s rehearsal", all.data ? all.data : "");
}

static int take_key(const struct conf_provider *from, model_env_fn *env, void *arg,
                    struct model_provider *p, struct err *err) {
    char name[sizeof(from->key_secret) + sizeof(MODEL_ENV_SECRET)];
    bool is_secret = from->key_secret[0];
    snprintf(name, sizeof(name), "%s%s", is_secret ? MODEL_ENV_SECRET : "",
             is_secret ? from->key_secret : from->key_env);
    if (!name[0])
        return 0;
    const char *value = env(arg, name);
    p->key = value ? secret_new(value, strlen(value)) : NULL;
    if (p->key)
        return 0;
    err_set(err, ERR_DENIED, "the API key of model provider '%s' is not set", p->name);
    return is_secret ? err_remedy(err,
                                  "store the API key as a secret of the user of the daemon: "
                                  "carrel secret set %s, or the page Secrets",
                                  from->key_secret)
                     : err_remedy(err,
                                  "start the daemon with %s in its environment, or name a "
                                  "stored secret: key_secret in carrel.conf",
                                  from->key_env);
}

static const char *default_auth(const char *format) {
    if (strcmp(format, "anthropic") == 0)
        return "x-api-key";
    return strcmp(format, "gemini") == 0 ? "x-goog-api-key" : "bearer";
}

static int provider_fill(const struct conf_provider *from, const char *model, model_env_fn *env,
                         void *arg, struct model_provider *ret, struct err *err) {
    struct model_provider p = {.codec = model_codec_named(from->format)};
    snprintf(p.name, sizeof(p.name), "%s", from->name);
    snprintf(p.model, sizeof(p.model), "%s", model);
    snprintf(p.url, sizeof(p.url), "%s", from->url);
    snprintf(p.auth, sizeof(p.auth), "%s", from->auth[0] ? from->auth : default_auth(from->format));
    snprintf(p.version, sizeof(p.version), "%s", from->version[0] ? from->version : "2023-06-01");
    p.wire.old_max_tokens = from->old_max_tokens;
    p.charges_whole = from->charges_whole;
    if (take_key(from, env, arg, &p, err) < 0)
        return -1;
    *ret = p;
    return 0;
}

const struct conf_alias *model_alias(const struct conf *conf, const char *name) {
    for (size_t i = 0; conf && i < conf->alias_count; i++)
        if (strcmp(conf->aliases[i].name, name) == 0)
            return &conf->aliases[i];
    return NULL;
}

/* Returns PROVIDER/MODEL for an alias, and the default for NULL and "". */
static const char *wanted_or_default(const struct conf *conf, const char *wanted) {
    if ((!wanted || !wanted[0]) && conf)
        wanted = conf->model;
    const struct conf_alias *alias = wanted ? model_alias(conf, wanted) : NULL;
    return alias ? alias->targets[0] : wanted;
}

bool model_is_configured(const struct conf *conf, const char *wanted) {
    struct conf_provider named = {0}, found;
    char model[128];
    struct err none;
    wanted = wanted_or_default(conf, wanted);
    return wanted && provider_split(wanted, &named, model, &none) == 0 &&
           strcmp(named.name, REHEARSAL) != 0 && from_conf(conf, named.name, &found);
}

int model_provider_find(const struct conf *conf, const char *wanted, model_env_fn *env, void *arg,
                        struct model_provider *ret, struct err *err) {
    struct conf_provider from = {0};
    char model[128], name[32];
    wanted = wanted_or_default(conf, wanted);
    if (!wanted || !wanted[0]) {
        err_set(err, ERR_INVALID, "the request does not name a model");
        return err_remedy(err, "name the model with --model PROVIDER/MODEL, or set 'default' in "
                               "[models] of carrel.conf");
    }
    if (provider_split(wanted, &from, model, err) < 0)
        return -1;
    if (strcmp(from.name, REHEARSAL) == 0) {
        *ret = (struct model_provider){.name = REHEARSAL};
        snprintf(ret->model, sizeof(ret->model), "%s", model);
        return 0;
    }
    memcpy(name, from.name, sizeof(name));
    int found = from_conf(conf, name, &from) ? 1 : from_table(name, env, arg, &from, err);
    if (found < 0)
        return -1;
    return found ? provider_fill(&from, model, env, arg, ret, err) : unknown(conf, name, err);
}
