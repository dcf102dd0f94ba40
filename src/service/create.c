#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/limits.h"
#include "base/log.h"
#include "grant/dirs.h"
#include "service/cells.h"
#include "service/fields.h"
#include "service/grants/live.h"
#include "service/grants/roots.h"
#include "service/images/live.h"
#include "service/models/live.h"
#include "service/net/live.h"
#include "service/review/baselines.h"
#include "service/rights.h"
#include "service/state.h"
#include "service/steps/live.h"
#include "service/taint.h"
#include "service/vm/vms.h"
#include "service/volumes/live.h"

struct creation {
    struct live *live;
    struct caller who;
    uint64_t intent;
    service_machine_fn *done;
    void *arg;
    bool early, ephemeral;
    bool granted, delivers; /* has grants; some must be delivered into the running machine */
    struct grant_plan plan; /* grants to deliver once the machine runs */
    struct lent *lent;      /* copy-on-write directories, to record their content */
    bool failed;
    struct err err;
};

/* The granted directories of a request, then its volumes, opened and checked. */
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

/* A granted copy-on-write directory. Its content is recorded when the machine is created. */
struct lent {
    struct lent *next;
    int fd;
    char place[PLAN_PATH_SIZE];
};

static void lent_free(struct lent *list) {
    while (list) {
        struct lent *one = list;
        list = one->next;
        close_fd(&one->fd);
        free(one);
    }
}

static struct lent *lend(const struct handed *h) {
    struct lent *list = NULL;
    for (size_t i = 0; i < h->count; i++) {
        if (h->grants[i].mode != PLAN_GRANT_COW || h->grants[i].volume)
            continue;
        struct lent *one = xnew(struct lent);
        *one = (struct lent){list, fcntl(h->fds[i], F_DUPFD_CLOEXEC, 3), ""};
        snprintf(one->place, sizeof(one->place), "%s", h->grants[i].path);
        list = one;
    }
    return list;
}

static void creation_finish(struct creation *c, const struct err *err) {
    struct live *l = c->live;
    struct machine_view view;
    struct journal_record what = verb_record("machine.create", l);
    char risk[RISKS_SIZE];
    note_result(l->service, &c->who, &what, c->intent, err);
    if (!err && gate_policy(l->gate)->count)
        risks_note(l, risk);
    live_verb_over(l);
    live_view(l, &view);
    view.warnings = net_warnings(l, view.warnings);
    c->done(c->arg, err ? NULL : &view, err);
    grant_plan_done(&c->plan);
    lent_free(c->lent);
    live_unref(l);
    free(c);
}

struct failed_creation {
    struct creation *creation;
    struct err err;
};

static void creation_undone(void *arg, const struct err *err) {
    struct failed_creation *f = arg;
    (void)err; /* logged; the next daemon tries again */
    creation_finish(f->creation, &f->err);
    free(f);
}

static void creation_fail(struct creation *c, const struct err *err) {
    struct failed_creation *f = xnew(struct failed_creation);
    *f = (struct failed_creation){c, *err};
    live_end(c->live, "it could not be made", creation_undone, f);
}

int live_put_running(struct live *l, struct err *err) {
    struct store *store = l->service->store;
    if (net_keep(l, err) < 0 ||
        (l->row.warnings
             ? store_machine_update(store, &l->row, err)
             : store_machine_set_running(store, l->row.id, l->row.incarnation, err)) < 0)
        return -1;
    event_tell(l->service, l->row.owner, l->row.id, "machine.created", NULL);
    return 0;
}

static int write_running(struct live *l, struct err *err) {
    struct store *store = l->service->store;
    if (store_begin(store, err) == 0 && live_put_running(l, err) == 0 &&
        store_commit(store, err) == 0) {
        l->unwritten = false;
        return 0;
    }
    store_rollback(store);
    return -1;
}

/*
 * For a machine that ends with its caller. If the daemon dies now, the machine is removed in any
 * case. So its state is saved together with its command, in one transaction.
 */
static void creation_finish_first(struct creation *c) {
    struct live *l = c->live;
    struct err err;
    live_ref(l);
    l->unwritten = true;
    creation_finish(c, NULL);
    if (l->unwritten && l->row.state == MACHINE_RUNNING && write_running(l, &err) < 0)
        log_line(LOG_ERROR, "service", "write a machine's state: %s id=%s", err.text, l->row.id);
    live_unref(l);
}

static void creation_flush(void *arg) {
    struct creation *c = arg;
    struct service *s = c->live->service;
    for (struct lent *one = c->lent; one && !c->failed; one = one->next)
        c->failed = baseline_make(s, c->live->row.id, one->place, one->fd, &c->err) < 0;
    if (!c->failed)
        c->failed = store_flush(s->store, &c->err) < 0;
}

static void creation_flushed(void *arg) {
    struct creation *c = arg;
    if (c->failed)
        creation_fail(c, &c->err);
    else
        creation_finish(c, NULL);
}

/*
 * Flushes the grants to disk before the caller is answered, unless the machine ends with its
 * caller.
 */
static void creation_delivered(void *arg, const struct err *err) {
    struct creation *c = arg;
    if (err)
        creation_fail(c, err);
    else if (c->ephemeral || !c->granted)
        creation_finish(c, NULL);
    else
        loop_work(c->live->service->loop, creation_flush, creation_flushed, c);
}

static void creation_told(void *arg, const struct err *err) {
    struct creation *c = arg;
    (void)err;
    grants_deliver(c->live, &c->plan, creation_delivered, c);
}

static void creation_looked_up(void *arg, const struct err *err) {
    struct creation *c = arg;
    (void)err;
    net_tell(c->live, creation_told, c);
}

static void creation_trusted(void *arg, const struct err *err) {
    struct creation *c = arg;
    (void)err;
    net_look_up_mirrors(c->live, creation_looked_up, c);
}

static void creation_made(void *arg, struct machine *m, const char *warnings,
                          const struct err *failed) {
    struct creation *c = arg;
    struct live *l = c->live;
    struct err err;
    if (failed) {
        creation_fail(c, failed);
        return;
    }
    live_attach(l, m);
    net_attach_made(l);
    l->reach.heard = true;
    if (warnings && *warnings && !l->row.warnings)
        l->row.warnings = xstrdup(warnings);
    l->row.state = MACHINE_RUNNING;
    l->row.incarnation = guest_incarnation(m->guest);
    bool has_rules = gate_policy(l->gate)->count > 0 || gate_grants(l->gate)->count > 0;
    if (c->early && !has_rules && !c->delivers)
        creation_finish_first(c);
    else if (write_running(l, &err) < 0)
        creation_fail(c, &err);
    else if (has_rules)
        net_trust(l, creation_trusted, c); /* before a program of the machine uses TLS */
    else if (c->delivers)
        net_tell(l, creation_told, c);
    else
        creation_told(c, NULL);
}

/* A limit of the request comes before carrel.conf, and that before the default of the kind. */
static uint64_t limit_of(struct given g, uint64_t configured, uint64_t otherwise) {
    return g.is ? g.value : configured ? configured : otherwise;
}

/*
 * Resolves the image name now: later changes of the name do not affect the machine. A fork keeps
 * the image of its source.
 */
static int settle_image(struct service *s, const struct caller *who,
                        const struct machine_request *r, struct machine_row *row, struct err *err) {
    const char *wanted = r->image ? r->image : "host";
    struct image_row image;
    if (strcmp(wanted, "host") != 0 && !r->from.machine) {
        if (image_find(s, who, wanted, &image, err) < 0)
            return -1;
        wanted = image.id;
    }
    snprintf(row->image, sizeof(row->image), "%s", wanted);
    return 0;
}

static int fill_row(struct service *s, const struct caller *who, const struct machine_request *r,
                    struct machine_row *row, struct err *err) {
    const struct conf *conf = s->conf;
    *row = (struct machine_row){
        .state = MACHINE_CREATING,
        .created_ms = wall_ms(),
        .mem_bytes = limit_of(r->limits.mem, conf->mem_bytes, vm_default_mem(r->kind, LIMIT_MEM)),
        .cpu_milli = given_or(r->limits.cpus, conf->cpu_milli),
        .pids = limit_of(r->limits.pids, conf->pids, LIMIT_PIDS),
        .disk_bytes = limit_of(r->limits.disk, conf->disk_bytes, LIMIT_DISK),
        .ttl_ms = given_or(r->ttl, conf->ttl_ms),
        .idle_ms = given_or(r->idle, conf->idle_ms),
        .idle_action = (enum idle_action)conf->idle_action,
        .steps = r->ephemeral ? STEPS_MANUAL : (enum step_policy)conf->steps,
    };
    if (r->steps && step_policy_parse(r->steps, &row->steps, err) < 0)
        return -1;
    if (r->name && !machine_name_ok(r->name)) {
        err_set(err, ERR_INVALID, "'%s' is not a valid machine name", r->name);
        return err_remedy(err, "use letters, digits, '.', '_' and '-'; it cannot start with m-");
    }
    if ((r->idle_action && idle_action_parse(r->idle_action, &row->idle_action, err) < 0) ||
        (r->on_ttl && on_ttl_parse(r->on_ttl, row, err) < 0))
        return -1;
    snprintf(row->id, sizeof(row->id), "%s", id_new('m').text);
    snprintf(row->owner, sizeof(row->owner), "%s", who->owner);
    snprintf(row->token, sizeof(row->token), "%s", who->token);
    snprintf(row->name, sizeof(row->name), "%s", r->name ? r->name : "");
    snprintf(row->kind, sizeof(row->kind), "%s", r->kind ? r->kind : "box");
    snprintf(row->key, sizeof(row->key), "%s", r->key ? r->key : "");
    if (cell_fill_row(r, row, err) < 0 || settle_image(s, who, r, row, err) < 0 ||
        pairs_json(&r->metadata, "metadata", &row->metadata, err) < 0)
        return -1;
    return variables_json(&r->env, &row->env, err);
}

static int hand_over(struct service *s, const struct caller *who, const struct machine_request *r,
                     const int *fds, struct handed *h, struct err *err) {
    const struct dir_request *dirs = r->dirs.v;
    struct dir_grant asked[PLAN_MAX_GRANTS];
    const char *const own[] = {s->place->home, s->place->run, NULL};
    struct dir_rules rules = {own, r->unreviewed, rights_sends_files(who) ? who->uid : 0};
    if (r->dirs.count + r->volumes.count > PLAN_MAX_GRANTS)
        return err_set(err, ERR_LIMIT, "a machine can have at most %d directories and volumes",
                       PLAN_MAX_GRANTS);
    for (size_t i = 0; i < r->dirs.count; i++) {
        h->ours[i] = !rights_sends_files(who);
        h->fds[i] = h->ours[i] ? roots_open(s, who, dirs[i].path, false, err) : fds[i];
        if (h->fds[i] < 0)
            return -1;
        h->count++;
        asked[i] = (struct dir_grant){dirs[i].path, dirs[i].at, dirs[i].mode};
    }
    return dirs_check(asked, h->count, h->fds, &rules, h->grants, err);
}

/* Answers a second request with the same idempotency key: it gets the machine of the first. */
static void show_existing(struct service *s, const char *id, service_machine_fn *done, void *arg) {
    struct live *l = map_get(&s->machines, id);
    struct machine_row row DEFER(machine_row_done) = {0};
    struct machine_view view;
    struct err err;
    if (l && l->row.state == MACHINE_CREATING) {
        err_set(&err, ERR_BUSY,
                "machine '%s' is still being created by an earlier request with this key", id);
        err_remedy(&err, "try again in a moment");
        done(arg, NULL, &err);
    } else if (l) {
        live_view(l, &view);
        done(arg, &view, NULL);
    } else if (store_machine_get(s->store, id, &row, &err) < 0) {
        done(arg, NULL, &err);
    } else {
        machine_row_view(&row, &view);
        done(arg, &view, NULL);
    }
}

/*
 * Finds the machine of an earlier request with this idempotency key, so that a retry succeeds even
 * if the quota is full now. It tries to insert the row, and rolls that back.
 */
static void made_before(struct service *s, const struct machine_row *row, char existing[ID_SIZE]) {
    struct err err;
    if (!row->key[0] || store_begin(s->store, &err) < 0)
        return;
    if (store_machine_add(s->store, row, existing, &err) < 0)
        existing[0] = '\0';
    store_rollback(s->store);
}

/*
 * Records the root of a fork, which needs the layers of its source. The prepared box already uses
 * upper (writable layer) 1, so the fork starts with 2. A machine without layers and image uses 1.
 */
static int note_origin(struct service *s, const struct machine_row *row,
                       const struct machine_request *r, struct err *err) {
    const char *id = row->id;
    bool plain = !r->from.stack[0] && !image_id_valid(row->image);
    struct root_row root = {.layer = plain ? 1 : 2, .stack = (char *)r->from.stack};
    struct step_row step = {.kind = STEP_FORK,
                            .state = STEP_DONE,
                            .created_ms = wall_ms(),
                            .status = -1,
                            .what = (char *)r->from.machine,
                            .counted = 1,
                            .has_point = 1,
                            .stack = (char *)r->from.stack};
    snprintf(root.machine, sizeof(root.machine), "%s", id);
    snprintf(root.from_machine, sizeof(root.from_machine), "%s", r->from.machine);
    snprintf(root.from_step, sizeof(root.from_step), "%s", r->from.step);
    snprintf(step.id, sizeof(step.id), "%s", id_new('s').text);
    snprintf(step.machine, sizeof(step.machine), "%s", id);
    return store_root_put(s->store, &root, err) < 0 ? -1 : store_step_add(s->store, &step, err);
}

/*
 * The prepared box already uses upper (writable layer) 1, so a machine on an image starts with 2.
 */
static int note_root(struct service *s, const char *id, struct err *err) {
    struct root_row root = {.layer = 2, .stack = (char *)""};
    snprintf(root.machine, sizeof(root.machine), "%s", id);
    return store_root_put(s->store, &root, err);
}

/* Writes row and intent and adds the live machine. NULL: *err or *existing is set. */
static struct live *create_begin(struct service *s, const struct caller *who,
                                 const struct machine_request *r, struct machine_row *row,
                                 char existing[ID_SIZE], uint64_t *intent, struct err *err) {
    struct journal_record what = {.verb = "machine.create", .machine = row->id};
    if (note_intent(s, who, &what, intent, err) < 0 || store_begin(s->store, err) < 0)
        return NULL;
    int added = store_machine_add(s->store, row, existing, err);
    if (added == 0 && !existing[0] && r->from.stack)
        added = note_origin(s, row, r, err);
    else if (added == 0 && !existing[0] && image_id_valid(row->image))
        added = note_root(s, row->id, err);
    if (added < 0 || store_commit(s->store, err) < 0) {
        store_rollback(s->store);
        return NULL;
    }
    return existing[0] ? NULL : live_new(s, row);
}

/*
 * Only limits from the request or carrel.conf must be enforced; 0 means default. The driver applies
 * defaults as far as the host can, and reports the others.
 */
static struct machine_limits wanted_limits(const struct conf *conf, const struct machine_request *r,
                                           const struct machine_row *row) {
    return (struct machine_limits){
        .mem_bytes = r->limits.mem.is || conf->mem_bytes ? row->mem_bytes : 0,
        .cpu_milli = row->cpu_milli,
        .pids = r->limits.pids.is || conf->pids ? row->pids : 0,
        .disk_bytes = r->limits.disk.is || conf->disk_bytes ? row->disk_bytes : 0,
    };
}

static uint64_t beyond(uint64_t value, uint64_t configured, uint64_t otherwise) {
    return configured || value != otherwise ? value : 0;
}

struct machine_limits row_limits(const struct conf *conf, const struct machine_row *row) {
    return (struct machine_limits){
        .mem_bytes = beyond(row->mem_bytes, conf->mem_bytes, LIMIT_MEM),
        .cpu_milli = row->cpu_milli,
        .pids = beyond(row->pids, conf->pids, LIMIT_PIDS),
        .disk_bytes = beyond(row->disk_bytes, conf->disk_bytes, LIMIT_DISK),
    };
}

/* The machine that this one is a fork of; NULL: none. */
static struct live *source_of(struct service *s, const struct machine_request *r) {
    return r->from.machine ? map_get(&s->machines, r->from.machine) : NULL;
}

static bool wants_models(const struct machine_request *r) {
    return r->models.allow || r->models.tokens.is || r->models.money.is;
}

/* Sets the model budget before a program in the machine can spend it. */
static int open_account(struct live *l, const struct machine_request *r, struct err *err) {
    const struct live *from = source_of(l->service, r);
    if (from && models_inherit(l, from, err) < 0)
        return -1;
    return models_limit(l, &r->models, err);
}

static struct grant_row new_row(const struct machine_request *r, const char *kind) {
    struct grant_row row = {.created_ms = wall_ms()};
    row.expires_ms = r->expires.is ? row.created_ms + (int64_t)r->expires.value : 0;
    snprintf(row.id, sizeof(row.id), "%s", id_new('g').text);
    snprintf(row.kind, sizeof(row.kind), "%s", kind);
    return row;
}

/* Returns the real path of a directory, if it is known, and its number in the plan as JSON. The
 * number identifies the directory of its changes (machine.uppers). */
static char *dir_detail(int fd, size_t number) {
    char path[PATH_MAX];
    json_t *json = json_pack("{s:I}", "number", (json_int_t)number);
    if (json && taint_real_path(fd, path, sizeof(path)))
        json_object_set_new(json, "path", json_string(path));
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return text;
}

/* Opens the volumes of the request and adds them to the plan. */
static int plan_volumes(struct service *s, const struct caller *who,
                        const struct machine_request *r, struct handed *h, struct grant_plan *p,
                        struct err *err) {
    const struct volume_use_request *volumes = r->volumes.v;
    for (size_t i = 0; i < r->volumes.count; i++) {
        struct grant_row row DEFER(grant_row_done) = new_row(r, "volume");
        size_t n = h->count;
        if (dirs_place(h->grants, n, volumes[i].at, err) < 0 ||
            (h->fds[n] = volume_open(s, who->owner, &volumes[i], n, &h->grants[n], &row, err)) < 0)
            return -1;
        h->ours[n] = true;
        h->count++;
        row.place = xstrdup(h->grants[n].path);
        grant_plan_add(p, &row, -1, false);
    }
    return 0;
}

/* `busy`: another machine writes to a volume that this one is to write to. */
static int check_volumes(struct service *s, const struct caller *who, const struct grant_plan *p,
                         struct err *err) {
    for (size_t i = 0; i < p->count; i++)
        if (strcmp(p->rows[i].kind, "volume") == 0 &&
            volume_check(s, who->owner, &p->rows[i], err) < 0)
            return -1;
    return 0;
}

/* Adds the directories and variables of the request to the plan. They were checked before. */
static void plan_known(const struct machine_request *r, const struct handed *h,
                       struct grant_plan *p) {
    const struct dir_request *dirs = r->dirs.v;
    for (size_t i = 0; i < h->count; i++) {
        struct grant_row row = new_row(r, "dir");
        row.what = xstrdup(dirs[i].path);
        row.place = xstrdup(h->grants[i].path);
        snprintf(row.mode, sizeof(row.mode), "%s", plan_mode_name(h->grants[i].mode));
        row.detail = dir_detail(h->fds[i], i);
        grant_plan_add(p, &row, -1, false);
    }
    for (size_t i = r->from.env; i + 1 < r->env.count; i += 2) {
        struct grant_row row = new_row(r, "env");
        row.what = xstrdup(r->env.v[i]);
        grant_plan_add(p, &row, -1, false);
    }
}

size_t service_request_fds(const struct caller *who, const struct machine_request *r) {
    const struct grant_request *grants = r->grants.v;
    size_t count = r->dirs.count;
    for (size_t i = 0; i < r->grants.count; i++)
        count += grant_wants_file(&grants[i]);
    return rights_sends_files(who) ? count : 0;
}

static int plan_asked(struct service *s, const struct caller *who, const struct machine_request *r,
                      const int *fds, struct grant_plan *p, struct err *err) {
    const struct secret_grant_request *secrets = r->secrets.v;
    const struct grant_request *grants = r->grants.v;
    for (size_t i = 0; i < r->secrets.count; i++) {
        const struct grant_request one = {.kind = "secret",
                                          .what = secrets[i].name,
                                          .at = secrets[i].host,
                                          .mode = secrets[i].as,
                                          .expires = r->expires};
        if (grant_plan_read(s, who, &one, -1, p, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < r->grants.count; i++) {
        struct grant_request one = grants[i];
        bool file = rights_sends_files(who) && grant_wants_file(&one);
        if (!one.expires.is)
            one.expires = r->expires;
        if (grant_plan_read(s, who, &one, file ? *fds : -1, p, err) < 0)
            return -1;
        fds += file;
    }
    return 0;
}

static int plan_grants(struct service *s, const struct caller *who, const struct machine_request *r,
                       const int *fds, size_t nfds, struct handed *h, struct grant_plan *p,
                       struct err *err) {
    size_t wanted = service_request_fds(who, r);
    if (nfds != wanted)
        return err_set(err, ERR_INVALID, "the request passes %zu file descriptors, but needs %zu",
                       nfds, wanted);
    if (hand_over(s, who, r, fds, h, err) < 0)
        return -1;
    plan_known(r, h, p);
    if (plan_volumes(s, who, r, h, p, err) < 0)
        return -1;
    if (plan_asked(s, who, r, rights_sends_files(who) ? fds + r->dirs.count : NULL, p, err) < 0)
        return -1;
    grant_plan_mark_start(p);
    return 0;
}

/* Duplicates the caller's descriptors, which are closed with the request. */
static void keep_files(struct grant_plan *p) {
    for (size_t i = 0; i < p->count; i++)
        if (p->fds[i] >= 0 && !p->ours[i]) {
            p->fds[i] = fcntl(p->fds[i], F_DUPFD_CLOEXEC, 3);
            p->ours[i] = true;
        }
}

/* Also inherits the grants of a fork's source: its files and processes may contain them. */
static int hand_grants(struct creation *c, const struct machine_request *r, struct err *err) {
    struct live *l = c->live;
    const struct live *from = source_of(l->service, r);
    if (grants_write(l, &c->who, from, &c->plan, err) < 0)
        return -1;
    c->delivers = grant_plan_delivers(&c->plan);
    c->granted = c->plan.count + c->plan.inherited > 0;
    return 0;
}

/* The source must still be live: the fork inherits its rules and taint. */
static int find_source(struct service *s, const struct machine_request *r, struct err *err) {
    if (!r->from.machine || source_of(s, r))
        return 0;
    return err_set(err, ERR_GONE, "machine '%s' ended during the fork", r->from.machine);
}

/*
 * Records taint, grants and budget, then lets the driver create the machine and call
 * creation_made().
 */
static void creation_go(struct service *s, struct creation *c, const struct machine_request *r,
                        const struct handed *handed) {
    struct live *l = c->live;
    struct err err;
    if (taint_plan(l, &c->who, r, &c->plan, &err) < 0 || hand_grants(c, r, &err) < 0 ||
        taint_lent(l, &err) < 0 || open_account(l, r, &err) < 0 ||
        ((r->from.stack || l->image) && steps_load(l, &err) < 0)) {
        creation_fail(c, &err);
        return;
    }
    struct machine_vm vm;
    const struct machine_spec spec = {
        .id = l->row.id,
        .image = l->row.image,
        .hostname = r->hostname      ? r->hostname
                    : l->row.name[0] ? l->row.name
                    : r->early       ? "" /* keep the hostname of the prepared box */
                                     : l->row.id,
        .limits = wanted_limits(s->conf, r, &l->row),
        .deadline_ms = live_deadline(&l->row, l->row.ttl_ms),
        .linger = !r->ephemeral,
        .cell = live_is_cell(l),
        .vm = live_vm(l, r->from.memory, &vm),
        .gate = true,
        .early = r->early && !live_is_cell(l) && !live_is_vm(l),
        .stack = steps_stack(l),
        .undrifted = r->from.drifted ? NULL : r->from.machine,
        .grants = handed->grants,
        .grant_fds = handed->fds,
        .grant_count = handed->count,
    };
    s->driver->create(s->host, &spec, creation_made, c);
}

/* The network rules of the new machine: those of its source, and what the request adds. */
static int plan_rules(struct service *s, const struct machine_request *r,
                      const struct machine_row *row, struct policy *ret, struct err *err) {
    net_inherit_rules(source_of(s, r), ret);
    if (net_add_rules(s, row->owner, row->image, &r->net, ret, err) < 0 ||
        (r->allowed_net.count &&
         net_set_given(s, row->owner, row->image, &r->allowed_net, ret, err) < 0) ||
        (wants_models(r) && net_add_models(ret, err) < 0))
        return -1;
    return 0;
}

void service_create(struct service *s, const struct caller *who, const struct machine_request *r,
                    const uint8_t request_hash[SHA256_BYTES], const int *fds, size_t nfds,
                    service_machine_fn *done, void *arg) {
    struct machine_row row DEFER(machine_row_done) = {0};
    struct handed handed DEFER(handed_done) = {.count = 0};
    struct policy policy DEFER(policy_done) = {.rules = NULL};
    struct grant_plan plan DEFER(grant_plan_done) = {0};
    char existing[ID_SIZE] = "";
    uint64_t intent = 0;
    struct err err;
    if (authorise_machine(who, r, &err) < 0 || cell_check_request(r, &err) < 0 ||
        vm_check_request(r, &err) < 0 || find_source(s, r, &err) < 0 ||
        fill_row(s, who, r, &row, &err) < 0 ||
        plan_grants(s, who, r, fds, nfds, &handed, &plan, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    if (plan_rules(s, r, &row, &policy, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    policy.guarded |= r->guard;
    memcpy(row.request_hash, request_hash, SHA256_BYTES);
    struct live *l = NULL;
    /* Doors count for no quota: volumes/doors.c limits how many there are. */
    const struct volume_use_request *use = r->volumes.count ? r->volumes.v : NULL;
    if (((use && use->door) || quota_check(s, who, NULL, &row, &err) == 0) &&
        check_volumes(s, who, &plan, &err) == 0)
        l = create_begin(s, who, r, &row, existing, &intent, &err);
    else
        made_before(s, &row, existing);
    if (existing[0])
        show_existing(s, existing, done, arg);
    else if (!l)
        done(arg, NULL, &err);
    if (!l)
        return;
    *gate_policy(l->gate) = policy;
    policy = (struct policy){.rules = NULL};
    if (source_of(s, r))
        net_inherit_trust(l, source_of(s, r));
    struct creation *c = xnew(struct creation);
    keep_files(&plan);
    *c = (struct creation){.live = l,
                           .who = *who,
                           .intent = intent,
                           .done = done,
                           .arg = arg,
                           .early = r->early && r->ephemeral,
                           .ephemeral = r->ephemeral,
                           .plan = plan};
    plan = (struct grant_plan){0};
    c->lent = r->ephemeral ? NULL : lend(&handed);
    live_ref(l);
    l->changing = true;
    l->ephemeral = r->ephemeral;
    creation_go(s, c, r, &handed);
}
