#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include "api/bodies.h"
#include "api/route.h"
#include "base/defer.h"
#include "base/msg.h"
#include "io/sse.h"
#include "service/files.h"
#include "service/tool_run.h"

static struct msg_str text_of(const char *s) {
    return (struct msg_str){.s = s, .n = (uint32_t)strlen(s)};
}

/* Path and user of a request whose words are in the query; -1: answered already. */
static int path_and_user(struct call *c, struct msg_path *ret) {
    const char *path = call_query(c, "path");
    struct err err;
    *ret = (struct msg_path){0};
    if (!path || path[0] != '/')
        err_set(&err, ERR_INVALID,
                path ? "parameter 'path' must be absolute, not '%.100s'"
                     : "parameter 'path' is missing",
                path);
    else if (file_user(call_query(c, "user"), &ret->uid, &err) == 0) {
        ret->gid = ret->uid;
        ret->path = text_of(path);
        return 0;
    }
    call_error(c, &err);
    return -1;
}

static int read_mode(const char *text, const char *what, uint32_t *ret, struct err *err) {
    size_t n = strlen(text);
    if (n < 1 || n > 5 || strspn(text, "01234567") != n || strtoul(text, NULL, 8) > 07777)
        return err_set(err, ERR_INVALID, "%s 'mode' is octal, such as 644, not '%.20s'", what,
                       text);
    *ret = (uint32_t)strtoul(text, NULL, 8);
    return 0;
}

/* ---- one question, one answer ---- */

static void answer_done(void *arg, const struct frame *frame, const struct err *err) {
    (void)frame;
    if (err)
        call_error(arg, err);
    else
        call_done(arg);
}

static const char *type_name(uint32_t mode) {
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "file";
    case S_IFDIR:
        return "directory";
    case S_IFLNK:
        return "symlink";
    default:
        return "other";
    }
}

static void view_entry(const struct msg_entry *e, const char *name, struct entry_view *ret) {
    *ret = (struct entry_view){
        .name = name,
        .type = type_name(e->mode),
        .size = e->size,
        .uid = e->uid,
        .gid = e->gid,
        .mtime_ms = e->mtime_ns / 1000000,
        .target = e->target.n ? e->target.s : NULL,
    };
    snprintf(ret->mode, sizeof(ret->mode), "%04o", e->mode & 07777);
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static void answer_stat(void *arg, const struct frame *frame, const struct err *err) {
    struct call *c = arg;
    struct msg_entry entry;
    struct entry_view view;
    struct err bad;
    if (!err && msg_decode(frame, &entry, sizeof(entry)) < 0) {
        err_set(&bad, ERR_INTERNAL, "the machine answered nonsense");
        err = &bad;
    }
    if (err) {
        call_error(c, err);
        return;
    }
    view_entry(&entry, base_name(call_query(c, "path")), &view);
    call_view(c, 200, &entry_schema, &view);
}

void api_file_stat(struct call *c) {
    struct msg_path m;
    if (path_and_user(c, &m) < 0)
        return;
    m.flags = call_flag(c, "follow") ? 0 : MSG_NOFOLLOW;
    service_file(c->service, &c->who, c->params[0], MSG_STAT, &m, m.path.s, answer_stat, c);
}

static void answer_list(void *arg, const struct frame *frame, const struct err *err) {
    struct call *c = arg;
    struct buf text DEFER(buf_done) = BUF(CALL_BODY_MAX);
    struct jot j = JOT(&text);
    struct msg_list_page page = {0};
    struct msg_entry entry;
    struct err bad;
    int more = 0;
    if (err) {
        call_error(c, err);
        return;
    }
    jot_object(&j, NULL);
    jot_array(&j, "entries");
    if (msg_decode(frame, &page, sizeof(page)) == 0)
        while ((more = msg_entry_next(&page.entries, &entry)) > 0) {
            struct entry_view view;
            view_entry(&entry, entry.name.s, &view);
            schema_write(&entry_schema, &j, NULL, &view);
        }
    else
        more = -1;
    if (more < 0) {
        err_set(&bad, ERR_INTERNAL, "the machine answered nonsense");
        call_error(c, &bad);
        return;
    }
    jot_end(&j, ']');
    if (page.next) {
        char next[24];
        snprintf(next, sizeof(next), "%" PRIu64, page.next);
        jot_string(&j, "next", next);
    }
    jot_end(&j, '}');
    call_json(c, 200, &j, &text);
}

void api_file_list(struct call *c) {
    struct msg_path m;
    struct err err;
    uint64_t limit = 1000, cookie = 0;
    if (path_and_user(c, &m) < 0)
        return;
    if (call_number(c, "limit", 1, 10000, &limit, &err) < 0 ||
        call_number(c, "cursor", 0, UINT64_MAX, &cookie, &err) < 0) {
        call_error(c, &err);
        return;
    }
    struct msg_list list = {
        .uid = m.uid, .gid = m.gid, .cookie = cookie, .max = (uint32_t)limit, .path = m.path};
    service_file(c->service, &c->who, c->params[0], MSG_LIST, &list, m.path.s, answer_list, c);
}

void api_file_remove(struct call *c) {
    struct msg_path m;
    if (path_and_user(c, &m) < 0)
        return;
    m.flags = call_flag(c, "recursive") ? MSG_RECURSIVE : 0;
    service_file(c->service, &c->who, c->params[0], MSG_REMOVE, &m, m.path.s, answer_done, c);
}

/* The user of a request that has a body; false: answered already. */
static bool acting_as(struct call *c, const char *user, uint32_t *uid) {
    struct err err;
    if (file_user(user, uid, &err) == 0)
        return true;
    call_error(c, &err);
    return false;
}

void api_file_mkdir(struct call *c) {
    const struct mkdir_request *r = c->request;
    struct msg_path m = {.mode = r->mode.is ? (uint32_t)r->mode.value : 0755,
                         .flags = r->exact ? 0 : MSG_PARENTS,
                         .path = text_of(r->path)};
    if (!acting_as(c, r->user, &m.uid))
        return;
    m.gid = m.uid;
    service_file(c->service, &c->who, c->params[0], MSG_MKDIR, &m, r->path, answer_done, c);
}

void api_file_move(struct call *c) {
    const struct move_request *r = c->request;
    struct msg_move m = {
        .flags = r->no_replace ? MSG_NOREPLACE : 0, .from = text_of(r->from), .to = text_of(r->to)};
    if (!acting_as(c, r->user, &m.uid))
        return;
    m.gid = m.uid;
    service_file(c->service, &c->who, c->params[0], MSG_MOVE, &m, r->from, answer_done, c);
}

void api_file_chmod(struct call *c) {
    const struct chmod_request *r = c->request;
    struct msg_path m = {.path = text_of(r->path)};
    struct err err;
    if (read_mode(r->mode, "field", &m.mode, &err) < 0) {
        call_error(c, &err);
        return;
    }
    if (!acting_as(c, r->user, &m.uid))
        return;
    m.gid = m.uid;
    service_file(c->service, &c->who, c->params[0], MSG_CHMOD, &m, r->path, answer_done, c);
}

void api_file_chown(struct call *c) {
    const struct chown_request *r = c->request;
    struct msg_chown m = {
        .owner = r->owner.is ? (uint32_t)r->owner.value : MSG_ID_NONE,
        .group = r->group.is ? (uint32_t)r->group.value : MSG_ID_NONE,
        .path = text_of(r->path),
    };
    if (!acting_as(c, r->user ? r->user : "root", &m.uid))
        return;
    m.gid = m.uid;
    service_file(c->service, &c->who, c->params[0], MSG_CHOWN, &m, r->path, answer_done, c);
}

void api_file_symlink(struct call *c) {
    const struct symlink_request *r = c->request;
    struct msg_move m = {.from = text_of(r->target), .to = text_of(r->path)};
    if (!acting_as(c, r->user, &m.uid))
        return;
    m.gid = m.uid;
    service_file(c->service, &c->who, c->params[0], MSG_SYMLINK, &m, r->path, answer_done, c);
}

/* ---- reading, by range and whole ---- */

/* A download: a few requests under way, written out in their order. */
enum { READS_AHEAD = 4 };

struct download {
    struct call *call;
    struct msg_read next; /* the next request */
    uint64_t first, end;  /* the range; its end is cut to the file by the first answer */
    uint64_t ino, mtime_ns;
    unsigned flying;
    bool begun, full, failed;
    bool asking; /* a refusal may come before the request returns */
    struct err refusal;
};

static void read_came(void *arg, const struct frame *frame, const struct err *err);

static void ask(struct download *d) {
    uint64_t left = d->end - d->next.offset;
    struct msg_read m = d->next;
    m.bytes = left < MSG_CHUNK_MAX ? (uint32_t)left : MSG_CHUNK_MAX;
    d->next.offset += m.bytes;
    d->flying++;
    service_file(d->call->service, &d->call->who, d->call->params[0], MSG_READ, &m,
                 d->begun || d->flying > 1 ? NULL : m.path.s, read_came, d);
}

/* Asks for what comes next; after the last answer it ends the download, which is then gone. */
static void ask_more(struct download *d) {
    struct call *c = d->call;
    if (d->asking)
        return;
    d->asking = true;
    while (!d->failed && !d->full && d->flying < (d->begun ? READS_AHEAD : 1) &&
           d->next.offset < d->end)
        ask(d);
    d->asking = false;
    if (d->flying || !(d->failed || (d->begun && d->next.offset >= d->end)))
        return;
    if (d->begun)
        call_end(c);
    else
        call_error(c, &d->refusal);
    free(d);
}

static void begin_download(struct download *d, const struct msg_read_data *m, uint64_t offset) {
    struct call *c = d->call;
    char range[80];
    bool partial = c->http && http_field_find(c->http->head, "Range");
    if (d->end > m->size)
        d->end = m->size;
    if (offset > d->end)
        d->end = offset;
    d->begun = true;
    d->ino = m->ino;
    d->mtime_ns = m->mtime_ns;
    c->length = (int64_t)(d->end - offset);
    snprintf(range, sizeof(range), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64, offset,
             d->end ? d->end - 1 : 0, m->size);
    call_begin(c, partial ? 206 : 200, "application/octet-stream",
               partial ? HTTP_FIELDS({"Content-Range", range}) : NULL);
    if (d->next.offset > d->end)
        d->next.offset = d->end;
}

static void read_came(void *arg, const struct frame *frame, const struct err *err) {
    struct download *d = arg;
    struct call *c = d->call;
    struct msg_read_data m;
    struct err bad;
    d->flying--;
    if (!err && msg_decode(frame, &m, sizeof(m)) < 0) {
        err_set(&bad, ERR_INTERNAL, "the machine answered nonsense");
        err = &bad;
    }
    if (err && !d->begun)
        d->refusal = *err;
    else if (!d->begun)
        begin_download(d, &m, d->first);
    /* A file that was replaced meanwhile is not passed off as one: the answer stops short. */
    if (err || m.ino != d->ino)
        d->failed = true;
    else if (m.data.n && !d->failed)
        d->full = !call_write(c, m.data.p, m.data.n);
    else
        d->next.offset = d->end;
    ask_more(d);
}

static void download_drained(struct call *c) {
    struct download *d = c->user;
    d->full = false;
    ask_more(d);
}

static void download_gone(struct call *c) {
    struct download *d = c->user;
    d->failed = true;
    ask_more(d);
}

/* "bytes=A-B", one range; anything else is ignored, as RFC 9110 allows. */
static void read_range_header(struct call *c, struct download *d) {
    struct http_text range = http_field_only(c->http->head, "Range");
    char text[64], *end;
    if (!range.s || range.n >= sizeof(text))
        return;
    snprintf(text, sizeof(text), "%.*s", (int)range.n, range.s);
    if (strncmp(text, "bytes=", 6) != 0 || text[6] == '-')
        return;
    d->first = strtoull(text + 6, &end, 10);
    if (*end == '-' && end[1])
        d->end = strtoull(end + 1, NULL, 10) + 1;
}

void api_file_read(struct call *c) {
    struct msg_path m;
    if (path_and_user(c, &m) < 0)
        return;
    struct download *d = calloc(1, sizeof(*d));
    if (!d)
        abort();
    *d = (struct download){.call = c, .end = INT64_MAX};
    read_range_header(c, d);
    d->next = (struct msg_read){.uid = m.uid, .gid = m.gid, .offset = d->first, .path = m.path};
    c->user = d;
    c->on_gone = download_gone;
    c->on_drain = download_drained;
    ask_more(d);
}

/* ---- the guest's tools: uploads and archives ---- */

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

/* "ERRNO WHAT PATH" of a tool, as an error. */
static void tool_error(const char *said, struct err *err) {
    char *rest;
    long number = strtol(said, &rest, 10);
    size_t n = strcspn(rest, "\n");
    while (*rest == ' ') {
        rest++;
        n--;
    }
    if (number > 0)
        err_num(err, (int)-number, "%.*s", (int)(n < 200 ? n : 200), rest);
    else
        err_set(err, ERR_INVALID, "%.*s", (int)(n < 200 ? n : 200), n ? rest : "it failed");
}

/* "HASH SIZE" or "absent". */
static void answer_hash(struct call *c, int status, const char *answer) {
    struct buf text DEFER(buf_done) = BUF(1024);
    struct jot j = JOT(&text);
    char hash[65] = "";
    unsigned long long size = 0;
    jot_object(&j, NULL);
    if (sscanf(answer, "%64[0-9a-f] %llu", hash, &size) == 2) {
        jot_string(&j, "sha256", hash);
        jot_u64(&j, "size", size);
    }
    jot_end(&j, '}');
    call_json(c, status, &j, &text);
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
        tool_error(said, &err);
        call_error(c, &err);
    } else {
        answer_hash(c, 200, answer);
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

void api_file_write(struct call *c) {
    struct msg_path m;
    struct err err;
    const char *condition = call_query(c, "if_hash"), *mode = call_query(c, "mode");
    if (path_and_user(c, &m) < 0)
        return;
    if (condition && !is_condition(condition)) {
        err_set(&err, ERR_INVALID, "parameter 'if_hash' is a SHA-256 in lower-case hex, or absent");
        call_error(c, &err);
        return;
    }
    if (mode && read_mode(mode, "parameter", &m.mode, &err) < 0) {
        call_error(c, &err);
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
    if (path_and_user(c, &m) < 0)
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
        tool_error(said, &err);
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
    if (path_and_user(c, &m) < 0)
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

/* ---- watching ---- */

struct watcher {
    struct call *call;
    struct file_watch watch;
};

static const struct {
    uint32_t bit;
    const char *name;
} changes[] = {
    {IN_CREATE, "created"},      {IN_MODIFY, "modified"},       {IN_CLOSE_WRITE, "written"},
    {IN_DELETE, "removed"},      {IN_MOVED_FROM, "moved_from"}, {IN_MOVED_TO, "moved_to"},
    {IN_ATTRIB, "attributes"},   {IN_DELETE_SELF, "gone"},      {IN_MOVE_SELF, "gone"},
    {IN_Q_OVERFLOW, "overflow"},
};

static const char *change_name(uint32_t mask) {
    for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++)
        if (mask & changes[i].bit)
            return changes[i].name;
    return "other";
}

static void watcher_free(struct watcher *w) {
    service_file_unwatch(&w->watch);
    free(w);
}

static void watch_ready(void *arg) {
    struct watcher *w = arg;
    call_begin(w->call, 200, "text/event-stream", NULL);
    call_write(w->call, ": watching\n\n", 12);
}

/* A client that does not read is dropped by the server's own cap; changes are small. */
static void watch_event(void *arg, const struct msg_event *m) {
    struct watcher *w = arg;
    struct buf text DEFER(buf_done) = BUF(16384), out DEFER(buf_done) = BUF(32768);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "change", change_name(m->mask));
    if (m->name.n)
        jot_string(&j, "name", m->name.s);
    jot_bool(&j, "directory", m->mask & IN_ISDIR);
    if (m->cookie)
        jot_u64(&j, "cookie", m->cookie);
    jot_end(&j, '}');
    const struct sse_event event = {.name = change_name(m->mask), .data = text.data, .n = text.len};
    if (sse_put(&out, &event))
        call_write(w->call, out.data, out.len);
}

static void watch_ended(void *arg, const struct err *err) {
    struct watcher *w = arg;
    struct call *c = w->call;
    struct err named = *err;
    watcher_free(w);
    c->on_gone = NULL;
    if (c->streaming) {
        call_end(c);
        return;
    }
    err_wrap(&named, "'%.200s'", call_query(c, "path"));
    call_error(c, &named);
}

static void watch_gone(struct call *c) {
    watcher_free(c->user);
    call_abandon(c);
}

void api_file_watch(struct call *c) {
    struct msg_path m;
    struct err err;
    if (path_and_user(c, &m) < 0)
        return;
    struct watcher *w = calloc(1, sizeof(*w));
    if (!w)
        abort();
    w->call = c;
    w->watch.inner = (struct guest_watch){
        .arg = w, .ready = watch_ready, .event = watch_event, .ended = watch_ended};
    c->user = w;
    c->on_gone = watch_gone;
    if (service_file_watch(c->service, &c->who, c->params[0], &m, &w->watch, &err) < 0) {
        free(w);
        c->on_gone = NULL;
        call_error(c, &err);
    }
}
