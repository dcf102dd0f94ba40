#include "io/link_port.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/wire/port.h"

enum { WIRE_BYTES = 64 << 10 };

struct link_port {
    struct port port;
    size_t start, end; /* packets in `out` that wait to be sent */
    uint8_t out[WIRE_BYTES], in[WIRE_BYTES];
    uint8_t packet[PORT_PACKET_MAX];
};

struct link_port *link_port_new(void) {
    uint64_t nonce;
    /* Not calloc: the pages of the buffers should stay unused until they are needed. */
    struct link_port *p = xmalloc(sizeof(*p));
    p->start = p->end = 0;
    if (getrandom(&nonce, sizeof(nonce), 0) != sizeof(nonce))
        abort(); /* cannot fail after the system has started */
    port_init(&p->port, true, p->in, sizeof(p->in), p->packet);
    port_connect(&p->port, nonce);
    return p;
}

void link_port_free(struct link_port *p) {
    free(p);
}

size_t link_port_backlog(const struct link_port *p) {
    return p->end - p->start + port_owes(&p->port);
}

/* Sends packets that are ready. 1: all were sent; 0: the socket is full. */
static int link_port_flush(struct link_port *p, int sock, struct err *err) {
    while (p->start < p->end) {
        ssize_t n = send(sock, p->out + p->start, p->end - p->start, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? 0 : err_sys(err, "cannot send to the guest");
        p->start += (size_t)n;
    }
    p->start = p->end = 0;
    return 1;
}

ssize_t link_port_send(struct link_port *p, int sock, const void *frames, size_t n,
                       struct err *err) {
    const uint8_t *at = frames;
    for (;;) {
        int sent = link_port_flush(p, sock, err);
        if (sent < 0)
            return -1;
        if (sent == 0)
            break;
        p->end = port_send(&p->port, &at, &n, p->out, sizeof(p->out));
        if (p->end == 0)
            break;
    }
    return at - (const uint8_t *)frames;
}

ssize_t link_port_receive(struct link_port *p, int sock, int flags) {
    uint8_t *to;
    size_t room = port_space(&p->port, &to);
    ssize_t n = recv(sock, to, room, flags);
    if (n > 0)
        port_fed(&p->port, (size_t)n);
    return n;
}

int link_port_next(struct link_port *p, struct frame *ret, struct err *err) {
    for (;;) {
        switch (port_next(&p->port, ret)) {
        case PORT_MORE:
            return 0;
        case PORT_FRAME:
            return 1;
        case PORT_BEGIN:
            break;
        case PORT_LOST:
            return err_set(err, ERR_GONE,
                           "the guest has started again, or its serial port lost bytes");
        }
    }
}
