/*
 * The tool patch: changes several files, all or none.
 *
 * All files are read and changed in memory first. Then the changes are made one after the other.
 * If one fails, those before it are undone. A file that another process changed in between is not
 * overwritten: each write states the hash that the file must have.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/id.h"
#include "base/sha256.h"
#include "service/files.h"
#include "tools/patch_text.h"
#include "tools/pull.h"
#include "tools/put.h"
#include "tools/requests.h"
#include "tools/toolbox.h"

/* Limit of all files that a patch reads, and of the steps that change them. */
enum { PATCH_READ_MAX = 8 << 20, STEPS_PER_FILE = 3, PATCH_PATH_SIZE = 4200 };

/* A file of the patch, with absolute paths. */
struct patched {
    char *path, *to; /* to: NULL unless the file is moved */
    char *away;      /* name of a deleted file until all changes are made */
    struct buf before, after;
    char hash_before[SHA256_HEX], hash_after[SHA256_HEX];
    struct patch_counts counts;
};

/* One change in the machine, and how to undo it. */
enum change_kind {
    CHANGE_MOVE, /* from -> to; undo: back */
    CHANGE_DIR,  /* makes the parents of `to`; they stay */
    CHANGE_PUT,  /* writes `after` to `to`; undo: writes `before`, or removes a new file */
};

struct change {
    enum change_kind kind;
    struct patched *file;
    const char *from, *to;
};

struct patching {
    struct act *act;
    struct patch patch;
    struct patched *files;
    struct change *changes;
    size_t change_count, at;
    uint32_t uid;
    const char *user;
    size_t bytes; /* of all files that were read */
    bool undoing;
    struct err err; /* why the changes are undone */
    /* The request to the guest that is under way. */
    struct msg_path path_message;
    struct msg_move move_message;
    char *dir;
    bool full;
};

static void patching_free(struct patching *p) {
    for (size_t i = 0; p->files && i < p->patch.file_count; i++) {
        struct patched *f = &p->files[i];
        free(f->path);
        free(f->to);
        free(f->away);
        buf_done(&f->before);
        buf_done(&f->after);
    }
    free(p->files);
    free(p->changes);
    free(p->dir);
    patch_done(&p->patch);
    free(p);
}

static void patch_failed(struct patching *p, const struct err *err, const char *detail) {
    struct act *a = p->act;
    struct err why = *err;
    patching_free(p);
    act_fail_with(a, &why, detail);
}

/* ---- the answer ---- */

static void put_patched(struct jot *j, const struct patch_file *f, const struct patched *w) {
    static const char *const names[] = {
        [PATCH_ADD] = "added", [PATCH_UPDATE] = "modified", [PATCH_DELETE] = "deleted"};
    jot_object(j, NULL);
    jot_string(j, "path", w->to ? w->to : w->path);
    jot_string(j, "change", w->to ? "moved" : names[f->kind]);
    if (w->to)
        jot_string(j, "from", w->path);
    jot_u64(j, "lines_added", w->counts.added);
    jot_u64(j, "lines_removed", w->counts.removed);
    if (f->kind != PATCH_DELETE)
        jot_string(j, "sha256", w->hash_after);
    jot_end(j, '}');
}

static void patch_answer(struct patching *p) {
    struct act *a = p->act;
    struct buf text DEFER(buf_done) = BUF(4 << 20);
    struct jot j = JOT(&text);
    jot_array(&j, NULL);
    for (size_t i = 0; i < p->patch.file_count; i++)
        put_patched(&j, &p->patch.files[i], &p->files[i]);
    jot_end(&j, ']');
    struct patch_output out = {
        .machine = a->machine, .files = j.failed ? "[]" : text.data, .count = p->patch.file_count};
    patching_free(p);
    act_done(a, &out);
}

/* ---- changing the machine ---- */

static void change_next(struct patching *p);

/* Deleted files are gone only when all changes are made, so that they can be moved back. */
static void remove_next(struct patching *p);

static void removed_away(void *arg, const struct frame *frame, const struct err *err) {
    struct patching *p = arg;
    (void)frame;
    (void)err; /* the file has its new, hidden name; nothing else can be done */
    p->at++;
    remove_next(p);
}

static void remove_next(struct patching *p) {
    while (p->at < p->patch.file_count && !p->files[p->at].away)
        p->at++;
    if (p->at == p->patch.file_count) {
        patch_answer(p);
        return;
    }
    char *path = p->files[p->at].away;
    p->path_message = (struct msg_path){
        .uid = p->uid, .gid = p->uid, .path = {.s = path, .n = (uint32_t)strlen(path)}};
    service_file(act_service(p->act), act_who(p->act), p->act->machine, MSG_REMOVE,
                 &p->path_message, NULL, removed_away, p);
}

/* While the changes are undone, an error is added to the first one. */
static void change_ended(struct patching *p, const struct err *err) {
    if (p->undoing) {
        if (err) {
            struct err why = p->err;
            err_set(&p->err, why.code, "%.200s; and cannot undo all changes: %.150s", why.text,
                    err->text);
            err_remedy(&p->err, "compare the files with diff, or rewind");
        }
    } else if (err) {
        p->undoing = true;
        p->err = *err;
    } else {
        p->at++;
    }
    change_next(p);
}

static void change_answered(void *arg, const struct frame *frame, const struct err *err) {
    (void)frame;
    change_ended(arg, err);
}

static void change_put_ended(void *arg, const struct err *err) {
    struct patching *p = arg;
    struct err why;
    const struct change *c = &p->changes[p->at];
    if (err && err->code == ERR_EXISTS && !p->undoing && !*c->file->hash_before) {
        err_set(&why, ERR_EXISTS, "file '%.200s' exists already", c->to);
        err_remedy(&why, "update the file instead of adding it");
        err = &why;
    }
    change_ended(p, err);
}

static void change_move(struct patching *p, const char *from, const char *to) {
    p->move_message = (struct msg_move){.uid = p->uid,
                                        .gid = p->uid,
                                        .flags = MSG_NOREPLACE,
                                        .from = {.s = from, .n = (uint32_t)strlen(from)},
                                        .to = {.s = to, .n = (uint32_t)strlen(to)}};
    service_file(act_service(p->act), act_who(p->act), p->act->machine, MSG_MOVE, &p->move_message,
                 from, change_answered, p);
}

static void change_path(struct patching *p, uint16_t type, const char *path, uint32_t flags) {
    p->path_message = (struct msg_path){.uid = p->uid,
                                        .gid = p->uid,
                                        .mode = 0755,
                                        .flags = flags,
                                        .path = {.s = path, .n = (uint32_t)strlen(path)}};
    service_file(act_service(p->act), act_who(p->act), p->act->machine, type, &p->path_message,
                 path, change_answered, p);
}

static void change_dir(struct patching *p, const char *of) {
    const char *slash = strrchr(of, '/');
    free(p->dir);
    p->dir = xstrndup(of, slash == of ? 1 : (size_t)(slash - of));
    change_path(p, MSG_MKDIR, p->dir, MSG_PARENTS);
}

static void change_put(struct patching *p, const struct change *c, bool back) {
    const struct patched *f = c->file;
    const struct buf *bytes = back ? &f->before : &f->after;
    const struct put_file file = {.path = c->to,
                                  .user = p->user,
                                  .condition = back              ? f->hash_after
                                               : *f->hash_before ? f->hash_before
                                                                 : "absent",
                                  .mode = "644",
                                  .bytes = bytes->data,
                                  .n = bytes->len};
    if (back && !*f->hash_before)
        change_path(p, MSG_REMOVE, c->to, 0);
    else
        put_file(p->act, &file, change_put_ended, p);
}

static void change_undo(struct patching *p) {
    const struct change *c;
    do {
        if (!p->at) {
            patch_failed(p, &p->err, NULL);
            return;
        }
        c = &p->changes[--p->at];
    } while (c->kind == CHANGE_DIR);
    if (c->kind == CHANGE_MOVE)
        change_move(p, c->to, c->from);
    else
        change_put(p, c, true);
}

static void change_next(struct patching *p) {
    if (!p->undoing && p->act->cancelled) {
        p->undoing = true;
        err_set(&p->err, ERR_GONE, "the tool call was cancelled");
    }
    if (p->undoing) {
        change_undo(p);
        return;
    }
    if (p->at == p->change_count) {
        p->at = 0;
        remove_next(p);
        return;
    }
    const struct change *c = &p->changes[p->at];
    switch (c->kind) {
    case CHANGE_MOVE:
        change_move(p, c->from, c->to);
        break;
    case CHANGE_DIR:
        change_dir(p, c->to);
        break;
    case CHANGE_PUT:
        change_put(p, c, false);
        break;
    }
}

/* ---- from the files to the changes ---- */

static void add_change(struct patching *p, enum change_kind kind, struct patched *f,
                       const char *from, const char *to) {
    p->changes[p->change_count++] =
        (struct change){.kind = kind, .file = f, .from = from, .to = to};
}

static char *away_name(const char *path) {
    char name[PATCH_PATH_SIZE];
    int dir = (int)(strrchr(path, '/') - path);
    snprintf(name, sizeof(name), "%.*s/.carrel-patch-%s", dir, path, id_new('p').text);
    return xstrdup(name);
}

/* A moved file is moved first and then written, so that it keeps its mode. */
static void plan_changes(struct patching *p) {
    p->changes = xcalloc(p->patch.file_count * STEPS_PER_FILE, sizeof(*p->changes));
    for (size_t i = 0; i < p->patch.file_count; i++) {
        const struct patch_file *f = &p->patch.files[i];
        struct patched *w = &p->files[i];
        const char *target = w->to ? w->to : w->path;
        if (f->kind == PATCH_DELETE) {
            w->away = away_name(w->path);
            add_change(p, CHANGE_MOVE, w, w->path, w->away);
            continue;
        }
        if (f->kind == PATCH_ADD || w->to)
            add_change(p, CHANGE_DIR, w, NULL, target);
        if (w->to)
            add_change(p, CHANGE_MOVE, w, w->path, w->to);
        if (f->kind == PATCH_ADD || strcmp(w->hash_before, w->hash_after) != 0)
            add_change(p, CHANGE_PUT, w, NULL, target);
    }
    change_next(p);
}

static int apply_one(struct patching *p, size_t i, struct buf *hint, struct err *err) {
    const struct patch_file *f = &p->patch.files[i];
    struct patched *w = &p->files[i];
    if (memchr(w->before.data ? w->before.data : "", 0, w->before.len))
        return err_set(err, ERR_INVALID, "file '%.200s' is binary", w->path);
    if (!buf_add(&w->after, w->before.data ? w->before.data : "", w->before.len))
        return err_set(err, ERR_LIMIT, "file '%.200s' is too large", w->path);
    if (f->kind != PATCH_ADD)
        sha256_hex(w->before.data ? w->before.data : "", w->before.len, w->hash_before);
    if (patch_apply(&p->patch, f, &w->after, &w->counts, hint, err) < 0)
        return -1;
    sha256_hex(w->after.data ? w->after.data : "", w->after.len, w->hash_after);
    return 0;
}

static void apply_all(struct patching *p) {
    struct buf hint DEFER(buf_done) = BUF(READ_BYTES);
    struct err err;
    for (size_t i = 0; i < p->patch.file_count; i++)
        if (apply_one(p, i, &hint, &err) < 0) {
            patch_failed(p, &err, hint.data);
            return;
        }
    p->at = 0;
    plan_changes(p);
}

/* ---- reading ---- */

static void read_next(struct patching *p);

static bool patch_piece(void *arg, const uint8_t *bytes, size_t n) {
    struct patching *p = arg;
    p->bytes += n;
    p->full = p->bytes > PATCH_READ_MAX || !buf_add(&p->files[p->at].before, bytes, n);
    return !p->full;
}

static void patch_read(void *arg, const struct err *err, bool whole) {
    struct patching *p = arg;
    struct err why;
    if (!err && p->full) {
        err_set(&why, ERR_LIMIT,
                "file '%.150s' is larger than %d MiB, or all files together than %d MiB",
                p->files[p->at].path, EDIT_FILE_MAX >> 20, PATCH_READ_MAX >> 20);
        err = &why;
    } else if (!err && (!whole || p->act->cancelled)) {
        err_set(&why, ERR_GONE, "the tool call was cancelled");
        err = &why;
    }
    if (err) {
        patch_failed(p, err, NULL);
        return;
    }
    p->at++;
    read_next(p);
}

static void read_next(struct patching *p) {
    while (p->at < p->patch.file_count && p->patch.files[p->at].kind == PATCH_ADD)
        p->at++;
    if (p->at == p->patch.file_count) {
        apply_all(p);
        return;
    }
    const struct pull_from from = {.service = act_service(p->act),
                                   .who = act_who(p->act),
                                   .machine = p->act->machine,
                                   .path = p->files[p->at].path,
                                   .uid = p->uid,
                                   .stop = &p->act->cancelled};
    pull(&from, patch_piece, patch_read, p);
}

/* ---- the request ---- */

/* Makes a path absolute. NULL: it is too long, or names no file. */
static char *patch_path(const char *dir, const char *path) {
    char text[PATCH_PATH_SIZE];
    while (strncmp(path, "./", 2) == 0)
        path += 2;
    bool slash = *dir && dir[strlen(dir) - 1] == '/';
    int n = path[0] == '/' ? snprintf(text, sizeof(text), "%s", path)
                           : snprintf(text, sizeof(text), "%s%s%s", dir, slash ? "" : "/", path);
    return n > 4095 || text[n - 1] == '/' ? NULL : xstrdup(text);
}

static int name_files(struct patching *p, const char *dir, struct err *err) {
    p->files = xcalloc(p->patch.file_count, sizeof(*p->files));
    for (size_t i = 0; i < p->patch.file_count; i++) {
        const struct patch_file *f = &p->patch.files[i];
        struct patched *w = &p->files[i];
        *w = (struct patched){.before = BUF(EDIT_FILE_MAX), .after = BUF(EDIT_FILE_MAX)};
        w->path = patch_path(dir, f->path);
        w->to = f->to ? patch_path(dir, f->to) : NULL;
        if (!w->path || (f->to && !w->to))
            return err_set(err, ERR_INVALID, "'%.200s' is not the path of a file",
                           w->path ? f->to : f->path);
        for (size_t k = 0; k < i; k++)
            if (strcmp(p->files[k].path, w->path) == 0) {
                err_set(err, ERR_INVALID, "file '%.200s' occurs twice in the patch", w->path);
                return err_remedy(err, "put all hunks of a file under one header");
            }
    }
    return 0;
}

void tool_patch(struct act *a) {
    const struct patch_input *in = a->request;
    struct patching *p = xnew(struct patching);
    struct err err;
    *p = (struct patching){.act = a, .user = in->user};
    const char *dir = in->cwd ? in->cwd : service_start_dir(act_service(a), a->machine);
    if (dir[0] != '/') {
        err_set(&err, ERR_INVALID, "cwd '%.100s' is not an absolute path", dir);
        patch_failed(p, &err, NULL);
    } else if (file_user(in->user, &p->uid, &err) < 0 ||
               patch_parse(in->patch, &p->patch, &err) < 0 || name_files(p, dir, &err) < 0) {
        patch_failed(p, &err, NULL);
    } else {
        read_next(p);
    }
}
