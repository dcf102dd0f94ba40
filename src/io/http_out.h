/*
 * What waits to be sent on a nonblocking socket: bytes, and descriptors that go with one of them.
 *
 * A send gathers everything into one system call; only what the kernel does not take is copied.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct http_out_fds;

struct http_out {
    char *data;
    size_t at, end, cap;      /* waiting: data[at, end) */
    uint64_t sent;            /* bytes, ever */
    struct http_out_fds *fds; /* in the order of their offsets */
};

enum { HTTP_OUT_FDS_MAX = 8, HTTP_OUT_IOV_MAX = 4 };

void http_out_done(struct http_out *o);
/* Nothing will be sent for a while: memory beyond the usual is given back. */
void http_out_rest(struct http_out *o);

static inline size_t http_out_pending(const struct http_out *o) {
    return o->end - o->at;
}

/* Queues without sending. False: no memory; the stream is then broken. */
bool http_out_add(struct http_out *o, const void *bytes, size_t n)
    __attribute__((warn_unused_result));

/* These go with the next byte that is queued, and are closed once sent. */
bool http_out_add_fds(struct http_out *o, const int *fds, size_t n)
    __attribute__((warn_unused_result));

/*
 * Sends the queue and then `more` (up to HTTP_OUT_IOV_MAX parts), as far as the socket takes it;
 * the rest is queued. 0, or -errno when the stream is broken.
 */
int http_out_send(struct http_out *o, int sock, const struct iovec *more, int count);
