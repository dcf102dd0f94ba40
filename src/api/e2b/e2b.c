/*
 * The dispatcher of the E2B face: finds the route, authenticates the caller, reads the body and
 * calls the handler. It runs on the loop, so it must not block.
 */
#include "api/e2b/e2b.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/call.h"
#include "api/e2b/data.h"
#include "api/e2b/history.h"
#include "api/e2b/inner.h"
#include "api/e2b/key.h"
#include "api/e2b/ports.h"
#include "api/e2b/target.h"
#include "api/e2b/templates.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "base/log.h"
#include "io/http_uri.h"
#include "service/net/expose.h"
#include "service/rights.h"
#include "service/tickets.h"
#include "service/tokens.h"

enum { BODY_MAX = 1 << 20, QUERY_MAX = 8192 };

struct e2b_face {
    struct service *service;
    e2b_caller_fn *caller;
    e2b_listen_fn *listen;
    void *arg;
    struct e2b_data *data;
    struct http_server *hosts; /* of requests by host name */
    struct e2b_templates *templates;
    struct histories *histories;
    size_t busy;
    bool freed; /* e2b_face_free() was called: the last call to end frees this */
};

static void take_by_name(struct http_exchange *x, void *arg);

struct e2b_face *e2b_face_new(struct loop *loop, struct service *service, e2b_caller_fn *caller,
                              e2b_listen_fn *listen, void *arg) {
    struct e2b_face *f = xnew(struct e2b_face);
    *f = (struct e2b_face){.service = service, .caller = caller, .listen = listen, .arg = arg};
    f->hosts =
        http_server_new(loop, &(struct http_server_config){.on_request = take_by_name, .arg = f});
    f->data = e2b_data_new(loop, service, f->hosts);
    f->templates = e2b_templates_new(loop, service);
    f->histories = histories_new(loop, service);
    return f;
}

void e2b_face_free(struct e2b_face *f) {
    if (!f)
        return;
    e2b_data_free(TAKE(f->data));
    e2b_templates_free(TAKE(f->templates));
    histories_free(TAKE(f->histories));
    http_server_free(TAKE(f->hosts));
    if (f->busy)
        f->freed = true;
    else
        free(f);
}

size_t e2b_face_busy(const struct e2b_face *f) {
    return f->busy + e2b_data_busy(f->data);
}

/* ---- routes ---- */

static const struct e2b_route e2b_routes[] = {
    {"POST", "/v2/sandboxes", SCOPE_RUN, &e2b_create_schema, e2b_create, E2B_NONE},
    {"POST", "/sandboxes", SCOPE_RUN, &e2b_create_schema, e2b_create, E2B_NONE},
    {"GET", "/v2/sandboxes", SCOPE_READ, NULL, e2b_list, E2B_NONE},
    {"GET", "/sandboxes", SCOPE_READ, NULL, e2b_list, E2B_NONE},
    {"GET", "/sandboxes/metrics", SCOPE_READ, NULL, e2b_metrics_many, E2B_NONE},
    {"GET", "/sandboxes/{}", SCOPE_RUN, NULL, e2b_info, E2B_SANDBOX},
    {"DELETE", "/sandboxes/{}", SCOPE_RUN, NULL, e2b_kill, E2B_SANDBOX},
    {"POST", "/sandboxes/{}/timeout", SCOPE_RUN, &e2b_timeout_schema, e2b_timeout, E2B_SANDBOX},
    {"POST", "/sandboxes/{}/refreshes", SCOPE_RUN, &e2b_timeout_schema, e2b_refresh, E2B_SANDBOX},
    {"POST", "/sandboxes/{}/pause", SCOPE_RUN, &e2b_timeout_schema, e2b_pause, E2B_SANDBOX},
    {"POST", "/v2/sandboxes/{}/connect", SCOPE_RUN, &e2b_timeout_schema, e2b_connect, E2B_SANDBOX},
    {"POST", "/sandboxes/{}/connect", SCOPE_RUN, &e2b_timeout_schema, e2b_connect, E2B_SANDBOX},
    {"POST", "/sandboxes/{}/resume", SCOPE_RUN, &e2b_timeout_schema, e2b_connect, E2B_SANDBOX},
    {"POST", "/sandboxes/{}/snapshots", SCOPE_RUN, &e2b_snapshot_schema, e2b_snapshot, E2B_SANDBOX},
    {"POST", "/sandboxes/{}/fork", SCOPE_RUN, &e2b_fork_schema, e2b_fork, E2B_SANDBOX},
    {"PUT", "/sandboxes/{}/network", SCOPE_RUN, &e2b_network_schema, e2b_network_put, E2B_SANDBOX},
    {"GET", "/sandboxes/{}/metrics", SCOPE_READ, NULL, e2b_metrics, E2B_SANDBOX},
    {"GET", "/sandboxes/{}/logs", SCOPE_READ, NULL, e2b_logs_v1, E2B_SANDBOX},
    {"GET", "/v2/sandboxes/{}/logs", SCOPE_READ, NULL, e2b_logs, E2B_SANDBOX},
    {"GET", "/snapshots", SCOPE_READ, NULL, e2b_snapshots, E2B_NONE},
    {"GET", "/volumes", SCOPE_READ, NULL, e2b_volumes, E2B_NONE},
    {"POST", "/volumes", SCOPE_RUN, &e2b_volume_schema, e2b_volume_create, E2B_NONE},
    {"GET", "/volumes/{}", SCOPE_READ, NULL, e2b_volume_show, E2B_NONE},
    {"DELETE", "/volumes/{}", SCOPE_RUN, NULL, e2b_volume_delete, E2B_NONE},
    {"POST", "/v3/templates", SCOPE_RUN, &e2b_build_schema, e2b_build_request, E2B_NONE},
    {"POST", "/v2/templates/{}/builds/{}", SCOPE_RUN, &e2b_build_start_schema, e2b_build_start,
     E2B_NONE},
    {"GET", "/templates/{}/builds/{}/status", SCOPE_READ, NULL, e2b_build_status, E2B_NONE},
    {"GET", "/templates/{}/builds/{}/logs", SCOPE_READ, NULL, e2b_build_logs, E2B_NONE},
    {"GET", "/templates/{}/files/{}", SCOPE_RUN, NULL, e2b_build_files, E2B_NONE},
    {"POST", "/templates/tags", SCOPE_RUN, &e2b_tags_schema, e2b_tags_assign, E2B_NONE},
    {"DELETE", "/templates/tags", SCOPE_RUN, &e2b_untag_schema, e2b_tags_remove, E2B_NONE},
    {"GET", "/templates/aliases/{}", SCOPE_READ, NULL, e2b_template_alias, E2B_NONE},
    {"GET", "/templates/{}/tags", SCOPE_READ, NULL, e2b_tags_list, E2B_NONE},
    {"GET", "/templates", SCOPE_READ, NULL, e2b_templates_list, E2B_NONE},
    {"GET", "/templates/{}", SCOPE_READ, NULL, e2b_template_show, E2B_NONE},
    {"DELETE", "/templates/{}", SCOPE_RUN, NULL, e2b_template_delete, E2B_TEMPLATE},
};

static bool path_fits(const char *pattern, struct http_text path, struct http_text ret_params[2]) {
    struct http_text want = {pattern, strlen(pattern)}, part, given;
    size_t count = 0;
    while (http_path_next(&want, &part)) {
        if (!http_path_next(&path, &given))
            return false;
        if (http_text_is(part, "{}"))
            ret_params[count++] = given;
        else if (!http_text_same(part, given))
            return false;
    }
    return path.n == 0;
}

/* *ret_known: the path exists, perhaps with other methods. */
static const struct e2b_route *e2b_route_find(const struct http_head *head,
                                              struct http_text ret_params[2], bool *ret_known) {
    *ret_known = false;
    for (size_t i = 0; i < sizeof(e2b_routes) / sizeof(*e2b_routes); i++) {
        if (!path_fits(e2b_routes[i].path, head->path, ret_params))
            continue;
        *ret_known = true;
        if (http_text_is(head->method, e2b_routes[i].method))
            return &e2b_routes[i];
    }
    return NULL;
}

/* ---- answers ---- */

static void e2b_call_free(struct e2b_call *c) {
    struct e2b_face *f = c->face;
    if (c->request) {
        schema_done(c->route->request, c->request);
        free(c->request);
    }
    json_decref(c->body);
    e2b_sandbox_done(&c->sandbox);
    free(c);
    if (--f->busy == 0 && f->freed)
        free(f);
}

static void reply(struct http_exchange *x, int status, const struct buf *text,
                  const struct http_pair *more) {
    http_reply(x, status,
               HTTP_FIELDS({"Content-Type", text ? "application/json" : NULL},
                           {"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"},
                           more ? *more : (struct http_pair){0}),
               text ? text->data : NULL, text ? text->len : 0);
}

/* Clients show the message alone, so it has the remedy too. */
static void reply_error(struct http_exchange *x, int status, const struct err *err) {
    struct buf text DEFER(buf_done) = BUF(8192), message DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&text);
    bool has_remedy = err->remedy[0];
    jot_object(&j, NULL);
    jot_u64(&j, "code", (uint64_t)status);
    jot_string(&j, "message",
               buf_addf(&message, "%s%s%s", err->text, has_remedy ? ": " : "", err->remedy)
                   ? message.data
                   : err->text);
    jot_end(&j, '}');
    reply(x, status, &text, NULL);
}

void e2b_answer(struct e2b_call *c, int status, const struct buf *text,
                const struct http_pair *more) {
    reply(c->http, status, text, more);
    e2b_call_free(c);
}

void e2b_done(struct e2b_call *c) {
    http_reply(c->http, 204, NULL, NULL, 0);
    e2b_call_free(c);
}

void e2b_done_with(struct e2b_call *c, const char *field, const char *value) {
    http_reply(c->http, 204, HTTP_FIELDS({field, value}), NULL, 0);
    e2b_call_free(c);
}

void e2b_accepted(struct e2b_call *c) {
    http_reply(c->http, 202, NULL, NULL, 0);
    e2b_call_free(c);
}

void e2b_error_status(struct e2b_call *c, int status, const struct err *err) {
    reply_error(c->http, status, err);
    e2b_call_free(c);
}

/* For a client a machine that has ended does not exist. */
uint64_t e2b_status_of(const struct err *err) {
    return (uint64_t)(err->code == ERR_GONE ? 404 : api_status_of(err->code));
}

void e2b_error(struct e2b_call *c, const struct err *err) {
    e2b_error_status(c, (int)e2b_status_of(err), err);
}

int e2b_query(const struct e2b_call *c, const char *name, char **ret, struct err *err) {
    char *value = xcalloc(1, QUERY_MAX);
    size_t n;
    *ret = NULL;
    int found = c->http->head->query.s
                    ? http_query_get(c->http->head->query, name, value, QUERY_MAX, &n)
                    : 0;
    if (found == 1) {
        *ret = value;
        return 1;
    }
    free(value);
    return found == 0
               ? 0
               : err_set(err, ERR_INVALID, "query parameter '%s' is malformed or repeated", name);
}

/* ---- requests ---- */

static int authenticate(const struct e2b_face *f, const struct http_exchange *x, struct caller *ret,
                        struct err *err) {
    char token[TOKEN_SIZE];
    struct http_text key = http_field_only(x->head, "X-API-Key");
    if (!key.s)
        key = http_field_only(x->head, "X-Access-Token");
    if (!key.s) {
        err_set(err, ERR_DENIED, "an API key is required");
        return err_remedy(err, "`carrel e2b env` makes one");
    }
    int status =
        e2b_key_to_token(key.s, key.n, token)
            ? service_caller_by_token(f->service, token, TOKEN_SIZE - 1, x->peer->text, ret, err)
            : service_caller_by_token(f->service, key.s, key.n, x->peer->text, ret, err);
    explicit_bzero(token, sizeof(token));
    if (status < 0 && err->code == ERR_DENIED) {
        err_set(err, ERR_DENIED, "the API key is unknown or was revoked");
        err_remedy(err, "`carrel e2b env` makes one");
    }
    return status;
}

/* A machine that is ending or has ended is not found. */
static void sandbox_came(void *arg, const struct machine_view *v, const struct err *err) {
    struct e2b_call *c = arg;
    if (!err && strcmp(v->owner, c->who.owner) == 0 && strncmp(v->state, "end", 3) != 0)
        (void)(c->route->object == E2B_SANDBOX ? e2b_sandbox_read : e2b_snapshot_read)(v,
                                                                                       &c->sandbox);
}

static int find_sandbox(struct e2b_call *c, struct err *err) {
    const char *what = c->route->object == E2B_SNAPSHOT ? "snapshot" : "sandbox";
    char id[ID_SIZE];
    if (id_from_label(c->param, strlen(c->param), 'm', id))
        service_show(c->service, &c->who, id, sandbox_came, c); /* answers before it returns */
    bool is_found = c->sandbox.id[0] || c->route->object == E2B_TEMPLATE;
    return is_found ? 0 : err_set(err, ERR_NOT_FOUND, "%s '%s' not found", what, c->param);
}

/* Clients of later versions send fields that this face does not know, and some send null. */
static void drop_unknown(const struct schema *schema, json_t *body) {
    const char *name;
    json_t *value;
    void *next;
    json_object_foreach_safe(body, next, name, value) {
        size_t i = 0;
        while (i < schema->count && strcmp(schema->fields[i].name, name) != 0)
            i++;
        if (i == schema->count || json_is_null(value))
            json_object_del(body, name);
    }
}

static int read_body(struct e2b_call *c, const char *bytes, size_t n, struct err *err) {
    json_error_t why;
    if (!c->route->request)
        return 0;
    c->body = json_loadb(n ? bytes : "{}", n ? n : 2, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(c->body))
        return err_set(err, ERR_INVALID, "the body of the request is not a JSON object");
    drop_unknown(c->route->request, c->body);
    c->request = xcalloc(1, c->route->request->size);
    return schema_read(c->route->request, c->body, c->request, err);
}

static void call_settled(void *arg, const struct err *err);

/* Clients take 409 for "it is paused already", so a change waits for another one to be over. */
static bool call_waits(struct e2b_call *c) {
    bool changes = strcmp(c->route->method, "POST") == 0 || strcmp(c->route->method, "PUT") == 0;
    c->who.waits = c->sandbox.id[0];
    return c->sandbox.id[0] && changes &&
           service_wait(c->service, &c->who, c->sandbox.id, call_settled, c);
}

static void call_go(struct e2b_call *c) {
    struct err err;
    if (c->route->object && find_sandbox(c, &err) < 0)
        e2b_error(c, &err);
    else if (!call_waits(c))
        c->route->handle(c);
}

/* The sandbox may be another one now: paused, or ended. */
static void call_settled(void *arg, const struct err *err) {
    struct e2b_call *c = arg;
    (void)err; /* of the other operation */
    e2b_sandbox_done(&c->sandbox);
    c->sandbox = (struct e2b_sandbox){0};
    call_go(c);
}

static void e2b_body_came(struct http_exchange *x, const char *bytes, size_t n) {
    struct e2b_call *c = x->user;
    struct err err;
    http_hold(x);
    x->on_gone = NULL;
    if (read_body(c, bytes, n, &err) < 0)
        e2b_error(c, &err);
    else
        call_go(c);
}

/* Until the body is complete the HTTP server owns the exchange and sends its own error. */
static void e2b_body_cut(struct http_exchange *x) {
    e2b_call_free(x->user);
}

/* A parameter that cannot be read names nothing. */
static void read_param(struct http_text given, char ret[E2B_TEXT_SIZE]) {
    size_t n = 0;
    if (given.s && http_decode_segment(given, ret, E2B_TEXT_SIZE, &n) < 0)
        ret[0] = '\0';
}

static void take_route(struct e2b_face *f, struct http_exchange *x, const struct e2b_route *route,
                       const struct http_text params[2]) {
    struct caller who;
    struct err err;
    if (authenticate(f, x, &who, &err) < 0) {
        reply_error(x, err.code == ERR_DENIED ? 401 : api_status_of(err.code), &err);
        return;
    }
    if (allow(&who, route->scope, &err) < 0) {
        reply_error(x, 403, &err);
        return;
    }
    struct e2b_call *c = xnew(struct e2b_call);
    *c = (struct e2b_call){.face = f,
                           .service = f->service,
                           .http = x,
                           .route = route,
                           .who = who,
                           .templates = f->templates,
                           .histories = f->histories};
    f->busy++;
    read_param(params[0], c->param);
    read_param(params[1], c->param2);
    x->user = c;
    x->on_gone = e2b_body_cut;
    x->payer = http_payer(who.owner);
    http_collect(x, BODY_MAX, e2b_body_came);
}

/* ---- keys ---- */

/* This route is for our own command, so its errors are those of the REST API. */
static void refuse_key(struct http_exchange *x, int status, const struct err *err) {
    struct buf text DEFER(buf_done) = BUF(8192);
    struct jot j = JOT(&text);
    error_json(&j, err);
    reply(x, status, &text, NULL);
}

struct key_call {
    struct e2b_face *face;
    struct http_exchange *http;
};

/* For programs that know only a domain, which needs TLS. */
static void put_domain(struct jot *j, struct service *s) {
    struct buf domain DEFER(buf_done) = BUF(512);
    const struct conf *conf = service_conf(s);
    struct err err;
    if (!*conf->domain || !*conf->certificate)
        return;
    if (service_expose_domain(s, &domain, &err) == 0)
        jot_string(j, "domain", domain.data);
    else
        log_line(LOG_ERROR, "e2b", "serve the domain of clients: %s", err.text);
}

static void key_made(void *arg, const struct token_row *row, const char *secret,
                     const struct err *err) {
    struct key_call *c DEFER_FREE = arg;
    struct e2b_face *f = c->face;
    struct buf text DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&text);
    char key[E2B_KEY_SIZE];
    if (err) {
        refuse_key(c->http, api_status_of(err->code), err);
    } else if (e2b_key_from_token(secret, key)) {
        jot_object(&j, NULL);
        jot_string(&j, "id", row->id);
        jot_string(&j, "key", key);
        jot_string(&j, "url", service_address(f->service));
        put_domain(&j, f->service);
        jot_end(&j, '}');
        reply(c->http, 201, &text, NULL);
    } else {
        abort(); /* bug: our own token has a wrong form */
    }
    explicit_bzero(key, sizeof(key));
    if (--f->busy == 0 && f->freed)
        free(f);
}

/* POST /e2b/key: for `carrel e2b env`, with the rights of a caller of the REST API. */
static void take_key(struct e2b_face *f, struct http_exchange *x) {
    const struct token_request r = {.note = E2B_NOTE};
    struct caller who;
    struct err err;
    if (f->caller(f->arg, x, &who, &err) < 0) {
        refuse_key(x, 401, &err);
        return;
    }
    if (f->listen(f->arg, &err) < 0) {
        refuse_key(x, api_status_of(err.code), &err);
        return;
    }
    struct key_call *c = xnew(struct key_call);
    *c = (struct key_call){f, x};
    f->busy++;
    http_hold(x);
    service_token_new(f->service, &who, &r, key_made, c);
}

/* Only clients of E2B send this field, and they read no errors of the REST API. */
static bool is_of_client(const struct http_head *head) {
    static const char own[] = "/v1/";
    struct http_text path = head->path;
    bool is_own = path.n >= sizeof(own) - 1 && memcmp(path.s, own, sizeof(own) - 1) == 0;
    return !is_own && http_field_find(head, "X-API-Key") && !http_field_find(head, "Authorization");
}

static void refuse_path(struct http_exchange *x) {
    static const char secrets[] = "/secrets";
    struct http_text path = x->head->path;
    struct err err;
    if (path.n >= sizeof(secrets) - 1 && memcmp(path.s, secrets, sizeof(secrets) - 1) == 0) {
        err_set(&err, ERR_UNSUPPORTED, "secrets of E2B are not supported");
        err_remedy(&err, "`carrel secret` stores secrets, and `carrel grant` gives them to hosts");
        reply_error(x, 501, &err);
        return;
    }
    err_set(&err, ERR_NOT_FOUND, "this path is not answered");
    err_remedy(&err, "docs/reference/e2b.md lists the calls that are");
    reply_error(x, 404, &err);
}

static void control_refused(struct http_exchange *x, int status, const char *why) {
    struct err err;
    err_set(&err, ERR_INVALID, "%s", why);
    reply_error(x, status, &err);
}

/* True: the request was for the control plane and has been taken. */
static bool take_control(struct e2b_face *f, struct http_exchange *x) {
    struct http_text params[2] = {{NULL, 0}, {NULL, 0}};
    struct err err;
    bool known;
    if (e2b_upload_take(f->templates, x) || e2b_data_take_volume(f->data, x))
        return true;
    const struct e2b_route *route = e2b_route_find(x->head, params, &known);
    if (known)
        x->on_refuse = control_refused;
    if (route) {
        take_route(f, x, route, params);
    } else if (known) {
        err_set(&err, ERR_INVALID, "this path does not support the method '%.*s'",
                (int)x->head->method.n, x->head->method.s);
        reply_error(x, 405, &err);
    }
    return known;
}

bool e2b_face_is_open(const struct http_exchange *x) {
    return e2b_data_is_for(x);
}

bool e2b_face_refuse(struct http_exchange *x, const struct err *err) {
    if (!is_of_client(x->head) && !e2b_face_is_open(x))
        return false;
    reply_error(x, 403, err);
    return true;
}

bool e2b_face_take(struct e2b_face *f, struct http_exchange *x) {
    if (e2b_data_take(f->data, x))
        return true;
    if (http_text_is(x->head->path, "/e2b/key") && http_text_is(x->head->method, "POST")) {
        take_key(f, x);
        return true;
    }
    if (take_control(f, x))
        return true;
    if (!is_of_client(x->head))
        return false;
    refuse_path(x);
    return true;
}

/* A request to api.DOMAIN or to a control program, from the listener of exposed ports. It has no
 * rights but those of its key or token: the connection says nothing of its client. */
static void take_by_name(struct http_exchange *x, void *arg) {
    struct e2b_face *f = arg;
    struct http_text name;
    struct ingress_door door;
    char label[ID_LABEL_SIZE];
    struct err err;
    bool known = service_expose_name(f->service, x->head->authority, &name);
    bool is_api = known && http_text_is_like(name, E2B_API_NAME);
    if (!is_api && known && service_expose_door(name, &door) &&
        (door.port == E2B_CONTROL_PORT || door.port == E2B_CODE_PORT)) {
        id_to_label(door.machine, label);
        e2b_data_take_named(f->data, x, (struct http_text){label, strlen(label)}, door.port);
    } else if (is_api && http_field_find(x->head, "Origin")) { /* no page has the name of the API */
        err_set(&err, ERR_DENIED, "requests from web pages of other sites (origins) are refused");
        reply_error(x, 403, &err);
    } else if (!is_api || !take_control(f, x)) {
        refuse_path(x);
    }
}
