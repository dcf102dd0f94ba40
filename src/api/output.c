/* Reads the log of a command for one client, at the pace of that client. */
#include "api/output.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/bodies.h"
#include "api/route.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "base/text/base64.h"
#include "base/utf8.h"
#include "io/sse.h"

enum { PIECE = 48 << 10, EVENT_MAX = 2 * PIECE * 6 + 4096 };

static const char *const stream_names[] = {"stdout", "stderr"};

struct reader {
    struct call *call;
    struct exec *exec;
    struct exec_follower follower;
    struct outlog_cursor cursor;
    void (*go_on)(struct reader *r);
    bool sse, begun, follow, hold, silent;
    bool over;    /* the last event was sent */
    uint64_t max; /* maximum bytes of each stream in a result */
    struct output_range range;
    unsigned char piece[PIECE]; /* last member: not zeroed at allocation */
};

static void reader_free(struct reader *r) {
    exec_unfollow(&r->follower);
    exec_unref(r->exec);
    free(r);
}

static void output_changed(void *arg) {
    struct reader *r = arg;
    if (!call_is_full(r->call)) /* otherwise on_drain() continues later */
        r->go_on(r);
}

static void drained(struct call *c) {
    struct reader *r = c->user;
    r->go_on(r);
}

/* Frees the reader after the client has disconnected. The command and its log continue. */
static void vanished(struct call *c) {
    struct reader *r = c->user;
    bool begun = r->begun;
    reader_free(r);
    if (begun) {
        call_end(c);
        return;
    }
    c->on_gone = c->on_drain = NULL;
    call_abandon(c);
}

static struct reader *reader_new(struct call *c, struct exec *x, bool live,
                                 void (*go_on)(struct reader *r)) {
    struct reader *r = xmalloc(sizeof(*r));
    memset(r, 0, offsetof(struct reader, piece));
    r->call = c;
    r->exec = x;
    r->go_on = go_on;
    r->follower = (struct exec_follower){.changed = output_changed, .arg = r, .wants_output = live};
    exec_follow(x, &r->follower);
    c->user = r;
    c->on_gone = vanished;
    c->on_drain = drained;
    return r;
}

/* ---- text and bytes ---- */

static void output_put_bytes(struct jot *j, const char *text_name, const char *base64_name,
                             const unsigned char *p, size_t n) {
    if (utf8_valid(p, n) && !memchr(p, 0, n)) {
        jot_bytes(j, text_name, (const char *)p, n);
        return;
    }
    char *text DEFER_FREE = xmalloc(BASE64_SIZE(n));
    base64_encode(p, n, text);
    jot_string(j, base64_name, text);
}

/* ---- a stream of events ---- */

static bool send_event(struct reader *r, const char *type, const struct buf *text) {
    struct buf line DEFER(buf_done) = BUF(2 * EVENT_MAX);
    const struct sse_event event = {.name = type, .data = text->data, .n = text->len};
    bool fits = r->sse ? sse_put(&line, &event)
                       : buf_add(&line, text->data, text->len) && buf_add(&line, "\n", 1);
    return !fits || call_write(r->call, line.data, line.len);
}

static bool send_start(struct reader *r) {
    struct buf text DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&text);
    struct exec_view view;
    exec_view(r->exec, &view);
    jot_object(&j, NULL);
    jot_string(&j, "type", "start");
    jot_string(&j, "machine", view.machine);
    jot_string(&j, "exec", view.id);
    if (view.copied)
        jot_bool(&j, "copied", true);
    if (r->call->warnings)
        jot_string(&j, "warnings", r->call->warnings);
    jot_end(&j, '}');
    return send_event(r, "start", &text);
}

static bool send_piece(struct reader *r, const struct outlog_piece *piece) {
    struct buf text DEFER(buf_done) = BUF(EVENT_MAX);
    struct jot j = JOT(&text);
    const char *name = stream_names[piece->stream];
    if (piece->left_out) {
        jot_object(&j, NULL);
        jot_string(&j, "type", "gap");
        jot_string(&j, "stream", name);
        jot_u64(&j, "offset", piece->offset - piece->left_out);
        jot_u64(&j, "bytes", piece->left_out);
        jot_end(&j, '}');
        send_event(r, "gap", &text);
        text.len = 0;
        j = JOT(&text);
    }
    if (!piece->n)
        return true;
    jot_object(&j, NULL);
    jot_string(&j, "type", name);
    jot_u64(&j, "offset", piece->offset);
    output_put_bytes(&j, "data", "data_base64", r->piece, piece->n);
    jot_end(&j, '}');
    return send_event(r, name, &text);
}

static void send_exit(struct reader *r) {
    struct buf text DEFER(buf_done) = BUF(STORE_JSON_MAX);
    struct jot j = JOT(&text);
    struct exec_view view;
    exec_view(r->exec, &view);
    jot_object(&j, NULL);
    jot_string(&j, "type", exec_is_over(r->exec) ? "exit" : "now");
    schema_write(&exec_schema, &j, "exec", &view);
    jot_end(&j, '}');
    send_event(r, "exit", &text);
}

/* Reads the next piece. It ends at a character boundary, except at the end of the stream. */
static struct outlog_piece next_piece(struct reader *r, const struct outlog *log) {
    struct outlog_piece piece = outlog_next(log, &r->cursor, r->piece, PIECE);
    if (!piece.n || exec_is_over(r->exec))
        return piece;
    size_t cut = piece.n - utf8_end(r->piece, piece.n);
    piece.n -= cut;
    r->cursor.at[piece.stream] -= cut;
    return piece;
}

/* Reports output that the log dropped at the end as a gap. */
static void send_lost(struct reader *r) {
    for (int i = 0; i < 2 && !r->silent; i++) {
        uint64_t lost = exec_lost(r->exec, i);
        if (lost)
            send_piece(r, &(struct outlog_piece){
                              .stream = i, .offset = r->cursor.at[i] + lost, .left_out = lost});
    }
}

static void events_go_on(struct reader *r) {
    const struct outlog *log = r->silent ? NULL : exec_log(r->exec);
    struct call *c = r->call;
    if (r->over)
        return;
    if (!r->begun) {
        r->begun = true;
        call_begin(c, 200, r->sse ? "text/event-stream" : "application/x-ndjson", NULL);
        send_start(r);
    }
    for (;;) {
        bool over = exec_is_over(
            r->exec); /* check before reading, so that output written before the exit is read */
        struct outlog_piece piece = {0};
        if (log)
            piece = next_piece(r, log);
        if (piece.n || piece.left_out) {
            if (!send_piece(r, &piece))
                return;
            continue;
        }
        if (!over && r->follow)
            return;
        r->over = true;
        send_lost(r);
        send_exit(r);
        if (r->hold)
            return;
        reader_free(r);
        call_end(c);
        return;
    }
}

/* True if the client has already disconnected. Then ends the call, because nothing else
 * would end the reader. */
static bool unheard(struct call *c, struct exec *x) {
    if (!call_is_gone(c))
        return false;
    exec_unref(x);
    call_abandon(c);
    return true;
}

void output_events(struct call *c, struct exec *x, const struct output_from *from) {
    if (unheard(c, x))
        return;
    struct reader *r = reader_new(c, x, !from->silent, events_go_on);
    r->sse = call_accepts(c, "text/event-stream");
    r->follow = from->follow;
    r->hold = from->hold;
    r->silent = from->silent;
    memcpy(r->cursor.at, from->offset, sizeof(r->cursor.at));
    events_go_on(r);
}

/* ---- one result ---- */

/* Appends [from, from + n) of a stream and counts the bytes that the log dropped. */
static void output_gather(struct reader *r, const struct outlog *log, int stream, uint64_t from,
                          uint64_t n, struct buf *out, uint64_t *left_out) {
    while (n) {
        struct outlog_piece piece =
            outlog_read(log, stream, from, r->piece, n < PIECE ? (size_t)n : PIECE);
        *left_out += piece.left_out;
        if (!piece.n || !buf_add(out, r->piece, piece.n))
            return;
        uint64_t step = piece.offset + piece.n - from;
        from += step;
        n = n > step ? n - step : 0;
    }
}

/* Writes the whole stream, or its head and tail if it is longer than r->max. */
static void put_stream(struct reader *r, struct jot *j, const struct outlog *log, int stream) {
    static const char *const base64_names[] = {"stdout_base64", "stderr_base64"};
    static const char *const left_names[] = {"stdout_left_out", "stderr_left_out"};
    struct buf text DEFER(buf_done) = BUF(r->max + 256);
    uint64_t left_out = 0, all = log ? outlog_extent(log, stream).produced : 0;
    if (all <= r->max) {
        if (all)
            output_gather(r, log, stream, 0, all, &text, &left_out);
    } else {
        uint64_t head = r->max / 2, tail = r->max - head;
        left_out = all - head - tail;
        output_gather(r, log, stream, 0, head, &text, &left_out);
        if (!buf_addf(&text, "\n[... %" PRIu64 " bytes left out ...]\n", left_out))
            abort();
        output_gather(r, log, stream, all - tail, tail, &text, &left_out);
    }
    output_put_bytes(j, stream_names[stream], base64_names[stream],
                     (const unsigned char *)(text.data ? text.data : ""), text.len);
    left_out += exec_lost(r->exec, stream);
    if (left_out)
        jot_u64(j, left_names[stream], left_out);
}

static void result_go_on(struct reader *r) {
    struct call *c = r->call;
    if (!exec_is_over(r->exec))
        return;
    struct buf text DEFER(buf_done) = BUF(CALL_BODY_MAX * 16);
    struct jot j = JOT(&text);
    struct exec_view view;
    const struct outlog *log = exec_log(r->exec);
    exec_view(r->exec, &view);
    jot_object(&j, NULL);
    schema_write(&exec_schema, &j, "exec", &view);
    put_stream(r, &j, log, 0);
    put_stream(r, &j, log, 1);
    jot_end(&j, '}');
    int status = c->route->status;
    reader_free(r);
    call_json(c, status, &j, &text);
}

void output_result(struct call *c, struct exec *x, uint64_t max) {
    if (unheard(c, x))
        return;
    struct reader *r = reader_new(c, x, false, result_go_on);
    r->max = max;
    result_go_on(r);
}

/* ---- bytes ---- */

static void begin_bytes(struct reader *r, const struct outlog_piece *first) {
    char left_out[24], offset[24];
    snprintf(left_out, sizeof(left_out), "%" PRIu64, first->left_out);
    snprintf(offset, sizeof(offset), "%" PRIu64, first->offset);
    bool is_left = exec_is_over(r->exec) && !exec_log_is_closed(r->exec);
    r->begun = true;
    call_begin(r->call, 200, "application/octet-stream",
               HTTP_FIELDS({"Carrel-Left-Out", left_out}, {"Carrel-Offset", offset},
                           {"Carrel-Left-Open", is_left ? "1" : "0"}));
}

static void bytes_go_on(struct reader *r) {
    const struct outlog *log = exec_log(r->exec);
    struct output_range *range = &r->range;
    struct call *c = r->call;
    for (;;) {
        bool closed = exec_log_is_closed(r->exec); /* before reading, as in events_go_on() */
        struct outlog_piece piece = {.offset = range->offset};
        size_t want = range->limit && range->limit < PIECE ? (size_t)range->limit : PIECE;
        if (log)
            piece = outlog_read(log, range->stream, range->offset, r->piece, want);
        bool ended = log && outlog_extent(log, range->stream).ended;
        if (r->begun && piece.left_out)
            break; /* stop at a gap: the next request from here gets Carrel-Left-Out */
        if (!r->begun)
            begin_bytes(r, &piece);
        range->offset = piece.offset + piece.n;
        if (piece.n) {
            bool room = call_write(c, r->piece, piece.n);
            if (range->limit && (range->limit -= piece.n) == 0)
                break;
            if (!room)
                return;
            continue;
        }
        if (!range->follow || ended || closed)
            break;
        return;
    }
    reader_free(r);
    call_end(c);
}

void output_bytes(struct call *c, struct exec *x, const struct output_range *range) {
    if (unheard(c, x))
        return;
    struct reader *r = reader_new(c, x, true, bytes_go_on);
    r->range = *range;
    bytes_go_on(r);
}
