/* Calls of the command `carrel` in a machine: their words, their rate, and the subcommands. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/amount.h"
#include "base/defer.h"
#include "service/calls/card.h"
#include "service/calls/inner.h"

enum { CALLS_MOST = 20, CALLS_EACH_MS = 100, CALLS_TICK_MS = 1000, WORDS_MAX = 16 };

static const char calls_help[] =
    "usage: carrel me [--json]       what this machine may do, and what is left of its budget\n"
    "       carrel status [--json]   time, memory and disk left, and requests that wait\n"
    "       carrel ask QUESTION [--timeout TIME]\n"
    "                                ask the owner of this machine, and print the answer\n"
    "       carrel move REASON [--timeout TIME]\n"
    "                                ask the owner to make this box a vm; its programs end then\n";

/* ---- state ---- */

static void calls_on_tick(void *arg) {
    struct live_calls *c = arg;
    struct machine *m = c->live->machine;
    for (size_t i = 0; i < c->late_count && m && m->guest; i++)
        guest_call_answer(m->guest, c->late[i], MSG_CALL_AGAIN, NULL, 0);
    c->late_count = 0;
    questions_tick(c, loop_now_ms(c->live->service->loop));
    if (!c->questions)
        loop_timer_free(TAKE(c->timer));
}

void calls_start_timer(struct live_calls *c) {
    if (c->timer)
        return;
    c->timer = loop_timer_new(c->live->service->loop, calls_on_tick, c);
    loop_timer_start(c->timer, CALLS_TICK_MS, CALLS_TICK_MS);
}

struct live_calls *calls_of(struct live *l) {
    if (!l->calls) {
        l->calls = xnew(struct live_calls);
        l->calls->live = l;
    }
    return l->calls;
}

void live_calls_free(struct live_calls *c) {
    if (!c)
        return;
    questions_drop_all(c);
    loop_timer_free(c->timer);
    free(c);
}

void calls_detach(struct live *l) {
    live_calls_free(TAKE(l->calls));
}

bool call_rate_take(struct call_rate *r, uint64_t now_ms, uint64_t most, uint64_t each_ms) {
    uint64_t full = r->full_ms > now_ms ? r->full_ms : now_ms;
    if (full + each_ms > now_ms + most * each_ms)
        return false;
    r->full_ms = full + each_ms;
    return true;
}

/* ---- subcommands ---- */

void calling_answer(const struct calling *c, uint8_t status, const char *text) {
    struct machine *m = c->live->machine;
    if (m && m->guest)
        guest_call_answer(m->guest, c->id, status, text, strlen(text));
}

static void calling_me(const struct calling *c) {
    struct buf text DEFER(buf_done) = BUF(CARD_MAX);
    struct service *s = c->live->service;
    const char *id = c->live->row.id;
    bool ok = c->json ? service_card_json(s, id, &text) && buf_addf(&text, "\n")
                      : service_card(s, id, &text);
    if (ok)
        calling_answer(c, 0, text.data);
    else
        calling_answer(c, 1, "carrel: the description of this machine is too long\n");
}

/* The answer to `status` waits for the counters of the kernel. */
struct calling_stats {
    struct live *live;
    uint32_t id;
    bool json;
};

static uint64_t count_held(const struct live *l) {
    uint64_t held = 0;
    for (const struct pending *p = gate_pending(l->gate); p; p = p->next)
        held += p->state == PENDING_WAITS;
    return held;
}

static void put_line(struct buf *to, const char *name, uint64_t used, uint64_t limit) {
    char a[AMOUNT_SIZE], b[AMOUNT_SIZE];
    amount_size(used, a);
    amount_size(limit, b);
    (void)!buf_addf(to, limit ? "%s: %s of %s\n" : "%s: %s\n", name, a, b);
}

static void put_status(const struct live *l, const struct machine_stats *stats, struct buf *to) {
    char time[AMOUNT_SIZE] = "no limit";
    uint64_t now = boot_ms();
    if (l->expires_ms)
        amount_duration(l->expires_ms > now ? (l->expires_ms - now) * 1000 : 0, time);
    (void)!buf_addf(to, "time left: %s\n", time);
    if (stats->has_memory)
        put_line(to, "memory", stats->mem_bytes, stats->mem_limit_bytes);
    put_line(to, "disk", stats->disk_bytes, l->row.disk_bytes);
    (void)!buf_addf(to, "requests that wait for the owner: %" PRIu64 "\n", count_held(l));
}

static void put_status_json(const struct live *l, const struct machine_stats *stats,
                            struct buf *to) {
    struct jot j = JOT(to);
    uint64_t now = boot_ms();
    jot_object(&j, NULL);
    if (l->expires_ms)
        jot_u64(&j, "seconds_left", l->expires_ms > now ? (l->expires_ms - now) / 1000 : 0);
    if (stats->has_memory) {
        jot_u64(&j, "mem_bytes", stats->mem_bytes);
        jot_u64(&j, "mem_limit_bytes", stats->mem_limit_bytes);
    }
    jot_u64(&j, "disk_bytes", stats->disk_bytes);
    jot_u64(&j, "disk_limit_bytes", l->row.disk_bytes);
    jot_u64(&j, "held_requests", count_held(l));
    jot_end(&j, '}');
    (void)!buf_addf(to, "\n");
}

static void calling_have_stats(void *arg, const struct machine_stats *stats,
                               const struct err *err) {
    struct calling_stats *w = arg;
    struct buf text DEFER(buf_done) = BUF(4096);
    const struct calling c = {.live = w->live, .id = w->id};
    (void)err;
    if (stats)
        (w->json ? put_status_json : put_status)(w->live, stats, &text);
    if (stats && text.data)
        calling_answer(&c, 0, text.data);
    else
        calling_answer(&c, 1, "carrel: the host cannot measure this machine now\n");
    live_unref(w->live);
    free(w);
}

static void calling_status(const struct calling *c) {
    struct calling_stats *w = xnew(struct calling_stats);
    *w = (struct calling_stats){c->live, c->id, c->json};
    live_ref(c->live);
    c->live->service->driver->stats(c->live->machine, calling_have_stats, w);
}

static void calling_help(const struct calling *c) {
    calling_answer(c, 0, calls_help);
}

static const struct {
    const char *name;
    void (*run)(const struct calling *c);
    bool has_words; /* it reads its own words; else only --json may follow */
} call_verbs[] = {
    {"me", calling_me, false},     {"status", calling_status, false},
    {"ask", calling_ask, true},    {"move", calling_move, true},
    {"help", calling_help, false}, {"--help", calling_help, false},
    {"-h", calling_help, false},
};

/* ---- a call ---- */

/* Splits the words. -1: they are not NUL-terminated words, or too many. */
static int call_split(const struct msg_bytes *from, const char *ret[WORDS_MAX + 1]) {
    size_t n = 0;
    if (from->p[from->n - 1])
        return -1;
    for (uint32_t at = 0; at < from->n; at += (uint32_t)strlen((const char *)from->p + at) + 1) {
        if (n == WORDS_MAX)
            return -1;
        ret[n++] = (const char *)from->p + at;
    }
    ret[n] = NULL;
    return 0;
}

static void call_run(struct calling *c) {
    for (size_t i = 0; i < sizeof(call_verbs) / sizeof(*call_verbs); i++) {
        if (strcmp(call_verbs[i].name, c->words[0]) != 0)
            continue;
        const char *next = c->words[1];
        c->json = next && strcmp(next, "--json") == 0;
        if (!call_verbs[i].has_words && next && (!c->json || c->words[2]))
            break;
        call_verbs[i].run(c);
        return;
    }
    calling_answer(c, 2, calls_help);
}

void calls_on_call(void *live, struct machine *m, uint32_t id, const struct msg_bytes *words) {
    struct live *l = live;
    const char *list[WORDS_MAX + 1];
    struct calling c = {.live = l, .id = id, .words = list};
    struct live_calls *calls = calls_of(l);
    (void)m;
    questions_drop(calls, id); /* the caller has left, or a new connection passes the call again */
    if (!words->n)
        return;
    if (!call_rate_take(&calls->calls, loop_now_ms(l->service->loop), CALLS_MOST, CALLS_EACH_MS)) {
        if (calls->late_count < CALLS_LATE_MAX)
            calls->late[calls->late_count++] = id;
        calls_start_timer(calls);
    } else if (call_split(words, list) < 0) {
        calling_answer(&c, 2, calls_help);
    } else {
        call_run(&c);
    }
}
