/* Copies files of the host into a machine: a worker reads them, the guest writes them. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "grant/dirs.h"
#include "service/exec/plan.h"
#include "service/files.h"
#include "service/grants/inner.h"
#include "service/steps/barrier.h"

struct copying {
    struct live *live;
    int fd;     /* source on the host; -1: the content is `text` */
    char *text; /* owned */
    char path[PLAN_PATH_SIZE];
    uint32_t mode, uid, gid;
    uint64_t at;
    bool begun;  /* the first write, which creates the file, was sent */
    char *chunk; /* MSG_CHUNK_MAX bytes */
    ssize_t n;   /* bytes in `chunk`, or -errno */
    service_done_fn *done;
    void *arg;
};

static void handover_finish(struct copying *c, const struct err *err) {
    service_done_fn *done = c->done;
    void *arg = c->arg;
    struct live *l = c->live;
    close_fd(&c->fd);
    if (c->text)
        explicit_bzero(c->text, strlen(c->text));
    free(c->text);
    free(c->chunk);
    free(c);
    done(arg, err);
    live_unref(l);
}

static struct msg_str handover_text_of(const char *s) {
    return (struct msg_str){s, (uint32_t)strlen(s)};
}

static struct guest *guest_of(struct copying *c) {
    struct err err;
    if (c->live->machine)
        return c->live->machine->guest;
    live_state_error(c->live, &err);
    handover_finish(c, &err);
    return NULL;
}

static void next_chunk(struct copying *c);

static void written(void *arg, const struct frame *frame, const struct err *failed) {
    struct copying *c = arg;
    struct err err;
    (void)frame;
    if (failed) {
        err = *failed;
        err_wrap(&err, "cannot write file '%s' in the machine", c->path);
        handover_finish(c, &err);
        return;
    }
    c->at += (uint64_t)c->n;
    next_chunk(c);
}

/* Waits at the barrier, because nothing may be written while a step (a snapshot) is taken. */
static void write_chunk(void *arg) {
    struct copying *c = arg;
    struct err err;
    int turn = barrier_enter(c->live, write_chunk, c, &err);
    if (turn > 0)
        return;
    if (turn < 0) {
        handover_finish(c, &err);
        return;
    }
    if (c->n < 0) {
        err_num(&err, (int)c->n, "cannot read the file that is copied to '%s' in the machine",
                c->path);
        handover_finish(c, &err);
        return;
    }
    if (c->n == 0 && c->begun) {
        handover_finish(c, NULL);
        return;
    }
    const struct msg_write m = {.uid = c->uid,
                                .gid = c->gid,
                                .flags = c->begun ? 0 : MSG_CREATE | MSG_TRUNCATE,
                                .mode = c->mode,
                                .offset = c->at,
                                .path = handover_text_of(c->path),
                                .data = {(const uint8_t *)c->chunk, (uint32_t)c->n}};
    c->begun = true;
    struct guest *g = guest_of(c);
    if (g)
        guest_request(g, (struct frame_head){.type = MSG_WRITE}, &m, NULL, 0, written, c);
}

static void read_chunk(void *arg) {
    struct copying *c = arg;
    c->n = pread(c->fd, c->chunk, MSG_CHUNK_MAX, (off_t)c->at);
    if (c->n < 0)
        c->n = -errno;
}

static void next_chunk(struct copying *c) {
    if (c->fd >= 0) {
        loop_work(c->live->service->loop, read_chunk, write_chunk, c);
        return;
    }
    size_t left = strlen(c->text) - (size_t)c->at;
    if (!left && c->begun) {
        handover_finish(c, NULL);
        return;
    }
    c->n = (ssize_t)(left < MSG_CHUNK_MAX ? left : MSG_CHUNK_MAX);
    memcpy(c->chunk, c->text + c->at, (size_t)c->n);
    write_chunk(c);
}

/* Ignores errors: the directory may exist, and if it does not, creating the file fails. */
static void parents_made(void *arg, const struct frame *frame, const struct err *err) {
    (void)frame;
    (void)err;
    next_chunk(arg);
}

static void handover_begin(void *arg) {
    struct copying *c = arg;
    char *slash = strrchr(c->path, '/');
    struct err err;
    int turn = barrier_enter(c->live, handover_begin, c, &err);
    if (turn > 0)
        return;
    if (turn < 0) {
        handover_finish(c, &err);
        return;
    }
    struct guest *g = guest_of(c);
    if (!g)
        return;
    *slash = '\0';
    const struct msg_path m = {.uid = c->uid,
                               .gid = c->gid,
                               .flags = MSG_PARENTS,
                               .mode = 0755,
                               .path = handover_text_of(*c->path ? c->path : "/")};
    guest_request(g, (struct frame_head){.type = MSG_MKDIR}, &m, NULL, 0, parents_made, c);
    *slash = '/';
}

static struct copying *copying_new(struct live *l, const struct handover *to, service_done_fn *done,
                                   void *arg) {
    struct copying *c = xnew(struct copying);
    c->chunk = xmalloc(MSG_CHUNK_MAX);
    c->live = l;
    c->fd = -1;
    c->mode = to->mode;
    if (!to->as_root)
        live_user(l, &c->uid, &c->gid);
    c->done = done;
    c->arg = arg;
    snprintf(c->path, sizeof(c->path), "%s", to->path);
    live_ref(l);
    return c;
}

void handover_file(struct live *l, int fd, const struct handover *to, service_done_fn *done,
                   void *arg) {
    struct copying *c = copying_new(l, to, done, arg);
    struct err err;
    c->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (c->fd >= 0) {
        handover_begin(c);
        return;
    }
    err_sys(&err, "cannot copy a file to '%s' in the machine", to->path);
    handover_finish(c, &err);
}

void handover_text(struct live *l, const char *text, const struct handover *to,
                   service_done_fn *done, void *arg) {
    struct copying *c = copying_new(l, to, done, arg);
    c->text = xstrdup(text);
    handover_begin(c);
}

void service_file_text(struct service *s, const struct caller *who, const char *machine,
                       const struct file_text *f, service_done_fn *done, void *arg) {
    const struct handover to = {f->path, f->mode, .as_root = true};
    struct err err;
    struct live *l =
        allow(who, SCOPE_RUN, &err) < 0 ? NULL : live_find(s, who, machine, LIVE_RUNNING, &err);
    if (l && place_check(f->path, &err) < 0)
        l = NULL;
    if (l)
        handover_text(l, f->text, &to, done, arg);
    else
        done(arg, &err);
}

/* ---- deleting a copied file ---- */

struct removing {
    struct live *live;
    char path[PLAN_PATH_SIZE];
    service_done_fn *done;
    void *arg;
};

static void removed(void *arg, const struct frame *frame, const struct err *err) {
    struct removing *r = arg;
    (void)frame;
    r->done(r->arg, err && err->code != ERR_NOT_FOUND ? err : NULL);
    live_unref(r->live);
    free(r);
}

static void remove_now(void *arg) {
    struct removing *r = arg;
    struct live *l = r->live;
    struct msg_path m = {.flags = MSG_RECURSIVE, .path = handover_text_of(r->path)};
    struct err err;
    int turn = barrier_enter(l, remove_now, r, &err);
    if (turn > 0)
        return;
    live_user(l, &m.uid, &m.gid);
    if (turn == 0 && l->machine) {
        guest_request(l->machine->guest, (struct frame_head){.type = MSG_REMOVE}, &m, NULL, 0,
                      removed, r);
        return;
    }
    if (turn == 0)
        live_state_error(l, &err);
    removed(r, NULL, &err);
}

void handover_remove(struct live *l, const char *path, service_done_fn *done, void *arg) {
    struct removing *r = xnew(struct removing);
    *r = (struct removing){.live = l, .done = done, .arg = arg};
    snprintf(r->path, sizeof(r->path), "%s", path);
    live_ref(l);
    remove_now(r);
}
