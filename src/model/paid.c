#include "model/paid.h"

#include <time.h>

#include "base/alloc.h"

/* The flush job may outlive the struct paid that started it. */
struct paid_wait {
    struct store *store;
    struct paid *paid; /* NULL: the payment was settled before the flush ended */
    paid_fn *fn;
    void *arg;
    int result;
    struct err err;
};

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

int paid_hold(struct paid *p, const struct cost *worst, paid_fn *fn, void *arg, struct err *err) {
    struct hold h = {.account = p->account,
                     .model = p->model,
                     .worst = *worst,
                     .priced = p->row && p->row->priced,
                     .now_ms = (int64_t)time(NULL) * 1000};
    if (store_hold(p->store, &h, p->hold, err) < 0)
        return -1;
    struct paid_wait *w = xnew(struct paid_wait);
    *w = (struct paid_wait){.store = p->store, .paid = p, .fn = fn, .arg = arg};
    p->wait = w;
    loop_work(p->loop, flush_run, flush_done, w);
    return 0;
}

/* If the ledger cannot be written, the hold (reserved amount) stays, so the budget is never
 * exceeded. */
void paid_settle(struct paid *p, const struct model_usage *usage) {
    if (p->wait)
        p->wait->paid = NULL;
    p->wait = NULL;
    if (!p->hold[0])
        return;
    if (usage) {
        struct cost real = model_cost(p->row, usage);
        (void)store_hold_settle(p->store, p->hold, &real, NULL);
    } else {
        (void)store_hold_keep(p->store, p->hold, NULL);
    }
    p->hold[0] = '\0';
}

void paid_nothing(struct paid *p) {
    paid_settle(p, &(struct model_usage){0});
}
