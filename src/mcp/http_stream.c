/*
 * Event streams of MCP over HTTP: a client may disconnect and resume after the last event that it
 * saw.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/id.h"
#include "io/sse.h"
#include "mcp/http.h"
#include "mcp/http_inner.h"

static void listener_gone(struct http_exchange *x);

void mcp_http_listen_with(struct stream *t, struct http_exchange *x) {
    t->x = x;
    x->user = t;
    x->on_gone = listener_gone;
    x->on_drain = NULL;
    t->session->http->busy++;
}

/* Detaches the HTTP exchange from the stream; the caller ends the exchange. */
struct http_exchange *mcp_http_unlisten(struct stream *t) {
    struct http_exchange *x = TAKE(t->x);
    if (x) {
        x->user = NULL;
        x->on_gone = NULL;
        t->session->http->busy--;
    }
    return x;
}

static void kept_drop(struct stream *t) {
    struct kept *k = t->kept;
    t->kept = k->next;
    if (!t->kept)
        t->kept_end = &t->kept;
    t->kept_bytes -= k->n;
    t->kept_count--;
    free(k);
}

struct stream *mcp_http_stream_new(struct session *s) {
    struct stream *t = xnew(struct stream);
    t->session = s;
    t->number = s->stream_numbers++;
    t->kept_end = &t->kept;
    t->next = s->streams;
    t->at = &s->streams;
    if (t->next)
        t->next->at = &t->next;
    s->streams = t;
    s->stream_count++;
    return t;
}

void mcp_http_stream_free(struct stream *t) {
    struct http_exchange *x = mcp_http_unlisten(t);
    if (x)
        http_end(x);
    while (t->kept)
        kept_drop(t);
    loop_timer_free(t->patience);
    *t->at = t->next;
    if (t->next)
        t->next->at = t->at;
    t->session->stream_count--;
    free(t);
}

static bool put_event(struct buf *out, const struct stream *t, const struct kept *k) {
    char id[32];
    snprintf(id, sizeof(id), "%" PRIu32 "-%" PRIu32, t->number, k->number);
    const struct sse_event event = {.id = id,
                                    .name = k->n ? "message" : NULL,
                                    .data = k->text,
                                    .n = k->n,
                                    .retry_ms = k->n ? 0 : RETRY_MS};
    return sse_put(out, &event);
}

void mcp_http_write_event(struct stream *t, const struct kept *k) {
    struct buf out DEFER(buf_done) = BUF(2 * MCP_MESSAGE_MAX);
    if (t->x && put_event(&out, t, k))
        http_write(t->x, out.data, out.len);
}

static void write_unkept(struct stream *t, const char *json, size_t n) {
    struct buf out DEFER(buf_done) = BUF(2 * MCP_MESSAGE_MAX);
    const struct sse_event event = {.name = "message", .data = json, .n = n};
    if (n && t->x && sse_put(&out, &event))
        http_write(t->x, out.data, out.len);
}

/*
 * Sends an event and keeps it, so that a client can resume. n = 0: the empty event that starts a
 * stream.
 */
void mcp_http_add_event(struct stream *t, const char *json, size_t n) {
    if (t->stateless) {
        write_unkept(t, json, n);
        return;
    }
    struct kept *k = xmalloc(sizeof(*k) + n + 1);
    *k = (struct kept){.number = t->events++, .n = n};
    memcpy(k->text, json ? json : "", n);
    k->text[n] = '\0';
    mcp_http_write_event(t, k);
    *t->kept_end = k;
    t->kept_end = &k->next;
    t->kept_bytes += n;
    t->kept_count++;
    while (t->kept != k && (t->kept_bytes > MCP_KEPT_MAX || t->kept_count > EVENTS_MAX))
        kept_drop(t);
}

static void begin_events(struct stream *t) {
    loop_timer_free(TAKE(t->patience));
    t->begun = true;
    const struct http_pair fields[] = {{"Content-Type", "text/event-stream"},
                                       {"Cache-Control", "no-store"},
                                       {"X-Content-Type-Options", "nosniff"},
                                       {t->initialize ? "Mcp-Session-Id" : NULL, t->session->id},
                                       {NULL, NULL}};
    if (t->x)
        http_begin(t->x, 200, fields, -1);
    mcp_http_add_event(t, NULL, 0);
}

void mcp_http_patience_over(void *arg) {
    begin_events(arg);
}

static void end_stream(struct stream *t) {
    struct http_exchange *x = mcp_http_unlisten(t);
    if (x)
        http_end(x);
    t->over = true;
    t->over_ms = mcp_http_now(t->session->http);
    if (t->lost || t->stateless)
        mcp_http_stream_free(t);
}

void mcp_http_reply_json(struct http_exchange *x, int status, const char *session, const char *json,
                         size_t n) {
    const struct http_pair fields[] = {{"Content-Type", "application/json"},
                                       {"Cache-Control", "no-store"},
                                       {"X-Content-Type-Options", "nosniff"},
                                       {session ? "Mcp-Session-Id" : NULL, session},
                                       {NULL, NULL}};
    http_reply(x, status, fields, json, n);
}

/* Sends an answer that came before the event stream began, so that it is a plain JSON response. */
static void answer_whole(struct stream *t, const char *json, size_t n) {
    struct http_exchange *x = mcp_http_unlisten(t);
    if (x && n)
        mcp_http_reply_json(x, t->status ? t->status : 200, t->initialize ? t->session->id : NULL,
                            json, n);
    else if (x)
        http_reply(x, 202, NULL, NULL, 0); /* the request was cancelled */
    mcp_http_stream_free(t);
}

void mcp_http_stream_send(struct stream *t, const char *json, size_t n, bool last) {
    if (t->over)
        return;
    if (last && !t->begun) {
        answer_whole(t, json, n);
        return;
    }
    if (!t->begun)
        begin_events(t);
    if (n)
        mcp_http_add_event(t, json, n);
    if (last)
        end_stream(t);
}

/*
 * Called when the client disconnected: the request continues, and a client that knows the stream's
 * id can resume it.
 */
static void listener_gone(struct http_exchange *x) {
    struct stream *t = x->user;
    mcp_http_unlisten(t);
    http_drop(x);
    if (t->stateless) {
        mcp_cancel_stream(t->session->core, t);
        mcp_http_stream_free(t);
        return;
    }
    if (t->begun || t == t->session->standalone)
        return;
    t->lost = true;
    begin_events(t);
}

void mcp_http_hang_up(struct mcp_request *r) {
    struct stream *t = r->stream;
    if (!r->session || !t)
        return;
    if (!t->begun)
        begin_events(t);
    struct http_exchange *x = mcp_http_unlisten(t);
    if (x)
        http_end(x);
}
