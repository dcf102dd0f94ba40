/*
 * The host's end of a connection to a guest (protocol: base/wire/msg.h).
 *
 * Two ways to use one: blocking (guest_link_run, guest_link_call), or from a loop
 * of the caller that polls guest_link_fd() for guest_link_events() and then calls
 * guest_link_flush() and guest_link_next(). HELLO travels with the first request,
 * so nothing ever waits for a round trip of its own. Not for two threads at once.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/wire/msg.h"

struct guest_link;

/* Takes over a connected stream socket. */
struct guest_link *guest_link_adopt(int sock);

/* Connects to the guest's listening socket. NULL with *err. */
struct guest_link *guest_link_connect(const char *path, struct err *err);
void guest_link_free(struct guest_link *link);
void guest_link_freep(struct guest_link **link);

int guest_link_fd(const struct guest_link *link);

/* POLLIN, and POLLOUT while something waits to be sent. */
short guest_link_events(const struct guest_link *link);

/* Enum msg_feature of the guest; 0 before its HELLO has come. */
uint32_t guest_link_features(const struct guest_link *link);
uint64_t guest_link_incarnation(const struct guest_link *link);

/*
 * Queues one frame and sends what the socket takes; msg as in msg_encode(). Never
 * waits: descriptors that the socket does not take now are duplicated and follow
 * later; they stay the caller's. Fails with `limit` when 4 MiB are waiting already,
 * or descriptors of many frames: stop producing and poll.
 */
int guest_link_send(struct guest_link *link, const struct frame_head *head, const void *msg,
                    const int *fds, uint32_t nfds, struct err *err);
int guest_link_flush(struct guest_link *link, struct err *err);

/* The same without sending: the frame leaves with the next one, or with guest_link_flush(). */
int guest_link_queue(struct guest_link *link, const struct frame_head *head, const void *msg,
                     struct err *err);

/* Bytes that wait to be sent. */
size_t guest_link_backlog(const struct guest_link *link);

/*
 * The next frame without waiting: 1, 0 none yet, -1 broken or closed (`gone`).
 * Its payload lives until the next call. HELLO is handled here and not shown.
 */
int guest_link_next(struct guest_link *link, struct frame *ret, struct err *err);

/*
 * The two halves of it, for a loop that was told that there is something: one receive
 * without waiting (1 something came, 0 nothing, -1), then frames until there is none.
 */
int guest_link_receive(struct guest_link *link, struct err *err);
int guest_link_received(struct guest_link *link, struct frame *ret, struct err *err);

/* As guest_link_next(), but waits; timeout_ms < 0: for ever. 0 only when the time is up. */
int guest_link_wait(struct guest_link *link, int timeout_ms, struct frame *ret, struct err *err);

/*
 * Descriptors that came with a frame (MSG_LOG_OPEN's OK), handed over to the caller;
 * returns how many, up to max. Those of a frame that nobody takes are closed before
 * the next one.
 */
uint32_t guest_link_take_fds(struct guest_link *link, const struct frame *frame, int *ret,
                             uint32_t max);

/* Fills *err from an ERROR frame; returns -1. */
int guest_link_error(const struct frame *frame, struct err *err);

/* Frames that are not what a blocking call waits for go here; without it they are dropped. */
typedef void guest_frame_fn(void *arg, const struct frame *frame);
void guest_link_on_frame(struct guest_link *link, guest_frame_fn *fn, void *arg);

/*
 * Sends a request and waits for its reply, which is in *ret unless it was ERROR
 * (then -1 and *err). head->tag is chosen here.
 */
int guest_link_call(struct guest_link *link, struct frame_head head, const void *msg,
                    struct frame *ret, struct err *err);

/* How a command ended, or why it never began. */
struct guest_result {
    bool never_began;
    struct msg_exec_failed why;
    struct msg_exit exit;
};

/*
 * Runs one command to its end with passed descriptors (or NULL stdio) and
 * acknowledges it. -1 only when the outcome is unknown or the request refused.
 */
int guest_link_run(struct guest_link *link, uint32_t id, const struct msg_exec *exec,
                   const int *fds, uint32_t nfds, struct guest_result *ret, struct err *err);

/* The exit status a shell would show: 126, 127, 125, 124 for a timeout, 128 + signal. */
int guest_result_status(const struct guest_result *result);

/* One frame each, queued: input for a command, and how much of its output was consumed. */
int guest_link_stdin(struct guest_link *link, uint32_t id, uint64_t offset, const void *bytes,
                     uint32_t n, bool eof, struct err *err);
int guest_link_credit(struct guest_link *link, uint32_t id, uint8_t stream, uint64_t consumed,
                      struct err *err);
int guest_link_ack(struct guest_link *link, uint32_t id, struct err *err);
