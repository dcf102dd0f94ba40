/*
 * Counts the files in the layers of a machine, so that heavy layers are merged seldom (tidy.c).
 *
 * Each layer is counted once, in a worker thread. Only directories are read, and no link is
 * followed: a box wrote the names.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fs/dir.h"
#include "machine/compare.h"
#include "service/steps/inner.h"
#include "store/compact.h"

enum { WEIGHT_MAX = 1 << 24, WEIGH_DEPTH_MAX = 64 };

struct weighing {
    struct live *live;
    int disk, userns;
    bool counting; /* a worker thread uses this struct */
    bool hidden;   /* this layer has a directory that only the user namespace may read */
    const char *libexec;
    struct layer_weight rows[LAYERS_MAX];
    size_t count;
    loop_fn *done;
};

static void weighing_free(struct weighing *w) {
    if (w->live->steps->weighing == w)
        w->live->steps->weighing = NULL;
    close_fd(&w->disk);
    close_fd(&w->userns);
    live_unref(w->live);
    free(w);
}

void steps_weigh_release(struct live *l) {
    struct weighing *w = TAKE(l->steps->weighing);
    if (w && !w->counting)
        weighing_free(w);
}

static void weigh_dir(struct weighing *w, int at, const char *name, unsigned depth, uint32_t *sum) {
    DIR *d DEFER(dir_close) = dir_list(at, name);
    w->hidden |= !d && errno == EACCES;
    for (struct dirent *e; d && *sum < WEIGHT_MAX && (e = readdir(d));) {
        if (is_dots(e->d_name))
            continue;
        (*sum)++;
        if (e->d_type == DT_DIR && depth < WEIGH_DEPTH_MAX)
            weigh_dir(w, dirfd(d), e->d_name, depth + 1, sum);
    }
}

/*
 * Without root, the daemon cannot read each directory of a box: carrel-compare counts the files of
 * such a layer inside its user namespace. If that fails, such a directory counts as one file.
 */
static void weigh_inside(struct weighing *w, struct layer_weight *row) {
    struct compare_order *order DEFER_FREE = xcalloc(1, sizeof(*order));
    struct buf records DEFER(buf_done) = BUF(COMPARE_OUT_MAX);
    struct changes_record r;
    struct err err;
    order->task = COMPARE_SIZES;
    order->layers[order->layer_count++] = row->number;
    if (compare_run(w->libexec, order, &w->disk, 1, w->userns, &records, &err) < 0 || !records.len)
        return;
    const char *at = records.data, *end = at + records.len;
    while (changes_read(&at, end, &r) == 1 && r.type == CHANGES_SIZE)
        if (r.size.layer == row->number && r.size.files > row->entries)
            row->entries = r.size.files < WEIGHT_MAX ? (uint32_t)r.size.files : WEIGHT_MAX;
}

static void weigh_run(void *arg) {
    struct weighing *w = arg;
    for (size_t i = 0; i < w->count; i++) {
        char name[24];
        if (w->rows[i].entries)
            continue;
        snprintf(name, sizeof(name), "%u/u", w->rows[i].number);
        w->hidden = false;
        /* 0 stays for a layer that cannot be read */
        w->rows[i].entries = faccessat(w->disk, name, R_OK, 0) == 0;
        weigh_dir(w, w->disk, name, 0, &w->rows[i].entries);
        name[strlen(name) - 1] = 'U';
        weigh_dir(w, w->disk, name, 0, &w->rows[i].entries);
        if (w->hidden)
            weigh_inside(w, &w->rows[i]);
    }
    close_fd(&w->disk); /* the last close of a mount waits for the kernel */
    close_fd(&w->userns);
}

static void weigh_known(void *arg) {
    struct weighing *w = arg;
    struct live *l = w->live;
    loop_fn *done = l->steps->weighing == w ? w->done : NULL;
    live_ref(l);
    if (done) {
        memcpy(l->steps->weights, w->rows, sizeof(w->rows));
        l->steps->weight_count = w->count;
    }
    weighing_free(w);
    if (done)
        done(l);
    if (done && l->steps->wanted) /* the step may have waited for a merge, which is not needed */
        loop_defer(l->service->loop, &l->steps->start);
    live_unref(l);
}

static void weigh_disk_known(void *arg, int disk, int userns, const struct err *err) {
    struct weighing *w = arg;
    w->disk = disk;
    w->userns = userns;
    if (err) { /* their weight stays unknown */
        weigh_known(w);
        return;
    }
    w->counting = true;
    loop_work(w->live->service->loop, weigh_run, weigh_known, w);
}

static const struct layer_weight *weight_of(const struct live_steps *p, uint32_t number) {
    for (size_t i = 0; i < p->weight_count; i++)
        if (p->weights[i].number == number)
            return &p->weights[i];
    return NULL;
}

bool steps_weigh(struct live *l, const struct layers *layers, loop_fn *done) {
    struct live_steps *p = l->steps;
    struct weighing *w = xnew(struct weighing);
    bool unknown = false;
    *w = (struct weighing){
        .live = l, .disk = -1, .userns = -1, .done = done, .libexec = l->service->place->libexec};
    for (size_t i = 0; i < layers->count; i++) {
        const struct layer *layer = &layers->v[i];
        if (compact_is_counted(layer) || strcmp(layer->machine, l->row.id) != 0)
            continue;
        const struct layer_weight *known = weight_of(p, layer->number);
        w->rows[w->count++] = known ? *known : (struct layer_weight){.number = layer->number};
        unknown |= !known;
    }
    if (!unknown) {
        free(w);
        return false;
    }
    live_ref(l);
    p->weighing = w;
    l->service->driver->disk(l->machine, NULL, weigh_disk_known, w);
    return true;
}

bool steps_weights(const struct live *l, const struct layers *layers, uint32_t ret[LAYERS_MAX]) {
    bool complete = true;
    for (size_t i = 0; i < layers->count; i++) {
        const struct layer *layer = &layers->v[i];
        bool own = strcmp(layer->machine, l->row.id) == 0;
        const struct layer_weight *known = own ? weight_of(l->steps, layer->number) : NULL;
        ret[i] = known ? known->entries : 0;
        complete &= ret[i] || !own || compact_is_counted(layer);
    }
    return complete;
}
