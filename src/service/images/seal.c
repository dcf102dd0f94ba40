/*
 * Sealing: converts a named image into one file, `root.erofs`, which the spawner mounts. A worker
 * of the spawner writes the file in the background, one image at a time. New boxes use the file
 * once it has its final name. The tree is deleted when no box and no export reads it. Files that
 * presets (gate/preset.h) are read from stay beside the sealed file, because the daemon does not
 * mount it.
 *
 * Intermediate images of builds stay trees, because most are deleted soon. Layers above other
 * images stay trees, because they are small; the lowest layer of a named image is converted. Images
 * also stay trees if the kernel cannot mount such a file: the spawner then answers ERR_UNSUPPORTED.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/log.h"
#include "gate/preset.h"
#include "service/images/inner.h"

enum { LINE_BYTES = 64 << 10 };

static const char file_name[] = "root.erofs", file_aside[] = "root.erofs.new", tree_name[] = "root",
                  kept_name[] = "presets", kept_aside[] = "presets.new";

struct seal_want {
    struct seal_want *next;
    char id[IMAGE_ID_SIZE];
};

struct sealing {
    struct service *service; /* NULL: the service is gone, stop */
    char id[IMAGE_ID_SIZE];
    char path[PLACE_SIZE + IMAGE_ID_SIZE + 16];
    int dir, file, report[2];
    struct loop_watch *watch;
    struct buf line;
    bool waits;   /* a worker thread or the spawner still uses this struct */
    bool written; /* the worker reported success */
    bool is_file; /* the image was sealed before */
    int result;
};

static void sealing_free(struct sealing *t) {
    loop_watch_free(t->watch);
    buf_done(&t->line);
    close_fd(&t->dir);
    close_fd(&t->file);
    close_fd(&t->report[0]);
    close_fd(&t->report[1]);
    free(t);
}

static void next(struct service *s);

/*
 * Call when the worker thread or the spawner has answered. False: the service is gone, and t is
 * freed.
 */
static bool goes_on(struct sealing *t) {
    t->waits = false;
    if (t->service)
        return true;
    sealing_free(t);
    return false;
}

static void seal_end(struct sealing *t) {
    struct service *s = t->service;
    if (t->dir >= 0 && !t->is_file)
        unlinkat(t->dir, file_aside, 0);
    s->images->sealing = NULL;
    sealing_free(t);
    next(s);
}

/* Logs that sealing failed, unless the image was deleted meanwhile. */
static void seal_fail(struct sealing *t, const char *why) {
    struct stat st;
    if (stat(t->path, &st) == 0)
        log_line(LOG_WARN, "service",
                 "convert an image to erofs: %s; the image stays a directory id=%s", why, t->id);
    seal_end(t);
}

/* ---- deleting the tree ---- */

static bool has(int dir, const char *name) {
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* If the tree is still in use, images_again() schedules another attempt to delete it. */
static void rest_gone(void *arg, const struct err *err) {
    struct service *s = arg;
    if (err && err->code == ERR_BUSY)
        images_again(s);
    else if (err)
        log_line(LOG_WARN, "service", "delete the directory of an image: %s", err->text);
}

static void drop_tree(struct service *s, const char *id, machine_done_fn *done, void *arg) {
    char name[IMAGE_ID_SIZE + 8];
    snprintf(name, sizeof(name), "%s/%s", id, tree_name);
    s->driver->wipe(s->host, name, done, arg);
}

void seal_rest(struct service *s, const char *id) {
    uint64_t machines = 1;
    struct err err;
    int images DEFER_CLOSE = images_open(s);
    int dir DEFER_CLOSE = images < 0 ? -1 : dir_open(images, id);
    if (dir >= 0 && has(dir, file_name) && has(dir, tree_name) &&
        store_image_machines(s->store, NULL, id, &machines, &err) == 0 && machines == 0)
        drop_tree(s, id, rest_gone, s);
}

static void tree_gone(void *arg, const struct err *err) {
    struct sealing *t = arg;
    if (!goes_on(t))
        return;
    rest_gone(t->service, err);
    seal_end(t);
}

/* ---- naming the file ---- */

/* Runs on a worker thread. The sealed file must be on disk before it replaces the tree. */
static void seal_settle(void *arg) {
    struct sealing *t = arg;
    bool well = fchmod(t->file, 0400) == 0 && fsync(t->file) == 0 &&
                renameat(t->dir, file_aside, t->dir, file_name) == 0 && fsync(t->dir) == 0;
    t->result = well ? 0 : -errno;
}

static void settled(void *arg) {
    struct sealing *t = arg;
    if (!goes_on(t))
        return;
    if (t->result < 0) {
        seal_fail(t, strerror(-t->result));
        return;
    }
    t->is_file = t->waits = true;
    drop_tree(t->service, t->id, tree_gone, t);
}

/* ---- the worker ---- */

static void hear_line(struct sealing *t, const char *line, size_t n) {
    json_t *word = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *error = json_object_get(word, "error");
    const char *why = json_string_value(json_object_get(error, "message"));
    t->written = json_is_true(json_object_get(word, "done"));
    if (why)
        log_line(LOG_WARN, "service", "convert an image to erofs: %s id=%s", why, t->id);
    json_decref(word);
}

static void hear_lines(struct sealing *t) {
    char *newline;
    while (t->line.len && (newline = memchr(t->line.data, '\n', t->line.len))) {
        size_t n = (size_t)(newline - t->line.data);
        hear_line(t, t->line.data, n);
        memmove(t->line.data, newline + 1, t->line.len - n - 1);
        t->line.len -= n + 1;
    }
}

static void seal_hear(void *arg, unsigned events) {
    struct sealing *t = arg;
    char piece[4096];
    ssize_t n = read(t->report[0], piece, sizeof(piece));
    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0 && buf_add(&t->line, piece, (size_t)n)) {
        hear_lines(t);
        return;
    }
    loop_watch_free(t->watch);
    t->watch = NULL;
    if (!t->written) {
        seal_fail(t, "carrel-image did not finish");
        return;
    }
    t->waits = true;
    loop_work(t->service->loop, seal_settle, settled, t);
}

static void begun(void *arg, const struct err *err) {
    struct sealing *t = arg;
    struct err why;
    if (!goes_on(t))
        return;
    close_fd(&t->report[1]);
    if (err && err->code == ERR_UNSUPPORTED) {
        t->service->images->seals_off = true;
        seal_end(t);
    } else if (err) {
        seal_fail(t, err->text);
    } else if (loop_watch_new(t->service->loop, t->report[0], LOOP_READ, seal_hear, t, &t->watch,
                              &why) < 0) {
        seal_fail(t, why.text);
    }
}

/* ---- preparation ---- */

static int keep_presets(const struct sealing *t) {
    if (has(t->dir, kept_name))
        return 0;
    if (mkdirat(t->dir, kept_aside, 0700) < 0 && errno != EEXIST)
        return -errno;
    int root DEFER_CLOSE = dir_open(t->dir, tree_name);
    int kept DEFER_CLOSE = dir_open(t->dir, kept_aside);
    int r = root < 0 || kept < 0 ? -errno : preset_keep(root, kept);
    return r < 0 ? r : renameat(t->dir, kept_aside, t->dir, kept_name) < 0 ? -errno : 0;
}

/* Runs on a worker thread. A sealed file that an earlier daemon did not finish is written again. */
static void seal_prepare(void *arg) {
    struct sealing *t = arg;
    t->dir = dir_open(AT_FDCWD, t->path);
    t->is_file = t->dir >= 0 && has(t->dir, file_name);
    if (t->dir < 0 || t->is_file) {
        t->result = t->dir < 0 ? -errno : 0;
        return;
    }
    t->result = keep_presets(t);
    if (t->result < 0)
        return;
    unlinkat(t->dir, file_aside, 0);
    t->file = openat(t->dir, file_aside, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (t->file < 0 || pipe2(t->report, O_CLOEXEC) < 0)
        t->result = -errno;
}

static void prepared(void *arg) {
    struct sealing *t = arg;
    if (!goes_on(t))
        return;
    if (t->result < 0) {
        seal_fail(t, strerror(-t->result));
    } else if (t->is_file && !has(t->dir, tree_name)) {
        seal_end(t);
    } else {
        t->waits = true;
        if (t->is_file)
            drop_tree(t->service, t->id, tree_gone, t);
        else
            t->service->driver->pack(t->service->host, "erofs", t->id, t->file, t->report[1], begun,
                                     t);
    }
}

/* ---- the queue ---- */

static void next(struct service *s) {
    struct seal_want *want DEFER_FREE = s->images->sealing ? NULL : s->images->seal_wants;
    if (!want)
        return;
    s->images->seal_wants = want->next;
    if (s->images->seals_off) {
        next(s);
        return;
    }
    struct sealing *t = xnew(struct sealing);
    *t = (struct sealing){
        .service = s, .dir = -1, .file = -1, .report = {-1, -1}, .line = BUF(LINE_BYTES)};
    snprintf(t->id, sizeof(t->id), "%s", want->id);
    snprintf(t->path, sizeof(t->path), "%s/images/%s", s->place->home, t->id);
    t->waits = true;
    s->images->sealing = t;
    loop_work(s->loop, seal_prepare, prepared, t);
}

void seal_want(struct service *s, const char *name, const char *id) {
    struct seal_want **last = &s->images->seal_wants;
    struct image_below below;
    if (s->images->seals_off || image_is_step(name) || image_uses_host(s, id) ||
        image_below_of(s, id, &below) != 0)
        return;
    if (below.count)
        id = below.ids[below.count - 1];
    for (; *last; last = &(*last)->next)
        if (strcmp((*last)->id, id) == 0)
            return;
    *last = xcalloc(1, sizeof(**last));
    snprintf((*last)->id, sizeof((*last)->id), "%s", id);
    next(s);
}

void seals_release(struct service *s) {
    for (struct seal_want *w; (w = s->images->seal_wants); free(w))
        s->images->seal_wants = w->next;
    if (!s->images->sealing)
        return;
    s->images->sealing->service = NULL;
    if (!s->images->sealing->waits)
        sealing_free(s->images->sealing);
    s->images->sealing = NULL;
}
