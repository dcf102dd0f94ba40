/* Kernel counters of machines. One request is in flight; callers that come meanwhile share the next
 * one. */
#include "base/alloc.h"
#include "machine/box/inner.h"

#include <string.h>

struct batch {
    struct machine_host *host;
    size_t count;
    struct call *calls[PLAN_ROWS_MAX];
};

static void send_batch(struct machine_host *h);

/* Without cgroups only the guest can tell whether processes are active. */
struct counting {
    struct call *call;
    struct machine_stats stats;
};

static void on_counted(void *arg, const struct frame *frame, const struct err *err) {
    struct counting *w DEFER_FREE = arg;
    struct msg_busy_state state;
    machine_stats_fn *done = w->call->box ? w->call->stats : NULL;
    void *done_arg = w->call->arg;
    w->stats.busy = err || msg_get_busy(frame, &state) < 0 || state.busy;
    call_free(w->call);
    if (done)
        done(done_arg, &w->stats, NULL);
}

static void ask_guest(struct call *c, const struct machine_stats *s) {
    struct counting *w = xnew(struct counting);
    *w = (struct counting){c, *s};
    guest_request(c->box->m.guest, (struct frame_head){.type = MSG_BUSY}, NULL, NULL, 0, on_counted,
                  w);
}

static void tell_stats(struct call *c, const struct plan_row *row, const struct err *err) {
    struct machine_stats s;
    struct err gone;
    machine_stats_fn *done = c->box ? c->stats : NULL;
    void *arg = c->arg;
    if (done && !err && (!row || !row->stats.exists || strcmp(row->id, c->box->m.id) != 0)) {
        err_set(&gone, ERR_GONE, "machine '%s' has ended", c->box->m.id);
        err = &gone;
    }
    if (!done || err) {
        call_free(c);
        if (done)
            done(arg, NULL, err);
        return;
    }
    const struct plan_stats *p = &row->stats;
    s = (struct machine_stats){
        .has_memory = !(p->exists & PLAN_NO_MEMORY),
        .has_cpu = !(p->exists & PLAN_NO_CPU),
        .has_pids = !(p->exists & PLAN_NO_PIDS),
        .cpu_us = p->cpu_us,
        .mem_bytes = p->mem_bytes,
        .mem_peak_bytes = p->mem_peak_bytes,
        .mem_limit_bytes = p->mem_limit_bytes,
        .pids = p->pids,
        .io_bytes = p->io_bytes,
        .disk_bytes = p->disk_bytes,
        .oom_kills = p->oom_kills,
        .pids_refused = p->pids_refused,
        .disk_files_permille = p->disk_files_permille,
        .lookups_refused = p->lookups_refused,
        .frozen = p->frozen,
        .drifted = p->drifted,
    };
    if (!s.cpu_us && !s.pids && c->box->m.guest) {
        ask_guest(c, &s);
        return;
    }
    call_free(c);
    done(arg, &s, NULL);
}

static void on_stats(void *arg, const struct plan_message *m, struct fd_message *fds,
                     const struct err *err) {
    (void)fds;
    struct batch *b DEFER_FREE = arg;
    /* Send the next request before the callbacks run; the rows are copied for that. */
    struct plan_row *rows DEFER_FREE = xcalloc(PLAN_ROWS_MAX, sizeof(*rows));
    size_t count = m ? m->row_count : 0;
    if (m)
        memcpy(rows, m->rows, count * sizeof(*rows));
    b->host->stats_under_way = false;
    if (b->host->stats_first)
        send_batch(b->host);
    for (size_t i = 0; i < b->count; i++)
        tell_stats(b->calls[i], i < count ? &rows[i] : NULL, err);
}

static void send_batch(struct machine_host *h) {
    struct plan_message *m = box_message(h, PLAN_STATS, "");
    struct batch *b = xnew(struct batch);
    b->host = h;
    while (h->stats_first && m->row_count < PLAN_ROWS_MAX) {
        struct call *c = h->stats_first;
        h->stats_first = c->queued;
        if (!c->box) {
            call_free(c);
            continue;
        }
        memcpy(m->rows[m->row_count++].id, c->box->m.id, ID_SIZE);
        b->calls[b->count++] = c;
    }
    if (!h->stats_first)
        h->stats_end = &h->stats_first;
    if (b->count == 0) {
        free(b);
        return;
    }
    h->stats_under_way = true;
    spawner_ask(h->spawner, m, NULL, 0, on_stats, b);
}

void box_stats(struct machine *m, machine_stats_fn *done, void *arg) {
    struct machine_host *h = m->host;
    struct call *c = call_new(m, arg);
    c->stats = done;
    *h->stats_end = c;
    h->stats_end = &c->queued;
    if (!h->stats_under_way)
        send_batch(h);
}
