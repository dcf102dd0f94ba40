#include "service/timers/timers.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/exec/exec.h"
#include "service/fields.h"
#include "service/rights.h"
#include "service/state.h"
#include "service/steps/live.h"
#include "service/timers/upkeep.h"
#include "store/owners.h"
#include "store/timers/timers.h"

enum {
    TIMERS_JSON_MAX = 8 << 20,
    ARGV_MAX = 16384,    /* bytes of a command, as JSON */
    RUNS_MAX = 16,       /* runs that are being started at a time */
    LATE_MS = 60000,     /* a run that is later says so */
    CLOCK_LOOK_MS = 1000 /* the wall clock may be set */
};

/* Part of struct service. */
struct service_timers {
    struct timer_run *runs;
    size_t count;
    bool resumed;    /* runs that an earlier daemon began were taken over */
    int64_t next_ms; /* when to look at the table */
};

/* A run that is being started: its machine may have to wake first. */
struct timer_run {
    struct timer_run *next;
    struct service *service;
    struct caller who;
    struct timer_row row;
    json_t *words;
    const char *argv[TIMER_WORDS_MAX];
    struct exec_request request;
    char key[ID_SIZE + 24];
    char used[ID_SIZE]; /* keeps the machine awake */
    int64_t late_ms;
    uint64_t intent; /* of a task of upkeep; 0: none */
};

struct service_timers *service_timers_new(void) {
    return xnew(struct service_timers);
}

static void timer_run_free(struct timer_run *r) {
    timer_row_done(&r->row);
    json_decref(r->words);
    free(r);
}

void service_timers_free(struct service_timers *t) {
    for (struct timer_run *r; t && (r = t->runs);) {
        t->runs = r->next;
        timer_run_free(r);
    }
    free(t);
}

/* ---- timers as JSON ---- */

enum { RUN_KILLED = -1, RUN_OPEN = -2 };

/* The exit status of the last run; RUN_OPEN: it has not ended, or there is none. */
static int64_t timer_outcome(struct service *s, const struct caller *who,
                             const struct timer_row *row) {
    struct exec_view view;
    struct err none;
    int64_t status = RUN_OPEN;
    struct exec *x =
        row->last_exec[0] ? service_exec_find(s, who, row->machine, row->last_exec, &none) : NULL;
    if (!x)
        return RUN_OPEN;
    exec_view(x, &view);
    if (exec_is_over(x))
        status = view.status < 0 ? RUN_KILLED : view.status;
    exec_unref(x);
    return status;
}

static void put_timer(struct jot *j, struct service *s, const struct caller *who,
                      const struct timer_row *row) {
    jot_object(j, NULL);
    jot_string(j, "id", row->id);
    jot_string(j, "machine", row->machine);
    jot_raw(j, "argv", row->argv);
    if (row->task[0])
        jot_string(j, "task", row->task);
    if (row->user[0])
        jot_string(j, "user", row->user);
    if (row->every_ms)
        jot_u64(j, "every_ms", row->every_ms);
    jot_i64(j, "next_ms", row->next_ms);
    jot_i64(j, "created_ms", row->created_ms);
    jot_u64(j, "runs", row->runs);
    jot_u64(j, "missed", row->missed);
    if (row->last_ms)
        jot_i64(j, "last_ms", row->last_ms);
    if (row->last_exec[0])
        jot_string(j, "last_exec", row->last_exec);
    int64_t status = timer_outcome(s, who, row);
    if (status != RUN_OPEN)
        jot_i64(j, "last_status", status);
    if (row->error && row->error[0])
        jot_string(j, "error", row->error);
    jot_end(j, '}');
}

static void timer_answer(struct service *s, const struct caller *who, const struct timer_row *row,
                         service_net_fn *done, void *arg) {
    struct buf text DEFER(buf_done) = BUF(TIMERS_JSON_MAX);
    struct jot j = JOT(&text);
    put_timer(&j, s, who, row);
    done(arg, text.data, NULL);
}

void service_timer_list(struct service *s, const struct caller *who, const char *machine,
                        service_net_fn *done, void *arg) {
    struct buf text DEFER(buf_done) = BUF(TIMERS_JSON_MAX);
    struct jot j = JOT(&text);
    struct timer_list list DEFER(timer_list_done) = {0};
    struct err err;
    struct live *l =
        allow(who, SCOPE_READ, &err) < 0 ? NULL : live_find(s, who, machine, LIVE_ANY, &err);
    if (!l || store_timer_list(s->store, NULL, l->row.id, NULL, &list, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    jot_object(&j, NULL);
    jot_array(&j, "timers");
    for (size_t i = 0; i < list.count; i++)
        put_timer(&j, s, who, &list.rows[i]);
    jot_end(&j, ']');
    jot_end(&j, '}');
    done(arg, text.data, NULL);
}

int timers_upkeep(struct live *l, char *why, size_t size) {
    struct timer_list list DEFER(timer_list_done) = {0};
    struct caller owner = {.scopes = SCOPE_READ};
    struct err err;
    int count = 0;
    *why = '\0';
    memcpy(owner.owner, l->row.owner, sizeof(owner.owner));
    if (store_timer_list(l->service->store, NULL, l->row.id, NULL, &list, &err) < 0)
        return -1;
    for (size_t i = 0; i < list.count; i++) {
        const struct timer_row *row = &list.rows[i];
        int64_t status = row->task[0] ? timer_outcome(l->service, &owner, row) : 0;
        count += row->task[0] != '\0';
        if (row->task[0] && row->error && *row->error)
            snprintf(why, size, "the task '%s' did not start: %s", row->task, row->error);
        else if (status > 0)
            snprintf(why, size, "the task '%s' failed with status %" PRId64 ": carrel logs %s %s",
                     row->task, status, row->machine, row->last_exec);
    }
    return count;
}

/* ---- changes ---- */

static void timers_changed(struct service *s) {
    s->timers->next_ms = 0;
}

/* Refuses a timer too many. */
static int timer_may_add(struct service *s, const struct live *l, struct err *err) {
    struct timer_list all DEFER(timer_list_done) = {0};
    size_t own = 0;
    if (store_timer_list(s->store, l->row.owner, NULL, NULL, &all, err) < 0)
        return -1;
    for (size_t i = 0; i < all.count; i++)
        own += strcmp(all.rows[i].machine, l->row.id) == 0;
    if (own < TIMERS_OF_MACHINE && all.count < STORE_TIMERS_MAX)
        return 0;
    err_set(err, ERR_LIMIT,
            own < TIMERS_OF_MACHINE ? "an owner can have at most %d timers"
                                    : "a machine can have at most %d timers",
            own < TIMERS_OF_MACHINE ? STORE_TIMERS_MAX : TIMERS_OF_MACHINE);
    return err_remedy(err, "remove one: carrel timer rm MACHINE TIMER");
}

static int timer_plan_times(const struct timer_request *r, struct timer_row *row, struct err *err) {
    int64_t now = wall_ms();
    row->created_ms = now;
    row->every_ms = given_or(r->every, row->every_ms);
    if (r->in.is && r->at_ms.is)
        return err_set(err, ERR_INVALID, "the fields 'in' and 'at_ms' exclude each other");
    if (!r->in.is && !r->at_ms.is && !row->every_ms)
        return err_set(err, ERR_INVALID, "a timer needs a time: 'every', 'in' or 'at_ms'");
    row->next_ms = now + (int64_t)given_or(r->in, row->every_ms);
    if (r->at_ms.is)
        row->next_ms = (int64_t)r->at_ms.value;
    return row->next_ms >= now ? 0
                               : err_set(err, ERR_INVALID, "the time of the timer is in the past");
}

/* A machine has a task once. */
static int timer_plan_task(const struct live *l, const struct timer_request *r,
                           struct timer_row *row, struct err *err) {
    struct timer_list all DEFER(timer_list_done) = {0};
    const struct upkeep_task *task = upkeep_find(l, r->task, err);
    if (!task)
        return -1;
    if (r->argv.count || r->user)
        return err_set(err, ERR_INVALID, "a task has a command and a user of its own");
    if (store_timer_list(l->service->store, NULL, l->row.id, NULL, &all, err) < 0)
        return -1;
    for (size_t i = 0; i < all.count; i++)
        if (strcmp(all.rows[i].task, task->name) == 0) {
            err_set(err, ERR_EXISTS, "timer '%s' already does the task '%s'", all.rows[i].id,
                    task->name);
            return err_remedy(err, "to change it: carrel timer rm %s %s", l->row.id,
                              all.rows[i].id);
        }
    snprintf(row->task, sizeof(row->task), "%s", task->name);
    row->every_ms = task->every_ms;
    return 0;
}

static int timer_plan(const struct live *l, const struct caller *who, const struct timer_request *r,
                      struct timer_row *row, struct err *err) {
    struct buf argv DEFER(buf_done) = BUF(ARGV_MAX);
    struct jot j = JOT(&argv);
    if (r->task ? timer_plan_task(l, r, row, err) < 0 : !r->argv.count || !r->argv.v[0][0])
        return r->task ? -1 : err_set(err, ERR_INVALID, "a timer needs a command");
    if (timer_plan_times(r, row, err) < 0)
        return -1;
    jot_array(&j, NULL);
    for (size_t i = 0; i < r->argv.count; i++)
        jot_string(&j, NULL, r->argv.v[i]);
    jot_end(&j, ']');
    if (j.failed)
        return err_set(err, ERR_LIMIT, "the command of a timer must have at most %d bytes",
                       ARGV_MAX);
    snprintf(row->id, sizeof(row->id), "%s", id_new('a').text);
    snprintf(row->machine, sizeof(row->machine), "%s", l->row.id);
    snprintf(row->owner, sizeof(row->owner), "%s", l->row.owner);
    snprintf(row->token, sizeof(row->token), "%s", who->token);
    snprintf(row->user, sizeof(row->user), "%s", r->task ? "root" : r->user ? r->user : "");
    row->argv = xstrdup(argv.data);
    return 0;
}

static struct journal_record timer_record(const char *verb, const struct timer_row *row,
                                          char detail[64]) {
    snprintf(detail, 64, "{\"timer\":\"%s\"}", row->id);
    return (struct journal_record){.verb = verb, .machine = row->machine, .detail = detail};
}

/* Writes a change to the journal and to the store. */
static int timer_write(struct service *s, const struct caller *who, const char *verb,
                       struct timer_row *row, struct err *err) {
    char detail[64];
    uint64_t intent;
    const struct journal_record what = timer_record(verb, row, detail);
    if (note_intent(s, who, &what, &intent, err) < 0)
        return -1;
    int r = strcmp(verb, "timer.add") == 0 ? store_timer_put(s->store, row, err)
                                           : store_timer_remove(s->store, row->id, err);
    note_result(s, who, &what, intent, r < 0 ? err : NULL);
    timers_changed(s);
    return r;
}

void service_timer_add(struct service *s, const struct caller *who, const char *machine,
                       const struct timer_request *r, service_net_fn *done, void *arg) {
    struct timer_row row DEFER(timer_row_done) = {0};
    struct err err;
    struct live *l =
        allow(who, SCOPE_RUN, &err) < 0 ? NULL : live_find(s, who, machine, LIVE_ANY, &err);
    if (!l || timer_plan(l, who, r, &row, &err) < 0 || timer_may_add(s, l, &err) < 0 ||
        timer_write(s, who, "timer.add", &row, &err) < 0)
        done(arg, NULL, &err);
    else
        timer_answer(s, who, &row, done, arg);
}

void service_timer_remove(struct service *s, const struct caller *who, const char *machine,
                          const char *id, service_net_fn *done, void *arg) {
    struct timer_list found DEFER(timer_list_done) = {0};
    struct err err;
    struct live *l =
        allow(who, SCOPE_RUN, &err) < 0 ? NULL : live_find(s, who, machine, LIVE_ANY, &err);
    int r = l ? store_timer_list(s->store, NULL, l->row.id, id, &found, &err) : -1;
    if (r == 0 && !found.count) {
        r = err_set(&err, ERR_NOT_FOUND, "machine '%s' has no timer '%.20s'", l->row.id, id);
        err_remedy(&err, "list its timers: carrel timer ls %s", l->row.id);
    }
    if (r < 0 || timer_write(s, who, "timer.remove", &found.rows[0], &err) < 0)
        done(arg, NULL, &err);
    else
        timer_answer(s, who, &found.rows[0], done, arg);
}

/* ---- runs ---- */

static void timer_tell(const struct timer_run *r, const char *type, const char *why) {
    struct buf text DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "timer", r->row.id);
    if (r->row.last_exec[0] && !why)
        jot_string(&j, "exec", r->row.last_exec);
    if (r->late_ms >= LATE_MS)
        jot_i64(&j, "late_s", r->late_ms / 1000);
    if (r->row.task[0])
        jot_string(&j, "task", r->row.task);
    if (why)
        jot_string(&j, "error", why);
    jot_end(&j, '}');
    event_tell(r->service, r->row.owner, r->row.machine, type, text.data);
}

/* A run of upkeep is in the journal from before its step. */
static int timer_note_intent(struct timer_run *r, struct err *err) {
    char detail[64], verb[8 + STORE_TIMER_TASK_SIZE];
    snprintf(verb, sizeof(verb), "upkeep.%s", r->row.task);
    const struct journal_record what = timer_record(verb, &r->row, detail);
    return note_intent(r->service, &r->who, &what, &r->intent, err);
}

static void timer_note_result(struct timer_run *r, const struct err *failed) {
    char detail[64], verb[8 + STORE_TIMER_TASK_SIZE];
    snprintf(verb, sizeof(verb), "upkeep.%s", r->row.task);
    struct journal_record what = timer_record(verb, &r->row, detail);
    if (!r->intent)
        return;
    if (!failed)
        what.exec = r->row.last_exec;
    note_result(r->service, &r->who, &what, r->intent, failed);
}

/* The run has begun, or cannot. A timer that has no next time is over. */
static void timer_run_end(struct timer_run *r, const struct err *failed) {
    struct service *s = r->service;
    struct timer_run **at = &s->timers->runs;
    struct timer_list still DEFER(timer_list_done) = {0};
    struct err err;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    s->timers->count--;
    if (r->used[0])
        service_use_over(s, r->used);
    timer_note_result(r, failed);
    free(r->row.error);
    r->row.error = xstrdup(failed ? failed->text : "");
    r->row.due_ms = 0;
    r->row.last_ms = wall_ms();
    r->row.runs += !failed;
    bool gone = failed && (failed->code == ERR_GONE || failed->code == ERR_NOT_FOUND);
    int read = store_timer_list(s->store, NULL, NULL, r->row.id, &still, &err);
    int wrote = read < 0 || !still.count  ? read
                : gone || !r->row.next_ms ? store_timer_remove(s->store, r->row.id, &err)
                                          : store_timer_put(s->store, &r->row, &err);
    if (wrote < 0)
        log_line(LOG_ERROR, "service", "write the run of a timer: %s timer=%s", err.text,
                 r->row.id);
    if (!gone)
        timer_tell(r, failed ? "timer.failed" : "timer.ran", failed ? failed->text : NULL);
    timers_changed(s);
    timer_run_free(r);
}

static void timer_run_sent(void *arg, struct exec *x, const struct err *err) {
    struct timer_run *r = arg;
    struct exec_view view;
    if (!err) {
        exec_view(x, &view);
        snprintf(r->row.last_exec, sizeof(r->row.last_exec), "%s", view.id);
        exec_unref(x);
    }
    timer_run_end(r, err);
}

static void timer_run_exec(struct timer_run *r) {
    static const uint8_t no_hash[SHA256_BYTES];
    service_exec(r->service, &r->who, r->row.machine, &r->request, no_hash, NULL, 0, timer_run_sent,
                 r);
}

static void timer_run_kept(void *arg, const struct step_row *step, const struct err *err) {
    (void)step;
    if (err)
        timer_run_end(arg, err);
    else
        timer_run_exec(arg);
}

static void timer_run_keep(struct timer_run *r) {
    char what[16 + STORE_TIMER_TASK_SIZE];
    struct err err;
    struct live *l = live_find(r->service, &r->who, r->row.machine, LIVE_ANY, &err);
    if (!l || timer_note_intent(r, &err) < 0) {
        timer_run_end(r, &err);
        return;
    }
    snprintf(what, sizeof(what), "before %s", r->row.task);
    const struct step_cause cause = {.kind = STEP_SNAP, .what = what, .status = -1};
    steps_take(l, &cause, timer_run_kept, r);
}

static void timer_run_go(void *arg, const struct err *err) {
    struct timer_run *r = arg;
    if (err)
        timer_run_end(r, err);
    else if (service_use(r->service, &r->who, r->row.machine, true, timer_run_go, r, r->used))
        return;
    else if (r->row.task[0])
        timer_run_keep(r);
    else
        timer_run_exec(r);
}

/* The timer acts for who made it. */
static int timer_caller(struct service *s, const struct timer_row *row, struct caller *ret,
                        struct err *err) {
    struct token_row token;
    *ret = (struct caller){.scopes = SCOPE_READ | SCOPE_RUN};
    memcpy(ret->owner, row->owner, sizeof(ret->owner));
    snprintf(ret->client, sizeof(ret->client), "timer %s", row->id);
    if (!row->token[0])
        return 0;
    if (store_token_get(s->store, row->token, &token, err) < 0)
        return -1;
    if (token.revoked_ms)
        return err_set(err, ERR_DENIED, "the token that made the timer was revoked");
    memcpy(ret->token, row->token, sizeof(ret->token));
    ret->scopes = token.scopes;
    ret->quota = token.quota;
    return 0;
}

/* Refuses to start a command while the one of the last run goes on. */
static int timer_last_is_over(struct service *s, const struct timer_run *r, struct err *err) {
    struct err none;
    struct exec *x = r->row.last_exec[0]
                         ? service_exec_find(s, &r->who, r->row.machine, r->row.last_exec, &none)
                         : NULL;
    bool over = !x || exec_is_over(x);
    if (x)
        exec_unref(x);
    return over ? 0
                : err_set(err, ERR_BUSY, "the command of the run before, %s, has not ended",
                          r->row.last_exec);
}

static int timer_run_plan(struct service *s, struct timer_run *r, struct err *err) {
    const json_t *word;
    size_t i, count = UPKEEP_WORDS;
    if (r->row.task[0]) {
        upkeep_words(r->row.task, r->argv);
    } else {
        r->words = json_loads(r->row.argv, 0, NULL);
        count = json_array_size(r->words);
    }
    if (!count || count > TIMER_WORDS_MAX)
        return err_set(err, ERR_INTERNAL, "the command of timer '%s' is damaged", r->row.id);
    json_array_foreach(r->words, i, word) {
        r->argv[i] = json_string_value(word) ? json_string_value(word) : "";
    }
    snprintf(r->key, sizeof(r->key), "%s-%" PRId64, r->row.id, r->row.due_ms);
    r->request = (struct exec_request){.argv = {r->argv, count},
                                       .user = r->row.user[0] ? r->row.user : NULL,
                                       .key = r->key,
                                       .background = true};
    if (timer_caller(s, &r->row, &r->who, err) < 0)
        return -1;
    return timer_last_is_over(s, r, err);
}

/* Moves the next time behind the present one; the times between are missed. */
static void timer_advance(struct timer_row *row, int64_t now) {
    int64_t every = (int64_t)row->every_ms;
    if (!row->due_ms)
        row->due_ms = row->next_ms;
    if (!every) {
        row->next_ms = 0;
    } else if (row->next_ms && row->next_ms <= now) {
        int64_t missed = (now - row->next_ms) / every;
        row->missed += (uint64_t)missed;
        row->next_ms += (missed + 1) * every;
    }
}

/* Takes over the texts of the row. */
static void timer_run_begin(struct service *s, struct timer_row *row, int64_t now) {
    struct timer_run *r = xnew(struct timer_run);
    struct err err;
    *r = (struct timer_run){.service = s, .row = *row, .next = s->timers->runs};
    row->argv = row->error = NULL;
    timer_advance(&r->row, now);
    r->late_ms = now - r->row.due_ms;
    s->timers->runs = r;
    s->timers->count++;
    if (store_timer_put(s->store, &r->row, &err) < 0 || timer_run_plan(s, r, &err) < 0)
        timer_run_end(r, &err);
    else
        timer_run_go(r, NULL);
}

static bool timer_is_running(const struct service *s, const char *id) {
    const struct timer_run *r = s->timers->runs;
    while (r && strcmp(r->row.id, id) != 0)
        r = r->next;
    return r;
}

void timers_look(struct service *s, int64_t wall) {
    struct timer_list due DEFER(timer_list_done) = {0};
    struct service_timers *t = s->timers;
    struct err err;
    if (wall < t->next_ms && t->next_ms <= wall + CLOCK_LOOK_MS)
        return;
    if (s->listing || s->adopting || t->count >= RUNS_MAX)
        return;
    if (store_timer_due(s->store, wall, !t->resumed, &due, &err) < 0) {
        log_line(LOG_ERROR, "service", "read the timers: %s", err.text);
        t->next_ms = wall + CLOCK_LOOK_MS;
        return;
    }
    t->resumed = true;
    for (size_t i = 0; i < due.count; i++)
        if (!timer_is_running(s, due.rows[i].id))
            timer_run_begin(s, &due.rows[i], wall);
    int64_t next = 0;
    if (store_timer_next(s->store, &next, &err) < 0 || !next || next > wall + CLOCK_LOOK_MS)
        next = wall + CLOCK_LOOK_MS;
    t->next_ms = next;
}
