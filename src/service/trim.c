/*
 * Deletes old data: machines that ended long ago with commands and output, events, frozen change
 * sets, and old segments (files) of the journal.
 *
 * It works in small pieces, so that requests do not wait. A worker deletes files first and their
 * rows afterwards, so that a crash leaves no file without a row.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/exec/logs.h"
#include "service/review/changeset_events.h"
#include "service/state.h"
#include "store/reviews/changesets.h"

enum {
    EVENTS_KEEP = 100000,
    EVENTS_KEEP_MS = 7 * 24 * 3600 * 1000,
    TRIM_EVERY_MS = 10000,
    TRIM_PIECE = 100,
    CHANGESETS_EVERY_MS = 600 * 1000,
};

struct trimming {
    struct service *service;
    struct id_list machines;
    int64_t ended_before_ms;
    uint64_t journal_first; /* first journal segment (file) to keep; 0: keep all */
    bool changesets;        /* check change sets in this round */
    struct changesets_dropped dropped;
    bool forgotten;
    struct err err;
};

static void trim_files(void *arg) {
    struct trimming *t = arg;
    struct service *s = t->service;
    for (size_t i = 0; i < t->machines.count; i++)
        logs_drop(s->place->home, t->machines.ids[i]);
    if (t->changesets)
        changesets_trim(s->place->home, t->ended_before_ms, &t->dropped);
    t->forgotten = !t->journal_first || store_forget(s->store, t->journal_first, &t->err) == 0;
}

static void trim_rows(void *arg) {
    struct trimming *t = arg;
    struct service *s = t->service;
    size_t count = 0;
    if (!t->forgotten)
        log_line(LOG_WARN, "service", "delete old journal records: %s", t->err.text);
    if (t->machines.count &&
        store_machine_trim(s->store, t->ended_before_ms, t->machines.count, &count, &t->err) < 0)
        log_line(LOG_WARN, "service", "delete old machines: %s", t->err.text);
    changesets_dropped_tell(s, &t->dropped);
    if (t->changesets && store_changesets_forget(s->store, t->ended_before_ms, &t->err) < 0)
        log_line(LOG_WARN, "service", "delete rows of old change sets: %s", t->err.text);
    free(t->dropped.rows);
    s->trim_again_ms = count ? 0 : loop_now_ms(s->loop) + TRIM_EVERY_MS;
    s->trimming = NULL;
    id_list_done(&t->machines);
    free(t);
}

static int find_old(struct trimming *t, struct err *err) {
    struct service *s = t->service;
    int64_t now = wall_ms();
    const struct conf *conf = s->conf;
    const struct journal_keep keep = {
        .since_ms = conf->journal_keep_ms ? now - (int64_t)conf->journal_keep_ms : 0,
        .bytes = conf->journal_keep_bytes,
    };
    t->ended_before_ms = now - (int64_t)conf->ended_keep_ms;
    if (store_event_trim(s->store, now - EVENTS_KEEP_MS, EVENTS_KEEP, err) < 0 ||
        store_machine_old(s->store, t->ended_before_ms, TRIM_PIECE, &t->machines, err) < 0)
        return -1;
    return store_announce(s->store, &keep, &t->journal_first, err);
}

void trim_look(struct service *s, uint64_t now_ms) {
    struct err err;
    if (s->trimming || now_ms < s->trim_again_ms)
        return;
    s->trim_again_ms = now_ms + TRIM_EVERY_MS;
    struct trimming *t = xnew(struct trimming);
    t->service = s;
    t->changesets = now_ms >= s->changesets_look_ms;
    if (t->changesets) {
        uint64_t keep = s->conf->ended_keep_ms;
        s->changesets_look_ms = now_ms + (keep < CHANGESETS_EVERY_MS ? keep : CHANGESETS_EVERY_MS);
    }
    if (find_old(t, &err) < 0)
        log_line(LOG_WARN, "service", "find old journal records and machines: %s", err.text);
    if (!t->machines.count && !t->journal_first && !t->changesets) {
        id_list_done(&t->machines);
        free(t);
        return;
    }
    s->trimming = t;
    loop_work(s->loop, trim_files, trim_rows, t);
}
