/*
 * The tool list: a directory tree, read through the guest, so it works in every image.
 *
 * Directories are read level by level. If the limit of entries is reached, the upper levels are
 * complete. All counts are limited, because the machine's answers are not trusted.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/wire/msg.h"
#include "service/files.h"
#include "tools/requests.h"
#include "tools/toolbox.h"

enum { LIST_PATH_MAX = 4095, LIST_REQUESTS = 4000, LIST_PAGE_ENTRIES = 500 };

struct list_entry {
    char *path; /* below the root of the tree, or "" for the root itself */
    unsigned depth;
    uint32_t mode;
    uint64_t size;
};

struct listing {
    struct act *act;
    uint32_t uid;
    char *root;
    struct list_entry *v; /* v[0] is the root */
    size_t count, at;     /* entries; the directory that is being read */
    size_t max, requests;
    unsigned depth;
    bool more;
    char path[LIST_PATH_MAX + 1]; /* absolute path of that directory */
    struct msg_list message;
};

static void listing_free(struct listing *l) {
    for (size_t i = 0; i < l->count; i++)
        free(l->v[i].path);
    free(l->v);
    free(l->root);
    free(l);
}

static void list_failed(struct listing *l, const struct err *err) {
    struct act *a = l->act;
    listing_free(l);
    act_fail(a, err);
}

/* ---- the answer ---- */

/* Orders paths so that a directory is followed by its entries: '/' is less than any other byte. */
static int list_order(const void *x, const void *y) {
    const char *a = ((const struct list_entry *)x)->path, *b = ((const struct list_entry *)y)->path;
    while (*a && *a == *b) {
        a++;
        b++;
    }
    int left = *a == '/' ? 1 : (unsigned char)*a, right = *b == '/' ? 1 : (unsigned char)*b;
    return left - right;
}

static const char *list_type(uint32_t mode) {
    return S_ISDIR(mode)   ? "directory"
           : S_ISREG(mode) ? "file"
           : S_ISLNK(mode) ? "symlink"
                           : "other";
}

static void list_answer(struct listing *l) {
    struct act *a = l->act;
    struct buf text DEFER(buf_done) = BUF(4 << 20);
    struct jot j = JOT(&text);
    struct err err;
    qsort(l->v + 1, l->count - 1, sizeof(*l->v), list_order);
    jot_array(&j, NULL);
    for (size_t i = 1; i < l->count; i++) {
        jot_object(&j, NULL);
        jot_bytes(&j, "path", l->v[i].path, strlen(l->v[i].path));
        jot_string(&j, "type", list_type(l->v[i].mode));
        jot_u64(&j, "size", S_ISREG(l->v[i].mode) ? l->v[i].size : 0);
        jot_end(&j, '}');
    }
    jot_end(&j, ']');
    char *root DEFER_FREE = TAKE(l->root);
    struct list_output out = {.machine = a->machine,
                              .path = root,
                              .entries = text.data,
                              .count = l->count - 1,
                              .more = l->more};
    listing_free(l);
    if (!j.failed) {
        act_done(a, &out);
        return;
    }
    err_set(&err, ERR_LIMIT, "the list is too long");
    err_remedy(&err, "list a directory below, or use a smaller 'depth'");
    act_fail(a, &err);
}

/* ---- reading ---- */

/* Directories with many files that the project does not contain are shown, but not read. */
static bool list_is_skipped(const char *path) {
    static const char *const names[] = {".git", "node_modules", "__pycache__", ".venv"};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static bool list_is_wanted(const struct listing *l, size_t i) {
    const struct list_entry *e = &l->v[i];
    return i == 0 || (S_ISDIR(e->mode) && e->depth < l->depth && !list_is_skipped(e->path));
}

static void list_add(struct listing *l, const struct msg_entry *e) {
    const struct list_entry *in = &l->v[l->at];
    if (!e->name.n || e->name.n > NAME_MAX || strcmp(e->name.s, ".") == 0 ||
        strcmp(e->name.s, "..") == 0)
        return;
    if (l->count > l->max) {
        l->more = true;
        return;
    }
    size_t n = strlen(in->path) + 1 + e->name.n + 1;
    char *path = xmalloc(n);
    snprintf(path, n, "%s%s%s", in->path, in->path[0] ? "/" : "", e->name.s);
    l->v[l->count++] = (struct list_entry){path, in->depth + 1, e->mode, e->size};
}

static int list_take(struct listing *l, const struct frame *frame, struct err *err) {
    struct msg_list_page page;
    struct msg_entry entry;
    int more = 0;
    if (msg_get_list_page(frame, &page) == 0)
        while ((more = msg_entry_next(&page.entries, &entry)) > 0)
            list_add(l, &entry);
    else
        more = -1;
    if (more < 0)
        return err_set(err, ERR_INTERNAL, "the machine sent a malformed list of files");
    l->message.cookie = l->more ? 0 : page.next;
    return 0;
}

static void list_next(struct listing *l);

/* Below the root, directories that are gone or that the user may not read are shown empty. */
static bool list_is_fatal(const struct listing *l, const struct err *err) {
    return err && (l->at == 0 || (err->code != ERR_NOT_FOUND && err->code != ERR_DENIED));
}

static void list_came(void *arg, const struct frame *frame, const struct err *err) {
    struct listing *l = arg;
    struct err why;
    bool cancelled = l->act->cancelled;
    if (cancelled)
        err_set(&why, ERR_GONE, "the tool call was cancelled");
    if (cancelled || list_is_fatal(l, err) || (!err && list_take(l, frame, &why) < 0)) {
        list_failed(l, !cancelled && err ? err : &why);
        return;
    }
    if (err)
        l->message.cookie = 0;
    if (!l->message.cookie)
        l->at++;
    list_next(l);
}

/* Asks for the next page, or for the first page of the next directory. */
static void list_next(struct listing *l) {
    bool first = !l->message.cookie;
    while (first && l->at < l->count && !list_is_wanted(l, l->at))
        l->at++;
    if (l->at == l->count || l->more || l->requests++ == LIST_REQUESTS) {
        l->more |= l->at < l->count;
        list_answer(l);
        return;
    }
    const char *below = l->v[l->at].path;
    const char *root = *below && strcmp(l->root, "/") == 0 ? "" : l->root;
    int n = snprintf(l->path, sizeof(l->path), "%s%s%s", root, *below ? "/" : "", below);
    if (n >= (int)sizeof(l->path)) {
        l->at++;
        l->message.cookie = 0;
        list_next(l);
        return;
    }
    l->message = (struct msg_list){.uid = l->uid,
                                   .gid = l->uid,
                                   .cookie = l->message.cookie,
                                   .max = LIST_PAGE_ENTRIES,
                                   .path = {.s = l->path, .n = (uint32_t)n}};
    /* Only the first request is written to the journal, with the root of the tree. */
    service_file(act_service(l->act), act_who(l->act), l->act->machine, MSG_LIST, &l->message,
                 l->requests == 1 ? l->path : NULL, list_came, l);
}

void tool_list(struct act *a) {
    const struct list_input *in = a->request;
    struct listing *l = xnew(struct listing);
    struct err err;
    *l = (struct listing){
        .act = a,
        .root = xstrdup(in->path ? in->path : service_start_dir(act_service(a), a->machine)),
        .max = in->max.is ? (size_t)in->max.value : LIST_DEFAULT,
        .depth = in->depth.is ? (unsigned)in->depth.value : LIST_DEPTH};
    l->v = xcalloc(l->max + 2, sizeof(*l->v));
    l->v[l->count++] = (struct list_entry){xstrdup(""), 0, S_IFDIR, 0};
    if (l->root[0] != '/') {
        err_set(&err, ERR_INVALID, "path '%.100s' is not absolute", l->root);
        err_remedy(&err, "start the path with /");
        list_failed(l, &err);
    } else if (file_user(in->user, &l->uid, &err) < 0) {
        list_failed(l, &err);
    } else {
        list_next(l);
    }
}
