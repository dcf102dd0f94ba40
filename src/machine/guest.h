/*
 * The daemon's conversation with one guest: requests and commands over a guest_link, on the loop.
 *
 * A request is a frame with a tag and has one answer. A command has a `struct guest_command` that
 * is told what happens to it, until guest_forget(). When the connection breaks, everything pending
 * is answered with `gone` or `unknown`, then on_gone is called. What a guest says is hostile:
 * frames that make no sense close the connection, numbers are checked by whoever uses them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/msg.h"
#include "io/loop.h"

struct guest;

/* frame NULL: err says why. The payload lives only during the call. */
typedef void guest_reply_fn(void *arg, const struct frame *frame, const struct err *err);

/* Takes the connected socket. */
struct guest *guest_open(struct loop *loop, int sock, void (*on_gone)(void *arg), void *arg);
void guest_free(struct guest *g);
uint64_t guest_incarnation(const struct guest *g); /* 0 before its HELLO */
uint32_t guest_features(const struct guest *g);

/* Sends one request; head.tag is chosen here. Descriptors stay the caller's. */
void guest_request(struct guest *g, struct frame_head head, const void *msg, const int *fds,
                   uint32_t nfds, guest_reply_fn *done, void *arg);

/* The same for a request whose answer carries one descriptor, which becomes the receiver's; -1: none. */
typedef void guest_reply_fd_fn(void *arg, const struct frame *frame, int fd, const struct err *err);
void guest_request_fd(struct guest *g, struct frame_head head, const void *msg,
                      guest_reply_fd_fn *done, void *arg);

/* One frame that has no answer (MSG_STDIN, MSG_CREDIT, MSG_EXIT_ACK, MSG_SIGNAL without tag ...). */
int guest_tell(struct guest *g, struct frame_head head, const void *msg, struct err *err);

/* Bytes queued and not yet taken by the socket: a sender of input stops above its own mark. */
size_t guest_backlog(const struct guest *g);

/* One command as the host follows it. Owned by the caller; any callback may be NULL. */
struct guest_command {
    uint32_t id; /* unique in this machine, chosen by the host */
    void *arg;
    void (*started)(void *arg, const struct msg_started *m);
    void (*failed)(void *arg, const struct msg_exec_failed *m); /* it never began */
    void (*refused)(void *arg, const struct err *err);          /* nor this */
    void (*grew)(void *arg);                                    /* its log has more */
    void (*data)(void *arg, unsigned stream, uint64_t offset, const uint8_t *p, uint32_t n,
                 bool eof);                                     /* pipes that travel in frames */
    void (*credit)(void *arg, uint64_t consumed);               /* of its standard input */
    void (*exited)(void *arg, const struct msg_exit *m);        /* not yet acknowledged */
    void (*lost)(void *arg, const struct err *err);             /* the connection broke */
};

/* EXEC: from now on the callbacks come. */
void guest_exec(struct guest *g, struct guest_command *c, const struct msg_exec *exec,
                const int *fds, uint32_t nfds);
/* ATTACH to one that another connection started. */
void guest_attach(struct guest *g, struct guest_command *c, const struct msg_attach *attach);
/* No more callbacks for it; with acknowledge the guest may forget it too. */
void guest_forget(struct guest *g, struct guest_command *c, bool acknowledge);
