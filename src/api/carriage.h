/*
 * Carries bytes between a client and a job of the service: the body of a request into the job, or
 * what the job makes into the response. Each side waits for the other.
 */
#pragma once

#include "api/route.h"
#include "base/buf.h"

/* What can be asked of a job. feed: returns how many bytes it took; the rest is offered again. */
struct carriage_job {
    size_t (*feed)(void *job, const void *bytes, size_t n, bool last); /* NULL: it makes bytes */
    void (*hold)(void *job, bool held);                                /* NULL: it takes bytes */
    void (*cancel)(void *job);
};

struct carriage {
    struct call *call;
    const struct carriage_job *kind;
    void *job;
    const char *type; /* Content-Type of the response, for a job that makes bytes */
    struct buf rest;  /* received bytes that the job has not taken */
    bool body_ended;
};

struct carriage *carriage_new(struct call *c, const struct carriage_job *kind, const char *type);

/* Begins with this job. NULL: it was refused, which answers the call with err and frees t. */
void carriage_begin(struct carriage *t, void *job, const struct err *err);

/* Callbacks of jobs; arg: the carriage. */
void carriage_room(void *arg);
void carriage_data(void *arg, const void *bytes, size_t n);

/* The job has made its last byte, or failed: ends the response and frees t. */
void carriage_sent(struct carriage *t, const struct err *err);

/* Returns its call, which the caller answers. */
struct call *carriage_free(struct carriage *t);
