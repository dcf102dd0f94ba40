/*
 * Counts how many files and bytes each step changed, once, when a list of steps is requested. This
 * is not done while a step is taken, because that must not take longer after larger changes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/log.h"
#include "machine/compare.h"
#include "service/review/diff.h"
#include "service/review/live.h"
#include "service/steps/barrier.h"
#include "service/steps/inner.h"
#include "service/steps/steps.h"

struct measuring {
    struct live *live;
    struct compare_order order;
    char (*steps)[ID_SIZE]; /* for each layer in `order`: id of its step */
    int disk, userns;
    struct buf records;
    bool failed;
    struct err err;
    loop_fn *go;
    void *arg;
};

static void measuring_free(struct measuring *m) {
    close_fd(&m->disk);
    close_fd(&m->userns);
    buf_done(&m->records);
    free(m->steps);
    live_unref(m->live);
    free(m);
}

/* The caller gets the list in any case, with or without sizes. */
static void measure_finish(struct measuring *m, const struct err *err) {
    loop_fn *go = m->go;
    void *arg = m->arg;
    comparison_end(m->live->service);
    if (err)
        log_line(LOG_WARN, "service", "count the changed files of steps: %s id=%s", err->text,
                 m->live->row.id);
    measuring_free(m);
    go(arg);
}

/* ---- writing sizes to the store ---- */

static const char *step_of(const struct measuring *m, uint32_t layer) {
    for (uint32_t i = 0; i < m->order.layer_count; i++)
        if (m->order.layers[i] == layer)
            return m->steps[i];
    return NULL;
}

/* Reads the row again: the step may have been named or deleted meanwhile. */
static int put_size(struct measuring *m, const struct layer_size *size, struct err *err) {
    struct store *store = m->live->service->store;
    struct step_row row DEFER(step_row_done) = {.what = NULL};
    const char *step = step_of(m, size->layer);
    if (!step || store_step_find(store, m->live->row.id, step, &row, err) < 0)
        return 0;
    row.files = size->files;
    row.bytes = size->bytes;
    row.counted = 1;
    return store_step_update(store, &row, err);
}

static int put_sizes(struct measuring *m, struct err *err) {
    struct store *store = m->live->service->store;
    const char *at = m->records.data, *end = at + m->records.len;
    struct changes_record r;
    if (store_begin(store, err) < 0)
        return -1;
    while (m->records.len && changes_read(&at, end, &r) == 1 && r.type == CHANGES_SIZE)
        if (put_size(m, &r.size, err) < 0) {
            store_rollback(store);
            return -1;
        }
    if (store_commit(store, err) == 0)
        return 0;
    store_rollback(store);
    return -1;
}

/* ---- counting ---- */

static void run_job(void *arg) {
    struct measuring *m = arg;
    m->failed = compare_run(m->live->service->place->libexec, &m->order, &m->disk, 1, m->userns,
                            &m->records, &m->err) < 0;
}

static void job_done(void *arg) {
    struct measuring *m = arg;
    if (!m->failed)
        m->failed = put_sizes(m, &m->err) < 0;
    measure_finish(m, m->failed ? &m->err : NULL);
}

static void disk_known(void *arg, int disk, int userns, const struct err *err) {
    struct measuring *m = arg;
    m->disk = disk;
    m->userns = userns;
    if (err)
        measure_finish(m, err);
    else
        loop_work(m->live->service->loop, run_job, job_done, m);
}

/* Chooses the newest steps without a size. */
static int choose(struct measuring *m, struct err *err) {
    struct step_list list DEFER(step_list_done) = {0};
    struct live *l = m->live;
    if (store_step_list(l->service->store, l->row.id, 0, false, STORE_PAGE_MAX, &list, err) < 0)
        return -1;
    m->steps = xcalloc(list.count + 1, sizeof(*m->steps));
    for (size_t i = 0; i < list.count && m->order.layer_count < COMPARE_LAYERS_MAX; i++) {
        const struct step_row *row = &list.rows[i];
        if (row->counted || !row->layer || row->state != STEP_DONE)
            continue;
        memcpy(m->steps[m->order.layer_count], row->id, ID_SIZE);
        m->order.layers[m->order.layer_count++] = row->layer;
    }
    return 0;
}

static void measure_begin(void *arg) {
    struct measuring *m = arg;
    struct live *l = m->live;
    struct err err;
    if (barrier_wait_settled(l, measure_begin, m))
        return;
    if (choose(m, &err) < 0)
        measure_finish(m, &err);
    else if (!l->machine || m->order.layer_count == 0)
        measure_finish(m, NULL);
    else
        l->service->driver->disk(l->machine, NULL, disk_known, m);
}

void service_measured(struct service *s, const struct caller *who, const char *machine, loop_fn *go,
                      void *arg) {
    struct err err;
    struct live *l = live_find(s, who, machine, LIVE_ANY, &err);
    if (!l || !comparison_begin(s)) {
        service_settled(s, who, machine, go, arg);
        return;
    }
    struct measuring *m = xnew(struct measuring);
    *m = (struct measuring){.live = l,
                            .order = {.task = COMPARE_SIZES},
                            .disk = -1,
                            .userns = -1,
                            .records = BUF(COMPARE_OUT_MAX),
                            .go = go,
                            .arg = arg};
    live_ref(l);
    measure_begin(m);
}
