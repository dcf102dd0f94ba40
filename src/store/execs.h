/*
 * Rows of commands. If the outcome of a command was not observed, its state is EXEC_UNKNOWN and
 * never means success.
 *
 * store/machines.h says who owns the strings of a row.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/exec_end.h"
#include "base/sha256.h"
#include "store/db.h"

enum exec_state {
    /* recorded; the guest (process 1 of the machine) may not have received the command */
    EXEC_STARTING = 1,
    EXEC_RUNNING,
    EXEC_EXITED,
    EXEC_UNKNOWN, /* the machine ended before the outcome was observed */
    EXEC_FAILED,  /* the command never ran */
    EXEC_STATE_LAST = EXEC_FAILED,
};

const char *exec_state_name(enum exec_state state);
int exec_state_parse(const char *name, enum exec_state *ret, struct err *err);

enum exec_flag {
    EXEC_PTY = 1,
    EXEC_BACKGROUND = 2,
    EXEC_SHELL = 4,    /* argv came as one shell string */
    EXEC_STDIN = 8,    /* stdin of the command is kept open for data from the API */
    EXEC_LAZY = 16,    /* does not keep its machine from being idle */
    EXEC_NO_STEP = 32, /* part of another action, such as a review: lists leave it out */
};

enum { STORE_STORED_SIZE = 96 };

struct exec_row {
    char id[ID_SIZE]; /* "x-..." */
    char machine[ID_SIZE];
    char owner[STORE_NAME_SIZE];
    uint32_t number; /* number of the command in its machine; 0: store_exec_add() assigns one */
    uint32_t flags;  /* enum exec_flag */
    enum exec_state state;
    uint32_t exit_code; /* exit status of EXEC_EXITED if signal is 0 */
    uint32_t signal;
    /* a word of exec_end_word(); a sentence if the state is FAILED or UNKNOWN */
    char reason[STORE_REASON_SIZE];
    int64_t created_ms;
    int64_t started_ms;
    int64_t ended_ms;
    uint64_t timeout_ms;
    uint64_t user_us;
    uint64_t system_us;
    uint64_t wall_us;
    uint64_t max_rss_kb;
    uint64_t out_bytes; /* size of all output, even if not all of it is kept */
    uint64_t err_bytes;
    uint32_t pid;  /* in the machine; 0: not reported, as for commands in the foreground */
    uint64_t fuel; /* used in a cell machine, as its worker counted; 0 in a box */
    char user[STORE_NAME_SIZE];
    char out_log[32];
    char err_log[32];
    char key[STORE_KEY_SIZE];
    uint8_t request_hash[SHA256_BYTES];
    char name[STORE_NAME_SIZE];     /* unique among running commands of a machine; empty: none */
    char stored[STORE_STORED_SIZE]; /* see exec/stored.h of the service; empty: it was never stored
                                     */
    char *argv;                     /* one JSON array */
    char *cwd;                      /* working directory; NULL: the default */
};

struct exec_list {
    struct exec_row *rows;
    size_t count;
};

struct exec_filter {
    const char *owner;
    const char *machine;
    unsigned states;  /* a bit 1 << state for each wanted state; 0: all */
    uint32_t without; /* leave out commands with one of these flags */
    uint32_t before;  /* list commands with a lower number; 0: start with the newest */
    size_t limit;
};

/*
 * Commands of users have numbers below this one; the daemon's own tools use the numbers from here
 * on.
 */
#define EXEC_NUMBERS_END 0x80000000u

void exec_row_done(struct exec_row *row);
/* Returns how the command ended; EXEC_END_NONE: it has not ended. */
enum exec_end exec_row_end(const struct exec_row *row);
/* Records that the command ran and how it ended. `end` must have an exec_end_word(). */
void exec_row_set_end(struct exec_row *row, enum exec_end end);
void exec_list_done(struct exec_list *list);

/* Returns the highest command number of this machine; 0: no commands. */
int store_exec_last(struct store *s, const char *machine, uint32_t *ret, struct err *err);

/*
 * Adds a command and fills row->number. Idempotency keys work as in store_machine_add(), but per
 * owner and machine.
 */
int store_exec_add(struct store *s, struct exec_row *row, char ret_existing[ID_SIZE],
                   struct err *err);
int store_exec_get(struct store *s, const char *id, struct exec_row *ret, struct err *err);
int store_exec_by_number(struct store *s, const char *machine, uint32_t number,
                         struct exec_row *ret, struct err *err);
/* Returns the newest command with this process id. */
int store_exec_by_pid(struct store *s, const char *machine, uint32_t pid, struct exec_row *ret,
                      struct err *err);
int store_exec_list(struct store *s, const struct exec_filter *filter, struct exec_list *ret,
                    struct err *err);
int store_exec_started(struct store *s, const char *id, int64_t started_ms, uint32_t pid,
                       struct err *err);
/* Writes state, exit code, signal, reason, times, usage and bytes of the command row->id. */
int store_exec_finish(struct store *s, const struct exec_row *row, struct err *err);
/* Deletes the oldest ended commands beyond the newest `keep`; at most `piece` per call. */
int store_exec_trim(struct store *s, const char *machine, size_t keep, size_t piece,
                    struct err *err);
/* Writes row->stored of a command without an outcome. */
int store_exec_store(struct store *s, const char *id, const char *stored, struct err *err);
/* Sets all commands of a machine without an outcome to EXEC_UNKNOWN. */
int store_exec_lose(struct store *s, const char *machine, int64_t now_ms, const char *reason,
                    size_t *ret_count, struct err *err);
