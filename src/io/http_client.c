#include "io/http_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/amount.h"
#include "base/defer.h"

enum { HEAD_BYTES = 16 << 10, IN_BYTES = HEAD_BYTES + (64 << 10), LINE_BYTES = 64 << 10 };

struct http_client {
    struct sockaddr_storage address;
    socklen_t address_len;
    char name[128]; /* name of the server in errors, and in the Host field */
    int sock;
    int timeout_ms;
    bool fresh;       /* no request was sent on this connection yet */
    bool send_failed; /* the server stopped reading; it may have sent an answer */
    bool streaming;   /* a body is being written */
    bool in_body;     /* the body of the answer was not read to its end */
    bool keep;

    struct buf line; /* the head being sent */
    struct http_parser parser;
    struct http_head head;
    struct http_body body;
    int fds[HTTP_CLIENT_FDS_MAX];
    size_t nfds;
    size_t in_head, in_at, in_end; /* in `in`: end of the head, of consumed bytes, of all bytes */
    char in[IN_BYTES];
};

/* The connection */

static struct http_client *client_new(const char *name) {
    struct http_client *c = xmalloc(sizeof(*c));
    memset(c, 0, offsetof(struct http_client, in));
    snprintf(c->name, sizeof(c->name), "%s", name);
    c->sock = -1;
    c->timeout_ms = -1;
    c->line = BUF(LINE_BYTES);
    return c;
}

static void drop_fds(struct http_client *c) {
    for (size_t i = 0; i < c->nfds; i++)
        close(c->fds[i]);
    c->nfds = 0;
}

static void disconnect(struct http_client *c) {
    close_fd(&c->sock);
    c->keep = c->in_body = c->streaming = c->send_failed = false;
    c->in_head = c->in_at = c->in_end = 0;
}

static int reconnect(struct http_client *c, struct err *err) {
    int on = 1;
    disconnect(c);
    c->sock = socket(c->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->sock < 0)
        return err_sys(err, "cannot create a socket");
    if (connect(c->sock, (struct sockaddr *)&c->address, c->address_len) < 0) {
        bool absent = errno == ENOENT || errno == ECONNREFUSED;
        err_sys(err, "cannot connect to '%s'", c->name);
        if (absent && err)
            err->code = ERR_NOT_FOUND;
        return -1;
    }
    if (c->address.ss_family != AF_UNIX)
        setsockopt(c->sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    c->fresh = true;
    return 0;
}

static struct http_client *opened(struct http_client *c, struct err *err) {
    if (reconnect(c, err) == 0)
        return c;
    http_client_free(c);
    return NULL;
}

struct http_client *http_client_unix(const char *path, struct err *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if ((size_t)snprintf(a.sun_path, sizeof(a.sun_path), "%s", path) >= sizeof(a.sun_path)) {
        err_set(err, ERR_INVALID, "socket path '%s' is too long", path);
        return NULL;
    }
    struct http_client *c = client_new(path);
    memcpy(&c->address, &a, sizeof(a));
    c->address_len = sizeof(a);
    return opened(c, err);
}

struct http_client *http_client_tcp(const char *host, uint16_t port, struct err *err) {
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    bool is_v6 = inet_pton(AF_INET6, host, &v6.sin6_addr) == 1;
    const char *number = strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
    if (!is_v6 && inet_pton(AF_INET, number, &v4.sin_addr) != 1) {
        err_set(err, ERR_INVALID, "server '%s' is not a numeric address", host);
        err_remedy(err, "use a numeric address; names are not resolved here");
        return NULL;
    }
    char name[128];
    snprintf(name, sizeof(name), is_v6 ? "[%s]:%u" : "%s:%u", host, port);
    struct http_client *c = client_new(name);
    memcpy(&c->address, is_v6 ? (void *)&v6 : (void *)&v4, is_v6 ? sizeof(v6) : sizeof(v4));
    c->address_len = is_v6 ? sizeof(v6) : sizeof(v4);
    return opened(c, err);
}

void http_client_free(struct http_client *c) {
    if (!c)
        return;
    drop_fds(c);
    close_fd(&c->sock);
    buf_done(&c->line);
    free(c);
}

void http_client_freep(struct http_client **c) {
    http_client_free(*c);
}

void http_client_set_timeout(struct http_client *c, int timeout_ms) {
    c->timeout_ms = timeout_ms;
}

int http_client_fd(const struct http_client *c) {
    return c->sock;
}

bool http_client_has_more(const struct http_client *c) {
    return c->in_at < c->in_end;
}

/* Waiting, sending, receiving */

static int http_client_wait_for(struct http_client *c, short events, int timeout_ms,
                                struct err *err) {
    struct pollfd p = {.fd = c->sock, .events = events};
    if (timeout_ms < 0)
        return 0; /* the system call itself blocks */
    int r;
    do
        r = poll(&p, 1, timeout_ms);
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return err_sys(err, "cannot wait for the Carrel daemon at '%s'", c->name);
    return r ? 0
             : err_set(err, ERR_TIMEOUT, "the Carrel daemon at '%s' did not answer in time",
                       c->name);
}

static ssize_t send_once(struct http_client *c, const struct iovec *parts, size_t count,
                         const int *fds, size_t nfds) {
    char control[CMSG_SPACE(HTTP_CLIENT_FDS_MAX * sizeof(int))] = {0};
    struct msghdr m = {.msg_iov = (struct iovec *)parts, .msg_iovlen = count};
    if (nfds) {
        m.msg_control = control;
        m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(nfds * sizeof(int));
        memcpy(CMSG_DATA(h), fds, nfds * sizeof(int));
    }
    return sendmsg(c->sock, &m, MSG_NOSIGNAL | (c->timeout_ms < 0 ? 0 : MSG_DONTWAIT));
}

static void cut_front(struct iovec *parts, size_t count, size_t n) {
    for (size_t i = 0; i < count; i++) {
        size_t cut = n < parts[i].iov_len ? n : parts[i].iov_len;
        parts[i].iov_base = (char *)parts[i].iov_base + cut;
        parts[i].iov_len -= cut;
        n -= cut;
    }
}

/*
 * Sends all parts. If the server stopped reading, sets c->send_failed and returns 0, because the
 * server may have answered.
 */
static int send_all(struct http_client *c, struct iovec *parts, size_t count, const int *fds,
                    size_t nfds, struct err *err) {
    size_t left = 0;
    for (size_t i = 0; i < count; i++)
        left += parts[i].iov_len;
    while (left && !c->send_failed) {
        ssize_t n = send_once(c, parts, count, fds, nfds);
        if (n >= 0) {
            nfds = 0;
            left -= (size_t)n;
            cut_front(parts, count, (size_t)n);
        } else if (errno == EPIPE || errno == ECONNRESET) {
            c->send_failed = true;
        } else if (errno == EAGAIN) {
            if (http_client_wait_for(c, POLLOUT, c->timeout_ms, err) < 0)
                return -1;
        } else if (errno != EINTR) {
            return err_sys(err, "cannot send to server '%s'", c->name);
        }
    }
    return 0;
}

static void keep_fds(struct http_client *c, struct msghdr *m) {
    for (struct cmsghdr *h = CMSG_FIRSTHDR(m); h; h = CMSG_NXTHDR(m, h)) {
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(int));
            if (c->nfds < HTTP_CLIENT_FDS_MAX)
                c->fds[c->nfds++] = fd;
            else
                close(fd);
        }
    }
}

/* Receives more bytes after those in the buffer. Returns their number, 0 at the end, or -1. */
static ssize_t receive(struct http_client *c, int timeout_ms, struct err *err) {
    char control[CMSG_SPACE(HTTP_CLIENT_FDS_MAX * sizeof(int))];
    if (c->in_at == c->in_end)
        c->in_at = c->in_end = c->in_head;
    struct iovec iov = {c->in + c->in_end, IN_BYTES - c->in_end};
    ssize_t n;
    if (http_client_wait_for(c, POLLIN, timeout_ms, err) < 0)
        return -1;
    do {
        struct msghdr m = {.msg_iov = &iov,
                           .msg_iovlen = 1,
                           .msg_control = control,
                           .msg_controllen = sizeof(control)};
        n = recvmsg(c->sock, &m, MSG_CMSG_CLOEXEC);
        if (n > 0)
            keep_fds(c, &m);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno == ECONNRESET)
        return 0;
    if (n < 0)
        return err_sys(err, "cannot read from server '%s'", c->name);
    c->in_end += (size_t)n;
    return n;
}

/* Requests */

/* An idle connection is not usable if it is readable: then the server has closed it. */
static bool is_usable(struct http_client *c) {
    struct pollfd p = {.fd = c->sock, .events = POLLIN};
    if (c->sock < 0 || c->streaming || c->send_failed)
        return false;
    return c->fresh || (c->keep && c->in_at == c->in_end && poll(&p, 1, 0) == 0);
}

static bool put_request(struct http_client *c, const struct http_request *r) {
    struct buf *b = &c->line;
    bool local = c->address.ss_family == AF_UNIX;
    struct http_text host = {local ? "localhost" : c->name, local ? 9 : strlen(c->name)};
    bool has_body = r->n || strcmp(r->method, "POST") == 0 || strcmp(r->method, "PUT") == 0;
    b->len = 0;
    return http_put_request_line(b, (struct http_text){r->method, strlen(r->method)},
                                 (struct http_text){r->target, strlen(r->target)}) &&
           http_put_field(b, HTTP_TEXT("Host"), host) &&
           (r->streamed ? http_put_field(b, HTTP_TEXT("Transfer-Encoding"), HTTP_TEXT("chunked"))
                        : !has_body || http_put_number(b, "Content-Length", r->n)) &&
           (!r->nfds || http_put_number(b, "Carrel-Fds", r->nfds)) &&
           http_put_pairs(b, r->fields) && http_put_end(b);
}

static int skip_rest(struct http_client *c, struct err *err) {
    const char *piece;
    size_t n;
    int r = 0;
    while (c->in_body && (r = http_client_read(c, &piece, &n, err)) > 0)
        ;
    return r;
}

int http_client_send(struct http_client *c, const struct http_request *request, struct err *err) {
    if (request->nfds > HTTP_CLIENT_FDS_MAX || (request->nfds && c->address.ss_family != AF_UNIX))
        return err_set(err, ERR_INVALID,
                       "--dir works only with a daemon on this host, not with server '%s'",
                       c->name);
    if (!put_request(c, request))
        return err_set(err, ERR_INVALID, "'%s %s' is not a valid HTTP request", request->method,
                       request->target);
    if (skip_rest(c, NULL) < 0 || !is_usable(c))
        if (reconnect(c, err) < 0)
            return -1;
    drop_fds(c);
    c->in_head = 0;
    if (c->in_at == c->in_end)
        c->in_at = c->in_end = 0;
    c->fresh = false;
    c->streaming = request->streamed;
    http_parse_begin(&c->parser, HTTP_RESPONSE, &HTTP_LIMITS_DEFAULT, &c->head);
    c->parser.answers_head = strcmp(request->method, "HEAD") == 0;
    struct iovec parts[] = {{c->line.data, c->line.len},
                            {(void *)request->body, request->streamed ? 0 : request->n}};
    return send_all(c, parts, 2, request->fds, request->nfds, err);
}

int http_client_write(struct http_client *c, const void *bytes, size_t n, struct err *err) {
    char line[HTTP_CHUNK_LINE_MAX];
    if (n == 0)
        return 0;
    struct iovec parts[] = {
        {line, http_chunk_line(line, n)}, {(void *)bytes, n}, {(void *)"\r\n", 2}};
    return send_all(c, parts, 3, NULL, 0, err);
}

int http_client_finish(struct http_client *c, struct err *err) {
    struct iovec last = {(void *)HTTP_LAST_CHUNK, strlen(HTTP_LAST_CHUNK)};
    c->streaming = false;
    return send_all(c, &last, 1, NULL, 0, err);
}

/* Answers */

static int lost(struct http_client *c, struct err *err, const char *what) {
    disconnect(c);
    return err_set(err, ERR_UNKNOWN, "server '%s' closed the connection %s", c->name, what);
}

/* Reads one head, possibly that of an interim answer (1xx). */
static int http_client_read_head(struct http_client *c, struct err *err) {
    for (;;) {
        int r = http_parse(&c->parser, c->in, c->in_end);
        if (r < 0) {
            disconnect(c);
            return err_set(err, ERR_INTERNAL, "cannot read the answer of server '%s': %s", c->name,
                           c->parser.refusal.why);
        }
        if (r > 0)
            return 0;
        ssize_t n = receive(c, c->timeout_ms, err);
        if (n < 0)
            return -1;
        if (n == 0)
            return lost(c, err, "without an answer");
    }
}

static bool is_interim(const struct http_head *h) {
    return h->status < 200 && h->status != 101;
}

int http_client_answer(struct http_client *c, const struct http_head **ret, struct err *err) {
    if (c->sock < 0)
        return err_set(err, ERR_INVALID,
                       "cannot read an answer: no request was sent to server '%s'", c->name);
    /* Unread bytes belong to this answer: they move to the start of the buffer. */
    memmove(c->in, c->in + c->in_at, c->in_end - c->in_at);
    c->in_end -= c->in_at;
    c->in_at = c->in_head = 0;
    for (;;) {
        if (http_client_read_head(c, err) < 0)
            return -1;
        c->in_at = c->parser.used;
        if (!is_interim(&c->head))
            break;
        bool answers_head = c->parser.answers_head;
        memmove(c->in, c->in + c->in_at, c->in_end - c->in_at);
        c->in_end -= c->in_at;
        c->in_at = 0;
        http_parse_begin(&c->parser, HTTP_RESPONSE, &HTTP_LIMITS_DEFAULT, &c->head);
        c->parser.answers_head = answers_head;
    }
    c->in_head = c->in_at;
    c->keep = c->head.keep_alive && !c->send_failed;
    c->in_body = c->head.framing != HTTP_NO_BODY;
    http_body_begin(&c->body, &c->head);
    *ret = &c->head;
    return 0;
}

int http_client_read(struct http_client *c, const char **ret, size_t *ret_n, struct err *err) {
    while (c->in_body) {
        struct http_text piece;
        size_t used;
        int r = http_body_next(&c->body, c->in + c->in_at, c->in_end - c->in_at, &used, &piece);
        if (r < 0) {
            disconnect(c);
            return err_set(err, ERR_INTERNAL, "cannot read the answer of server '%s': %s", c->name,
                           c->body.refusal.why);
        }
        c->in_at += used;
        c->in_body = r == 0;
        if (piece.n) {
            *ret = piece.s;
            *ret_n = piece.n;
            return 1;
        }
        if (r > 0)
            break;
        ssize_t n = receive(c, c->timeout_ms, err);
        if (n < 0)
            return -1;
        if (n == 0 && !http_body_at_close(&c->body))
            return lost(c, err, "in the middle of its answer");
        c->in_body = n > 0;
    }
    return 0;
}

int http_client_collect(struct http_client *c, struct buf *to, struct err *err) {
    const char *piece;
    size_t n;
    int r;
    while ((r = http_client_read(c, &piece, &n, err)) > 0)
        if (!buf_add(to, piece, n)) {
            char max[AMOUNT_SIZE];
            disconnect(c);
            amount_size(to->max, max);
            return err_set(err, ERR_LIMIT, "the answer of server '%s' is larger than %s", c->name,
                           max);
        }
    return r;
}

size_t http_client_take_fds(struct http_client *c, int fds[HTTP_CLIENT_FDS_MAX]) {
    size_t n = c->nfds;
    memcpy(fds, c->fds, n * sizeof(int));
    c->nfds = 0;
    return n;
}

/* Raw bytes after an upgrade */

int http_client_read_raw(struct http_client *c, int timeout_ms, char **ret, size_t *ret_n,
                         struct err *err) {
    c->keep = false;
    if (c->in_at == c->in_end) {
        ssize_t n = receive(c, timeout_ms, err);
        if (n <= 0)
            return (int)n;
    }
    *ret = c->in + c->in_at;
    *ret_n = c->in_end - c->in_at;
    c->in_at = c->in_end;
    return 1;
}

int http_client_write_raw(struct http_client *c, const void *bytes, size_t n, struct err *err) {
    struct iovec part = {(void *)bytes, n};
    if (send_all(c, &part, 1, NULL, 0, err) < 0)
        return -1;
    return c->send_failed ? err_set(err, ERR_GONE, "server '%s' closed the connection", c->name)
                          : 0;
}
