/* Lists runs, and follows or exports the transcript of one run. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/defer.h"
#include "base/fs/dir.h"
#include "operator/export.h"
#include "operator/inner.h"

/* ---- listing ---- */

struct found {
    char id[ID_SIZE];
    struct timespec at;
};

static int newer(const void *a, const void *b) {
    const struct found *x = a, *y = b;
    if (x->at.tv_sec != y->at.tv_sec)
        return x->at.tv_sec < y->at.tv_sec ? 1 : -1;
    if (x->at.tv_nsec != y->at.tv_nsec)
        return x->at.tv_nsec < y->at.tv_nsec ? 1 : -1;
    return strcmp(x->id, y->id); /* a stable order for runs that changed at the same time */
}

static size_t find_all(const struct runs *o, struct arena *a, struct found **ret) {
    DIR *dir DEFER(dir_close) = opendir(o->dir);
    size_t count = 0;
    for (struct dirent *d; dir && (d = readdir(dir));) {
        struct stat st;
        size_t n = strcspn(d->d_name, ".");
        if (!id_valid(d->d_name, n, 'r') || fstatat(dirfd(dir), d->d_name, &st, 0) < 0)
            continue;
        *ret = arena_grow(a, *ret, count, sizeof(**ret));
        struct found *f = &(*ret)[count++];
        snprintf(f->id, sizeof(f->id), "%.*s", (int)n, d->d_name);
        f->at = st.st_mtim;
    }
    if (count)
        qsort(*ret, count, sizeof(**ret), newer);
    return count;
}

void runs_each(struct runs *o, void (*fn)(void *arg, const struct run *r), void *arg) {
    struct arena a DEFER(arena_done) = {0};
    struct found *all = NULL;
    size_t count = find_all(o, &a, &all);
    for (size_t i = 0; i < count; i++) {
        struct run run DEFER(run_done) = {0};
        struct transcript t = {.fd = -1};
        struct err err;
        if (transcript_open(o->dir, all[i].id, &t, &run, &err) == 0)
            fn(arg, &run);
        transcript_close(&t);
    }
}

struct listing {
    service_row_fn *row;
    void *arg;
    size_t left;
};

static void list_one(void *arg, const struct run_view *view, const struct err *err) {
    struct listing *l = arg;
    if (err)
        return; /* the run belongs to another owner, or its transcript is incomplete */
    l->row(l->arg, view);
    l->left--;
}

int operator_list(struct runs *o, const struct caller *who, size_t limit, service_row_fn *row,
                  void *arg, struct err *err) {
    struct arena a DEFER(arena_done) = {0};
    struct found *all = NULL;
    struct listing l = {row, arg, limit};
    if (runs_allowed(who, SCOPE_READ, err) < 0)
        return -1;
    size_t count = find_all(o, &a, &all);
    for (size_t i = 0; i < count && l.left; i++)
        operator_show(o, who, all[i].id, list_one, &l);
    return 0;
}

/* ---- following ---- */

bool operator_follow(struct runs *o, const char *id, struct run_follower *f) {
    struct live_run *l = map_get(&o->live, id);
    if (!l)
        return false;
    f->next = l->followers;
    f->at = &l->followers;
    if (f->next)
        f->next->at = &f->next;
    l->followers = f;
    return true;
}

void operator_unfollow(struct run_follower *f) {
    if (!f->at)
        return;
    *f->at = f->next;
    if (f->next)
        f->next->at = f->at;
    f->at = NULL;
    f->next = NULL;
}

int operator_read(struct runs *o, const struct caller *who, const char *id, uint64_t from,
                  struct buf *to, struct err *err) {
    struct run run DEFER(run_done) = {0};
    struct transcript t = {.fd = -1};
    struct live_run *l;
    if (runs_find_live(o, who, SCOPE_READ, id, &l, err) < 0 ||
        (!l && runs_load(o, who, id, &run, &t, err) < 0))
        return -1;
    int status = transcript_read(l ? l->transcript.fd : t.fd, from, 1 << 20, to, err);
    transcript_close(&t);
    return status;
}

int operator_export(struct runs *o, const struct caller *who, const char *id, struct buf *to,
                    struct err *err) {
    struct buf lines DEFER(buf_done) = BUF(TRANSCRIPT_BYTES_MAX);
    for (bool more = true; more;) {
        struct buf piece DEFER(buf_done) = BUF(RUN_LINE_MAX + (2 << 20));
        if (operator_read(o, who, id, lines.len, &piece, err) < 0)
            return -1;
        more = piece.len;
        if (more && !buf_add(&lines, piece.data, piece.len))
            return err_set(err, ERR_LIMIT,
                           "cannot export the run: its transcript is longer than %d MiB",
                           TRANSCRIPT_BYTES_MAX >> 20);
    }
    return run_export(lines.data ? lines.data : "", lines.len, to, err);
}
