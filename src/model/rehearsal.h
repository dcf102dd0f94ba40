/*
 * A scripted model, so that everything around a model can be tested and shown without an API key.
 * It is called `rehearsal` everywhere.
 *
 * A turn (one answer of the model) is chosen by its number in the run and by the last tool result,
 * never by the number of requests, so a repeated request gets the same turn. The first matching
 * turn is played. A turn may have a fault that is played a number of times before it.
 */
#pragma once

#include "model/talk.h"

enum rehearsal_fault {
    REHEARSAL_FINE,
    REHEARSAL_STATUS,  /* an HTTP status instead of an answer */
    REHEARSAL_GARBAGE, /* an invalid answer */
    REHEARSAL_CUT,     /* half of the answer, then the end of the stream */
    REHEARSAL_RESET,   /* the connection ends before the answer begins */
    REHEARSAL_ERROR,   /* half of the answer, then an error in the stream */
    REHEARSAL_SLOW,    /* the answer, after `wait_ms` */
};

struct rehearsal_turn {
    int64_t number;    /* number of the model's turns before this one; -1: any */
    const char *after; /* text that the last tool result must contain; NULL: any */
    int failed;        /* 1: the last tool call must have failed; 0: must not; -1: either */
    const struct model_part *parts;
    size_t count, calls;
    enum model_stop stop;
    struct model_usage usage;
    bool has_usage;
    enum rehearsal_fault fault;
    uint64_t times; /* how often the fault is played before the turn */
    int status;
    uint64_t retry_after_ms; /* 0: no Retry-After field */
    uint64_t wait_ms;        /* delay of REHEARSAL_SLOW */
};

struct rehearsal;
enum { REHEARSAL_BYTES_MAX = 4 << 20, REHEARSAL_TURNS_MAX = 10000 };

/* Parses a script (docs/reference/models.md); the error names the turn. */
int rehearsal_parse(const char *bytes, size_t n, struct rehearsal **ret, struct err *err);
void rehearsal_free(struct rehearsal *r);
void rehearsal_freep(struct rehearsal **r);

/* The part of a request by which a turn is chosen. */
struct rehearsal_ask {
    uint64_t turns;   /* turns of the model so far */
    const char *last; /* the newest tool result, or the last text of the user */
    size_t n;
    bool failed;
};
/* Reads the part of a request by which a turn is chosen, and counts the turns of the model. */
struct rehearsal_ask rehearsal_read(const struct model_request *request);

/* Returns the first turn of the script that matches `ask`; NULL with ERR_NOT_FOUND if none does. */
const struct rehearsal_turn *rehearsal_find(const struct rehearsal *r,
                                            const struct rehearsal_ask *ask, struct err *err);
/* Returns the fault to play now, and counts it; REHEARSAL_FINE once it was played often enough. */
enum rehearsal_fault rehearsal_fault(struct rehearsal *r, const struct rehearsal_turn *turn);

/* The answer points into the turn and `model`. Call ids contain the number of the turn, so they are
 * unique. */
void rehearsal_answer(const struct rehearsal_turn *turn, const struct rehearsal_ask *ask,
                      const char *model, struct model_answer *ret);
