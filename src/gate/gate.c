/* Machines and their listeners: accepts connections and answers DNS queries. */
#include "gate/gate.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "gate/dns.h"
#include "gate/inner.h"

/* The listening sockets (doors) of a machine, in the order in which the spawner sends them. */
enum { DOOR_STEERED, DOOR_PROXY, DOOR_DNS_UDP, DOOR_DNS_TCP };
enum { ACCEPTS = 64, LOOKUPS = 64, AGAIN_MS = 100 };

struct gate *gate_new(const struct gate_options *o) {
    struct gate *g = xnew(struct gate);
    *g = (struct gate){.loop = o->loop, .hooks = o->hooks, .arg = o->arg};
    g->resolver = resolver_new(o->loop);
    g->pipes = relay_pool_new();
    return g;
}

void gate_free(struct gate *g) {
    if (!g)
        return;
    while (g->machines)
        gate_remove(g->machines);
    SSL_CTX_free(g->trust);
    resolver_free(g->resolver);
    relay_pool_free(g->pipes);
    free(g);
}

int gate_set_name(struct gate *g, const char *name, const char *address, struct err *err) {
    return resolver_set(g->resolver, name, address, err);
}

void gate_unset_name(struct gate *g, const char *name) {
    resolver_unset(g->resolver, name);
}

struct resolver *gate_resolver(struct gate *g) {
    return g->resolver;
}

void gate_serve(struct gate *g, const char *name, gate_serve_fn *fn, void *arg) {
    g->served.name = name;
    g->served.fn = fn;
    g->served.arg = arg;
}

int gate_trust(struct gate *g, const char *more, struct err *err) {
    g->trust = trust_new(more, err);
    return g->trust ? 0 : -1;
}

void gate_set_authority(struct gate_machine *m, struct authority *a) {
    authority_free(m->authority);
    m->authority = a;
}

struct authority *gate_authority(struct gate_machine *m) {
    return m->authority;
}

void gate_set_grants(struct gate_machine *m, const struct secret_grants *grants) {
    if (!m->grants && !grants->count)
        return;
    if (!m->grants)
        m->grants = xnew(struct secret_grants);
    *m->grants = *grants;
}

const struct secret_grants *gate_grants(const struct gate_machine *m) {
    static const struct secret_grants none;
    return m->grants ? m->grants : &none;
}

void gate_set_database(struct gate_machine *m, const struct pg_database *d) {
    m->database = d ? *d : (struct pg_database){.host = ""};
}

const char *gate_machine_id(const struct gate_machine *m) {
    return m->id;
}

struct pending *gate_pending(struct gate_machine *m) {
    return m->pending;
}

bool gate_waits(const struct gate_machine *m) {
    for (const struct pending *p = m->pending; p; p = p->next)
        if (p->state != PENDING_PASSED)
            return true;
    return false;
}

struct pending *gate_pending_find(struct gate *g, const char *id) {
    for (struct gate_machine *m = g->machines; m; m = m->next)
        for (struct pending *p = m->pending; p; p = p->next)
            if (strcmp(p->id, id) == 0)
                return p;
    return NULL;
}

/* True if a rule expired in this period. */
static bool has_expired(const struct gate_machine *m, int64_t from_ms, int64_t to_ms) {
    for (size_t i = 0; i < m->policy.count; i++)
        if (m->policy.rules[i].expires_ms > from_ms && m->policy.rules[i].expires_ms <= to_ms)
            return true;
    return false;
}

void gate_look(struct gate_machine *m) {
    int64_t now = wall_ms();
    pending_look(m, loop_now_ms(m->gate->loop));
    if (has_expired(m, m->looked_ms, now))
        gate_changed(m);
    m->looked_ms = now;
}

void gate_stats(const struct gate *g, struct gate_stats *ret) {
    *ret = g->stats;
}

/* ---- machines ---- */

static void keep_name(void *arg, uint32_t number, const char *name) {
    struct gate_machine *m = arg;
    m->gate->hooks->named(m->gate->arg, m->id, number, name);
}

static void accept_again(void *arg) {
    struct gate_machine *m = arg;
    for (int i = 0; i < GATE_DOORS && m->listening; i++)
        loop_watch_set(m->doors[i].watch, LOOP_READ);
}

struct gate_machine *gate_add(struct gate *g, const char *id) {
    struct gate_machine *m = xnew(struct gate_machine);
    m->gate = g;
    snprintf(m->id, sizeof(m->id), "%s", id);
    m->names = (struct names){.added = keep_name, .arg = m};
    for (int i = 0; i < GATE_DOORS; i++)
        m->doors[i] = (struct door){.machine = m, .fd = -1};
    m->counters[0] = m->counters[1] = -1;
    m->again = loop_timer_new(g->loop, accept_again, m);
    m->next = g->machines;
    m->at = &g->machines;
    if (m->next)
        m->next->at = &m->next;
    g->machines = m;
    return m;
}

static void close_doors(struct gate_machine *m) {
    m->listening = false;
    loop_timer_stop(m->again);
    for (int i = 0; i < GATE_DOORS; i++) {
        loop_watch_free(TAKE(m->doors[i].watch));
        close_fd(&m->doors[i].fd);
    }
}

/* ---- packets that the kernel refuses ---- */

/* Reads only the start of the file, because the counters that we need are in its first lines. */
static void read_counters(int fd, char *to, size_t size) {
    ssize_t n = fd < 0 ? 0 : pread(fd, to, size - 1, 0);
    to[n > 0 ? n : 0] = '\0';
}

void gate_count_refused(struct gate_machine *m) {
    char snmp[1024], snmp6[1024];
    uint64_t now[REFUSED_KINDS];
    read_counters(m->counters[0], snmp, sizeof(snmp));
    read_counters(m->counters[1], snmp6, sizeof(snmp6));
    refused_read(snmp, snmp6, now);
    for (int kind = 0; kind < REFUSED_KINDS; kind++) {
        uint64_t before = m->refused[kind];
        if (now[kind] <= before)
            continue;
        m->refused[kind] = now[kind];
        m->gate->stats.refused += now[kind] - before;
        m->gate->hooks->refused(m->gate->arg, m->id,
                                &(struct gate_refusal){refused_protocol(kind), refused_why(kind),
                                                       now[kind] - before, now[kind]});
    }
}

/* Replaces the files with the kernel's counters. In a new network the counters start at 0; if the
 * files belong to the same network as before, the counters continue. */
static void take_counters(struct gate_machine *m, const int *fds) {
    struct stat old, new;
    gate_count_refused(m);
    bool same = m->counters[0] >= 0 && fstat(m->counters[0], &old) == 0 &&
                fstat(fds[0], &new) == 0 && old.st_ino == new.st_ino;
    if (!same)
        memset(m->refused, 0, sizeof(m->refused));
    for (int i = 0; i < PLAN_GATE_FDS - GATE_DOORS; i++) {
        close_fd(&m->counters[i]);
        m->counters[i] = fds[i];
    }
}

void gate_silence(struct gate_machine *m) {
    close_doors(m);
    for (struct conn *c = m->conns; c; c = c->next)
        conn_end(c, true, "the machine has ended");
}

void gate_remove(struct gate_machine *m) {
    if (!m)
        return;
    gate_silence(m);
    while (m->conns)
        conn_free(m->conns);
    *m->at = m->next;
    if (m->next)
        m->next->at = m->at;
    pending_clear(m);
    authority_free(m->authority);
    for (int i = 0; i < PLAN_GATE_FDS - GATE_DOORS; i++)
        close_fd(&m->counters[i]);
    loop_timer_free(m->again);
    names_done(&m->names);
    policy_done(&m->policy);
    free(m->grants);
    free(m);
}

void gate_restore_name(struct gate_machine *m, uint32_t number, const char *name) {
    names_restore(&m->names, number, name);
}

void gate_restored_names(struct gate_machine *m, uint32_t newest) {
    names_go_on(&m->names, newest);
}

struct policy *gate_policy(struct gate_machine *m) {
    return &m->policy;
}

void gate_changed(struct gate_machine *m) {
    for (struct conn *c = m->conns; c; c = c->next)
        conn_review(c);
    pending_review(m);
}

/* ---- connections ---- */

/* Resets a connection above the limit of open connections. If it stayed in the backlog, the client
 * would hang until a timeout. */
static void turn_away(struct gate_machine *m, int fd) {
    struct linger now = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(fd);
    m->gate->stats.overflows++;
    const struct gate_crossing c = {
        .outcome = GATE_DENIED, .host = "", .why = "the machine has too many open connections"};
    m->gate->hooks->crossed(m->gate->arg, m->id, &c);
}

/* Returns -1 with errno on failure; EAGAIN also if file descriptors ran out and accepting is
 * paused. */
static int accept_one(const struct door *d) {
    int fd = accept4(d->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0 || (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM))
        return fd;
    loop_watch_set(d->watch, 0); /* otherwise the loop would report the socket again at once */
    loop_timer_start(d->machine->again, AGAIN_MS, 0);
    errno = EAGAIN;
    return -1;
}

static void accept_some(struct door *d, bool is_proxy) {
    struct gate_machine *m = d->machine;
    for (int i = 0; i < ACCEPTS; i++) {
        int fd = accept_one(d);
        if (fd < 0 && errno == EAGAIN)
            return;
        if (fd < 0)
            continue; /* the client has already gone */
        if (m->conn_count >= GATE_CONNECTIONS)
            turn_away(m, fd);
        else
            conn_new(m, fd, is_proxy);
    }
}

int gate_enter(struct gate_machine *m, bool is_tls, struct err *err) {
    int ends[2];
    if (m->conn_count >= GATE_CONNECTIONS)
        return err_set(err, ERR_LIMIT, "machine '%s' has too many connections", m->id);
    if (is_tls && !m->gate->trust)
        return err_set(err, ERR_UNSUPPORTED, "the gate has no certificates to verify servers with");
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
        return err_sys(err, "cannot connect to the gate");
    conn_new_inside(m, ends[0], is_tls);
    return ends[1];
}

/* ---- name lookups ---- */

/* New host names are written to the store, so their rate is limited. */
static bool may_name(struct gate_machine *m) {
    uint64_t now = loop_now_ms(m->gate->loop);
    if (now - m->named_ms >= 1000) {
        m->named_ms = now;
        m->named = 0;
    }
    return m->named++ < GATE_NEW_NAMES;
}

static uint32_t gate_look_up(void *arg, const char *name) {
    struct gate_machine *m = arg;
    m->gate->stats.lookups++;
    if (!names_has(&m->names, name) && !may_name(m))
        return 0;
    return names_address(&m->names, name);
}

static void answer_lookups(struct door *d) {
    uint8_t query[DNS_QUERY_MAX], reply[DNS_MESSAGE_MAX];
    for (int i = 0; i < LOOKUPS; i++) {
        struct sockaddr_storage from;
        socklen_t size = sizeof(from);
        ssize_t n = recvfrom(d->fd, query, sizeof(query), 0, (struct sockaddr *)&from, &size);
        if (n < 0)
            return;
        size_t len = dns_answer(query, (size_t)n, gate_look_up, d->machine, reply);
        if (len)
            (void)!sendto(d->fd, reply, len, MSG_NOSIGNAL, (struct sockaddr *)&from, size);
    }
}

/* DNS over TCP. TCP_DEFER_ACCEPT: the query has arrived when the connection is accepted. */
static void answer_stream(struct door *d) {
    uint8_t in[2 + DNS_MESSAGE_MAX], out[2 + DNS_MESSAGE_MAX];
    int fd DEFER_CLOSE = accept_one(d);
    ssize_t n = fd < 0 ? -1 : recv(fd, in, sizeof(in), 0);
    if (n < 2 || (size_t)n < 2 + ((size_t)in[0] << 8 | in[1]))
        return;
    size_t len = dns_answer(in + 2, (size_t)in[0] << 8 | in[1], gate_look_up, d->machine, out + 2);
    out[0] = (uint8_t)(len >> 8);
    out[1] = (uint8_t)len;
    if (len)
        (void)!send(fd, out, len + 2, MSG_NOSIGNAL);
}

static void on_door(void *arg, unsigned events) {
    struct door *d = arg;
    struct gate_machine *m = d->machine;
    (void)events;
    switch (d - m->doors) {
    case DOOR_STEERED:
    case DOOR_PROXY:
        accept_some(d, d - m->doors == DOOR_PROXY);
        break;
    case DOOR_DNS_UDP:
        answer_lookups(d);
        break;
    case DOOR_DNS_TCP:
        answer_stream(d);
        break;
    }
}

int gate_listen(struct gate_machine *m, const int *doors, struct err *err) {
    close_doors(m);
    take_counters(m, doors + GATE_DOORS);
    for (int i = 0; i < GATE_DOORS; i++)
        m->doors[i].fd = doors[i];
    for (int i = 0; i < GATE_DOORS; i++)
        if (loop_watch_new(m->gate->loop, m->doors[i].fd, LOOP_READ, on_door, &m->doors[i],
                           &m->doors[i].watch, err) < 0) {
            close_doors(m);
            return -1;
        }
    setsockopt(m->doors[DOOR_DNS_TCP].fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &(int){5}, sizeof(int));
    m->listening = true;
    return 0;
}

bool gate_listens(const struct gate_machine *m) {
    return m->listening;
}
