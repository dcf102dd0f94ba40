#include "gate/ingress.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/parse.h"
#include "gate/channel.h"

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
#define COOKIE "carrel_expose"
#define QUERY "carrel_token"

enum state { STATE_HEAD, STATE_DIAL, STATE_RELAY, STATE_LAST };

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
    struct http_parser parser;
    struct http_head head;
    size_t n;
    char in[HEAD_SIZE];
    struct buf out; /* the head as it goes in, and what came behind it */
};

struct ingress {
    struct loop *loop;
    const struct ingress_hooks *hooks;
    void *arg;
    int sock;
    struct loop_watch *watch;
    struct visit *visits;
    size_t count;
};

/* ---- names ---- */

bool ingress_door_read(struct http_text host, struct ingress_door *ret) {
    const char *colon = memchr(host.s, ':', host.n);
    size_t n = colon ? (size_t)(colon - host.s) : host.n, domain = strlen(INGRESS_DOMAIN);
    char text[64];
    uint64_t port;
    if (n <= domain || n >= sizeof(text) || memcmp(host.s + n - domain, INGRESS_DOMAIN, domain))
        return false;
    memcpy(text, host.s, n - domain);
    text[n - domain] = '\0';
    char *dash = strchr(text, '-');
    if (!dash)
        return false;
    *dash++ = '\0';
    if (parse_u64(text, 1, 65535, &port, NULL) < 0 || text[0] == '0' ||
        !id_valid(dash, strlen(dash), 'm'))
        return false;
    *ret = (struct ingress_door){.port = (uint16_t)port};
    snprintf(ret->machine, sizeof(ret->machine), "%s", dash);
    return true;
}

/* "name=value" in a list; what: where the value is. */
static bool find_pair(struct http_text in, const char *name, char between, struct http_text *ret,
                      struct http_text *ret_whole) {
    size_t len = strlen(name);
    for (const char *at = in.s, *end = in.s + in.n; at && at < end;) {
        const char *next = memchr(at, between, (size_t)(end - at));
        const char *stop = next ? next : end, *from = at;
        while (from < stop && *from == ' ')
            from++;
        if ((size_t)(stop - from) > len && memcmp(from, name, len) == 0 && from[len] == '=') {
            *ret = (struct http_text){from + len + 1, (size_t)(stop - from) - len - 1};
            *ret_whole = (struct http_text){at, (size_t)((next ? next + 1 : end) - at)};
            return true;
        }
        at = next ? next + 1 : NULL;
    }
    return false;
}

/* ---- life ---- */

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

/* One that is being dialled for is freed when that has been answered. */
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

/* ---- answers of our own ---- */

static void answer(struct visit *v, int status, const char *text, const struct http_pair *more) {
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

static void refuse(struct visit *v, int status, const char *why) {
    char method[24], path[256];
    snprintf(method, sizeof(method), "%.*s", (int)v->head.method.n, v->head.method.s);
    snprintf(path, sizeof(path), "%.*s", (int)v->head.path.n, v->head.path.s);
    if (v->door.port)
        v->ingress->hooks->entered(v->ingress->arg, &v->door, method, path, why);
    answer(v, status, why, NULL);
}

/* The token was in the address: it goes into a cookie of this host, and out of the address. */
static void move_token(struct visit *v, struct http_text token, struct http_text whole) {
    const struct http_head *h = &v->head;
    struct buf cookie DEFER(buf_done) = BUF(512), to DEFER(buf_done) = BUF(HEAD_OUT_MAX);
    size_t before = (size_t)(whole.s - h->query.s), after = h->query.n - before - whole.n;
    size_t path = h->path.n > 1 && h->path.s[1] == '/' ? 0 : h->path.n; /* no other host's */
    if (before && !after)
        before--; /* its "&" */
    bool ok = buf_addf(&cookie, COOKIE "=%.*s; Path=/; HttpOnly; SameSite=Strict", (int)token.n,
                       token.s) &&
              (path ? buf_add(&to, h->path.s, path) : buf_add(&to, "/", 1)) &&
              (!(before + after) || (buf_add(&to, "?", 1) && buf_add(&to, h->query.s, before) &&
                                     buf_add(&to, whole.s + whole.n, after)));
    if (!ok)
        refuse(v, 400, "that address is too long\n");
    else
        answer(v, 302, "", HTTP_FIELDS({"Location", to.data}, {"Set-Cookie", cookie.data}));
}

/* ---- relaying ---- */

static bool pump(struct visit *v, struct channel *from, struct channel *to, bool *ended) {
    char bytes[PIECE];
    for (int i = 0; i < 16 && !*ended && channel_backlog(to) <= BACKLOG; i++) {
        ssize_t n = channel_read(from, bytes, sizeof(bytes));
        if (n == -EAGAIN)
            break;
        if (n < 0 || (n > 0 && !channel_write(to, bytes, (size_t)n)))
            return false;
        if (n == 0) {
            *ended = true;
            channel_finish(to);
        }
    }
    (void)v;
    return true;
}

static void relay(struct visit *v) {
    if (v->client.broken || v->server.broken ||
        !pump(v, &v->client, &v->server, &v->client_ended) ||
        !pump(v, &v->server, &v->client, &v->server_ended) ||
        (v->server_ended && !channel_backlog(&v->client))) {
        visit_end(v);
        return;
    }
    channel_listen(&v->client, !v->client_ended && channel_backlog(&v->server) <= BACKLOG);
    channel_listen(&v->server, !v->server_ended && channel_backlog(&v->client) <= BACKLOG);
    loop_timer_start(v->timer, IDLE_MS, 0);
}

static void on_server(void *arg) {
    struct visit *v = arg;
    if (!v->ended && v->state == STATE_RELAY)
        relay(v);
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
        refuse(v, 502, "nothing answers at that port of the machine\n");
        return;
    }
    v->state = STATE_RELAY;
    if (!channel_write(&v->server, v->out.data, v->out.len)) {
        refuse(v, 502, "nothing answers at that port of the machine\n");
        return;
    }
    buf_done(&v->out);
    relay(v);
}

/* ---- a request ---- */

/* Without what is ours, and with a connection that ends after it. */
static bool put_head(const struct http_head *h, struct buf *out) {
    static const char *const dropped[] = {"Connection", "Keep-Alive", "Proxy-Connection",
                                          "Proxy-Authorization", "Carrel-Token"};
    bool ok = http_put_request_line(out, h->method, h->target);
    for (size_t i = 0; ok && i < h->count; i++) {
        const struct http_field *f = &h->fields[i];
        struct http_text token, whole;
        bool skip = false;
        for (size_t k = 0; k < sizeof(dropped) / sizeof(*dropped); k++)
            skip |= http_text_is_like(f->name, dropped[k]);
        if (skip)
            continue;
        if (http_text_is_like(f->name, "Cookie") &&
            find_pair(f->value, COOKIE, ';', &token, &whole)) {
            struct buf rest DEFER(buf_done) = BUF(HEAD_OUT_MAX);
            size_t before = (size_t)(whole.s - f->value.s);
            const char *behind = whole.s + whole.n, *end = f->value.s + f->value.n;
            while (!before && behind < end && *behind == ' ')
                behind++;
            while (behind == end && before && strchr("; ", f->value.s[before - 1]))
                before--;
            ok = (!before || buf_add(&rest, f->value.s, before)) &&
                 (behind == end || buf_add(&rest, behind, (size_t)(end - behind)));
            if (ok && rest.len)
                ok = http_put_field(out, f->name, (struct http_text){rest.data, rest.len});
            continue;
        }
        ok = http_put_field(out, f->name, f->value);
    }
    return ok &&
           http_put_pairs(out, HTTP_FIELDS({"Connection", h->upgrade ? "Upgrade" : "close"})) &&
           http_put_end(out);
}

static struct http_text token_of(const struct http_head *h, struct http_text *ret_whole) {
    struct http_text token = http_field_only(h, "Carrel-Token"),
                     cookie = http_field_only(h, "Cookie"), whole;
    ret_whole->s = NULL;
    if (token.s || (cookie.s && find_pair(cookie, COOKIE, ';', &token, &whole)))
        return token;
    if (h->query.s && find_pair(h->query, QUERY, '&', &token, ret_whole))
        return token;
    return (struct http_text){"", 0};
}

static void take(struct visit *v) {
    struct ingress *g = v->ingress;
    const struct http_head *h = &v->head;
    struct http_text host = http_field_only(h, "Host"), whole;
    char method[24], path[256];
    if (h->form != HTTP_ORIGIN || !host.s || !ingress_door_read(host, &v->door)) {
        answer(v, 404, "this is where machines show their ports: PORT-MACHINE" INGRESS_DOMAIN "\n",
               NULL);
        return;
    }
    struct http_text token = token_of(h, &whole);
    int status = token.n > INGRESS_TOKEN_MAX ? 401 : g->hooks->check(g->arg, &v->door, token);
    if (status) {
        refuse(v, status,
               status == 401 ? "this needs the token that `carrel expose` has printed\n"
                             : "no machine shows this port\n");
        return;
    }
    if (whole.s) {
        move_token(v, token, whole);
        return;
    }
    v->out = BUF(HEAD_OUT_MAX + HEAD_SIZE);
    if (!put_head(h, &v->out) || (v->n > v->parser.used && !buf_add(&v->out, v->in + v->parser.used,
                                                                    v->n - v->parser.used))) {
        refuse(v, 431, "that request is too long\n");
        return;
    }
    snprintf(method, sizeof(method), "%.*s", (int)h->method.n, h->method.s);
    snprintf(path, sizeof(path), "%.*s", (int)h->path.n, h->path.s);
    g->hooks->entered(g->arg, &v->door, method, path, NULL);
    v->state = STATE_DIAL;
    v->dialling = true;
    channel_listen(&v->client, false);
    loop_timer_start(v->timer, DIAL_MS, 0);
    g->hooks->dial(g->arg, &v->door, dialled, v);
}

static void read_head(struct visit *v) {
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
        take(v);
    else if (r < 0)
        answer(v, v->parser.refusal.status, v->parser.refusal.why, NULL);
}

/* What is thrown away here came after everything was said. */
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
    else if (v->state == STATE_HEAD)
        read_head(v);
    else if (v->state == STATE_RELAY)
        relay(v);
    else if (v->state == STATE_LAST)
        read_rest(v);
}

/* ---- the listener ---- */

static void visit_new(struct ingress *g, int fd) {
    struct visit *v = calloc(1, sizeof(*v));
    struct err err;
    if (!v)
        abort();
    v->ingress = g;
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
    loop_timer_start(v->timer, HEAD_MS, 0);
    channel_listen(&v->client, true);
}

static void on_accept(void *arg, unsigned events) {
    struct ingress *g = arg;
    (void)events;
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

struct ingress *ingress_new(struct loop *loop, const struct ingress_hooks *hooks, void *arg) {
    struct ingress *g = calloc(1, sizeof(*g));
    if (!g)
        abort();
    *g = (struct ingress){.loop = loop, .hooks = hooks, .arg = arg, .sock = -1};
    return g;
}

void ingress_free(struct ingress *g) {
    if (!g)
        return;
    while (g->visits)
        visit_free(g->visits);
    loop_watch_free(g->watch);
    close_fd(&g->sock);
    free(g);
}

static int read_where(const char *where, struct sockaddr_in *ret, struct err *err) {
    char host[64];
    uint64_t port;
    const char *colon = strrchr(where, ':');
    *ret = (struct sockaddr_in){.sin_family = AF_INET};
    if (!colon || (size_t)(colon - where) >= sizeof(host) ||
        parse_u64(colon + 1, 1, 65535, &port, NULL) < 0)
        return err_set(err, ERR_INVALID, "'%s' is not ADDRESS:PORT", where);
    snprintf(host, sizeof(host), "%.*s", (int)(colon - where), where);
    if (inet_pton(AF_INET, host, &ret->sin_addr) != 1)
        return err_set(err, ERR_INVALID, "'%s' is not an IPv4 address", host);
    ret->sin_port = htons((uint16_t)port);
    return 0;
}

int ingress_listen(struct ingress *g, const char *where, struct err *err) {
    struct sockaddr_in a;
    if (g->sock >= 0)
        return 0;
    if (read_where(where, &a, err) < 0)
        return -1;
    int sock DEFER_CLOSE = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sock < 0)
        return err_sys(err, "socket");
    setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(sock, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(sock, 256) < 0) {
        err_sys(err, "listen on '%s'", where);
        return err_remedy(err, "choose another one: [gate] ingress in carrel.conf");
    }
    if (loop_watch_new(g->loop, sock, LOOP_READ, on_accept, g, &g->watch, err) < 0)
        return -1;
    g->sock = TAKE_FD(sock);
    return 0;
}

void ingress_close(struct ingress *g, const char *machine, uint16_t port) {
    for (struct visit *v = g->visits; v; v = v->next)
        if (strcmp(v->door.machine, machine) == 0 && (!port || v->door.port == port))
            visit_end(v);
}
