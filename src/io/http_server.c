#include "io/http_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "io/http_conn.h"
#include "io/http_crowd.h"

enum {
    BACKLOG = 511,
    ACCEPT_BATCH = 16,
    SPARES_MAX = 64, /* unused connections and buffers that are kept for reuse */
    YIELDS_MS = 200, /* a connection that has waited so long for a request may yield its place */
    UNSENT_MAX = 64 << 10, /* bytes in the kernel that the peer has no room for */
};

struct listener {
    struct listener *next;
    struct http_server *server;
    struct loop_watch *watch;
    int sock;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* unix socket that we created */
    struct stat made;
};

/* Buffers and the date, which connections share */

char *server_take_in(struct http_server *s) {
    char *in = s->spare_in;
    if (!in)
        return xcalloc(1, s->in_cap);
    memcpy(&s->spare_in, in, sizeof(char *));
    s->spare_in_count--;
    return in;
}

void server_give_in(struct http_server *s, char *in) {
    if (s->spare_in_count == SPARES_MAX) {
        free(in);
        return;
    }
    memcpy(in, &s->spare_in, sizeof(char *));
    s->spare_in = in;
    s->spare_in_count++;
}

const char *server_date(struct http_server *s) {
    static const char *const days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    time_t now = time(NULL);
    struct tm t;
    if (now == s->date_of)
        return s->date;
    s->date_of = now;
    gmtime_r(&now, &t);
    snprintf(s->date, sizeof(s->date), "%s, %02d %s %04d %02d:%02d:%02d GMT", days[t.tm_wday],
             t.tm_mday, months[t.tm_mon], t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
    return s->date;
}

/* Life of the server */

static unsigned or_else(unsigned value, unsigned fallback) {
    return value ? value : fallback;
}

static void fill_config(struct http_server_config *c) {
    if (!c->head.head_max)
        c->head = HTTP_LIMITS_DEFAULT;
    c->connections_max = or_else(c->connections_max, 1024);
    c->requests_max = or_else(c->requests_max, 1024);
    c->head_ms = or_else(c->head_ms, 10000);
    c->body_ms = or_else(c->body_ms, 30000);
    c->idle_ms = or_else(c->idle_ms, 75000);
    c->write_ms = or_else(c->write_ms, 300000);
    c->out_high = c->out_high ? c->out_high : 64 << 10;
    c->out_max = c->out_max ? c->out_max : 16 << 20;
    c->bodies_max = c->bodies_max ? c->bodies_max : 256 << 20;
}

/*
 * Returns the interval of the server's clock: so short that no time limit is exceeded by more than
 * a quarter.
 */
static unsigned tick_for(const struct http_server_config *c) {
    const unsigned ms[] = {c->head_ms, c->body_ms, c->idle_ms, c->write_ms};
    unsigned least = 4000;
    for (size_t i = 0; i < sizeof(ms) / sizeof(*ms); i++)
        least = ms[i] < least ? ms[i] : least;
    return least / 4 > 10 ? least / 4 : 10;
}

static void on_clock(void *arg);

struct http_server *http_server_new(struct loop *loop, const struct http_server_config *config) {
    struct http_server *s = xnew(struct http_server);
    s->loop = loop;
    s->config = *config;
    fill_config(&s->config);
    s->conns.next = s->conns.prev = &s->conns;
    /* After the longest possible head the buffer still has room. */
    s->in_cap = s->config.head.head_max + HTTP_DIRECT;
    s->scratch = xcalloc(1, HTTP_SCRATCH);
    s->line = BUF(64 << 10);
    s->tick_ms = tick_for(&s->config);
    s->clock = loop_timer_new(loop, on_clock, s);
    return s;
}

static void server_destroy(struct http_server *s) {
    for (struct conn *c; (c = s->spare_conns);) {
        s->spare_conns = c->next;
        free(c->collected);
        free(c);
    }
    while (s->spare_in_count)
        free(server_take_in(s));
    free(s->scratch);
    buf_done(&s->line);
    free(s);
}

static void listener_free(struct listener *l) {
    struct stat now;
    loop_watch_free(l->watch);
    close_fd(&l->sock);
    /* Remove the socket file only if it is still ours: another process may have replaced it. */
    if (l->path[0] && lstat(l->path, &now) == 0 && now.st_ino == l->made.st_ino &&
        now.st_dev == l->made.st_dev)
        unlink(l->path);
    free(l);
}

static void each_conn(struct http_server *s, void (*fn)(struct conn *c)) {
    for (struct conn *c = s->conns.next, *next; c != &s->conns; c = next) {
        next = c->next;
        fn(c);
    }
}

void http_server_stop(struct http_server *s) {
    s->stopping = true;
    for (struct listener *l; (l = s->listeners);) {
        s->listeners = l->next;
        listener_free(l);
    }
    each_conn(s, conn_stop);
}

static void cut_off(struct conn *c) {
    conn_cut(c);
    conn_settle(c);
}

void http_server_free(struct http_server *s) {
    if (!s)
        return;
    http_server_stop(s);
    each_conn(s, cut_off);
    loop_timer_free(TAKE(s->clock));
    if (s->conns.next == &s->conns)
        server_destroy(s);
    else
        s->freed = true;
}

struct http_server_stats http_server_stats(const struct http_server *s) {
    return s->stats;
}

/* Connections */

static void on_clock(void *arg) {
    struct http_server *s = arg;
    each_conn(s, conn_on_clock);
    for (struct listener *l = s->listeners; l; l = l->next)
        loop_watch_set(l->watch, LOOP_READ);
    s->deaf = false;
    if (!s->stats.connections_now)
        loop_timer_stop(s->clock);
}

static struct conn *conn_new(struct http_server *s, int sock) {
    struct conn *c = s->spare_conns;
    char *collected = NULL;
    size_t collected_cap = 0;
    if (c) {
        s->spare_conns = c->next;
        s->spare_count--;
        collected = c->collected;
        collected_cap = c->collected_cap;
    } else {
        c = xcalloc(1, sizeof(*c));
    }
    /* Clears everything except the parsed head, which is large. */
    memset(c, 0, offsetof(struct conn, head));
    memset(&c->fds, 0, sizeof(*c) - offsetof(struct conn, fds));
    c->collected = collected;
    c->collected_cap = collected_cap;
    c->server = s;
    c->sock = sock;
    c->wake = (struct loop_call){.fn = conn_on_wake, .arg = c};
    http_parse_begin(&c->parser, HTTP_REQUEST, &s->config.head, &c->head);
    return c;
}

static void conn_link(struct http_server *s, struct conn *c) {
    if (s->stats.connections_now++ == 0)
        loop_timer_start(s->clock, s->tick_ms, s->tick_ms);
    s->stats.connections++;
    c->next = &s->conns;
    c->prev = s->conns.prev;
    c->prev->next = s->conns.prev = c;
}

static void conn_discard(struct http_server *s, struct conn *c) {
    if (s->spare_count == SPARES_MAX || s->freed) {
        free(c->collected);
        free(c);
        return;
    }
    c->next = s->spare_conns;
    s->spare_conns = c;
    s->spare_count++;
}

void server_conn_gone(struct http_server *s, struct conn *c) {
    c->prev->next = c->next;
    c->next->prev = c->prev;
    loop_call_cancel(s->loop, &c->wake);
    http_out_done(&c->out);
    if (c->in)
        server_give_in(s, c->in);
    conn_discard(s, c);
    if (--s->stats.connections_now)
        return;
    if (s->freed)
        server_destroy(s);
    else if (!s->deaf) /* if deaf, the clock must still reopen the listeners */
        loop_timer_stop(s->clock);
}

/* Listening */

static void know_peer(struct http_peer *p, int sock, const struct sockaddr_storage *a) {
    char host[INET6_ADDRSTRLEN] = "?";
    if (a->ss_family == AF_UNIX) {
        struct ucred ids = {.uid = (uid_t)-1, .gid = (gid_t)-1};
        socklen_t n = sizeof(ids);
        getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &ids, &n);
        *p = (struct http_peer){.local = true, .pid = ids.pid, .uid = ids.uid, .gid = ids.gid};
        snprintf(p->text, sizeof(p->text), "uid %u pid %d", ids.uid, ids.pid);
        return;
    }
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;
    bool is_v6 = a->ss_family == AF_INET6;
    *p = (struct http_peer){.pid = -1, .uid = (uid_t)-1, .gid = (gid_t)-1};
    inet_ntop(a->ss_family, is_v6 ? (const void *)&v6->sin6_addr : &v4->sin_addr, host,
              sizeof(host));
    snprintf(p->text, sizeof(p->text), is_v6 ? "[%s]:%u" : "%s:%u", host,
             ntohs(is_v6 ? v6->sin6_port : v4->sin_port));
}

static void tune(int sock) {
    int on = 1, idle_s = 60, unsent_max = UNSENT_MAX;
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(sock, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_max, sizeof(unsent_max));
    setsockopt(sock, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(sock, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
}

/* The owner is the user who runs the server, or root. */
static enum crowd_kind http_server_kind_of(const struct http_server *s, const struct http_peer *p) {
    if (!s->config.shares || (p->local && (p->uid == 0 || p->uid == geteuid())))
        return CROWD_OWNER;
    return p->local ? CROWD_USER : CROWD_TCP;
}

static bool are_same(const struct http_peer *a, const struct http_peer *b) {
    return a->local == b->local && (!a->local || a->uid == b->uid);
}

static struct crowd count_crowd(const struct http_server *s, const struct http_peer *peer) {
    struct crowd n = {.max = s->config.connections_max, .all = s->stats.connections_now};
    for (const struct conn *c = s->conns.next; s->config.shares && c != &s->conns; c = c->next) {
        n.strangers += http_server_kind_of(s, &c->peer) != CROWD_OWNER;
        n.same += are_same(&c->peer, peer);
    }
    return n;
}

/*
 * The order in which connections yield their places: those with an incomplete head first, then
 * those between two requests, and of each the one that has waited longest. UINT64_MAX: never.
 */
static uint64_t yields_as(const struct http_server *s, const struct conn *c) {
    const uint64_t last = 1ull << 62;
    uint64_t now = loop_now_ms(s->loop), since;
    if (c->state != CONN_HEAD || c->busy || (c->wait != WAIT_HEAD && c->wait != WAIT_IDLE))
        return UINT64_MAX;
    since = c->deadline_ms - (c->wait == WAIT_HEAD ? s->config.head_ms : s->config.idle_ms);
    if (now < since + YIELDS_MS)
        return UINT64_MAX;
    return c->wait == WAIT_HEAD ? since : last + since;
}

/*
 * Closes a connection that waits for a request, to make room for a new one. The owner may displace
 * any connection, other peers only those of the same user or TCP.
 */
static bool displace(struct http_server *s, const struct http_peer *peer, enum crowd_kind kind) {
    uint64_t first = UINT64_MAX;
    struct conn *found = NULL;
    for (struct conn *c = s->conns.next; s->config.shares && c != &s->conns; c = c->next) {
        uint64_t as = yields_as(s, c);
        if (as < first && (kind == CROWD_OWNER || are_same(&c->peer, peer))) {
            first = as;
            found = c;
        }
    }
    if (found)
        cut_off(found);
    return found;
}

static void welcome_peer(struct http_server *s, int sock, const struct http_peer *peer) {
    enum crowd_kind kind = http_server_kind_of(s, peer);
    struct crowd crowd = count_crowd(s, peer);
    if (!crowd_admits(&crowd, kind) && displace(s, peer, kind))
        crowd = count_crowd(s, peer);
    bool admitted = crowd_admits(&crowd, kind);
    if (!admitted && !crowd_answers(&crowd, kind)) {
        close(sock);
        return;
    }
    struct conn *c = conn_new(s, sock);
    c->peer = *peer;
    if (!peer->local)
        tune(sock);
    if (loop_watch_new(s->loop, sock, 0, conn_on_event, c, &c->watch, NULL) < 0) {
        close(sock);
        conn_discard(s, c);
        return;
    }
    conn_link(s, c);
    if (!admitted)
        conn_refuse(c, (struct http_refusal){503, "too many open connections"});
    conn_settle(c);
}

static void welcome(struct http_server *s, int sock, const struct sockaddr_storage *from) {
    struct http_peer peer;
    know_peer(&peer, sock, from);
    welcome_peer(s, sock, &peer);
}

static void on_accept(void *arg, unsigned events) {
    struct listener *l = arg;
    (void)events;
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        struct sockaddr_storage from = {0};
        socklen_t n = sizeof(from);
        int sock = accept4(l->sock, (struct sockaddr *)&from, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (sock >= 0) {
            welcome(l->server, sock, &from);
            continue;
        }
        /*
         * Out of descriptors: new connections wait in the kernel until the next tick of the clock.
         */
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            loop_watch_set(l->watch, 0);
            l->server->deaf = true;
            loop_timer_start(l->server->clock, l->server->tick_ms, l->server->tick_ms);
        }
        return;
    }
}

static int listen_on(struct http_server *s, int sock, struct listener **ret, struct err *err) {
    struct listener *l = xnew(struct listener);
    l->server = s;
    l->sock = sock;
    if (loop_watch_new(s->loop, sock, LOOP_READ, on_accept, l, &l->watch, err) < 0) {
        listener_free(l);
        return -1;
    }
    l->next = s->listeners;
    s->listeners = l;
    *ret = l;
    return 0;
}

int http_listen_fd(struct http_server *s, int fd, struct err *err) {
    struct listener *l;
    return listen_on(s, fd, &l, err);
}

void http_serve_fd(struct http_server *s, int fd) {
    struct sockaddr_storage from = {0};
    socklen_t n = sizeof(from);
    if (s->stopping || getpeername(fd, (struct sockaddr *)&from, &n) < 0)
        close(fd);
    else
        welcome(s, fd, &from);
}

void http_serve_for(struct http_server *s, int fd, const struct http_peer *peer) {
    if (s->stopping)
        close(fd);
    else
        welcome_peer(s, fd, peer);
}

/* Removes a socket file that no process listens on: a killed daemon left it behind. */
static int clear_path(const struct sockaddr_un *a, struct err *err) {
    struct stat st;
    if (lstat(a->sun_path, &st) < 0)
        return errno == ENOENT ? 0 : err_sys(err, "cannot check socket path '%s'", a->sun_path);
    if (!S_ISSOCK(st.st_mode))
        return err_set(err, ERR_EXISTS, "path '%s' exists and is not a socket", a->sun_path);
    int probe DEFER_CLOSE = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0)
        return err_sys(err, "cannot create a socket");
    if (connect(probe, (const struct sockaddr *)a, sizeof(*a)) == 0 || errno != ECONNREFUSED)
        return err_set(err, ERR_EXISTS, "another process already listens on socket '%s'",
                       a->sun_path);
    return unlink(a->sun_path) < 0 ? err_sys(err, "cannot remove the old socket '%s'", a->sun_path)
                                   : 0;
}

int http_listen_unix(struct http_server *s, const char *path, mode_t mode, struct err *err) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if ((size_t)snprintf(a.sun_path, sizeof(a.sun_path), "%s", path) >= sizeof(a.sun_path)) {
        err_set(err, ERR_INVALID, "socket path '%s' is too long", path);
        return err_remedy(err, "choose a path of at most %zu bytes", sizeof(a.sun_path) - 1);
    }
    if (clear_path(&a, err) < 0)
        return -1;
    int sock DEFER_CLOSE = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sock < 0)
        return err_sys(err, "cannot create a socket");
    /* fchmod() before bind() sets the mode of the new file, so that it is never too permissive. */
    if (fchmod(sock, 0600) < 0 || bind(sock, (struct sockaddr *)&a, sizeof(a)) < 0 ||
        chmod(path, mode) < 0 || listen(sock, BACKLOG) < 0)
        return err_sys(err, "cannot listen on socket '%s'", path);
    struct listener *l;
    if (listen_on(s, TAKE_FD(sock), &l, err) < 0)
        return -1;
    snprintf(l->path, sizeof(l->path), "%s", path);
    return lstat(path, &l->made) < 0 ? err_sys(err, "cannot check socket '%s'", path) : 0;
}

static int parse_address(const char *host, uint16_t port, struct sockaddr_storage *a,
                         socklen_t *ret_n) {
    struct sockaddr_in *v4 = (struct sockaddr_in *)a;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)a;
    if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        *ret_n = sizeof(*v4);
        return 0;
    }
    if (inet_pton(AF_INET6, host, &v6->sin6_addr) != 1)
        return -1;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    *ret_n = sizeof(*v6);
    return 0;
}

int http_listen_tcp(struct http_server *s, const char *host, uint16_t port, uint16_t *ret_port,
                    struct err *err) {
    struct sockaddr_storage a = {0};
    socklen_t n;
    int on = 1;
    if (parse_address(host, port, &a, &n) < 0)
        return err_set(err, ERR_INVALID, "address '%s' to listen on is not numeric", host);
    int sock DEFER_CLOSE = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sock < 0)
        return err_sys(err, "cannot create a socket");
    setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(sock, (struct sockaddr *)&a, n) < 0 || listen(sock, BACKLOG) < 0 ||
        getsockname(sock, (struct sockaddr *)&a, &n) < 0)
        return err_sys(err, "cannot listen on %s port %u", host, port);
    if (ret_port)
        *ret_port = ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                                  : ((struct sockaddr_in *)&a)->sin_port);
    struct listener *l;
    return listen_on(s, TAKE_FD(sock), &l, err);
}
