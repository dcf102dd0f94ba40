/*
 * The dispatcher of the REST API: authenticates the caller, finds the route, reads the body and
 * calls the handler. It runs on the loop, so it must not block. It contains no code for a single
 * resource.
 */
#include "api/api.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/console/console.h"
#include "api/e2b/e2b.h"
#include "api/inner.h"
#include "api/mcp/face.h"
#include "api/metrics.h"
#include "api/route.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "io/http_origin.h"
#include "io/http_uri.h"
#include "service/console/console.h"
#include "service/rights.h"
#include "service/tickets.h"

struct api {
    struct loop *loop;
    struct service *service;
    struct runs *runs;
    struct http_server *http;
    struct metrics *metrics;
    struct mcp_face *mcp;
    struct console_face *console;
    struct e2b_face *e2b;
    uint16_t port; /* TCP port; 0: no TCP listener */
    size_t busy;
    uint64_t taken; /* requests since the start */
    bool freed;     /* api_free() was called: the last call to end frees this */
};

/* ---- authentication ---- */

/*
 * A browser cannot add a header to a WebSocket or a download. Their targets end in a ticket of the
 * console instead, which counts only for GET and the part before it.
 */
static size_t ticket_given(const struct http_exchange *x) {
    static const char name[] = "ticket=";
    struct http_text t = x->head->target;
    size_t n = sizeof(name) - 1 + CONSOLE_KEY_SIZE - 1;
    bool has = http_text_is(x->head->method, "GET") && t.n > n + 1 &&
               (t.s[t.n - n - 1] == '?' || t.s[t.n - n - 1] == '&') &&
               memcmp(t.s + t.n - n, name, sizeof(name) - 1) == 0;
    return has ? n + 1 : 0;
}

static int caller_by_ticket(struct api *api, const struct http_exchange *x, struct caller *ret,
                            struct err *err) {
    char ticket[CONSOLE_KEY_SIZE];
    struct http_text t = x->head->target;
    snprintf(ticket, sizeof(ticket), "%.*s", CONSOLE_KEY_SIZE - 1,
             t.s + t.n - (CONSOLE_KEY_SIZE - 1));
    return service_caller_by_ticket(api->service, ticket, t.s, t.n - ticket_given(x), x->peer->text,
                                    ret, err);
}

static int refuse_key(struct err *err) {
    err_set(err, ERR_DENIED, "a key of E2B is valid only for the calls of E2B's API");
    return err_remedy(
        err, "create a token with `carrel token new` and send it as Authorization: Bearer TOKEN");
}

static int authenticate(struct api *api, const struct http_exchange *x, struct caller *ret,
                        struct err *err) {
    struct http_text bearer = http_field_only(x->head, "Authorization");
    if (bearer.s) {
        if (bearer.n < 8 || !http_text_is_like((struct http_text){bearer.s, 7}, "Bearer "))
            return err_set(err, ERR_DENIED,
                           "header 'Authorization': the only supported scheme is Bearer");
        if (console_is_token(bearer.s + 7, bearer.n - 7))
            return service_caller_by_console(api->service, bearer.s + 7, bearer.n - 7,
                                             x->peer->text, ret, err);
        if (bearer.n > 11 && memcmp(bearer.s + 7, "e2b_", 4) == 0)
            return refuse_key(err);
        return service_caller_by_token(api->service, bearer.s + 7, bearer.n - 7, x->peer->text, ret,
                                       err);
    }
    if (ticket_given(x))
        return caller_by_ticket(api, x, ret, err);
    if (x->peer->local)
        return service_caller_by_uid(api->service, x->peer->uid, x->peer->pid, ret, err);
    if (http_field_find(x->head, "X-API-Key"))
        return refuse_key(err);
    err_set(err, ERR_DENIED, "a token is required");
    return err_remedy(
        err, "create one with `carrel token new` and send it as Authorization: Bearer TOKEN");
}

int api_caller(const struct call *c, struct caller *ret, struct err *err) {
    if (!c->http->peer->local && !http_field_find(c->http->head, "Authorization"))
        return 0;
    return authenticate(c->api, c->http, ret, err) < 0 ? -1 : 1;
}

/* ---- dispatch ---- */

static void api_destroy(struct api *api) {
    metrics_free(api->metrics);
    free(api);
}

void api_call_ended(struct call *c) {
    struct api *api = c->api;
    metrics_count(api->metrics, c->route, c->status, c->failed, monotonic_us() - c->started_us);
    if (--api->busy == 0 && api->freed)
        api_destroy(api);
}

static void api_refuse(struct http_exchange *x, int status, const struct err *err,
                       const struct http_pair *more) {
    struct buf text DEFER(buf_done) = BUF(8192);
    struct jot j = JOT(&text);
    struct http_pair fields[] = {
        {"Content-Type", "application/json"}, more ? *more : (struct http_pair){0}, {0}};
    error_json(&j, err);
    http_reply(x, status, fields, text.data, text.len);
}

static int read_json(struct call *c, const char *bytes, size_t n, struct err *err) {
    json_error_t why;
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, bytes, n);
    sha256_end(&hash, c->hash);
    c->json = json_loadb(n ? bytes : "{}", n ? n : 2, JSON_REJECT_DUPLICATES, &why);
    if (!c->json)
        return err_set(err, ERR_INVALID,
                       "the body of the request is not JSON: line %d column %d: %s", why.line,
                       why.column, why.text);
    c->request = calloc(1, c->route->request->size);
    if (!c->request)
        return err_set(err, ERR_LIMIT, "out of memory");
    return schema_read(c->route->request, c->json, c->request, err);
}

/* Requests about one machine that need no box: they do not wake a machine that sleeps. */
static void (*const boxless[])(struct call *) = {
    api_machine_show, api_machine_destroy, api_machine_stop, api_machine_stats, api_exec_list,
    api_exec_show,    api_exec_output,     api_exec_events,  api_net_show,      api_expose_list,
    api_grant_list,   api_step_list,       api_step_show,    api_machine_pause, api_machine_resume,
    api_exec_kill,    api_exec_signal,     api_exec_stdin,
};

static bool route_wakes(const struct route *r) {
    for (size_t i = 0; i < sizeof(boxless) / sizeof(*boxless); i++)
        if (boxless[i] == r->handle)
            return false;
    return true;
}

static void api_handle(struct call *c);

/* A body that the handler is to read never comes if the client has left meanwhile. */
static void api_awake(void *arg, const struct err *err) {
    struct call *c = arg;
    if (err)
        call_error(c, err);
    else if (c->route->body == BODY_STREAM && call_is_gone(c))
        call_abandon(c);
    else
        api_handle(c);
}

static void api_handle(struct call *c) {
    static const char machine[] = "/v1/machines/{}";
    bool is_for_one = strncmp(c->route->path, machine, sizeof(machine) - 1) == 0;
    if (is_for_one && service_use(c->service, &c->who, c->params[0], route_wakes(c->route),
                                  api_awake, c, c->used))
        http_hold(c->http); /* also if the handler is to read the body itself */
    else
        c->route->handle(c);
}

static void body_came(struct http_exchange *x, const char *bytes, size_t n) {
    struct call *c = x->user;
    struct err err;
    http_hold(x);
    call_listen(c);
    if (read_json(c, bytes, n, &err) < 0)
        call_error(c, &err);
    else
        api_handle(c);
}

/* Until the body is complete the HTTP server owns the exchange and sends its own error. */
static void collect_failed(struct http_exchange *x) {
    call_forget(x->user);
}

static void api_take(struct api *api, struct http_exchange *x, const struct route *route,
                     const struct caller *who, const char params[CALL_PARAMS][CALL_PARAM_SIZE]) {
    struct call *c = xnew(struct call);
    struct err err;
    *c = (struct call){.api = api,
                       .service = api->service,
                       .http = x,
                       .route = route,
                       .who = *who,
                       .fds = x->fds,
                       .nfds = x->nfds,
                       .length = -1,
                       .by_ticket = who->console[0] && ticket_given(x),
                       .started_us = monotonic_us()};
    memcpy(c->params, params, sizeof(c->params));
    x->user = c;
    api->busy++;
    api->taken++;
    if (call_read_query(c, &err) < 0) {
        http_hold(x);
        call_error(c, &err);
    } else if (route->body == BODY_JSON) {
        x->on_gone = collect_failed;
        x->payer = http_payer(who->owner);
        http_collect(x, CALL_BODY_MAX, body_came);
    } else {
        if (route->body == BODY_NONE)
            http_hold(x);
        call_listen(c);
        api_handle(c);
    }
}

static void refuse_route(struct http_exchange *x, const char *allow) {
    struct http_pair field = {"Allow", allow};
    struct err err;
    err_set(&err, *allow ? ERR_INVALID : ERR_NOT_FOUND,
            *allow ? "this path does not support the method '%.*s'"
                   : "this path does not exist (method %.*s)",
            (int)x->head->method.n, x->head->method.s);
    err_remedy(&err, "/v1/openapi.json lists all paths and methods");
    api_refuse(x, *allow ? 405 : 404, &err, *allow ? &field : NULL);
}

static void refuse_caller(struct http_exchange *x, const struct err *err) {
    api_refuse(x, 401, err, &(struct http_pair){"WWW-Authenticate", "Bearer"});
}

/* MCP is not a route: it has its own protocol, errors and sessions (api/mcp/face.h). */
static void take_mcp(struct api *api, struct http_exchange *x) {
    struct caller who;
    struct err err;
    if (authenticate(api, x, &who, &err) < 0)
        refuse_caller(x, &err);
    else if (allow(&who, SCOPE_RUN, &err) < 0)
        api_refuse(x, 403, &err, NULL);
    else
        mcp_face_take(api->mcp, x, &who);
}

static void on_request(struct http_exchange *x, void *arg) {
    struct api *api = arg;
    char params[CALL_PARAMS][CALL_PARAM_SIZE], methods[ROUTE_ALLOW_SIZE];
    struct caller who = {0};
    struct err err;
    if ((e2b_face_is_open(x) ? http_check_host : http_check_origin)(x, &err) < 0) {
        if (!e2b_face_refuse(x, &err))
            api_refuse(x, 403, &err, NULL);
        return;
    }
    /* First: a program in a sandbox has the same paths as the console. */
    if (e2b_face_take(api->e2b, x))
        return;
    if (console_face_take(api->console, x))
        return;
    if (http_text_is(x->head->path, "/mcp")) {
        take_mcp(api, x);
        return;
    }
    const struct route *route = route_find(x->head->method, x->head->path, params, methods);
    if (!route && *methods && http_text_is(x->head->method, "OPTIONS")) {
        http_reply(x, 204, HTTP_FIELDS({"Allow", methods}), NULL, 0);
        return;
    }
    if (!route) {
        refuse_route(x, methods);
        return;
    }
    if (route->scope && authenticate(api, x, &who, &err) < 0) {
        refuse_caller(x, &err);
        return;
    }
    if (route->scope && allow(&who, route->scope, &err) < 0) {
        api_refuse(x, 403, &err, NULL);
        return;
    }
    api_take(api, x, route, &who, params);
}

/* ---- faces ---- */

static int face_caller(void *arg, const struct http_exchange *x, struct caller *ret,
                       struct err *err) {
    return authenticate(arg, x, ret, err);
}

/* Prefers the port of an earlier daemon, whose pages are still open, then the usual one. */
static int face_listen(void *arg, struct err *err) {
    struct api *api = arg;
    const uint16_t ports[] = {service_console_port(api->service), CONSOLE_PORT, 0};
    uint16_t port = 0;
    char url[64];
    if (*service_address(api->service))
        return 0;
    for (size_t i = ports[0] ? 0 : 1; i < 3 && !port; i++)
        if (api_listen_tcp(api, "127.0.0.1", ports[i], &port, err) < 0)
            port = 0;
    if (!port)
        return -1;
    snprintf(url, sizeof(url), "http://127.0.0.1:%u", port);
    log_line(LOG_NOTE, "api", "listening address=127.0.0.1 port=%u", port);
    char socket[PLACE_SIZE + 16];
    snprintf(socket, sizeof(socket), "%s", service_socket(api->service));
    service_set_address(api->service, url, socket);
    return service_console_set_port(api->service, port, err);
}

void api_listen_again(struct api *api, bool has_keys) {
    struct err err;
    if ((has_keys || service_console_port(api->service)) && face_listen(api, &err) < 0)
        log_line(LOG_WARN, "api", "listen again: %s", err.text);
}

/* ---- lifecycle ---- */

struct api *api_new(struct loop *loop, struct service *service, struct runs *runs) {
    struct api *api = xnew(struct api);
    api->loop = loop;
    api->service = service;
    api->runs = runs;
    api->metrics = metrics_new();
    api->mcp = mcp_face_new(loop, service);
    api->console = console_face_new(service, face_caller, face_listen, api);
    api->e2b = e2b_face_new(loop, service, face_caller, face_listen, api);
    const struct http_server_config config = {.on_request = on_request, .arg = api, .shares = true};
    api->http = http_server_new(loop, &config);
    return api;
}

void api_free(struct api *api) {
    if (!api)
        return;
    mcp_face_free(api->mcp);
    console_face_free(api->console);
    e2b_face_free(api->e2b);
    http_server_free(api->http);
    if (api->busy)
        api->freed = true;
    else
        api_destroy(api);
}

int api_listen_unix(struct api *api, const char *path, mode_t mode, struct err *err) {
    return http_listen_unix(api->http, path, mode, err);
}

int api_listen_tcp(struct api *api, const char *host, uint16_t port, uint16_t *ret_port,
                   struct err *err) {
    return http_listen_tcp(api->http, host, port, ret_port, err);
}

uint64_t api_taken(const struct api *api) {
    return api->taken;
}

size_t api_busy(const struct api *api) {
    return api->busy + mcp_face_busy(api->mcp) + e2b_face_busy(api->e2b);
}

struct metrics *api_metrics_of(struct api *api) {
    return api->metrics;
}

struct runs *api_operator(struct api *api) {
    return api->runs;
}

struct loop *api_loop(struct api *api) {
    return api->loop;
}
