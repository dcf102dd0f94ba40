/*
 * Saves the output of long commands to disk now and then, so that a restart of the host does not
 * lose it. Workers save a few logs at a time; a log that did not grow costs nothing.
 */
#include "service/exec/inner.h"
#include "service/exec/logs.h"

enum {
    KEEP_AGE_MS = 3000, /* save the output of older commands: most end earlier */
    KEEP_EVERY_MS = 3000,
    KEEP_AT_ONCE = 8,
};

static bool has_grown(const struct exec *x) {
    for (int i = 0; i < 2; i++)
        if (outlog_extent(&x->log.log, i).produced != x->kept_so_far.produced[i])
            return true;
    return false;
}

static void kept_some(void *arg, bool kept, const struct outlog_kept *now) {
    struct exec *x = arg;
    x->copying = false;
    if (x->listed) { /* else the daemon is stopping */
        x->service->execs->keep_jobs--;
        if (kept)
            x->kept_so_far = *now;
        x->keep_again_ms = loop_now_ms(x->service->loop) + KEEP_EVERY_MS;
        exec_settle(x); /* the command may have ended meanwhile */
    }
    exec_unref(x);
}

static bool wants_keeping(const struct exec *x, int64_t wall_ms) {
    /* Background processes may write after the command is over; exec_settle() saves the end. */
    bool open = !exec_is_over(x) || !exec_output_over(x);
    return x->log.fd >= 0 && open && !x->keeping && wall_ms - x->row.created_ms >= KEEP_AGE_MS &&
           has_grown(x);
}

void execs_keep_look(struct service *s, uint64_t now_ms, int64_t wall_ms) {
    struct exec *x;
    for (size_t at = 0;
         s->execs->keep_jobs < KEEP_AT_ONCE && (x = map_next(&s->execs->by_id, &at));) {
        if (x->copying || x->keeping || now_ms < x->keep_again_ms)
            continue;
        if (exec_is_over(x) && x->keep_tries)
            exec_settle(x);
        if (!wants_keeping(x, wall_ms))
            continue;
        exec_ref(x);
        x->copying = true;
        s->execs->keep_jobs++;
        logs_keep(s->loop, s->place->home, x->row.machine, x->row.id, &x->log, &x->kept_so_far,
                  kept_some, x);
    }
}
