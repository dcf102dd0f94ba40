#include "io/http_out.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * An empty queue frees its buffer if it is larger than KEEP_BYTES, or in http_out_rest() than
 * REST_BYTES.
 */
enum { KEEP_BYTES = 1 << 20, REST_BYTES = 64 << 10 };

struct http_out_fds {
    struct http_out_fds *next;
    uint64_t offset; /* position in the stream of the byte that they are sent with */
    size_t n;
    int fds[HTTP_FDS_MAX];
};

static void fds_pop(struct http_out *o) {
    struct http_out_fds *first = o->fds;
    o->fds = first->next;
    for (size_t i = 0; i < first->n; i++)
        close(first->fds[i]);
    free(first);
}

void http_out_done(struct http_out *o) {
    while (o->fds)
        fds_pop(o);
    free(o->data);
    *o = (struct http_out){0};
}

static bool make_room(struct http_out *o, size_t n) {
    size_t waiting = http_out_pending(o);
    if (n <= o->cap - o->end)
        return true;
    if (waiting + n <= o->cap && o->at >= waiting) {
        memcpy(o->data, o->data + o->at, waiting);
    } else {
        size_t cap = o->cap ? o->cap : 1024;
        while (cap < waiting + n)
            cap *= 2;
        char *data = malloc(cap);
        if (!data)
            return false;
        if (waiting)
            memcpy(data, o->data + o->at, waiting);
        free(o->data);
        o->data = data;
        o->cap = cap;
    }
    o->at = 0;
    o->end = waiting;
    return true;
}

bool http_out_add(struct http_out *o, const void *bytes, size_t n) {
    if (!make_room(o, n))
        return false;
    if (n)
        memcpy(o->data + o->end, bytes, n);
    o->end += n;
    return true;
}

bool http_out_add_fds(struct http_out *o, const int *fds, size_t n) {
    struct http_out_fds **last = &o->fds;
    struct http_out_fds *one = n > HTTP_FDS_MAX ? NULL : calloc(1, sizeof(*one));
    if (!one)
        return false;
    one->offset = o->sent + http_out_pending(o);
    one->n = n;
    memcpy(one->fds, fds, n * sizeof(int));
    while (*last)
        last = &(*last)->next;
    *last = one;
    return true;
}

static void shrink(struct http_out *o, size_t most) {
    if (o->cap <= most || http_out_pending(o))
        return;
    free(o->data);
    o->data = NULL;
    o->at = o->end = o->cap = 0;
}

void http_out_rest(struct http_out *o) {
    shrink(o, REST_BYTES);
}

static void took(struct http_out *o, size_t n) {
    o->sent += n;
    o->at += n;
    if (o->at == o->end)
        o->at = o->end = 0;
    shrink(o, KEEP_BYTES);
}

static ssize_t send_message(int sock, struct iovec *iov, size_t count,
                            const struct http_out_fds *fds) {
    char control[CMSG_SPACE(HTTP_FDS_MAX * sizeof(int))] = {0};
    struct msghdr m = {.msg_iov = iov, .msg_iovlen = count};
    if (fds) {
        m.msg_control = control;
        m.msg_controllen = CMSG_SPACE(fds->n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(fds->n * sizeof(int));
        memcpy(CMSG_DATA(c), fds->fds, fds->n * sizeof(int));
    }
    ssize_t n;
    do
        n = sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

/* Sends up to the byte that the next descriptors are sent with. 1: call again. */
static int send_with_fds(struct http_out *o, int sock) {
    struct http_out_fds *mine = o->fds->offset == o->sent ? o->fds : NULL;
    struct http_out_fds *next = mine ? mine->next : o->fds;
    struct iovec iov = {o->data + o->at, http_out_pending(o)};
    if (next && next->offset - o->sent < iov.iov_len)
        iov.iov_len = (size_t)(next->offset - o->sent);
    ssize_t n = send_message(sock, &iov, 1, mine);
    if (n < 0)
        return n == -EAGAIN ? 0 : (int)n;
    if (mine)
        fds_pop(o);
    took(o, (size_t)n);
    return (size_t)n == iov.iov_len && http_out_pending(o);
}

/*
 * Sends the queue and `more` with one system call. Removes the sent bytes from the front of `more`.
 */
static int send_plain(struct http_out *o, int sock, struct iovec *more, int count) {
    struct iovec iov[1 + HTTP_OUT_IOV_MAX];
    size_t parts = 0, queued = http_out_pending(o);
    if (queued)
        iov[parts++] = (struct iovec){o->data + o->at, queued};
    for (int i = 0; i < count; i++)
        iov[parts++] = more[i];
    ssize_t n = send_message(sock, iov, parts, NULL);
    if (n < 0)
        return n == -EAGAIN ? 0 : (int)n;
    size_t left = (size_t)n < queued ? 0 : (size_t)n - queued;
    o->sent += left;
    if (queued)
        took(o, (size_t)n - left);
    for (int i = 0; i < count; i++) {
        size_t cut = left < more[i].iov_len ? left : more[i].iov_len;
        more[i].iov_base = (char *)more[i].iov_base + cut;
        more[i].iov_len -= cut;
        left -= cut;
    }
    return 0;
}

int http_out_send(struct http_out *o, int sock, const struct iovec *more, int count) {
    struct iovec rest[HTTP_OUT_IOV_MAX];
    size_t bytes = 0;
    int r = 0;
    for (int i = 0; i < count; i++) {
        rest[i] = more[i];
        bytes += more[i].iov_len;
    }
    if (o->fds) {
        do
            r = send_with_fds(o, sock);
        while (r > 0 && o->fds);
    }
    if (r >= 0 && !o->fds && http_out_pending(o) + bytes)
        r = send_plain(o, sock, rest, count);
    for (int i = 0; r >= 0 && i < count; i++)
        if (!http_out_add(o, rest[i].iov_base, rest[i].iov_len))
            r = -ENOMEM;
    return r < 0 ? r : 0;
}
