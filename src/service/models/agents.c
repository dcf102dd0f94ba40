/* The agents of carrel.conf, for `carrel agent`: the command line starts them in machines. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "base/jot.h"
#include "service/models/models.h"
#include "service/net/net.h"
#include "service/rights.h"
#include "service/state.h"

enum { AGENTS_MAX_BYTES = 1 << 20 };

/* Whether this provider exists and has its key. */
static bool provider_is_ready(const struct model_access *a, const char *name) {
    struct model_provider p DEFER(model_provider_done) = {.key = NULL};
    char wanted[sizeof(p.name) + 4];
    struct err none;
    snprintf(wanted, sizeof(wanted), "%s/any", name);
    return model_provider_find(a->conf, wanted, a->env, a->env_arg, &p, &none) == 0;
}

/* As the gateway does: providers of carrel.conf with the format, or else the vendor's. */
static bool format_is_ready(const struct model_access *a, const char *format, const char *vendor) {
    size_t found = 0;
    for (size_t i = 0; i < a->conf->provider_count; i++) {
        if (strcmp(a->conf->providers[i].format, format) != 0)
            continue;
        if (provider_is_ready(a, a->conf->providers[i].name))
            return true;
        found++;
    }
    return !found && provider_is_ready(a, vendor);
}

static void agents_put_formats(struct service *s, struct jot *j) {
    static const char *const vendors[][2] = {{"anthropic", "anthropic"},
                                             {"chat", "openai"},
                                             {"responses", "openai-responses"},
                                             {"gemini", "google"}};
    const struct model_access access = service_model_access(s);
    jot_array(j, "formats");
    for (size_t i = 0; i < sizeof(vendors) / sizeof(*vendors); i++)
        if (format_is_ready(&access, vendors[i][0], vendors[i][1]))
            jot_string(j, NULL, vendors[i][0]);
    jot_end(j, ']');
}

static void agents_put_row(struct jot *j, const struct conf_agent *a) {
    const char *const texts[][2] = {{"name", a->name},
                                    {"image", a->image},
                                    {"start", a->start},
                                    {"once", a->once},
                                    {"resume", a->resume}};
    jot_object(j, NULL);
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        if (*texts[i][1])
            jot_string(j, texts[i][0], texts[i][1]);
    jot_array(j, "env");
    for (size_t i = 0; i < a->env_count; i++)
        jot_string(j, NULL, a->env[i]);
    jot_end(j, ']');
    jot_end(j, '}');
}

void service_agent_list(struct service *s, const struct caller *who, service_net_fn *done,
                        void *arg) {
    struct buf text DEFER(buf_done) = BUF(AGENTS_MAX_BYTES);
    struct jot j = JOT(&text);
    char money[40];
    struct err err;
    if (allow(who, SCOPE_READ, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    snprintf(money, sizeof(money), "%" PRIu64 ".%06" PRIu64, s->conf->agent_micro / 1000000,
             s->conf->agent_micro % 1000000);
    jot_object(&j, NULL);
    jot_u64(&j, "tokens", s->conf->agent_tokens);
    jot_string(&j, "money", s->conf->agent_micro ? money : "0");
    jot_string(&j, "currency", s->conf->currency);
    agents_put_formats(s, &j);
    jot_array(&j, "agents");
    for (size_t i = 0; i < s->conf->agents.count; i++)
        agents_put_row(&j, &s->conf->agents.list[i]);
    jot_end(&j, ']');
    jot_end(&j, '}');
    if (j.failed)
        err_set(&err, ERR_LIMIT, "the agents of carrel.conf are too long for one answer");
    done(arg, j.failed ? NULL : text.data, j.failed ? &err : NULL);
}
