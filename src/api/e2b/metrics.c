/* Metrics of a sandbox: one sample, of now, on either plane. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/e2b/inner.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/parse.h"

/* A client asks for samples up to its own clock, which may be behind. */
enum { CLOCK_SLACK_S = 60 };

static uint64_t known(uint64_t n) {
    return n == SHOW_UNCOUNTED ? 0 : n;
}

/* The share of the processors that the sandbox used since its start, in percent. */
static void print_use(const struct e2b_sandbox *b, const struct stats_view *s, uint64_t now_ms,
                      char ret[32]) {
    uint64_t ran_ms = now_ms > b->created_ms ? now_ms - b->created_ms : 1;
    snprintf(ret, 32, "%.2f",
             (double)known(s->cpu_us) / 10 / (double)ran_ms / (double)e2b_cores(b));
}

static void put_metrics(struct jot *j, const struct e2b_sandbox *b, const struct stats_view *s,
                        uint64_t now_ms) {
    char used[32];
    print_use(b, s, now_ms, used);
    jot_object(j, NULL);
    e2b_put_time(j, "timestamp", now_ms);
    jot_u64(j, "timestampUnix", now_ms / 1000);
    jot_u64(j, "cpuCount", e2b_cores(b));
    jot_raw(j, "cpuUsedPct", used);
    jot_u64(j, "memUsed", known(s->mem_bytes));
    jot_u64(j, "memTotal", b->mem_bytes);
    jot_u64(j, "memCache", 0);
    jot_u64(j, "diskUsed", known(s->disk_bytes));
    jot_u64(j, "diskTotal", b->disk_bytes);
    jot_end(j, '}');
}

static void metrics_came(void *arg, const struct stats_view *view, const struct err *err) {
    struct e2b_call *c = arg;
    struct buf text DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&text);
    if (err) {
        e2b_error(c, err);
        return;
    }
    jot_array(&j, NULL);
    put_metrics(&j, &c->sandbox, view, (uint64_t)wall_ms());
    jot_end(&j, ']');
    e2b_answer(c, 200, &text, NULL);
}

static int read_bound(const struct e2b_call *c, const char *name, uint64_t *ret, struct err *err) {
    char *text DEFER_FREE = NULL;
    int found = e2b_query(c, name, &text, err);
    if (found > 0 && parse_u64(text, 0, INT64_MAX / 2, ret, err) < 0)
        return err_wrap(err, "query parameter '%s'", name);
    return found < 0 ? -1 : 0;
}

void e2b_metrics(struct e2b_call *c) {
    const struct buf none = {.data = (char[]){"[]"}, .len = 2};
    uint64_t start = 0, end = INT64_MAX / 2, now = (uint64_t)wall_ms() / 1000;
    struct err err;
    if (read_bound(c, "start", &start, &err) < 0 || read_bound(c, "end", &end, &err) < 0)
        e2b_error(c, &err);
    else if (c->sandbox.paused || now < start || now > end + CLOCK_SLACK_S)
        e2b_answer(c, 200, &none, NULL);
    else
        service_stats(c->service, &c->who, c->sandbox.id, metrics_came, c);
}

/* ---- the data plane ---- */

struct sample {
    struct http_exchange *http;
    struct e2b_sandbox sandbox;
    loop_fn *over;
    void *arg;
};

static void sample_put(const struct sample *m, const struct stats_view *s) {
    struct buf text DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&text);
    uint64_t now_ms = (uint64_t)wall_ms();
    char used[32];
    print_use(&m->sandbox, s, now_ms, used);
    jot_object(&j, NULL);
    jot_u64(&j, "ts", now_ms / 1000);
    jot_u64(&j, "cpu_count", e2b_cores(&m->sandbox));
    jot_raw(&j, "cpu_used_pct", used);
    jot_u64(&j, "mem_total", m->sandbox.mem_bytes);
    jot_u64(&j, "mem_used", known(s->mem_bytes));
    jot_u64(&j, "mem_cache", 0);
    jot_u64(&j, "disk_used", known(s->disk_bytes));
    jot_u64(&j, "disk_total", m->sandbox.disk_bytes);
    jot_end(&j, '}');
    http_reply(m->http, 200,
               HTTP_FIELDS({"Content-Type", "application/json"}, {"Cache-Control", "no-store"}),
               text.data, text.len);
}

static void sample_came(void *arg, const struct stats_view *view, const struct err *err) {
    struct sample *m = arg;
    if (http_is_gone(m->http) || err)
        http_drop(m->http);
    else
        sample_put(m, view);
    m->over(m->arg);
    e2b_sandbox_done(&m->sandbox);
    free(m);
}

static void sample_of(void *arg, const struct machine_view *v, const struct err *err) {
    struct sample *m = arg;
    if (!err)
        (void)e2b_sandbox_read(v, &m->sandbox);
}

void e2b_metrics_take(struct service *s, struct http_exchange *x, const struct caller *owner,
                      const char *machine, loop_fn *over, void *arg) {
    struct sample *m = xnew(struct sample);
    *m = (struct sample){.http = x, .over = over, .arg = arg};
    http_hold(x);
    service_show(s, owner, machine, sample_of, m); /* answers at once */
    service_stats(s, owner, machine, sample_came, m);
}
