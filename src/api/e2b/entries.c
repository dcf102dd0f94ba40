#include "api/e2b/entries.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "api/e2b/metadata.h"
#include "base/alloc.h"

enum { LINKS_MAX = 40 }; /* as the kernel */

void entry_done(struct entry *e) {
    free(e->path);
    free(e->target);
    json_decref(e->metadata);
    *e = (struct entry){0};
}

void entry_set(struct entry *e, char *path, const struct msg_entry *m) {
    *e = (struct entry){.path = path,
                        .type = m->mode & S_IFMT,
                        .mode = m->mode,
                        .own_mode = m->mode,
                        .uid = m->uid,
                        .gid = m->gid,
                        .size = m->size,
                        .mtime_ns = m->mtime_ns};
}

void entry_label(struct entry *e, const struct msg_meta *m) {
    json_decref(e->metadata);
    e->metadata = metadata_json(&m->pairs);
    e->atime_ns = m->atime_ns;
    e->ctime_ns = m->ctime_ns;
}

/* ---- the object ---- */

static const char *type_name(uint32_t type) {
    switch (type) {
    case S_IFREG:
        return "FILE_TYPE_FILE";
    case S_IFDIR:
        return "FILE_TYPE_DIRECTORY";
    case S_IFLNK:
        return "FILE_TYPE_SYMLINK";
    default:
        return NULL;
    }
}

/* As the language of E2B's envd prints a mode: "drwxr-xr-x", with L for a symlink. */
static void put_permissions(struct jot *j, uint32_t mode) {
    char text[12];
    size_t n = 0;
    if (S_ISDIR(mode))
        text[n++] = 'd';
    else if (S_ISLNK(mode))
        text[n++] = 'L';
    else
        text[n++] = '-';
    for (int i = 8; i >= 0; i--)
        text[n++] = mode >> i & 1 ? "xwr"[i % 3] : '-';
    text[n] = '\0';
    jot_string(j, "permissions", text);
}

static void put_time(struct jot *j, const char *name, uint64_t ns) {
    char text[64];
    time_t seconds = (time_t)(ns / 1000000000);
    struct tm tm;
    size_t n = gmtime_r(&seconds, &tm) ? strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &tm) : 0;
    if (!n)
        return;
    snprintf(text + n, sizeof(text) - n, ".%09uZ", (unsigned)(ns % 1000000000));
    jot_string(j, name, text);
}

void entry_put(struct jot *j, const char *name, const struct envd_call *c, const struct entry *e) {
    char owner[ENVD_NAME_SIZE], group[ENVD_NAME_SIZE], size[24];
    const char *slash = strrchr(e->path, '/');
    envd_user_name(c, e->uid, owner);
    envd_group_name(c, e->gid, group);
    snprintf(size, sizeof(size), "%llu", (unsigned long long)e->size);
    jot_object(j, name);
    jot_string(j, "name", slash && slash[1] ? slash + 1 : e->path);
    if (type_name(e->type))
        jot_string(j, "type", type_name(e->type));
    jot_string(j, "path", e->path);
    if (e->size)
        jot_string(j, "size", size);
    jot_u64(j, "mode", e->mode & 07777);
    put_permissions(j, e->own_mode);
    jot_string(j, "owner", owner);
    jot_string(j, "group", group);
    put_time(j, "modifiedTime", e->mtime_ns);
    if (e->target)
        jot_string(j, "symlinkTarget", e->target);
    metadata_put_json(j, e->metadata);
    jot_end(j, '}');
}

static const char *stat_type(uint32_t mode) {
    return S_ISREG(mode)   ? "file"
           : S_ISDIR(mode) ? "directory"
           : S_ISLNK(mode) ? "symlink"
                           : "unknown";
}

void entry_put_stat(struct jot *j, const struct envd_call *c, const struct entry *e) {
    const char *slash = strrchr(e->path, '/');
    (void)c;
    jot_object(j, NULL);
    jot_string(j, "name", slash && slash[1] ? slash + 1 : e->path);
    jot_string(j, "path", e->path);
    jot_string(j, "type", stat_type(e->own_mode));
    jot_u64(j, "size", e->size);
    jot_u64(j, "mode", e->own_mode & 07777);
    jot_u64(j, "uid", e->uid);
    jot_u64(j, "gid", e->gid);
    put_time(j, "atime", e->atime_ns ? e->atime_ns : e->mtime_ns);
    put_time(j, "mtime", e->mtime_ns);
    put_time(j, "ctime", e->ctime_ns ? e->ctime_ns : e->mtime_ns);
    if (e->target)
        jot_string(j, "target", e->target);
    jot_end(j, '}');
}

/* ---- symlinks ---- */

struct resolving {
    struct envd_call *call;
    struct entry *entry;
    unsigned links;
    char next[ENVD_PATH_SIZE];
    void (*done)(void *arg);
    void *arg;
};

static void resolve_over(struct resolving *r) {
    void (*done)(void *arg) = r->done;
    void *arg = r->arg;
    free(r);
    done(arg);
}

static void link_seen(void *arg, const struct frame *frame, const struct err *err);

static void resolve_ask(struct resolving *r) {
    const struct msg_path m = {.uid = MSG_ID_NONE,
                               .gid = MSG_ID_NONE,
                               .flags = MSG_NOFOLLOW,
                               .path = {r->next, (uint32_t)strlen(r->next)}};
    envd_file(r->call, MSG_STAT, &m, NULL, link_seen, r);
}

/* Sets the next path from the target of a link at `from`. */
static int resolve_step(struct resolving *r, const char *from, const char *target) {
    char base[ENVD_PATH_SIZE];
    snprintf(base, sizeof(base), "%s", from);
    char *slash = strrchr(base, '/');
    if (slash)
        *slash = '\0';
    return envd_path(target, base, r->next, NULL);
}

/* A link that leads nowhere has its own path as the target, and no type. */
static void resolve_dangling(struct resolving *r) {
    struct entry *e = r->entry;
    e->type = 0;
    free(e->target);
    e->target = xstrdup(e->path);
    resolve_over(r);
}

static void link_seen(void *arg, const struct frame *frame, const struct err *err) {
    struct resolving *r = arg;
    struct entry *e = r->entry;
    struct msg_entry m;
    char from[ENVD_PATH_SIZE];
    if (err || msg_get_entry(frame, &m) < 0) {
        resolve_dangling(r);
    } else if (!S_ISLNK(m.mode)) {
        e->type = m.mode & S_IFMT;
        e->mode = m.mode;
        e->target = xstrdup(r->next);
        resolve_over(r);
    } else {
        snprintf(from, sizeof(from), "%s", r->next);
        if (++r->links > LINKS_MAX || !m.target.n || resolve_step(r, from, m.target.s) < 0)
            resolve_dangling(r);
        else
            resolve_ask(r);
    }
}

void entry_resolve(struct envd_call *c, struct entry *e, void (*done)(void *arg), void *arg) {
    if (e->type != S_IFLNK || strlen(e->path) >= ENVD_PATH_SIZE) {
        done(arg);
        return;
    }
    struct resolving *r = xnew(struct resolving);
    *r = (struct resolving){.call = c, .entry = e, .done = done, .arg = arg};
    snprintf(r->next, sizeof(r->next), "%s", e->path);
    resolve_ask(r);
}

/* ---- one entry ---- */

struct finding {
    struct envd_call *call;
    struct entry entry;
    char path[ENVD_PATH_SIZE];
    entry_fn *done;
    void *arg;
};

static void find_over(struct finding *f, const struct err *err) {
    entry_fn *done = f->done;
    void *arg = f->arg;
    struct entry e = f->entry;
    free(f);
    done(arg, err ? NULL : &e, err);
    entry_done(&e);
}

/* Without an answer the entry has no metadata: the machine may run an older guest. */
static void find_labelled(void *arg, const struct frame *frame, const struct err *err) {
    struct finding *f = arg;
    struct msg_meta_page page;
    struct msg_meta m;
    if (!err && msg_get_meta_page(frame, &page) == 0 && msg_meta_next(&page.entries, &m) > 0)
        entry_label(&f->entry, &m);
    find_over(f, NULL);
}

static void find_resolved(void *arg) {
    struct finding *f = arg;
    const struct msg_list m = {
        .uid = MSG_ID_NONE, .gid = MSG_ID_NONE, .path = {f->path, (uint32_t)strlen(f->path)}};
    envd_file(f->call, MSG_META, &m, NULL, find_labelled, f);
}

static void find_seen(void *arg, const struct frame *frame, const struct err *err) {
    struct finding *f = arg;
    struct msg_entry m;
    struct err bad;
    if (!err && msg_get_entry(frame, &m) < 0) {
        err_set(&bad, ERR_INTERNAL, "the guest process of the machine sent a malformed reply");
        err = &bad;
    }
    if (err) { /* the guest's words name no path */
        bad = *err;
        err_wrap(&bad, "'%.200s'", f->path);
        find_over(f, &bad);
        return;
    }
    entry_set(&f->entry, xstrdup(f->path), &m);
    entry_resolve(f->call, &f->entry, find_resolved, f);
}

void entry_find(struct envd_call *c, const char *path, entry_fn *done, void *arg) {
    struct finding *f = xnew(struct finding);
    *f = (struct finding){.call = c, .done = done, .arg = arg};
    snprintf(f->path, sizeof(f->path), "%s", path);
    const struct msg_path m = {.uid = MSG_ID_NONE,
                               .gid = MSG_ID_NONE,
                               .flags = MSG_NOFOLLOW,
                               .path = {f->path, (uint32_t)strlen(f->path)}};
    envd_file(c, MSG_STAT, &m, NULL, find_seen, f);
}

/* ---- directories ---- */

/*
 * First finds the longest part of the path that exists, then makes the rest, one directory at a
 * time: each is given to the user at once.
 */
struct making {
    struct envd_call *call;
    const char *path;
    size_t there;              /* length of the part that exists */
    size_t now;                /* length of the part that is looked at or made */
    char part[ENVD_PATH_SIZE]; /* that part */
    void (*done)(void *arg, const struct err *err);
    void *arg;
};

static void making_over(struct making *m, const struct err *err) {
    void (*done)(void *arg, const struct err *err) = m->done;
    void *arg = m->arg;
    free(m);
    done(arg, err);
}

static struct msg_str making_part(struct making *m) {
    snprintf(m->part, sizeof(m->part), "%.*s", (int)m->now, m->path);
    return (struct msg_str){m->part, (uint32_t)strlen(m->part)};
}

static void making_go_on(struct making *m);

static void dir_given(void *arg, const struct frame *frame, const struct err *err) {
    struct making *m = arg;
    (void)frame;
    if (err) {
        making_over(m, err);
        return;
    }
    m->there = m->now;
    making_go_on(m);
}

static void dir_made(void *arg, const struct frame *frame, const struct err *err) {
    struct making *m = arg;
    (void)frame;
    if (err && err->code == ERR_EXISTS) { /* somebody else made it meanwhile */
        m->there = m->now;
        making_go_on(m);
        return;
    }
    if (err) {
        making_over(m, err);
        return;
    }
    const struct msg_chown give = {.uid = MSG_ID_NONE,
                                   .gid = MSG_ID_NONE,
                                   .owner = m->call->user.uid,
                                   .group = m->call->user.gid,
                                   .path = making_part(m)};
    envd_file(m->call, MSG_CHOWN, &give, NULL, dir_given, m);
}

static void making_go_on(struct making *m) {
    size_t n = strlen(m->path);
    if (m->there >= n) {
        making_over(m, NULL);
        return;
    }
    const char *slash = strchr(m->path + m->there + 1, '/');
    m->now = slash ? (size_t)(slash - m->path) : n;
    const struct msg_path make = {
        .uid = MSG_ID_NONE, .gid = MSG_ID_NONE, .mode = 0755, .path = making_part(m)};
    envd_file(m->call, MSG_MKDIR, &make, m->part, dir_made, m);
}

static void dir_seen(void *arg, const struct frame *frame, const struct err *err);

/* Looks at the part without its last name; the root always exists. */
static void making_look_above(struct making *m) {
    while (m->now > 0 && m->path[--m->now] != '/')
        continue;
    if (m->now == 0) {
        m->there = 0;
        making_go_on(m);
        return;
    }
    const struct msg_path ask = {.uid = MSG_ID_NONE, .gid = MSG_ID_NONE, .path = making_part(m)};
    envd_file(m->call, MSG_STAT, &ask, NULL, dir_seen, m);
}

static void dir_seen(void *arg, const struct frame *frame, const struct err *err) {
    struct making *m = arg;
    struct msg_entry e;
    struct err bad;
    if (err && err->code == ERR_NOT_FOUND) {
        making_look_above(m);
    } else if (err) {
        making_over(m, err);
    } else if (msg_get_entry(frame, &e) < 0 || !S_ISDIR(e.mode)) {
        err_set(&bad, ERR_INVALID, "path '%.200s' is not a directory", m->part);
        making_over(m, &bad);
    } else {
        m->there = m->now;
        making_go_on(m);
    }
}

void dirs_make(struct envd_call *c, const char *path,
               void (*done)(void *arg, const struct err *err), void *arg) {
    struct making *m = xnew(struct making);
    *m = (struct making){.call = c, .path = path, .now = strlen(path), .done = done, .arg = arg};
    if (m->now <= 1) {
        making_over(m, NULL);
        return;
    }
    const struct msg_path ask = {.uid = MSG_ID_NONE, .gid = MSG_ID_NONE, .path = making_part(m)};
    envd_file(c, MSG_STAT, &ask, NULL, dir_seen, m);
}
