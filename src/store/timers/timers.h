/*
 * Timers: commands that a machine runs at set times. A row exists until the timer was removed, has
 * run for the last time, or its machine is gone.
 */
#pragma once

#include "store/db.h"

enum {
    STORE_TIMERS_MAX = 256 /* of an owner */,
    STORE_TIMER_USER_SIZE = 64,
    STORE_TIMER_TASK_SIZE = 16
};

struct timer_row {
    char id[ID_SIZE]; /* a-... */
    char machine[ID_SIZE];
    char owner[STORE_NAME_SIZE];
    char token[ID_SIZE];              /* id of the API token that made it; empty: none */
    char *argv;                       /* JSON list of words */
    char user[STORE_TIMER_USER_SIZE]; /* empty: the default user of the machine */
    uint64_t every_ms;                /* 0: once */
    int64_t next_ms;                  /* wall clock; 0: not again */
    int64_t due_ms;                   /* a run that has begun was to be at this time; 0: none */
    int64_t created_ms, last_ms;
    char last_exec[ID_SIZE]; /* empty: it has not run */
    uint64_t runs, missed;
    char *error;                      /* why the last run did not start; empty: it did */
    char task[STORE_TIMER_TASK_SIZE]; /* of upkeep, instead of argv; empty: none */
};
void timer_row_done(struct timer_row *row);

struct timer_list {
    struct timer_row *rows;
    size_t count;
};
void timer_list_done(struct timer_list *list);

int store_timer_put(struct store *s, const struct timer_row *row, struct err *err);
/* Lists timers by time. NULL: of all owners, machines or ids. */
int store_timer_list(struct store *s, const char *owner, const char *machine, const char *id,
                     struct timer_list *ret, struct err *err);
/* Lists those that are due, and with `begun` those whose run has begun under an earlier daemon. */
int store_timer_due(struct store *s, int64_t now_ms, bool begun, struct timer_list *ret,
                    struct err *err);
/* The time of the next one; 0: none. */
int store_timer_next(struct store *s, int64_t *ret_ms, struct err *err);
int store_timer_remove(struct store *s, const char *id, struct err *err);
