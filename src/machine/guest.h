/*
 * The daemon's connection to one guest: requests and commands over a guest_link, on the loop.
 *
 * A request is a frame with a tag (number) and gets one reply, which repeats the tag. A command has
 * a `struct guest_command` that receives its events until guest_forget(). When the connection
 * breaks, pending requests fail with `gone` or `unknown`, then on_gone is called. Guests are
 * hostile: invalid frames close the connection, and users of numbers must check them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/wire/msg.h"
#include "io/loop.h"

struct guest;

/* frame: the reply; NULL: err is the reason. The payload is valid only during the call. */
typedef void guest_reply_fn(void *arg, const struct frame *frame, const struct err *err);

/*
 * Takes ownership of the connected socket. on_gone is called once, when the connection breaks;
 * every later call fails with `gone`. On failure returns NULL and closes the socket.
 */
struct guest *guest_open(struct loop *loop, int sock, void (*on_gone)(void *arg), void *arg,
                         struct err *err);
/*
 * As guest_open(), over a socket of QEMU that leads to a serial port of a vm. Requests with
 * descriptors fail with `unsupported`. on_gone is also called when the guest starts again: then
 * open another one, over the same path of the socket.
 */
struct guest *guest_open_port(struct loop *loop, int sock, void (*on_gone)(void *arg), void *arg,
                              struct err *err);
/* The connection is as broken: whoever waits is told now, but on_gone is not called. */
void guest_cut(struct guest *g, const struct err *why);
/* May be called from any callback. Pending requests get no reply, commands no more callbacks. */
void guest_free(struct guest *g);
/*
 * A program in the machine called `carrel` (MSG_CALL). words: hostile, at most MSG_CALL_MAX bytes;
 * none: the caller of this id has left. Without a function, callers are told to call again.
 */
typedef void guest_call_fn(void *arg, struct guest *g, uint32_t id, const struct msg_bytes *words);
void guest_on_call(struct guest *g, guest_call_fn *fn); /* gets the arg of guest_open() */
/* Answers a call; the text is cut to MSG_CALL_ANSWER_MAX. A caller that has left gets nothing. */
void guest_call_answer(struct guest *g, uint32_t id, uint8_t status, const char *text, size_t n);

const struct err *guest_why_gone(const struct guest *g); /* NULL while connected */
bool guest_is_asked(const struct guest *g);              /* a request is pending */
uint64_t guest_incarnation(const struct guest *g);       /* 0 before the guest sent HELLO */
uint32_t guest_features(const struct guest *g);
/* False: the guest has said that it cannot look up users (MSG_EXEC_NAMED). */
bool guest_has_names(const struct guest *g);
/* True: the guest has said that it runs every command in the cell worker. */
bool guest_is_cell(const struct guest *g);
/* True: the guest is a cell whose worker takes capabilities of programs (MSG_FEATURE_ALLOW). */
bool guest_takes_capabilities(const struct guest *g);
/* True: the guest also passes the socket of a command on (MSG_FEATURE_ASKS). */
bool guest_passes_asks(const struct guest *g);
/* True: its worker also takes a program on standard input (MSG_FEATURE_MODULE). */
bool guest_takes_modules(const struct guest *g);
/* True: the guest also passes a dump of an interpreter on (MSG_FEATURE_DUMP). */
bool guest_passes_dump(const struct guest *g);
/* True: the guest also stores commands in files (MSG_FEATURE_PAUSE). */
bool guest_stores_commands(const struct guest *g);
/* True: the guest makes the logs of commands, and MSG_LOG_READ reads them. */
bool guest_keeps_logs(const struct guest *g);
/* False: an older guest, which closes the connection at MSG_META and its like. */
bool guest_has_meta(const struct guest *g);
/* False: the guest has said that it cannot copy output to descriptors (MSG_EXEC_COPY). */
bool guest_has_copies(const struct guest *g);

/*
 * Sends one request and sets head.tag. The caller still owns the descriptors. When the connection
 * breaks, a read-only request fails with `gone`, one that may change something with `unknown`.
 */
void guest_request(struct guest *g, struct frame_head head, const void *msg, const int *fds,
                   uint32_t nfds, guest_reply_fn *done, void *arg);

/* In a guest_reply_fn: passes the descriptors of the frame to the caller, which owns them then.
 * Returns their number. */
uint32_t guest_take_fds(struct guest *g, const struct frame *frame, int *ret, uint32_t max);

/* Sends a frame without reply (MSG_STDIN, MSG_CREDIT, MSG_EXIT_ACK, MSG_SIGNAL without tag ...). */
int guest_tell(struct guest *g, struct frame_head head, const void *msg, struct err *err);

/* Number of queued bytes that the socket has not taken. A sender of input stops above a limit. */
size_t guest_backlog(const struct guest *g);

/*
 * A command that the host follows, owned by the caller; any callback may be NULL. After `refused`,
 * `failed` or `lost` the guest object has forgotten the command.
 */
struct guest_command {
    uint32_t id; /* unique in this machine, chosen by the host, not 0 */
    void *arg;
    void (*started)(void *arg, const struct msg_started *m);
    void (*failed)(void *arg, const struct msg_exec_failed *m); /* the program did not start */
    void (*refused)(void *arg, const struct err *err);          /* the guest refused the request */
    /* The reply to guest_log_wait(); m NULL: the guest has no log of this command. */
    void (*grew)(void *arg, const struct msg_log *m);
    void (*data)(void *arg, unsigned stream, uint64_t offset, const uint8_t *p, uint32_t n,
                 bool eof);                              /* output that the guest sends in frames */
    void (*credit)(void *arg, uint64_t consumed);        /* consumed: bytes of standard input */
    void (*fuel)(void *arg, uint64_t used);              /* in a cell machine, before `exited` */
    void (*exited)(void *arg, const struct msg_exit *m); /* once; guest_forget() acknowledges it */
    void (*lost)(void *arg, const struct err *err);      /* the connection broke */
    struct guest_command *next;                          /* from here on: used by guest.c */
    struct guest *in;
    uint32_t awaits; /* tag of its EXEC or ATTACH until the reply comes */
    uint32_t log_waits;
    bool has_exited;
};

/* Sends EXEC; from then on the callbacks of c are called. */
void guest_exec(struct guest *g, struct guest_command *c, const struct msg_exec *exec,
                const int *fds, uint32_t nfds);
/* Sends ATTACH, to follow a command that another connection started. */
void guest_attach(struct guest *g, struct guest_command *c, const struct msg_attach *attach);
bool guest_follows(struct guest *g, uint32_t id); /* a caller follows this command */
/* For a command with MSG_EXEC_LOG: calls `grew` once its log is longer than `seen`. */
void guest_log_wait(struct guest *g, struct guest_command *c, const struct msg_log *seen);
/*
 * Stops the callbacks of a command. acknowledge: the guest may forget the command too. That is sent
 * with the next message or a few milliseconds later, so that a command costs one send and one
 * receive.
 */
void guest_forget(struct guest *g, struct guest_command *c, bool acknowledge);

/* A watched path (MSG_WATCH), owned by the caller. After `ended` the guest object forgets it. */
struct guest_watch {
    uint32_t id; /* chosen by the host, not 0 */
    void *arg;
    void (*ready)(void *arg);                            /* events follow from now on */
    void (*event)(void *arg, const struct msg_event *m); /* IN_Q_OVERFLOW: events were lost */
    void (*ended)(void *arg, const struct err *err);     /* the watch was refused or lost */
    struct guest_watch *next;                            /* from here on: used by guest.c */
    bool awaits;                                         /* the reply to MSG_WATCH is pending */
};
void guest_watch(struct guest *g, struct guest_watch *w, const struct msg_path *path);
void guest_unwatch(struct guest *g, struct guest_watch *w);
