#include "api/e2b/history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"

enum { SAMPLE_MS = 5000, UNASKED_MS = 600000, HISTORIES_MAX = 256 };

struct history {
    struct history *next;
    struct e2b_sandbox sandbox; /* only its id, creation and processors */
    struct caller who;          /* who asked last */
    uint64_t asked_ms;          /* on the clock of the loop */
    struct series series;
};

struct histories {
    struct loop *loop;
    struct service *service;
    struct loop_timer *clock; /* runs while there are histories */
    struct history *list;     /* who was asked for last is first */
    size_t count, busy;
    bool freed;
};

/* ---- one history ---- */

/* The count of a sandbox that was resumed from its files begins at 0 again. */
static double use_since(const struct sample *before, const struct sample *now, uint64_t cores) {
    uint64_t start_us = now->cpu_us < before->cpu_us ? 0 : before->cpu_us;
    if (now->at_ms <= before->at_ms) /* the clock was set back */
        return 0;
    return (double)(now->cpu_us - start_us) / 10 / (double)(now->at_ms - before->at_ms) /
           (double)cores;
}

void series_add(struct series *s, uint64_t since_ms, uint64_t cores, const struct sample *now) {
    const struct sample none = {.at_ms = since_ms};
    const struct sample *before = s->count ? &s->samples[s->count - 1] : &none;
    struct sample next = *now;
    next.used_percent = use_since(before, now, cores);
    if (s->count == SERIES_MAX) {
        memmove(s->samples, s->samples + 1, (SERIES_MAX - 1) * sizeof(next));
        s->count--;
    }
    s->samples = xrealloc(s->samples, s->count + 1, sizeof(next));
    s->samples[s->count++] = next;
}

void series_done(struct series *s) {
    free(s->samples);
    *s = (struct series){.count = 0};
}

/* ---- all histories ---- */

static void history_drop(struct histories *h, struct history **at) {
    struct history *gone = *at;
    *at = gone->next;
    h->count--;
    series_done(&gone->series);
    free(gone);
}

static struct history **history_find(struct histories *h, const char *id) {
    struct history **at = &h->list;
    while (*at && strcmp((*at)->sandbox.id, id) != 0)
        at = &(*at)->next;
    return at;
}

/* The history becomes the first one; the last one makes room for it. */
static struct history *history_open(struct histories *h, const struct caller *who,
                                    const struct e2b_sandbox *b) {
    struct history **at = history_find(h, b->id), *one = *at;
    if (one) {
        *at = one->next;
    } else {
        one = xnew(struct history);
        one->sandbox = (struct e2b_sandbox){.created_ms = b->created_ms, .cpu_milli = b->cpu_milli};
        snprintf(one->sandbox.id, sizeof(one->sandbox.id), "%s", b->id);
        h->count++;
    }
    one->next = h->list;
    h->list = one;
    one->who = *who;
    one->asked_ms = loop_now_ms(h->loop);
    if (h->count > HISTORIES_MAX) {
        for (at = &h->list; (*at)->next;)
            at = &(*at)->next;
        history_drop(h, at);
    }
    return one;
}

/* A question to the service, of a client or of the clock (done is NULL). */
struct asking {
    struct histories *of;
    char id[ID_SIZE];
    history_fn *done;
    void *arg;
};

static void histories_end(struct histories *h) {
    if (--h->busy == 0 && h->freed)
        free(h);
}

static uint64_t counted(uint64_t n) {
    return n == SHOW_UNCOUNTED ? 0 : n;
}

/* Two questions at once give one sample. */
static void history_add(struct history *one, const struct stats_view *v) {
    struct series *s = &one->series;
    struct sample now = {(uint64_t)wall_ms(), counted(v->cpu_us), counted(v->mem_bytes),
                         counted(v->disk_bytes), 0};
    if (!s->count || now.at_ms - s->samples[s->count - 1].at_ms >= SAMPLE_MS / 2)
        series_add(s, one->sandbox.created_ms, e2b_cores(&one->sandbox), &now);
}

static void stats_came(void *arg, const struct stats_view *view, const struct err *err) {
    struct asking *a DEFER_FREE = arg;
    struct history *one = *history_find(a->of, a->id);
    if (one && !err && !view->frozen)
        history_add(one, view);
    if (a->done)
        a->done(a->arg, one ? one->series.samples : NULL, one ? one->series.count : 0, err);
    histories_end(a->of);
}

static void history_sample(struct histories *h, const struct history *one, history_fn *done,
                           void *arg) {
    struct asking *a = xnew(struct asking);
    const struct caller who = one->who;
    *a = (struct asking){.of = h, .done = done, .arg = arg};
    snprintf(a->id, sizeof(a->id), "%s", one->sandbox.id);
    h->busy++;
    service_stats(h->service, &who, a->id, stats_came, a);
}

void history_ask(struct histories *h, const struct caller *who, const struct e2b_sandbox *b,
                 history_fn *done, void *arg) {
    bool is_first = !h->list;
    const struct history *one = history_open(h, who, b);
    const struct series *s = &one->series;
    uint64_t age_ms = s->count ? (uint64_t)wall_ms() - s->samples[s->count - 1].at_ms : SAMPLE_MS;
    if (is_first)
        loop_timer_start(h->clock, SAMPLE_MS, SAMPLE_MS);
    if (b->paused || age_ms < SAMPLE_MS)
        done(arg, s->samples, s->count, NULL);
    else
        history_sample(h, one, done, arg);
}

static void runs_came(void *arg, const struct machine_view *v, const struct err *err) {
    bool *runs = arg;
    *runs = !err && strcmp(v->state, "running") == 0;
}

static bool history_runs(struct histories *h, const struct history *one) {
    bool runs = false;
    service_show(h->service, &one->who, one->sandbox.id, runs_came, &runs); /* answers at once */
    return runs;
}

static void histories_tick(void *arg) {
    struct histories *h = arg;
    uint64_t now = loop_now_ms(h->loop);
    for (struct history **at = &h->list; *at;) {
        if (now - (*at)->asked_ms >= UNASKED_MS) {
            history_drop(h, at);
            continue;
        }
        at = &(*at)->next;
    }
    if (!h->list)
        loop_timer_stop(h->clock);
    for (const struct history *one = h->list; one; one = one->next)
        if (history_runs(h, one))
            history_sample(h, one, NULL, NULL);
}

struct histories *histories_new(struct loop *loop, struct service *service) {
    struct histories *h = xnew(struct histories);
    *h = (struct histories){.loop = loop, .service = service};
    h->clock = loop_timer_new(loop, histories_tick, h);
    return h;
}

void histories_free(struct histories *h) {
    if (!h)
        return;
    while (h->list)
        history_drop(h, &h->list);
    loop_timer_free(TAKE(h->clock));
    h->freed = true;
    if (!h->busy)
        free(h);
}
