/*
 * How a command ended: one value for the daemon, the database, the API and the client.
 *
 * The database and the API hold a state and a reason as text. exec_end_of() is the only place that
 * compares these texts.
 */
#pragma once

#include <stdint.h>

enum exec_end {
    EXEC_END_NONE,    /* the command has not ended */
    EXEC_END_EXIT,    /* the command exited by itself */
    EXEC_END_SIGNAL,  /* a signal ended the command */
    EXEC_END_KILLED,  /* a kill request ended the command */
    EXEC_END_TIMEOUT, /* the command reached its time limit and was killed */
    EXEC_END_MEMORY,  /* the kernel killed the command at the memory limit */
    EXEC_END_FAILED,  /* the command did not start; the reason is a sentence */
    EXEC_END_UNKNOWN, /* nobody saw the end of the command; the reason is a sentence */
    /* Only in a client, about a command that may still run: */
    EXEC_END_UNANSWERED, /* the time limit has passed and the machine did not answer */
    EXEC_END_DETACHED,   /* the client detached from the command */
    EXEC_END_UNHEARD,    /* a signal to the client cannot reach the command now */
    EXEC_END_COUNT,
};

enum { EXEC_STATUS_TIMEOUT = 124 };

/* Returns the word in the API, such as "timeout". NULL: none, or the reason is a sentence. */
const char *exec_end_word(enum exec_end end);

/* Finds the end from the state and the reason of a database row or an API answer; reason may be
 * NULL. */
enum exec_end exec_end_of(const char *state, const char *reason);

/* Returns the exit status that a shell would show; -1: none. */
int64_t exec_end_status(enum exec_end end, uint32_t exit_code, uint32_t signal);
