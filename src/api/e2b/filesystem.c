/* The procedures of filesystem.Filesystem that look at files and change them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api/e2b/entries.h"
#include "base/alloc.h"
#include "base/defer.h"

enum {
    LIST_ENTRIES_MAX = 100000,
    LIST_PAGE = 1000,
    DEPTH_MAX = 1000,
    LIST_META_MAX = 16 << 20, /* bytes of metadata, and META_COST for each entry */
    META_COST = 128,
};

/* Reads the path in a field. -1: the call was answered. */
static int read_path(struct envd_call *c, const char *field, char ret[ENVD_PATH_SIZE]) {
    const json_t *path = json_object_get(c->json, field);
    struct err err;
    if (path && !json_is_string(path))
        err_set(&err, ERR_INVALID, "the field '%s' is not a text", field);
    else if (envd_path(path ? json_string_value(path) : "", c->user.home, ret, &err) == 0)
        return 0;
    envd_fail_with(c, &err);
    return -1;
}

/* The guest's words name no path. */
static void fail_at(struct envd_call *c, const char *path, const struct err *err) {
    struct err why = *err;
    err_wrap(&why, "'%.200s'", path);
    envd_fail_with(c, &why);
}

static void answer_entry(void *arg, const struct entry *e, const struct err *err) {
    struct envd_call *c = arg;
    struct buf text DEFER(buf_done) = BUF(64 << 10);
    struct jot j = JOT(&text);
    if (err) {
        envd_fail_with(c, err);
        return;
    }
    jot_object(&j, NULL);
    entry_put(&j, "entry", c, e);
    jot_end(&j, '}');
    envd_answer(c, &j, &text);
}

void envd_files_stat(struct envd_call *c) {
    char path[ENVD_PATH_SIZE];
    if (read_path(c, "path", path) == 0)
        entry_find(c, path, answer_entry, c);
}

/* ---- make, move, remove: with one or two paths that stay valid until the answer ---- */

struct change {
    struct envd_call *call;
    char path[ENVD_PATH_SIZE];
    char to[ENVD_PATH_SIZE], parent[ENVD_PATH_SIZE]; /* of a move */
};

static struct msg_str str_of(const char *s) {
    return (struct msg_str){s, (uint32_t)strlen(s)};
}

/* Frees the change and answers with the entry at its path, or with the error. */
static void change_over(struct change *h, const struct err *err) {
    struct envd_call *c = h->call;
    char path[ENVD_PATH_SIZE];
    snprintf(path, sizeof(path), "%s", h->to[0] ? h->to : h->path);
    free(h);
    if (err)
        envd_fail_with(c, err);
    else
        entry_find(c, path, answer_entry, c);
}

static void dir_ready(void *arg, const struct err *err) {
    change_over(arg, err);
}

static void dir_looked(void *arg, const struct frame *frame, const struct err *err) {
    struct change *h = arg;
    struct msg_entry e;
    struct err why;
    if (err && err->code == ERR_NOT_FOUND) {
        dirs_make(h->call, h->path, dir_ready, h);
        return;
    }
    if (err)
        why = *err;
    else if (msg_get_entry(frame, &e) == 0 && S_ISDIR(e.mode))
        err_set(&why, ERR_EXISTS, "directory already exists: %.200s", h->path);
    else
        err_set(&why, ERR_INVALID, "path already exists but it is not a directory: %.150s",
                h->path);
    change_over(h, &why);
}

void envd_files_make_dir(struct envd_call *c) {
    struct change *h = xnew(struct change);
    h->call = c;
    if (read_path(c, "path", h->path) < 0) {
        free(h);
        return;
    }
    const struct msg_path ask = {.uid = MSG_ID_NONE, .gid = MSG_ID_NONE, .path = str_of(h->path)};
    envd_file(c, MSG_STAT, &ask, NULL, dir_looked, h);
}

/* The error is about the path that is moved or removed. */
static void change_fail(struct change *h, const struct err *err) {
    struct envd_call *c = h->call;
    char path[ENVD_PATH_SIZE];
    memcpy(path, h->path, sizeof(path));
    free(h);
    fail_at(c, path, err);
}

static void moved(void *arg, const struct frame *frame, const struct err *err) {
    (void)frame;
    if (err)
        change_fail(arg, err);
    else
        change_over(arg, NULL);
}

static void parent_ready(void *arg, const struct err *err) {
    struct change *h = arg;
    if (err) {
        change_over(h, err);
        return;
    }
    const struct msg_move m = {
        .uid = MSG_ID_NONE, .gid = MSG_ID_NONE, .from = str_of(h->path), .to = str_of(h->to)};
    envd_file(h->call, MSG_MOVE, &m, h->path, moved, h);
}

static void source_seen(void *arg, const struct frame *frame, const struct err *err) {
    struct change *h = arg;
    (void)frame;
    if (err) {
        change_fail(h, err);
        return;
    }
    snprintf(h->parent, sizeof(h->parent), "%s", h->to);
    *strrchr(h->parent, '/') = '\0';
    dirs_make(h->call, h->parent, parent_ready, h);
}

void envd_files_move(struct envd_call *c) {
    struct change *h = xnew(struct change);
    h->call = c;
    if (read_path(c, "source", h->path) < 0 || read_path(c, "destination", h->to) < 0) {
        free(h);
        return;
    }
    const struct msg_path ask = {
        .uid = MSG_ID_NONE, .gid = MSG_ID_NONE, .flags = MSG_NOFOLLOW, .path = str_of(h->path)};
    envd_file(c, MSG_STAT, &ask, NULL, source_seen, h);
}

static void removed(void *arg, const struct frame *frame, const struct err *err) {
    struct change *h = arg;
    struct envd_call *c = h->call;
    (void)frame;
    if (err && err->code != ERR_NOT_FOUND) {
        change_fail(h, err);
        return;
    }
    free(h);
    envd_done(c);
}

void envd_files_remove(struct envd_call *c) {
    struct change *h = xnew(struct change);
    h->call = c;
    if (read_path(c, "path", h->path) < 0) {
        free(h);
        return;
    }
    if (strcmp(h->path, "/") == 0) {
        free(h);
        envd_fail(c, CONNECT_INVALID_ARGUMENT, "the root directory cannot be removed");
        return;
    }
    const struct msg_path m = {
        .uid = MSG_ID_NONE, .gid = MSG_ID_NONE, .flags = MSG_RECURSIVE, .path = str_of(h->path)};
    envd_file(c, MSG_REMOVE, &m, h->path, removed, h);
}

/* ---- list ---- */

/*
 * Directories are read one after the other, down to the depth; then the entries are sorted, and the
 * symlinks among them resolved.
 */
struct listing {
    struct envd_call *call;
    entry_put_fn *put; /* NULL: as ListDir */
    struct entry *entries;
    size_t count, room;
    size_t dir;   /* the entry whose directory is read; the first directory is the root */
    uint64_t at;  /* cookie of the next page */
    size_t first; /* entry of the directory that is read */
    bool labels;  /* its metadata is read */
    size_t meta_bytes;
    bool in_root;         /* the root is read */
    unsigned depth, base; /* base: number of slashes in the path of the root */
    size_t resolved;
    bool resolving, again; /* entry_resolve() answered at once */
    char path[ENVD_PATH_SIZE];
};

static void listing_free(struct listing *l) {
    for (size_t i = 0; i < l->count; i++)
        entry_done(&l->entries[i]);
    free(l->entries);
    free(l);
}

static void listing_fail(struct listing *l, const struct err *err) {
    struct envd_call *c = l->call;
    char path[ENVD_PATH_SIZE];
    bool in_dir = !l->in_root && l->dir < l->count;
    snprintf(path, sizeof(path), "%s", in_dir ? l->entries[l->dir].path : l->path);
    listing_free(l);
    fail_at(c, path, err);
}

static void listing_answer(struct listing *l) {
    struct envd_call *c = l->call;
    struct buf text DEFER(buf_done) = BUF(ENVD_ANSWER_MAX);
    struct jot j = JOT(&text);
    if (!l->put)
        jot_object(&j, NULL);
    jot_array(&j, l->put ? NULL : "entries");
    for (size_t i = 0; i < l->count && l->put; i++)
        l->put(&j, c, &l->entries[i]);
    for (size_t i = 0; i < l->count && !l->put; i++)
        entry_put(&j, NULL, c, &l->entries[i]);
    jot_end(&j, ']');
    if (!l->put)
        jot_end(&j, '}');
    listing_free(l);
    envd_answer(c, &j, &text);
}

/* A slash sorts before all other characters: what is in a directory follows it. */
static int by_path(const void *a, const void *b) {
    const unsigned char *x = (const unsigned char *)((const struct entry *)a)->path;
    const unsigned char *y = (const unsigned char *)((const struct entry *)b)->path;
    while (*x && *x == *y) {
        x++;
        y++;
    }
    return (*x == '/' ? 1 : *x ? *x + 1 : 0) - (*y == '/' ? 1 : *y ? *y + 1 : 0);
}

static void listing_resolve(struct listing *l);

static void listing_resolved(void *arg) {
    struct listing *l = arg;
    l->resolved++;
    if (l->resolving)
        l->again = true;
    else
        listing_resolve(l);
}

/* Entries that are no symlinks are done at once: a loop, so that they do not nest. */
static void listing_resolve(struct listing *l) {
    do {
        if (l->resolved == l->count) {
            listing_answer(l);
            return;
        }
        l->resolving = true;
        l->again = false;
        entry_resolve(l->call, &l->entries[l->resolved], listing_resolved, l);
        l->resolving = false;
    } while (l->again);
}

static unsigned slashes(const char *path) {
    unsigned n = 0;
    for (; *path; path++)
        n += *path == '/';
    return n;
}

static void page_came(void *arg, const struct frame *frame, const struct err *err);
static void labels_came(void *arg, const struct frame *frame, const struct err *err);

/* Asks for a page of entries, or of their metadata. */
static void listing_ask(struct listing *l) {
    const struct msg_list m = {.uid = MSG_ID_NONE,
                               .gid = MSG_ID_NONE,
                               .cookie = l->at,
                               .max = LIST_PAGE,
                               .path = str_of(l->in_root ? l->path : l->entries[l->dir].path)};
    envd_file(l->call, l->labels ? MSG_META : MSG_LIST, &m, NULL,
              l->labels ? labels_came : page_came, l);
}

/* Goes on with the next directory that is not too deep. */
static void listing_next(struct listing *l) {
    l->dir += !l->in_root;
    l->in_root = l->labels = false;
    l->at = 0;
    l->first = l->count;
    while (l->dir < l->count && (l->entries[l->dir].type != S_IFDIR ||
                                 slashes(l->entries[l->dir].path) - l->base >= l->depth))
        l->dir++;
    if (l->dir < l->count) {
        listing_ask(l);
        return;
    }
    qsort(l->entries, l->count, sizeof(*l->entries), by_path);
    listing_resolve(l);
}

static void listing_add(struct listing *l, const struct msg_entry *m) {
    const char *dir = l->in_root ? l->path : l->entries[l->dir].path;
    char *path = xformat("%s/%s", strcmp(dir, "/") == 0 ? "" : dir, m->name.s);
    if (l->count == l->room) {
        l->room = l->room ? 2 * l->room : 64;
        l->entries = xrealloc(l->entries, l->room, sizeof(*l->entries));
    }
    entry_set(&l->entries[l->count++], path, m);
}

static int listing_read(struct listing *l, const struct frame *frame, struct err *err) {
    struct msg_list_page page;
    struct msg_entry m;
    int more = -1;
    if (msg_get_list_page(frame, &page) == 0)
        while ((more = msg_entry_next(&page.entries, &m)) > 0) {
            if (l->count == LIST_ENTRIES_MAX)
                return err_set(err, ERR_LIMIT, "the directory has more than %d entries",
                               LIST_ENTRIES_MAX);
            listing_add(l, &m);
        }
    if (more < 0)
        return err_set(err, ERR_INTERNAL,
                       "the guest process of the machine sent a malformed reply");
    l->at = page.next;
    return 0;
}

/* ---- metadata: once all entries of a directory are known, they are found by their path ---- */

static void listing_label(struct listing *l) {
    qsort(l->entries + l->first, l->count - l->first, sizeof(*l->entries), by_path);
    l->labels = true;
    listing_ask(l);
}

static void label_one(struct listing *l, const struct msg_meta *m) {
    const char *dir = l->in_root ? l->path : l->entries[l->dir].path;
    char *path DEFER_FREE = xformat("%s/%s", strcmp(dir, "/") == 0 ? "" : dir, m->name.s);
    const struct entry key = {.path = path};
    struct entry *e =
        bsearch(&key, l->entries + l->first, l->count - l->first, sizeof(*l->entries), by_path);
    l->meta_bytes += m->pairs.n + META_COST;
    if (e && l->meta_bytes <= LIST_META_MAX)
        entry_label(e, m);
}

/* An older guest, or a directory that is gone, has no metadata. */
static void labels_came(void *arg, const struct frame *frame, const struct err *err) {
    struct listing *l = arg;
    struct msg_meta_page page = {.next = 0};
    struct msg_meta m;
    size_t before = l->meta_bytes;
    if (!err && msg_get_meta_page(frame, &page) == 0)
        while (msg_meta_next(&page.entries, &m) > 0)
            label_one(l, &m);
    if (page.next && l->meta_bytes > before && l->meta_bytes <= LIST_META_MAX) {
        l->at = page.next;
        listing_ask(l);
    } else {
        listing_next(l);
    }
}

static void page_came(void *arg, const struct frame *frame, const struct err *err) {
    struct listing *l = arg;
    struct err bad;
    if (!err && listing_read(l, frame, &bad) < 0)
        listing_fail(l, &bad);
    else if (err && l->in_root)
        listing_fail(l, err);
    else if (!err && l->at)
        listing_ask(l);
    else if (!err && l->first < l->count)
        listing_label(l);
    else
        listing_next(l); /* also if a directory below was removed meanwhile */
}

static void root_seen(void *arg, const struct frame *frame, const struct err *err) {
    struct listing *l = arg;
    struct msg_entry e;
    struct err bad;
    if (!err && (msg_get_entry(frame, &e) < 0 || !S_ISDIR(e.mode))) {
        err_set(&bad, ERR_INVALID, "path is not a directory: %.200s", l->path);
        err = &bad;
    }
    if (err)
        listing_fail(l, err);
    else
        listing_ask(l);
}

void envd_files_list(struct envd_call *c) {
    json_int_t depth = json_integer_value(json_object_get(c->json, "depth"));
    if (depth < 0 || depth > UINT32_MAX) {
        envd_fail(c, CONNECT_INVALID_ARGUMENT, "the field 'depth' is out of range");
        return;
    }
    char path[ENVD_PATH_SIZE];
    if (read_path(c, "path", path) == 0)
        entries_list(c, path, (uint64_t)depth, NULL);
}

void entries_list(struct envd_call *c, const char *path, uint64_t depth, entry_put_fn *put) {
    struct listing *l = xnew(struct listing);
    l->call = c;
    l->put = put;
    l->in_root = true;
    snprintf(l->path, sizeof(l->path), "%s", path);
    l->base = strcmp(l->path, "/") == 0 ? 0 : slashes(l->path);
    l->depth = depth == 0 ? 1 : depth > DEPTH_MAX ? DEPTH_MAX : (unsigned)depth;
    const struct msg_path ask = {.uid = MSG_ID_NONE, .gid = MSG_ID_NONE, .path = str_of(l->path)};
    envd_file(c, MSG_STAT, &ask, NULL, root_seen, l);
}
