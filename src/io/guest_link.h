/*
 * The host's end of a connection to a guest (protocol: base/wire/msg.h).
 *
 * A link is used in one of two ways: blocking (guest_link_run, guest_link_call), or from a loop
 * of the caller that polls guest_link_fd() for guest_link_events() and then calls
 * guest_link_flush() and guest_link_next(). HELLO travels with the first request,
 * so it costs no round trip of its own. A link must not be used by two threads at once.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/wire/msg.h"

struct guest_link;

/* Takes over a connected stream socket. */
struct guest_link *guest_link_adopt(int sock);

/*
 * Takes over a connected stream socket that leads to a serial port of the guest, such as QEMU's.
 * It cannot pass descriptors: sending some fails with `unsupported`.
 */
struct guest_link *guest_link_adopt_port(int sock);

/* Connects to the guest's listening socket. NULL with *err. */
struct guest_link *guest_link_connect(const char *path, struct err *err);
void guest_link_free(struct guest_link *link);
void guest_link_freep(struct guest_link **link);

/* Ends the connection, so that the guest can take another one. The link cannot be used after. */
void guest_link_hang_up(struct guest_link *link);

int guest_link_fd(const struct guest_link *link);

/* POLLIN, and POLLOUT while bytes wait to be sent. */
short guest_link_events(const struct guest_link *link);

/* enum msg_feature of the guest; 0 before its HELLO was received. */
uint32_t guest_link_features(const struct guest_link *link);
uint64_t guest_link_incarnation(const struct guest_link *link);

/*
 * Queues one frame and sends as much as the socket takes; msg as in msg_encode(). Never waits:
 * descriptors that the socket does not take now are duplicated and sent later; the caller still
 * owns its own. Fails with `limit` if 4 MiB or descriptors of many frames are waiting: stop sending
 * and poll.
 */
int guest_link_send(struct guest_link *link, const struct frame_head *head, const void *msg,
                    const int *fds, uint32_t nfds, struct err *err);
int guest_link_flush(struct guest_link *link, struct err *err);

/* Queues one frame without sending it: it is sent with the next one, or by guest_link_flush(). */
int guest_link_queue(struct guest_link *link, const struct frame_head *head, const void *msg,
                     struct err *err);

/* Bytes that wait to be sent. */
size_t guest_link_backlog(const struct guest_link *link);

/*
 * The next frame, without waiting. 1: *ret; 0: none yet; -1: broken or closed (`gone`). Its payload
 * is valid until the next call. HELLO is handled here and not returned.
 */
int guest_link_next(struct guest_link *link, struct frame *ret, struct err *err);

/*
 * The two parts of guest_link_next(), for a loop whose socket is readable: guest_link_receive()
 * receives once without waiting (1: bytes came, 0: none, -1); then call guest_link_received() for
 * each frame until it returns 0.
 */
int guest_link_receive(struct guest_link *link, struct err *err);
int guest_link_received(struct guest_link *link, struct frame *ret, struct err *err);

/* As guest_link_next(), but waits; timeout_ms < 0: without a limit. 0 only after the timeout. */
int guest_link_wait(struct guest_link *link, int timeout_ms, struct frame *ret, struct err *err);

/*
 * Gives the caller the descriptors that came with a frame, such as the OK to MSG_LOG_OPEN. Returns
 * their number, up to max. Descriptors that are not taken are closed before the next frame.
 */
uint32_t guest_link_take_fds(struct guest_link *link, const struct frame *frame, int *ret,
                             uint32_t max);

/* Fills *err from an ERROR frame; returns -1. */
int guest_link_error(const struct frame *frame, struct err *err);

/*
 * Receives the frames that a blocking call does not wait for. Without such a function, these frames
 * are dropped.
 */
typedef void guest_frame_fn(void *arg, const struct frame *frame);
void guest_link_on_frame(struct guest_link *link, guest_frame_fn *fn, void *arg);

/*
 * Sends a request and waits for its reply, which is in *ret unless it is ERROR (then -1 and *err).
 * The function sets head.tag, the number that the reply repeats.
 */
int guest_link_call(struct guest_link *link, struct frame_head head, const void *msg,
                    struct frame *ret, struct err *err);

/* How a command ended, or why it did not start. */
struct guest_result {
    bool never_began;
    struct msg_exec_failed why;
    struct msg_exit exit;
};

/*
 * Runs one command to its end with the given descriptors (or MSG_STDIO_NULL) and acknowledges it.
 * -1 only if the outcome is unknown or the request was refused.
 */
int guest_link_run(struct guest_link *link, uint32_t id, const struct msg_exec *exec,
                   const int *fds, uint32_t nfds, struct guest_result *ret, struct err *err);

/*
 * The exit status a shell would show: 127 (program not found), 126 (not executable), 125 (not
 * started), 124 (timeout), 128 + signal, or that of the command.
 */
int guest_result_status(const struct guest_result *result);

/* Queue one frame: input for a command, or how much of its output was consumed. */
int guest_link_stdin(struct guest_link *link, uint32_t id, uint64_t offset, const void *bytes,
                     uint32_t n, bool eof, struct err *err);
int guest_link_credit(struct guest_link *link, uint32_t id, uint8_t stream, uint64_t consumed,
                      struct err *err);
int guest_link_ack(struct guest_link *link, uint32_t id, struct err *err);
