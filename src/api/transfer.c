/*
 * Uploads and archives. A tool in the guest does the work; this file moves bytes between the
 * request or response and the tool, with zstd if asked for.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/file_patch.h"
#include "api/file_words.h"
#include "api/route.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "base/hex.h"
#include "io/http_coding.h"
#include "io/zstream.h"
#include "service/exec/tool_run.h"

/* An upload (body to tool) or a download (tool to response). */
struct transfer {
    struct call *call;
    struct tool_run *tool;
    struct buf rest; /* decompressed body bytes that the tool has not read yet */
    bool body_ended;
    struct zunpack *unpack; /* NULL: the body is not compressed */
    struct buf packed;      /* received body bytes that are still compressed */
    struct zpack *pack;     /* NULL: the response is not compressed */
    uint64_t unsent;        /* output that the client has not taken yet */
};

enum { TRANSFER_REST_MAX = 1 << 20 };

static struct transfer *transfer_new(struct call *c) {
    struct transfer *t = xnew(struct transfer);
    t->call = c;
    t->rest = BUF(TRANSFER_REST_MAX);
    t->packed = BUF(TRANSFER_REST_MAX);
    c->user = t;
    return t;
}

static void transfer_free(struct transfer *t) {
    buf_done(&t->rest);
    buf_done(&t->packed);
    zunpack_free(t->unpack);
    zpack_free(t->pack);
    free(t);
}

static void transfer_gone(struct call *c) {
    struct transfer *t = c->user;
    tool_cancel(t->tool);
    transfer_free(t);
    call_abandon(c);
}

/* Decompresses into t->rest, which must be empty. 1: there may be more; 0: no input is left. */
static int unpack_some(struct transfer *t, struct err *err) {
    unsigned char piece[ZSTREAM_OUT];
    size_t used, n;
    if (!t->unpack)
        return 0;
    if (zunpack_go(t->unpack, t->packed.data ? t->packed.data : "", t->packed.len, piece,
                   sizeof(piece), &used, &n, err) < 0)
        return -1;
    buf_drop(&t->packed, used);
    if (n && !buf_add(&t->rest, piece, n))
        abort(); /* cannot fail: t->rest was empty and has more room than a piece */
    if (!n && !used && t->body_ended && !zunpack_is_whole(t->unpack))
        return err_set(err, ERR_INVALID, "the compressed body of the request is truncated");
    return n || used;
}

/* Ends the upload with this error; later output of the tool is ignored. */
static void upload_fail(struct transfer *t, const struct err *err) {
    struct call *c = t->call;
    tool_cancel(t->tool);
    transfer_free(t);
    c->on_gone = NULL;
    call_error(c, err);
}

static void transfer_push(struct transfer *t) {
    struct err err;
    int got; /* 0: all received bytes are in t->rest or were passed to the tool */
    do {
        got = t->rest.len ? 1 : unpack_some(t, &err);
        if (got < 0) {
            upload_fail(t, &err);
            return;
        }
        bool last = t->body_ended && !(t->unpack && got);
        buf_drop(&t->rest, tool_feed(t->tool, t->rest.data ? t->rest.data : "", t->rest.len, last));
    } while (t->unpack && got && !t->rest.len);
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
        transfer_push(t);
}

static void upload_piece(struct call *c, const char *bytes, size_t n) {
    struct transfer *t = c->user;
    struct err err;
    t->body_ended = n == 0;
    c->moved += n;
    if (n && !buf_add(t->unpack ? &t->packed : &t->rest, bytes, n)) {
        err_set(&err, ERR_LIMIT, "the machine does not read the body of the request");
        upload_fail(t, &err);
        return;
    }
    transfer_push(t);
}

/* Answers an upload. answer: "HASH SIZE" or empty; said: archive entries that were skipped. */
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
        err_set(&err, ERR_EXISTS, "the file does not match parameter 'if_hash': it is %.80s",
                strncmp(answer, "absent", 6) == 0 ? "absent" : answer);
        err_remedy(&err, "read the file again and send its hash in if_hash");
        call_error_status(c, 412, &err);
    } else if (status == MSG_TOOL_FAILED) {
        tool_said(said, &err);
        call_error(c, &err);
    } else {
        c->whole = true;
        answer_written(c, answer, status == MSG_TOOL_PARTLY ? said : "");
    }
}

static void start_upload(struct call *c, const char *verb, const char *const *argv,
                         const char *user, bool packed) {
    struct transfer *t = transfer_new(c);
    struct err err;
    const struct tool_events events = {.arg = t, .room = upload_room, .ended = upload_ended};
    t->tool = service_tool(c->service, &c->who, c->params[0], verb, argv, user, &events, &err);
    if (!t->tool) {
        transfer_free(t);
        call_error(c, &err);
        return;
    }
    if (packed)
        t->unpack = zunpack_new();
    c->on_gone = transfer_gone;
    call_body(c, INT64_MAX, upload_piece);
}

void file_upload(struct call *c, const char *const *argv, const char *user) {
    start_upload(c, "file.write", argv, user, false);
}

static bool is_condition(const char *text) {
    return strcmp(text, "absent") == 0 || hex_is(text, 64);
}

static void write_at(struct call *c, struct msg_path *m, const char *condition) {
    struct err err;
    uint64_t offset = 0;
    if (condition || call_flag(c, "sync"))
        err_set(&err, ERR_INVALID,
                "parameter 'offset' cannot be combined with 'if_hash' or 'sync'");
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
        err_set(&err, ERR_INVALID,
                "parameter 'if_hash' must be a SHA-256 in lower-case hex, or 'absent'");
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
    file_upload(c, argv, call_query(c, "user"));
}

/* Reads ?compress=zstd. -1: the call was answered with an error. */
static int compress_word(struct call *c, bool *ret) {
    const char *word = call_query(c, "compress");
    struct err err;
    *ret = word && strcmp(word, "zstd") == 0;
    if (!word || *ret)
        return 0;
    err_set(&err, ERR_INVALID, "parameter 'compress' must be zstd, not '%.20s'", word);
    call_error(c, &err);
    return -1;
}

/* Reads ?compress or Content-Encoding. -1: the call was answered with an error. */
static int body_is_packed(struct call *c, bool *ret) {
    struct http_text coding = http_field_only(c->http->head, "Content-Encoding");
    struct err err;
    if (compress_word(c, ret) < 0)
        return -1;
    if (!coding.s || http_text_is_like(coding, "identity"))
        return 0;
    *ret = http_text_is_like(coding, "zstd");
    if (*ret)
        return 0;
    err_set(&err, ERR_UNSUPPORTED, "unsupported Content-Encoding '%.*s'",
            (int)(coding.n < 40 ? coding.n : 40), coding.s);
    err_remedy(&err, "use zstd or no compression");
    call_error_status(c, 415, &err);
    return -1;
}

void api_tar_write(struct call *c) {
    struct msg_path m;
    if (file_words(c, &m) < 0)
        return;
    const char *const argv[] = {"untar", m.path.s, NULL};
    bool packed = false;
    if (body_is_packed(c, &packed) == 0)
        start_upload(c, "file.untar", argv, call_query(c, "user"), packed);
}

/* ---- archives as a response ---- */

/* Accept-Encoding compresses the transfer only; ?compress makes the saved file a .zst. */
static void begin_pack(struct call *c, bool packed) {
    bool named = call_query(c, "compress");
    if (c->streaming)
        return;
    call_begin(c, 200, named ? "application/zstd" : "application/x-tar",
               packed && !named
                   ? HTTP_FIELDS({"Content-Encoding", "zstd"}, {"Vary", "Accept-Encoding"})
                   : HTTP_FIELDS({"Vary", "Accept-Encoding"}));
}

/* Compresses and sends bytes; `end`: finish. False: the client's buffer is full, wait for
 * on_drain. */
static bool send_packed(struct transfer *t, const uint8_t *p, size_t n, bool end) {
    unsigned char piece[ZSTREAM_OUT];
    bool room = true, done = false;
    size_t used;
    do {
        size_t out = zpack_go(t->pack, p, n, end, piece, sizeof(piece), &used, &done);
        if (out)
            room = call_write(t->call, piece, out);
        p += used;
        n -= used;
    } while (n || (end && !done));
    return room;
}

static void pack_data(void *arg, const uint8_t *p, uint32_t n) {
    struct transfer *t = arg;
    begin_pack(t->call, t->pack);
    t->unsent += n;
    if (t->pack ? send_packed(t, p, n, false) : call_write(t->call, p, n)) {
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
    bool whole = !failed && status != MSG_TOOL_FAILED;
    if (whole)
        begin_pack(c, t->pack);
    if (whole && t->pack)
        send_packed(t, (const uint8_t *)"", 0, true);
    transfer_free(t);
    c->on_gone = c->on_drain = NULL;
    if (whole) {
        call_end(c);
        return;
    }
    if (!failed) {
        tool_said(said, &err);
        failed = &err;
    }
    if (c->streaming)
        call_abandon(c); /* send no last chunk: the client must not take the archive for complete */
    else
        call_error(c, failed);
}

void api_tar_read(struct call *c) {
    struct msg_path m;
    struct err err;
    if (file_words(c, &m) < 0)
        return;
    bool packed;
    if (compress_word(c, &packed) < 0)
        return;
    packed |= http_coding_wanted(http_field_only(c->http->head, "Accept-Encoding"), "zstd");
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
    if (packed)
        t->pack = zpack_new();
    c->on_gone = transfer_gone;
    c->on_drain = pack_drained;
    tool_feed(t->tool, "", 0, true);
}
