/*
 * File changes of a machine between two steps, or between a step and now.
 *
 * carrel-compare finds the changes on the host, from the layers of the machine, so the machine may
 * be paused. The receiver owns the list of changes.
 */
#pragma once

#include "base/wire/changes.h"
#include "service/service.h"

struct diff_request {
    const char *from;   /* a step, or `start`: the machine as created; NULL: start */
    const char *to;     /* a step, or `now`; NULL: now */
    const char *path;   /* report only this path and everything below it; NULL: all */
    uint64_t context;   /* context lines around a change */
    bool brief;         /* omit the diffs of text files */
    const char *volume; /* the changes in this volume of the machine; `from`: a snapshot of it */
    bool skip_repos;    /* omit the files in granted repositories, which have change sets */
};

enum { DIFF_CONTEXT = 3, DIFF_CONTEXT_MAX = 100 };

/* One side of a diff. */
struct diff_end {
    const char *name; /* start, now, the step's id, or the name of a volume or its snapshot */
    uint64_t number;  /* number of the step; 0: not a step */
};

struct diff_view {
    const char *machine;
    struct diff_end from, to;
    struct change_list *changes; /* the receiver may take its content */
};

typedef void service_diff_fn(void *arg, const struct diff_view *view, const struct err *err);
void service_diff(struct service *s, const struct caller *who, const char *machine,
                  const struct diff_request *r, service_diff_fn *done, void *arg);

/* Calls go(arg) once all begun steps of the machine are saved. Before that, counts the files of
 * each step, unless too many comparisons run. */
void service_measured(struct service *s, const struct caller *who, const char *machine, loop_fn *go,
                      void *arg);
