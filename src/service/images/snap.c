/*
 * Makes an image of a machine: takes a step (snapshot), then packs its layers with a new
 * image.json. The image is a layer above the image of the machine, or above the last image made of
 * it. For a machine on `host` it contains all files.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/tar.h"
#include "service/images/inner.h"
#include "service/images/jobs_inner.h"
#include "service/steps/barrier.h"
#include "service/steps/live.h"

/* same value as in image/config.h, which the daemon does not link */
enum { CONFIG_MAX = 32 << 10 };

struct image_snap {
    struct image_job *job;
    char *step;     /* step of the machine; NULL: its present state */
    json_t *config; /* configuration of the machine's image, with the requested changes */
    int report[2];
    int pipe;
    bool taking;  /* the step is being taken; snap_step() follows */
    bool dropped; /* cancelled: `done` must not be called */
    service_image_fn *done;
    void *arg;
    struct image_snap **handle;
};

static void snap_free(struct image_snap *p) {
    json_decref(p->config);
    free(p->step);
    close_fd(&p->pipe);
    close_fd(&p->report[0]);
    close_fd(&p->report[1]);
    free(p);
}

static void snap_ended(void *arg, const struct image_view *view, const struct err *err) {
    struct image_snap *p = arg;
    if (!p->dropped) {
        *p->handle = NULL;
        p->done(p->arg, view, err);
    }
    snap_free(p);
}

static void snap_dropped_error(struct err *err) {
    err_set(err, ERR_GONE, "the image was cancelled before it was complete");
}

void image_snap_cancel(struct image_snap *p) {
    struct err err;
    p->dropped = true;
    snap_dropped_error(&err);
    if (!p->taking && !p->job->over)
        image_job_fail(p->job, &err);
}

static void set_env(json_t *config, const struct texts *pairs) {
    json_t *list = json_object_get(config, "env"), *value;
    size_t at;
    if (!list) {
        list = json_array();
        json_object_set_new(config, "env", list);
    }
    for (size_t i = 0; i + 1 < pairs->count; i += 2) {
        size_t n = strlen(pairs->v[i]);
        json_array_foreach(list, at, value) {
            const char *old = json_string_value(value);
            if (old && strncmp(old, pairs->v[i], n) == 0 && old[n] == '=')
                break;
        }
        if (at < json_array_size(list))
            json_array_remove(list, at);
        json_array_append_new(list, json_sprintf("%s=%s", pairs->v[i], pairs->v[i + 1]));
    }
}

static void set_words(json_t *config, const char *name, const struct texts *words) {
    json_t *list = json_array();
    for (size_t i = 0; i < words->count; i++)
        json_array_append_new(list, json_string(words->v[i]));
    if (words->count)
        json_object_set_new(config, name, list);
    else
        json_decref(list);
}

static json_t *make_config(const struct live *l, const struct image_request *r) {
    json_t *config = l->image ? json_deep_copy(l->image->config->image) : json_object();
    if (!l->image) { /* a machine without an image runs commands as `user` */
        json_object_set_new(config, "user", json_string("user"));
        json_object_set_new(config, "workdir", json_string("/home/user"));
    }
    set_env(config, &r->env);
    if (r->user)
        json_object_set_new(config, "user", json_string(r->user));
    if (r->workdir)
        json_object_set_new(config, "workdir", json_string(r->workdir));
    if (r->command.count || r->entrypoint.count) {
        json_object_del(config, "command");
        json_object_del(config, "entrypoint");
        set_words(config, "entrypoint", &r->entrypoint);
        set_words(config, "command", &r->command);
    }
    return config;
}

/*
 * Writes the image's configuration as the first entry of the archive; it fits into the pipe. A
 * worker appends the files.
 */
static int put_config(int fd, const json_t *config, struct err *err) {
    char *text DEFER_FREE = json_dumps(config, JSON_COMPACT);
    struct tar_entry *e DEFER_FREE = xnew(struct tar_entry);
    uint8_t head[TAR_HEAD_MAX], padding[TAR_BLOCK] = {0};
    if (!text || strlen(text) > CONFIG_MAX)
        return err_set(err, ERR_LIMIT, "the image's configuration is larger than %d KiB",
                       CONFIG_MAX >> 10);
    *e = (struct tar_entry){.kind = TAR_FILE, .mode = 0644, .size = strlen(text)};
    snprintf(e->path, sizeof(e->path), ".carrel-image.json");
    size_t n = tar_put(head, e);
    if (write_all(fd, head, n) < 0 || write_all(fd, text, strlen(text)) < 0 ||
        write_all(fd, padding, tar_padding(e->size)) < 0)
        return err_set(err, ERR_INTERNAL,
                       "the image's configuration cannot be written to the archive");
    return 0;
}

static void drawing(void *arg, const struct err *err) {
    struct image_snap *p = arg;
    struct image_job *j = p->job;
    close_fd(&p->pipe);
    close_fd(&p->report[1]);
    image_job_begun(j, err);
}

/* The files of the machine, from which the presets of the image are read. */
static void viewed(void *arg, int root, int usr, const struct err *err) {
    struct image_job *j = arg;
    close_fd(&usr);
    j->merged = root;
    image_job_begun(j, err);
}

/*
 * Starts the second worker, which writes the files of the machine to the archive. Both workers
 * share the archive's pipe, and each reports to the daemon.
 */
static int begin_draw(struct image_snap *p, struct err *err) {
    struct image_job *j = p->job;
    struct service *s = j->service;
    if (put_config(j->archive, p->config, err) < 0)
        return -1;
    if (pipe2(p->report, O_CLOEXEC) < 0)
        return err_sys(err, "cannot create a pipe for the image worker");
    j->drawn.fd = TAKE_FD(p->report[0]);
    if (image_hearing_open(j, &j->drawn, err) < 0)
        return -1;
    /*
     * The worker must block on a full pipe: it shares the pipe end and its O_NONBLOCK with the
     * daemon.
     */
    loop_watch_free(j->archive_watch);
    j->archive_watch = NULL;
    p->pipe = TAKE_FD(j->archive);
    int flags = fcntl(p->pipe, F_GETFL);
    if (flags < 0 || fcntl(p->pipe, F_SETFL, flags & ~O_NONBLOCK) < 0)
        return err_sys(err, "cannot change the flags of the pipe for the image worker");
    j->asking++;
    const struct machine_draw what = {.stack = j->stack ? j->stack : "",
                                      .base = j->below.count ? j->below.ids[0] : NULL,
                                      .layers = j->draw_layers};
    s->driver->draw(j->live->machine, &what, p->pipe, p->report[1], drawing, p);
    if (what.base) {
        j->asking++;
        s->driver->view(j->live->machine, what.stack, viewed, j);
    }
    return 0;
}

static void snap_step(void *arg, const struct step_row *row, const struct err *failed) {
    struct image_snap *p = arg;
    struct image_job *j = p->job;
    struct err err;
    struct step_row step DEFER(step_row_done) = {.stack = NULL};
    p->taking = false;
    if (failed) {
        err = *failed;
    } else if (p->dropped) {
        snap_dropped_error(&err);
    } else if (store_step_find(j->service->store, row->machine, row->id, &step, &err) == 0) {
        if (!step.has_point)
            step_point_error(j->live, &step, &err);
        else if (!j->live->machine || j->live->ending)
            live_state_error(j->live, &err);
        else {
            layers_hold(j->service, &j->reads, step.stack);
            j->stack = TAKE(step.stack);
            if (image_job_choose_base(j, &err) == 0 && image_job_begin_unpack(j, &err) == 0) {
                if (begin_draw(p, &err) < 0)
                    image_job_fail(j, &err);
                return;
            }
        }
    }
    image_job_free(j);
    snap_ended(p, NULL, &err);
}

static void find_step(void *arg) {
    struct image_snap *p = arg;
    struct image_job *j = p->job;
    struct step_row step DEFER(step_row_done) = {.stack = NULL};
    struct err err;
    int r = p->dropped ? 0 : barrier_enter(j->live, find_step, p, &err);
    if (r > 0)
        return;
    if (r == 0 && !p->dropped)
        r = store_step_find(j->service->store, j->live->row.id, p->step, &step, &err);
    snap_step(p, &step, r < 0 ? &err : NULL);
}

static void no_room(void *arg) {
    (void)arg;
}

json_t *live_image_text(const struct live *l) {
    return make_config(l, &(struct image_request){.name = NULL});
}

void service_image_snap(struct service *s, const struct caller *who, const char *machine,
                        const struct image_request *r, service_image_fn *done, void *arg,
                        struct image_snap **handle) {
    struct err err;
    char origin[IMAGE_ORIGIN_SIZE];
    struct live *l =
        allow(who, SCOPE_RUN, &err) < 0 ? NULL : live_find(s, who, machine, LIVE_ANY, &err);
    struct image_snap *p = xnew(struct image_snap);
    *p = (struct image_snap){.step = r->step ? xstrdup(r->step) : NULL,
                             .report = {-1, -1},
                             .pipe = -1,
                             .done = done,
                             .arg = arg,
                             .handle = handle};
    *handle = NULL;
    const struct image_events events = {.arg = p, .room = no_room, .ended = snap_ended};
    struct image_job *j = l ? image_job_new(s, who, IMAGE_SNAP, &events, &err) : NULL;
    snprintf(origin, sizeof(origin), "machine %s", l ? l->row.id : "");
    if (!j || image_job_fill_row(j, r->name, origin, &err) < 0) {
        done(arg, NULL, &err);
        if (j)
            image_job_free(j);
        snap_free(p);
        return;
    }
    p->job = j;
    j->live = l;
    live_ref(l);
    p->config = make_config(l, r);
    p->taking = true;
    *handle = p;
    if (r->step) {
        find_step(p);
        return;
    }
    struct step_cause cause = {.kind = STEP_SNAP, .what = j->row.name, .status = -1};
    steps_take(l, &cause, snap_step, p);
}
