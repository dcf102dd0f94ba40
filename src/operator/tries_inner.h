/* The state of a run's tries, and the functions that tries.c and tries_judge.c share. */
#pragma once

#include "operator/inner.h"
#include "service/exec/exec.h"
#include "service/runs.h"

enum { CHECK_MS = 600 * 1000, KEY_SIZE = 64, DROPS_MAX = RUN_MACHINES_MAX + RUN_TRIES_MAX };

struct trying {
    struct live_run *live; /* NULL: the run was closed; the pending callback frees this struct */
    struct service *service;
    bool busy; /* a callback is pending */
    size_t at; /* index of the try in progress */
    struct run_follower followers[RUN_TRIES_MAX];
    bool taken[RUN_TRIES_MAX]; /* the run of this try was resumed */
    /* The try that is being judged. */
    char place[ID_SIZE]; /* the machine in which the check runs */
    bool lent, forked;
    size_t file; /* index of the next check file to copy */
    struct exec *exec;
    struct exec_follower follower;
    struct run_event judged;
    char changeset[ID_SIZE], why[256], key[KEY_SIZE], path[4096];
    struct exec_request check;
    /* A cancelled run: machines to delete, and how many are deleted. */
    char drops[DROPS_MAX][ID_SIZE];
    size_t drop_count, dropped;
    bool listed;
};

struct outcome {
    char state[16], status[32], reason[256];
    json_t *report;
};

/* tries.c */
void tries_leave_check(struct trying *t);
bool tries_is_unwanted(struct trying *t);
const struct run_try *tries_try_of(const struct trying *t);
void tries_add(struct trying *t, struct run_event *e);
void tries_key_of(struct trying *t, const char *what);
void tries_drop(struct trying *t, const char *machine);
void tries_fork_of(struct trying *t, const char *machine, const char *step, service_done_fn *done);
void tries_outcome_done(struct outcome *o);
void tries_outcome_of(const struct trying *t, size_t i, struct outcome *ret);

/* tries_judge.c */
void tries_judge(struct trying *t);
/* Writes what all tries that have begun used together, as members of the report. */
void tries_put_sums(struct jot *j, struct trying *t);
