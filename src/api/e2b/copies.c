/*
 * Copies of sandboxes: forks, and snapshots. A snapshot is a stopped fork, which holds the files
 * after its sandbox has ended and is known by its metadata. Processes are not copied.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/e2b/inner.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "base/parse.h"
#include "service/steps/steps.h"

enum {
    FORKS_MAX = 100,
    NAME_MAX_BYTES = 128,
    TIMEOUT_S = 300,
    PAGE_MAX = 1000,
    PAGE_USUAL = 100,
    COPY_TRIES = 4
};

/* One copy in progress: what its request to the service points at. */
struct copy {
    struct e2b_call *call;
    struct machine_request request;
    struct texts metadata;
    char *own;
    unsigned tries;
    service_machine_fn *done;
    void *arg;
};

static void copy_done(struct copy *p) {
    free(p->metadata.v);
    free(p->own);
}

static void copy_try(struct copy *p);

static void copy_settled(void *arg, const struct err *err) {
    (void)err; /* of the other operation */
    copy_try(arg);
}

/* A copy is refused if its sandbox is paused or resumed meanwhile. It begins again after that. */
static void copy_made(void *arg, const struct machine_view *v, const struct err *err) {
    struct copy *p = arg;
    struct e2b_call *c = p->call;
    if (!err || err->code != ERR_BUSY || ++p->tries == COPY_TRIES)
        p->done(p->arg, v, err);
    else if (!service_wait(c->service, &c->who, c->sandbox.id, copy_settled, p))
        copy_try(p);
}

static void copy_try(struct copy *p) {
    static const uint8_t no_hash[SHA256_BYTES];
    struct e2b_call *c = p->call;
    service_create_from(c->service, &c->who, &p->request, no_hash, NULL, 0, copy_made, p);
}

/* Without a lifetime for a snapshot, which its client deletes. */
static void copy_begin(struct e2b_call *c, const char *face, const json_t *own, uint64_t ttl_ms,
                       struct copy *p, service_machine_fn *done, void *arg) {
    const char *name;
    json_t *value;
    *p = (struct copy){.call = c, .done = done, .arg = arg};
    p->own = json_dumps(own, JSON_COMPACT);
    p->metadata.v = xcalloc(2 * json_object_size(c->sandbox.metadata) + 4, sizeof(char *));
    json_object_foreach(c->sandbox.metadata, name, value) {
        p->metadata.v[p->metadata.count++] = name;
        p->metadata.v[p->metadata.count++] = json_string_value(value);
    }
    const char *const more[] = {E2B_KEY_FACE, face, E2B_KEY_OWN, p->own ? p->own : "{}"};
    for (size_t i = 0; i < 4; i++)
        p->metadata.v[p->metadata.count++] = more[i];
    p->request = (struct machine_request){.source = c->sandbox.id,
                                          .metadata = p->metadata,
                                          .ttl = {ttl_ms, true},
                                          .on_ttl = e2b_on_ttl(&c->sandbox)};
    copy_try(p);
}

/* ---- forks ---- */

struct fork_body {
    struct given count, timeout;
};

#define AT(member) offsetof(struct fork_body, member)
static const struct field fork_fields[] = {
    {"count", FIELD_NUMBER, AT(count), "number of forks", .min = 1, .max = FORKS_MAX},
    {"timeout", FIELD_NUMBER, AT(timeout), "seconds", .max = 3650 * 86400},
};
#undef AT
const struct schema e2b_fork_schema = SCHEMA("E2bFork", struct fork_body, fork_fields);

struct forking;

struct one_fork {
    struct forking *all;
    struct copy copy;
    struct buf answer;
};

struct forking {
    struct e2b_call *call;
    size_t count, left;
    struct one_fork forks[];
};

static void forking_end(struct forking *f) {
    struct buf text DEFER(buf_done) = BUF(E2B_ANSWER_MAX);
    struct jot j = JOT(&text);
    jot_array(&j, NULL);
    for (size_t i = 0; i < f->count; i++) {
        jot_raw(&j, NULL, f->forks[i].answer.data ? f->forks[i].answer.data : "{}");
        buf_done(&f->forks[i].answer);
        copy_done(&f->forks[i].copy);
    }
    jot_end(&j, ']');
    e2b_answer(f->call, 201, &text, NULL);
    free(f);
}

static void put_fork_error(struct jot *j, const struct err *err) {
    jot_object(j, "error");
    jot_u64(j, "code", e2b_status_of(err));
    jot_string(j, "message", err->text);
    jot_end(j, '}');
}

static void fork_made(void *arg, const struct machine_view *v, const struct err *failed) {
    struct one_fork *one = arg;
    struct e2b_call *c = one->all->call;
    struct jot j = JOT(&one->answer);
    struct e2b_sandbox b = {0};
    struct e2b_access access DEFER(e2b_access_done) = {.token = ""};
    struct err err;
    one->answer = (struct buf)BUF(64 << 10);
    jot_object(&j, NULL);
    if (failed) {
        put_fork_error(&j, failed);
    } else if (e2b_sandbox_read(v, &b)) {
        if (e2b_access_find(c, &b, &access, &err) < 0)
            put_fork_error(&j, &err);
        else
            e2b_put_sandbox(&j, "sandbox", &b, &access);
        e2b_sandbox_done(&b);
    }
    jot_end(&j, '}');
    if (--one->all->left == 0)
        forking_end(one->all);
}

/* A failed fork is an item of the answer, beside those that succeeded. */
void e2b_fork(struct e2b_call *c) {
    const struct fork_body *r = c->request;
    size_t count = r->count.is ? r->count.value : 1;
    uint64_t seconds = r->timeout.is ? r->timeout.value : TIMEOUT_S;
    struct forking *f = xcalloc(1, sizeof(*f) + count * sizeof(*f->forks));
    *f = (struct forking){.call = c, .count = count, .left = count + 1};
    for (size_t i = 0; i < count; i++) {
        f->forks[i].all = f;
        copy_begin(c, E2B_FACE_SANDBOX, c->sandbox.own, seconds ? seconds * 1000 : 1,
                   &f->forks[i].copy, fork_made, &f->forks[i]);
    }
    if (--f->left == 0)
        forking_end(f);
}

/* ---- snapshots ---- */

struct snapshot_body {
    const char *name;
};

static const struct field snapshot_fields[] = {
    {"name", FIELD_TEXT, offsetof(struct snapshot_body, name), "name", .max = NAME_MAX_BYTES},
};
const struct schema e2b_snapshot_schema =
    SCHEMA("E2bSnapshot", struct snapshot_body, snapshot_fields);

struct snapshot {
    struct e2b_call *call;
    struct copy copy;
    char id[ID_SIZE];
};

static void put_snapshot(struct jot *j, const struct e2b_sandbox *b) {
    const char *name = json_string_value(json_object_get(b->own, "name"));
    jot_object(j, NULL);
    jot_string(j, "snapshotID", b->label);
    jot_array(j, "names");
    if (name)
        jot_string(j, NULL, name);
    jot_end(j, ']');
    jot_end(j, '}');
}

static void snapshot_end(struct snapshot *p, const struct machine_view *v, const struct err *err) {
    struct buf text DEFER(buf_done) = BUF(64 << 10);
    struct jot j = JOT(&text);
    struct e2b_call *c = p->call;
    struct e2b_sandbox b = {0};
    copy_done(&p->copy);
    free(p);
    if (err) {
        e2b_error(c, err);
        return;
    }
    if (e2b_snapshot_read(v, &b))
        put_snapshot(&j, &b);
    e2b_sandbox_done(&b);
    e2b_answer(c, 201, &text, NULL);
}

static void snapshot_stopped(void *arg, const struct machine_view *v, const struct err *err) {
    struct snapshot *p = arg;
    if (err)
        service_destroy(p->call->service, &p->call->who, p->id, e2b_ignore, NULL);
    snapshot_end(p, v, err);
}

static void snapshot_copied(void *arg, const struct machine_view *v, const struct err *err) {
    struct snapshot *p = arg;
    if (err) {
        snapshot_end(p, NULL, err);
        return;
    }
    snprintf(p->id, sizeof(p->id), "%s", v->id);
    service_stop(p->call->service, &p->call->who, p->id, snapshot_stopped, p);
}

void e2b_snapshot(struct e2b_call *c) {
    const struct snapshot_body *r = c->request;
    struct snapshot *p = xnew(struct snapshot);
    json_t *own DEFER(json_decrefp) = json_deep_copy(c->sandbox.own);
    *p = (struct snapshot){.call = c};
    json_object_set_new(own, "of", json_string(c->sandbox.label));
    if (r->name)
        json_object_set_new(own, "name", json_string(r->name));
    copy_begin(c, E2B_FACE_SNAPSHOT, own, 0, &p->copy, snapshot_copied, p);
}

/* DELETE /templates/{}: the client deletes a snapshot by this route. */
void e2b_snapshot_delete(struct e2b_call *c) {
    service_destroy(c->service, &c->who, c->sandbox.id, e2b_changed, c);
}

/* ---- the list of snapshots ---- */

struct snapshots {
    struct jot *jot;
    const char *of, *name;
    uint64_t skip, limit, count; /* of those that fit: skipped, written at most, found */
};

static void snapshots_add(void *arg, const void *view) {
    struct snapshots *l = arg;
    struct e2b_sandbox b = {0};
    if (!e2b_snapshot_read(view, &b))
        return;
    const char *of = json_string_value(json_object_get(b.own, "of"));
    const char *name = json_string_value(json_object_get(b.own, "name"));
    bool fits = (!l->of || (of && strcmp(of, l->of) == 0)) &&
                (!l->name || (name && strcmp(name, l->name) == 0) || strcmp(b.label, l->name) == 0);
    if (fits && l->count >= l->skip && l->count < l->skip + l->limit)
        put_snapshot(l->jot, &b);
    l->count += fits;
    e2b_sandbox_done(&b);
}

static int number_of(const char *text, const char *name, uint64_t min, uint64_t *ret,
                     struct err *err) {
    if (text && *text && parse_u64(text, min, INT32_MAX, ret, err) < 0)
        return err_wrap(err, "query parameter '%s'", name);
    return 0;
}

static int snapshots_read(struct e2b_call *c, struct snapshots *l, struct err *err) {
    char next[CURSOR_SIZE] = "", at[CURSOR_SIZE];
    do {
        snprintf(at, sizeof(at), "%s", next);
        const struct list_request r = {.meta_key = E2B_KEY_FACE,
                                       .meta_value = E2B_FACE_SNAPSHOT,
                                       .cursor = at[0] ? at : NULL,
                                       .limit = PAGE_MAX};
        if (service_list(c->service, &c->who, &r, snapshots_add, l, next, err) < 0)
            return -1;
    } while (next[0]);
    return 0;
}

void e2b_snapshots(struct e2b_call *c) {
    char *of DEFER_FREE = NULL, *name DEFER_FREE = NULL, *limit DEFER_FREE = NULL,
             *token DEFER_FREE = NULL, next[24];
    struct buf text DEFER(buf_done) = BUF(E2B_ANSWER_MAX);
    struct jot j = JOT(&text);
    struct snapshots l = {.jot = &j, .limit = PAGE_USUAL};
    struct err err;
    jot_array(&j, NULL);
    if (e2b_query(c, "sandboxID", &of, &err) < 0 || e2b_query(c, "name", &name, &err) < 0 ||
        e2b_query(c, "limit", &limit, &err) < 0 || e2b_query(c, "nextToken", &token, &err) < 0 ||
        number_of(limit, "limit", 1, &l.limit, &err) < 0 ||
        number_of(token, "nextToken", 0, &l.skip, &err) < 0) {
        e2b_error(c, &err);
        return;
    }
    l.of = of;
    l.name = name;
    if (snapshots_read(c, &l, &err) < 0) {
        e2b_error(c, &err);
        return;
    }
    jot_end(&j, ']');
    snprintf(next, sizeof(next), "%llu", (unsigned long long)(l.skip + l.limit));
    bool more = l.count > l.skip + l.limit;
    e2b_answer(c, 200, &text, more ? &(struct http_pair){"X-Next-Token", next} : NULL);
}
