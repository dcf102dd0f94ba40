/* Connects to the server: resolves its name and tries its addresses in turn. */
#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/defer.h"
#include "gate/address.h"
#include "gate/inner.h"

static void dial_done(struct conn *c, const struct err *err) {
    void (*fn)(struct conn *, const struct err *) = c->dialled;
    c->dialled = NULL;
    conn_timer(c, 0);
    if (err)
        channel_close(&c->server);
    fn(c, err);
}

static void on_server(void *arg);

static int dial_one(struct conn *c, const struct sockaddr_storage *to, struct err *err) {
    struct sockaddr_storage a = *to;
    if (a.ss_family == AF_INET)
        ((struct sockaddr_in *)(void *)&a)->sin_port = htons(c->port);
    else
        ((struct sockaddr_in6 *)(void *)&a)->sin6_port = htons(c->port);
    socklen_t size =
        a.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    address_text((struct sockaddr *)&a, c->address_text);
    int fd DEFER_CLOSE = socket(a.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || (connect(fd, (struct sockaddr *)&a, size) < 0 && errno != EINPROGRESS))
        return err_sys(err, "cannot connect to host '%s'", c->host);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (channel_open(&c->server, c->machine->gate->loop, TAKE_FD(fd), on_server, c, err) < 0)
        return -1;
    loop_watch_set(c->server.watch, LOOP_WRITE); /* tells that connect() succeeded or failed */
    c->server.armed = LOOP_WRITE;
    conn_timer(c, GATE_DIAL_MS);
    return 0;
}

/*
 * Whether this connection may not be made to this address; `err` gets the reason. A range never
 * leads to this host, its link or a metadata service, even with `local`: that needs a rule that
 * names the address.
 */
static bool is_refused(struct conn *c, const struct sockaddr *to, struct err *err) {
    enum address_kind kind = address_kind_of(to);
    const struct policy_rule *by = policy_find(&c->machine->policy, c->rule),
                             *denied = conn_denied(c, to);
    char target[POLICY_TARGET_SIZE];
    if (denied) {
        policy_target_write(denied, target);
        err_set(err, ERR_DENIED, "host '%s' leads to an address that rule %" PRIu64 " denies: %s",
                c->host, denied->id, target);
        c->dial_remedy = REMEDY_NONE;
    } else if (by && by->host_kind == HOST_RANGE &&
               (kind == ADDRESS_LOOPBACK || kind == ADDRESS_LINK_LOCAL ||
                kind == ADDRESS_METADATA || address_is_of_host(to))) {
        err_set(err, ERR_DENIED, "'%s' is an address of this host or its link: no range allows it",
                c->host);
        c->dial_remedy = REMEDY_LOCAL;
    } else if (kind != ADDRESS_PUBLIC && !c->local) {
        err_set(err, ERR_DENIED, "host '%s' resolves to a %s address", c->host,
                address_kind_name(kind));
        c->dial_remedy = REMEDY_LOCAL;
    } else {
        return false;
    }
    return true;
}

/* Tries the next address that the rule allows. why: the error if no address is left, such as why
 * the address before failed. */
void conn_dial_next(struct conn *c, const char *why) {
    struct err err, refused;
    bool is_denied = false;
    err_set(&err, ERR_UNKNOWN, "cannot connect to host '%s': %s", c->host, why);
    channel_close(&c->server);
    while (c->address < c->addresses.count) {
        const struct sockaddr_storage *a = &c->addresses.list[c->address++];
        if (is_refused(c, (const struct sockaddr *)a, &refused)) {
            is_denied = true;
            continue;
        }
        c->tried = true;
        if (dial_one(c, a, &err) == 0)
            return;
    }
    dial_done(c, is_denied && !c->tried ? &refused : &err);
}

static void connected(struct conn *c) {
    int e = 0;
    socklen_t size = sizeof(e);
    getsockopt(c->server.fd, SOL_SOCKET, SO_ERROR, &e, &size);
    if (e) {
        conn_dial_next(c, strerror(e));
        return;
    }
    loop_watch_set(c->server.watch, 0);
    c->server.armed = 0;
    dial_done(c, NULL);
}

static void on_resolved(void *arg, const struct resolved *found, const struct err *err) {
    struct conn *c = arg;
    c->resolving = NULL;
    if (c->ended)
        return;
    if (err) {
        dial_done(c, err);
        return;
    }
    c->addresses = *found;
    c->address = 0;
    c->tried = false;
    conn_dial_next(c, "the host name has no address");
}

bool conn_is_served(const struct conn *c) {
    const struct gate *g = c->machine->gate;
    return g->served.name && !c->is_address && strcmp(c->host, g->served.name) == 0;
}

int conn_open_server(struct conn *c, int fd, struct err *err) {
    return channel_open(&c->server, c->machine->gate->loop, fd, on_server, c, err);
}

/* Connects to a server inside this process (gate_serve()). */
static void dial_served(struct conn *c) {
    struct gate *g = c->machine->gate;
    int ends[2];
    struct err err;
    channel_close(&c->server);
    c->address_text[0] = '\0';
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0) {
        err_sys(&err, "cannot connect to host '%s'", c->host);
        dial_done(c, &err);
        return;
    }
    if (channel_open(&c->server, g->loop, ends[0], on_server, c, &err) < 0) {
        close(ends[1]);
        dial_done(c, &err);
        return;
    }
    g->served.fn(g->served.arg, c->machine->id, ends[1]);
    dial_done(c, NULL);
}

void conn_dial(struct conn *c, const struct policy_rule *rule,
               void (*fn)(struct conn *c, const struct err *err)) {
    c->rule = rule->id;
    c->local = rule->local;
    c->dialled = fn;
    channel_listen(&c->client, false);
    conn_timer(c, 0);
    if (conn_is_served(c)) {
        dial_served(c);
        return;
    }
    struct resolver_call *call = resolver_ask(c->machine->gate->resolver, c->host, on_resolved, c);
    if (call)
        c->resolving = call;
}

static void on_server(void *arg) {
    struct conn *c = arg;
    if (c->ended)
        return;
    if (c->dialled)
        connected(c);
    else if (c->state == CONN_WEB)
        web_event(c);
    else if (c->state == CONN_PG)
        pg_event(c);
}
