#include "gate/pending.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "gate/inner.h"

static const char *protocol_of(const struct conn *c) {
    return c->knows_protocol ? policy_protocol_name(c->protocol) : "tcp";
}

/* A request inside TLS and the same one in the clear are different items: the owner sees which of
 * the two waits, and a rule for one does not match the other. */
static bool is_about(const struct pending *p, const struct conn *c, const struct pending_wish *w) {
    return p->state != PENDING_PASSED && p->port == c->port && strcmp(p->host, c->host) == 0 &&
           strcmp(p->protocol, protocol_of(c)) == 0 && strcmp(p->method, w->method) == 0 &&
           strcmp(p->path, w->path) == 0 && strcmp(p->query, w->query) == 0 && p->body == w->body &&
           strcmp(p->hash, w->hash) == 0 && strcmp(p->fields, w->fields) == 0;
}

static enum policy_protocol protocol_named(const char *name) {
    enum policy_protocol p = PROTOCOL_HTTP;
    while (p < PROTOCOL_TCP && strcmp(policy_protocol_name(p), name) != 0)
        p++;
    return p;
}

/* Asks the policy again about the request of the item. A rule that was added again has a new id. */
static void review_item(struct pending *p) {
    const struct policy_query q = {.host = p->host,
                                   .port = p->port,
                                   .knows_protocol = true,
                                   .protocol = protocol_named(p->protocol),
                                   .method = p->method[0] ? p->method : NULL,
                                   .path = p->path,
                                   .query = p->query,
                                   .now_ms = wall_ms()};
    const struct policy_answer a = policy_decide(&p->machine->policy, &q);
    p->decided = a.want != POLICY_KNOWN || a.action != POLICY_ASK;
    if (p->decided)
        return;
    p->rule = a.rule->id;
    for (struct conn *c = p->held; c; c = c->held_next)
        c->rule = p->rule;
}

void pending_review(struct gate_machine *m) {
    for (struct pending *p = m->pending; p; p = p->next)
        review_item(p);
}

static size_t pending_count(const struct gate_machine *m, bool passed) {
    size_t n = 0;
    for (const struct pending *p = m->pending; p; p = p->next)
        n += (p->state == PENDING_PASSED) == passed;
    return n;
}

static void pending_tell(const struct pending *p, bool gone) {
    struct gate *g = p->machine->gate;
    g->hooks->pended(g->arg, p->machine->id, p, gone);
}

static struct pending *pending_new(struct conn *c, const struct pending_wish *w) {
    struct gate_machine *m = c->machine;
    struct pending *p = xnew(struct pending);
    p->path = xstrdup(w->path);
    p->query = xstrdup(w->query);
    p->body = w->body;
    snprintf(p->hash, sizeof(p->hash), "%s", w->hash);
    snprintf(p->fields, sizeof(p->fields), "%s", w->fields);
    p->machine = m;
    p->port = c->port;
    p->rule = c->rule;
    p->since_ms = wall_ms();
    snprintf(p->id, sizeof(p->id), "%s", id_new('p').text);
    snprintf(p->host, sizeof(p->host), "%s", c->host);
    snprintf(p->method, sizeof(p->method), "%s", w->method);
    snprintf(p->protocol, sizeof(p->protocol), "%s", protocol_of(c));
    p->next = m->pending;
    m->pending = p;
    return p;
}

struct pending *pending_for(struct conn *c, const struct pending_wish *w, uint64_t hold_ms) {
    struct gate_machine *m = c->machine;
    for (struct pending *p = m->pending; p; p = p->next)
        if (is_about(p, c, w))
            return p;
    if (pending_count(m, false) >= PENDING_MAX)
        return NULL;
    struct pending *p = pending_new(c, w);
    p->until_ms = loop_now_ms(m->gate->loop) + (hold_ms ? hold_ms : POLICY_HOLD_MS);
    pending_tell(p, false);
    return p;
}

static void unlist(struct pending *p) {
    struct pending **at = &p->machine->pending;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
}

static void pending_drop(struct pending *p) {
    while (p->held)
        pending_leave(p->held);
    free(p->path);
    free(p->query);
    free(p);
}

static void pending_forget(struct pending *p) {
    unlist(p);
    pending_drop(p);
}

static void pending_free(struct pending *p) {
    pending_tell(p, true);
    pending_forget(p);
}

/* Marks the item as passed: its request was let through. Passed items exist only in memory; the
 * oldest is dropped when there are many. */
static void pass(struct pending *p) {
    struct gate_machine *m = p->machine;
    struct pending *oldest = NULL;
    pending_tell(p, true);
    p->state = PENDING_PASSED;
    p->until_ms = loop_now_ms(m->gate->loop) + PENDING_PASSED_MS;
    for (struct pending *o = m->pending; o; o = o->next)
        if (o->state == PENDING_PASSED && o != p && (!oldest || o->until_ms <= oldest->until_ms))
            oldest = o;
    if (oldest && pending_count(m, true) > PENDING_MAX)
        pending_forget(oldest);
}

void gate_restore_pending(struct gate_machine *m, const struct pending *kept, uint64_t left_ms) {
    struct pending *p = xnew(struct pending);
    *p = *kept;
    p->path = xstrdup(kept->path);
    p->query = xstrdup(kept->query);
    p->machine = m;
    p->held = NULL;
    p->until_ms = loop_now_ms(m->gate->loop) + left_ms;
    p->next = m->pending;
    m->pending = p;
    review_item(p);
}

bool pending_use(struct pending *p) {
    if (p->state != PENDING_APPROVED)
        return false;
    pass(p);
    return true;
}

void pending_hold(struct pending *p, struct conn *c) {
    c->held = p;
    c->held_next = p->held;
    p->held = c;
}

/* Bytes that are not printable become dots. */
const char *pending_first(struct pending *p) {
    if (p->first[0] || p->method[0] || !p->held)
        return p->first;
    ssize_t n = recv(p->held->client.fd, p->first, sizeof(p->first) - 1, MSG_PEEK | MSG_DONTWAIT);
    for (ssize_t i = 0; i < n; i++)
        if ((p->first[i] < ' ' && p->first[i] != '\n') || p->first[i] > '~')
            p->first[i] = '.';
    p->first[n > 0 ? n : 0] = '\0';
    return p->first;
}

void pending_leave(struct conn *c) {
    struct pending *p = c->held;
    if (!p)
        return;
    struct conn **at = &p->held;
    while (*at != c)
        at = &(*at)->held_next;
    *at = c->held_next;
    c->held = NULL;
    c->held_next = NULL;
}

/* Ends waiting connections whose client has closed, so that an approval does not go to them. */
static void drop_gone(struct pending *p) {
    for (struct conn *c = p->held, *next; c; c = next) {
        char byte;
        next = c->held_next;
        if (recv(c->client.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
            conn_end(c, false, NULL);
    }
}

const struct conn *pending_next(const struct conn *c) {
    return c->held_next;
}

/* Unlinks the connection before its callback, which may change the list. */
static void release(struct pending *p, enum pending_state state) {
    struct conn *c = p->held;
    pending_leave(c);
    conn_released(c, state);
}

/* Unlinks the item first, so that a request that must wait again gets a new item. */
static void release_all(struct pending *p, enum pending_state state) {
    pending_tell(p, true);
    unlist(p);
    while (p->held)
        release(p, state);
    pending_drop(p);
}

void pending_decide(struct pending *p, enum pending_state state, bool all) {
    uint64_t now = loop_now_ms(p->machine->gate->loop);
    if (p->state == PENDING_PASSED) {
        pending_forget(p);
        return;
    }
    drop_gone(p);
    if (state == PENDING_APPROVED && !all) {
        if (p->held) {
            release(p, state); /* the newest one, because an older client may have given up */
        } else {
            p->state = state;
            p->until_ms = now + PENDING_REMEMBER_MS;
            pending_tell(p, false);
            return;
        }
        if (!p->held)
            pass(p);
        return;
    }
    release_all(p, all ? PENDING_WAITS : state);
}

void pending_look(struct gate_machine *m, uint64_t now_ms) {
    for (struct pending *p = m->pending, *next; p; p = next) {
        next = p->next;
        if (p->decided && p->state == PENDING_WAITS)
            release_all(p, PENDING_WAITS);
        else if (now_ms < p->until_ms)
            continue;
        else if (p->state == PENDING_PASSED)
            pending_forget(p);
        else if (p->state == PENDING_APPROVED)
            pending_free(p);
        else
            pending_decide(p, PENDING_EXPIRED, false);
        next = m->pending; /* a released request may have changed the list: start again */
    }
}

void pending_clear(struct gate_machine *m) {
    while (m->pending)
        pending_forget(m->pending);
}
