/*
 * One end of a connection on the loop: a socket, with TLS on it or without.
 *
 * Reading never blocks and goes on until -EAGAIN; the owner's callback is called when there may be
 * more to read, when what was written has left, or when something broke. What cannot be sent at
 * once is kept: a writer looks at channel_backlog() and stops above its own mark. TLS happens in
 * memory, so that no system call of OpenSSL's is in the way.
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
    bool reading;  /* the owner wants to hear of more */
    bool finished; /* no more will be written: told to the peer once the queue is empty */
    bool broken;
    SSL *ssl;
    BIO *in, *out; /* of ssl, which owns them */
    struct buf queue;
    size_t sent; /* of the queue */
    loop_fn *fn;
    void *arg;
};

/* Takes the descriptor. */
int channel_open(struct channel *c, struct loop *loop, int fd, loop_fn *fn, void *arg,
                 struct err *err);
void channel_close(struct channel *c);
/* The peer sees a reset. */
void channel_reset(struct channel *c);
/* Gives the plain socket away; nothing may be queued. */
int channel_take(struct channel *c);

/* From now on its bytes are TLS's. Takes ssl, in its accept or connect state; early: what was read
 * before. */
void channel_secure(struct channel *c, SSL *ssl, const void *early, size_t n);
/* 1: done. 0: not yet. -1: it failed, *err says why. */
int channel_handshake(struct channel *c, struct err *err);

/* > 0 bytes; 0: the peer has ended; -EAGAIN; another -errno. */
ssize_t channel_read(struct channel *c, void *to, size_t n);
/* False: the channel is broken, or more than CHANNEL_QUEUE_MAX is queued. */
bool channel_write(struct channel *c, const void *bytes, size_t n);
size_t channel_backlog(const struct channel *c);
/* Says that no more will come, after what is queued. */
void channel_finish(struct channel *c);
/* Whether the callback comes when there is something to read. */
void channel_listen(struct channel *c, bool reading);
