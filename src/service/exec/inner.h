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

enum { UNDUMPED_MAX = 64, DUMP_FILE_SIZE = 128 };

/* Part of struct service. */
struct service_execs {
    struct map by_id;            /* id -> struct exec, of live machines */
    struct map loads;            /* owner -> number of commands */
    unsigned keep_jobs;          /* number of logs that are being saved */
    struct outputs *outputs;     /* the cleanup of kept output in progress, or NULL */
    uint64_t outputs_again_ms;   /* time of the next cleanup */
    uint32_t tool_ids;           /* id of the last tool */
    struct outlog_fd spare_log;  /* log of the next command, made in advance */
    struct loop_call spare_call; /* makes spare_log */
    size_t programs;             /* running programs beside machines (programs.h) */
    bool dumping;                /* a dump is being made (dumps.h) */
    int dump_stop;               /* readable: the worker that makes it is killed */
    /* the last dumps that could not be made: they are not tried again */
    char undumped[UNDUMPED_MAX][DUMP_FILE_SIZE];
    size_t undumped_at;
};

/* Part of struct live. */
struct live_execs {
    struct exec *first; /* commands that run, or whose outcome or output is not saved yet */
    uint32_t running;   /* commands, tools and programs */
    uint32_t counted;   /* running, or with open streams; see exec_count() */
    uint64_t oom_kills; /* out-of-memory kills that were already reported */
    struct asks *asks;  /* sockets of commands in a cell machine */
};

/* How far the outcome of a command is saved. The value only increases. */
enum exec_phase {
    EXEC_OPEN,    /* no outcome */
    EXEC_DECIDED, /* outcome is in exec.outcome; later messages of the guest do not change it */
    EXEC_WRITING, /* outcome is being committed */
    EXEC_OVER,    /* outcome is committed, and in exec.row */
};

/* The copy of a log that the guest keeps itself: mirror.c. */
struct exec_mirror {
    struct outlog_writer to; /* our log */
    struct msg_log goal;     /* what the guest's log has */
    int stream;
    bool has_begun, is_copying;
    bool has_exit; /* the command has ended: `exit` counts once its output is here */
    struct msg_exit exit;
};

struct exec {
    struct service *service;
    struct live *live;       /* NULL: the machine has ended */
    struct exec_row row;     /* as saved in the store */
    struct exec_row outcome; /* the decided row, not saved yet; shares its texts with `row` */
    struct caller who;
    uint64_t intent;
    uint32_t refs;
    enum exec_phase phase;
    bool runs;    /* counted in live_execs.running */
    bool listed;  /* in the list of its machine */
    bool sent;    /* the guest knows the command and must be told to forget it */
    bool keeping; /* a worker saves the log for the last time */
    bool copying; /* a worker saves the log while the command runs */
    bool lost;    /* its machine has ended */
    bool counted; /* counts for the limits of machine and owner */
    unsigned keep_tries;
    uint64_t keep_again_ms;
    struct outlog_kept kept_so_far;
    bool waiting; /* waits for its log to grow */
    struct exec_mirror mirror;
    struct msg_log told;    /* what its log had when the followers were notified last */
    bool awaits_reader;     /* it waits for the first follower that needs all output */
    uint64_t reader_due_ms; /* until then; 0: as long as it takes */
    uint64_t pace[2]; /* bytes consumed that the guest was told; UINT64_MAX: it does not wait */
    bool copied;      /* output goes to the log and to pipes of the caller (MSG_EXEC_COPY) */
    bool storing;     /* its worker was asked to store it: no input is sent */
    bool signalled;   /* since it was asked */
    bool is_stored;   /* it has no process that goes on: exec/stored.h */
    bool resuming;    /* its new worker was started, and waits */
    unsigned tries;   /* to resume it */
    struct loop_timer *again;
    uint64_t time_left_ms; /* time until its timeout when it was stored; 0: not stored, or none */
    uint64_t resumed_ms;
    uint8_t stdio[3]; /* enum msg_stdio, as it was started */
    int handed[3];    /* pipes of the caller, for a command that may be stored; -1: none */
    bool beside;      /* other processes ran in the machine when the command ended */
    struct guest_command command;
    struct outlog_fd log;
    struct outlog kept; /* output log of a command whose machine has ended */
    int kept_file;
    struct exec *next, **at; /* links of the machine's list of commands */
    struct exec_follower *followers, *walk;
    /* standard input */
    uint64_t stdin_sent, stdin_consumed;
    uint64_t stdin_base; /* what was sent before it was stored */
    bool stdin_ended;
    bool stdin_ends; /* its end was taken, and is sent when the command goes on */
    char *input;     /* inline input, not sent yet */
    size_t input_len, input_at;
    /* caller that waits for the start */
    service_exec_fn *done;
    void *done_arg;
    uint64_t fuel;      /* used in a cell machine; known before its exit */
    int64_t started_ms; /* start time that the guest reported; 0: not yet */
    char program[64];   /* the first word of the command, perhaps truncated */
};

/* ---- exec.c ---- */

struct exec *exec_new(struct service *s);
/* Adds the command to the list of its machine and to the table by id. They hold a reference. */
void exec_link(struct exec *x, struct live *l);
void exec_unlink(struct exec *x);
void exec_tell(struct exec *x); /* Notifies the followers of the command. */
/*
 * A command counts from its start until it and its streams have ended, because its output is in
 * memory of the daemon. ERR_LIMIT: the machine or its owner already runs the maximum.
 */
int exec_may_count(const struct live *l, struct err *err);
void exec_count(struct exec *x);
void exec_uncount(struct exec *x);
int64_t exec_shell_status(const struct exec_row *row);
void exec_row_view(const struct exec_row *row, struct exec_view *ret);

/* ---- exec/outcome.c ---- */

/*
 * Returns the outcome to fill in, a copy of the row; NULL: the command already has one. Then call
 * exec_conclude(), which saves the outcome and notifies everybody after the commit.
 */
struct exec_row *exec_decide(struct exec *x);
void exec_conclude(struct exec *x);
void exec_counts_as_running(struct exec *x);
/* Drops the command once it and its streams have ended. */
void exec_settle(struct exec *x);
bool exec_output_over(const struct exec *x);
/* Answers the caller that waits for the start. */
void exec_start_done(struct exec *x, const struct err *err);

/* The command has no process any more, and no outcome. */
void exec_becomes_stored(struct exec *x);

/* ---- exec/resume.c ---- */

void exec_resume(struct exec *x);
/* The guest has started the worker of a stored command, or refused it. */
void exec_resumed(struct exec *x);
bool exec_resume_refused(struct exec *x, const struct err *why);
/* Ends a stored command as by a signal, or by a kill request. */
void exec_end_stored(struct exec *x, int number, bool is_kill);

/* ---- exec/guest.c ---- */

/* Fills x->command. */
void exec_prepare(struct exec *x);
/* Tells the guest how far the readers are. afresh: a reader came or left, so tell it at once. */
void exec_pace(struct exec *x, bool afresh);
/* Asks the guest to report more output, if a follower or the end of the command needs it. */
void exec_listen(struct exec *x);

/* ---- exec/streams.c ---- */

/*
 * Descriptors that go to the guest with a command: pipes of the caller, the log, the socket, the
 * dump.
 */
struct exec_fds {
    int v[6];
    uint32_t count;
};

/* Makes the log of the next command in advance. */
void exec_make_spare(void *service);
/* Gives the command a new log. */
int exec_make_log(struct exec *x, struct err *err);
/* Sets the streams of a command whose output goes only to its log. */
int exec_streams_own(struct exec *x, const struct exec_request *r, struct msg_exec *exec,
                     struct exec_fds *ret, struct err *err);
/* Sets the streams that field 'stdio' names. fds has the caller's descriptors; the log is added. */
int exec_streams_handed(struct exec *x, const struct live *l, const struct exec_request *r,
                        struct msg_exec *exec, struct exec_fds *fds, struct err *err);

/* ---- exec/verbs.c ---- */

/* Sends as much of the inline input as fits. */
void exec_feed(struct exec *x);

/* mirror.c */
/* True if the guest keeps the log, and ours is a copy. */
bool exec_is_mirrored(const struct exec *x);
/* How many bytes the reader of the output may take before the guest is told. */
uint64_t exec_pace_step(const struct exec *x, int stream);
/* Copies output up to there, and then calls exec_grew(). */
void exec_mirror(struct exec *x, const struct msg_log *goal);
/* Copies all output that the guest has, and then calls exec_exited(). */
void exec_mirror_exit(struct exec *x, const struct msg_exit *exit);
/* The connection was lost: the guest will report the exit again. */
void exec_mirror_stop(struct exec *x);
/* guest.c: the command has ended, and its output up to then is in the log. */
void exec_exited(struct exec *x, const struct msg_exit *m);
/* guest.c: the log has grown. */
void exec_grew(struct exec *x);
