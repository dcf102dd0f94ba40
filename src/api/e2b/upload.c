/*
 * POST /files: one file from the body, or the files of a multipart form. Each is written under a
 * temporary name beside its place, given to the user, and renamed once it is whole. So an upload
 * that is cut leaves the file before it, or none. Watches report the rename as E2B reports a write
 * in place.
 *
 * One message to the machine is under way at a time, and the body waits meanwhile.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "api/e2b/entries.h"
#include "api/e2b/metadata.h"
#include "api/e2b/multipart.h"
#include "api/e2b/transfers.h"
#include "api/e2b/watches.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "base/hex.h"
#include "io/gzip.h"
#include "io/http_uri.h"
#include "service/files.h"

enum {
    PACKED_MAX = 1 << 20,
    WAITING_MAX = 256 << 10,
    FILES_MAX = 1000,
    LINKS_MAX = 16,
    FILE_MODE = 0644,
    TEMPORARY_RANDOM = 8,
};

struct upload {
    struct envd_call *call;
    struct multipart form; /* `in` holds the body, whether it is a form or not */
    bool is_form;
    struct gzip *unpacker; /* NULL: the body is not compressed */
    struct buf packed;     /* what came and is still compressed */
    struct buf answer;
    struct jot jot;
    bool unpacked; /* its compressed stream has ended */
    bool ended;    /* the whole body came */
    bool busy;     /* a message to the machine is under way */
    bool gone;     /* the client left */
    bool paused;   /* the body waits */
    bool going;    /* upload_go_on() runs */
    bool failed;
    struct err why;
    bool is_open, skips; /* inside a part; this part is not a file */
    bool single_over;
    unsigned files;
    struct metadata metadata;
    bool has_temporary, has_labels;
    uint32_t mode;  /* of the file that is replaced, or FILE_MODE */
    unsigned links; /* symlinks that led to the goal */
    uint64_t offset;
    struct msg_bytes data;
    char target[ENVD_PATH_SIZE]; /* the parameter `path`; empty: not given */
    char path[ENVD_PATH_SIZE], parent[ENVD_PATH_SIZE];
    char goal[ENVD_PATH_SIZE]; /* the path, or where it leads if it is a symlink */
    char temporary[ENVD_PATH_SIZE];
    uint8_t piece[MULTIPART_DATA_MAX];
};

static void upload_free(struct upload *u) {
    multipart_done(&u->form);
    gzip_free(u->unpacker);
    buf_done(&u->packed);
    buf_done(&u->answer);
    metadata_done(&u->metadata);
    free(u);
}

static int status_of(const struct err *err) {
    switch (err->code) {
    case ERR_LIMIT:
        return 507;
    case ERR_NOT_FOUND:
        return 404;
    case ERR_INVALID:
        return 400;
    default:
        return connect_code_status(connect_code_of(err->code));
    }
}

static void upload_note(struct upload *u, const struct err *why) {
    if (!u->failed)
        u->why = *why;
    u->failed = true;
}

static void upload_fail(struct upload *u) {
    struct envd_call *c = u->call;
    bool gone = u->gone;
    struct err why = u->why;
    upload_free(u);
    c->on_gone = NULL;
    if (gone)
        envd_drop(c);
    else
        envd_refuse(c, status_of(&why), "%s", why.text);
}

static void upload_answer(struct upload *u) {
    struct envd_call *c = u->call;
    jot_end(&u->jot, ']');
    struct buf text = u->answer;
    u->answer = (struct buf){0};
    upload_free(u);
    c->on_gone = NULL;
    if (c->uploaded) {
        buf_done(&text);
        c->uploaded(c);
        return;
    }
    envd_reply(c, 200,
               HTTP_FIELDS({"Content-Type", "application/json"}, {"Cache-Control", "no-store"}),
               text.data, text.len);
    buf_done(&text);
}

static void upload_go_on(struct upload *u);

/* A message to the machine was answered. True: it was done, and the client is still there. */
static bool upload_back(struct upload *u, const struct err *err) {
    u->busy = false;
    if (err)
        upload_note(u, err);
    return !u->failed && !u->gone;
}

/* ---- one file ---- */

/* A message about the temporary file. No step follows: it would hold that name. */
static void temporary_send(struct upload *u, uint16_t type, const void *msg, const char *path,
                           guest_reply_fn *done) {
    struct envd_call *c = u->call;
    u->busy = true;
    service_file_piece(c->service, &c->who, c->machine, type, msg, path, done, u);
}

static struct msg_str path_text(const char *path) {
    return (struct msg_str){path, (uint32_t)strlen(path)};
}

static void file_over(struct upload *u) {
    const char *slash = strrchr(u->path, '/');
    jot_object(&u->jot, NULL);
    jot_string(&u->jot, "name", slash + 1);
    jot_string(&u->jot, "path", u->path);
    jot_string(&u->jot, "type", "file");
    if (u->has_labels) {
        jot_object(&u->jot, "metadata");
        for (uint32_t i = 0; i < u->metadata.count; i += 2)
            jot_string(&u->jot, u->metadata.texts[i], u->metadata.texts[i + 1]);
        jot_end(&u->jot, '}');
    }
    jot_end(&u->jot, '}');
}

static void file_moved(void *arg, const struct frame *frame, const struct err *err) {
    struct upload *u = arg;
    (void)frame;
    u->has_temporary = err != NULL;
    if (upload_back(u, err))
        file_over(u);
    upload_go_on(u);
}

/* Where files are kept, the machine itself refuses: the file may have been made meanwhile. */
static void file_move(struct upload *u) {
    const struct msg_move m = {.uid = MSG_ID_NONE,
                               .gid = MSG_ID_NONE,
                               .flags = u->call->keeps_files ? MSG_NOREPLACE : 0,
                               .from = path_text(u->temporary),
                               .to = path_text(u->goal)};
    u->busy = true;
    envd_file(u->call, MSG_MOVE, &m, u->path, file_moved, u);
}

/* A filesystem without attributes keeps the file, as at E2B; the answer shows no metadata then. */
static void file_labelled(void *arg, const struct frame *frame, const struct err *err) {
    struct upload *u = arg;
    (void)frame;
    u->has_labels = !err;
    if (upload_back(u, err && err->code == ERR_UNSUPPORTED ? NULL : err))
        file_move(u);
    else
        upload_go_on(u);
}

static void file_label(struct upload *u) {
    const struct msg_meta_set m = {
        .uid = MSG_ID_NONE,
        .gid = MSG_ID_NONE,
        .path = path_text(u->temporary),
        .pairs = {.v = (const char *const *)u->metadata.texts, .count = u->metadata.count}};
    if (u->metadata.count)
        temporary_send(u, MSG_META_SET, &m, NULL, file_labelled);
    else
        file_move(u);
}

static void file_dressed(void *arg, const struct frame *frame, const struct err *err) {
    struct upload *u = arg;
    (void)frame;
    if (upload_back(u, err))
        file_label(u);
    else
        upload_go_on(u);
}

static void file_given(void *arg, const struct frame *frame, const struct err *err) {
    struct upload *u = arg;
    const struct msg_path m = {.uid = MSG_ID_NONE,
                               .gid = MSG_ID_NONE,
                               .flags = MSG_NOFOLLOW,
                               .mode = u->mode,
                               .path = path_text(u->temporary)};
    if (u->mode == FILE_MODE)
        file_dressed(arg, frame, err);
    else if (upload_back(u, err))
        temporary_send(u, MSG_CHMOD, &m, NULL, file_dressed);
    else
        upload_go_on(u);
}

static void file_end(struct upload *u) {
    const struct msg_chown m = {.uid = MSG_ID_NONE,
                                .gid = MSG_ID_NONE,
                                .flags = MSG_NOFOLLOW,
                                .owner = u->call->user.uid,
                                .group = u->call->user.gid,
                                .path = path_text(u->temporary)};
    u->is_open = false;
    u->files++;
    temporary_send(u, MSG_CHOWN, &m, NULL, file_given);
}

static void file_written(void *arg, const struct frame *frame, const struct err *err) {
    struct upload *u = arg;
    (void)frame;
    u->offset += u->data.n;
    upload_back(u, err);
    upload_go_on(u);
}

/* The first message makes the file, and stands in the journal. */
static void file_write(struct upload *u, const void *bytes, size_t n, bool first) {
    memcpy(u->piece, bytes, n);
    u->data = (struct msg_bytes){u->piece, (uint32_t)n};
    const struct msg_write m = {.uid = MSG_ID_NONE,
                                .gid = MSG_ID_NONE,
                                .flags = MSG_NOFOLLOW | (first ? MSG_CREATE | MSG_EXCLUSIVE : 0),
                                .mode = FILE_MODE,
                                .offset = u->offset,
                                .path = path_text(u->temporary),
                                .data = u->data};
    temporary_send(u, MSG_WRITE, &m, first ? u->path : NULL, file_written);
}

/* ---- the place of a file ---- */

static int temporary_name(struct upload *u, const char *prefix, struct err *err) {
    uint8_t random[TEMPORARY_RANDOM];
    char hex[2 * TEMPORARY_RANDOM + 1];
    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return err_sys(err, "cannot choose a temporary name");
    hex_put(random, sizeof(random), hex);
    int dir = (int)(strrchr(u->goal, '/') - u->goal);
    int n = snprintf(u->temporary, sizeof(u->temporary), "%.*s/%s%s", dir, u->goal, prefix, hex);
    return n < (int)sizeof(u->temporary)
               ? 0
               : err_set(err, ERR_INVALID, "path '%.100s' is too long", u->path);
}

static int goal_follow(struct upload *u, const struct msg_str *target, struct err *err) {
    char next[ENVD_PATH_SIZE];
    int dir = *target->s == '/' ? 0 : (int)(strrchr(u->goal, '/') + 1 - u->goal);
    int n = snprintf(next, sizeof(next), "%.*s%s", dir, u->goal, target->s);
    if (++u->links > LINKS_MAX || !target->n || n >= (int)sizeof(next))
        return err_set(err, ERR_INVALID, "path '%.200s' is a symlink that leads too far", u->path);
    memcpy(u->goal, next, (size_t)n + 1);
    return 0;
}

/* 1: the goal is a symlink, and is now what that leads to. */
static int goal_check(struct upload *u, const struct frame *frame, struct err *err) {
    struct msg_entry e;
    if (msg_get_entry(frame, &e) < 0)
        return err_set(err, ERR_INTERNAL,
                       "the guest process of the machine sent a malformed reply");
    if (S_ISLNK(e.mode) && !u->call->keeps_files)
        return goal_follow(u, &e.target, err) < 0 ? -1 : 1;
    if (!S_ISREG(e.mode) && !S_ISLNK(e.mode))
        return err_set(err, ERR_INVALID, "path '%.200s' is %s", u->path,
                       S_ISDIR(e.mode) ? "a directory" : "not a regular file");
    if (u->call->keeps_files)
        return err_set(err, ERR_EXISTS, "path '%.200s' exists", u->path);
    u->mode = e.mode & 0777;
    return temporary_name(u, WATCH_HIDES_OLD, err);
}

static void goal_seen(void *arg, const struct frame *frame, const struct err *err);

static void goal_ask(struct upload *u) {
    const struct msg_path m = {
        .uid = MSG_ID_NONE, .gid = MSG_ID_NONE, .flags = MSG_NOFOLLOW, .path = path_text(u->goal)};
    u->busy = true;
    envd_file(u->call, MSG_STAT, &m, NULL, goal_seen, u);
}

static void goal_seen(void *arg, const struct frame *frame, const struct err *err) {
    struct upload *u = arg;
    struct err why;
    int r;
    if (err && err->code == ERR_NOT_FOUND)
        r = temporary_name(u, WATCH_HIDES_NEW, &why);
    else
        r = err ? 0 : goal_check(u, frame, &why);
    if (r < 0)
        err = &why;
    else if (err && err->code == ERR_NOT_FOUND)
        err = NULL;
    if (!upload_back(u, err)) {
        upload_go_on(u);
    } else if (r > 0) {
        goal_ask(u);
    } else {
        u->has_temporary = true;
        file_write(u, "", 0, true);
    }
}

static void file_parent_ready(void *arg, const struct err *err) {
    struct upload *u = arg;
    if (upload_back(u, err))
        goal_ask(u);
    else
        upload_go_on(u);
}

static int file_begin(struct upload *u, struct err *err) {
    const char *given = u->target[0] ? u->target : u->is_form ? u->form.file_name : "";
    if (!*given)
        return err_set(err, ERR_INVALID, "the request names no path");
    if (u->files == FILES_MAX)
        return err_set(err, ERR_INVALID, "more than %d files", FILES_MAX);
    if (envd_path(given, u->call->user.home, u->path, err) < 0)
        return -1;
    snprintf(u->parent, sizeof(u->parent), "%s", u->path);
    *strrchr(u->parent, '/') = '\0';
    snprintf(u->goal, sizeof(u->goal), "%s", u->path);
    u->is_open = true;
    u->has_labels = false;
    u->mode = FILE_MODE;
    u->links = 0;
    u->offset = 0;
    u->busy = true;
    dirs_make(u->call, u->parent, file_parent_ready, u);
    return 1;
}

/* ---- the body ---- */

/* Unpacks into the buffer of the form, once that is used up. 1: there may be more. */
static int upload_unpack(struct upload *u, struct err *err) {
    char out[MULTIPART_DATA_MAX];
    size_t used, n;
    if (!u->unpacker || u->form.in.len >= WAITING_MAX)
        return 0;
    int r = gzip_go(u->unpacker, u->packed.data ? u->packed.data : "", u->packed.len, u->ended, out,
                    sizeof(out), &used, &n, err);
    if (r < 0)
        return -1;
    bool news = n || used || (r == 1 && !u->unpacked);
    u->unpacked = r == 1;
    buf_drop(&u->packed, used);
    if (n && !buf_add(&u->form.in, out, n))
        abort(); /* cannot fail: there is more room than a piece */
    return news;
}

/* The next event of a body that is no form. */
static int single_next(struct upload *u, struct http_text *ret) {
    struct buf *in = &u->form.in;
    buf_drop(in, u->form.taken);
    u->form.taken = 0;
    if (!u->is_open)
        return u->single_over ? MULTIPART_END : MULTIPART_PART;
    if (in->len) {
        u->form.taken = in->len < MULTIPART_DATA_MAX ? in->len : MULTIPART_DATA_MAX;
        *ret = (struct http_text){in->data, u->form.taken};
        return MULTIPART_DATA;
    }
    if (!u->ended || (u->unpacker && (!u->unpacked || u->packed.len)))
        return MULTIPART_MORE;
    u->single_over = true;
    return MULTIPART_PART_END;
}

static int upload_event(struct upload *u, struct http_text *ret, struct err *err) {
    for (;;) {
        int event = u->is_form ? multipart_next(&u->form, ret, err) : single_next(u, ret);
        int more = event == MULTIPART_MORE ? upload_unpack(u, err) : 0;
        if (more <= 0)
            return more < 0 ? -1 : event;
    }
}

/* Acts on one event. 1: take the next one; 0: not now; -1: the upload failed. */
static int upload_step(struct upload *u, struct err *err) {
    struct http_text data;
    switch (upload_event(u, &data, err)) {
    case MULTIPART_PART:
        u->skips = u->is_form && strcmp(u->form.part_name, "file") != 0;
        return u->skips ? 1 : file_begin(u, err);
    case MULTIPART_DATA:
        if (!u->skips)
            file_write(u, data.s, data.n, false);
        return 1;
    case MULTIPART_PART_END:
        if (!u->skips)
            file_end(u);
        u->skips = false;
        return 1;
    case MULTIPART_END:
        return 0;
    case MULTIPART_MORE:
        return u->ended ? err_set(err, ERR_INVALID, "the body ends too early") : 0;
    default:
        return -1;
    }
}

static void body_flow(struct upload *u) {
    bool wait = u->form.in.len + u->packed.len > WAITING_MAX;
    if (u->ended || wait == u->paused)
        return;
    u->paused = wait;
    if (wait)
        http_pause(u->call->http);
    else
        http_resume(u->call->http);
}

static void temporary_removed(void *arg, const struct frame *frame, const struct err *err) {
    struct upload *u = arg;
    (void)frame;
    (void)err; /* nothing more can be done: the machine may have ended */
    upload_fail(u);
}

/* An upload that failed or was cut leaves nothing. */
static void upload_undo(struct upload *u) {
    const struct msg_path m = {
        .uid = MSG_ID_NONE, .gid = MSG_ID_NONE, .path = path_text(u->temporary)};
    if (u->has_temporary)
        temporary_send(u, MSG_REMOVE, &m, NULL, temporary_removed);
    else
        upload_fail(u);
}

/* Whatever ends the upload, it ends here: nothing that this loop calls frees it. */
static void upload_go_on(struct upload *u) {
    struct err err;
    int turn = 1;
    if (u->going)
        return;
    u->going = true;
    while (!u->busy && !u->failed && !u->gone && turn > 0)
        turn = upload_step(u, &err);
    u->going = false;
    if (turn < 0)
        upload_note(u, &err);
    if (!u->busy && (u->failed || u->gone))
        upload_undo(u);
    else if (!u->busy && u->ended)
        upload_answer(u);
    else
        body_flow(u);
}

static void body_piece(struct http_exchange *x, const char *bytes, size_t n) {
    struct upload *u = ((struct envd_call *)x->user)->state;
    struct err err;
    u->ended = n == 0;
    if (n && !buf_add(u->unpacker ? &u->packed : &u->form.in, bytes, n)) {
        err_set(&err, ERR_LIMIT, "the machine does not take the body of the request");
        upload_note(u, &err);
    }
    upload_go_on(u);
}

static void upload_gone(struct envd_call *c) {
    struct upload *u = c->state;
    u->gone = true;
    upload_go_on(u);
}

/* ---- the request ---- */

static int upload_init(struct upload *u, struct err *err) {
    const struct http_head *head = u->call->http->head;
    struct http_text type = http_field_only(head, "Content-Type");
    struct http_text coding = http_field_only(head, "Content-Encoding");
    size_t n;
    u->is_form = type.s && type.n >= 19 &&
                 http_text_is_like((struct http_text){type.s, 19}, "multipart/form-data");
    if (u->is_form && multipart_init(&u->form, type, err) < 0)
        return -1;
    if (!u->is_form)
        u->form.in = BUF(PACKED_MAX);
    if (http_query_get(head->query, "path", u->target, sizeof(u->target), &n) < 0)
        return err_set(err, ERR_INVALID, "the parameter 'path' is malformed");
    if (coding.s && !http_text_is_like(coding, "identity") && !http_text_is_like(coding, "gzip"))
        return err_set(err, ERR_UNSUPPORTED, "the only supported Content-Encoding is gzip");
    if (http_text_is_like(coding, "gzip"))
        u->unpacker = gunzip_new();
    return 0;
}

void envd_upload(struct envd_call *c) {
    struct upload *u = xnew(struct upload);
    struct err err;
    u->call = c;
    u->packed = BUF(PACKED_MAX);
    u->answer = BUF(ENVD_BODY_MAX);
    u->jot = JOT(&u->answer);
    if (http_is_gone(c->http)) {
        upload_free(u);
        envd_drop(c);
        return;
    }
    if (metadata_read(c->http->head, &u->metadata, &err) < 0 || upload_init(u, &err) < 0) {
        upload_note(u, &err);
        upload_fail(u);
        return;
    }
    jot_array(&u->jot, NULL);
    c->state = u;
    c->on_gone = upload_gone;
    http_receive(c->http, INT64_MAX, body_piece);
}
