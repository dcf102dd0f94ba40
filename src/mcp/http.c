#include "mcp/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/id.h"
#include "base/parse.h"
#include "mcp/http_inner.h"

/* A request body that is being received. */
struct posting {
    struct mcp_http *http;
    char owner[MCP_OWNER_SIZE];
    char who[];
};

uint64_t mcp_http_now(const struct mcp_http *h) {
    return loop_now_ms(h->config.loop);
}

/* ---- sessions ---- */

static void line_send(struct session *s, const char *json, size_t n) {
    if (!n || !s->line)
        return;
    http_write(s->line, json, n);
    http_write(s->line, "\n", 1);
}

static void session_send(void *arg, void *stream, const char *json, size_t n, bool last) {
    struct session *s = arg;
    if (s->line)
        line_send(s, json, n);
    else if (stream)
        mcp_http_stream_send(stream, json, n, last);
    else if (s->standalone && n)
        mcp_http_add_event(s->standalone, json, n);
}

static void session_wrong(void *arg, void *stream, int status) {
    struct stream *t = stream;
    (void)arg;
    if (t)
        t->status = status;
}

static size_t sessions_of(const struct mcp_http *h, const char *owner) {
    size_t n = 0;
    for (const struct session *s = h->sessions; s; s = s->next)
        n += strcmp(s->owner, owner) == 0;
    return n;
}

static void session_link(struct mcp_http *h, struct session *s) {
    s->next = h->sessions;
    s->at = &h->sessions;
    if (s->next)
        s->next->at = &s->next;
    h->sessions = s;
    h->session_count++;
}

static struct session *session_new(struct mcp_http *h, const char *owner, void *backend_arg,
                                   const char *id) {
    struct session *s = xnew(struct session);
    s->http = h;
    s->backend_arg = backend_arg;
    s->used_ms = mcp_http_now(h);
    s->rest = BUF(MCP_MESSAGE_MAX);
    snprintf(s->owner, sizeof(s->owner), "%s", owner);
    snprintf(s->id, sizeof(s->id), "%s", id);
    const struct mcp_wire wire = {s, session_send, session_wrong};
    s->core = mcp_session_new(h->config.backend, backend_arg, &wire);
    session_link(h, s);
    if (*id) {
        s->standalone = mcp_http_stream_new(s);
        s->standalone->begun = true;
    }
    h->config.opened(backend_arg, s->core);
    return s;
}

struct session *mcp_http_session_open(struct mcp_http *h, const char *owner, const void *who,
                                      const char *id, struct err *err) {
    if (h->session_count == MCP_SESSIONS_MAX || sessions_of(h, owner) == MCP_SESSIONS_EACH) {
        err_set(err, ERR_LIMIT, "too many MCP sessions are open");
        err_remedy(err, "end a session with DELETE, or wait until an idle session expires");
        return NULL;
    }
    void *backend_arg = h->config.open(h->config.arg, who, id, err);
    return backend_arg ? session_new(h, owner, backend_arg, id) : NULL;
}

static void session_free(struct session *s) {
    struct mcp_http *h = s->http;
    struct http_exchange *line = TAKE(s->line);
    s->closing = true;
    mcp_session_free(s->core);
    while (s->streams)
        mcp_http_stream_free(s->streams);
    if (line) {
        line->user = NULL;
        line->on_gone = NULL;
        http_end(line);
        h->busy--;
    }
    h->config.close(s->backend_arg);
    buf_done(&s->rest);
    *s->at = s->next;
    if (s->next)
        s->next->at = s->at;
    h->session_count--;
    free(s);
}

static struct session *session_find(struct mcp_http *h, const char *owner, struct http_text id) {
    for (struct session *s = h->sessions; s; s = s->next)
        if (s->id[0] && !s->stateless && http_text_is(id, s->id) && strcmp(s->owner, owner) == 0) {
            s->used_ms = mcp_http_now(h);
            return s;
        }
    return NULL;
}

/* ---- refusals ---- */

void mcp_http_refuse(struct http_exchange *x, int status, const json_t *message, int code,
                     const char *text, const char *data) {
    char *json DEFER_FREE = mcp_error_text(message, code, text, data);
    mcp_http_reply_json(x, status, NULL, json ? json : "{}", json ? strlen(json) : 2);
}

/* Finds the session that the request names. NULL: the request was refused. */
static struct session *http_named(struct mcp_http *h, struct http_exchange *x, const char *owner,
                                  const void *who, const json_t *message) {
    struct http_text id = http_field_only(x->head, "Mcp-Session-Id");
    char text[SESSION_ID_SIZE];
    if (!id.s) {
        mcp_http_refuse(x, 400, message, MCP_INVALID, "the HTTP header Mcp-Session-Id is missing",
                        NULL);
        return NULL;
    }
    struct session *s = session_find(h, owner, id);
    if (!s && who && h->config.revive && id.n < sizeof(text)) {
        snprintf(text, sizeof(text), "%.*s", (int)id.n, id.s);
        void *backend_arg = h->config.revive(h->config.arg, who, text);
        if (backend_arg) {
            s = session_new(h, owner, backend_arg, text);
            mcp_session_revive(s->core);
        }
    }
    if (!s)
        mcp_http_refuse(x, 404, message, MCP_NO_SESSION,
                        "unknown MCP session: start a new one with initialize", NULL);
    return s;
}

static bool version_served(struct http_exchange *x, const json_t *message) {
    struct http_text version = http_field_only(x->head, "MCP-Protocol-Version");
    if (!version.s || mcp_version_known(version.s, version.n))
        return true;
    mcp_http_refuse(
        x, 400, message, MCP_INVALID,
        "the MCP protocol version in the HTTP header MCP-Protocol-Version is not supported",
        mcp_versions_json());
    return false;
}

/* ---- POST ---- */

static void new_session_id(char ret[SESSION_ID_SIZE]) {
    snprintf(ret, SESSION_ID_SIZE, "%s%s", id_new('s').text, id_new('s').text + 1);
}

static struct session *session_for(struct posting *p, struct http_exchange *x,
                                   const json_t *message) {
    char id[SESSION_ID_SIZE];
    struct err err;
    if (!mcp_is_initialize(message))
        return http_named(p->http, x, p->owner, p->who, message);
    new_session_id(id);
    struct session *s = mcp_http_session_open(p->http, p->owner, p->who, id, &err);
    if (!s)
        mcp_http_refuse(x, err.code == ERR_LIMIT ? 503 : 403, message, MCP_BUSY, err.text, NULL);
    return s;
}

/*
 * Makes room for a new event stream: drops the oldest ended one if needed. False: none has ended.
 */
static bool room_for_stream(struct session *s) {
    struct stream *oldest = NULL;
    if (s->stream_count < MCP_STREAMS_MAX)
        return true;
    for (struct stream *t = s->streams; t; t = t->next)
        if (t->over)
            oldest = t;
    if (oldest)
        mcp_http_stream_free(oldest);
    return oldest;
}

static bool is_request(const json_t *message) {
    return json_object_get(message, "method") && json_object_get(message, "id");
}

void mcp_http_take_message(struct session *s, struct http_exchange *x, json_t *message) {
    struct mcp_http *h = s->http;
    bool initialize = mcp_is_initialize(message), request = is_request(message);
    if (!room_for_stream(s)) {
        mcp_http_refuse(x, 503, message, MCP_BUSY,
                        "too many event streams of this MCP session are open", NULL);
        json_decref(message);
        return;
    }
    http_hold(x);
    struct stream *t = mcp_http_stream_new(s);
    t->initialize = initialize && !s->stateless;
    t->stateless = s->stateless;
    mcp_http_listen_with(t, x);
    if (request)
        t->patience = loop_timer_new(h->config.loop, mcp_http_patience_over, t);
    uint32_t number = t->number;
    enum mcp_receipt receipt = mcp_take(s->core, message, t);
    bool answered = s->streams == NULL || s->streams->number != number;
    if (answered)
        return;
    if (receipt == MCP_ASKED && t->patience)
        loop_timer_start(t->patience, h->config.stream_ms ? h->config.stream_ms : STREAM_MS, 0);
    else if (receipt == MCP_TAKEN) {
        http_reply(mcp_http_unlisten(t), 202, NULL, NULL, 0);
        mcp_http_stream_free(t);
    }
}

static void body_came(struct http_exchange *x, const char *bytes, size_t n) {
    struct posting *p DEFER_FREE = x->user;
    char *error DEFER_FREE = NULL;
    json_t *message = mcp_parse(bytes, n, &error);
    x->user = NULL;
    x->on_gone = NULL;
    if (!message) {
        mcp_http_reply_json(x, 400, NULL, error, strlen(error));
        return;
    }
    struct session *s;
    if (mcp_http_is_stateless(x, message))
        s = mcp_http_stateless(p->http, x, p->owner, p->who, message);
    else
        s = version_served(x, message) ? session_for(p, x, message) : NULL;
    if (s)
        mcp_http_take_message(s, x, message);
    else
        json_decref(message);
}

static void collect_failed(struct http_exchange *x) {
    free(TAKE(x->user));
}

static void post(struct mcp_http *h, struct http_exchange *x, const char *owner, const void *who) {
    if (!http_list_has(x->head, "Accept", "application/json") ||
        !http_list_has(x->head, "Accept", "text/event-stream")) {
        mcp_http_refuse(
            x, 406, NULL, MCP_INVALID,
            "the HTTP header Accept must include application/json and text/event-stream", NULL);
        return;
    }
    if (!http_type_is(x->head, "application/json")) {
        mcp_http_refuse(x, 415, NULL, MCP_INVALID,
                        "the HTTP header Content-Type must be application/json", NULL);
        return;
    }
    struct posting *p = xmalloc(sizeof(*p) + h->config.who_size);
    p->http = h;
    snprintf(p->owner, sizeof(p->owner), "%s", owner);
    memcpy(p->who, who, h->config.who_size);
    x->user = p;
    x->on_gone = collect_failed;
    x->payer = http_payer(owner);
    http_collect(x, BODY_MAX, body_came);
}

/* ---- GET ---- */

/* Parses an event id: "STREAM-EVENT", two numbers. */
static int read_event_id(struct http_text text, uint32_t *ret_stream, uint32_t *ret_event) {
    char copy[32], *dash;
    uint64_t stream, event;
    if (text.n >= sizeof(copy))
        return -1;
    snprintf(copy, sizeof(copy), "%.*s", (int)text.n, text.s);
    dash = strchr(copy, '-');
    if (!dash)
        return -1;
    *dash = '\0';
    if (parse_u64(copy, 0, UINT32_MAX, &stream, NULL) < 0 ||
        parse_u64(dash + 1, 0, UINT32_MAX, &event, NULL) < 0)
        return -1;
    *ret_stream = (uint32_t)stream;
    *ret_event = (uint32_t)event;
    return 0;
}

static struct stream *stream_find(struct session *s, uint32_t number) {
    struct stream *t = s->streams;
    while (t && t->number != number)
        t = t->next;
    return t;
}

static void attach(struct stream *t, struct http_exchange *x, bool again, uint32_t after) {
    struct http_exchange *old = mcp_http_unlisten(t);
    if (old)
        /* the client reconnected before the server noticed that its old connection was gone */
        http_end(old);
    http_hold(x);
    mcp_http_listen_with(t, x);
    const struct http_pair fields[] = {{"Content-Type", "text/event-stream"},
                                       {"Cache-Control", "no-store"},
                                       {"X-Content-Type-Options", "nosniff"},
                                       {NULL, NULL}};
    http_begin(x, 200, fields, -1);
    for (struct kept *k = t->kept; k; k = k->next)
        if (!again || k->number > after)
            mcp_http_write_event(t, k);
    if (!again)
        mcp_http_add_event(t, NULL, 0);
    if (t->over) {
        mcp_http_unlisten(t);
        http_end(x);
    }
}

static void get(struct mcp_http *h, struct http_exchange *x, const char *owner, const void *who) {
    struct http_text last = http_field_only(x->head, "Last-Event-ID");
    uint32_t number = 0, event = 0;
    if (!http_list_has(x->head, "Accept", "text/event-stream")) {
        mcp_http_refuse(x, 406, NULL, MCP_INVALID,
                        "the HTTP header Accept must include text/event-stream", NULL);
        return;
    }
    struct session *s = version_served(x, NULL) ? http_named(h, x, owner, who, NULL) : NULL;
    if (!s)
        return;
    if (last.s && read_event_id(last, &number, &event) < 0) {
        mcp_http_refuse(
            x, 400, NULL, MCP_INVALID,
            "the event id in the HTTP header Last-Event-ID was not issued by this server", NULL);
        return;
    }
    struct stream *t = stream_find(s, number);
    if (!t)
        mcp_http_refuse(x, 404, NULL, MCP_INVALID, "the event stream to resume has expired", NULL);
    else if (!last.s && t->x)
        mcp_http_refuse(x, 409, NULL, MCP_INVALID,
                        "this MCP session already has an open event stream", NULL);
    else
        attach(t, x, last.s != NULL, event);
}

/* ---- DELETE, and choice of the method ---- */

static void end_session(struct mcp_http *h, struct http_exchange *x, const char *owner) {
    struct session *s = version_served(x, NULL) ? http_named(h, x, owner, NULL, NULL) : NULL;
    if (!s)
        return;
    session_free(s);
    http_reply(x, 204, NULL, NULL, 0);
}

void mcp_http_take(struct mcp_http *h, struct http_exchange *x, const char *owner,
                   const void *who) {
    if (http_text_is(x->head->method, "POST"))
        post(h, x, owner, who);
    else if (http_text_is(x->head->method, "GET"))
        get(h, x, owner, who);
    else if (http_text_is(x->head->method, "DELETE"))
        end_session(h, x, owner);
    else
        http_reply(x, 405, HTTP_FIELDS({"Allow", "GET, POST, DELETE"}), NULL, 0);
}

/* ---- sessions of JSON lines ---- */

static void line_take(struct session *s, const char *bytes, size_t n) {
    char *error DEFER_FREE = NULL;
    while (n && (bytes[n - 1] == '\r' || bytes[n - 1] == ' '))
        n--;
    if (!n)
        return;
    json_t *message = mcp_parse(bytes, n, &error);
    if (message)
        mcp_take(s->core, message, NULL);
    else
        line_send(s, error, strlen(error));
}

static void line_gone(struct http_exchange *x) {
    session_free(x->user);
}

static void lines_came(struct http_exchange *x, const char *bytes, size_t n) {
    struct session *s = x->user;
    if (!s)
        return;
    if (!n) {
        session_free(s);
        return;
    }
    s->used_ms = mcp_http_now(s->http);
    if (!buf_add(&s->rest, bytes, n)) {
        char *error DEFER_FREE =
            mcp_error_text(NULL, MCP_PARSE, "the MCP message is too long", NULL);
        line_send(s, error, strlen(error));
        session_free(s);
        return;
    }
    char *at = s->rest.data, *end;
    size_t left = s->rest.len;
    for (; (end = memchr(at, '\n', left)); left -= (size_t)(end + 1 - at), at = end + 1)
        line_take(s, at, (size_t)(end - at));
    buf_drop(&s->rest, s->rest.len - left);
}

void mcp_http_lines(struct mcp_http *h, struct http_exchange *x, const char *owner,
                    const void *who) {
    struct err err;
    struct session *s = mcp_http_session_open(h, owner, who, "", &err);
    if (!s) {
        mcp_http_refuse(x, err.code == ERR_LIMIT ? 503 : 403, NULL, MCP_BUSY, err.text, NULL);
        return;
    }
    s->line = x;
    h->busy++;
    x->user = s;
    x->on_gone = line_gone;
    http_upgrade(x, 101, HTTP_FIELDS({"Upgrade", "mcp-lines"}, {"Connection", "Upgrade"}),
                 lines_came);
}

/* ---- timer, start and stop ---- */

/* SSE comments keep idle streams alive and detect closed connections. */
static void tick_session(struct session *s) {
    struct mcp_http *h = s->http;
    uint64_t kept_ms = h->config.kept_ms ? h->config.kept_ms : KEPT_MS;
    bool used = s->line != NULL;
    for (struct stream *t = s->streams, *next; t; t = next) {
        next = t->next;
        if (t->x && t->begun)
            http_write(t->x, ":\n\n", 3);
        used |= t->x || (!t->over && t != s->standalone);
        if (t->over && mcp_http_now(h) - t->over_ms > kept_ms)
            mcp_http_stream_free(t);
    }
    if (used)
        s->used_ms = mcp_http_now(h);
}

static void tick(void *arg) {
    struct mcp_http *h = arg;
    uint64_t idle_ms = h->config.idle_ms ? h->config.idle_ms : IDLE_MS;
    for (struct session *s = h->sessions, *next; s; s = next) {
        next = s->next;
        tick_session(s);
        if (mcp_http_now(h) - s->used_ms > idle_ms)
            session_free(s);
    }
}

struct mcp_http *mcp_http_new(const struct mcp_http_config *config) {
    struct mcp_http *h = xnew(struct mcp_http);
    h->config = *config;
    h->tick = loop_timer_new(config->loop, tick, h);
    loop_timer_start(h->tick, TICK_MS, TICK_MS);
    return h;
}

void mcp_http_free(struct mcp_http *h) {
    if (!h)
        return;
    while (h->sessions)
        session_free(h->sessions);
    loop_timer_free(h->tick);
    free(h);
}

size_t mcp_http_busy(const struct mcp_http *h) {
    return h->busy;
}
