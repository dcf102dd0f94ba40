/*
 * One request from its query to its answer. Every path ends in exactly one call_* function that
 * ends the call; after that the pointer is invalid.
 */
#include "api/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/inner.h"
#include "api/route.h"
#include "base/amount.h"
#include "base/defer.h"
#include "base/parse.h"
#include "io/http_uri.h"
#include "service/tickets.h"

static const struct {
    enum err_code code;
    int status;
} statuses[] = {
    {ERR_INVALID, 400}, {ERR_NOT_FOUND, 404}, {ERR_EXISTS, 409},   {ERR_DENIED, 403},
    {ERR_LIMIT, 429},   {ERR_BUSY, 409},      {ERR_GONE, 410},     {ERR_UNSUPPORTED, 501},
    {ERR_UNKNOWN, 500}, {ERR_TIMEOUT, 504},   {ERR_INTERNAL, 500},
};

int api_status_of(enum err_code code) {
    for (size_t i = 0; i < sizeof(statuses) / sizeof(*statuses); i++)
        if (statuses[i].code == code)
            return statuses[i].status;
    return 500;
}

/* ---- query parameters ---- */

const char *call_query(struct call *c, const char *name) {
    for (size_t i = 0; i < c->query_count; i++)
        if (strcmp(c->queries[i].name, name) == 0)
            return c->queries[i].value;
    return NULL;
}

bool call_flag(struct call *c, const char *name) {
    const char *value = call_query(c, name);
    return value && strcmp(value, "0") != 0 && strcmp(value, "false") != 0;
}

int call_number(struct call *c, const char *name, uint64_t min, uint64_t max, uint64_t *ret,
                struct err *err) {
    const char *value = call_query(c, name);
    if (value && parse_u64(value, min, max, ret, err) < 0)
        return err_wrap(err, "parameter '%s'", name);
    return 0;
}

int call_stream_start(struct call *c, const char *name, uint64_t *ret, struct err *err) {
    struct http_text last = http_field_only(c->http->head, "Last-Event-ID");
    char text[24];
    if (last.s && last.n < sizeof(text)) {
        snprintf(text, sizeof(text), "%.*s", (int)last.n, last.s);
        if (parse_u64(text, 0, INT64_MAX, ret, err) < 0)
            return err_wrap(err, "header 'Last-Event-ID'");
    }
    return call_number(c, name, 0, INT64_MAX, ret, err);
}

bool call_accepts(struct call *c, const char *type) {
    return c->http && http_list_has(c->http->head, "Accept", type);
}

static bool known_query(const struct route *route, const char *name) {
    for (const struct query *q = route->queries; q && q->name; q++)
        if (strcmp(q->name, name) == 0)
            return true;
    return false;
}

int call_read_query(struct call *c, struct err *err) {
    struct http_text rest = c->http->head->query, key, value;
    size_t n;
    while (rest.s && http_query_next(&rest, &key, &value)) {
        if (c->query_count == CALL_QUERIES)
            return err_set(err, ERR_LIMIT, "too many query parameters (at most %d)", CALL_QUERIES);
        struct call_word *q = &c->queries[c->query_count];
        q->value = malloc(value.n + 1);
        if (!q->value)
            return err_set(err, ERR_LIMIT, "out of memory");
        c->query_count++;
        if (http_decode_query(key, q->name, sizeof(q->name), &n) < 0 ||
            http_decode_query(value, q->value, value.n + 1, &n) < 0)
            return err_set(err, ERR_INVALID, "the query of the request has a malformed parameter");
        if (c->by_ticket && strcmp(q->name, "ticket") == 0)
            continue;
        if (!known_query(c->route, q->name))
            return err_set(err, ERR_INVALID, "unknown query parameter '%s'", q->name);
    }
    return 0;
}

/* ---- end of a call ---- */

static void call_free(struct call *c) {
    if (c->on_end)
        c->on_end(c);
    if (c->used[0])
        service_use_over(c->service, c->used);
    if (c->request) {
        schema_done(c->route->request, c->request);
        free(c->request);
    }
    if (c->ticket)
        service_ticket_unref(c->ticket);
    json_decref(c->json);
    free(c->warnings);
    for (size_t i = 0; i < c->query_count; i++)
        free(c->queries[i].value);
    api_call_ended(c);
    free(c);
}

/* A ticket makes a link of an answer, and a browser may show it: as a file, never as a page. */
#define TICKET_FIELDS(c)                                                                 \
    {(c)->by_ticket ? "Content-Disposition" : NULL, "attachment"}, {                     \
        (c)->by_ticket ? "Content-Security-Policy" : NULL, "default-src 'none'; sandbox" \
    }

static void answer_more(struct call *c, int status, const char *type, const void *body, size_t n,
                        const struct http_pair *more) {
    const struct http_pair fields[] = {{"Content-Type", type},
                                       {"Cache-Control", "no-store"},
                                       {"X-Content-Type-Options", "nosniff"},
                                       more ? *more : (struct http_pair){NULL, NULL},
                                       {NULL, NULL}};
    c->status = status;
    http_reply(c->http, status, fields, body, n);
    call_free(c);
}

static void call_answer(struct call *c, int status, const char *type, const void *body, size_t n,
                        const int *fds, size_t nfds) {
    const struct http_pair fields[] = {{"Content-Type", type},
                                       {"Cache-Control", "no-store"},
                                       {"X-Content-Type-Options", "nosniff"},
                                       TICKET_FIELDS(c),
                                       {NULL, NULL}};
    c->status = status;
    if (nfds)
        http_reply_fds(c->http, status, fields, body, n, fds, nfds);
    else
        http_reply(c->http, status, fields, body, n);
    call_free(c);
}

void call_text(struct call *c, int status, const char *type, const void *body, size_t n) {
    call_answer(c, status, type, body, n, NULL, 0);
}

void call_told(void *arg, const char *json, const struct err *err) {
    struct call *c = arg;
    if (err)
        call_error(c, err);
    else
        call_text(c, 200, "application/json", json, strlen(json));
}

void call_json(struct call *c, int status, const struct jot *j, const struct buf *text) {
    struct err err;
    if (j->failed) {
        char max[AMOUNT_SIZE];
        amount_size(text->max, max);
        err_set(&err, ERR_LIMIT, "the response is larger than %s", max);
        call_error(c, &err);
        return;
    }
    call_answer(c, status, "application/json", text->data, text->len, NULL, 0);
}

void call_view(struct call *c, int status, const struct schema *schema, const void *view) {
    struct buf text DEFER(buf_done) = BUF(CALL_BODY_MAX);
    struct jot j = JOT(&text);
    schema_write(schema, &j, NULL, view);
    call_json(c, status, &j, &text);
}

void error_json(struct jot *j, const struct err *err) {
    jot_object(j, NULL);
    jot_object(j, "error");
    jot_string(j, "code", err_code_name(err->code));
    jot_string(j, "message", err->text);
    if (err->remedy[0])
        jot_string(j, "remedy", err->remedy);
    jot_end(j, '}');
    jot_end(j, '}');
}

void call_error_status(struct call *c, int status, const struct err *err) {
    call_error_more(c, status, err, NULL);
}

static void refused_message(struct ws *ws, enum ws_opcode kind, const char *data, size_t n) {
    (void)ws, (void)kind, (void)data, (void)n;
}

static void refused_closed(struct ws *ws, int code) {
    (void)ws, (void)code;
}

/*
 * A page of the console opens its WebSockets with tickets, and cannot read the answer to one that
 * was refused. So it gets a WebSocket that closes at once, with the reason.
 */
static bool call_refuse_socket(struct call *c, const struct err *err) {
    static const struct ws_handler refused = {
        .on_message = refused_message, .on_close = refused_closed, .message_max = 128};
    if (!c->by_ticket || !c->http->head->upgrade || c->streaming)
        return false;
    struct ws *ws = call_upgrade(c, &refused, NULL);
    if (ws)
        ws_close(ws, WS_POLICY, err->text);
    return true;
}

void call_error_more(struct call *c, int status, const struct err *err,
                     const struct http_pair *more) {
    struct buf text DEFER(buf_done) = BUF(8192);
    struct jot j = JOT(&text);
    error_json(&j, err);
    c->failed = err->code;
    if (call_refuse_socket(c, err))
        return;
    if (c->streaming) { /* the status line is sent: the error goes into the stream */
        call_write(c, text.data, text.len);
        call_end(c);
        return;
    }
    answer_more(c, status, "application/json", text.data, text.len, more);
}

struct list_answer {
    const struct schema *schema;
    struct jot *jot;
};

static void list_add_row(void *arg, const void *view) {
    const struct list_answer *a = arg;
    schema_write(a->schema, a->jot, NULL, view);
}

void call_list(struct call *c, const char *name, const struct schema *schema, call_list_fn *list) {
    struct buf text DEFER(buf_done) = BUF(CALL_BODY_MAX);
    struct jot j = JOT(&text);
    struct list_answer answer = {schema, &j};
    struct err err;
    jot_object(&j, NULL);
    jot_array(&j, name);
    if (list(c->service, &c->who, call_flag(c, "all"), list_add_row, &answer, &err) < 0) {
        call_error(c, &err);
        return;
    }
    jot_end(&j, ']');
    jot_end(&j, '}');
    call_json(c, 200, &j, &text);
}

void call_error(struct call *c, const struct err *err) {
    call_error_status(c, api_status_of(err->code), err);
}

void call_done(struct call *c) {
    call_answer(c, c->route->status, "application/json", "{}", 2, NULL, 0);
}

void call_done_fds(struct call *c, const int *fds, size_t nfds) {
    call_answer(c, c->route->status, "application/json", "{}", 2, fds, nfds);
}

void call_forget(struct call *c) {
    call_free(c);
}

void call_abandon(struct call *c) {
    http_drop(c->http);
    call_free(c);
}

void call_needs_upgrade(struct call *c) {
    struct err err;
    err_set(&err, ERR_INVALID,
            "this path requires a WebSocket: send the headers of a WebSocket upgrade");
    call_error_status(c, 426, &err);
}

struct ws *call_upgrade(struct call *c, const struct ws_handler *handler, void *user) {
    c->status = 101;
    struct ws *ws = ws_upgrade(c->http, handler, user);
    call_free(c);
    return ws;
}

bool call_is_gone(const struct call *c) {
    return http_is_gone(c->http);
}

void call_close_fds(struct call *c) {
    http_close_fds(c->http);
    c->nfds = 0;
}

/* ---- streamed bodies and responses ---- */

static void piece(struct http_exchange *x, const char *bytes, size_t n) {
    struct call *c = x->user;
    c->on_body(c, bytes, n);
}

void call_body(struct call *c, uint64_t max,
               void (*on_body)(struct call *c, const char *bytes, size_t n)) {
    c->on_body = on_body;
    http_receive(c->http, max, piece);
}

void call_body_pause(struct call *c) {
    http_pause(c->http);
}

void call_body_resume(struct call *c) {
    http_resume(c->http);
}

static void call_gone(struct http_exchange *x) {
    struct call *c = x->user;
    if (c->on_gone)
        c->on_gone(c);
    else if (c->streaming)
        call_end(c);
}

static void drain(struct http_exchange *x) {
    struct call *c = x->user;
    if (c->on_drain)
        c->on_drain(c);
}

void call_listen(struct call *c) {
    c->http->user = c;
    c->http->on_gone = call_gone;
    c->http->on_drain = drain;
}

void call_begin(struct call *c, int status, const char *type, const struct http_pair *more) {
    struct http_pair fields[10] = {{"Content-Type", type},
                                   {"Cache-Control", "no-store"},
                                   {"X-Content-Type-Options", "nosniff"},
                                   TICKET_FIELDS(c)};
    for (size_t n = c->by_ticket ? 5 : 3; more && more->name && n < 9; n++)
        fields[n] = *more++;
    c->status = status;
    c->streaming = true;
    http_begin(c->http, status, fields, c->length);
}

bool call_write(struct call *c, const void *bytes, size_t n) {
    return http_write(c->http, bytes, n);
}

bool call_is_full(const struct call *c) {
    return http_is_full(c->http);
}

void call_end(struct call *c) {
    c->on_gone = c->on_drain = NULL;
    http_end(c->http);
    call_free(c);
}
