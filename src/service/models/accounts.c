/*
 * Accounts of model calls, which count tokens and cost. The account of an owner has the limits of
 * carrel.conf. Below it are the accounts of the owner's machines, and below these those of runs.
 */
#include <stdio.h>

#include "base/clock.h"
#include "service/models/inner.h"
#include "service/models/live.h"
#include "service/models/models.h"
#include "service/state.h"

static void account_of(const char *kind, const char *id, char ret[ACCOUNT_ID_SIZE]) {
    snprintf(ret, ACCOUNT_ID_SIZE, "%s:%s", kind, id);
}

/* Creates the account if it does not exist. Returns 1 if it existed, 0 if it was created. */
static int ensure(struct store *store, const char *id, const char *parent, const struct cost *limit,
                  struct err *err) {
    struct account_row row = {.created_ms = wall_ms()};
    if (store_account_get(store, id, &row, err) == 0)
        return 1;
    if (err->code != ERR_NOT_FOUND)
        return -1;
    row = (struct account_row){.created_ms = wall_ms()};
    snprintf(row.id, sizeof(row.id), "%s", id);
    snprintf(row.parent, sizeof(row.parent), "%s", parent);
    if (limit) {
        row.limit_tokens = limit->tokens;
        row.limit_micro = limit->micro;
    }
    return store_account_put(store, &row, err);
}

/* Creates the account of an owner, or updates its limits to those of carrel.conf. */
static int ensure_owner(struct service *s, const char *owner, char ret[ACCOUNT_ID_SIZE],
                        struct err *err) {
    const struct cost limit = {s->conf->owner_tokens, s->conf->owner_micro};
    struct account_row row;
    account_of("owner", owner, ret);
    int r = ensure(s->store, ret, "", &limit, err);
    if (r <= 0)
        return r;
    if (store_account_get(s->store, ret, &row, err) < 0)
        return -1;
    if (row.limit_tokens == limit.tokens && row.limit_micro == limit.micro)
        return 0;
    row.limit_tokens = limit.tokens;
    row.limit_micro = limit.micro;
    return store_account_put(s->store, &row, err);
}

int account_ensure_machine(struct service *s, const char *owner, const char *machine,
                           char ret[ACCOUNT_ID_SIZE], struct err *err) {
    char parent[ACCOUNT_ID_SIZE];
    account_of("machine", machine, ret);
    if (ensure_owner(s, owner, parent, err) < 0)
        return -1;
    return ensure(s->store, ret, parent, NULL, err) < 0 ? -1 : 0;
}

int models_limit(struct live *l, const struct models_request *r, struct err *err) {
    struct account_row row;
    char id[ACCOUNT_ID_SIZE];
    if (!r->tokens.is && !r->money.is)
        return 0;
    if (account_ensure_machine(l->service, l->row.owner, l->row.id, id, err) < 0 ||
        store_account_get(l->service->store, id, &row, err) < 0)
        return -1;
    row.limit_tokens = r->tokens.is ? r->tokens.value : row.limit_tokens;
    row.limit_micro = r->money.is ? r->money.value : row.limit_micro;
    return store_account_put(l->service->store, &row, err);
}

int models_inherit(struct live *l, const struct live *from, struct err *err) {
    struct account_row row;
    char id[ACCOUNT_ID_SIZE], source[ACCOUNT_ID_SIZE];
    account_of("machine", l->row.id, id);
    if (account_ensure_machine(l->service, from->row.owner, from->row.id, source, err) < 0 ||
        store_account_get(l->service->store, source, &row, err) < 0)
        return -1;
    bool limited = row.limit_tokens || row.limit_micro;
    return ensure(l->service->store, id, limited ? source : row.parent, NULL, err) < 0 ? -1 : 0;
}

int service_run_account(struct service *s, const char *owner, const char *machine, const char *run,
                        const struct cost *limit, char ret[ACCOUNT_ID_SIZE], struct err *err) {
    char parent[ACCOUNT_ID_SIZE];
    int r = machine ? account_ensure_machine(s, owner, machine, parent, err)
                    : ensure_owner(s, owner, parent, err);
    account_of("run", run, ret);
    if (r < 0)
        return -1;
    return ensure(s->store, ret, parent, limit, err) < 0 ? -1 : 0;
}

void models_put_money(struct jot *j, const char *name, uint64_t micro) {
    char text[32];
    snprintf(text, sizeof(text), "%llu.%06llu", (unsigned long long)(micro / 1000000),
             (unsigned long long)(micro % 1000000));
    jot_raw(j, name, text);
}

static bool put_account(struct jot *j, const struct account_row *row, const struct cost *left) {
    jot_object(j, NULL);
    jot_u64(j, "calls", row->calls);
    jot_u64(j, "tokens", row->spent_tokens);
    models_put_money(j, "money", row->spent_micro);
    jot_u64(j, "held_tokens", row->held_tokens);
    if (left->tokens != UINT64_MAX)
        jot_u64(j, "tokens_left", left->tokens);
    if (left->micro != UINT64_MAX)
        models_put_money(j, "money_left", left->micro);
    jot_end(j, '}');
    return !j->failed;
}

bool models_put(const struct live *l, struct jot *j) {
    struct account_row row;
    struct cost left;
    struct err err;
    char id[ACCOUNT_ID_SIZE];
    account_of("machine", l->row.id, id);
    if (store_account_get(l->service->store, id, &row, &err) < 0 ||
        store_account_left(l->service->store, id, &left, &err) < 0)
        return false;
    return put_account(j, &row, &left);
}

bool models_put_unused(const struct live *l, struct jot *j) {
    const struct conf *conf = l->service->conf;
    const struct account_row none = {0};
    struct cost left;
    struct err err;
    char id[ACCOUNT_ID_SIZE];
    account_of("owner", l->row.owner, id);
    if (store_account_left(l->service->store, id, &left, &err) < 0)
        left = (struct cost){conf->owner_tokens ? conf->owner_tokens : UINT64_MAX,
                             conf->owner_micro ? conf->owner_micro : UINT64_MAX};
    return put_account(j, &none, &left);
}
