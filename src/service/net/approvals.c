#include "service/net/approvals.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/defer.h"
#include "gate/path.h"
#include "service/calls/live.h"
#include "service/net/inner.h"
#include "service/rights.h"

enum { LIST_MAX_BYTES = 4 << 20, RULE_TEXT_MAX = 2048, ANSWER_MAX = 8192 };

/* Writes the rule that requires the approval, as the owner of the machine wrote it. */
static void put_why(struct jot *j, const struct pending *p) {
    char target[POLICY_TARGET_SIZE], why[POLICY_TARGET_SIZE + 64];
    const struct policy_rule *rule = policy_find(gate_policy(p->machine), p->rule);
    if (!rule)
        return;
    policy_target_write(rule, target);
    snprintf(why, sizeof(why), "rule %llu requires approval: %s%s%s", (unsigned long long)rule->id,
             target, rule->methods[0] ? " " : "", rule->methods);
    jot_string(j, "why", why);
}

/* ---- the rule that --always adds ---- */

static int cannot(struct err *err, const char *why) {
    err_set(err, ERR_INVALID, "no rule can match only this request: %s", why);
    return err_remedy(err,
                      "approve the request once, or add a rule: carrel net MACHINE allow TARGET");
}

/*
 * A rule does not restrict the body or the header fields. In a tainted machine, which may follow
 * untrusted instructions, a rule would therefore allow too much if the request has a body.
 */
static int may_rule(const struct pending *p, const struct policy *policy, struct err *err) {
    if (p->method[0] && !path_is_plain(p->path))
        return cannot(err, "the path could be read in two ways");
    if (strlen(p->path) >= POLICY_PATH_SIZE || strlen(p->query) >= POLICY_QUERY_SIZE)
        return cannot(err, "the path or the query is too long");
    if (p->hash[0] && policy->tainted[0])
        return cannot(err, "the request has a body, and the machine has read data from an "
                           "untrusted source");
    return 0;
}

/* Builds a rule that matches only this request. */
static int rule_of(const struct pending *p, struct policy_rule *ret, struct err *err) {
    const struct policy *policy = gate_policy(p->machine);
    const struct policy_rule *asked = policy_find(policy, p->rule);
    char target[POLICY_TARGET_SIZE];
    bool web = p->method[0], six = strchr(p->host, ':') != NULL;
    const char *scheme = strcmp(p->protocol, "tls") == 0 ? "https" : web ? "http" : "tcp";
    if (may_rule(p, policy, err) < 0)
        return -1;
    *ret = (struct policy_rule){.action = POLICY_ALLOW,
                                .local = asked && asked->local,
                                .exact = web,
                                .tainted = policy->tainted[0]}; /* applies despite the taint */
    if (web) {
        snprintf(ret->methods, sizeof(ret->methods), "%s", p->method);
        snprintf(ret->query, sizeof(ret->query), "%s", p->query);
    }
    snprintf(target, sizeof(target), "%s://%s%s%s:%u%s", scheme, six ? "[" : "", p->host,
             six ? "]" : "", p->port, p->path);
    return policy_target_read(target, ret, err);
}

static void rule_text(const struct policy_rule *r, struct buf *out) {
    char target[POLICY_TARGET_SIZE], end[40];
    time_t seconds = (time_t)(r->expires_ms / 1000);
    struct tm tm;
    policy_target_write(r, target);
    (void)!buf_addf(out, "allow %s%s%s%s%s%s", r->methods, r->methods[0] ? " " : "", target,
                    r->exact && !r->path[0] ? "/" : "", r->query[0] ? "?" : "", r->query);
    if (r->exact)
        (void)!buf_addf(out, ", with any header fields and body");
    if (r->expires_ms && gmtime_r(&seconds, &tm) &&
        strftime(end, sizeof(end), "%Y-%m-%dT%H:%M:%SZ", &tm))
        (void)!buf_addf(out, ", until %s", end);
}

/* Shows the rule that --always would add, or why it cannot add one. */
static void put_rule(struct jot *j, const struct pending *p) {
    struct buf text DEFER(buf_done) = BUF(RULE_TEXT_MAX);
    struct policy_rule rule;
    struct err err;
    if (rule_of(p, &rule, &err) < 0) {
        jot_string(j, "no_rule", err.text);
        return;
    }
    rule_text(&rule, &text);
    jot_bytes(j, "always", text.data, text.len);
}

static void put_item(struct jot *j, const char *name, struct pending *p, uint64_t now) {
    size_t waiting = 0;
    for (const struct conn *c = p->held; c; c = pending_next(c))
        waiting++;
    jot_object(j, name);
    jot_string(j, "id", p->id);
    jot_string(j, "machine", gate_machine_id(p->machine));
    jot_string(j, "host", p->host);
    jot_u64(j, "port", p->port);
    jot_string(j, "protocol", p->protocol);
    if (p->method[0]) {
        jot_string(j, "method", p->method);
        jot_bytes(j, "path", p->path, strlen(p->path));
        if (p->query[0])
            jot_bytes(j, "query", p->query, strlen(p->query));
        jot_u64(j, "body", p->body);
        if (p->hash[0])
            jot_string(j, "body_sha256", p->hash);
    }
    put_rule(j, p);
    jot_u64(j, "rule", p->rule);
    put_why(j, p);
    const char *first = pending_first(p);
    if (*first)
        jot_bytes(j, "first", first, strlen(first));
    jot_i64(j, "since_ms", p->since_ms);
    jot_u64(j, "left_ms", p->until_ms > now ? p->until_ms - now : 0);
    jot_u64(j, "waiting", waiting);
    jot_bool(j, "approved", p->state == PENDING_APPROVED);
    jot_end(j, '}');
}

void service_pending(struct service *s, const struct caller *who, service_net_fn *done, void *arg) {
    struct buf text DEFER(buf_done) = BUF(LIST_MAX_BYTES);
    struct jot j = JOT(&text);
    struct live *l;
    struct err err;
    if (allow(who, SCOPE_READ, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    jot_object(&j, NULL);
    jot_array(&j, "pending");
    for (size_t at = 0; (l = map_next(&s->machines, &at));) {
        if (!may_see(who, l->row.owner))
            continue;
        for (struct pending *p = gate_pending(l->gate); p; p = p->next)
            if (p->state != PENDING_PASSED)
                put_item(&j, NULL, p, loop_now_ms(s->loop));
        calls_put_questions(l, &j);
    }
    jot_end(&j, ']');
    jot_end(&j, '}');
    if (!j.failed) {
        done(arg, text.data, NULL);
        return;
    }
    err_set(&err, ERR_LIMIT,
            "too many network requests wait for approval: the list would be too long");
    done(arg, NULL, &err);
}

bool service_pending_of(struct service *s, const char *machine, struct buf *to) {
    struct jot j = JOT(to);
    const struct live *l = map_get(&s->machines, machine);
    for (struct pending *p = l ? gate_pending(l->gate) : NULL; p; p = p->next) {
        if (p->state != PENDING_WAITS)
            continue;
        jot_object(&j, NULL);
        put_item(&j, "approval", p, loop_now_ms(s->loop));
        jot_end(&j, '}');
        return !j.failed;
    }
    return false;
}

static int widen(struct live *l, const struct pending *p, const struct approval_request *r,
                 struct policy_rule *ret, struct err *err) {
    if (rule_of(p, ret, err) < 0)
        return -1;
    ret->expires_ms = r->ttl.is ? wall_ms() + (int64_t)r->ttl.value : 0;
    if (policy_add(gate_policy(l->gate), ret, err) < 0)
        return -1;
    if (net_keep(l, err) == 0)
        return 0;
    policy_remove(gate_policy(l->gate), ret->id, NULL); /* the rule could not be saved */
    return -1;
}

static struct pending *approvals_find(struct service *s, const struct caller *who, const char *id,
                                      struct live **ret, struct err *err) {
    struct pending *p =
        authorise(who, RIGHT_APPROVE_REQUEST, err) < 0 ? NULL : gate_pending_find(s->net->gate, id);
    *ret = p ? map_get(&s->machines, gate_machine_id(p->machine)) : NULL;
    if (*ret && may_see(who, (*ret)->row.owner))
        return p;
    if (authorise(who, RIGHT_APPROVE_REQUEST, err) == 0) {
        err_set(err, ERR_NOT_FOUND, "no network request with the id '%.40s' waits for approval",
                id);
        err_remedy(err, "list the waiting requests: carrel pending");
    }
    return NULL;
}

void service_approve(struct service *s, const struct caller *who, const char *id,
                     const struct approval_request *r, service_net_fn *done, void *arg) {
    struct live *l;
    struct err err;
    uint64_t intent;
    bool approves = strcmp(r->decision, "approve") == 0, wide = r->always || r->ttl.is;
    struct pending *p = approvals_find(s, who, id, &l, &err);
    if (p && p->state == PENDING_PASSED && !(approves && wide)) {
        err_set(&err, ERR_NOT_FOUND, "request '%s' no longer waits: it was let through", p->id);
        err_remedy(&err, "to allow this request always: carrel approve %s --always", p->id);
        p = NULL;
    }
    if (!p) {
        done(arg, NULL, &err);
        return;
    }
    struct buf text DEFER(buf_done) = BUF(JOURNAL_DETAIL_MAX);
    struct jot j = JOT(&text);
    put_item(&j, NULL, p, loop_now_ms(s->loop));
    const struct journal_record what = {.verb = approves ? "net.approve" : "net.refuse",
                                        .machine = l->row.id,
                                        .detail = j.failed ? NULL : text.data};
    if (note_intent(s, who, &what, &intent, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    struct policy_rule rule;
    int failed = approves && wide ? widen(l, p, r, &rule, &err) : 0;
    const struct journal_record result = {.verb = what.verb, .machine = l->row.id};
    note_result(s, who, &result, intent, failed < 0 ? &err : NULL);
    if (failed < 0) {
        done(arg, NULL, &err);
        return;
    }
    if (approves && wide)
        net_tell(l, NULL, NULL);
    pending_decide(p, approves ? PENDING_APPROVED : PENDING_REFUSED, approves && wide);
    event_tell(s, l->row.owner, l->row.id, approves ? "net.approved" : "net.refused", text.data);
    struct buf answer DEFER(buf_done) = BUF(ANSWER_MAX), words DEFER(buf_done) = BUF(RULE_TEXT_MAX);
    struct jot a = JOT(&answer);
    jot_object(&a, NULL);
    if (approves && wide) {
        rule_text(&rule, &words);
        jot_u64(&a, "rule", rule.id);
        jot_bytes(&a, "added", words.data, words.len);
    }
    jot_end(&a, '}');
    done(arg, answer.data, NULL);
}
