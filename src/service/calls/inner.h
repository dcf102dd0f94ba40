/* What the files of src/service/calls share. No other file includes this header. */
#pragma once

#include "base/buf.h"
#include "service/calls/live.h"
#include "service/state.h"

enum {
    QUESTIONS_MAX = 4, /* open questions of a machine */
    QUESTION_BYTES_MAX = 2000,
    ANSWER_BYTES_MAX = 16000,
    CALLS_LATE_MAX = 16, /* a guest has eight callers; more calls of a hostile one are dropped */
};

/* A question that waits for its owner. */
struct question {
    struct question *next;
    char id[ID_SIZE];
    uint32_t call;
    int64_t since_ms;  /* since 1970 */
    uint64_t until_ms; /* by the clock of the loop */
    bool moves;        /* it asks that the machine becomes a vm */
    char *text;
};

/* Allows `most` calls at once, and one more every `each_ms`. */
struct call_rate {
    uint64_t full_ms; /* when all are allowed again */
};

struct live_calls {
    struct live *live;
    struct question *questions;
    struct call_rate calls, asks;
    uint32_t late[CALLS_LATE_MAX]; /* calls above the rate, answered by the timer */
    size_t late_count;
    struct loop_timer *timer; /* runs while a question or a late call waits */
};

/* One call in progress. */
struct calling {
    struct live *live;
    uint32_t id;
    const char *const *words; /* ended by NULL */
    bool json;
};

void calling_answer(const struct calling *c, uint8_t status, const char *text);
struct live_calls *calls_of(struct live *l);
bool call_rate_take(struct call_rate *r, uint64_t now_ms, uint64_t most, uint64_t each_ms);
void calls_start_timer(struct live_calls *c);

/* questions.c */
void calling_ask(const struct calling *c);
void calling_move(const struct calling *c); /* `carrel move`: asks for a vm */
void questions_tick(struct live_calls *c, uint64_t now_ms);
void questions_drop(struct live_calls *c, uint32_t call); /* the caller has left */
void questions_drop_all(struct live_calls *c);
