/*
 * File changes of a machine between two steps, or between a step and now.
 *
 * Computed on the host from the layers (src/compare), so the machine may be paused. The receiver
 * owns the list of changes.
 */
#pragma once

#include "base/wire/changes.h"
#include "service/service.h"

struct diff_request {
    const char *from; /* a step, or `start`: the machine as created; NULL: start */
    const char *to;   /* a step, or `now`; NULL: now */
    const char *path; /* only this path and everything below it; NULL: all */
    uint64_t context; /* context lines around a change */
    bool brief;       /* omit the diffs of text files */
};

enum { DIFF_CONTEXT = 3, DIFF_CONTEXT_MAX = 100 };

/* One side of a diff. */
struct diff_end {
    const char *name; /* start, now, or the step's id */
    uint64_t number;  /* of the step; 0: none */
};

struct diff_view {
    const char *machine;
    struct diff_end from, to;
    struct change_list *changes; /* the receiver may take its content */
};

typedef void service_diff_fn(void *arg, const struct diff_view *view, const struct err *err);
void service_diff(struct service *s, const struct caller *who, const char *machine,
                  const struct diff_request *r, service_diff_fn *done, void *arg);

/* As service_settled(), and counts what each step changed, as far as possible. */
void service_measured(struct service *s, const struct caller *who, const char *machine, loop_fn *go,
                      void *arg);
