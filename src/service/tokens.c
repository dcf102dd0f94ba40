#include "service/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "service/access/machine_tokens.h"
#include "service/console/console.h"
#include "service/rights.h"
#include "service/state.h"

static const struct {
    const char *name;
    enum token_scope scope;
} scopes[] = {{"read", SCOPE_READ}, {"run", SCOPE_RUN}, {"admin", SCOPE_ADMIN}};

void scopes_text(uint32_t bits, char ret[32]) {
    size_t n = 0;
    ret[0] = '\0';
    for (size_t i = 0; i < 3; i++)
        if (bits & scopes[i].scope)
            n += (size_t)snprintf(ret + n, 32 - n, "%s%s", n ? "," : "", scopes[i].name);
}

static int parse_scopes(const struct texts *names, uint32_t *ret, struct err *err) {
    *ret = names->count ? 0 : SCOPE_READ | SCOPE_RUN;
    for (size_t i = 0; i < names->count; i++) {
        size_t k = 0;
        while (k < 3 && strcmp(scopes[k].name, names->v[i]) != 0)
            k++;
        if (k == 3)
            return err_set(err, ERR_INVALID, "unknown scope '%.20s': must be read, run or admin",
                           names->v[i]);
        *ret |= scopes[k].scope;
    }
    return 0;
}

/* ---- changes that are flushed before the answer ---- */

struct flushing {
    struct service *service;
    struct caller who;
    const char *verb;
    uint64_t intent;
    struct token_row row;
    char secret[TOKEN_SIZE];
    service_token_fn *made;
    service_done_fn *revoked;
    void *arg;
    bool failed;
    struct err err;
};

static void tokens_flush(void *arg) {
    struct flushing *f = arg;
    f->failed = store_flush(f->service->store, &f->err) < 0;
}

static void tokens_flushed(void *arg) {
    struct flushing *f = arg;
    const struct err *err = f->failed ? &f->err : NULL;
    struct journal_record what = {.verb = f->verb};
    note_result(f->service, &f->who, &what, f->intent, err);
    if (f->made)
        f->made(f->arg, err ? NULL : &f->row, err ? NULL : f->secret, err);
    else
        f->revoked(f->arg, err);
    explicit_bzero(f->secret, sizeof(f->secret));
    free(f);
}

static struct flushing *flushing_new(struct service *s, const struct caller *who, const char *verb,
                                     void *arg) {
    struct flushing *f = xnew(struct flushing);
    f->service = s;
    f->who = *who;
    f->verb = verb;
    f->arg = arg;
    return f;
}

static int tokens_make(struct flushing *f, const struct token_request *r, struct err *err) {
    struct owner_row owner;
    struct token_row *row = &f->row;
    struct journal_record what = {.verb = f->verb};
    const char *name = r->owner ? r->owner : f->who.owner;
    if (authorise(&f->who, RIGHT_TOKEN, err) < 0 || parse_scopes(&r->scopes, &row->scopes, err) < 0)
        return -1;
    if (strcmp(name, f->who.owner) != 0 && authorise(&f->who, RIGHT_TOKEN_OWNER, err) < 0)
        return -1;
    if (row->scopes & ~f->who.scopes)
        return err_set(err, ERR_DENIED, "a token cannot have a scope that its creator lacks");
    if (store_owner_get(f->service->store, name, &owner, err) < 0) {
        owner = (struct owner_row){.uid = -1, .created_ms = wall_ms()};
        snprintf(owner.name, sizeof(owner.name), "%s", name);
        if (err->code != ERR_NOT_FOUND || store_owner_put(f->service->store, &owner, err) < 0)
            return -1;
    }
    snprintf(row->owner, sizeof(row->owner), "%s", name);
    snprintf(row->note, sizeof(row->note), "%s", r->note ? r->note : "");
    row->quota = (struct quota){r->machines.value, r->cpus.value, r->mem.value, r->disk.value,
                                r->max_ttl.value};
    row->created_ms = wall_ms();
    if (note_intent(f->service, &f->who, &what, &f->intent, err) < 0)
        return -1;
    return store_token_add(f->service->store, row, f->secret, err);
}

void service_token_new(struct service *s, const struct caller *who, const struct token_request *r,
                       service_token_fn *done, void *arg) {
    struct flushing *f = flushing_new(s, who, "token.new", arg);
    struct err err;
    f->made = done;
    if (tokens_make(f, r, &err) == 0) {
        loop_work(s->loop, tokens_flush, tokens_flushed, f);
        return;
    }
    done(arg, NULL, NULL, &err);
    free(f);
}

static int revoke(struct flushing *f, const char *id, struct err *err) {
    struct journal_record what = {.verb = f->verb};
    if (authorise(&f->who, RIGHT_TOKEN, err) < 0)
        return -1;
    if (id_valid(id, strlen(id), 'm')) {
        what.machine = id;
        return !live_find(f->service, &f->who, id, LIVE_ANY, err) ||
                       note_intent(f->service, &f->who, &what, &f->intent, err) < 0
                   ? -1
                   : machine_tokens_revoke(f->service, &f->who, id, err);
    }
    if (!id_valid(id, strlen(id), 't') ||
        store_token_get(f->service->store, id, &f->row, err) < 0 || !may_see(&f->who, f->row.owner))
        return err_set(err, ERR_NOT_FOUND, "token '%.20s' does not exist: see carrel token ls", id);
    if (note_intent(f->service, &f->who, &what, &f->intent, err) < 0)
        return -1;
    return store_token_revoke(f->service->store, id, wall_ms(), err);
}

void service_token_revoke(struct service *s, const struct caller *who, const char *id,
                          service_done_fn *done, void *arg) {
    struct flushing *f = flushing_new(s, who, "token.revoke", arg);
    struct err err;
    f->revoked = done;
    if (revoke(f, id, &err) == 0) {
        loop_work(s->loop, tokens_flush, tokens_flushed, f);
        return;
    }
    done(arg, &err);
    free(f);
}

int service_token_list(struct service *s, const struct caller *who, struct token_list *ret,
                       struct err *err) {
    if (authorise(who, RIGHT_TOKEN, err) < 0)
        return -1;
    return store_token_list(s->store, who->scopes & SCOPE_ADMIN ? NULL : who->owner, ret, err);
}

bool service_caller_stands(struct service *s, const struct caller *who) {
    struct token_row row;
    struct err err;
    if (who->console[0])
        return console_stands(s->console, who);
    return !who->token[0] ||
           (store_token_get(s->store, who->token, &row, &err) == 0 && !row.revoked_ms);
}
