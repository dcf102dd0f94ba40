#include "tools/toolbox.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/sha256.h"
#include "tools/joined.h"

/* Metadata keys: machines that a client created, and its default machine. */
#define META_KEY "mcp"
#define META_HOME "mcp_home"

/* An idle machine is stopped; it is deleted one week after its creation. */
enum { OWN_TTL_MS = 7 * 24 * 3600 * 1000 };

struct toolbox *toolbox_new(const struct toolbox_options *o) {
    struct toolbox *b = xnew(struct toolbox);
    *b = (struct toolbox){.refs = 1,
                          .loop = o->loop,
                          .service = o->service,
                          .who = o->who,
                          .bound = o->machine != NULL,
                          .set = o->set,
                          .made = o->made,
                          .arg = o->arg};
    /* A toolbox acts with the scopes read and run only, whatever its caller has. */
    b->who.scopes &= SCOPE_READ | SCOPE_RUN;
    b->who.local = false;
    snprintf(b->key, sizeof(b->key), "%s", o->key ? o->key : "");
    snprintf(b->machine, sizeof(b->machine), "%s", o->machine ? o->machine : "");
    snprintf(b->talk, sizeof(b->talk), "%s", o->talk ? o->talk : "");
    if (o->join_count)
        b->joins = joins_new(b, o->joins, o->join_count);
    if (b->talk[0])
        service_taint_talk(b->service, &b->who, b->talk, b->saw);
    return b;
}

void toolbox_ref(struct toolbox *b) {
    b->refs++;
}

void toolbox_unref(struct toolbox *b) {
    if (--b->refs)
        return;
    pythons_free(b);
    browsers_free(b);
    joins_free(b->joins);
    free(b->plan);
    free(b);
}

void toolbox_end(struct toolbox *b) {
    pythons_kill(b);
    browsers_kill(b);
    joins_kill(b->joins);
}

void toolbox_leave(struct toolbox *b) {
    b->made = NULL;
}

const char *toolbox_machine(const struct toolbox *b) {
    return b->machine;
}

const char *toolbox_key(const struct toolbox *b) {
    return b->key;
}

enum tool_set toolbox_set(const struct toolbox *b) {
    return b->set;
}

bool toolbox_owns(const struct toolbox *b, const struct machine_view *view) {
    if (strcmp(view->id, b->machine) == 0)
        return true;
    if (b->bound)
        return false;
    json_t *meta = view->metadata ? json_loads(view->metadata, 0, NULL) : NULL;
    const char *key = json_string_value(json_object_get(meta, META_KEY));
    bool own = key && strcmp(key, b->key) == 0;
    json_decref(meta);
    return own;
}

struct shown *toolbox_shown(struct toolbox *b, const char *exec) {
    for (size_t i = 0; i < TOOLBOX_SESSIONS; i++)
        if (strcmp(b->shown[i].exec, exec) == 0)
            return &b->shown[i];
    struct shown *s = &b->shown[b->shown_next++ % TOOLBOX_SESSIONS];
    *s = (struct shown){0};
    snprintf(s->exec, sizeof(s->exec), "%s", exec);
    return s;
}

int toolbox_saw(struct toolbox *b, const char *machine, struct err *err) {
    if (machine[0] && !b->saw[0]) {
        service_taint_of(b->service, machine, b->saw);
        b->saw_unsaved = b->saw[0] && b->talk[0];
    }
    if (b->saw_unsaved && service_taint_heard(b->service, &b->who, b->talk, b->saw, err) < 0) {
        err_wrap(err, "the result cannot be shown");
        return err_remedy(err, "try again later");
    }
    b->saw_unsaved = false;
    return 0;
}

/* ---- the machine of a call ---- */

static void bring_own(struct toolbox *b, struct act *a);

static void settled(struct toolbox *b) {
    struct act *waiting = TAKE(b->waiting);
    b->making = false;
    for (struct act *a = waiting, *next; a; a = next) {
        next = a->next;
        bring_own(b, a);
    }
}

static void go_with(struct act *a, const struct machine_view *view) {
    snprintf(a->machine, sizeof(a->machine), "%s", view->id);
    act_go(a);
}

static void resumed(void *arg, const struct machine_view *view, const struct err *err) {
    if (err)
        act_fail(arg, err);
    else
        go_with(arg, view);
}

static bool is_running(const struct machine_view *view) {
    return strcmp(view->state, "running") == 0;
}

/* A machine at rest is woken: clients do not see that it was idle. */
static void use(struct act *a, const struct machine_view *view) {
    struct toolbox *b = a->box;
    char id[ID_SIZE];
    snprintf(id, sizeof(id), "%s", view->id);
    if (!is_running(view))
        a->fallback = "the machine was woken";
    service_wake(b->service, &b->who, id, resumed, a);
}

/*
 * Waiting acts (calls) continue with the new machine. If its creation failed, the first of them
 * tries again to create it.
 */
static void own_made(void *arg, const struct machine_view *view, const struct err *err) {
    struct act *a = arg;
    struct toolbox *b = a->box;
    toolbox_ref(b);
    if (err) {
        struct err named = *err;
        err_wrap(&named, "cannot create your machine");
        act_fail(a, &named);
    } else {
        snprintf(b->machine, sizeof(b->machine), "%s", view->id);
        if (b->made)
            b->made(b->arg, b->machine);
        go_with(a, view);
    }
    settled(b);
    toolbox_unref(b);
}

struct given toolbox_ttl(const struct toolbox *b) {
    uint64_t most = b->who.quota.lifetime_ms;
    return (struct given){most && most < OWN_TTL_MS ? most : OWN_TTL_MS, true};
}

static void make_own(struct toolbox *b, struct act *a) {
    const char *meta[] = {META_KEY, b->key, META_HOME, b->key};
    static const uint8_t no_hash[SHA256_BYTES];
    const struct machine_request r = {
        .metadata = {meta, 4},
        .idle = {TOOLBOX_IDLE_MS, true},
        .idle_action = "release",
        .ttl = toolbox_ttl(b),
    };
    b->making = true;
    service_create(b->service, &b->who, &r, no_hash, NULL, 0, own_made, a);
}

/* A fork copies the metadata of its source, so it must not count as the default machine. */
static void note_first(void *arg, const void *of) {
    struct toolbox *b = arg;
    const struct machine_view *view = of;
    json_t *meta = view->metadata ? json_loads(view->metadata, 0, NULL) : NULL;
    if (!b->machine[0] && !json_object_get(meta, "forked_from"))
        snprintf(b->machine, sizeof(b->machine), "%s", view->id);
    json_decref(meta);
}

/* Finds the machine again after a reconnect or a restart of the daemon. */
static void look_for_own(struct toolbox *b) {
    const struct list_request r = {
        .meta_key = META_HOME, .meta_value = b->key, .limit = STORE_PAGE_MAX};
    char next[CURSOR_SIZE];
    struct err err;
    if (b->key[0])
        (void)service_list(b->service, &b->who, &r, note_first, b, next, &err);
}

/*
 * The client's own machine is replaced when it has ended, because the client does not manage it. A
 * machine that the client is bound to is the owner's: then the call fails.
 */
static void own_shown(void *arg, const struct machine_view *view, const struct err *err) {
    struct act *a = arg;
    struct toolbox *b = a->box;
    bool gone = err ? err->code == ERR_NOT_FOUND || err->code == ERR_GONE
                    : strcmp(view->state, "ended") == 0;
    if (!gone && !err) {
        use(a, view);
    } else if (!gone || b->bound) {
        struct err why;
        if (!err)
            err_set(&why, ERR_GONE, "machine '%s' has ended", b->machine);
        act_fail(a, err ? err : &why);
    } else if (b->making) {
        a->next = b->waiting;
        b->waiting = a;
    } else {
        b->machine[0] = '\0';
        a->fallback = "the machine had ended, and a new one was created";
        make_own(b, a);
    }
}

static void bring_own(struct toolbox *b, struct act *a) {
    if (b->making) {
        a->next = b->waiting;
        b->waiting = a;
        return;
    }
    if (!b->machine[0])
        look_for_own(b);
    if (b->machine[0])
        service_show(b->service, &b->who, b->machine, own_shown, a);
    else
        make_own(b, a);
}

bool toolbox_check_own(struct act *a, const struct machine_view *view, const struct err *err) {
    struct err why;
    if (!err && toolbox_owns(a->box, view))
        return true;
    if (!err || err->code == ERR_NOT_FOUND) {
        err_set(&why, ERR_NOT_FOUND, "this machine does not exist or is not yours");
        err_remedy(&why, a->box->bound ? "leave out 'machine': you have only one"
                                       : "list your machines with machine_list");
        err = &why;
    }
    act_fail(a, err);
    return false;
}

static void named_shown(void *arg, const struct machine_view *view, const struct err *err) {
    struct act *a = arg;
    if (toolbox_check_own(a, view, err))
        use(a, view);
}

void toolbox_bring(struct toolbox *b, struct act *a, const char *ref) {
    if (ref)
        service_show(b->service, &b->who, ref, named_shown, a);
    else
        bring_own(b, a);
}

struct coproc_place toolbox_place(const struct toolbox *b) {
    return (struct coproc_place){b->loop, b->service, &b->who};
}
