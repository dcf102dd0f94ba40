#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "base/limits.h"
#include "base/log.h"
#include "grant/dirs.h"
#include "service/state.h"

/* ---- what a living machine is ---- */

/* The environment that the row keeps as JSON, as pairs. */
static void load_env(struct live *l) {
    json_t *env = l->row.env ? json_loads(l->row.env, 0, NULL) : NULL;
    const char *name;
    json_t *value;
    size_t n = json_object_size(env);
    if (!n || !(l->env.v = calloc(2 * n + 1, sizeof(*l->env.v)))) {
        json_decref(env);
        return;
    }
    json_object_foreach(env, name, value) {
        if (!json_is_string(value))
            continue;
        l->env.v[l->env.count++] = name;
        l->env.v[l->env.count++] = json_string_value(value);
    }
    l->env_json = env;
}

struct live *live_new(struct service *s, struct machine_row *row) {
    struct live *l = calloc(1, sizeof(*l));
    if (!l)
        abort();
    l->service = s;
    l->refs = 1;
    l->row = *row;
    row->metadata = row->env = NULL;
    load_env(l);
    map_put(&s->machines, l->row.id, l);
    return l;
}

void live_ref(struct live *l) {
    l->refs++;
}

void live_unref(struct live *l) {
    if (--l->refs)
        return;
    if (l->machine)
        machine_free(l->machine);
    machine_row_done(&l->row);
    json_decref(l->env_json);
    free(l->env.v);
    free(l->cwd);
    free(l->warnings);
    free(l);
}

static void view_row(const struct machine_row *row, struct machine_view *ret) {
    *ret = (struct machine_view){
        .id = row->id,
        .name = row->name[0] ? row->name : NULL,
        .owner = row->owner,
        .kind = row->kind,
        .image = row->image,
        .state = machine_state_name(row->state),
        .reason = row->end_reason[0] ? row->end_reason : NULL,
        .created_ms = (uint64_t)row->created_ms,
        .ended_ms = (uint64_t)row->ended_ms,
        .expires_ms = row->ttl_ms ? (uint64_t)row->created_ms + row->ttl_ms : 0,
        .limits = {row->mem_bytes, row->cpu_milli, row->pids, row->disk_bytes},
        .idle_ms = row->idle_ms,
        .idle_action = row->idle_ms ? idle_action_name(row->idle_action) : NULL,
        .metadata = row->metadata,
    };
}

void live_view(const struct live *l, struct machine_view *ret) {
    view_row(&l->row, ret);
    ret->commands = l->running;
    ret->drifted = l->drifted;
    ret->warnings = l->warnings;
}

/* A machine that ended stays known: `gone` says more than `not_found`. */
static int find_row(struct service *s, const struct caller *who, const char *ref,
                    struct machine_row *ret, struct err *err) {
    const char *owner = who->scopes & SCOPE_ADMIN ? NULL : who->owner;
    if (store_machine_find(s->store, owner, ref, ret, err) == 0)
        return 0;
    if (err->code == ERR_NOT_FOUND)
        err_remedy(err, "list yours with: carrel ls");
    return -1;
}

static struct live *by_id(struct service *s, const struct caller *who, const char *id) {
    struct live *l = id_valid(id, strlen(id), 'm') ? map_get(&s->machines, id) : NULL;
    return l && may_see(who, l->row.owner) ? l : NULL;
}

static int state_error(const struct live *l, struct err *err) {
    err_set(err, ERR_BUSY, "machine '%s' is %s", l->row.id, machine_state_name(l->row.state));
    if (l->row.state == MACHINE_PAUSED || l->row.state == MACHINE_STOPPED)
        err_remedy(err, "resume it first: carrel resume %s", l->row.id);
    return -1;
}

struct live *live_find(struct service *s, const struct caller *who, const char *ref,
                       enum live_need need, struct err *err) {
    struct live *l = by_id(s, who, ref);
    if (!l) {
        struct machine_row row DEFER(machine_row_done) = {0};
        if (find_row(s, who, ref, &row, err) < 0)
            return NULL;
        l = map_get(&s->machines, row.id);
        if (!l) {
            err_set(err, ERR_GONE, "machine '%s' has ended: %s", row.id,
                    row.end_reason[0] ? row.end_reason : "no reason was kept");
            return NULL;
        }
    }
    if (need == LIVE_RUNNING && (l->row.state != MACHINE_RUNNING || !l->machine)) {
        state_error(l, err);
        return NULL;
    }
    return l;
}

/* ---- the end ---- */

struct ending {
    struct live *live;
    char reason[STORE_REASON_SIZE];
    service_done_fn *done;
    void *arg;
};

static void ending_free(struct ending *e) {
    live_unref(e->live);
    free(e);
}

static void ending_done(void *arg, const struct err *err) {
    struct ending *e = arg;
    struct live *l = e->live;
    struct service *s = l->service;
    struct err why;
    char detail[STORE_REASON_SIZE + 32];
    bool gone = !err || err->code == ERR_NOT_FOUND;
    if (gone && store_machine_end(s->store, l->row.id, now_ms(), e->reason, &why) < 0) {
        gone = false;
        err = &why;
    }
    if (gone) {
        struct buf text DEFER(buf_done) = BUF(sizeof(detail));
        struct jot j = JOT(&text);
        jot_object(&j, NULL);
        jot_string(&j, "reason", e->reason);
        jot_end(&j, '}');
        l->row.state = MACHINE_ENDED;
        l->row.ended_ms = now_ms();
        snprintf(l->row.end_reason, sizeof(l->row.end_reason), "%s", e->reason);
        execs_lose(l, "its machine ended");
        if (store_exec_lose(s->store, l->row.id, now_ms(), "its machine ended", NULL, &why) < 0)
            log_line(LOG_ERROR, "service", "%s id=%s", why.text, l->row.id);
        event_tell(s, l->row.owner, l->row.id, "machine.ended", text.data);
        if (map_take(&s->machines, l->row.id))
            live_unref(l);
    } else {
        log_line(LOG_ERROR, "service", "end machine: %s id=%s", err->text, l->row.id);
        l->changing = false;
    }
    if (e->done)
        e->done(e->arg, gone ? NULL : err);
    ending_free(e);
}

void live_end(struct live *l, const char *reason, service_done_fn *done, void *arg) {
    struct service *s = l->service;
    struct ending *e = calloc(1, sizeof(*e));
    struct err err;
    if (!e)
        abort();
    *e = (struct ending){.live = l, .done = done, .arg = arg};
    snprintf(e->reason, sizeof(e->reason), "%s", reason);
    live_ref(l);
    l->changing = true;
    l->row.state = MACHINE_ENDING;
    if (store_machine_set_state(s->store, l->row.id, MACHINE_ENDING, &err) < 0)
        log_line(LOG_ERROR, "service", "end machine: %s id=%s", err.text, l->row.id);
    if (l->machine)
        l->machine->on_end = NULL;
    s->driver->destroy(s->host, l->row.id, ending_done, e);
}

/* It ended by itself: take away what is left of it, and say why. */
static void on_end(void *arg, struct machine *m, const struct err *why) {
    struct live *l = arg;
    int64_t now = now_ms();
    bool old = l->row.ttl_ms && now + 1000 >= l->row.created_ms + (int64_t)l->row.ttl_ms;
    (void)m;
    (void)why;
    if (l->row.state != MACHINE_ENDING)
        live_end(l, old ? "its lifetime is over" : "it ended by itself", NULL, NULL);
}

/* The connection broke and is there again: the commands went on meanwhile. */
static void on_back(void *arg, struct machine *m) {
    (void)m;
    execs_reattach(arg);
}

void live_attach(struct live *l, struct machine *m) {
    l->machine = m;
    m->on_end = on_end;
    m->on_back = on_back;
    m->on_arg = l;
    idle_touch(&l->idle, loop_now_ms(l->service->loop));
}

/* ---- create ---- */

struct creation {
    struct live *live;
    struct caller who;
    uint64_t intent;
    service_machine_fn *done;
    void *arg;
};

static struct journal_record verb_record(const char *verb, const struct live *l) {
    return (struct journal_record){.verb = verb, .machine = l->row.id};
}

static void creation_finish(struct creation *c, const struct err *err) {
    struct live *l = c->live;
    struct machine_view view;
    struct journal_record what = verb_record("machine.create", l);
    note_result(l->service, &c->who, &what, c->intent, err);
    l->changing = false;
    live_view(l, &view);
    c->done(c->arg, err ? NULL : &view, err);
    live_unref(l);
    free(c);
}

struct failed_creation {
    struct creation *creation;
    struct err err;
};

static void creation_undone(void *arg, const struct err *err) {
    struct failed_creation *f = arg;
    (void)err; /* logged; the next start tries again */
    creation_finish(f->creation, &f->err);
    free(f);
}

static void creation_fail(struct creation *c, const struct err *err) {
    struct failed_creation *f = calloc(1, sizeof(*f));
    if (!f)
        abort();
    *f = (struct failed_creation){c, *err};
    live_end(c->live, "it could not be made", creation_undone, f);
}

static void creation_made(void *arg, struct machine *m, const char *warnings,
                          const struct err *failed) {
    struct creation *c = arg;
    struct live *l = c->live;
    struct service *s = l->service;
    struct err err;
    if (failed) {
        creation_fail(c, failed);
        return;
    }
    live_attach(l, m);
    if (warnings && *warnings)
        l->warnings = strdup(warnings);
    l->row.state = MACHINE_RUNNING;
    l->row.incarnation = guest_incarnation(m->guest);
    if (store_begin(s->store, &err) < 0 ||
        store_machine_set_guest(s->store, l->row.id, l->row.incarnation, &err) < 0 ||
        store_machine_set_state(s->store, l->row.id, MACHINE_RUNNING, &err) < 0) {
        store_rollback(s->store);
        creation_fail(c, &err);
        return;
    }
    event_tell(s, l->row.owner, l->row.id, "machine.created", NULL);
    if (store_commit(s->store, &err) < 0) {
        store_rollback(s->store);
        creation_fail(c, &err);
        return;
    }
    creation_finish(c, NULL);
}

static bool name_ok(const char *name) {
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return n > 0 && !name[n] && name[0] != '-' && name[0] != '.' && strncmp(name, "m-", 2) != 0;
}

static int pairs_json(const struct texts *pairs, const char *what, char **ret, struct err *err) {
    *ret = NULL;
    if (!pairs->count)
        return 0;
    struct buf text DEFER(buf_done) = BUF(STORE_JSON_MAX);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    for (size_t i = 0; i + 1 < pairs->count; i += 2)
        jot_string(&j, pairs->v[i], pairs->v[i + 1]);
    jot_end(&j, '}');
    if (j.failed)
        return err_set(err, ERR_LIMIT, "field '%s' is larger than %d bytes", what, STORE_JSON_MAX);
    *ret = buf_take(&text);
    return 0;
}

static uint64_t or_default(struct given g, uint64_t otherwise) {
    return g.is ? g.value : otherwise;
}

/* Asked for, else configured, else the kind's own; so that what is enforced is what is shown. */
static uint64_t limit_of(struct given g, uint64_t configured, uint64_t otherwise) {
    return g.is ? g.value : configured ? configured : otherwise;
}

static int fill_row(struct service *s, const struct caller *who, const struct machine_request *r,
                    struct machine_row *row, struct err *err) {
    const struct conf *conf = s->conf;
    *row = (struct machine_row){
        .state = MACHINE_CREATING,
        .created_ms = now_ms(),
        .mem_bytes = limit_of(r->limits.mem, conf->mem_bytes, LIMIT_MEM),
        .cpu_milli = or_default(r->limits.cpus, conf->cpu_milli),
        .pids = limit_of(r->limits.pids, conf->pids, LIMIT_PIDS),
        .disk_bytes = limit_of(r->limits.disk, conf->disk_bytes, LIMIT_DISK),
        .ttl_ms = or_default(r->ttl, conf->ttl_ms),
        .idle_ms = or_default(r->idle, conf->idle_ms),
        .idle_action = (enum idle_action)conf->idle_action,
        .steps = STEPS_MANUAL,
    };
    if (r->name && !name_ok(r->name)) {
        err_set(err, ERR_INVALID, "'%s' cannot be a machine's name", r->name);
        return err_remedy(err, "use letters, digits, '.', '_' and '-'; it cannot start with m-");
    }
    if (r->idle_action && idle_action_parse(r->idle_action, &row->idle_action, err) < 0)
        return -1;
    snprintf(row->id, sizeof(row->id), "%s", id_new('m').text);
    snprintf(row->owner, sizeof(row->owner), "%s", who->owner);
    snprintf(row->token, sizeof(row->token), "%s", who->token);
    snprintf(row->name, sizeof(row->name), "%s", r->name ? r->name : "");
    snprintf(row->kind, sizeof(row->kind), "%s", r->kind ? r->kind : "box");
    snprintf(row->image, sizeof(row->image), "%s", r->image ? r->image : "host");
    snprintf(row->key, sizeof(row->key), "%s", r->key ? r->key : "");
    if (pairs_json(&r->metadata, "metadata", &row->metadata, err) < 0)
        return -1;
    return pairs_json(&r->env, "env", &row->env, err);
}

static int within(const char *whose, const struct quota *quota, const struct quota *used,
                  const struct machine_row *row, struct err *err) {
    const struct {
        const char *what;
        uint64_t limit, have, want; /* want 0: as much as there is */
    } rules[] = {
        {"machines", quota->machines, used->machines, 1},
        {"thousandths of a cpu", quota->cpu_milli, used->cpu_milli, row->cpu_milli},
        {"bytes of memory", quota->mem_bytes, used->mem_bytes, row->mem_bytes},
        {"bytes of disk", quota->disk_bytes, used->disk_bytes, row->disk_bytes},
    };
    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
        if (rules[i].limit && !rules[i].want) {
            err_set(err, ERR_LIMIT, "quota of %s: %" PRIu64 " %s, and no limit was asked for",
                    whose, rules[i].limit, rules[i].what);
            return err_remedy(err, "give the machine a limit within it");
        }
        if (rules[i].limit && rules[i].have + rules[i].want > rules[i].limit) {
            err_set(err, ERR_LIMIT,
                    "quota of %s: %" PRIu64 " %s, %" PRIu64 " are in use, %" PRIu64
                    " more were asked for",
                    whose, rules[i].limit, rules[i].what, rules[i].have, rules[i].want);
            return err_remedy(err, "destroy machines, or ask for less");
        }
    }
    if (quota->lifetime_ms && (!row->ttl_ms || row->ttl_ms > quota->lifetime_ms)) {
        err_set(err, ERR_LIMIT, "quota of %s: a lifetime of at most %" PRIu64 " s", whose,
                quota->lifetime_ms / 1000);
        return err_remedy(err, "give a ttl within it");
    }
    return 0;
}

/* What is in use under an owner or its token, but for the machine that is about to change. */
static int used_by_others(struct service *s, const struct caller *who, const char *token,
                          const struct machine_row *before, struct quota *ret, struct err *err) {
    if (store_quota_used(s->store, who->owner, token, ret, err) < 0)
        return -1;
    if (before && strcmp(before->owner, who->owner) == 0 &&
        (!token || strcmp(before->token, token) == 0)) {
        ret->machines--;
        ret->cpu_milli -= before->cpu_milli;
        ret->mem_bytes -= before->mem_bytes;
        ret->disk_bytes -= before->disk_bytes;
    }
    return 0;
}

/* before: NULL for a new machine. A quota that is set needs every machine to have that limit. */
static int check_quota(struct service *s, const struct caller *who,
                       const struct machine_row *before, const struct machine_row *row,
                       struct err *err) {
    struct owner_row owner;
    struct quota used;
    if (!before && s->conf->max_machines && s->machines.count >= s->conf->max_machines)
        return err_set(err, ERR_LIMIT, "this daemon has its %" PRIu64 " machines",
                       s->conf->max_machines);
    if (store_owner_get(s->store, who->owner, &owner, err) < 0)
        return -1;
    static const struct quota none;
    if (memcmp(&owner.quota, &none, sizeof(none)) != 0 &&
        (used_by_others(s, who, NULL, before, &used, err) < 0 ||
         within("the owner", &owner.quota, &used, row, err) < 0))
        return -1;
    if (who->token[0] && memcmp(&who->quota, &none, sizeof(none)) != 0 &&
        (used_by_others(s, who, who->token, before, &used, err) < 0 ||
         within("this token", &who->quota, &used, row, err) < 0))
        return -1;
    return 0;
}

/* The directories of a request, open and checked. */
struct handed {
    struct plan_grant grants[PLAN_MAX_GRANTS];
    int fds[PLAN_MAX_GRANTS];
    bool ours[PLAN_MAX_GRANTS];
    size_t count;
};

static void handed_done(struct handed *h) {
    for (size_t i = 0; i < h->count; i++)
        if (h->ours[i])
            close_fd(&h->fds[i]);
}

static int hand_over(struct service *s, const struct caller *who, const struct machine_request *r,
                     const int *fds, size_t nfds, struct handed *h, struct err *err) {
    const struct dir_request *dirs = r->dirs.v;
    struct dir_grant asked[PLAN_MAX_GRANTS];
    const char *const own[] = {s->place->home, s->place->run, NULL};
    struct dir_rules rules = {own, r->unreviewed, who->local ? who->uid : 0};
    const char *roots[CONF_ROOTS_MAX];
    for (size_t i = 0; i < s->conf->root_count; i++)
        roots[i] = s->conf->roots[i];
    if (r->dirs.count > PLAN_MAX_GRANTS)
        return err_set(err, ERR_LIMIT, "more than %d directories", PLAN_MAX_GRANTS);
    if (who->local && nfds != r->dirs.count)
        return err_set(err, ERR_INVALID, "%zu descriptors for %zu directories", nfds,
                       r->dirs.count);
    for (size_t i = 0; i < r->dirs.count; i++) {
        h->ours[i] = !who->local;
        h->fds[i] =
            who->local ? fds[i] : dirs_open_under(dirs[i].path, roots, s->conf->root_count, err);
        if (h->fds[i] < 0)
            return -1;
        h->count++;
        asked[i] = (struct dir_grant){dirs[i].path, dirs[i].at, dirs[i].mode};
    }
    return dirs_check(asked, h->count, h->fds, &rules, h->grants, err);
}

/* Two requests with one key: the second gets the first one's machine. */
static void show_existing(struct service *s, const char *id, service_machine_fn *done, void *arg) {
    struct live *l = map_get(&s->machines, id);
    struct machine_row row DEFER(machine_row_done) = {0};
    struct machine_view view;
    struct err err;
    if (l && l->row.state == MACHINE_CREATING) {
        err_set(&err, ERR_BUSY, "machine '%s' is being made for an earlier request with this key",
                id);
        err_remedy(&err, "ask again in a moment");
        done(arg, NULL, &err);
    } else if (l) {
        live_view(l, &view);
        done(arg, &view, NULL);
    } else if (store_machine_get(s->store, id, &row, &err) < 0) {
        done(arg, NULL, &err);
    } else {
        view_row(&row, &view);
        done(arg, &view, NULL);
    }
}

/* A request that comes again is answered as the first time, though the quota is full by now. */
static void made_before(struct service *s, const struct machine_row *row, char existing[ID_SIZE]) {
    struct err err;
    if (!row->key[0] || store_begin(s->store, &err) < 0)
        return;
    if (store_machine_add(s->store, row, existing, &err) < 0)
        existing[0] = '\0';
    store_rollback(s->store);
}

/* Row, intent and table entry; NULL with *err, or with *existing set. */
static struct live *begin(struct service *s, const struct caller *who,
                          const struct machine_request *r, struct machine_row *row,
                          char existing[ID_SIZE], uint64_t *intent, struct err *err) {
    struct journal_record what = {.verb = "machine.create", .machine = row->id};
    (void)r;
    if (note_intent(s, who, &what, intent, err) < 0 ||
        store_machine_add(s->store, row, existing, err) < 0)
        return NULL;
    return existing[0] ? NULL : live_new(s, row);
}

void service_create(struct service *s, const struct caller *who, const struct machine_request *r,
                    const uint8_t request_hash[SHA256_BYTES], const int *fds, size_t nfds,
                    service_machine_fn *done, void *arg) {
    struct machine_row row DEFER(machine_row_done) = {0};
    struct handed handed DEFER(handed_done) = {.count = 0};
    char existing[ID_SIZE] = "";
    uint64_t intent = 0;
    struct err err;
    if (allow(who, SCOPE_RUN, &err) < 0 || fill_row(s, who, r, &row, &err) < 0 ||
        hand_over(s, who, r, fds, nfds, &handed, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    memcpy(row.request_hash, request_hash, SHA256_BYTES);
    struct live *l = NULL;
    if (check_quota(s, who, NULL, &row, &err) == 0)
        l = begin(s, who, r, &row, existing, &intent, &err);
    else
        made_before(s, &row, existing);
    if (existing[0]) {
        show_existing(s, existing, done, arg);
        return;
    }
    if (!l) {
        done(arg, NULL, &err);
        return;
    }
    struct creation *c = calloc(1, sizeof(*c));
    if (!c)
        abort();
    *c = (struct creation){l, *who, intent, done, arg};
    live_ref(l);
    l->changing = true;
    if (handed.count)
        l->cwd = strdup(handed.grants[0].path);
    const struct machine_spec spec = {
        .id = l->row.id,
        .image = l->row.image,
        .hostname = r->hostname      ? r->hostname
                    : l->row.name[0] ? l->row.name
                                     : l->row.id,
        .limits = {l->row.mem_bytes, l->row.cpu_milli, l->row.pids, l->row.disk_bytes},
        .deadline_ms = l->row.ttl_ms,
        .linger = !r->ephemeral,
        .grants = handed.grants,
        .grant_fds = handed.fds,
        .grant_count = handed.count,
    };
    s->driver->create(s->host, &spec, creation_made, c);
}

/* ---- look ---- */

void service_show(struct service *s, const struct caller *who, const char *ref,
                  service_machine_fn *done, void *arg) {
    struct machine_row row DEFER(machine_row_done) = {0};
    struct machine_view view;
    struct err err;
    struct live *l = by_id(s, who, ref);
    if (allow(who, SCOPE_READ, &err) < 0) {
        done(arg, NULL, &err);
    } else if (l) {
        live_view(l, &view);
        done(arg, &view, NULL);
    } else if (find_row(s, who, ref, &row, &err) < 0) {
        done(arg, NULL, &err);
    } else {
        if ((l = map_get(&s->machines, row.id)))
            live_view(l, &view);
        else
            view_row(&row, &view);
        done(arg, &view, NULL);
    }
}

static int parse_states(const char *text, unsigned *ret, struct err *err) {
    *ret = 0;
    if (strcmp(text, "all") == 0) {
        *ret = MACHINE_STATES_ALL;
        return 0;
    }
    while (*text) {
        char name[32];
        enum machine_state state;
        size_t n = strcspn(text, ",");
        snprintf(name, sizeof(name), "%.*s", (int)n, text);
        if (machine_state_parse(name, &state, err) < 0)
            return -1;
        *ret |= 1u << state;
        text += n + (text[n] == ',');
    }
    return 0;
}

int list_cursor(const char *text, int64_t *ret_ms, const char **ret_id, struct err *err) {
    char *end;
    long long ms = strtoll(text, &end, 10);
    if (end == text || *end != ':' || strlen(end + 1) != ID_SIZE - 1)
        return err_set(err, ERR_INVALID, "'%.40s' is no cursor of a list", text);
    *ret_ms = ms;
    *ret_id = end + 1;
    return 0;
}

int service_list(struct service *s, const struct caller *who, const struct list_request *r,
                 service_row_fn *row, void *arg, char ret_next[CURSOR_SIZE], struct err *err) {
    struct machine_filter filter = {
        .owner = r->all_owners ? NULL : who->owner,
        .name = r->name,
        .kind = r->kind,
        .meta_key = r->meta_key,
        .meta_value = r->meta_value,
        .limit = r->limit,
    };
    struct machine_list list DEFER(machine_list_done) = {0};
    if (allow(who, r->all_owners ? SCOPE_ADMIN : SCOPE_READ, err) < 0 ||
        (r->states && parse_states(r->states, &filter.states, err) < 0) ||
        (r->cursor && list_cursor(r->cursor, &filter.before_ms, &filter.before_id, err) < 0) ||
        store_machine_list(s->store, &filter, &list, err) < 0)
        return -1;
    ret_next[0] = '\0';
    for (size_t i = 0; i < list.count; i++) {
        struct machine_view view;
        const struct live *l = map_get(&s->machines, list.rows[i].id);
        if (l)
            live_view(l, &view);
        else
            view_row(&list.rows[i], &view);
        row(arg, &view);
    }
    const struct machine_row *last = list.count ? &list.rows[list.count - 1] : NULL;
    if (last && list.count >= (r->limit ? r->limit : 100))
        snprintf(ret_next, CURSOR_SIZE, "%" PRId64 ":%s", last->created_ms, last->id);
    return 0;
}

int service_changes(struct service *s, const struct caller *who, const char *ref, int *ret_fds,
                    size_t max, size_t *ret_count, struct err *err) {
    struct live *l = allow(who, SCOPE_RUN, err) < 0 ? NULL : live_find(s, who, ref, LIVE_ANY, err);
    if (!l || !l->machine)
        return l ? state_error(l, err) : -1;
    *ret_count = 0;
    for (size_t i = 0; i < PLAN_MAX_GRANTS && *ret_count < max; i++)
        if (l->machine->uppers[i] >= 0)
            ret_fds[(*ret_count)++] = l->machine->uppers[i];
    return 0;
}

size_t service_machine_count(const struct service *s) {
    return s->machines.count;
}

/* ---- verbs on a whole machine ---- */

struct change {
    struct live *live;
    struct caller who;
    const char *verb;
    uint64_t intent;
    enum machine_state after;
    service_machine_fn *done;
    void *arg;
};

static void change_finish(struct change *c, const struct err *err) {
    struct live *l = c->live;
    struct machine_view view;
    struct journal_record what = verb_record(c->verb, l);
    note_result(l->service, &c->who, &what, c->intent, err);
    if (l->row.state != MACHINE_ENDED && l->row.state != MACHINE_ENDING)
        l->changing = false;
    live_view(l, &view);
    c->done(c->arg, err ? NULL : &view, err);
    live_unref(l);
    free(c);
}

/* Authorises, finds, writes the intent. NULL: `done` has been told why not. */
static struct change *change_begin(struct service *s, const struct caller *who, const char *ref,
                                   const char *verb, service_machine_fn *done, void *arg) {
    struct err err;
    uint64_t intent;
    struct live *l = NULL;
    if (allow(who, SCOPE_RUN, &err) == 0)
        l = live_find(s, who, ref, LIVE_ANY, &err);
    if (l && l->changing) {
        state_error(l, &err);
        err_remedy(&err, "another verb on it is under way: try again");
        l = NULL;
    }
    struct journal_record what = l ? verb_record(verb, l) : (struct journal_record){0};
    if (!l || note_intent(s, who, &what, &intent, &err) < 0) {
        done(arg, NULL, &err);
        return NULL;
    }
    struct change *c = calloc(1, sizeof(*c));
    if (!c)
        abort();
    *c = (struct change){l, *who, verb, intent, l->row.state, done, arg};
    live_ref(l);
    l->changing = true;
    return c;
}

static void change_state(void *arg, const struct err *failed) {
    struct change *c = arg;
    struct live *l = c->live;
    struct service *s = l->service;
    struct err err;
    char type[32];
    if (failed) {
        change_finish(c, failed);
        return;
    }
    if (store_machine_set_state(s->store, l->row.id, c->after, &err) < 0) {
        change_finish(c, &err);
        return;
    }
    l->row.state = c->after;
    idle_touch(&l->idle, loop_now_ms(s->loop));
    snprintf(type, sizeof(type), "machine.%s", machine_state_name(c->after));
    event_tell(s, l->row.owner, l->row.id, type, NULL);
    change_finish(c, NULL);
}

static void change_refuse(struct change *c) {
    struct err err;
    state_error(c->live, &err);
    change_finish(c, &err);
}

void service_pause(struct service *s, const struct caller *who, const char *ref,
                   service_machine_fn *done, void *arg) {
    struct change *c = change_begin(s, who, ref, "machine.pause", done, arg);
    if (!c)
        return;
    c->after = MACHINE_PAUSED;
    if (c->live->row.state == MACHINE_PAUSED)
        change_finish(c, NULL);
    else if (c->live->row.state != MACHINE_RUNNING)
        change_refuse(c);
    else
        s->driver->freeze(c->live->machine, true, change_state, c);
}

void service_resume(struct service *s, const struct caller *who, const char *ref,
                    service_machine_fn *done, void *arg) {
    struct change *c = change_begin(s, who, ref, "machine.resume", done, arg);
    if (!c)
        return;
    c->after = MACHINE_RUNNING;
    switch (c->live->row.state) {
    case MACHINE_RUNNING:
        change_finish(c, NULL);
        break;
    case MACHINE_PAUSED:
        s->driver->freeze(c->live->machine, false, change_state, c);
        break;
    case MACHINE_STOPPED:
        change_state(c, NULL);
        break;
    default:
        change_refuse(c);
    }
}

static void halt(void *arg, const struct err *failed) {
    struct change *c = arg;
    if (failed)
        change_finish(c, failed);
    else
        machine_halt(c->live->machine, c->live->service->loop, change_state, c);
}

void service_stop(struct service *s, const struct caller *who, const char *ref,
                  service_machine_fn *done, void *arg) {
    struct change *c = change_begin(s, who, ref, "machine.stop", done, arg);
    if (!c)
        return;
    c->after = MACHINE_STOPPED;
    if (c->live->row.state == MACHINE_STOPPED)
        change_finish(c, NULL);
    else if (c->live->row.state != MACHINE_RUNNING && c->live->row.state != MACHINE_PAUSED)
        change_refuse(c);
    else if (c->live->row.state == MACHINE_PAUSED)
        s->driver->freeze(c->live->machine, false, halt, c);
    else
        halt(c, NULL);
}

static void destroyed(void *arg, const struct err *err) {
    change_finish(arg, err);
}

void service_destroy(struct service *s, const struct caller *who, const char *ref,
                     service_machine_fn *done, void *arg) {
    struct change *c = change_begin(s, who, ref, "machine.destroy", done, arg);
    if (c)
        live_end(c->live, "destroyed", destroyed, c);
}

/* ---- update ---- */

static int apply_update(struct live *l, const struct caller *who, const struct update_request *r,
                        struct machine_row *row, struct err *err) {
    *row = l->row;
    if (r->name && !name_ok(r->name))
        return err_set(err, ERR_INVALID, "'%s' cannot be a machine's name", r->name);
    if (r->idle_action && idle_action_parse(r->idle_action, &row->idle_action, err) < 0)
        return -1;
    if (r->name)
        snprintf(row->name, sizeof(row->name), "%s", r->name);
    row->mem_bytes = or_default(r->limits.mem, row->mem_bytes);
    row->cpu_milli = or_default(r->limits.cpus, row->cpu_milli);
    row->pids = or_default(r->limits.pids, row->pids);
    row->disk_bytes = or_default(r->limits.disk, row->disk_bytes);
    row->idle_ms = or_default(r->idle, row->idle_ms);
    if (r->ttl.is) /* given from now, kept from the start */
        row->ttl_ms = r->ttl.value ? (uint64_t)(now_ms() - row->created_ms) + r->ttl.value : 0;
    bool more = row->mem_bytes > l->row.mem_bytes || row->cpu_milli > l->row.cpu_milli ||
                row->disk_bytes > l->row.disk_bytes || r->ttl.is;
    return more ? check_quota(l->service, who, &l->row, row, err) : 0;
}

struct update {
    struct change *change;
    struct machine_row row; /* texts belong to the live row, but for metadata */
    char *metadata;
    struct given ttl;
};

static void update_finish(struct update *u, const struct err *err) {
    struct change *c = u->change;
    free(u->metadata);
    free(u);
    change_finish(c, err);
}

static void update_write(void *arg, const struct err *failed) {
    struct update *u = arg;
    struct live *l = u->change->live;
    struct err err;
    if (failed) {
        update_finish(u, failed);
        return;
    }
    if (u->metadata)
        u->row.metadata = u->metadata;
    if (store_machine_update(l->service->store, &u->row, &err) < 0) {
        update_finish(u, &err);
        return;
    }
    if (u->metadata) {
        free(l->row.metadata);
        u->metadata = NULL;
    }
    l->row = u->row;
    event_tell(l->service, l->row.owner, l->row.id, "machine.updated", NULL);
    update_finish(u, NULL);
}

static void update_deadline(void *arg, const struct err *failed) {
    struct update *u = arg;
    struct live *l = u->change->live;
    if (failed || !u->ttl.is)
        update_write(u, failed);
    else
        l->service->driver->set_deadline(l->machine, u->ttl.value, update_write, u);
}

void service_update(struct service *s, const struct caller *who, const char *ref,
                    const struct update_request *r, service_machine_fn *done, void *arg) {
    struct change *c = change_begin(s, who, ref, "machine.update", done, arg);
    struct err err;
    if (!c)
        return;
    struct live *l = c->live;
    struct update *u = calloc(1, sizeof(*u));
    if (!u)
        abort();
    u->change = c;
    u->ttl = r->ttl;
    if (!l->machine)
        state_error(l, &err);
    if (!l->machine || pairs_json(&r->metadata, "metadata", &u->metadata, &err) < 0 ||
        apply_update(l, who, r, &u->row, &err) < 0) {
        update_finish(u, &err);
        return;
    }
    const struct machine_limits limits = {
        .mem_bytes = r->limits.mem.value,
        .cpu_milli = r->limits.cpus.value,
        .pids = r->limits.pids.value,
        .disk_bytes = r->limits.disk.value,
    };
    if (limits.mem_bytes || limits.cpu_milli || limits.pids || limits.disk_bytes)
        s->driver->limit(l->machine, &limits, update_deadline, u);
    else
        update_deadline(u, NULL);
}

/* ---- stats ---- */

struct stats_call {
    struct live *live;
    service_stats_fn *done;
    void *arg;
};

static void stats_are(void *arg, const struct machine_stats *stats, const struct err *err) {
    struct stats_call *c = arg;
    struct stats_view view = {0};
    if (stats)
        view = (struct stats_view){stats->cpu_us,          stats->mem_bytes, stats->mem_peak_bytes,
                                   stats->mem_limit_bytes, stats->pids,      stats->io_bytes,
                                   stats->disk_bytes,      stats->oom_kills, stats->pids_refused,
                                   stats->frozen};
    c->done(c->arg, stats ? &view : NULL, err);
    live_unref(c->live);
    free(c);
}

void service_stats(struct service *s, const struct caller *who, const char *ref,
                   service_stats_fn *done, void *arg) {
    struct err err;
    struct live *l =
        allow(who, SCOPE_READ, &err) < 0 ? NULL : live_find(s, who, ref, LIVE_ANY, &err);
    if (l && !l->machine) {
        state_error(l, &err);
        l = NULL;
    }
    if (!l) {
        done(arg, NULL, &err);
        return;
    }
    struct stats_call *c = calloc(1, sizeof(*c));
    if (!c)
        abort();
    *c = (struct stats_call){l, done, arg};
    live_ref(l);
    s->driver->stats(l->machine, stats_are, c);
}
