#include "model/paid.h"

#include <string.h>
#include <time.h>

#include "base/alloc.h"

struct ledger {
    struct loop *loop;
    struct store *store;
    const char *currency;
    struct model_estimates *estimates;
    struct paid_wait *first, *last; /* calls that wait for others, oldest first */
    struct loop_call retry;
    uint64_t round; /* number of retries so far */
};

/* A call that waits for others, or for the disk. The flush job may outlive the struct paid that
 * started it. */
struct paid_wait {
    struct ledger *ledger;
    struct store *store;
    struct paid *paid; /* NULL: the payment was settled before the flush ended */
    struct cost amount, least;
    paid_fn *fn;
    void *arg;
    bool queued;    /* in the list of the ledger */
    uint64_t round; /* the last round that tried it */
    struct paid_wait *next, *prev;
    int result;
    struct err err;
};

static void ledger_retry(void *arg);

struct ledger *ledger_new(struct loop *loop, struct store *store, const char *currency) {
    struct ledger *l = xnew(struct ledger);
    *l = (struct ledger){.loop = loop,
                         .store = store,
                         .currency = currency,
                         .estimates = model_estimates_new(),
                         .retry = {.fn = ledger_retry, .arg = l}};
    return l;
}

static void ledger_remove(struct paid_wait *w) {
    *(w->prev ? &w->prev->next : &w->ledger->first) = w->next;
    *(w->next ? &w->next->prev : &w->ledger->last) = w->prev;
    w->next = w->prev = NULL;
    w->queued = false;
}

static void ledger_append(struct paid_wait *w) {
    w->queued = true;
    w->prev = w->ledger->last;
    *(w->prev ? &w->prev->next : &w->ledger->first) = w;
    w->ledger->last = w;
}

void ledger_free(struct ledger *l) {
    if (!l)
        return;
    while (l->first) {
        struct paid_wait *w = l->first;
        ledger_remove(w);
        w->paid->wait = NULL;
        free(w);
    }
    loop_call_cancel(l->loop, &l->retry);
    model_estimates_free(l->estimates);
    free(l);
}

struct store *ledger_store(const struct ledger *l) {
    return l->store;
}

struct model_estimates *ledger_estimates(const struct ledger *l) {
    return l->estimates;
}

/* Counts the calls of the account that wait before `end`; NULL: all of them. */
static size_t waiting_before(const struct ledger *l, const char *account,
                             const struct paid_wait *end) {
    size_t n = 0;
    for (const struct paid_wait *w = l->first; w && w != end; w = w->next)
        n += strcmp(w->paid->account, account) == 0;
    return n;
}

/* ---- Holding ---- */

static void flush_run(void *arg) {
    struct paid_wait *w = arg;
    w->result = store_flush(w->store, &w->err);
}

static void flush_done(void *arg) {
    struct paid_wait w = *(struct paid_wait *)arg;
    free(arg);
    if (!w.paid)
        return;
    w.paid->wait = NULL;
    if (w.result == 0) {
        w.fn(w.arg, NULL);
        return;
    }
    paid_nothing(w.paid);
    err_wrap(&w.err, "cannot reserve the cost of the model call");
    w.fn(w.arg, &w.err);
}

static int hold_now(struct paid_wait *w, struct err *err) {
    struct paid *p = w->paid;
    struct hold h = {.account = p->account,
                     .model = p->model,
                     .currency = w->ledger->currency,
                     .amount = w->amount,
                     .least = w->least,
                     .priced = p->row && p->row->priced,
                     .now_ms = (int64_t)time(NULL) * 1000};
    if (store_hold(w->store, &h, p->hold, err) < 0)
        return -1;
    loop_work(w->ledger->loop, flush_run, flush_done, w);
    return 0;
}

int paid_hold(struct paid *p, const struct cost *amount, const struct cost *least, paid_fn *fn,
              void *arg, struct err *err) {
    struct ledger *l = p->ledger;
    struct err found = {0};
    struct paid_wait *w = xnew(struct paid_wait);
    size_t before = waiting_before(l, p->account, NULL);
    *w = (struct paid_wait){.ledger = l,
                            .store = l->store,
                            .paid = p,
                            .amount = *amount,
                            .least = *least,
                            .fn = fn,
                            .arg = arg};
    p->wait = w;
    if (before == 0 && hold_now(w, &found) == 0)
        return 0;
    if (before < LEDGER_WAITING_MAX && (before > 0 || found.code == ERR_BUSY)) {
        ledger_append(w);
        return 0;
    }
    if (!found.code)
        err_set(&found, ERR_BUSY, "%d model calls of this machine wait for their budget already",
                LEDGER_WAITING_MAX);
    *err = found;
    p->wait = NULL;
    free(w);
    return -1;
}

/* Tries a call that waits. A failure that waiting does not change is reported. */
static void retry_one(struct paid_wait *w) {
    struct err err = {0};
    if (hold_now(w, &err) == 0) {
        ledger_remove(w);
        return;
    }
    if (err.code == ERR_BUSY)
        return;
    struct paid_wait gone = *w;
    ledger_remove(w);
    free(w);
    gone.paid->wait = NULL;
    gone.fn(gone.arg, &err);
}

/* Finds a call that this round has not tried, and that no older call of its account precedes. */
static struct paid_wait *retry_next(const struct ledger *l) {
    struct paid_wait *w = l->first;
    while (w && (w->round == l->round || waiting_before(l, w->paid->account, w) > 0))
        w = w->next;
    return w;
}

/* fn of a call may add or remove others, so each search starts at the head of the list. */
static void ledger_retry(void *arg) {
    struct ledger *l = arg;
    l->round++;
    for (struct paid_wait *w; (w = retry_next(l));) {
        w->round = l->round;
        retry_one(w);
    }
}

/* ---- Settling ---- */

static void wait_end(struct paid *p) {
    struct paid_wait *w = p->wait;
    p->wait = NULL;
    if (!w)
        return;
    w->paid = NULL;
    if (!w->queued)
        return;
    ledger_remove(w);
    free(w);
    loop_defer(p->ledger->loop, &p->ledger->retry); /* younger calls of the account may go on */
}

/* If the ledger cannot be written, the hold (reserved amount) stays, so the budget is never
 * exceeded. */
void paid_settle(struct paid *p, const struct model_usage *usage) {
    wait_end(p);
    if (!p->hold[0])
        return;
    struct store *store = p->ledger->store;
    if (usage) {
        struct cost real = model_cost(p->row, usage);
        const struct cost_parts parts = {.in = usage->in,
                                         .cache_read = usage->cache_read,
                                         .cache_write =
                                             usage->cache_write + usage->cache_write_long,
                                         .out = usage->out};
        (void)store_hold_settle(store, p->hold, &real, &parts, NULL);
    } else {
        (void)store_hold_keep(store, p->hold, NULL);
    }
    p->hold[0] = '\0';
    loop_defer(p->ledger->loop, &p->ledger->retry);
}

void paid_nothing(struct paid *p) {
    paid_settle(p, &(struct model_usage){0});
}
