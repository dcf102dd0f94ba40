/*
 * A consistent copy of a machine while commands run in it. They are frozen during the copy and
 * continue after it. The copy has the files of one instant, but not the memory.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/steps/inner.h"
#include "service/vm/memory.h"

enum { LOOK_MS = 2, STILL_MS = 120000 };

struct still {
    struct live *live;
    uint32_t number;
    bool at_once, may_share;
    enum machine_state was;  /* state of the machine, which no other operation may change */
    bool ready;              /* the slow part of the copy is done, as far as possible */
    bool holds;              /* pause, resume and rewind are blocked */
    bool frozen;             /* frozen by this copy, not by a pause */
    char *memory;            /* file for the memory of a vm; NULL: it is not saved */
    bool stands;             /* the vm stands still, because its memory was saved */
    bool stays;              /* it stays so, for a pause, which blocks other operations itself */
    struct memory_hold hold; /* disk space for the memory */
    struct loop_timer *timer;
    uint64_t until_ms; /* deadline */
    still_fn *done;
    void *arg;
    const char *how;
    struct err err;
    bool failed;
};

static void still_free(struct still *t) {
    t->live->steps->still = NULL;
    loop_timer_free(t->timer);
    memory_release(t->live->service, &t->hold);
    live_unref(t->live);
    free(t->memory);
    free(t);
}

void still_release(struct live *l) {
    if (l->steps->still)
        still_free(l->steps->still);
}

static void still_finish(struct still *t) {
    struct live *l = t->live;
    still_fn *done = t->done;
    void *arg = t->arg;
    const char *how = t->how;
    struct err err = t->err;
    bool failed = t->failed;
    live_ref(l);
    if (t->holds)
        live_verb_over(l);
    still_free(t);
    done(arg, how, failed ? &err : NULL);
    live_unref(l);
}

static void went_on(void *arg, const struct err *err) {
    struct still *t = arg;
    if (err && !t->failed) {
        t->failed = true;
        t->err = *err;
    }
    still_finish(t);
}

/* The vm goes on, and the file with its memory is completed. */
static void let_vm_go_on(struct still *t) {
    struct live *l = t->live;
    if (t->stands && l->machine)
        l->service->driver->go_on(l->machine, t->stays && !t->failed ? MEMORY_STAY : MEMORY_GO_ON,
                                  went_on, t);
    else
        still_finish(t);
}

/* If thawing failed, the next daemon or a resume of the machine thaws it. */
static void thawed(void *arg, const struct err *err) {
    struct still *t = arg;
    if (err)
        log_line(LOG_ERROR, "service", "unfreeze a machine: %s id=%s", err->text, t->live->row.id);
    let_vm_go_on(t);
}

static void let_go_on(struct still *t) {
    struct live *l = t->live;
    if (!t->frozen || !l->machine)
        let_vm_go_on(t);
    else
        l->service->driver->freeze(l->machine, false, thawed, t);
}

static void still_fail(struct still *t, const struct err *err) {
    t->failed = true;
    t->err = *err;
    let_go_on(t);
}

/* The copy is in progress: polls until the deadline. */
static void look_again(struct still *t) {
    struct live *l = t->live;
    struct err err;
    if (loop_now_ms(l->service->loop) < t->until_ms) {
        loop_timer_start(t->timer, LOOK_MS, 0);
        return;
    }
    err_set(&err, ERR_TIMEOUT, "copying the files of machine '%s' takes more than %d s", l->row.id,
            STILL_MS / 1000);
    err_remedy(&err, "take the step when no command runs: then no copy is needed");
    still_fail(t, &err);
}

static void go_on(void *arg);

static void copied(void *arg, const char *how, const struct err *err) {
    struct still *t = arg;
    if (err && err->code == ERR_BUSY) {
        look_again(t);
    } else if (err) {
        still_fail(t, err);
    } else {
        t->how = how;
        let_go_on(t);
    }
}

static void frozen(void *arg, const struct err *err) {
    struct still *t = arg;
    t->frozen = true; /* set even on failure, so that the machine is thawed */
    if (err)
        still_fail(t, err);
    else
        go_on(t);
}

static void is_ready(void *arg, const char *how, const struct err *err) {
    struct still *t = arg;
    if (err && err->code == ERR_BUSY) {
        look_again(t);
    } else if (err && (t->at_once || err->code != ERR_UNSUPPORTED)) {
        still_fail(t, err);
    } else if (!err && t->may_share && strcmp(how, "same") == 0) {
        t->how = how;
        let_go_on(t);
    } else {
        t->ready = true;
        go_on(t);
    }
}

/*
 * Blocks other operations. A copy that no user requested does that only once its slow part is done.
 */
static int hold(struct still *t, struct err *err) {
    struct live *l = t->live;
    if (t->holds || t->stays || (t->at_once && !t->ready))
        return 0;
    if (l->changing || l->row.state != t->was)
        return err_set(err, ERR_BUSY, "another operation on machine '%s' is in progress",
                       l->row.id);
    t->holds = l->changing = true;
    return 0;
}

static void memory_saved(void *arg, const struct err *err) {
    struct still *t = arg;
    t->stands = !err;
    t->until_ms = loop_now_ms(t->live->service->loop) + STILL_MS;
    if (err)
        still_fail(t, err);
    else
        go_on(t);
}

static void save_memory(struct still *t) {
    struct live *l = t->live;
    struct err err;
    if (memory_hold(l, &t->hold, &err) < 0) {
        still_fail(t, &err);
        return;
    }
    int file = open(t->memory, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file >= 0) {
        l->service->driver->save_memory(l->machine, file, t->hold.hold.bytes, memory_saved, t);
        return;
    }
    err_sys(&err, "cannot make '%s'", t->memory);
    still_fail(t, &err);
}

/* The next phase: prepare while commands run, freeze them, copy. */
static void go_on(void *arg) {
    struct still *t = arg;
    struct live *l = t->live;
    struct err err;
    if (!l->machine) {
        err_set(&err, ERR_GONE, "machine '%s' has ended", l->row.id);
        still_fail(t, &err);
    } else if (hold(t, &err) < 0) {
        still_fail(t, &err);
    } else if (!t->ready) {
        l->service->driver->copy(l->machine, 0, is_ready, t);
    } else if (t->memory && !t->stands) {
        save_memory(t);
    } else if (t->was != MACHINE_PAUSED && !t->frozen) {
        l->service->driver->freeze(l->machine, true, frozen, t);
    } else {
        l->service->driver->copy(l->machine, t->number, copied, t);
    }
}

void still_copy(struct live *l, uint32_t number, unsigned options, const char *memory,
                still_fn *done, void *arg) {
    struct still *t = xnew(struct still);
    *t = (struct still){.live = l,
                        .number = number,
                        .at_once = options & STILL_AT_ONCE,
                        .may_share = options & STILL_MAY_SHARE,
                        .stays = options & STILL_STAYS,
                        .was = l->row.state,
                        .until_ms = loop_now_ms(l->service->loop) + STILL_MS,
                        .memory = memory ? xstrdup(memory) : NULL,
                        .done = done,
                        .arg = arg};
    t->timer = loop_timer_new(l->service->loop, go_on, t);
    live_ref(l);
    l->steps->still = t;
    go_on(t);
}
