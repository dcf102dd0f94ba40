#include "gate/ingress.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/parse.h"
#include "gate/channel.h"
#include "gate/ingress_head.h"
#include "gate/ingress_tls.h"

enum {
    HEAD_SIZE = 16384,
    HEAD_OUT_MAX = 32768,
    PIECE = 16384,
    BACKLOG = 256 << 10,
    HEAD_MS = 10000,
    DIAL_MS = 10000,
    IDLE_MS = 600000,
    ACCEPTS = 32,
};

enum state { STATE_TLS, STATE_HEAD, STATE_DIAL, STATE_RELAY, STATE_LAST };

struct visit {
    struct ingress *ingress;
    struct visit *next, **at;
    enum state state;
    struct channel client, server;
    struct loop_timer *timer;
    struct loop_call later;
    bool ended, dialling;
    bool client_ended, server_ended;
    struct ingress_door door;
    bool by_field; /* the field Carrel-Port names the door */
    struct http_parser parser;
    struct http_head head;
    size_t n;
    char in[HEAD_SIZE];
    struct buf out;        /* the request head, rewritten for the machine */
    struct http_body body; /* body of the request; bytes after it are dropped */
    bool sent;             /* the whole body was sent */
    bool asks_upgrade;     /* the request asks for an upgrade: later bytes wait for the answer */
    bool upgraded;         /* a websocket is open: bytes go both ways */
    bool served;           /* a server of this process has the connection */
    bool answered;         /* the head of the answer was passed on */
    struct http_parser back_parser;
    struct http_head back_head;
    size_t back_n;
    char back[HEAD_SIZE];
};

struct ingress {
    struct loop *loop;
    const struct ingress_hooks *hooks;
    void *arg;
    struct ingress_config config;
    struct ingress_tls *tls;
    int sock;
    uint16_t port; /* see ingress_port() */
    struct in_addr address;
    struct loop_watch *watch;
    struct visit *visits;
    size_t count;
};

/* ---- the end of a visit (a connection) ---- */

static void visit_free(struct visit *v) {
    *v->at = v->next;
    if (v->next)
        v->next->at = v->at;
    v->ingress->count--;
    loop_call_cancel(v->ingress->loop, &v->later);
    loop_timer_free(v->timer);
    channel_close(&v->client);
    channel_close(&v->server);
    buf_done(&v->out);
    free(v);
}

static void free_later(void *arg) {
    visit_free(arg);
}

/* A visit is one connection of a client. If the gate is still connecting to the machine for it, the
 * visit is freed when that connection succeeds or fails. */
static void visit_end(struct visit *v) {
    if (v->ended)
        return;
    v->ended = true;
    loop_timer_stop(v->timer);
    channel_close(&v->client);
    channel_close(&v->server);
    if (!v->dialling)
        loop_defer(v->ingress->loop, &v->later);
}

static void on_timer(void *arg) {
    visit_end(arg);
}

/* ---- answers that the gate writes itself ---- */

static void ingress_answer(struct visit *v, int status, const char *text,
                           const struct http_pair *more) {
    struct buf out DEFER(buf_done) = BUF(HEAD_OUT_MAX);
    bool ok =
        http_put_status_line(&out, status) && http_put_pairs(&out, more) &&
        http_put_pairs(&out, HTTP_FIELDS({"Content-Type", "text/plain; charset=utf-8"},
                                         {"Connection", "close"}, {"Cache-Control", "no-store"})) &&
        http_put_number(&out, "Content-Length", strlen(text)) && http_put_end(&out) &&
        buf_add(&out, text, strlen(text));
    v->state = STATE_LAST;
    if (!ok || !channel_write(&v->client, out.data, out.len)) {
        visit_end(v);
        return;
    }
    channel_finish(&v->client);
    loop_timer_start(v->timer, 1000, 0);
    channel_listen(&v->client, true);
}

static void ingress_refuse(struct visit *v, int status, const char *why) {
    char method[24], path[256];
    snprintf(method, sizeof(method), "%.*s", (int)v->head.method.n, v->head.method.s);
    snprintf(path, sizeof(path), "%.*s", (int)v->head.path.n, v->head.path.s);
    if (v->door.port)
        v->ingress->hooks->entered(v->ingress->arg, &v->door, method, path, why);
    ingress_answer(v, status, why, NULL);
}

/* A cookie of the page that shows this host in a frame, which pages of other sites do not share. */
static const char *cookie_rules(const struct visit *v) {
    if (ingress_in_frame(&v->head))
        return "SameSite=None; Secure; Partitioned";
    return ingress_tls_wanted(v->ingress->tls) ? "SameSite=Strict; Secure" : "SameSite=Strict";
}

/* Moves a token from the URL into a cookie of this host. */
static void move_token(struct visit *v, struct http_text token) {
    const struct http_head *h = &v->head;
    struct buf cookie DEFER(buf_done) = BUF(512), to DEFER(buf_done) = BUF(HEAD_OUT_MAX);
    bool other_host = h->path.n > 1 && strchr("/\\", h->path.s[1]);
    bool reads = http_text_is(h->method, "GET") || http_text_is(h->method, "HEAD");
    bool ok = buf_addf(&cookie, INGRESS_COOKIE "=%.*s; Path=/; HttpOnly; %s", (int)token.n, token.s,
                       cookie_rules(v)) &&
              (other_host ? buf_add(&to, "/", 1) : ingress_put_target(h, &to));
    if (!ok)
        ingress_refuse(v, 400, "the URL is too long\n");
    else
        ingress_answer(v, reads ? 302 : 307, "",
                       HTTP_FIELDS({"Location", to.data}, {"Set-Cookie", cookie.data}));
}

/* ---- relaying ---- */

/* Bytes after the request could be another request with its token, so they are dropped. */
static bool pass_on(struct visit *v, const char *bytes, size_t n) {
    if (v->upgraded)
        return channel_write(&v->server, bytes, n);
    while (n && !v->sent) {
        size_t used;
        struct http_text data;
        int r = http_body_next(&v->body, bytes, n, &used, &data);
        if (r < 0 || (r == 0 && !used) || (used && !channel_write(&v->server, bytes, used)))
            return false;
        v->sent = r > 0;
        bytes += used;
        n -= used;
    }
    return true;
}

static bool pass_rest(struct visit *v) {
    return pass_on(v, v->in + v->parser.used, v->n - v->parser.used);
}

/* Passes the head of the machine's answer to the client. 1: done. 0: more bytes are needed. -1:
 * failed. */
static int pass_answer_head(struct visit *v) {
    struct buf out DEFER(buf_done) = BUF(HEAD_OUT_MAX);
    int r = http_parse(&v->back_parser, v->back, v->back_n);
    const struct http_head *h = &v->back_head;
    size_t used = v->back_parser.used;
    if (r <= 0)
        return r;
    if ((h->status == 101 && !v->asks_upgrade) || !ingress_put_answer(h, &out) ||
        !channel_write(&v->client, out.data, out.len))
        return -1;
    v->answered = h->status >= 200 || h->status == 101;
    v->upgraded = h->status == 101;
    v->back_n -= used;
    memmove(v->back, v->back + used, v->back_n);
    http_parse_begin(&v->back_parser, HTTP_RESPONSE, &HTTP_LIMITS_DEFAULT, &v->back_head);
    if (!v->answered)
        return 1;
    bool upgrades = v->asks_upgrade && v->upgraded;
    v->asks_upgrade = false;
    return (!v->back_n || channel_write(&v->client, v->back, v->back_n)) &&
                   (!upgrades || pass_rest(v))
               ? 1
               : -1;
}

static int take_answer(struct visit *v, const char *bytes, size_t n) {
    if (v->answered)
        return channel_write(&v->client, bytes, n) ? 0 : -1;
    if (n > sizeof(v->back) - v->back_n)
        return -1;
    memcpy(v->back + v->back_n, bytes, n);
    v->back_n += n;
    int r;
    do
        r = pass_answer_head(v);
    while (r > 0 && !v->answered);
    return r;
}

static bool read_client(struct visit *v) {
    char bytes[PIECE];
    /* TLS may hold bytes for which no event would come. */
    for (int i = 0;
         (i < 16 || v->client.ssl) && !v->client_ended && channel_backlog(&v->server) <= BACKLOG;
         i++) {
        ssize_t n = v->asks_upgrade ? -EAGAIN : channel_read(&v->client, bytes, sizeof(bytes));
        if (n == -EAGAIN)
            break;
        if (n < 0 || !pass_on(v, bytes, (size_t)n))
            return false;
        if (n == 0) {
            v->client_ended = true;
            channel_finish(&v->server);
        }
    }
    return true;
}

static bool read_server(struct visit *v) {
    char bytes[PIECE / 2];
    for (int i = 0; i < 32 && !v->server_ended && channel_backlog(&v->client) <= BACKLOG; i++) {
        ssize_t n = channel_read(&v->server, bytes, sizeof(bytes));
        if (n == -EAGAIN)
            break;
        if (n < 0 || (n == 0 && !v->answered) || take_answer(v, bytes, (size_t)n) < 0)
            return false;
        if (n == 0) {
            v->server_ended = true;
            channel_finish(&v->client);
        }
    }
    return true;
}

static void relay(struct visit *v) {
    const struct ingress *g = v->ingress;
    bool said = v->answered;
    bool is_open = v->served || g->hooks->is_open(g->arg, &v->door);
    bool ok = !v->client.broken && !v->server.broken && is_open && read_client(v) && read_server(v);
    if (!ok && is_open && !said && !v->answered && !v->client.broken) {
        channel_close(&v->server);
        ingress_refuse(v, 502, "the server at this port of the machine sent a malformed answer\n");
        return;
    }
    if (!ok || (v->server_ended && !channel_backlog(&v->client))) {
        visit_end(v);
        return;
    }
    channel_listen(&v->client,
                   !v->client_ended && !v->asks_upgrade && channel_backlog(&v->server) <= BACKLOG);
    channel_listen(&v->server, !v->server_ended && channel_backlog(&v->client) <= BACKLOG);
    loop_timer_start(v->timer, IDLE_MS, 0);
}

static void on_server(void *arg) {
    struct visit *v = arg;
    if (!v->ended && v->state == STATE_RELAY)
        relay(v);
}

static void refuse_closed(struct visit *v) {
    char why[128];
    snprintf(why, sizeof(why), "nothing answers at port %u of machine '%s'\n", v->door.port,
             v->door.machine);
    ingress_refuse(v, 502, why);
}

static void dialled(void *arg, int fd, const struct err *err) {
    struct visit *v = arg;
    struct err why;
    v->dialling = false;
    if (v->ended) {
        close_fd(&fd);
        loop_defer(v->ingress->loop, &v->later);
        return;
    }
    if (err || channel_open(&v->server, v->ingress->loop, fd, on_server, v, &why) < 0) {
        refuse_closed(v);
        return;
    }
    v->state = STATE_RELAY;
    http_parse_begin(&v->back_parser, HTTP_RESPONSE, &HTTP_LIMITS_DEFAULT, &v->back_head);
    http_body_begin(&v->body, &v->head);
    v->sent = v->head.framing == HTTP_NO_BODY;
    v->asks_upgrade = v->head.upgrade;
    if (!channel_write(&v->server, v->out.data, v->out.len) ||
        (!v->asks_upgrade && !pass_rest(v))) {
        refuse_closed(v);
        return;
    }
    buf_done(&v->out);
    relay(v);
}

/* ---- a request ---- */

/* Tries all tokens of a request. Returns 0 and the valid token, or the HTTP status of the refusal.
 */
static int try_all(struct visit *v, const struct ingress_tokens *t, struct http_text *ret) {
    const struct ingress *g = v->ingress;
    int status = t->all > t->count ? 400 : g->hooks->check(g->arg, &v->door, HTTP_TEXT(""));
    *ret = HTTP_TEXT("");
    for (size_t i = 0; (status == 401 || status == INGRESS_TRAFFIC) && i < t->count; i++) {
        if (t->list[i].n > INGRESS_TOKEN_MAX)
            continue;
        status = g->hooks->check(g->arg, &v->door, t->list[i]);
        *ret = t->list[i];
    }
    return status;
}

#define TRAFFIC_MISSING                                                                       \
    "{\"code\":403,\"message\":\"Sandbox is secured with traffic access token. Token header " \
    "'e2b-traffic-access-token' is missing or wrong\"}"

static const char *why_not(int status) {
    return status == 401   ? "this URL requires a token: that of `carrel expose`, or the traffic "
                             "token of the sandbox\n"
           : status == 403 ? "the machine is guarded and has read data from an untrusted source; "
                             "to serve the port anyway, run `carrel expose` again\n"
           : status == 404 ? "no machine exposes this port\n"
                           : "the request contains too many Carrel tokens\n";
}

/* ---- names of the API ---- */

static void client_of(const struct visit *v, struct ingress_client *ret) {
    struct sockaddr_in a = {0};
    socklen_t n = sizeof(a);
    char host[INET_ADDRSTRLEN] = "?";
    *ret = (struct ingress_client){.tls = v->client.ssl};
    if (getpeername(v->client.fd, (struct sockaddr *)&a, &n) == 0)
        inet_ntop(AF_INET, &a.sin_addr, host, sizeof(host));
    snprintf(ret->address, sizeof(ret->address), "%s:%u", host, ntohs(a.sin_port));
}

/* From here on bytes go both ways, beginning with those of the head. */
static void ingress_serve(struct visit *v) {
    struct ingress *g = v->ingress;
    struct ingress_client client;
    struct err err;
    int ends[2];
    client_of(v, &client);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0) {
        visit_end(v);
        return;
    }
    if (channel_open(&v->server, g->loop, ends[0], on_server, v, &err) < 0) {
        close(ends[1]);
        visit_end(v);
        return;
    }
    v->state = STATE_RELAY;
    v->served = v->upgraded = v->answered = true;
    g->hooks->serve(g->arg, ends[1], &client);
    if (channel_write(&v->server, v->in, v->n))
        relay(v);
    else
        visit_end(v);
}

static bool is_served(const struct visit *v, struct http_text host) {
    const struct ingress *g = v->ingress;
    struct http_text name;
    return host.s && v->head.form == HTTP_ORIGIN &&
           ingress_name_read(host, g->config.domain, &name) && g->hooks->serves(g->arg, name);
}

/* Finds the machine and port. Answers the request and returns false if it names none. */
static bool find_door(struct visit *v, struct http_text host) {
    const struct http_head *h = &v->head;
    struct http_text name = http_field_only(h, INGRESS_PORT_FIELD);
    v->by_field = http_field_count(h, INGRESS_PORT_FIELD);
    bool is_origin = h->form == HTTP_ORIGIN && host.s;
    if (is_origin && v->by_field && ingress_is_page(h)) {
        ingress_answer(
            v, 403, "a page may not use " INGRESS_PORT_FIELD ": open the URL of the port\n", NULL);
        return false;
    }
    if (is_origin &&
        (v->by_field ? name.s && ingress_host_is_address(host) && ingress_door_named(name, &v->door)
                     : ingress_door_read(host, v->ingress->config.domain, &v->door)))
        return true;
    ingress_answer(v, 404,
                   "exposed ports have the host name PORT-MACHINE" INGRESS_DOMAIN
                   ", or at the address of this listener the field " INGRESS_PORT_FIELD
                   ": PORT-MACHINE\n",
                   NULL);
    return false;
}

static void ingress_take(struct visit *v) {
    struct ingress *g = v->ingress;
    const struct http_head *h = &v->head;
    struct http_text host = http_field_only(h, "Host"), token;
    struct ingress_tokens tokens;
    char method[24], path[256];
    if (is_served(v, host)) {
        ingress_serve(v);
        return;
    }
    if (!find_door(v, host))
        return;
    if (!v->door.port)
        v->door.port = g->hooks->only_port(g->arg, v->door.machine);
    ingress_tokens_find(h, &tokens);
    int status = try_all(v, &tokens, &token);
    if (status == INGRESS_TRAFFIC) {
        ingress_refuse(v, 403, TRAFFIC_MISSING);
        return;
    }
    if (status) {
        ingress_refuse(v, status, why_not(status));
        return;
    }
    if (tokens.in_query && token.n && !v->by_field) {
        move_token(v, token);
        return;
    }
    if (h->upgrade && token.n && !ingress_origin_ok(h)) {
        ingress_refuse(v, 403, "a page from another origin may not open a websocket here\n");
        return;
    }
    if (token.n && tokens.in_cookie && ingress_foreign(h)) {
        ingress_refuse(v, 403, "a page from another site may not use the token of this browser\n");
        return;
    }
    v->out = BUF(HEAD_OUT_MAX);
    ingress_drop_fields(&v->head, g->hooks->is_key, g->arg);
    if (!ingress_put_request(h, &v->out)) {
        ingress_refuse(v, 431, "the head of the request is too long\n");
        return;
    }
    ingress_mask(&v->out, token);
    snprintf(method, sizeof(method), "%.*s", (int)h->method.n, h->method.s);
    snprintf(path, sizeof(path), "%.*s", (int)h->path.n, h->path.s);
    g->hooks->entered(g->arg, &v->door, method, path, NULL);
    v->state = STATE_DIAL;
    v->dialling = true;
    channel_listen(&v->client, false);
    loop_timer_start(v->timer, DIAL_MS, 0);
    g->hooks->dial(g->arg, &v->door, dialled, v);
}

static void ingress_read_head(struct visit *v) {
    while (v->state == STATE_HEAD && !v->ended) {
        ssize_t n = v->n == sizeof(v->in)
                        ? -EMSGSIZE
                        : channel_read(&v->client, v->in + v->n, sizeof(v->in) - v->n);
        if (n == -EAGAIN)
            return;
        if (n <= 0) {
            visit_end(v);
            return;
        }
        v->n += (size_t)n;
        int r = http_parse(&v->parser, v->in, v->n);
        if (r > 0)
            ingress_take(v);
        else if (r < 0)
            ingress_answer(v, v->parser.refusal.status, v->parser.refusal.why, NULL);
    }
}

static void ingress_shake_hands(struct visit *v) {
    struct err err;
    int r = channel_handshake(&v->client, &err);
    if (r < 0)
        visit_end(v);
    if (r <= 0)
        return;
    v->state = STATE_HEAD;
    ingress_read_head(v);
}

/* Discards bytes that arrive after the refusal. */
static void read_rest(struct visit *v) {
    char bytes[4096];
    ssize_t n = channel_read(&v->client, bytes, sizeof(bytes));
    if (n != -EAGAIN && n <= 0)
        visit_end(v);
}

static void on_client(void *arg) {
    struct visit *v = arg;
    if (v->ended)
        return;
    if (v->client.broken)
        visit_end(v);
    else if (v->state == STATE_TLS)
        ingress_shake_hands(v);
    else if (v->state == STATE_HEAD)
        ingress_read_head(v);
    else if (v->state == STATE_RELAY)
        relay(v);
    else if (v->state == STATE_LAST)
        read_rest(v);
}

/* ---- TLS ---- */

static void tls_begin(struct visit *v) {
    SSL *ssl = alloc_check(ingress_tls_accept(v->ingress->tls));
    channel_secure(&v->client, ssl, NULL, 0);
    v->state = STATE_TLS;
}

/* ---- the listener ---- */

static void visit_new(struct ingress *g, int fd) {
    struct visit *v = xnew(struct visit);
    struct err err;
    v->ingress = g;
    v->state = STATE_HEAD;
    v->client.fd = v->server.fd = -1;
    v->later = (struct loop_call){.fn = free_later, .arg = v};
    v->timer = loop_timer_new(g->loop, on_timer, v);
    v->next = g->visits;
    v->at = &g->visits;
    if (v->next)
        v->next->at = &v->next;
    g->visits = v;
    g->count++;
    http_parse_begin(&v->parser, HTTP_REQUEST, &HTTP_LIMITS_DEFAULT, &v->head);
    if (channel_open(&v->client, g->loop, fd, on_client, v, &err) < 0) {
        visit_end(v);
        return;
    }
    if (ingress_tls_wanted(g->tls))
        tls_begin(v);
    loop_timer_start(v->timer, HEAD_MS, 0);
    channel_listen(&v->client, true);
}

static void on_accept(void *arg, unsigned events) {
    struct ingress *g = arg;
    struct err err;
    (void)events;
    (void)ingress_tls_open(
        g->tls, &err); /* a renewed certificate; a file being written is read next time */
    for (int i = 0; i < ACCEPTS; i++) {
        int fd = accept4(g->sock, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return;
        if (g->count >= INGRESS_CONNECTIONS)
            close(fd);
        else
            visit_new(g, fd);
    }
}

struct ingress *ingress_new(struct loop *loop, const struct ingress_hooks *hooks, void *arg,
                            const struct ingress_config *config) {
    struct ingress *g = xnew(struct ingress);
    *g = (struct ingress){.loop = loop, .hooks = hooks, .arg = arg, .config = *config, .sock = -1};
    g->tls = ingress_tls_new(config);
    return g;
}

void ingress_free(struct ingress *g) {
    if (!g)
        return;
    while (g->visits)
        visit_free(g->visits);
    loop_watch_free(g->watch);
    close_fd(&g->sock);
    ingress_tls_free(g->tls);
    free(g);
}

static int read_where(const char *where, struct sockaddr_in *ret, struct err *err) {
    char host[64];
    uint64_t port;
    const char *colon = strrchr(where, ':');
    *ret = (struct sockaddr_in){.sin_family = AF_INET};
    if (!colon || (size_t)(colon - where) >= sizeof(host) ||
        parse_u64(colon + 1, 1, 65535, &port, NULL) < 0)
        return err_set(err, ERR_INVALID, "listening address '%s' is not written as ADDRESS:PORT",
                       where);
    snprintf(host, sizeof(host), "%.*s", (int)(colon - where), where);
    if (inet_pton(AF_INET, host, &ret->sin_addr) != 1)
        return err_set(err, ERR_INVALID,
                       "listening address '%s' is not an IPv4 address such as 127.0.0.1", host);
    ret->sin_port = htons((uint16_t)port);
    return 0;
}

/* Returns a listening socket, or -1 with errno. */
static int listen_at(const struct sockaddr_in *a) {
    int sock DEFER_CLOSE = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sock < 0)
        return -1;
    setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(sock, (const struct sockaddr *)a, sizeof(*a)) < 0 || listen(sock, 256) < 0)
        return -1;
    return TAKE_FD(sock);
}

/* Tries the port and up to `spare` ports above it while they are taken. */
static int listen_above(struct sockaddr_in *a, unsigned spare) {
    int sock = listen_at(a);
    for (; sock < 0 && errno == EADDRINUSE && spare && a->sin_port != htons(65535); spare--) {
        a->sin_port = htons((uint16_t)(ntohs(a->sin_port) + 1));
        sock = listen_at(a);
    }
    return sock;
}

int ingress_listen(struct ingress *g, const char *where, struct err *err) {
    struct sockaddr_in a;
    if (g->sock >= 0)
        return 0;
    if (read_where(*where ? where : INGRESS_DEFAULT, &a, err) < 0)
        return -1;
    if (ingress_tls_open(g->tls, err) < 0)
        return -1;
    int sock DEFER_CLOSE = listen_above(&a, *where ? 0 : INGRESS_SPARE);
    g->port = ntohs(a.sin_port);
    g->address = a.sin_addr;
    if (sock < 0) {
        err_sys(err, "cannot listen on '%s' for exposed ports", *where ? where : INGRESS_DEFAULT);
        return err_remedy(err, "set another address in carrel.conf: [gate] ingress");
    }
    if (loop_watch_new(g->loop, sock, LOOP_READ, on_accept, g, &g->watch, err) < 0)
        return -1;
    g->sock = TAKE_FD(sock);
    return 0;
}

void ingress_address_url(const struct ingress *g, char ret[INGRESS_URL_SIZE]) {
    char host[INET_ADDRSTRLEN] = "127.0.0.1";
    if (g->address.s_addr != htonl(INADDR_ANY))
        inet_ntop(AF_INET, &g->address, host, sizeof(host));
    snprintf(ret, INGRESS_URL_SIZE, "http://%s:%u/", host, g->port);
}

uint16_t ingress_port(const struct ingress *g) {
    return g->port;
}

void ingress_close(struct ingress *g, const char *machine, uint16_t port) {
    for (struct visit *v = g->visits; v; v = v->next)
        if (strcmp(v->door.machine, machine) == 0 && (!port || v->door.port == port))
            visit_end(v);
}
