/*
 * How a command ended: one value for the daemon, the database, the API and the client.
 *
 * The database and the API hold a state and a reason as text. exec_end_of() is the only place that
 * compares these texts.
 */
#pragma once

#include <stdint.h>

enum exec_end {
    EXEC_END_NONE,    /* it has not ended */
    EXEC_END_EXIT,    /* it exited by itself */
    EXEC_END_SIGNAL,  /* a signal ended it */
    EXEC_END_KILLED,  /* a kill request ended it */
    EXEC_END_TIMEOUT, /* its time limit ended it */
    EXEC_END_MEMORY,  /* the kernel killed it at the memory limit */
    EXEC_END_FAILED,  /* it never began; the reason is a sentence */
    EXEC_END_UNKNOWN, /* nobody saw its end; the reason is a sentence */
    /* Only in a client, about a command that may still run: */
    EXEC_END_UNANSWERED, /* its time limit has passed and the machine did not answer */
    EXEC_END_DETACHED,   /* the client left it */
    EXEC_END_COUNT,
};

enum { EXEC_STATUS_TIMEOUT = 124 };

/* The word of the API, such as "timeout". NULL: the end has none, or its reason is a sentence. */
const char *exec_end_word(enum exec_end end);

/* From the state and the reason of a row or an answer; reason may be NULL. */
enum exec_end exec_end_of(const char *state, const char *reason);

/* The exit status that a shell shows; -1: there is none. */
int64_t exec_end_status(enum exec_end end, uint32_t exit_code, uint32_t signal);
