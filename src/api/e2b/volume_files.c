/*
 * The files of a volume: /volumecontent/VOLUME/path, /dir and /file, with the token of the volume.
 * They are the files of a machine that has the volume as its root directory, see
 * service_volume_enter().
 */
#include "api/e2b/volume_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/e2b/entries.h"
#include "api/e2b/transfers.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "base/parse.h"
#include "io/http_uri.h"

enum { BODY_MAX = 4096, OWNER_DEFAULT = 1000, ID_LAST = 65535, DIR_MODE = 0755 };

/* What a client asks for, until the answer. */
struct asked {
    struct envd_call *call;
    char path[ENVD_PATH_SIZE];
    uint64_t uid, gid, mode, depth;
    bool has_uid, has_gid, has_mode, force;
    bool keeps; /* force=false */
    int status; /* of the answer */
};

/* ---- the request ---- */

/* 0: the parameter is absent. */
static int query_number(const struct envd_call *c, const char *name, uint64_t max, uint64_t *ret,
                        struct err *err) {
    char text[24];
    size_t n;
    int given = http_query_get(c->http->head->query, name, text, sizeof(text), &n);
    if (given == 0)
        return 0;
    if (given < 0 || parse_u64(text, 0, max, ret, NULL) < 0)
        return err_set(err, ERR_INVALID, "the parameter '%s' is not a number up to %llu", name,
                       (unsigned long long)max);
    return 1;
}

static int asked_read(struct asked *a, struct err *err) {
    const struct envd_call *c = a->call;
    char path[ENVD_PATH_SIZE] = "", force[8] = "";
    size_t n;
    int uid = query_number(c, "uid", ID_LAST, &a->uid, err);
    int gid = uid < 0 ? -1 : query_number(c, "gid", ID_LAST, &a->gid, err);
    int mode = gid < 0 ? -1 : query_number(c, "mode", 07777, &a->mode, err);
    int depth = mode < 0 ? -1 : query_number(c, "depth", UINT32_MAX, &a->depth, err);
    if (depth < 0)
        return -1;
    if (http_query_get(c->http->head->query, "path", path, sizeof(path), &n) < 0 ||
        http_query_get(c->http->head->query, "force", force, sizeof(force), &n) < 0)
        return err_set(err, ERR_INVALID, "a parameter of the request is malformed");
    a->has_uid = uid > 0;
    a->has_gid = gid > 0;
    a->has_mode = mode > 0;
    a->force = strcmp(force, "true") == 0;
    a->keeps = strcmp(force, "false") == 0;
    return envd_path(path, "/", a->path, err);
}

/* NULL: the call was answered. */
static struct asked *asked_new(struct envd_call *c) {
    struct asked *a = xnew(struct asked);
    struct err err;
    *a = (struct asked){.call = c, .status = 200};
    if (asked_read(a, &err) == 0)
        return a;
    free(a);
    envd_fail_with(c, &err);
    return NULL;
}

static struct msg_str asked_path(const struct asked *a) {
    return (struct msg_str){a->path, (uint32_t)strlen(a->path)};
}

static void asked_fail(struct asked *a, const struct err *err) {
    struct envd_call *c = a->call;
    free(a);
    if (err->code == ERR_EXISTS)
        envd_refuse(c, 409, "%s", err->text);
    else
        envd_fail_with(c, err);
}

/* ---- answers ---- */

static void answer_stat(void *arg, const struct entry *e, const struct err *err) {
    struct asked *a = arg;
    struct envd_call *c = a->call;
    struct buf text DEFER(buf_done) = BUF(64 << 10);
    struct jot j = JOT(&text);
    if (err) {
        asked_fail(a, err);
        return;
    }
    entry_put_stat(&j, c, e);
    envd_reply(c, a->status,
               HTTP_FIELDS({"Content-Type", "application/json"}, {"Cache-Control", "no-store"}),
               text.data, text.len);
    free(a);
}

static void asked_show(struct asked *a) {
    entry_find(a->call, a->path, answer_stat, a);
}

/* Sets what was asked for, one thing after the other, and shows the entry. */
static void asked_dress(struct asked *a);

static void dressed(void *arg, const struct frame *frame, const struct err *err) {
    (void)frame;
    if (err)
        asked_fail(arg, err);
    else
        asked_dress(arg);
}

static void asked_dress(struct asked *a) {
    if (a->has_uid || a->has_gid) {
        const struct msg_chown m = {.uid = MSG_ID_NONE,
                                    .gid = MSG_ID_NONE,
                                    .flags = MSG_NOFOLLOW,
                                    .owner = a->has_uid ? (uint32_t)a->uid : MSG_ID_NONE,
                                    .group = a->has_gid ? (uint32_t)a->gid : MSG_ID_NONE,
                                    .path = asked_path(a)};
        a->has_uid = a->has_gid = false;
        envd_file(a->call, MSG_CHOWN, &m, NULL, dressed, a);
    } else if (a->has_mode) { /* after the owner, because chown() clears bits */
        const struct msg_path m = {.uid = MSG_ID_NONE,
                                   .gid = MSG_ID_NONE,
                                   .mode = (uint32_t)a->mode,
                                   .path = asked_path(a)};
        a->has_mode = false;
        envd_file(a->call, MSG_CHMOD, &m, NULL, dressed, a);
    } else {
        asked_show(a);
    }
}

/* ---- entries ---- */

static void volume_stat(struct envd_call *c) {
    struct asked *a = asked_new(c);
    if (a)
        asked_show(a);
}

static void volume_list(struct envd_call *c) {
    struct asked *a DEFER_FREE = asked_new(c);
    if (a)
        entries_list(c, a->path, a->depth, entry_put_stat);
}

static void volume_removed(void *arg, const struct frame *frame, const struct err *err) {
    struct asked *a = arg;
    struct envd_call *c = a->call;
    (void)frame;
    if (err) {
        asked_fail(a, err);
        return;
    }
    free(a);
    envd_reply(c, 204, NULL, NULL, 0);
}

static void volume_remove(struct envd_call *c) {
    struct asked *a = asked_new(c);
    if (!a)
        return;
    if (strcmp(a->path, "/") == 0) {
        free(a);
        envd_refuse(c, 400, "the root directory of a volume cannot be removed");
        return;
    }
    const struct msg_path m = {
        .uid = MSG_ID_NONE, .gid = MSG_ID_NONE, .flags = MSG_RECURSIVE, .path = asked_path(a)};
    envd_file(c, MSG_REMOVE, &m, a->path, volume_removed, a);
}

/* The owner of what a request makes: who it names, else the user of sandboxes. */
static void asked_own(struct asked *a) {
    a->call->user.uid = a->has_uid ? (uint32_t)a->uid : OWNER_DEFAULT;
    a->call->user.gid = a->has_gid ? (uint32_t)a->gid : OWNER_DEFAULT;
    a->uid = a->call->user.uid;
    a->gid = a->call->user.gid;
    a->status = 201;
}

static void parents_made(void *arg, const struct err *err) {
    struct asked *a = arg;
    if (err)
        asked_fail(a, err);
    else
        asked_dress(a);
}

static void dir_made(void *arg, const struct frame *frame, const struct err *err) {
    struct asked *a = arg;
    (void)frame;
    if (err) {
        asked_fail(a, err);
        return;
    }
    a->has_uid = a->has_gid = true;
    asked_dress(a);
}

/* With `force`, makes parents too, and accepts a directory that exists. */
static void volume_make_dir(struct envd_call *c) {
    struct asked *a = asked_new(c);
    if (!a)
        return;
    asked_own(a);
    if (a->force) {
        dirs_make(c, a->path, parents_made, a);
        return;
    }
    const struct msg_path m = {
        .uid = MSG_ID_NONE, .gid = MSG_ID_NONE, .mode = DIR_MODE, .path = asked_path(a)};
    envd_file(c, MSG_MKDIR, &m, a->path, dir_made, a);
}

/* ---- owner and mode ---- */

static int change_read(struct asked *a, const json_t *body, struct err *err) {
    const struct {
        const char *name;
        json_int_t max;
        uint64_t *value;
        bool *has;
    } members[] = {{"uid", ID_LAST, &a->uid, &a->has_uid},
                   {"gid", ID_LAST, &a->gid, &a->has_gid},
                   {"mode", 07777, &a->mode, &a->has_mode}};
    for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
        const json_t *value = json_object_get(body, members[i].name);
        json_int_t n = json_integer_value(value);
        if (!value || json_is_null(value))
            continue;
        if (!json_is_integer(value) || n < 0 || n > members[i].max)
            return err_set(err, ERR_INVALID, "the member '%s' is not a number up to %lld",
                           members[i].name, (long long)members[i].max);
        *members[i].value = (uint64_t)n;
        *members[i].has = true;
    }
    return 0;
}

static void volume_change(struct envd_call *c) {
    struct asked *a = asked_new(c);
    struct err err;
    if (!a)
        return;
    a->has_uid = a->has_gid = a->has_mode = false;
    if (change_read(a, c->json, &err) < 0)
        asked_fail(a, &err);
    else
        asked_dress(a);
}

/* ---- bytes ---- */

static void volume_uploaded(struct envd_call *c) {
    struct asked *a = asked_new(c);
    if (!a)
        return;
    a->has_uid = a->has_gid = false; /* the upload gave it to its owner */
    a->status = 201;
    asked_dress(a);
}

static void volume_write(struct envd_call *c) {
    struct asked *a DEFER_FREE = asked_new(c);
    if (!a)
        return;
    asked_own(a);
    c->uploaded = volume_uploaded;
    c->keeps_files = a->keeps;
    envd_upload(c);
}

/* ---- which request it is ---- */

static const struct {
    const char *method, *what;
    struct envd_method then;
    bool has_body;
} requests[] = {
    {"GET", "path", {"path", ENVD_PLAIN, false, volume_stat}},
    {"PATCH", "path", {"path", ENVD_PLAIN, false, volume_change}, .has_body = true},
    {"DELETE", "path", {"path", ENVD_PLAIN, false, volume_remove}},
    {"GET", "dir", {"dir", ENVD_PLAIN, false, volume_list}},
    {"POST", "dir", {"dir", ENVD_PLAIN, false, volume_make_dir}},
    {"GET", "file", {"file", ENVD_PLAIN, false, envd_download}},
    {"PUT", "file", {"file", ENVD_PLAIN, false, volume_write}},
};

bool volume_path_read(struct http_text path, struct volume_path *ret) {
    struct http_text part, rest = path;
    *ret = (struct volume_path){.id = ""};
    if (!http_path_next(&rest, &part) || !http_text_is(part, "volumecontent"))
        return false;
    if (http_path_next(&rest, &part) && id_from_label(part.s, part.n, 'v', ret->id) &&
        http_path_next(&rest, &ret->what) && rest.n)
        ret->what = (struct http_text){NULL, 0};
    return true;
}

const struct envd_method *volume_method(const struct http_exchange *x, struct http_text what,
                                        bool *ret_has_body) {
    for (size_t i = 0; i < sizeof(requests) / sizeof(*requests) && what.s; i++)
        if (http_text_is(what, requests[i].what) &&
            http_text_is(x->head->method, requests[i].method)) {
            *ret_has_body = requests[i].has_body;
            return &requests[i].then;
        }
    return NULL;
}
