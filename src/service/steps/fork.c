/* Forks: new machines from a step of another machine. They share only its layers. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/asleep.h"
#include "service/cells.h"
#include "service/images/live.h"
#include "service/steps/barrier.h"
#include "service/steps/inner.h"
#include "service/steps/steps.h"
#include "service/vm/memory.h"

struct forking {
    struct live *live; /* the source */
    struct caller who;
    uint64_t intent;
    size_t wanted, begun, over;
    bool drifted;
    bool memory;        /* forks of a vm go on in its memory */
    bool memory_is_own; /* which was saved for them alone */
    char memory_path[MEMORY_PATH_SIZE];
    char key[STORE_KEY_SIZE];
    uint8_t hash[SHA256_BYTES]; /* hash of the request and of the source machine */
    char at[STORE_NAME_SIZE];   /* the requested step */
    struct step_row step;
    struct texts metadata, env; /* names and values */
    json_t *given;              /* owns the texts of `metadata` */
    /* What service_create_from() was asked for, owned by its caller; NULL: plain forks. */
    const struct machine_request *asked;
    const int *fds;
    size_t nfds;
    char (*ids)[ID_SIZE]; /* machines created by this request */
    size_t made;
    char (*earlier)[ID_SIZE]; /* machines created by an earlier request with the same key */
    size_t earlier_count;
    bool failed;
    struct err err;
    service_row_fn *row;
    service_done_fn *done;
    void *arg;
};

static void forking_free(struct forking *f) {
    step_row_done(&f->step);
    json_decref(f->given);
    free(f->metadata.v);
    free(f->env.v);
    free(f->ids);
    free(f->earlier);
    live_unref(f->live);
    free(f);
}

static struct journal_record fork_record_of(const struct forking *f) {
    return (struct journal_record){.verb = "machine.fork", .machine = f->live->row.id};
}

/* Deletes a fork and its idempotency key, so that a retry creates a new machine. */
static void fork_take_back(struct service *s, const char *id) {
    struct live *l = map_get(&s->machines, id);
    struct err err;
    if (store_machine_unkey(s->store, id, &err) < 0)
        log_line(LOG_ERROR, "service", "release an idempotency key: %s id=%s", err.text, id);
    if (l)
        live_end(l, "another fork of the same request failed", NULL, NULL);
}

/*
 * After a failure, deletes all forks of this request. Forks of an earlier request with the same key
 * stay, because that request was answered.
 */
static void fork_finish(struct forking *f, const struct err *err) {
    struct service *s = f->live->service;
    struct journal_record what = fork_record_of(f);
    note_result(s, &f->who, &what, f->intent, err);
    for (size_t i = 0; err && i < f->made; i++)
        fork_take_back(s, f->ids[i]);
    if (f->memory_is_own && f->step.id[0])
        memory_drop(s, f->step.machine, f->step.id);
    f->done(f->arg, err);
    forking_free(f);
}

static void one_over(struct forking *f) {
    f->over++;
    if (f->over == f->begun)
        fork_finish(f, f->failed ? &f->err : NULL);
}

static bool is_earlier(const struct forking *f, const char *id) {
    for (size_t i = 0; i < f->earlier_count; i++)
        if (strcmp(f->earlier[i], id) == 0)
            return true;
    return false;
}

static void one_made(void *arg, const struct machine_view *view, const struct err *err) {
    struct forking *f = arg;
    if (err && !f->failed) {
        f->failed = true;
        f->err = *err;
    }
    if (view) {
        if (!is_earlier(f, view->id))
            memcpy(f->ids[f->made++], view->id, ID_SIZE);
        f->row(f->arg, view);
    }
    one_over(f);
}

/* Each fork has its own idempotency key; a single fork has the key of the request. */
static const char *key_of(const struct forking *f, size_t i, char ret[STORE_KEY_SIZE]) {
    if (f->wanted == 1)
        snprintf(ret, STORE_KEY_SIZE, "%s", f->key);
    else
        snprintf(ret, STORE_KEY_SIZE, "%.*s.%zu", FORK_KEY_MAX, f->key, i);
    return f->key[0] ? ret : NULL;
}

static bool texts_have(const struct texts *pairs, const char *name) {
    for (size_t i = 0; i + 1 < pairs->count; i += 2)
        if (strcmp(pairs->v[i], name) == 0)
            return true;
    return false;
}

static void texts_put(struct texts *pairs, const char *name, const char *value) {
    pairs->v[pairs->count++] = name;
    pairs->v[pairs->count++] = value;
}

/* Adds the pairs that the request has. */
static void texts_add(struct texts *pairs, const struct texts *asked) {
    for (size_t i = 0; asked && i + 1 < asked->count; i += 2)
        texts_put(pairs, asked->v[i], asked->v[i + 1]);
}

/* Copies the metadata of the source and adds where the fork comes from. What the request has
 * replaces what the source has. */
static void fill_metadata(struct forking *f) {
    const char *name;
    json_t *value;
    const struct live *l = f->live;
    const struct texts *asked = f->asked ? &f->asked->metadata : NULL;
    size_t more = asked ? asked->count : 0;
    f->given = l->row.metadata ? json_loads(l->row.metadata, 0, NULL) : NULL;
    f->metadata.v = xcalloc(2 * (json_object_size(f->given) + 2) + more, sizeof(*f->metadata.v));
    json_object_foreach(f->given, name, value) {
        if (json_is_string(value) && strncmp(name, "forked_", 7) != 0 &&
            !(asked && texts_have(asked, name)))
            texts_put(&f->metadata, name, json_string_value(value));
    }
    texts_add(&f->metadata, asked);
    texts_put(&f->metadata, "forked_from", l->row.id);
    texts_put(&f->metadata, "forked_at", f->step.id);
}

/* Variables of the source first. Returns how many texts these are. */
static size_t fill_env(struct forking *f) {
    const struct texts *old = &f->live->env, *asked = f->asked ? &f->asked->env : NULL;
    f->env.v = xcalloc(old->count + (asked ? asked->count : 0) + 1, sizeof(*f->env.v));
    for (size_t i = 0; i + 1 < old->count; i += 2)
        if (!asked || !texts_have(asked, old->v[i]))
            texts_put(&f->env, old->v[i], old->v[i + 1]);
    size_t inherited = f->env.count;
    texts_add(&f->env, asked);
    return inherited;
}

static struct given known(struct given asked, uint64_t value) {
    return asked.is ? asked : (struct given){value, value != 0};
}

/* The request for a fork: that of the caller, with the values of the source where it has none. */
static struct machine_request fork_request_of(struct forking *f) {
    const struct live *l = f->live;
    const struct machine_row *of = &l->row;
    /*
     * Only limits that were configured are requested: a host may not support the defaults of the
     * kind.
     */
    const struct machine_limits limits = row_limits(l->service->conf, of);
    struct machine_request r = f->asked ? *f->asked : (struct machine_request){0};
    fill_metadata(f);
    r.source = NULL;
    r.kind = of->kind;
    r.image = of->image;
    r.limits.fuel = known(r.limits.fuel, of->fuel);
    r.limits.fuel_rate = known(r.limits.fuel_rate, of->fuel_rate);
    r.limits.mem = known(r.limits.mem, limits.mem_bytes);
    r.limits.cpus = known(r.limits.cpus, limits.cpu_milli);
    r.limits.pids = known(r.limits.pids, limits.pids);
    r.limits.disk = known(r.limits.disk, limits.disk_bytes);
    r.ttl = r.ttl.is ? r.ttl : (struct given){of->ttl_ms, true};
    r.idle = r.idle.is ? r.idle : (struct given){of->idle_ms, true};
    r.idle_action = r.idle_action ? r.idle_action : idle_action_name(of->idle_action);
    r.steps = r.steps ? r.steps : step_policy_name(of->steps);
    r.on_ttl = r.on_ttl ? r.on_ttl : ttl_action_name((enum ttl_action)of->on_ttl);
    r.metadata = f->metadata;
    r.from.stack = f->step.stack ? f->step.stack : "";
    r.from.machine = of->id;
    r.from.step = f->step.id;
    r.from.allowed = of->allowed;
    r.from.env = fill_env(f);
    r.from.drifted = f->drifted;
    r.from.memory = f->memory ? f->memory_path : NULL;
    r.env = f->env;
    return r;
}

static void make_all(struct forking *f) {
    const struct live *l = f->live;
    char key[STORE_KEY_SIZE];
    struct machine_request request = fork_request_of(f);
    f->ids = xcalloc(f->wanted, sizeof(*f->ids));
    f->earlier = xcalloc(f->wanted, sizeof(*f->earlier));
    f->begun = f->wanted;
    for (size_t i = 0, n = f->wanted; i < n; i++) {
        struct err err;
        request.key = key_of(f, i, key);
        if (request.key && store_machine_by_key(l->service->store, f->who.owner, request.key,
                                                f->hash, f->earlier[f->earlier_count], &err) > 0)
            f->earlier_count++;
        service_create(l->service, &f->who, &request, f->hash, f->fds, f->nfds, one_made, f);
    }
}

static void step_known(struct forking *f) {
    struct live *l = f->live;
    struct err err;
    if (!f->step.has_point) {
        step_point_error(l, &f->step, &err);
        fork_finish(f, &err);
    } else if (!l->machine) {
        live_state_error(l, &err);
        fork_finish(f, &err);
    } else if (f->memory && !step_has_memory(&f->step)) {
        err_set(&err, ERR_UNSUPPORTED, "step %u has no memory", f->step.number);
        err_remedy(&err, "leave --memory out, or fork a step of carrel snap --memory");
        fork_finish(f, &err);
    } else {
        memory_path(l->service, f->step.machine, f->step.id, f->memory_path);
        make_all(f);
    }
}

static void snapped(void *arg, const struct step_row *row, const struct err *failed) {
    struct forking *f = arg;
    struct err err;
    if (!failed &&
        store_step_find(f->live->service->store, row->machine, row->id, &f->step, &err) < 0)
        failed = &err;
    if (failed && failed->code == ERR_BUSY) {
        err = *failed;
        err_remedy(
            &err,
            "try again when no command runs in the machine, or fork an earlier step with --at");
        failed = &err;
    }
    if (failed)
        fork_finish(f, failed);
    else
        step_known(f);
}

/* The step name `start` means the image alone, or step 1 if the machine is itself a fork. */
static int find_row(struct forking *f, struct err *err) {
    struct root_row root DEFER(root_row_done) = {.stack = NULL};
    struct store *store = f->live->service->store;
    struct err none;
    if (strcmp(f->at, "start") != 0)
        return store_step_find(store, f->live->row.id, f->at, &f->step, err);
    if (store_root_get(store, f->live->row.id, &root, &none) < 0 && none.code != ERR_NOT_FOUND)
        return *err = none, -1;
    if (root.from_machine[0])
        return store_step_find(store, f->live->row.id, "1", &f->step, err);
    f->step.has_point = true;
    return 0;
}

/* Waits at the barrier, because a step that is being taken can be named too. */
static void find_step(void *arg) {
    struct forking *f = arg;
    struct live *l = f->live;
    struct err err;
    int full = barrier_check(l, &err);
    if (full == 0 && barrier_wait(l, find_step, f))
        return;
    if (full < 0 || find_row(f, &err) < 0)
        fork_finish(f, &err);
    else
        step_known(f);
}

/* The step that a machine was forked from, as fill_metadata() recorded it. */
static void origin_of(struct forking *f, const char *id) {
    struct machine_row row DEFER(machine_row_done) = {0};
    struct err err;
    if (store_machine_get(f->live->service->store, id, &row, &err) < 0)
        return;
    json_t *given = row.metadata ? json_loads(row.metadata, 0, NULL) : NULL;
    const char *at = json_string_value(json_object_get(given, "forked_at"));
    if (at)
        snprintf(f->at, sizeof(f->at), "%s", at);
    json_decref(given);
}

/*
 * Finds the machines of an earlier request with the same key; the rest are forked from the same
 * step. Returns how many there are.
 */
static int find_earlier(struct forking *f, struct err *err) {
    char key[STORE_KEY_SIZE], id[ID_SIZE];
    int found = 0;
    for (size_t i = 0; f->key[0] && i < f->wanted; i++) {
        int r = store_machine_by_key(f->live->service->store, f->who.owner, key_of(f, i, key),
                                     f->hash, id, err);
        if (r < 0)
            return -1;
        if (r > 0 && found++ == 0)
            origin_of(f, id);
    }
    return found;
}

/* Adds the source to the hash: the same key for another machine is an error. */
static void hash_request(struct forking *f, const uint8_t *request) {
    struct sha256 hash;
    if (!request)
        return;
    sha256_init(&hash);
    sha256_add(&hash, request, SHA256_BYTES);
    sha256_add(&hash, f->live->row.id, strlen(f->live->row.id));
    sha256_end(&hash, f->hash);
}

static void fork_begin(struct forking *f);

static void fork_awake(void *arg, const struct err *err) {
    if (err)
        fork_finish(arg, err);
    else
        fork_begin(arg);
}

static void fork_begin(struct forking *f) {
    struct err err;
    if (asleep_wait(f->live, fork_awake, f))
        return;
    int earlier = find_earlier(f, &err);
    if (earlier < 0) {
        fork_finish(f, &err);
    } else if ((size_t)earlier == f->wanted) {
        make_all(f);
    } else if (f->at[0]) {
        find_step(f);
    } else {
        struct step_cause cause = {
            .kind = STEP_SNAP, .what = "fork", .status = -1, .memory = f->memory};
        f->memory_is_own = f->memory;
        steps_take(f->live, &cause, snapped, f);
    }
}

/* Starts a fork of l. NULL: *err is set. */
static struct forking *fork_open(struct service *s, const struct caller *who, struct live *l,
                                 const struct fork_request *r, struct err *err) {
    uint64_t intent;
    struct journal_record what = {.verb = "machine.fork", .machine = l->row.id};
    if ((!l->machine && !live_is_asleep(l)) || l->row.state == MACHINE_ENDING) {
        live_state_error(l, err);
        return NULL;
    }
    if (barrier_check(l, err) < 0 || (r->memory && memory_check(l, err) < 0) ||
        note_intent(s, who, &what, &intent, err) < 0)
        return NULL;
    struct forking *f = xnew(struct forking);
    *f = (struct forking){.live = l,
                          .who = *who,
                          .intent = intent,
                          .wanted = r->count.is ? r->count.value : 1,
                          .drifted = r->drifted,
                          .memory = r->memory};
    snprintf(f->key, sizeof(f->key), "%s", r->key ? r->key : "");
    snprintf(f->at, sizeof(f->at), "%s", r->step ? r->step : "");
    hash_request(f, r->hash);
    live_ref(l);
    return f;
}

void service_fork(struct service *s, const struct caller *who, const char *machine,
                  const struct fork_request *r, service_row_fn *row, service_done_fn *done,
                  void *arg) {
    struct err err;
    struct live *l =
        allow(who, SCOPE_RUN, &err) < 0 ? NULL : live_find(s, who, machine, LIVE_ANY, &err);
    struct forking *f = l ? fork_open(s, who, l, r, &err) : NULL;
    if (!f) {
        done(arg, &err);
        return;
    }
    f->row = row;
    f->done = done;
    f->arg = arg;
    fork_begin(f);
}

/* ---- a machine from a machine, a step or an image ---- */

struct from_call {
    const struct machine_view *view; /* valid until from_done() */
    service_machine_fn *done;
    void *arg;
};

static void from_row(void *arg, const void *view) {
    ((struct from_call *)arg)->view = view;
}

static void from_done(void *arg, const struct err *err) {
    struct from_call c = *(struct from_call *)arg;
    free(arg);
    c.done(c.arg, err ? NULL : c.view, err);
}

/* Splits MACHINE@STEP. */
static int from_split(const char *source, char machine[STORE_NAME_SIZE], const char **ret_step,
                      struct err *err) {
    const char *at = strrchr(source, '@');
    size_t n = at ? (size_t)(at - source) : strlen(source);
    if (n == 0 || n >= STORE_NAME_SIZE || (at && !at[1]))
        return err_set(err, ERR_INVALID, "'%.100s' is not a machine, MACHINE@STEP or an image",
                       source);
    memcpy(machine, source, n);
    machine[n] = '\0';
    *ret_step = at ? at + 1 : NULL;
    return 0;
}

/* Checks what the caller asks for on top of the source. */
static int from_check(const struct live *l, const struct machine_request *r, struct err *err) {
    struct machine_request asked = *r;
    if (r->kind && strcmp(r->kind, l->row.kind) != 0)
        return err_set(err, ERR_INVALID, "machine '%s' is a %s, so a copy of it is one too",
                       l->row.id, l->row.kind);
    asked.kind = l->row.kind;
    asked.image = l->row.image;
    return cell_check_request(&asked, err);
}

/* If nothing has this name: a name with a step can be no image. */
static int from_nothing(const char *source, struct err *err) {
    err_set(err, ERR_NOT_FOUND, "neither a machine nor an image has the name '%.100s'", source);
    return err_remedy(err, "list them: carrel ls, carrel image ls");
}

/*
 * Refuses a name that a machine and an image have. Agents choose names of machines, and what the
 * caller grants must not go to such a machine by mistake.
 */
static int from_is_clear(struct service *s, const struct caller *who, const char *source,
                         const struct live *l, struct err *err) {
    struct image_row image;
    struct err none;
    if (strcmp(source, l->row.id) == 0 ||
        (strcmp(source, "host") != 0 && image_find(s, who, source, &image, &none) < 0))
        return 0;
    err_set(err, ERR_INVALID, "both a machine and an image have the name '%.100s'", source);
    return err_remedy(err, "use --image %.60s, or the id of the machine: --from %s", source,
                      l->row.id);
}

static void from_image(struct service *s, const struct caller *who, const struct machine_request *r,
                       const uint8_t hash[SHA256_BYTES], const int *fds, size_t nfds,
                       service_machine_fn *done, void *arg) {
    struct machine_request copy = *r;
    struct image_row image;
    struct err err;
    copy.image = r->source;
    if (strcmp(r->source, "host") != 0 && image_find(s, who, r->source, &image, &err) < 0) {
        if (err.code == ERR_NOT_FOUND)
            from_nothing(r->source, &err);
        done(arg, NULL, &err);
        return;
    }
    service_create(s, who, &copy, hash, fds, nfds, done, arg);
}

void service_create_from(struct service *s, const struct caller *who,
                         const struct machine_request *r, const uint8_t hash[SHA256_BYTES],
                         const int *fds, size_t nfds, service_machine_fn *done, void *arg) {
    char machine[STORE_NAME_SIZE];
    const char *step = NULL;
    struct forking *f = NULL;
    struct err err = {0};
    struct live *l = NULL;
    if (r->image)
        err_set(&err, ERR_INVALID, "a machine has one source: give 'from' or 'image', not both");
    else if (allow(who, SCOPE_RUN, &err) == 0 && from_split(r->source, machine, &step, &err) == 0)
        l = live_find(s, who, machine, LIVE_ANY, &err);
    if (!l && !step && err.code == ERR_NOT_FOUND) {
        from_image(s, who, r, hash, fds, nfds, done, arg);
        return;
    }
    const struct fork_request wanted = {.step = step, .key = r->key, .hash = hash};
    if (l && (step || from_is_clear(s, who, r->source, l, &err) == 0) &&
        from_check(l, r, &err) == 0)
        f = fork_open(s, who, l, &wanted, &err);
    if (!f) {
        done(arg, NULL, &err);
        return;
    }
    struct from_call *c = xnew(struct from_call);
    *c = (struct from_call){.done = done, .arg = arg};
    f->asked = r;
    f->fds = fds;
    f->nfds = nfds;
    f->row = from_row;
    f->done = from_done;
    f->arg = c;
    fork_begin(f);
}
