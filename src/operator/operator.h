/*
 * The operator: runs in which a model carries out a task on a machine by calling tools.
 *
 * A run belongs to an owner and has at most the scopes read and run, whoever started it. Its
 * transcript ($CARREL_HOME/runs/ID.jsonl) is its complete state. Every intent is on disk, in the
 * transcript and in the journal, before its effect. After a restart of the daemon, runs that had
 * not ended are `interrupted` until they are resumed; then no effect is repeated or lost.
 */
#pragma once

#include "service/service.h"

struct runs;

struct runs *operator_new(struct loop *loop, struct service *service);
/* Closes the live runs, which can be resumed later. Their commands continue. */
void operator_free(struct runs *o);
/* The number of live runs. */
size_t operator_busy(const struct runs *o);

struct operator_request {
    const char *task;
    const char *machine; /* NULL: create a machine */
    const char *model;   /* "PROVIDER/MODEL"; NULL: the default of carrel.conf */
    const char *script;  /* for the provider `rehearsal`: its answers */
    const char *mode;    /* a mode of operator/mode.h; NULL: free */
    const char *menu;    /* for the mode action-selector: the allowed calls, JSON */
    bool guard;          /* close the network once the machine is tainted: service_net_guard() */
    struct texts keys;   /* keys of model providers: names and values; never stored */
    struct given turns, tokens, money, timeout; /* money in millionths, timeout in ms */
    struct given tries; /* number of tries (attempts), on forks of the machine or new machines */
    struct texts
        machines;      /* existing machines for the tries, one each; all but the best are deleted */
    bool asks;         /* plan-then-execute: the owner may approve calls that are not in the plan */
    const char *check; /* command that must exit with 0 on the result of a good try */
    struct texts check_files; /* paths and texts of the owner's files for the check */
};
enum { OPERATOR_KEYS_MAX = 16, OPERATOR_FILES_MAX = 16, OPERATOR_TURNS_DEFAULT = 200 };

struct run_view {
    const char *id, *owner, *machine, *task, *model, *mode;
    const char *state;    /* running, waiting, interrupted or ended */
    const char *status;   /* of an ended run: done, partial, blocked, budget, stuck ... */
    const char *reason;   /* why the run was interrupted */
    const char *question; /* JSON: what the run waits for */
    const char *report;   /* the report of an ended run, JSON */
    uint64_t created_ms, turns, calls, tokens, cost_micro, wall_ms, lines;
};

/* Called once with the view or the error, possibly before the called function returns. */
typedef void operator_fn(void *arg, const struct run_view *view, const struct err *err);

void operator_start(struct runs *o, const struct caller *who, const struct operator_request *r,
                    operator_fn *done, void *arg);
void operator_show(struct runs *o, const struct caller *who, const char *run, operator_fn *done,
                   void *arg);
/* Continues an ended run with a comment as its next message. Members may be NULL. */
struct run_return {
    const char *comment;
    const char *key; /* idempotency key: a repeated request does not add the comment twice */
};
enum { RUN_RETURN_KEY_MAX = 128 };
/* keys: as in operator_request; keys are not stored, so a resume must pass them again. */
void operator_resume(struct runs *o, const struct caller *who, const char *run,
                     const struct texts *keys, const struct run_return *back, operator_fn *done,
                     void *arg);
void operator_cancel(struct runs *o, const struct caller *who, const char *run, operator_fn *done,
                     void *arg);
/* An answer to the question with this id. */
struct run_answer {
    const char *question;
    const char *action; /* accept, decline or cancel; NULL: accept */
    const char *answer;
};
/* `busy`: the run does not wait for an answer to this question, now or any more. */
void operator_answer(struct runs *o, const struct caller *who, const char *run,
                     const struct run_answer *r, operator_fn *done, void *arg);
/* Approves or denies a call that is not in the plan. Allowed only from this host, or with the scope
 * admin. item: as operator_pending() shows it (operator/word.h). */
void operator_decide(struct runs *o, const struct caller *who, const char *item, bool approve,
                     operator_fn *done, void *arg);
/* One row {"id","machine",...} for each waiting call, in the format of service_pending(). */
void operator_pending(struct runs *o, const struct caller *who, service_row_fn *row, void *arg);
/* Lists at most `limit` runs, newest first. */
int operator_list(struct runs *o, const struct caller *who, size_t limit, service_row_fn *row,
                  void *arg, struct err *err);

/* ---- following a transcript ---- */

struct run_follower {
    void (*changed)(void *arg);
    void *arg;
    struct run_follower *next, **at; /* used by the operator; at NULL: not following */
};
/* False: the run is not live, so `changed` will never be called. */
bool operator_follow(struct runs *o, const char *run, struct run_follower *f);
void operator_unfollow(struct run_follower *f);
/* Writes the whole run in the format of operator/export.h. */
int operator_export(struct runs *o, const struct caller *who, const char *run, struct buf *to,
                    struct err *err);
/* Reads complete transcript lines from byte `from` on. At the current end the buffer is empty. */
int operator_read(struct runs *o, const struct caller *who, const char *run, uint64_t from,
                  struct buf *to, struct err *err);
