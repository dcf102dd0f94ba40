#include "api/e2b/ports.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/jot.h"
#include "base/parse.h"
#include "service/net/expose.h"
#include "service/net/forward.h"

enum {
    HEAD_SIZE = 16384,
    HEAD_OUT_MAX = 32768,
    PIECE = 16384,
    TURNS = 16,
    HELD_HIGH = 256 << 10, /* the client waits while more bytes wait for the program */
    HELD_MAX = 4 << 20,
};

#define MESSAGE_CLOSED "The sandbox is running but port is not open"

struct e2b_ports {
    struct service *service;
    struct http_server *hosts; /* of requests by host name */
    struct passage *passages;
    size_t busy;
    bool freed; /* the last passage frees this */
};

/* One request, or one WebSocket. */
struct passage {
    struct e2b_ports *ports;
    struct passage *next, **at;
    struct http_exchange *http; /* NULL: the client has gone, and the dial still goes on */
    char label[ID_LABEL_SIZE];
    uint16_t port;
    struct forward *forward;
    struct loop_watch *watch;
    int fd;
    bool dialling;
    bool ended;    /* the client sends no more bytes */
    bool closed;   /* the program was told so */
    bool deaf;     /* the program takes no more bytes, but may still answer */
    bool begun;    /* the head of the answer was sent */
    bool upgraded; /* bytes go both ways without a form */
    struct buf held;
    struct http_parser parser;
    struct http_head head;
    size_t n;
    char back[HEAD_SIZE];
    struct http_body body;
};

/* ---- the end of a passage ---- */

static void ports_unref(struct e2b_ports *p) {
    if (--p->busy == 0 && p->freed)
        free(p);
}

static void passage_free(struct passage *p) {
    *p->at = p->next;
    if (p->next)
        p->next->at = p->at;
    loop_watch_free(p->watch);
    close_fd(&p->fd);
    if (p->forward)
        service_forward_over(p->forward);
    buf_done(&p->held);
    ports_unref(p->ports);
    free(p);
}

/* Ends the exchange without the end of its answer, by which the client knows that it was cut. */
static void passage_cut(struct passage *p) {
    http_drop(TAKE(p->http));
    if (!p->dialling)
        passage_free(p);
}

static void passage_gone(struct http_exchange *x) {
    passage_cut(x->user);
}

void e2b_port_refuse(struct http_exchange *x, int status, struct http_text label, uint16_t port,
                     const char *message) {
    struct buf text DEFER(buf_done) = BUF(1024);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_bytes(&j, "sandboxId", label.s, label.n < ID_LABEL_SIZE ? label.n : 0);
    jot_string(&j, "message", message);
    if (port)
        jot_u64(&j, "port", port);
    jot_u64(&j, "code", (uint64_t)status);
    jot_end(&j, '}');
    http_reply(x, status,
               HTTP_FIELDS({"Content-Type", "application/json"}, {"Cache-Control", "no-store"},
                           {"X-Content-Type-Options", "nosniff"}),
               text.data, text.len);
}

static void passage_refuse(struct passage *p, const char *message) {
    e2b_port_refuse(TAKE(p->http), 502, (struct http_text){p->label, strlen(p->label)}, p->port,
                    message);
    passage_free(p);
}

/* ---- heads ---- */

static bool is_among(struct http_text name, const char *const *names) {
    while (*names && !http_text_is_like(name, *names))
        names++;
    return *names;
}

/* Fields that are about one connection, or that the server writes itself. */
static const char *const own_fields[] = {"Connection",        "Keep-Alive",     "Proxy-Connection",
                                         "Transfer-Encoding", "Content-Length", NULL};

static bool put_request(const struct http_head *h, struct service *s, struct buf *out) {
    static const char *const not_for_programs[] = {"Expect", "Upgrade", E2B_TRAFFIC_FIELD,
                                                   "Carrel-Token", NULL};
    bool upgrades = h->upgrade && h->framing == HTTP_NO_BODY;
    struct http_text upgrade = http_field_only(h, "Upgrade");
    bool ok = http_put_request_line(out, h->method, h->target);
    for (size_t i = 0; ok && i < h->count; i++)
        if (!is_among(h->fields[i].name, own_fields) &&
            !is_among(h->fields[i].name, not_for_programs) &&
            !service_is_credential(s, &h->fields[i]))
            ok = http_put_field(out, h->fields[i].name, h->fields[i].value);
    if (h->framing == HTTP_SIZED)
        ok = ok && http_put_number(out, "Content-Length", h->length);
    else if (h->framing == HTTP_CHUNKED)
        ok = ok && http_put_pairs(out, HTTP_FIELDS({"Transfer-Encoding", "chunked"}));
    if (upgrades && upgrade.s)
        ok = ok && http_put_field(out, HTTP_TEXT("Upgrade"), upgrade);
    return ok &&
           http_put_pairs(
               out, HTTP_FIELDS({"Connection", upgrades && upgrade.s ? "Upgrade" : "close"})) &&
           http_put_end(out);
}

/* The fields of an answer as texts that end with a NUL. */
struct answer_fields {
    char text[HEAD_SIZE + 2 * HTTP_FIELDS_MAX];
    struct http_pair pairs[HTTP_FIELDS_MAX + 2];
    size_t n, count;
};

static const char *keep_text(struct answer_fields *f, struct http_text t) {
    char *at = f->text + f->n;
    memcpy(at, t.s, t.n);
    at[t.n] = '\0';
    f->n += t.n + 1;
    return at;
}

static void read_fields(const struct http_head *h, struct answer_fields *ret) {
    static const char *const of_server[] = {"Date", NULL};
    ret->n = ret->count = 0;
    for (size_t i = 0; i < h->count; i++) {
        const struct http_field *f = &h->fields[i];
        if (is_among(f->name, own_fields) || is_among(f->name, of_server))
            continue;
        ret->pairs[ret->count].name = keep_text(ret, f->name);
        ret->pairs[ret->count++].value = keep_text(ret, f->value);
    }
    if (h->status == 101)
        ret->pairs[ret->count++] = (struct http_pair){"Connection", "Upgrade"};
    ret->pairs[ret->count] = (struct http_pair){NULL, NULL};
}

/* The length of the answer's body; -1: unknown. An answer to HEAD says what GET would send. */
static int64_t length_of(const struct http_head *h, bool answers_head) {
    struct http_text given = http_field_only(h, "Content-Length");
    char text[24];
    uint64_t n;
    if (h->framing == HTTP_SIZED)
        return (int64_t)h->length;
    if (!answers_head)
        return h->framing == HTTP_NO_BODY ? 0 : -1;
    if (!given.s || given.n >= sizeof(text))
        return -1;
    memcpy(text, given.s, given.n);
    text[given.n] = '\0';
    return parse_u64(text, 0, INT64_MAX, &n, NULL) < 0 ? -1 : (int64_t)n;
}

/* ---- from the client to the program ---- */

static void passage_go_on(struct passage *p);

/* A client that has finished a WebSocket closes the program's side too. */
static void passage_raw(struct http_exchange *x, const char *bytes, size_t n) {
    struct passage *p = x->user;
    p->ended = !n;
    if (n && !buf_add(&p->held, bytes, n))
        passage_cut(p);
    else
        passage_go_on(p);
}

static bool hold_chunk(struct passage *p, const char *bytes, size_t n) {
    char line[HTTP_CHUNK_LINE_MAX];
    if (!n)
        return buf_add(&p->held, HTTP_LAST_CHUNK, strlen(HTTP_LAST_CHUNK));
    return buf_add(&p->held, line, http_chunk_line(line, n)) && buf_add(&p->held, bytes, n) &&
           buf_add(&p->held, "\r\n", 2);
}

static void passage_body(struct http_exchange *x, const char *bytes, size_t n) {
    struct passage *p = x->user;
    bool ok = p->deaf || (x->head->framing == HTTP_CHUNKED ? hold_chunk(p, bytes, n)
                                                           : !n || buf_add(&p->held, bytes, n));
    p->ended = !n;
    if (!ok)
        passage_cut(p);
    else if (p->fd >= 0)
        passage_go_on(p);
    else if (p->held.len > HELD_HIGH)
        http_pause(x);
}

static void passage_send(struct passage *p) {
    while (p->held.len) {
        ssize_t n = send(p->fd, p->held.data, p->held.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        p->deaf = p->deaf || n < 0;
        buf_drop(&p->held, n < 0 ? p->held.len : (size_t)n);
    }
    if (p->upgraded && p->ended && !p->held.len && !p->closed) {
        p->closed = true;
        shutdown(p->fd, SHUT_WR);
    }
    if (p->held.len > HELD_HIGH)
        http_pause(p->http);
    else
        http_resume(p->http);
}

/* ---- from the program to the client ---- */

enum outcome { GO_ON, ENDED, CUT, MALFORMED };

static enum outcome take_body(struct passage *p, const char *bytes, size_t n) {
    while (n) {
        size_t used;
        struct http_text data;
        int r = http_body_next(&p->body, bytes, n, &used, &data);
        if (r < 0 || (r == 0 && !used))
            return CUT;
        if (data.n)
            http_write(p->http, data.s, data.n);
        if (r > 0)
            return ENDED;
        bytes += used;
        n -= used;
    }
    return GO_ON;
}

static enum outcome take_bytes(struct passage *p, const char *bytes, size_t n) {
    if (!p->upgraded)
        return take_body(p, bytes, n);
    http_write(p->http, bytes, n);
    return GO_ON;
}

/* The head is complete. */
static enum outcome begin_answer(struct passage *p) {
    struct answer_fields *fields DEFER_FREE = xnew(struct answer_fields);
    const struct http_head *asked = p->http->head, *h = &p->head;
    bool upgrades = asked->upgrade && asked->framing == HTTP_NO_BODY;
    size_t used = p->parser.used;
    read_fields(h, fields);
    if (h->status == 101 && !upgrades)
        return MALFORMED;
    if (h->status < 200 && h->status != 101) { /* the server has said so itself */
        p->n -= used;
        memmove(p->back, p->back + used, p->n);
        http_parse_begin(&p->parser, HTTP_RESPONSE, &HTTP_LIMITS_DEFAULT, &p->head);
        p->parser.answers_head = http_text_is(asked->method, "HEAD");
        return GO_ON;
    }
    p->begun = true;
    p->upgraded = h->status == 101;
    if (p->upgraded)
        http_upgrade(p->http, 101, fields->pairs, passage_raw);
    else
        http_begin(p->http, h->status, fields->pairs, length_of(h, p->parser.answers_head));
    http_body_begin(&p->body, h);
    if (!p->upgraded && (h->framing == HTTP_NO_BODY || (h->framing == HTTP_SIZED && !h->length)))
        return ENDED;
    return take_bytes(p, p->back + used, p->n - used);
}

static enum outcome take_head(struct passage *p, const char *bytes, size_t n) {
    if (n > sizeof(p->back) - p->n)
        return MALFORMED;
    memcpy(p->back + p->n, bytes, n);
    p->n += n;
    enum outcome o = GO_ON;
    while (o == GO_ON && !p->begun) {
        int r = http_parse(&p->parser, p->back, p->n);
        if (r == 0)
            break;
        o = r < 0 ? MALFORMED : begin_answer(p);
    }
    return o;
}

/* The program closed its connection, or it broke. */
static enum outcome at_close(struct passage *p, bool broke) {
    if (!p->begun)
        return MALFORMED;
    return !broke && (p->upgraded || http_body_at_close(&p->body)) ? ENDED : CUT;
}

static enum outcome passage_receive(struct passage *p) {
    char bytes[PIECE];
    enum outcome o = GO_ON;
    for (int i = 0; o == GO_ON && i < TURNS && !(p->begun && http_is_full(p->http)); i++) {
        ssize_t n = recv(p->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n <= 0)
            o = at_close(p, n < 0);
        else
            o = p->begun ? take_bytes(p, bytes, (size_t)n) : take_head(p, bytes, (size_t)n);
    }
    return o;
}

static void passage_go_on(struct passage *p) {
    passage_send(p);
    switch (passage_receive(p)) {
    case GO_ON:
        break;
    case ENDED:
        http_end(TAKE(p->http));
        passage_free(p);
        return;
    case CUT:
        passage_cut(p);
        return;
    case MALFORMED:
        passage_refuse(p, "The answer of the program at this port is not HTTP");
        return;
    }
    bool reads = !(p->begun && http_is_full(p->http));
    loop_watch_set(p->watch, (reads ? LOOP_READ : 0) | (p->held.len ? LOOP_WRITE : 0));
}

static void passage_event(void *arg, unsigned events) {
    (void)events;
    passage_go_on(arg);
}

static void passage_drained(struct http_exchange *x) {
    passage_go_on(x->user);
}

/* ---- requests ---- */

static void passage_dialled(void *arg, struct forward *f, int fd, const struct err *failed) {
    struct passage *p = arg;
    struct err err;
    p->dialling = false;
    p->forward = f;
    p->fd = fd;
    if (!p->http)
        passage_free(p);
    else if (failed || loop_watch_new(http_loop(p->http), fd, LOOP_READ, passage_event, p,
                                      &p->watch, &err) < 0)
        passage_refuse(p, MESSAGE_CLOSED);
    else
        passage_go_on(p);
}

void e2b_ports_take(struct e2b_ports *ports, struct http_exchange *x, const struct e2b_target *t,
                    uint16_t port) {
    struct passage *p = xnew(struct passage);
    *p = (struct passage){.ports = ports,
                          .http = x,
                          .port = port,
                          .fd = -1,
                          .dialling = true,
                          .held = BUF(HELD_MAX),
                          .next = ports->passages,
                          .at = &ports->passages};
    id_to_label(t->id, p->label);
    if (p->next)
        p->next->at = &p->next;
    ports->passages = p;
    ports->busy++;
    http_parse_begin(&p->parser, HTTP_RESPONSE, &HTTP_LIMITS_DEFAULT, &p->head);
    p->parser.answers_head = http_text_is(x->head->method, "HEAD");
    x->user = p;
    x->on_gone = passage_gone;
    x->on_drain = passage_drained;
    if (!put_request(x->head, ports->service, &p->held)) {
        p->dialling = false;
        passage_refuse(p, "The head of the request is too long");
        return;
    }
    if (x->head->framing == HTTP_NO_BODY)
        http_hold(x);
    else
        http_receive(x, INT64_MAX, passage_body);
    service_forward(ports->service, &t->owner, t->id, port, passage_dialled, p);
}

/* ---- host names ---- */

static bool find_door(struct e2b_ports *p, const char *machine, struct e2b_target *ret) {
    char label[ID_LABEL_SIZE];
    id_to_label(machine, label);
    return e2b_target_find(p->service, (struct http_text){label, strlen(label)}, "ingress", ret);
}

static int door_check(void *arg, const char *machine, uint16_t port, const char *token, size_t n) {
    struct e2b_ports *p = arg;
    struct e2b_target t;
    if (!port || port == E2B_CONTROL_PORT || !find_door(p, machine, &t))
        return 404;
    return !t.is_private || e2b_target_has_token(p->service, &t, MACHINE_TOKEN_TRAFFIC,
                                                 (struct http_text){token, n})
               ? 0
               : INGRESS_TRAFFIC;
}

struct door {
    struct service *service;
    struct e2b_target target;
    uint16_t port;
    service_dialled_fn *fn;
    void *arg;
};

/* The listener itself ends its connections with the machine. */
static void door_dialled(void *arg, struct forward *f, int fd, const struct err *err) {
    struct door *d DEFER_FREE = arg;
    if (f)
        service_forward_over(f);
    d->fn(d->arg, fd, err);
}

static void door_woken(void *arg, const struct err *err) {
    struct door *d = arg;
    if (err)
        door_dialled(d, NULL, -1, err);
    else
        service_forward(d->service, &d->target.owner, d->target.id, d->port, door_dialled, d);
}

static void door_dial(void *arg, const char *machine, uint16_t port, service_dialled_fn *fn,
                      void *fn_arg) {
    struct e2b_ports *p = arg;
    struct door *d = xnew(struct door);
    struct err err;
    *d = (struct door){.service = p->service, .port = port, .fn = fn, .arg = fn_arg};
    err_set(&err, ERR_GONE, "the machine has ended");
    bool found = find_door(p, machine, &d->target);
    if (!found || d->target.runs)
        door_woken(d, found ? NULL : &err);
    else
        e2b_target_wake(p->service, &d->target, door_woken, d);
}

static bool door_serves(void *arg, struct http_text name) {
    struct ingress_door door;
    (void)arg;
    return http_text_is_like(name, E2B_API_NAME) ||
           (service_expose_door(name, &door) &&
            (door.port == E2B_CONTROL_PORT || door.port == E2B_CODE_PORT));
}

static void door_serve(void *arg, int fd, const struct ingress_client *client) {
    struct e2b_ports *p = arg;
    struct http_peer peer = {.pid = -1, .uid = (uid_t)-1, .gid = (gid_t)-1, .secure = client->tls};
    snprintf(peer.text, sizeof(peer.text), "%s", client->address);
    http_serve_for(p->hosts, fd, &peer);
}

static const struct expose_face door_face = {door_check, door_dial, door_serves, door_serve};

/* ---- the lifetime of all ---- */

struct e2b_ports *e2b_ports_new(struct service *service, struct http_server *hosts) {
    struct e2b_ports *p = xnew(struct e2b_ports);
    p->service = service;
    p->hosts = hosts;
    service_set_expose_face(service, &door_face, p);
    return p;
}

void e2b_ports_free(struct e2b_ports *p) {
    service_set_expose_face(p->service, NULL, NULL);
    p->freed = true;
    p->busy++;
    for (struct passage *one = p->passages, *next; one; one = next) {
        next = one->next;
        if (one->http)
            passage_cut(one);
    }
    ports_unref(p);
}

size_t e2b_ports_busy(const struct e2b_ports *p) {
    return p->busy;
}
