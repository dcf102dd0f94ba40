/* Builds of images: start, files, list, cancel, and the log as a stream. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/bodies.h"
#include "api/route.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "base/parse.h"
#include "io/sse.h"
#include "service/images/builds.h"

static void answer_build(void *arg, const struct build_view *view) {
    struct call *c = arg;
    call_view(c, c->route->status, &build_schema, view);
}

void api_build_start(struct call *c) {
    struct err err;
    if (service_build_start(c->service, &c->who, c->json, false, answer_build, c, &err) < 0)
        call_error(c, &err);
}

void api_build_list(struct call *c) {
    call_list(c, "builds", &build_schema, service_build_list);
}

void api_build_show(struct call *c) {
    struct err err;
    if (service_build_show(c->service, &c->who, c->params[0], answer_build, c, &err) < 0)
        call_error(c, &err);
}

void api_build_cancel(struct call *c) {
    struct err err;
    if (service_build_cancel(c->service, &c->who, c->params[0], answer_build, c, &err) < 0)
        call_error(c, &err);
}

/* ---- files ---- */

/* Answers a request whose upload is gone. */
static void files_ended(void *arg, const struct err *err) {
    struct call *c = arg;
    struct err why;
    c->on_gone = NULL;
    if (err)
        call_error(c, err);
    else if (service_build_show(c->service, &c->who, c->params[0], answer_build, c, &why) < 0)
        call_error(c, &why);
}

static void files_room(void *arg) {
    call_body_resume(arg);
}

static void files_gone(struct call *c) {
    build_upload_cancel(c->user);
    call_abandon(c);
}

static void files_piece(struct call *c, const char *bytes, size_t n) {
    struct build_upload *u = c->user;
    struct err err;
    if (!n) {
        build_upload_finish(u);
        return;
    }
    int r = build_upload_add(u, bytes, n, &err);
    if (r > 0) {
        call_body_pause(c);
    } else if (r < 0) {
        build_upload_cancel(u);
        files_ended(c, &err);
    }
}

void api_build_files(struct call *c) {
    uint64_t number;
    struct err err;
    if (parse_u64(c->params[1], 0, BUILD_ARCHIVES_MAX - 1, &number, &err) < 0) {
        err_set(&err, ERR_INVALID, "'%.20s' is not the number of an archive", c->params[1]);
        call_error(c, &err);
        return;
    }
    const struct build_upload_events events = {.arg = c, .room = files_room, .ended = files_ended};
    struct build_upload *u =
        service_build_upload(c->service, &c->who, c->params[0], number, &events, &err);
    if (!u) {
        call_error(c, &err);
        return;
    }
    c->user = u;
    c->on_gone = files_gone;
    call_body(c, INT64_MAX, files_piece);
}

/* ---- log ---- */

enum { LOG_PIECE = 64 << 10, LOG_LINE_MAX = 1 << 20 };

struct log_stream {
    struct call *call;
    struct build_log_reader reader;
    uint64_t at;     /* next byte of the file */
    uint64_t sent;   /* end of the last line that was sent */
    struct buf rest; /* a line that is not complete */
    bool sse, follow;
};

static void log_stream_free(struct log_stream *l) {
    build_log_close(&l->reader);
    buf_done(&l->rest);
    free(l);
}

static void log_send_line(struct log_stream *l, const char *line, size_t n) {
    struct buf out DEFER(buf_done) = BUF(2 * LOG_LINE_MAX);
    char id[24];
    l->sent += n + 1;
    snprintf(id, sizeof(id), "%llu", (unsigned long long)l->sent);
    const struct sse_event event = {.id = id, .data = line, .n = n};
    if (l->sse ? sse_put(&out, &event) : buf_add(&out, line, n) && buf_add(&out, "\n", 1))
        call_write(l->call, out.data, out.len);
}

static void log_send_end(void *arg, const struct build_view *view) {
    struct log_stream *l = arg;
    struct buf text DEFER(buf_done) = BUF(64 << 10), out DEFER(buf_done) = BUF(256 << 10);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "type", "end");
    schema_write(&build_schema, &j, "build", view);
    jot_end(&j, '}');
    const struct sse_event end = {.data = text.data, .n = text.len};
    if (l->sse ? sse_put(&out, &end) : buf_add(&out, text.data, text.len) && buf_add(&out, "\n", 1))
        call_write(l->call, out.data, out.len);
}

/* Sends the complete lines of l->rest. */
static void log_send_lines(struct log_stream *l) {
    char *end;
    size_t done = 0;
    while (done < l->rest.len && (end = memchr(l->rest.data + done, '\n', l->rest.len - done))) {
        size_t n = (size_t)(end - l->rest.data) - done;
        log_send_line(l, l->rest.data + done, n);
        done += n + 1;
    }
    buf_drop(&l->rest, done);
}

static void log_go_on(void *arg) {
    struct log_stream *l = arg;
    struct call *c = l->call;
    char *piece DEFER_FREE = xmalloc(LOG_PIECE);
    struct err err;
    while (!call_is_full(c)) {
        bool ended = l->reader.ended; /* before reading, so that all of the log is read */
        ssize_t n = pread(l->reader.fd, piece, LOG_PIECE, (off_t)l->at);
        if (n > 0 && buf_add(&l->rest, piece, (size_t)n)) {
            l->at += (uint64_t)n;
            log_send_lines(l);
            continue;
        }
        if (!ended && l->follow)
            return;
        service_build_show(c->service, &c->who, c->params[0], log_send_end, l, &err);
        log_stream_free(l);
        call_end(c);
        return;
    }
}

static void log_drained(struct call *c) {
    log_go_on(c->user);
}

static void log_gone(struct call *c) {
    log_stream_free(c->user);
    call_end(c);
}

void api_build_log(struct call *c) {
    struct log_stream *l = xnew(struct log_stream);
    struct err err;
    *l = (struct log_stream){.call = c,
                             .reader = {.changed = log_go_on, .arg = l, .fd = -1},
                             .rest = BUF(LOG_LINE_MAX),
                             .sse = call_accepts(c, "text/event-stream"),
                             .follow = call_flag(c, "follow")};
    if (call_stream_start(c, "offset", &l->at, &err) < 0 ||
        service_build_log(c->service, &c->who, c->params[0], &l->reader, &err) < 0) {
        log_stream_free(l);
        call_error(c, &err);
        return;
    }
    l->sent = l->at;
    c->user = l;
    c->on_gone = log_gone;
    c->on_drain = log_drained;
    call_begin(c, 200, l->sse ? "text/event-stream" : "application/x-ndjson", NULL);
    log_go_on(l);
}
