/*
 * Internal state of commands, shared by the files of src/service/exec. Only they include this
 * header; other files call the functions of exec/live.h.
 */
#pragma once

#include "io/outlog_fd.h"
#include "service/exec/exec.h"
#include "service/exec/live.h"
#include "service/state.h"

struct outputs;

/* Part of struct service. */
struct service_execs {
    struct map by_id;            /* id -> struct exec, of living machines */
    struct map loads;            /* owner -> how many of them */
    unsigned keep_jobs;          /* copies of output that are being made */
    struct outputs *outputs;     /* kept output is being looked through */
    uint64_t outputs_again_ms;   /* when to do that again */
    uint32_t tool_ids;           /* of the last tool */
    struct outlog_fd spare_log;  /* of the next command, made while nobody waits */
    struct loop_call spare_call; /* makes it */
    size_t programs;             /* running */
};

/* Part of struct live. */
struct live_execs {
    struct exec *first; /* of those that somebody must still hear of */
    uint32_t running;   /* commands, tools and programs */
    uint32_t counted;   /* of them and those whose streams are open; see exec_count() */
    uint64_t oom_kills; /* that were told of */
};

/* The progress of the outcome of an exec. It only increases. */
enum exec_phase {
    EXEC_OPEN,    /* no outcome */
    EXEC_DECIDED, /* in exec.outcome; later messages of the guest about its end are ignored */
    EXEC_WRITING, /* its commit is under way */
    EXEC_OVER,    /* committed, and in exec.row */
};

struct exec {
    struct service *service;
    struct live *live;       /* NULL: its machine has ended */
    struct exec_row row;     /* as it is written down */
    struct exec_row outcome; /* as it will be, once decided; texts belong to the row */
    struct caller who;
    uint64_t intent;
    uint32_t refs;
    enum exec_phase phase;
    bool runs;    /* counted in its machine's `running` */
    bool listed;  /* among its machine's */
    bool sent;    /* the guest knows it: forget it there too */
    bool keeping; /* a worker copies its log, for the last time */
    bool copying; /* or in between */
    bool lost;    /* its machine has ended */
    bool counted; /* among those that its machine and owner may have at once */
    unsigned keep_tries;
    uint64_t keep_again_ms;
    struct outlog_kept kept_so_far;
    bool waiting;  /* for its log to grow */
    bool paced;    /* the guest waits for what its followers consume */
    uint64_t pace; /* and was told so much */
    bool direct;   /* output goes to descriptors of the caller: there is no log */
    struct guest_command command;
    struct outlog_fd log;
    struct outlog kept; /* after its machine's end */
    int kept_file;
    struct exec *next, **at; /* of its machine */
    struct exec_follower *followers, *walk;
    /* standard input */
    uint64_t stdin_sent, stdin_consumed;
    bool stdin_ended;
    char *input; /* inline, not yet sent */
    size_t input_len, input_at;
    /* who waits for its start */
    service_exec_fn *done;
    void *done_arg;
    int64_t started_ms; /* the guest said so; 0: not yet */
    char program[64];   /* the first word, or its beginning */
};

/* ---- exec.c ---- */

struct exec *exec_new(struct service *s);
/* In its machine's list and in the table by id; holds both. */
void exec_link(struct exec *x, struct live *l);
void exec_unlink(struct exec *x);
void exec_tell(struct exec *x); /* its followers */
/*
 * A command counts from its start until it and its streams have ended: so long its output is in
 * memory that is not its machine's. `limit` when its machine or owner has as many as may be.
 */
int exec_may_count(const struct live *l, struct err *err);
void exec_count(struct exec *x);
void exec_uncount(struct exec *x);
int64_t exec_shell_status(const struct exec_row *row);
void exec_row_view(const struct exec_row *row, struct exec_view *ret);

/* ---- exec/outcome.c ---- */

/*
 * The outcome that it gets, as a copy of the row to be filled; NULL: it has one. Then
 * exec_conclude() writes that down, and tells everybody once it is committed.
 */
struct exec_row *exec_decide(struct exec *x);
void exec_conclude(struct exec *x);
void exec_counts_as_running(struct exec *x);
/* Once it has ended and its streams too, nothing is left to hear. */
void exec_settle(struct exec *x);
/* The log of the next command, made while nobody waits. */
void exec_make_spare(void *service);
bool exec_output_over(const struct exec *x);
/* Whoever waits for its start hears of it. */
void exec_start_done(struct exec *x, const struct err *err);

/* ---- exec/guest.c ---- */

/* Fills x->command. */
void exec_prepare(struct exec *x);
/* Tells the guest how far its readers are: at once when the slowest, or who is there, has changed.
 */
void exec_pace(struct exec *x, bool afresh);
/* Asks to be told of more output, if anybody wants it: a follower, or we at the very end. */
void exec_listen(struct exec *x);

/* ---- exec/verbs.c ---- */

/* Sends of the inline input what fits. */
void exec_feed(struct exec *x);
