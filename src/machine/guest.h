/*
 * The daemon's connection to one guest: requests and commands over a guest_link, on the loop.
 *
 * A request is a frame with a tag and gets one reply. A command has a `struct guest_command` that
 * receives its events until guest_forget(). When the connection breaks, pending requests fail with
 * `gone` or `unknown`, then on_gone is called. Guests are hostile: invalid frames close the
 * connection, and users of numbers must check them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/wire/msg.h"
#include "io/loop.h"

struct guest;

/* frame NULL: err says why. The payload lives only during the call. */
typedef void guest_reply_fn(void *arg, const struct frame *frame, const struct err *err);

/*
 * Takes the connected socket. on_gone comes once, when the connection is broken; then every call is
 * answered with `gone`. NULL with *err (the socket is closed).
 */
struct guest *guest_open(struct loop *loop, int sock, void (*on_gone)(void *arg), void *arg,
                         struct err *err);
/* May be called from any callback. What is pending is never answered; commands are let go of. */
void guest_free(struct guest *g);
const struct err *guest_why_gone(const struct guest *g); /* NULL while it is connected */
bool guest_is_asked(const struct guest *g);              /* a request is not answered yet */
uint64_t guest_incarnation(const struct guest *g);       /* 0 before its HELLO */
uint32_t guest_features(const struct guest *g);

/*
 * Sends one request; head.tag is chosen here. Descriptors stay the caller's. When the connection
 * breaks, a request that only looks is answered with `gone`, one that changes with `unknown`.
 */
void guest_request(struct guest *g, struct frame_head head, const void *msg, const int *fds,
                   uint32_t nfds, guest_reply_fn *done, void *arg);

/* Within a guest_reply_fn: the descriptors that came with the frame, the caller's now; how many. */
uint32_t guest_take_fds(struct guest *g, const struct frame *frame, int *ret, uint32_t max);

/* One frame that has no answer (MSG_STDIN, MSG_CREDIT, MSG_EXIT_ACK, MSG_SIGNAL without tag ...).
 */
int guest_tell(struct guest *g, struct frame_head head, const void *msg, struct err *err);

/* Bytes queued and not yet taken by the socket: a sender of input stops above its own mark. */
size_t guest_backlog(const struct guest *g);

/*
 * One command as the host follows it. Owned by the caller; any callback may be NULL. After refused,
 * failed or lost it is forgotten already.
 */
struct guest_command {
    uint32_t id; /* unique in this machine, chosen by the host, not 0 */
    void *arg;
    void (*started)(void *arg, const struct msg_started *m);
    void (*failed)(void *arg, const struct msg_exec_failed *m); /* it never began */
    void (*refused)(void *arg, const struct err *err);          /* nor this */
    /* Answers guest_log_wait(); m NULL: the guest has no log for it. */
    void (*grew)(void *arg, const struct msg_log *m);
    void (*data)(void *arg, unsigned stream, uint64_t offset, const uint8_t *p, uint32_t n,
                 bool eof);                              /* pipes that travel in frames */
    void (*credit)(void *arg, uint64_t consumed);        /* of its standard input */
    void (*exited)(void *arg, const struct msg_exit *m); /* once; not yet acknowledged */
    void (*lost)(void *arg, const struct err *err);      /* the connection broke */
    struct guest_command *next;                          /* these are the guest's */
    struct guest *in;
    uint32_t awaits; /* the tag of its EXEC or ATTACH, until that is answered */
    uint32_t log_waits;
    bool has_exited;
};

/* EXEC: from now on the callbacks come. */
void guest_exec(struct guest *g, struct guest_command *c, const struct msg_exec *exec,
                const int *fds, uint32_t nfds);
/* ATTACH to one that another connection started. */
void guest_attach(struct guest *g, struct guest_command *c, const struct msg_attach *attach);
bool guest_follows(struct guest *g, uint32_t id); /* a command that somebody here listens to */
/* For one with MSG_EXEC_LOG: `grew` comes, once, when its log has more than this. */
void guest_log_wait(struct guest *g, struct guest_command *c, const struct msg_log *seen);
/*
 * No more callbacks for it; with acknowledge the guest may forget it too. That travels with the
 * next message or a few milliseconds later, so that a command costs one send and one receive.
 */
void guest_forget(struct guest *g, struct guest_command *c, bool acknowledge);

/* A watched path (MSG_WATCH). Owned by the caller; after ended it is forgotten already. */
struct guest_watch {
    uint32_t id; /* chosen by the host, not 0 */
    void *arg;
    void (*ready)(void *arg);                            /* from now on events come */
    void (*event)(void *arg, const struct msg_event *m); /* IN_Q_OVERFLOW: some were lost */
    void (*ended)(void *arg, const struct err *err);     /* refused, or the connection broke */
    struct guest_watch *next;                            /* these are the guest's */
    bool awaits;                                         /* its answer */
};
void guest_watch(struct guest *g, struct guest_watch *w, const struct msg_path *path);
void guest_unwatch(struct guest *g, struct guest_watch *w);
