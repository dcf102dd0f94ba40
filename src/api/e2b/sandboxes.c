/* Sandboxes: info, kill, timeout, pause and connect. */
#include <string.h>

#include "api/e2b/inner.h"
#include "api/e2b/target.h"
#include "base/clock.h"
#include "base/defer.h"

enum { TIMEOUT_S = 300, TIMEOUT_MAX_S = 3650 * 86400 };

/* The body of every request about the lifetime of a sandbox. */
struct timeout_request {
    struct given timeout, duration; /* seconds */
    bool memory;
};

#define AT(member) offsetof(struct timeout_request, member)
static const struct field timeout_fields[] = {
    {"timeout", FIELD_NUMBER, AT(timeout), "seconds from now", .max = TIMEOUT_MAX_S},
    {"duration", FIELD_NUMBER, AT(duration), "seconds from now", .max = TIMEOUT_MAX_S},
    {"memory", FIELD_FLAG, AT(memory), "keep processes too"},
};
const struct schema e2b_timeout_schema =
    SCHEMA("E2bTimeout", struct timeout_request, timeout_fields);

/* A lifetime of 0 ends the sandbox at once; for a machine 0 would be no limit. */
static uint64_t ttl_of(struct given seconds) {
    uint64_t s = seconds.is ? seconds.value : TIMEOUT_S;
    return s ? s * 1000 : 1;
}

void e2b_changed(void *arg, const struct machine_view *v, const struct err *err) {
    struct e2b_call *c = arg;
    (void)v;
    if (err)
        e2b_error(c, err);
    else
        e2b_done(c);
}

void e2b_ignore(void *arg, const struct machine_view *v, const struct err *err) {
    (void)arg, (void)v, (void)err;
}

/* ---- info and kill ---- */

static void put_connected(struct jot *j, const struct e2b_sandbox *b, const struct e2b_access *a) {
    e2b_put_sandbox(j, NULL, b, a);
}

static void answer_sandbox(struct e2b_call *c,
                           void (*put)(struct jot *j, const struct e2b_sandbox *b,
                                       const struct e2b_access *a)) {
    struct buf text DEFER(buf_done) = BUF(E2B_ANSWER_MAX);
    struct jot j = JOT(&text);
    struct e2b_access access DEFER(e2b_access_done) = {.token = ""};
    struct err err;
    if (e2b_access_find(c, &c->sandbox, &access, &err) < 0) {
        e2b_error(c, &err);
        return;
    }
    put(&j, &c->sandbox, &access);
    e2b_answer(c, c->status, &text, NULL);
}

void e2b_info(struct e2b_call *c) {
    c->status = 200;
    answer_sandbox(c, e2b_put_detail);
}

void e2b_kill(struct e2b_call *c) {
    service_destroy(c->service, &c->who, c->sandbox.id, e2b_changed, c);
}

/* ---- lifetime ---- */

/* A pause that a crash cut off left another end in the machine: each new lifetime sets it again. */
static void set_ttl(struct e2b_call *c, uint64_t ttl_ms, service_machine_fn *done) {
    const struct update_request r = {.ttl = {ttl_ms, true}, .on_ttl = e2b_on_ttl(&c->sandbox)};
    service_update(c->service, &c->who, c->sandbox.id, &r, done, c);
}

void e2b_timeout(struct e2b_call *c) {
    const struct timeout_request *r = c->request;
    set_ttl(c, ttl_of(r->timeout), e2b_changed);
}

static bool extends(const struct e2b_call *c, uint64_t ttl_ms) {
    return c->sandbox.expires_ms && (uint64_t)wall_ms() + ttl_ms > c->sandbox.expires_ms;
}

void e2b_refresh(struct e2b_call *c) {
    const struct timeout_request *r = c->request;
    uint64_t ttl_ms = ttl_of(r->duration);
    if (extends(c, ttl_ms))
        set_ttl(c, ttl_ms, e2b_changed);
    else
        e2b_done(c);
}

/* ---- pause ---- */

static void pause_over(void *arg, const struct machine_view *v, const struct err *err) {
    struct e2b_call *c = arg;
    const struct update_request r = {.on_ttl = e2b_on_ttl(&c->sandbox)};
    if (err) { /* it still runs, and must end as before */
        service_update(c->service, &c->who, c->sandbox.id, &r, e2b_ignore, NULL);
        e2b_error(c, err);
        return;
    }
    const char *kept = strcmp(v->state, "paused") == 0 ? "memory" : "files";
    e2b_done_with(c, "Carrel-Kept", kept);
}

static void pause_begin(void *arg, const struct machine_view *v, const struct err *err) {
    const struct hibernate_request files = {.files_only = true};
    struct e2b_call *c = arg;
    (void)v;
    if (err)
        e2b_error(c, err);
    else if (json_is_false(json_object_get(c->body, "memory")))
        service_hibernate(c->service, &c->who, c->sandbox.id, &files, pause_over, c);
    else
        service_pause(c->service, &c->who, c->sandbox.id, pause_over, c);
}

/*
 * A paused sandbox stays until connect sets a new lifetime. So the end of the old one must not
 * delete it, also if the daemon crashes before the pause: then that end pauses it.
 */
void e2b_pause(struct e2b_call *c) {
    const struct update_request r = {.on_ttl = "pause"};
    struct err err;
    if (c->sandbox.paused) {
        err_set(&err, ERR_BUSY, "sandbox '%s' is paused already", c->sandbox.label);
        e2b_error(c, &err);
        return;
    }
    service_update(c->service, &c->who, c->sandbox.id, &r, pause_begin, c);
}

/* ---- connect ---- */

static void connect_over(void *arg, const struct machine_view *v, const struct err *err) {
    struct e2b_call *c = arg;
    (void)v;
    if (err)
        e2b_error(c, err);
    else
        answer_sandbox(c, put_connected);
}

static void connect_resumed(void *arg, const struct err *err) {
    connect_over(arg, NULL, err);
}

/* Never shortens the life of a sandbox that runs. */
void e2b_connect(struct e2b_call *c) {
    const struct timeout_request *r = c->request;
    uint64_t ttl_ms = ttl_of(r->timeout);
    c->status = c->sandbox.paused ? 201 : 200;
    if (c->sandbox.paused)
        e2b_resume(c->service, &c->who, c->sandbox.id, e2b_on_ttl(&c->sandbox), ttl_ms,
                   connect_resumed, c);
    else if (extends(c, ttl_ms))
        set_ttl(c, ttl_ms, connect_over);
    else
        connect_over(c, NULL, NULL);
}
