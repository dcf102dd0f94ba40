/* The models that machines can call, and what the calls of an owner cost. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/defer.h"
#include "base/jot.h"
#include "service/host.h"
#include "service/models/inner.h"
#include "service/rights.h"
#include "store/spending/spending.h"

_Static_assert((int)MODEL_USAGE_DAYS_MAX == (int)SPENDING_DAYS, "usage is kept as long as shown");

enum { LIST_MAX_BYTES = 1 << 20, DAY_MS = 86400 * 1000 };

/* Ends a list that was written as JSON. */
static void list_tell(struct jot *j, const struct buf *text, service_net_fn *done, void *arg) {
    struct err err;
    if (j->failed)
        err_set(&err, ERR_LIMIT, "the list is too long for one answer");
    done(arg, j->failed ? NULL : text->data, j->failed ? &err : NULL);
}

/* ---- providers, aliases and prices ---- */

static const char *no_key(void *arg, const char *name) {
    (void)arg;
    (void)name;
    return NULL;
}

/* As when the caller starts a run that brings no keys of its own. */
static int provider_try(const struct model_access *a, const struct caller *who, const char *name,
                        const struct model_provider_facts *facts, struct model_provider *ret,
                        struct err *err) {
    char wanted[sizeof(ret->name) + 4];
    bool has_keys = service_has_model_keys(who);
    snprintf(wanted, sizeof(wanted), "%s/any", name);
    if (model_is_configured(a->conf, wanted) && authorise(who, RIGHT_RUN_MODEL, err) < 0)
        return -1;
    if (model_provider_find(a->conf, wanted, has_keys ? a->env : no_key, a->env_arg, ret, err) == 0)
        return 0;
    if (has_keys)
        return -1;
    return facts->is_secret
               ? err_remedy(err, "ask the administrator: runs of other users do not get its key")
               : err_remedy(err, "bring a key of your own: carrel do with %s in its environment",
                            facts->key);
}

static void put_provider(struct service *s, const struct caller *who, const char *name,
                         struct jot *j) {
    const struct model_access a = service_model_access(s);
    struct model_provider p DEFER(model_provider_done) = {.key = NULL};
    struct model_provider_facts facts;
    model_provider_facts(s->conf, name, &facts);
    struct err err = {0};
    bool ready = provider_try(&a, who, name, &facts, &p, &err) == 0;
    jot_object(j, NULL);
    jot_string(j, "name", name);
    jot_string(j, "format", model_provider_format(a.conf, name));
    jot_bool(j, "ready", ready);
    if (facts.key[0] && service_has_model_keys(who))
        jot_string(j, facts.is_secret ? "key_secret" : "key_env", facts.key);
    if (service_sees_all(who))
        jot_string(j, "url", ready ? p.url : facts.url);
    if (!ready)
        jot_string(j, "missing", err.remedy[0] ? err.remedy : err.text);
    jot_end(j, '}');
}

static void put_providers(struct service *s, const struct caller *who, struct jot *j) {
    const char *name;
    jot_array(j, "providers");
    for (size_t i = 0; (name = model_provider_name(s->conf, i)); i++)
        put_provider(s, who, name, j);
    jot_end(j, ']');
}

static void put_aliases(const struct conf *conf, struct jot *j) {
    jot_array(j, "aliases");
    for (size_t i = 0; i < conf->alias_count; i++) {
        const struct conf_alias *a = &conf->aliases[i];
        jot_object(j, NULL);
        jot_string(j, "name", a->name);
        jot_array(j, "models");
        for (size_t k = 0; k < a->count; k++)
            jot_string(j, NULL, a->targets[k]);
        jot_end(j, ']');
        jot_end(j, '}');
    }
    jot_end(j, ']');
}

static void put_model(const struct conf_model *m, struct jot *j) {
    const struct {
        const char *name;
        uint64_t micro;
    } prices[] = {{"in", m->in},
                  {"out", m->out},
                  {"cache_read", m->cache_read},
                  {"cache_write", m->cache_write},
                  {"cache_write_long", m->cache_write_long}};
    jot_object(j, NULL);
    jot_string(j, "name", m->name);
    for (size_t i = 0; m->priced && i < sizeof(prices) / sizeof(*prices); i++)
        models_put_money(j, prices[i].name, prices[i].micro);
    if (m->window)
        jot_u64(j, "window", m->window);
    if (m->max_tokens)
        jot_u64(j, "max_tokens", m->max_tokens);
    jot_end(j, '}');
}

void service_model_list(struct service *s, const struct caller *who, service_net_fn *done,
                        void *arg) {
    struct buf text DEFER(buf_done) = BUF(LIST_MAX_BYTES);
    struct jot j = JOT(&text);
    struct err err;
    if (allow(who, SCOPE_READ, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    jot_object(&j, NULL);
    jot_string(&j, "default", s->conf->model);
    jot_string(&j, "currency", s->conf->currency);
    put_providers(s, who, &j);
    put_aliases(s->conf, &j);
    jot_array(&j, "models");
    for (size_t i = 0; i < s->conf->known_count; i++)
        put_model(&s->conf->known[i], &j);
    jot_end(&j, ']');
    jot_end(&j, '}');
    list_tell(&j, &text, done, arg);
}

/* ---- what calls cost ---- */

static const char *const by_names[SPENDING_BYS] = {"day", "model", "machine", "owner"};

static int by_named(const char *name, enum spending_by *ret, struct err *err) {
    for (size_t i = 0; i < SPENDING_BYS; i++)
        if (strcmp(by_names[i], name) == 0) {
            *ret = (enum spending_by)i;
            return 0;
        }
    err_set(err, ERR_INVALID, "usage cannot be listed by '%.40s'", name);
    return err_remedy(err, "use day, model, machine or owner");
}

/* Only a list by owner has the rows of others, for callers that see all. */
static const char *owner_asked(const struct caller *who, enum spending_by by) {
    return by == SPENDING_BY_OWNER && service_sees_all(who) ? NULL : who->owner;
}

static void put_spending(struct service *s, enum spending_by by, const struct spending_row *r,
                         struct jot *j) {
    const struct live *l = by == SPENDING_BY_MACHINE ? map_get(&s->machines, r->key) : NULL;
    jot_object(j, NULL);
    jot_string(j, by_names[by], r->key);
    if (l && l->row.name[0])
        jot_string(j, "name", l->row.name);
    jot_u64(j, "calls", r->calls);
    jot_u64(j, "tokens", r->cost.tokens);
    jot_u64(j, "in", r->parts.in);
    jot_u64(j, "cache_read", r->parts.cache_read);
    jot_u64(j, "cache_write", r->parts.cache_write);
    jot_u64(j, "out", r->parts.out);
    models_put_money(j, "money", r->cost.micro);
    jot_end(j, '}');
}

void service_model_usage(struct service *s, const struct caller *who, const char *by_name,
                         uint64_t days, service_net_fn *done, void *arg) {
    struct buf text DEFER(buf_done) = BUF(LIST_MAX_BYTES);
    struct jot j = JOT(&text);
    struct spending_row *rows = NULL;
    size_t count = 0;
    enum spending_by by = SPENDING_BY_DAY;
    struct err err;
    int64_t since = wall_ms() / DAY_MS + 1 - (int64_t)days;
    if (allow(who, SCOPE_READ, &err) < 0 || by_named(by_name, &by, &err) < 0 ||
        store_spending(s->store, owner_asked(who, by), by, since, &rows, &count, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    jot_object(&j, NULL);
    jot_string(&j, "by", by_names[by]);
    jot_string(&j, "currency", s->conf->currency);
    jot_array(&j, "usage");
    for (size_t i = 0; i < count; i++)
        put_spending(s, by, &rows[i], &j);
    jot_end(&j, ']');
    jot_end(&j, '}');
    free(rows);
    list_tell(&j, &text, done, arg);
}
