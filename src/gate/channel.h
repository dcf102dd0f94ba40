/*
 * One end of a connection on the loop: a socket, with or without TLS.
 *
 * Reads never block; read until -EAGAIN. The owner's callback is called when there may be more to
 * read, when queued bytes were sent, or when the connection broke. Bytes that cannot be sent at
 * once are queued: a writer checks channel_backlog() and stops above its own limit. TLS runs on
 * memory BIOs, so OpenSSL makes no system calls.
 */
#pragma once

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "io/loop.h"

enum { CHANNEL_QUEUE_MAX = 4 << 20 };

struct channel {
    struct loop *loop;
    struct loop_watch *watch;
    int fd; /* -1: not open */
    unsigned armed;
    bool reading;  /* the owner wants callbacks for input */
    bool finished; /* no more writes: shut down once the queue is empty */
    bool broken;
    SSL *ssl;
    BIO *in, *out; /* input and output of ssl, which owns them */
    struct buf queue;
    size_t sent; /* number of bytes of the queue that were already sent */
    loop_fn *fn;
    void *arg;
};

/* Takes ownership of fd. */
int channel_open(struct channel *c, struct loop *loop, int fd, loop_fn *fn, void *arg,
                 struct err *err);
void channel_close(struct channel *c);
/* Closes the connection with a reset. */
void channel_reset(struct channel *c);
/* Returns the socket to the caller; the queue must be empty. */
int channel_take(struct channel *c);

/* Starts TLS. Takes ownership of ssl, in accept or connect state; early: bytes already read. */
void channel_secure(struct channel *c, SSL *ssl, const void *early, size_t n);
/* Continues the TLS handshake. 1: done. 0: in progress. -1: failed, see *err. */
int channel_handshake(struct channel *c, struct err *err);

/* Returns the number of bytes read; 0: the peer closed its side; -EAGAIN: no bytes now; another
 * -errno: the connection broke. */
ssize_t channel_read(struct channel *c, void *to, size_t n);
/* Sends or queues the bytes. False: the channel is broken or finished, or its queue is full. */
bool channel_write(struct channel *c, const void *bytes, size_t n);
size_t channel_backlog(const struct channel *c);
/* Shuts down the write side after the queue is sent. */
void channel_finish(struct channel *c);
/* Enables or disables callbacks for input. */
void channel_listen(struct channel *c, bool reading);
