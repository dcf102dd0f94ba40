/*
 * The send queue of a nonblocking socket: bytes, and descriptors that are sent with one of them.
 *
 * A send is one system call for all bytes; only bytes that the kernel does not take are copied.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct http_out_fds;

struct http_out {
    char *data;
    size_t at, end, cap;      /* data[at, end) waits to be sent */
    uint64_t sent;            /* number of bytes sent so far */
    struct http_out_fds *fds; /* in the order of their offsets */
};

/* HTTP_FDS_MAX: the largest number of descriptors in a request or a response. */
enum { HTTP_FDS_MAX = 24, HTTP_OUT_IOV_MAX = 4 };

void http_out_done(struct http_out *o);
/* Frees a large empty buffer. Call it when nothing will be sent for a while. */
void http_out_rest(struct http_out *o);

static inline size_t http_out_pending(const struct http_out *o) {
    return o->end - o->at;
}

/* Queues bytes without sending. False: out of memory; the stream is then broken. */
bool http_out_add(struct http_out *o, const void *bytes, size_t n)
    __attribute__((warn_unused_result));

/* Queues descriptors with the next byte that is queued. They are closed once sent. False: out of
 * memory, or more than HTTP_FDS_MAX. */
bool http_out_add_fds(struct http_out *o, const int *fds, size_t n)
    __attribute__((warn_unused_result));

/*
 * Sends the queue and then `more` (up to HTTP_OUT_IOV_MAX parts), as much as the socket takes; the
 * rest is queued. 0, or -errno if the stream is broken.
 */
int http_out_send(struct http_out *o, int sock, const struct iovec *more, int count);
