/*
 * `carrel do`: its options, the request that starts a run, and the output of several tries
 * (parallel attempts).
 *
 * The daemon does the work: a run continues when the command is interrupted.
 */
#pragma once

#include "cli/new.h"

struct do_options {
    const char *model, *provider, *script, *mode, *menu, *money, *resume, *cancel, *export, *show,
        *check;
    uint64_t turns, tokens, timeout_ms, tries;
    struct option_list check_files;
    struct new_options made; /* options of the machine to create, if none is named */
    bool ask_deviations, verbose, quiet, json, ls, help;
};

enum {
    DO_BODY_MAX = 16 << 20,
    DO_TASK_SIZE = 4096,
    DO_NOT_DONE = 1,
    DO_INTERRUPTED = 2,
    DO_TRIES_MAX = 8,
};

/* Machines made for a task: one, or one for each try. */
struct do_machines {
    char ids[DO_TRIES_MAX][64];
    size_t count;
};
/* Creates machines if an option of a new machine is given. After a failure it deletes them. */
int do_make(const struct do_options *o, struct client *c, struct do_machines *ret, struct err *err);

/* The arguments [MACHINE] TASK. */
struct do_task {
    const char *machine; /* NULL: a new one */
    const char *text;
};
/*
 * Decides what the arguments are. A single one that names a machine is not a task: then asks for
 * the task on a terminal, and keeps it in `typed`.
 */
int do_find_task(const struct do_options *o, struct client *c, char *const words[2], int count,
                 char typed[DO_TASK_SIZE], struct do_task *ret, struct err *err);
bool do_may_ask(void); /* true if somebody can type a task */

/* Writes the body of POST /v1/runs. machine: an existing one, or NULL. */
int do_put_start(struct jot *j, const struct do_options *o, const struct client *c,
                 const char *machine, const struct do_machines *made, const char *task,
                 struct err *err);
void do_put_keys(struct jot *j, const struct client *c);
/* True if an option of a new machine was given. */
bool do_makes(const struct do_options *o);

/* ---- do_show.c: output ---- */

enum { DO_CALLS_MAX = 256 };

/* What is shown of a run. Zero-initialised but for `verbose`. */
struct do_screen {
    bool verbose;
    size_t turn;
    json_t *calls[DO_CALLS_MAX];      /* tool calls of this turn that have no result yet */
    long long begun_ms[DO_CALLS_MAX]; /* when each call was made */
    size_t open;                      /* tool calls in progress */
    uint64_t since_ms;                /* time of the last event */
    bool rests;                       /* waits for the owner, or for its tries */
    bool waits;                       /* the line of do_show_wait() is on the terminal */
};
void do_show_event(struct do_screen *s, const json_t *event);
/* On a terminal, shows what the run waits for, if nothing came for a second. */
void do_show_wait(struct do_screen *s);
/* Prints the command that follows the end of a run. ships: the owner lent something to the machine
 * that can be shipped back. */
void do_show_next(const json_t *event, const char *machine, bool ships);
/* Prints the calls of each tool, as reports and statistics list them. */
void do_show_tools(const json_t *tools);
void do_print_words(const char *text); /* one cell of a table */
void do_screen_done(struct do_screen *s);

/* Prints an event of a run with several tries; false: the event is of another kind. */
bool do_show_try(const json_t *event);
void do_show_tries(const json_t *report);
