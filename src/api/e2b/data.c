#include "api/e2b/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/call.h"
#include "api/e2b/envd.h"
#include "api/e2b/failures.h"
#include "api/e2b/inner.h"
#include "api/e2b/ports.h"
#include "api/e2b/target.h"
#include "api/e2b/volume_files.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "base/parse.h"
#include "service/net/expose.h"
#include "service/volumes/volumes.h"

struct e2b_data {
    unsigned refs; /* of its owner, and of requests that wait */
    struct service *service;
    struct envd *envd;
    struct e2b_ports *ports;
    struct failures failures;
};

struct e2b_data *e2b_data_new(struct loop *loop, struct service *service,
                              struct http_server *hosts) {
    struct e2b_data *d = xnew(struct e2b_data);
    *d = (struct e2b_data){.refs = 1,
                           .service = service,
                           .envd = envd_new(loop, service),
                           .ports = e2b_ports_new(service, hosts)};
    return d;
}

static void data_unref(struct e2b_data *d) {
    if (--d->refs)
        return;
    envd_free(d->envd);
    free(d);
}

void e2b_data_free(struct e2b_data *d) {
    e2b_ports_free(TAKE(d->ports));
    data_unref(d);
}

size_t e2b_data_busy(const struct e2b_data *d) {
    return envd_busy(d->envd) + e2b_ports_busy(d->ports) + d->refs - 1;
}

/* ---- answers ---- */

static void data_answer(struct http_exchange *x, int status, const struct buf *text,
                        const struct http_pair *more) {
    http_reply(x, status,
               HTTP_FIELDS({"Content-Type", "application/json"}, {"Cache-Control", "no-store"},
                           {"X-Content-Type-Options", "nosniff"},
                           more ? *more : (struct http_pair){0}),
               text->data, text->len);
}

static void data_refuse(struct http_exchange *x, int status, const char *message,
                        const struct http_pair *more) {
    struct buf text DEFER(buf_done) = BUF(1024);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_u64(&j, "code", (uint64_t)status);
    jot_string(&j, "message", message);
    jot_end(&j, '}');
    data_answer(x, status, &text, more);
}

/* The words are those by which clients tell a sandbox that is gone from other failures. */
static void data_gone(struct http_exchange *x, struct http_text label) {
    e2b_port_refuse(x, 502, label, 0, "The sandbox was not found");
}

/* ---- the token ---- */

static bool has_token(struct e2b_data *d, const struct http_exchange *x, const struct e2b_target *t,
                      enum machine_token_use use) {
    bool is_control = use == MACHINE_TOKEN_CONTROL;
    return e2b_target_has_token(
        d->service, t, use,
        http_field_only(x->head, is_control ? "X-Access-Token" : E2B_TRAFFIC_FIELD));
}

/* A token that is right counts even if the client's address failed often: others may share it. */
static void refuse_token(struct e2b_data *d, struct http_exchange *x, int status, const char *why) {
    uint64_t now_ms = loop_now_ms(http_loop(x));
    uint64_t wait_s = failures_wait_s(&d->failures, x->peer->text, now_ms);
    char seconds[24];
    snprintf(seconds, sizeof(seconds), "%llu", (unsigned long long)wait_s);
    if (wait_s) {
        data_refuse(x, 429, "too many requests with a wrong token",
                    &(struct http_pair){"Retry-After", seconds});
        return;
    }
    failures_add(&d->failures, x->peer->text, now_ms);
    data_refuse(x, status, why, NULL);
}

/* ---- requests ---- */

/* False: it is no port. Without the header the request is for the control program. */
static bool read_port(const struct http_exchange *x, uint16_t *ret) {
    struct http_text given = http_field_only(x->head, "E2b-Sandbox-Port");
    char text[8];
    uint64_t port = E2B_CONTROL_PORT;
    if (http_field_find(x->head, "E2b-Sandbox-Port")) {
        snprintf(text, sizeof(text), "%.*s", (int)(given.n < 7 ? given.n : 7), given.s);
        if (!given.s || parse_u64(text, 1, 65535, &port, NULL) < 0)
            return false;
    }
    *ret = (uint16_t)port;
    return true;
}

static bool is_signed_path(const struct http_exchange *x) {
    return http_text_is(x->head->path, "/files") && !http_field_find(x->head, "X-Access-Token");
}

static void refuse_unsigned(struct e2b_data *d, struct http_exchange *x) {
    refuse_token(d, x, 401,
                 envd_has_signature(x) ? "invalid signature" : "missing signature query parameter");
}

static void gone_target(struct http_exchange *x, const struct e2b_target *t) {
    char label[ID_LABEL_SIZE];
    id_to_label(t->id, label);
    data_gone(x, (struct http_text){label, strlen(label)});
}

static void metrics_over(void *arg) {
    data_unref(arg);
}

static void take_metrics(struct e2b_data *d, struct http_exchange *x, const struct e2b_target *t) {
    d->refs++;
    e2b_metrics_take(d->service, x, &t->owner, t->id, metrics_over, d);
}

/* The control program of a sandbox that runs. */
static void serve_control(struct e2b_data *d, struct http_exchange *x, const struct e2b_target *t) {
    bool has = has_token(d, x, t, MACHINE_TOKEN_CONTROL);
    if (http_text_is(x->head->path, "/health"))
        http_reply(x, 204, NULL, NULL, 0);
    else if (has && http_text_is(x->head->path, "/metrics") && http_text_is(x->head->method, "GET"))
        take_metrics(d, x, t);
    else if (has || (is_signed_path(x) && envd_is_signed_by(x, t->token)))
        envd_take(d->envd, x, &(struct envd_sandbox){&t->owner, t->id, t->token, has, t->as_image});
    else if (is_signed_path(x))
        refuse_unsigned(d, x);
    else
        refuse_token(d, x, 401, "unauthorized access, please provide a valid access token");
}

/* The code interpreter of a sandbox that runs. Clients send the token only with code. */
static void serve_code(struct e2b_data *d, struct http_exchange *x, const struct e2b_target *t) {
    bool has = has_token(d, x, t, MACHINE_TOKEN_CONTROL);
    if (http_text_is(x->head->path, "/health"))
        http_reply(x, 204, NULL, NULL, 0);
    else if (!has && http_text_is(x->head->path, "/execute"))
        refuse_token(d, x, 401, "unauthorized access, please provide a valid access token");
    else if (!has && t->is_private && !has_token(d, x, t, MACHINE_TOKEN_TRAFFIC))
        refuse_token(d, x, 403, "the traffic access token is missing or wrong");
    else
        envd_take_code(d->envd, x,
                       &(struct envd_sandbox){&t->owner, t->id, t->token, has, t->as_image});
}

/* A program of a sandbox that runs. */
static void serve_port(struct e2b_data *d, struct http_exchange *x, const struct e2b_target *t,
                       uint16_t port) {
    bool has_field = http_field_find(x->head, E2B_TRAFFIC_FIELD);
    if (t->is_private && !has_token(d, x, t, MACHINE_TOKEN_TRAFFIC))
        refuse_token(d, x, 403,
                     has_field ? "the traffic access token is wrong"
                               : "Sandbox is secured with traffic access token. Token header "
                                 "'e2b-traffic-access-token' is missing");
    else if (!service_port_shows(d->service, t->id, port))
        data_refuse(x, 403, "the sandbox is guarded and has read data from an untrusted source",
                    NULL);
    else
        e2b_ports_take(d->ports, x, t, port);
}

static void serve_target(struct e2b_data *d, struct http_exchange *x, const struct e2b_target *t,
                         uint16_t port) {
    if (port == E2B_CONTROL_PORT)
        serve_control(d, x, t);
    else if (port == E2B_CODE_PORT)
        serve_code(d, x, t);
    else
        serve_port(d, x, t, port);
}

/* ---- sandboxes that traffic resumes ---- */

/* A request that waits until its sandbox runs. */
struct resuming {
    struct e2b_data *data;
    struct http_exchange *http;
    struct e2b_target target;
    uint16_t port;
};

static void resuming_end(void *arg, const struct err *err) {
    struct resuming *r DEFER_FREE = arg;
    if (http_is_gone(r->http))
        http_drop(r->http);
    else if (err || !r->data->ports) /* NULL: the daemon is ending */
        gone_target(r->http, &r->target);
    else
        serve_target(r->data, r->http, &r->target, r->port);
    data_unref(r->data);
}

/*
 * Only a client that may reach the port resumes it, and of the control program only one that has
 * the token or a valid signature: a look at its health does not.
 */
static bool may_resume(struct e2b_data *d, const struct http_exchange *x,
                       const struct e2b_target *t, uint16_t port) {
    if (port == E2B_CODE_PORT)
        return has_token(d, x, t, MACHINE_TOKEN_CONTROL);
    if (port != E2B_CONTROL_PORT)
        return service_port_shows(d->service, t->id, port) &&
               (!t->is_private || has_token(d, x, t, MACHINE_TOKEN_TRAFFIC));
    return has_token(d, x, t, MACHINE_TOKEN_CONTROL) ||
           (is_signed_path(x) && envd_is_signed_now(x, t->token));
}

static void resume_target(struct e2b_data *d, struct http_exchange *x, const struct e2b_target *t,
                          uint16_t port) {
    if (!may_resume(d, x, t, port)) {
        gone_target(x, t);
        return;
    }
    struct resuming *r = xnew(struct resuming);
    *r = (struct resuming){d, x, *t, port};
    d->refs++;
    http_hold(x);
    e2b_target_wake(d->service, t, resuming_end, r);
}

/* ---- files of volumes ---- */

/* A request that waits until its volume can be reached. */
struct entering {
    struct e2b_data *data;
    struct http_exchange *http;
    struct caller who;
    const struct envd_method *method;
    bool has_body;
};

static void refuse_volume(struct http_exchange *x, const struct err *err) {
    struct buf text DEFER(buf_done) = BUF(4096);
    bool has = err->remedy[0];
    bool fits = buf_addf(&text, "%s%s%s", err->text, has ? ": " : "", err->remedy);
    data_refuse(x, api_status_of(err->code), fits ? text.data : err->text, NULL);
}

static void volume_entered(void *arg, const char *machine, const struct err *err) {
    struct entering *n DEFER_FREE = arg;
    struct e2b_data *d = n->data;
    if (http_is_gone(n->http)) {
        http_drop(n->http);
        if (machine)
            service_volume_leave(d->service, machine);
    } else if (err) {
        refuse_volume(n->http, err);
    } else {
        envd_take_volume(d->envd, n->http, &n->who, machine, n->method, n->has_body);
    }
    data_unref(d);
}

static struct http_text bearer_of(const struct http_exchange *x) {
    struct http_text field = http_field_only(x->head, "Authorization");
    bool is =
        field.s && field.n > 7 && http_text_is_like((struct http_text){field.s, 7}, "Bearer ");
    return is ? (struct http_text){field.s + 7, field.n - 7} : (struct http_text){"", 0};
}

bool e2b_data_take_volume(struct e2b_data *d, struct http_exchange *x) {
    struct volume_path path;
    struct caller who;
    struct err err;
    char name[VOLUME_NAME_MAX + 1];
    bool has_body;
    if (!volume_path_read(x->head->path, &path))
        return false;
    struct http_text token = bearer_of(x);
    if (service_caller_by_volume_token(d->service, path.id, token.s, token.n, x->peer->text, &who,
                                       name, &err) < 0) {
        if (err.code == ERR_DENIED)
            refuse_token(d, x, 401, err.text);
        else
            refuse_volume(x, &err);
        return true;
    }
    const struct envd_method *m = volume_method(x, path.what, &has_body);
    if (!m) {
        data_refuse(x, 404, "the files of a volume have no such request", NULL);
        return true;
    }
    struct entering *n = xnew(struct entering);
    *n = (struct entering){d, x, who, m, has_body};
    d->refs++;
    http_hold(x);
    service_volume_enter(d->service, &who, name, volume_entered, n);
    return true;
}

/* ---- pages of other origins ---- */

/* As E2B's: the tokens are no cookies, so a page has only those that its user gave it. */
static const struct http_pair for_pages[] = {
    {"Access-Control-Allow-Origin", "*"},
    {"Access-Control-Expose-Headers", "Location, Cache-Control, X-Content-Type-Options"},
    {NULL, NULL}};

static bool asks_for_page(const struct http_exchange *x) {
    return http_text_is(x->head->method, "OPTIONS") &&
           http_field_find(x->head, "Access-Control-Request-Method");
}

static void answer_page(struct http_exchange *x) {
    struct http_text asked = http_field_only(x->head, "Access-Control-Request-Headers");
    char fields[2048];
    snprintf(fields, sizeof(fields), "%.*s", (int)asked.n, asked.s ? asked.s : "");
    x->always = for_pages;
    http_reply(x, 204,
               HTTP_FIELDS({"Access-Control-Allow-Methods", "HEAD, GET, POST, PUT, PATCH, DELETE"},
                           {*fields ? "Access-Control-Allow-Headers" : NULL, fields},
                           {"Access-Control-Max-Age", "7200"}),
               NULL, 0);
}

/* A page asks without the field E2b-Sandbox-Id, and says that it wants to send it. */
static bool asks_for_sandbox(const struct http_exchange *x) {
    struct http_text rest = http_field_only(x->head, "Access-Control-Request-Headers"), name;
    while (asks_for_page(x) && rest.s && http_list_next(&rest, &name))
        if (http_text_is_like(name, "E2b-Sandbox-Id"))
            return true;
    return false;
}

bool e2b_data_is_for(const struct http_exchange *x) {
    return http_field_find(x->head, "E2b-Sandbox-Id") || asks_for_sandbox(x);
}

/* ---- the sandbox ---- */

static void take_target(struct e2b_data *d, struct http_exchange *x, struct http_text label,
                        uint16_t port) {
    struct e2b_target target;
    x->on_refuse = envd_refused;
    if (http_field_find(x->head, "Origin") && (port == E2B_CONTROL_PORT || port == E2B_CODE_PORT))
        x->always = for_pages;
    if (!e2b_target_find(d->service, label, x->peer->text, &target))
        data_gone(x, label);
    else if (target.runs)
        serve_target(d, x, &target, port);
    else
        resume_target(d, x, &target, port);
}

/* A signed path without the name of its sandbox. */
static bool signed_here(void *arg, const char *token) {
    return envd_is_signed_by(arg, token);
}

static void serve_signed(struct e2b_data *d, struct http_exchange *x) {
    char id[ID_SIZE], label[ID_LABEL_SIZE];
    bool may = !failures_wait_s(&d->failures, x->peer->text, loop_now_ms(http_loop(x)));
    if (!may || !service_machine_by_token(d->service, MACHINE_TOKEN_CONTROL, signed_here, x, id)) {
        refuse_unsigned(d, x);
        return;
    }
    id_to_label(id, label);
    take_target(d, x, (struct http_text){label, strlen(label)}, E2B_CONTROL_PORT);
}

void e2b_data_take_named(struct e2b_data *d, struct http_exchange *x, struct http_text label,
                         uint16_t port) {
    if (asks_for_page(x))
        answer_page(x);
    else
        take_target(d, x, label, port);
}

bool e2b_data_take(struct e2b_data *d, struct http_exchange *x) {
    struct http_text label = http_field_only(x->head, "E2b-Sandbox-Id");
    uint16_t port;
    if (asks_for_sandbox(x)) {
        answer_page(x);
        return true;
    }
    if (!http_field_find(x->head, "E2b-Sandbox-Id")) {
        bool mine = is_signed_path(x) && envd_has_signature(x);
        if (mine)
            serve_signed(d, x);
        return mine;
    }
    if (!label.s || !read_port(x, &port))
        data_gone(x, label);
    else
        take_target(d, x, label, port);
    return true;
}
