#include "service/commit.h"

#include <assert.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/log.h"

enum { LOG_EVERY_MS = 60 * 1000 };

struct pending_commit {
    struct pending_commit *next;
    struct commit commit;
    uint64_t late_ms; /* when `late` is called; 0: already called */
};

struct commits {
    struct loop *loop;
    struct store *store;
    struct loop_timer *timer;
    struct commit_lane *lanes; /* lanes (queues of machines) with waiting commits */
    uint64_t log_ms;           /* earliest time of the next log line */
};

/* 0: committed; 1: the disk is full or the database locked, try again; -1: can never succeed. */
static int commit_try(struct commits *q, const struct commit *c, struct err *err) {
    assert(!store_in_transaction(q->store));
    if (store_begin(q->store, err) == 0 && c->write(c->arg, err) == 0 &&
        store_commit(q->store, err) == 0)
        return 0;
    bool again = store_is_full(q->store) || err->code == ERR_BUSY;
    store_rollback(q->store);
    return again ? 1 : -1;
}

static void commit_log(struct commits *q, const struct err *why) {
    uint64_t now = loop_now_ms(q->loop);
    if (now < q->log_ms)
        return;
    q->log_ms = now + LOG_EVERY_MS;
    log_line(LOG_ERROR, "service", "save a change to the database: %s; retrying", why->text);
}

/* ---- lanes: the queue of one machine ---- */

bool commit_waits(const struct commit_lane *lane) {
    return lane->busy;
}

bool commit_is_late(const struct commit_lane *lane) {
    return lane->first && !lane->first->late_ms;
}

int commit_why_late(const struct commit_lane *lane, struct err *err) {
    if (lane->locked) {
        err_set(err, ERR_BUSY, "another program has locked carrel.db");
        return err_remedy(err, "stop that program, then try again");
    }
    err_set(err, ERR_LIMIT, "the disk that holds CARREL_HOME is full");
    return err_remedy(err,
                      "free space there, for example with `carrel rm` or `carrel image prune`");
}

static void lane_enter(struct commits *q, struct commit_lane *lane) {
    lane->busy = true;
    lane->next = q->lanes;
    lane->at = &q->lanes;
    if (lane->next)
        lane->next->at = &lane->next;
    q->lanes = lane;
    if (lane->filled)
        lane->filled(lane->arg);
}

/* The lane may be freed when this returns: emptied() releases its owner. */
static void lane_leave(struct commit_lane *lane) {
    lane->busy = false;
    *lane->at = lane->next;
    if (lane->next)
        lane->next->at = lane->at;
    if (lane->emptied)
        lane->emptied(lane->arg);
}

static void lane_add(struct commits *q, struct commit_lane *lane, const struct commit *c) {
    struct pending_commit *p = xnew(struct pending_commit);
    *p = (struct pending_commit){NULL, *c, loop_now_ms(q->loop) + COMMIT_LATE_MS};
    if (!lane->first)
        lane->last = &lane->first;
    *lane->last = p;
    lane->last = &p->next;
    if (!lane->busy)
        lane_enter(q, lane);
}

static void lane_take(struct commit_lane *lane, const struct err *failed) {
    struct pending_commit *p = lane->first;
    const struct commit c = p->commit;
    lane->first = p->next;
    free(p);
    c.done(c.arg, failed);
}

static void tell_late(struct commits *q, struct commit_lane *lane, const struct err *why) {
    uint64_t now = loop_now_ms(q->loop);
    for (struct pending_commit *p = lane->first; p; p = p->next) {
        if (!p->late_ms || now < p->late_ms)
            continue;
        p->late_ms = 0;
        if (p->commit.late)
            p->commit.late(p->commit.arg, why);
        if (lane->late)
            lane->late(lane->arg);
    }
}

static void lane_retry(struct commits *q, struct commit_lane *lane) {
    struct err err = {0};
    while (lane->first) {
        int r = commit_try(q, &lane->first->commit, &err);
        if (r == 1) {
            lane->locked = err.code == ERR_BUSY;
            commit_log(q, &err);
            tell_late(q, lane, &err);
            return;
        }
        lane_take(lane, r < 0 ? &err : NULL);
    }
    lane_leave(lane);
}

static void commits_retry(void *arg) {
    struct commits *q = arg;
    for (struct commit_lane *lane = q->lanes, *next; lane; lane = next) {
        next = lane->next;
        lane_retry(q, lane);
    }
    if (!q->lanes)
        loop_timer_stop(q->timer);
}

/* ---- all lanes ---- */

struct commits *commits_new(struct loop *loop, struct store *store) {
    struct commits *q = xnew(struct commits);
    *q = (struct commits){.loop = loop, .store = store};
    q->timer = loop_timer_new(loop, commits_retry, q);
    return q;
}

void commits_free(struct commits *q) {
    if (!q)
        return;
    loop_timer_free(q->timer);
    for (struct commit_lane *lane = q->lanes, *after; lane; lane = after) {
        after = lane->next;
        for (struct pending_commit *p = TAKE(lane->first), *next; p; p = next) {
            next = p->next;
            free(p);
        }
        lane->busy = false;
        if (lane->released)
            lane->released(lane->arg);
    }
    free(q);
}

void commit_run(struct commits *q, struct commit_lane *lane, const struct commit *c) {
    struct err err = {0};
    int r = lane->first ? 1 : commit_try(q, c, &err);
    /* The operation is done already: use the reserved disk space to record it. */
    if (r == 1 && !lane->first && store_dig(q->store))
        r = commit_try(q, c, &err);
    if (r < 1) {
        c->done(c->arg, r < 0 ? &err : NULL);
        return;
    }
    if (!lane->first) {
        lane->locked = err.code == ERR_BUSY;
        commit_log(q, &err);
    }
    if (!q->lanes)
        loop_timer_start(q->timer, COMMIT_RETRY_MS, COMMIT_RETRY_MS);
    lane_add(q, lane, c);
}

int commit_once(struct commits *q, const struct commit_lane *lane, const struct commit *c,
                struct err *err) {
    if (lane->busy)
        return commit_why_late(lane, err);
    return commit_try(q, c, err) == 0 ? 0 : -1;
}
