/*
 * Reads a SQLite database from a machine whose programs may be writing it.
 *
 * A read is valid only if the database file, its log and its rollback journal did not change during
 * it. Then they belong to one instant, and SQLite finds the last complete transaction. If the
 * rollback journal is in use, the file may hold half of a transaction, so the read is refused.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "service/files.h"
#include "service/grants/inner.h"

enum {
    SETTLE_MS = 20,     /* timestamps of files are coarse: a later write may have the same time */
    AGAIN_MS = 25,      /* delay before a new attempt */
    PATIENCE_MS = 5000, /* time for new attempts while the database changes */
    LIMIT_MS = 60000,   /* time for the whole read: a machine may never answer */
};

enum { DB, LOG, JOURNAL, PARTS };
static const char *const suffixes[PARTS] = {"", "-wal", "-journal"};

static const struct {
    enum { NOTE, TAKE, CHECK } what;
    int part;
} steps[] = {
    {NOTE, DB},  {NOTE, LOG},  {NOTE, JOURNAL},  {TAKE, DB},
    {TAKE, LOG}, {CHECK, LOG}, {CHECK, JOURNAL}, {CHECK, DB},
};
enum { STEP_COUNT = sizeof(steps) / sizeof(*steps) };

struct sqlite_fetch {
    struct service *service;
    struct sqlite_fetch *next, **link; /* links of the service's list of reads */
    struct caller who;
    char machine[ID_SIZE], place[PLAN_PATH_SIZE], path[PLAN_PATH_SIZE + 16];
    int fds[2]; /* DB and LOG; owned by the caller */
    size_t step;
    bool written_down; /* the read is recorded in Carrel's journal */
    struct look {
        uint64_t size, mtime_ns;
        bool used; /* the first byte of the file is not 0 */
    } seen[PARTS]; /* a missing part counts as empty */
    struct msg_read ask;
    uint64_t until_ms;
    struct loop_timer *timer, *limit;
    bool asked; /* a reply is pending: free this struct only after it came */
    bool over;  /* the caller was answered and its descriptors are closed */
    service_done_fn *done;
    void *arg;
};

static void fetch_free(struct sqlite_fetch *f) {
    if (f->next)
        f->next->link = f->link;
    *f->link = f->next;
    free(f);
}

static void sqlite_fetch_finish(struct sqlite_fetch *f, const struct err *err) {
    f->over = true;
    loop_timer_free(f->timer);
    loop_timer_free(f->limit);
    f->done(f->arg, err);
    if (!f->asked)
        fetch_free(f);
}

/* Called at shutdown: no machine will answer any more. */
void sqlite_fetch_release(struct service *s) {
    struct sqlite_fetch *f;
    struct err err;
    err_set(&err, ERR_GONE, "the daemon is shutting down");
    while ((f = s->grants->fetches)) {
        f->asked = false;
        if (f->over)
            fetch_free(f);
        else
            sqlite_fetch_finish(f, &err);
    }
}

static void too_late(void *arg) {
    struct sqlite_fetch *f = arg;
    struct err err;
    err_set(&err, ERR_TIMEOUT, "machine '%s' did not send database '%s' within %d seconds",
            f->machine, f->place, LIMIT_MS / 1000);
    sqlite_fetch_finish(f, &err);
}

static guest_reply_fn came;

static void sqlite_fetch_ask(struct sqlite_fetch *f) {
    const char *path = f->written_down ? NULL : f->path;
    f->written_down = true;
    f->asked = true;
    f->ask.bytes = steps[f->step].what == TAKE ? MSG_CHUNK_MAX : 1;
    service_file(f->service, &f->who, f->machine, MSG_READ, &f->ask, path, came, f);
}

static void begin_step(struct sqlite_fetch *f) {
    int part = steps[f->step].part;
    struct err err;
    snprintf(f->path, sizeof(f->path), "%s%s", f->place, suffixes[part]);
    f->ask = (struct msg_read){.path = {f->path, (uint32_t)strlen(f->path)}};
    if (steps[f->step].what == TAKE &&
        (ftruncate(f->fds[part], 0) < 0 || lseek(f->fds[part], 0, SEEK_SET) < 0)) {
        err_sys(&err, "cannot empty the temporary file for a database");
        sqlite_fetch_finish(f, &err);
        return;
    }
    sqlite_fetch_ask(f);
}

static void sqlite_fetch_begin(void *arg) {
    struct sqlite_fetch *f = arg;
    f->step = 0;
    begin_step(f);
}

static void next_step(struct sqlite_fetch *f) {
    if (++f->step < STEP_COUNT)
        begin_step(f);
    else
        sqlite_fetch_finish(f, NULL);
}

/* ---- whether a read would be valid ---- */

static bool in_transaction(const struct sqlite_fetch *f) {
    return f->seen[JOURNAL].size && f->seen[JOURNAL].used;
}

/*
 * True if a part was written just now, so that a second write could have the same timestamp. A
 * program can set any other time; then only a changed time shows a write.
 */
static bool just_written(const struct sqlite_fetch *f) {
    for (int i = 0; i < PARTS; i++) {
        int64_t age = wall_ms() - (int64_t)(f->seen[i].mtime_ns / 1000000);
        if (age > -SETTLE_MS && age < SETTLE_MS)
            return true;
    }
    return false;
}

static void again(struct sqlite_fetch *f) {
    struct err err;
    if (loop_now_ms(f->service->loop) < f->until_ms) {
        loop_timer_start(f->timer, AGAIN_MS, 0);
        return;
    }
    if (in_transaction(f)) {
        err_set(&err, ERR_BUSY,
                "database '%s' of machine '%s' is in a transaction: '%s-journal' exists", f->place,
                f->machine, f->place);
        err_remedy(&err, "wait until the transaction ends; if its program was killed, open the "
                         "database once in the machine to roll it back");
    } else {
        err_set(&err, ERR_BUSY, "database '%s' of machine '%s' changes constantly", f->place,
                f->machine);
        err_remedy(&err, "run `carrel pause %s` and try again", f->machine);
    }
    sqlite_fetch_finish(f, &err);
}

/* ---- answers of the machine ---- */

static void sqlite_fetch_take(struct sqlite_fetch *f, const struct msg_read_data *m) {
    struct err err;
    int status = write_all(f->fds[steps[f->step].part], m->data.p, m->data.n);
    f->ask.offset += m->data.n;
    if (status < 0) {
        err_num(&err, status, "machine '%s': cannot save a copy of database file '%s'", f->machine,
                f->path);
        sqlite_fetch_finish(f, &err);
    } else if (f->ask.offset > SQLITE_FILE_MAX) {
        err_set(&err, ERR_LIMIT, "database file '%s' is larger than %d MiB", f->path,
                SQLITE_FILE_MAX >> 20);
        sqlite_fetch_finish(f, &err);
    } else if (m->data.n < MSG_CHUNK_MAX) {
        next_step(f);
    } else {
        sqlite_fetch_ask(f);
    }
}

static void sqlite_fetch_look(struct sqlite_fetch *f, const struct msg_read_data *m) {
    struct look *seen = &f->seen[steps[f->step].part];
    const struct look now = {m->size, m->mtime_ns, m->data.n && m->data.p[0]};
    if (steps[f->step].what == CHECK) {
        bool same = now.size == seen->size && now.mtime_ns == seen->mtime_ns;
        (same ? next_step : again)(f);
        return;
    }
    *seen = now;
    /* the rollback journal is the last part that is noted */
    bool whole = steps[f->step].part == JOURNAL;
    (whole && (in_transaction(f) || just_written(f)) ? again : next_step)(f);
}

static void came(void *arg, const struct frame *frame, const struct err *failed) {
    struct sqlite_fetch *f = arg;
    struct msg_read_data m = {.size = 0};
    struct err err;
    bool absent = failed && failed->code == ERR_NOT_FOUND && f->ask.offset == 0;
    f->asked = false;
    if (f->over) {
        fetch_free(f);
    } else if (failed && !absent) {
        sqlite_fetch_finish(f, failed);
    } else if (!absent && msg_get_read_data(frame, &m) < 0) {
        err_set(&err, ERR_INTERNAL,
                "the guest of machine '%s' sent an invalid reply to a read of a database",
                f->machine);
        sqlite_fetch_finish(f, &err);
    } else if (steps[f->step].what == TAKE) {
        sqlite_fetch_take(f, &m);
    } else {
        sqlite_fetch_look(f, &m);
    }
}

void sqlite_fetch(struct service *s, const struct caller *who, const struct grant_row *row,
                  const int fds[2], service_done_fn *done, void *arg) {
    struct sqlite_fetch *f = xnew(struct sqlite_fetch);
    *f = (struct sqlite_fetch){.service = s,
                               .next = s->grants->fetches,
                               .link = &s->grants->fetches,
                               .who = *who,
                               .fds = {fds[0], fds[1]},
                               .until_ms = loop_now_ms(s->loop) + PATIENCE_MS,
                               .done = done,
                               .arg = arg};
    snprintf(f->machine, sizeof(f->machine), "%s", row->machine);
    snprintf(f->place, sizeof(f->place), "%s", row->place);
    if (f->next)
        f->next->link = &f->next;
    s->grants->fetches = f;
    f->timer = loop_timer_new(s->loop, sqlite_fetch_begin, f);
    f->limit = loop_timer_new(s->loop, too_late, f);
    loop_timer_start(f->limit, LIMIT_MS, 0);
    sqlite_fetch_begin(f);
}
