/* Uploads and archives: the guest's tools do them, fed by a body or read into an answer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/file_patch.h"
#include "api/file_words.h"
#include "api/route.h"
#include "base/defer.h"
#include "service/tool_run.h"

/* A body that becomes a tool's input, or a tool's output that becomes an answer. */
struct transfer {
    struct call *call;
    struct tool_run *tool;
    struct buf rest; /* of the body: came and was not taken yet */
    bool body_ended;
    uint64_t unsent; /* output that waits for the client */
};

enum { TRANSFER_REST_MAX = 1 << 20 };

static struct transfer *transfer_new(struct call *c) {
    struct transfer *t = calloc(1, sizeof(*t));
    if (!t)
        abort();
    t->call = c;
    t->rest = BUF(TRANSFER_REST_MAX);
    c->user = t;
    return t;
}

static void transfer_free(struct transfer *t) {
    buf_done(&t->rest);
    free(t);
}

static void transfer_gone(struct call *c) {
    struct transfer *t = c->user;
    tool_cancel(t->tool);
    transfer_free(t);
    call_abandon(c);
}

static void push(struct transfer *t) {
    size_t n = tool_feed(t->tool, t->rest.data ? t->rest.data : "", t->rest.len, t->body_ended);
    if (n)
        memmove(t->rest.data, t->rest.data + n, t->rest.len - n);
    t->rest.len -= n;
    if (t->body_ended)
        return;
    if (t->rest.len)
        call_body_pause(t->call);
    else
        call_body_resume(t->call);
}

static void upload_room(void *arg) {
    struct transfer *t = arg;
    if (t->rest.len || t->body_ended)
        push(t);
}

static void upload_piece(struct call *c, const char *bytes, size_t n) {
    struct transfer *t = c->user;
    struct err err;
    t->body_ended = n == 0;
    if (n && !buf_add(&t->rest, bytes, n)) {
        err_set(&err, ERR_LIMIT, "the machine does not take the body");
        tool_cancel(t->tool);
        transfer_free(t);
        call_error(c, &err);
        return;
    }
    push(t);
}

/* answer: "HASH SIZE", or nothing; said: what an archive had and the machine did not take. */
static void answer_written(struct call *c, const char *answer, const char *said) {
    struct buf text DEFER(buf_done) = BUF(32768);
    struct jot j = JOT(&text);
    char hash[65] = "";
    unsigned long long size = 0;
    jot_object(&j, NULL);
    if (sscanf(answer, "%64[0-9a-f] %llu", hash, &size) == 2) {
        jot_string(&j, "sha256", hash);
        jot_u64(&j, "size", size);
    }
    if (*said)
        jot_string(&j, "left_out", said);
    jot_end(&j, '}');
    call_json(c, 200, &j, &text);
}

static void upload_ended(void *arg, int status, const char *answer, const char *said,
                         const struct err *failed) {
    struct transfer *t = arg;
    struct call *c = t->call;
    struct err err;
    transfer_free(t);
    c->on_gone = NULL;
    if (failed) {
        call_error(c, failed);
    } else if (status == MSG_TOOL_UNMET) {
        err_set(&err, ERR_EXISTS, "the file is not as expected: it is %.80s",
                strncmp(answer, "absent", 6) == 0 ? "absent" : answer);
        err_remedy(&err, "read it again, then write with its hash in if_hash");
        call_error_status(c, 412, &err);
    } else if (status == MSG_TOOL_FAILED) {
        tool_said(said, &err);
        call_error(c, &err);
    } else {
        answer_written(c, answer, status == MSG_TOOL_PARTLY ? said : "");
    }
}

static void start_upload(struct call *c, const char *verb, const char *const *argv) {
    struct transfer *t = transfer_new(c);
    struct err err;
    const struct tool_events events = {.arg = t, .room = upload_room, .ended = upload_ended};
    t->tool = service_tool(c->service, &c->who, c->params[0], verb, argv, call_query(c, "user"),
                           &events, &err);
    if (!t->tool) {
        transfer_free(t);
        call_error(c, &err);
        return;
    }
    c->on_gone = transfer_gone;
    call_body(c, INT64_MAX, upload_piece);
}

static bool is_condition(const char *text) {
    return strcmp(text, "absent") == 0 ||
           (strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64);
}

static void write_at(struct call *c, struct msg_path *m, const char *condition) {
    struct err err;
    uint64_t offset = 0;
    if (condition || call_flag(c, "sync"))
        err_set(&err, ERR_INVALID, "parameter 'offset' excludes 'if_hash' and 'sync'");
    else if (call_number(c, "offset", 0, INT64_MAX / 2, &offset, &err) == 0) {
        m->mode = call_query(c, "mode") ? m->mode : 0644;
        file_patch(c, m, offset);
        return;
    }
    call_error(c, &err);
}

void api_file_write(struct call *c) {
    struct msg_path m;
    struct err err;
    const char *condition = call_query(c, "if_hash"), *mode = call_query(c, "mode");
    if (file_words(c, &m) < 0)
        return;
    if (condition && !is_condition(condition)) {
        err_set(&err, ERR_INVALID, "parameter 'if_hash' is a SHA-256 in lower-case hex, or absent");
        call_error(c, &err);
        return;
    }
    if (mode && file_mode(mode, "parameter", &m.mode, &err) < 0) {
        call_error(c, &err);
        return;
    }
    if (call_query(c, "offset")) {
        write_at(c, &m, condition);
        return;
    }
    const char *const argv[] = {"put",
                                m.path.s,
                                condition ? condition : "any",
                                mode ? mode : "644",
                                call_flag(c, "sync") ? "sync" : NULL,
                                NULL};
    start_upload(c, "file.write", argv);
}

void api_tar_write(struct call *c) {
    struct msg_path m;
    if (file_words(c, &m) < 0)
        return;
    const char *const argv[] = {"untar", m.path.s, NULL};
    start_upload(c, "file.untar", argv);
}

/* ---- archives out ---- */

static void pack_data(void *arg, const uint8_t *p, uint32_t n) {
    struct transfer *t = arg;
    if (!t->call->streaming)
        call_begin(t->call, 200, "application/x-tar", NULL);
    t->unsent += n;
    if (call_write(t->call, p, n)) {
        tool_consumed(t->tool, t->unsent);
        t->unsent = 0;
    }
}

static void pack_drained(struct call *c) {
    struct transfer *t = c->user;
    tool_consumed(t->tool, t->unsent);
    t->unsent = 0;
}

static void pack_ended(void *arg, int status, const char *answer, const char *said,
                       const struct err *failed) {
    struct transfer *t = arg;
    struct call *c = t->call;
    struct err err;
    (void)answer;
    transfer_free(t);
    c->on_gone = c->on_drain = NULL;
    if (!failed && status != MSG_TOOL_FAILED) {
        if (!c->streaming)
            call_begin(c, 200, "application/x-tar", NULL);
        call_end(c);
        return;
    }
    if (!failed) {
        tool_said(said, &err);
        failed = &err;
    }
    if (c->streaming)
        call_abandon(c); /* cut off, so that nobody takes it for whole */
    else
        call_error(c, failed);
}

void api_tar_read(struct call *c) {
    struct msg_path m;
    struct err err;
    if (file_words(c, &m) < 0)
        return;
    const char *const argv[] = {"tar", m.path.s, NULL};
    struct transfer *t = transfer_new(c);
    const struct tool_events events = {.arg = t, .data = pack_data, .ended = pack_ended};
    t->tool = service_tool(c->service, &c->who, c->params[0], "file.tar", argv,
                           call_query(c, "user"), &events, &err);
    if (!t->tool) {
        transfer_free(t);
        call_error(c, &err);
        return;
    }
    c->on_gone = transfer_gone;
    c->on_drain = pack_drained;
    tool_feed(t->tool, "", 0, true);
}
