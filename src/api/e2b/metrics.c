/* Metrics: the history of sandboxes for clients of the REST API, and a sample of now inside. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/e2b/history.h"
#include "api/e2b/inner.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/parse.h"

/* A client asks for samples up to its own clock, which may be behind. */
enum { CLOCK_SLACK_S = 60, MANY_MAX = 100 };

/* ---- one sandbox ---- */

static void put_sample(struct jot *j, const char *name, const struct e2b_sandbox *b,
                       const struct sample *s) {
    char used[32];
    snprintf(used, sizeof(used), "%.2f", s->used_percent);
    jot_object(j, name);
    e2b_put_time(j, "timestamp", s->at_ms);
    jot_u64(j, "timestampUnix", s->at_ms / 1000);
    jot_u64(j, "cpuCount", e2b_cores(b));
    jot_raw(j, "cpuUsedPct", used);
    jot_u64(j, "memUsed", s->mem_bytes);
    jot_u64(j, "memTotal", b->mem_bytes);
    jot_u64(j, "memCache", 0);
    jot_u64(j, "diskUsed", s->disk_bytes);
    jot_u64(j, "diskTotal", b->disk_bytes);
    jot_end(j, '}');
}

static int read_bound(const struct e2b_call *c, const char *name, uint64_t *ret, struct err *err) {
    char *text DEFER_FREE = NULL;
    int found = e2b_query(c, name, &text, err);
    if (found > 0 && parse_u64(text, 0, INT64_MAX / 2, ret, err) < 0)
        return err_wrap(err, "query parameter '%s'", name);
    return found < 0 ? -1 : 0;
}

struct bounds {
    uint64_t start, end; /* seconds since 1970 */
};

static int read_bounds(const struct e2b_call *c, struct bounds *ret, struct err *err) {
    *ret = (struct bounds){0, INT64_MAX / 2};
    return read_bound(c, "start", &ret->start, err) < 0 ? -1 : read_bound(c, "end", &ret->end, err);
}

static bool is_within(const struct bounds *b, const struct sample *s, bool is_newest) {
    uint64_t at = s->at_ms / 1000;
    return at >= b->start && at <= b->end + (is_newest ? CLOCK_SLACK_S : 0);
}

static void history_came(void *arg, const struct sample *samples, size_t count,
                         const struct err *failed) {
    struct e2b_call *c = arg;
    struct buf text DEFER(buf_done) = BUF(E2B_ANSWER_MAX);
    struct jot j = JOT(&text);
    struct bounds bounds;
    struct err err;
    if (failed || read_bounds(c, &bounds, &err) < 0) {
        e2b_error(c, failed ? failed : &err);
        return;
    }
    jot_array(&j, NULL);
    for (size_t i = 0; i < count; i++)
        if (is_within(&bounds, &samples[i], i == count - 1))
            put_sample(&j, NULL, &c->sandbox, &samples[i]);
    jot_end(&j, ']');
    e2b_answer(c, 200, &text, NULL);
}

void e2b_metrics(struct e2b_call *c) {
    struct bounds bounds;
    struct err err;
    if (read_bounds(c, &bounds, &err) < 0)
        e2b_error(c, &err);
    else
        history_ask(c->histories, &c->who, &c->sandbox, history_came, c);
}

/* ---- many sandboxes ---- */

/* The newest sample of each. */
struct many {
    struct e2b_call *call;
    size_t left;
    struct buf text;
    struct jot j;
};

struct one_of_many {
    struct many *all;
    struct e2b_sandbox sandbox;
};

/* Ends one part of the answer; the last part sends it. */
static void many_unref(struct many *m) {
    if (--m->left)
        return;
    jot_end(&m->j, '}');
    jot_end(&m->j, '}');
    e2b_answer(m->call, 200, &m->text, NULL);
    buf_done(&m->text);
    free(m);
}

static void one_came(void *arg, const struct sample *samples, size_t count,
                     const struct err *failed) {
    struct one_of_many *one = arg;
    struct many *m = one->all;
    if (!failed && count)
        put_sample(&m->j, one->sandbox.label, &one->sandbox, &samples[count - 1]);
    e2b_sandbox_done(&one->sandbox);
    free(one);
    many_unref(m);
}

static void one_found(void *arg, const struct machine_view *v, const struct err *err) {
    struct one_of_many *one = arg;
    if (!err && strcmp(v->owner, one->all->call->who.owner) == 0)
        (void)e2b_sandbox_read(v, &one->sandbox);
}

/* Sandboxes that are not there have no sample, as one that was killed meanwhile. */
static void many_ask(struct many *m, const char *label) {
    struct e2b_call *c = m->call;
    char id[ID_SIZE];
    struct one_of_many *one = xnew(struct one_of_many);
    one->all = m;
    if (id_from_label(label, strlen(label), 'm', id))
        service_show(c->service, &c->who, id, one_found, one); /* answers at once */
    m->left++;
    if (one->sandbox.id[0])
        history_ask(c->histories, &c->who, &one->sandbox, one_came, one);
    else
        one_came(one, NULL, 0, NULL);
}

/* Cuts the list into its ids; one that is named twice counts once. */
static int split_ids(char *ids, const char *ret[MANY_MAX], size_t *ret_count, struct err *err) {
    char *next = NULL;
    size_t count = 0;
    for (const char *id = strtok_r(ids, ",", &next); id; id = strtok_r(NULL, ",", &next)) {
        size_t i = 0;
        while (i < count && strcmp(ret[i], id) != 0)
            i++;
        if (i == MANY_MAX)
            return err_set(err, ERR_INVALID, "query parameter 'sandbox_ids' has more than %d ids",
                           MANY_MAX);
        ret[i] = id;
        count += i == count;
    }
    *ret_count = count;
    return 0;
}

void e2b_metrics_many(struct e2b_call *c) {
    char *ids DEFER_FREE = NULL;
    const char *labels[MANY_MAX];
    size_t count = 0;
    struct err err;
    int found = e2b_query(c, "sandbox_ids", &ids, &err);
    if (found == 0)
        found = err_set(&err, ERR_INVALID, "query parameter 'sandbox_ids' is missing");
    if (found < 0 || split_ids(ids, labels, &count, &err) < 0) {
        e2b_error(c, &err);
        return;
    }
    struct many *m = xnew(struct many);
    *m = (struct many){.call = c, .left = 1, .text = BUF(E2B_ANSWER_MAX)};
    m->j = (struct jot)JOT(&m->text);
    jot_object(&m->j, NULL);
    jot_object(&m->j, "sandboxes");
    for (size_t i = 0; i < count; i++)
        many_ask(m, labels[i]);
    many_unref(m);
}

/* ---- the data plane ---- */

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

struct present {
    struct http_exchange *http;
    struct e2b_sandbox sandbox;
    loop_fn *over;
    void *arg;
};

static void present_put(const struct present *m, const struct stats_view *s) {
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

static void present_came(void *arg, const struct stats_view *view, const struct err *err) {
    struct present *m = arg;
    if (http_is_gone(m->http) || err)
        http_drop(m->http);
    else
        present_put(m, view);
    m->over(m->arg);
    e2b_sandbox_done(&m->sandbox);
    free(m);
}

static void present_of(void *arg, const struct machine_view *v, const struct err *err) {
    struct present *m = arg;
    if (!err)
        (void)e2b_sandbox_read(v, &m->sandbox);
}

void e2b_metrics_take(struct service *s, struct http_exchange *x, const struct caller *owner,
                      const char *machine, loop_fn *over, void *arg) {
    struct present *m = xnew(struct present);
    *m = (struct present){.http = x, .over = over, .arg = arg};
    http_hold(x);
    service_show(s, owner, machine, present_of, m); /* answers at once */
    service_stats(s, owner, machine, present_came, m);
}
