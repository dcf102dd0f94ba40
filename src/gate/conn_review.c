/* Checks open connections: byte and rate limits, and a new decision when the policy changes. */
#include "gate/inner.h"

enum { PAUSE_LEAST_MS = 20 };

/* ---- limits ---- */

size_t conn_may_send(const struct conn *c) {
    if (!c->taints || !c->received || c->state == CONN_WEB) /* web.c checks each request */
        return SIZE_MAX;
    return c->sent_late < GATE_TAINT_SENT ? GATE_TAINT_SENT - c->sent_late : 0;
}

bool conn_count(struct conn *c, size_t sent, size_t received) {
    struct gate *g = c->machine->gate;
    struct policy_rule *r = policy_find(&c->machine->policy, c->rule);
    c->sent += sent;
    c->received += received;
    g->stats.sent += sent;
    g->stats.received += received;
    c->sent_late += c->taints && c->received ? sent : 0;
    if (!conn_may_send(c)) {
        conn_end(c, true, "the connection reached an untrusted source, so it may not send more");
        return false;
    }
    if (!r)
        return true;
    r->bytes_used += sent + received;
    if (r->bytes_max && r->bytes_used > r->bytes_max) {
        conn_end(c, true, "the byte limit of the network rule is used up");
        return false;
    }
    if (r->rate) {
        uint64_t now = loop_now_ms(g->loop), from = r->busy_ms > now ? r->busy_ms : now;
        r->busy_ms = from + (sent + received) * 1000 / r->rate;
        if (r->busy_ms > now + PAUSE_LEAST_MS) {
            c->pause_ms = r->busy_ms - now;
            conn_timer(c, c->pause_ms);
        }
    }
    return true;
}

/* ---- a changed policy ---- */

static bool is_reviewed(const struct conn *c) {
    switch (c->state) {
    case CONN_DIAL:
    case CONN_RELAY:
    case CONN_PG:
        return true;
    case CONN_WEB:
        return web_stage(c) != WEB_IDLE;
    default:
        return false; /* the connection is not allowed yet, or has ended */
    }
}

/* A guarded machine that is tainted (has read data from an untrusted source) may no longer send.
 * A connection that only receives may continue, and so may the connection that tainted the
 * machine. */
static bool may_finish(const struct conn *c) {
    return c->taints || (c->state == CONN_WEB && web_stage(c) == WEB_RECEIVES);
}

/* Ends a connection that the changed policy no longer allows. */
void conn_review(struct conn *c) {
    uint64_t rule = c->rule;
    if (c->ended || !is_reviewed(c))
        return;
    struct policy_answer a =
        c->state == CONN_WEB ? web_decide_again(c) : conn_decide(c, NULL, NULL, NULL);
    bool approved = a.action == POLICY_ASK && c->approved && c->rule == rule;
    if (a.want == POLICY_KNOWN && (a.action == POLICY_ALLOW || approved) && !conn_is_cut_off(c))
        return;
    c->rule = rule;
    if (!a.by_taint || !may_finish(c))
        conn_end(c, true, "the network policy of the machine has changed");
}
