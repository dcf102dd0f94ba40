/*
 * The operator: runs, in which a model carries out a task on a machine by calling tools.
 *
 * A run belongs to an owner and acts with the scopes read and run at most, whoever started it. Its
 * transcript ($CARREL_HOME/runs/ID.jsonl) is all that it is; every intent in it is on the disk,
 * and in the journal, before its effect. After a restart of the daemon runs that had not ended are
 * `interrupted` until somebody resumes them, and then no effect is repeated or lost.
 */
#pragma once

#include "service/service.h"

struct runs;

struct runs *operator_new(struct loop *loop, struct service *service);
/* Lets go of the runs: they can be resumed. Commands go on. */
void operator_free(struct runs *o);
/* Runs under way. */
size_t operator_busy(const struct runs *o);

struct operator_request {
    const char *task;
    const char *machine; /* NULL: one is made */
    const char *model;   /* "PROVIDER/MODEL"; NULL: the default of carrel.conf */
    const char *script;  /* of the provider `rehearsal` */
    const char *mode;    /* operator/mode.h; NULL: free */
    const char *menu;    /* of the mode action-selector, JSON */
    bool guard;          /* its machine: service_net_guard() */
    struct texts keys;   /* names and values, as in an environment; never written down */
    struct given steps, tokens, money, wall; /* money in millionths, wall in ms */
    struct given tries;    /* so many runs, on forks of the machine or on machines made for them */
    struct texts machines; /* of tries: these instead, one each; those that are not best go */
    bool asks;             /* plan-then-execute: its owner may approve what is not in the plan */
    const char *check;     /* of tries: a command that must exit with 0 where one has worked */
    struct texts check_files; /* paths and texts: put there before it, from its owner's side */
};
enum { OPERATOR_KEYS_MAX = 16, OPERATOR_FILES_MAX = 16, OPERATOR_STEPS_DEFAULT = 200 };

struct run_view {
    const char *id, *owner, *machine, *task, *model, *mode;
    const char *state;    /* running waiting interrupted ended */
    const char *status;   /* of an end: done partial blocked budget stuck ... */
    const char *reason;   /* of an interruption */
    const char *question; /* JSON: what it waits for */
    const char *report;   /* JSON */
    uint64_t created_ms, turns, calls, tokens, cost_micro, wall_ms, lines;
};

/* The view, or why not; once, perhaps from within the call. */
typedef void operator_fn(void *arg, const struct run_view *view, const struct err *err);

void operator_start(struct runs *o, const struct caller *who, const struct operator_request *r,
                    operator_fn *done, void *arg);
void operator_show(struct runs *o, const struct caller *who, const char *run, operator_fn *done,
                   void *arg);
/* keys: as in operator_request; they are not kept, so they are given again. comment: of an ended
 * run, whose next message it is; else NULL. */
void operator_resume(struct runs *o, const struct caller *who, const char *run,
                     const struct texts *keys, const char *comment, operator_fn *done, void *arg);
void operator_cancel(struct runs *o, const struct caller *who, const char *run, operator_fn *done,
                     void *arg);
/* action: accept, decline or cancel. `invalid`: nothing was asked. */
void operator_answer(struct runs *o, const struct caller *who, const char *run, const char *action,
                     const char *answer, operator_fn *done, void *arg);
/* Its owner's word about a call that is not in the plan: only from this host, or with admin.
 * item: as operator_pending() shows it (operator/word.h). */
void operator_decide(struct runs *o, const struct caller *who, const char *item, bool approve,
                     operator_fn *done, void *arg);
/* {"id","machine",...} of each that waits for that, as service_pending() has them. */
void operator_pending(struct runs *o, const struct caller *who, service_row_fn *row, void *arg);
/* Newest first, at most `limit`. */
int operator_list(struct runs *o, const struct caller *who, size_t limit, service_row_fn *row,
                  void *arg, struct err *err);

/* ---- the transcript, as it grows ---- */

struct run_follower {
    void (*changed)(void *arg);
    void *arg;
    struct run_follower *next, **at; /* the operator's; at NULL: it follows nothing */
};
/* False: the run is not under way, so nothing will come. */
bool operator_follow(struct runs *o, const char *run, struct run_follower *f);
void operator_unfollow(struct run_follower *f);
/* All of it, as operator/export.h. */
int operator_export(struct runs *o, const struct caller *who, const char *run, struct buf *to,
                    struct err *err);
/* Whole lines from a byte on; an empty buffer: that is all for now. */
int operator_read(struct runs *o, const struct caller *who, const char *run, uint64_t from,
                  struct buf *to, struct err *err);
