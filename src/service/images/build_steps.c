/*
 * Runs the steps of a build, one after the other, in a machine of the image before them. An image
 * is kept after each step under the name build:HASH. The hash covers the base, the packages of the
 * host if the base is `host`, and all steps so far, so the same steps are not run again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/hex.h"
#include "service/files.h"
#include "service/images/build_inner.h"
#include "service/net/net.h"

enum {
    KEY_HEX = 32,
    DISK_BYTES_SHIFT = 33,
    TTL_MS = 2 * 3600 * 1000,
    PIECES_MAX = 32,
    AGAIN_MS = 500
};

static const char host_note[] = "all files of the host are stored first, which takes minutes\n";

static build_then_fn step_begin, step_open, step_local, step_dirs, step_act, step_keep, step_next;

/* ---- keys ---- */

static void key_text(struct build *b, const char *text) {
    sha256_add(&b->key, text, strlen(text) + 1);
}

/* Adds everything that a step does, and nothing that is only shown. */
static void key_add_step(struct build *b) {
    static const char *const shown[] = {"what", "place", "archive"};
    json_t *step = json_deep_copy(json_array_get(json_object_get(b->recipe, "steps"), b->at));
    for (size_t i = 0; i < sizeof(shown) / sizeof(*shown); i++)
        json_object_del(step, shown[i]);
    char *text DEFER_FREE = json_dumps(step, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(step);
    key_text(b, text ? text : "");
}

static void key_name(struct build *b) {
    struct sha256 copy = b->key;
    uint8_t hash[SHA256_BYTES];
    int n = snprintf(b->step_name, sizeof(b->step_name), "build:");
    sha256_end(&copy, hash);
    hex_put(hash, KEY_HEX / 2, b->step_name + n);
}

/* ---- steps ---- */

/* The host's state, for the key of a build with base `host`. The build may end meanwhile. */
struct host_look {
    struct service *service;
    char build[ID_SIZE], state[SHA256_HEX];
};

static void host_look_run(void *arg) {
    struct host_look *l = arg;
    image_host_state(l->state);
}

static void host_look_done(void *arg) {
    struct host_look *l DEFER_FREE = arg;
    struct build *b = build_live(l->service, l->build);
    if (!b || b->released)
        return;
    key_text(b, l->state[0] ? l->state : l->build); /* unknown: no other build has this key */
    build_did(b, NULL);
}

/* `host` stands for other files after each upgrade of the host's packages. */
static void host_look_begin(struct build *b) {
    struct host_look *l = xnew(struct host_look);
    l->service = b->service;
    memcpy(l->build, b->row.id, sizeof(l->build));
    build_begin(b, step_begin);
    loop_work(b->service->loop, host_look_run, host_look_done, l);
}

void build_start_steps(struct build *b) {
    sha256_init(&b->key);
    key_text(b, "build 1");
    key_text(b, b->image);
    if (strcmp(b->image, "host") == 0)
        host_look_begin(b);
    else
        step_begin(b);
}

static bool build_may_go_on(struct build *b) {
    struct err err;
    if (service_caller_stands(b->service, &b->who))
        return true;
    err_set(&err, ERR_DENIED, "the token that started the build is no longer valid");
    build_fail(b, &err);
    return false;
}

static void step_close_machine(struct build *b, build_then_fn *then);

static void step_begin(struct build *b) {
    const struct build_step *step = build_step_of(b);
    struct image_row row;
    struct err err;
    if (!step) {
        build_finish(b);
        return;
    }
    if (!build_may_go_on(b))
        return;
    b->row.step = (uint32_t)b->at + 1;
    if (!step->make) {
        build_log_step(b, step->how ? step->how : "setting", step->what);
        step_next(b);
        return;
    }
    key_add_step(b);
    key_name(b);
    if (!b->request.no_cache &&
        store_image_find(b->service->store, b->who.owner, b->step_name, &row, &err) == 0) {
        build_log_step(b, "cached", step->what);
        b->row.cached++;
        b->service->images->stats.steps_cached++;
        memcpy(b->image, row.id, sizeof(b->image));
        step_close_machine(b, step_next); /* the machine was made of an earlier image */
        return;
    }
    build_log_step(b, "making", step->what);
    if (strcmp(b->image, "host") == 0)
        build_log_output(b, host_note, sizeof(host_note) - 1);
    if (store_build_put(b->service->store, &b->row, &err) < 0) {
        build_fail(b, &err);
        return;
    }
    step_open(b);
}

static void step_next(struct build *b) {
    b->at++;
    build_go(b, step_begin);
}

/* ---- the machine ---- */

static void step_closed(void *arg, const struct machine_view *view, const struct err *err) {
    struct build *b = arg;
    (void)view;
    b->machine[0] = '\0';
    build_did(b, err && err->code != ERR_GONE && err->code != ERR_NOT_FOUND ? err : NULL);
}

static void step_close_machine(struct build *b, build_then_fn *then) {
    if (!b->machine[0]) {
        then(b);
        return;
    }
    build_begin(b, then);
    service_destroy(b->service, &b->who, b->machine, step_closed, b);
}

static bool texts_equal(const struct texts *a, const struct texts *b) {
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (strcmp(a->v[i], b->v[i]) != 0)
            return false;
    return true;
}

static void step_opened(void *arg, const struct machine_view *view, const struct err *err) {
    struct build *b = arg;
    if (view) {
        snprintf(b->machine, sizeof(b->machine), "%s", view->id);
        memcpy(b->made_of, b->image, sizeof(b->made_of));
        b->net = &build_step_of(b)->net;
    }
    build_did(b, err);
}

static void step_create(struct build *b) {
    const struct build_step *step = build_step_of(b);
    struct net_request *net DEFER_FREE = xmalloc((step->net.count + 1) * sizeof(*net));
    const char *metadata[] = {"build", b->row.id};
    struct machine_request r = {.image = b->image,
                                .steps = "manual",
                                .ttl = {.value = TTL_MS, .is = true},
                                .metadata = {.v = metadata, .count = 2},
                                .ephemeral = true};
    uint8_t hash[SHA256_BYTES] = {0};
    r.limits.disk = (struct given){.value = 1ull << DISK_BYTES_SHIFT, .is = true};
    for (size_t i = 0; i < step->net.count; i++)
        net[i] = (struct net_request){.target = step->net.v[i]};
    *(b->net_allowed ? &r.allowed_net : &r.net) = (struct rows){net, step->net.count};
    build_begin(b, step_local);
    service_create(b->service, &b->who, &r, hash, NULL, 0, step_opened, b);
}

/*
 * An image of a machine on `host` holds all files of the host. So only the first step runs on it:
 * the images of later steps hold what these changed.
 */
static void step_open(struct build *b) {
    const struct build_step *step = build_step_of(b);
    bool fresh = step->fresh || strcmp(b->made_of, "host") == 0;
    bool stale = b->machine[0] &&
                 (!texts_equal(b->net, &step->net) || (fresh && strcmp(b->made_of, b->image) != 0));
    b->dir_at = 0;
    if (stale)
        step_close_machine(b, step_create);
    else if (b->machine[0])
        step_dirs(b);
    else
        step_create(b);
}

/* ---- mirrors with private addresses ---- */

/* True if a rule such as "http://deb.example:8080" is for a host or a preset that the client named.
 */
static bool rule_is_local(const struct build *b, const json_t *rule) {
    const char *target = json_string_value(json_object_get(rule, "target"));
    const char *preset = json_string_value(json_object_get(rule, "preset"));
    const char *at = target ? strstr(target, "://") : NULL;
    at = at ? at + 3 : target;
    size_t n = at ? strcspn(at, ":/") : 0;
    for (size_t i = 0; at && i < b->request.local.count; i++) {
        const char *named = b->request.local.v[i];
        if ((strlen(named) == n && strncmp(named, at, n) == 0) ||
            (preset && strcmp(named, preset) == 0))
            return true;
    }
    return false;
}

static void rule_added(void *arg, const char *json, const struct err *err) {
    (void)json;
    build_did(arg, err);
}

static void rule_add(struct build *b, const char *target, build_then_fn *then) {
    const struct net_request r = {.target = target, .local = true};
    build_begin(b, then);
    service_net_add(b->service, &b->who, b->machine, &r, rule_added, b);
}

static void rules_next(struct build *b) {
    while (b->rule_at < json_array_size(b->rules)) {
        const json_t *rule = json_array_get(b->rules, b->rule_at++);
        if (rule_is_local(b, rule)) {
            rule_add(b, json_string_value(json_object_get(rule, "target")), rules_next);
            return;
        }
    }
    step_dirs(b);
}

static void rules_known(void *arg, const char *json, const struct err *err) {
    struct build *b = arg;
    json_t *net DEFER(json_decrefp) = json ? json_loads(json, 0, NULL) : NULL;
    json_decref(b->rules);
    b->rules = json_incref(json_object_get(net, "rules"));
    build_did(b, err);
}

static void rules_allow(struct build *b) {
    size_t known = 0;
    for (size_t i = 0; i < json_array_size(b->rules); i++)
        known += rule_is_local(b, json_array_get(b->rules, i));
    b->rule_at = 0;
    if (known && known == json_array_size(b->rules) && b->net->count == 1)
        rule_add(b, b->net->v[0], step_dirs); /* the rules stay those of the preset */
    else
        rules_next(b);
}

/*
 * Lets the machine reach mirrors with private addresses, if the client named them. The image alone
 * cannot open the local network: a stranger may have made it.
 */
static void step_local(struct build *b) {
    if (!b->net->count || !b->request.local.count) {
        step_dirs(b);
        return;
    }
    build_begin(b, rules_allow);
    service_net_show(b->service, &b->who, b->machine, rules_known, b);
}

/* ---- directories ---- */

static void dir_made(void *arg, const struct frame *frame, const struct err *err) {
    (void)frame;
    build_did(arg, err);
}

static void step_dirs(struct build *b) {
    const struct build_step *step = build_step_of(b);
    if (b->dir_at == step->dirs.count) {
        step_act(b);
        return;
    }
    const char *path = step->dirs.v[b->dir_at++];
    const struct msg_path m = {
        .flags = MSG_PARENTS, .mode = 0755, .path = {path, (uint32_t)strlen(path)}};
    build_begin(b, step_dirs);
    service_file(b->service, &b->who, b->machine, MSG_MKDIR, &m, path, dir_made, b);
}

/* ---- commands ---- */

void build_exec_release(struct build *b) {
    if (!b->exec)
        return;
    loop_call_cancel(b->service->loop, &b->reading);
    exec_unfollow(&b->follower);
    exec_unref(TAKE(b->exec));
}

static void exec_put_output(void *arg, const void *bytes, size_t n) {
    build_log_output(arg, bytes, n);
}

/*
 * Reads some output; false: there is more. Output after the end of the command is not read, because
 * a process that it left behind may write for ever.
 */
static bool exec_read_output(struct build *b) {
    const struct outlog *log = exec_log(b->exec);
    bool over = exec_is_over(b->exec); /* before the extents, so that all output is read */
    if (!log) {
        b->exec_over = over;
        return true;
    }
    for (int i = 0; i < 2 && !b->exec_over; i++)
        b->read_to[i] = outlog_extent(log, i).produced;
    b->exec_over |= over;
    return outlog_read_to(log, &b->cursor, b->read_to, PIECES_MAX, exec_put_output, b);
}

static void exec_failed_error(const struct exec_view *view, struct err *err) {
    if (view->status < 0) {
        err_set(err, ERR_UNKNOWN, "the exit status of the command is not known: %s",
                view->error    ? view->error
                : view->reason ? view->reason
                               : "the machine ended");
        return;
    }
    if (view->error) {
        err_set(err, ERR_INVALID, "the command did not start: %s", view->error);
        return;
    }
    err_set(err, ERR_INVALID, "the command exited with status %lld", (long long)view->status);
    err_remedy(err, "see the output of the command in the log of the build");
}

static void exec_changed(void *arg) {
    struct build *b = arg;
    struct exec_view view;
    struct err err;
    if (!exec_read_output(b)) {
        loop_defer(b->service->loop, &b->reading);
        return;
    }
    if (!b->exec_over)
        return;
    exec_view(b->exec, &view);
    bool failed = view.status != 0;
    if (failed)
        exec_failed_error(&view, &err);
    build_exec_release(b);
    build_did(b, failed ? &err : NULL);
}

static void exec_begun(void *arg, struct exec *x, const struct err *err) {
    struct build *b = arg;
    if (err || b->released) {
        if (x)
            exec_unref(x);
        build_did(b, err);
        return;
    }
    b->exec = x;
    b->exec_over = false;
    b->cursor = (struct outlog_cursor){.turn = 0};
    b->reading = (struct loop_call){.fn = exec_changed, .arg = b};
    b->follower = (struct exec_follower){.changed = exec_changed, .arg = b, .wants_output = true};
    exec_follow(x, &b->follower);
    exec_changed(b);
}

static void step_act(struct build *b) {
    const struct build_step *step = build_step_of(b);
    uint8_t hash[SHA256_BYTES] = {0};
    if (step->archive.is) {
        build_copy_step(b, step_keep);
        return;
    }
    if (!step->command && !step->argv.count) {
        step_keep(b);
        return;
    }
    b->exec_request = (struct exec_request){.argv = step->argv,
                                            .command = step->command,
                                            .env = step->env,
                                            .cwd = step->cwd,
                                            .user = step->user};
    build_begin(b, step_keep);
    service_exec(b->service, &b->who, b->machine, &b->exec_request, hash, NULL, 0, exec_begun, b);
}

/* ---- the image after a step ---- */

static void step_keep_again(struct build *b) {
    if (build_may_go_on(b))
        step_keep(b);
}

static void keep_again(void *arg) {
    struct build *b = arg;
    if (!b->ending)
        build_go(b, step_keep_again);
}

/* Too many image operations are in progress. The build waits, at most until its machine ends. */
static void keep_later(struct build *b) {
    b->busy = false; /* nothing is in progress that a cancellation has to wait for */
    b->then = step_keep_again;
    if (!b->timer)
        b->timer = loop_timer_new(b->service->loop, keep_again, b);
    loop_timer_start(b->timer, AGAIN_MS, 0);
}

static void step_kept(void *arg, const struct image_view *view, const struct err *err) {
    struct build *b = arg;
    if (err && err->code == ERR_BUSY && !b->cancelled && !b->released) {
        keep_later(b);
        return;
    }
    if (view) {
        snprintf(b->image, sizeof(b->image), "%s", view->id);
        b->row.made++;
    }
    build_did(b, err);
}

static void step_keep(struct build *b) {
    struct image_request r = build_step_of(b)->config;
    r.name = b->step_name;
    build_begin(b, step_next);
    service_image_snap(b->service, &b->who, b->machine, &r, step_kept, b, &b->snap);
}
