/* Requests about files: each one is one message to the guest, which acts as the given user. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api/bodies.h"
#include "api/file_words.h"
#include "api/route.h"
#include "base/defer.h"
#include "service/files.h"

static struct msg_str files_text_of(const char *s) {
    return (struct msg_str){.s = s, .n = (uint32_t)strlen(s)};
}

int file_words(struct call *c, struct msg_path *ret) {
    const char *path = call_query(c, "path");
    struct err err;
    *ret = (struct msg_path){0};
    if (!path || path[0] != '/')
        err_set(&err, ERR_INVALID,
                path ? "parameter 'path' must be absolute, not '%.100s'"
                     : "missing parameter 'path'",
                path);
    else if (file_user(call_query(c, "user"), &ret->uid, &err) == 0) {
        ret->gid = ret->uid;
        ret->path = files_text_of(path);
        return 0;
    }
    call_error(c, &err);
    return -1;
}

int file_mode(const char *text, const char *what, uint32_t *ret, struct err *err) {
    size_t n = strlen(text);
    if (n < 1 || n > 5 || strspn(text, "01234567") != n || strtoul(text, NULL, 8) > 07777)
        return err_set(err, ERR_INVALID, "%s 'mode' must be octal, such as 644, not '%.20s'", what,
                       text);
    *ret = (uint32_t)strtoul(text, NULL, 8);
    return 0;
}

/* ---- one request, one reply ---- */

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
    if (!err && msg_get_entry(frame, &entry) < 0) {
        err_set(&bad, ERR_INTERNAL, "the guest process of the machine sent a malformed reply");
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
    if (file_words(c, &m) < 0)
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
    if (msg_get_list_page(frame, &page) == 0)
        while ((more = msg_entry_next(&page.entries, &entry)) > 0) {
            struct entry_view view;
            view_entry(&entry, entry.name.s, &view);
            schema_write(&entry_schema, &j, NULL, &view);
        }
    else
        more = -1;
    if (more < 0) {
        err_set(&bad, ERR_INTERNAL, "the guest process of the machine sent a malformed reply");
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
    if (file_words(c, &m) < 0)
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
    if (file_words(c, &m) < 0)
        return;
    m.flags = call_flag(c, "recursive") ? MSG_RECURSIVE : 0;
    service_file(c->service, &c->who, c->params[0], MSG_REMOVE, &m, m.path.s, answer_done, c);
}

/* Finds the uid of the user in a request. False: the call was answered with an error. */
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
                         .path = files_text_of(r->path)};
    if (!acting_as(c, r->user, &m.uid))
        return;
    m.gid = m.uid;
    service_file(c->service, &c->who, c->params[0], MSG_MKDIR, &m, r->path, answer_done, c);
}

void api_file_move(struct call *c) {
    const struct move_request *r = c->request;
    struct msg_move m = {.flags = r->no_replace ? MSG_NOREPLACE : 0,
                         .from = files_text_of(r->from),
                         .to = files_text_of(r->to)};
    if (!acting_as(c, r->user, &m.uid))
        return;
    m.gid = m.uid;
    service_file(c->service, &c->who, c->params[0], MSG_MOVE, &m, r->from, answer_done, c);
}

void api_file_chmod(struct call *c) {
    const struct chmod_request *r = c->request;
    struct msg_path m = {.path = files_text_of(r->path)};
    struct err err;
    if (file_mode(r->mode, "field", &m.mode, &err) < 0) {
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
        .path = files_text_of(r->path),
    };
    if (!acting_as(c, r->user ? r->user : "root", &m.uid))
        return;
    m.gid = m.uid;
    service_file(c->service, &c->who, c->params[0], MSG_CHOWN, &m, r->path, answer_done, c);
}

void api_file_symlink(struct call *c) {
    const struct symlink_request *r = c->request;
    struct msg_move m = {.from = files_text_of(r->target), .to = files_text_of(r->path)};
    if (!acting_as(c, r->user, &m.uid))
        return;
    m.gid = m.uid;
    service_file(c->service, &c->who, c->params[0], MSG_SYMLINK, &m, r->path, answer_done, c);
}
