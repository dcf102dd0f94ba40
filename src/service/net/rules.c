/* Adds, removes, inherits and shows the rules of a machine's network policy. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/image_id.h"
#include "gate/address.h"
#include "gate/preset.h"
#include "service/images/live.h"
#include "service/models/models.h"
#include "service/net/inner.h"
#include "service/net/net.h"
#include "service/rights.h"
#include "service/taint.h"

static int fill_rule(const struct net_request *r, struct policy_rule *rule, struct err *err) {
    *rule = (struct policy_rule){.action = POLICY_ALLOW};
    if (r->action && policy_action_parse(r->action, &rule->action, err) < 0)
        return -1;
    if (r->methods && policy_methods_read(r->methods, rule->methods, err) < 0)
        return -1;
    snprintf(rule->from, sizeof(rule->from), "%s", r->from ? r->from : "");
    rule->local = r->local;
    rule->trusted = r->trusted;
    rule->tainted = r->tainted;
    rule->bytes_max = r->bytes.value;
    rule->rate = r->rate.value;
    rule->hold_ms = r->hold.value;
    rule->expires_ms = r->ttl.is ? wall_ms() + (int64_t)r->ttl.value : 0;
    return policy_target_read(r->target, rule, err);
}

/*
 * Opens the root directory that presets of the image are read from; for a sealed image (one
 * read-only file) this is a directory with copies beside the image.
 */
static int open_image_root(const struct service *s, const char *image, struct err *err) {
    int root = image_id_valid(image) ? image_open_presets(s, image)
                                     : open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return root < 0 ? err_sys(err, "cannot open the files of image '%s'", image) : root;
}

/*
 * Adds the rules of a preset, which are read from the image; files that the machine changed do not
 * count. An attacker may have chosen the targets that a tainted image (one with untrusted data)
 * names, so their rules are ordinary and untrusted.
 */
static int add_preset(const struct service *s, const char *owner, const char *image,
                      const struct net_request *r, struct policy *policy, struct err *err) {
    struct preset_targets *t DEFER_FREE = xnew(struct preset_targets);
    bool doubted;
    if (taint_has_image(s, owner, image, &doubted, err) < 0)
        return -1;
    int root DEFER_CLOSE = open_image_root(s, image, err);
    if (root < 0)
        return -1;
    if (preset_read(r->target, root, t, err) < 0)
        return -1;
    for (size_t i = 0; i < t->count; i++) {
        struct net_request one = *r;
        struct policy_rule rule;
        one.target = t->list[i];
        if (fill_rule(&one, &rule, err) < 0)
            return -1;
        snprintf(rule.preset, sizeof(rule.preset), "%s", doubted ? "" : r->target);
        if (policy_add(policy, &rule, err) < 0)
            return -1;
    }
    return 0;
}

/* Whether a range lies where no range leads (gate/conn_dial.c), so that the rule has no effect. */
static bool is_vain_range(const struct policy_rule *rule) {
    struct address_range r;
    enum address_kind kind;
    if (rule->host_kind != HOST_RANGE || !address_range_read(rule->host, strlen(rule->host), &r))
        return false;
    kind = address_kind4(r.net);
    return (kind == ADDRESS_LOOPBACK && r.bits >= 8) ||
           (kind == ADDRESS_LINK_LOCAL && r.bits >= 16);
}

/* A rule for a loopback address cannot work: in a machine these addresses are the machine itself,
 * so that no connection to them comes to the gate. */
static int check_loopback(const struct policy_rule *rule, struct err *err) {
    if (rule->action != POLICY_DENY && is_vain_range(rule))
        return err_set(err, ERR_INVALID,
                       "a rule for '%s' has no effect: ranges never lead to this host or its link",
                       rule->host);
    if (rule->action == POLICY_DENY || rule->host_kind != HOST_EXACT ||
        !address_is_self(rule->host))
        return 0;
    err_set(err, ERR_INVALID,
            "a rule for '%s' has no effect: in a machine it is the machine itself", rule->host);
    return err_remedy(err, "for a server on this host, give 127.0.0.1 a name in the file of [gate] "
                           "hosts in carrel.conf, and allow that name with --local");
}

static int add_rule(const struct net_request *r, struct policy *policy, struct err *err) {
    struct policy_rule rule;
    /* preset_check_word() would suggest a rule for http://localhost, which check_loopback()
     * refuses. */
    bool is_self = address_is_self(r->target);
    return (!is_self && preset_check_word(r->target, err) < 0) || fill_rule(r, &rule, err) < 0 ||
                   check_loopback(&rule, err) < 0
               ? -1
               : policy_add(policy, &rule, err);
}

int net_add_rules(const struct service *s, const char *owner, const char *image,
                  const struct rows *rules, struct policy *policy, struct err *err) {
    const struct net_request *r = rules->v;
    for (size_t i = 0; i < rules->count; i++) {
        if ((preset_exists(r[i].target) ? add_preset(s, owner, image, &r[i], policy, err)
                                        : add_rule(&r[i], policy, err)) < 0)
            return -1;
    }
    return 0;
}

int net_set_given(const struct service *s, const char *owner, const char *image,
                  const struct rows *rules, struct policy *policy, struct err *err) {
    struct policy given DEFER(policy_done) = {.rules = NULL};
    if (net_add_rules(s, owner, image, rules, &given, err) < 0)
        return -1;
    return policy_set_given(policy, &given, err);
}

int net_add_models(struct policy *policy, struct err *err) {
    struct policy_rule rule = {.action = POLICY_ALLOW, .trusted = true, .tainted = true};
    if (policy_target_read("http://" MODELS_HOST, &rule, err) < 0)
        return -1;
    return policy_add(policy, &rule, err);
}

static void net_answer(struct live *l, service_net_fn *done, void *arg) {
    struct buf text DEFER(buf_done) = BUF(POLICY_MAX + 8192);
    struct jot j = JOT(&text);
    char risk[RISKS_SIZE];
    const struct policy *p = gate_policy(l->gate);
    jot_object(&j, NULL);
    jot_string(&j, "machine", l->row.id);
    jot_bool(&j, "listening", gate_listens(l->gate));
    jot_string(&j, "default", "deny");
    policy_taint_write(p, &j);
    jot_array(&j, "rules");
    for (size_t i = 0; i < p->count; i++)
        policy_rule_write(&p->rules[i], &j, NULL);
    jot_end(&j, ']');
    const char *warnings = net_warnings(l, risks_find(l, risk) ? risk : NULL);
    if (warnings)
        jot_string(&j, "warnings", warnings);
    jot_end(&j, '}');
    done(arg, text.data, NULL);
}

void service_net_show(struct service *s, const struct caller *who, const char *ref,
                      service_net_fn *done, void *arg) {
    struct err err;
    struct live *l =
        allow(who, SCOPE_READ, &err) < 0 ? NULL : live_find(s, who, ref, LIVE_ANY, &err);
    if (l)
        net_answer(l, done, arg);
    else
        done(arg, NULL, &err);
}

int service_net_check(struct service *s, const struct caller *who, const char *ref,
                      const char *preset, struct err *err) {
    struct live *l = allow(who, SCOPE_READ, err) < 0 ? NULL : live_find(s, who, ref, LIVE_ANY, err);
    if (!l)
        return -1;
    if (policy_allows_any(gate_policy(l->gate), wall_ms()))
        return 0;
    err_set(err, ERR_DENIED, "machine '%s' has no network access, so it cannot download packages",
            l->row.id);
    return err_remedy(err, "only the owner of the machine can allow it: carrel net %s allow %s",
                      l->row.id, preset);
}

/* Copies the rules, to restore them after a failure. */
static struct policy net_copy_of(const struct policy *p) {
    struct policy copy = *p;
    size_t n = p->count * sizeof(*p->rules);
    copy.rules = n ? xmalloc(n) : NULL;
    if (n)
        memcpy(copy.rules, p->rules, n);
    return copy;
}

void net_inherit_rules(const struct live *parent, struct policy *ret) {
    if (!parent)
        return;
    *ret = net_copy_of(gate_policy(parent->gate));
    ret->shown_count = 0; /* exposed ports are not inherited */
    for (size_t i = 0; i < ret->count; i++)
        ret->rules[i].busy_ms = 0;
}

typedef int net_change_fn(struct live *l, const void *what, struct err *err);

static int net_add(struct live *l, const void *what, struct err *err) {
    struct rows one = {.v = (void *)what, .count = 1};
    return net_add_rules(l->service, l->row.owner, l->row.image, &one, gate_policy(l->gate), err);
}

static int net_replace(struct live *l, const void *what, struct err *err) {
    return net_set_given(l->service, l->row.owner, l->row.image, what, gate_policy(l->gate), err);
}

static int take_away(struct live *l, const void *what, struct err *err) {
    return policy_remove(gate_policy(l->gate), *(const uint64_t *)what, err);
}

/* Changes the policy. Saves the change before it takes effect, and undoes it if saving fails. */
static int change_live(struct live *l, const struct caller *who, const char *verb,
                       const char *detail, net_change_fn *fn, const void *what, struct err *err) {
    struct service *s = l->service;
    char risk[RISKS_SIZE];
    uint64_t intent;
    const struct journal_record record = {.verb = verb, .machine = l->row.id, .detail = detail};
    if (note_intent(s, who, &record, &intent, err) < 0)
        return -1;
    struct policy before DEFER(policy_done) = net_copy_of(gate_policy(l->gate));
    int r = fn(l, what, err);
    if (r == 0)
        r = net_keep(l, err);
    if (r < 0) {
        policy_done(gate_policy(l->gate));
        *gate_policy(l->gate) = before;
        before = (struct policy){.rules = NULL};
    }
    note_result(s, who, &(struct journal_record){.verb = verb, .machine = l->row.id}, intent,
                r < 0 ? err : NULL);
    if (r < 0)
        return -1;
    gate_changed(l->gate);
    risks_note(l, risk);
    event_tell(s, l->row.owner, l->row.id, "net.changed", NULL);
    return 0;
}

static int change(struct service *s, const struct caller *who, const char *ref, const char *verb,
                  const char *detail, net_change_fn *fn, const void *what, struct live **ret,
                  struct err *err) {
    struct live *l =
        authorise(who, RIGHT_NET_RULE, err) < 0 ? NULL : live_find(s, who, ref, LIVE_ANY, err);
    if (!l || change_live(l, who, verb, detail, fn, what, err) < 0)
        return -1;
    *ret = l;
    return 0;
}

/* A request that added a rule. It is answered when the machine trusts the gate's authority. */
struct adding {
    struct live *live;
    service_net_fn *done;
    void *arg;
};

static void net_told(void *arg, const struct err *err) {
    struct adding *a = arg;
    (void)err;
    net_answer(a->live, a->done, a->arg);
    live_unref(a->live);
    free(a);
}

static void looked_up(void *arg, const struct err *err) {
    struct adding *a = arg;
    (void)err;
    net_tell(a->live, net_told, a);
}

static void added(void *arg, const struct err *err) {
    struct adding *a = arg;
    (void)err;
    net_look_up_mirrors(a->live, looked_up, a);
}

static struct adding *adding_new(struct live *l, service_net_fn *done, void *arg) {
    struct adding *a = xnew(struct adding);
    *a = (struct adding){l, done, arg};
    live_ref(l);
    return a;
}

void service_net_add(struct service *s, const struct caller *who, const char *ref,
                     const struct net_request *r, service_net_fn *done, void *arg) {
    struct buf text DEFER(buf_done) = BUF(JOURNAL_DETAIL_MAX);
    struct jot j = JOT(&text);
    struct live *l;
    struct err err;
    jot_object(&j, NULL);
    jot_string(&j, "action", r->action ? r->action : "allow");
    jot_string(&j, "target", r->target);
    jot_end(&j, '}');
    if (change(s, who, ref, "net.rule", j.failed ? NULL : text.data, net_add, r, &l, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    net_trust(l, added, adding_new(l, done, arg));
}

void service_net_set_given(struct service *s, const struct caller *who, const char *ref,
                           const struct rows *rules, service_net_fn *done, void *arg) {
    struct err err;
    struct live *l =
        allow(who, SCOPE_RUN, &err) < 0 ? NULL : live_find(s, who, ref, LIVE_ANY, &err);
    if (!l || change_live(l, who, "net.rules", NULL, net_replace, rules, &err) < 0)
        done(arg, NULL, &err);
    else
        net_trust(l, added, adding_new(l, done, arg));
}

/* A guard only removes rights, so every user of the machine may set it. It cannot be undone. */
int service_net_guard(struct service *s, const struct caller *who, const char *ref,
                      struct err *err) {
    char risk[RISKS_SIZE];
    uint64_t intent;
    struct live *l = allow(who, SCOPE_RUN, err) < 0 ? NULL : live_find(s, who, ref, LIVE_ANY, err);
    if (!l)
        return -1;
    struct policy *p = gate_policy(l->gate);
    const struct journal_record record = {.verb = "net.guard", .machine = l->row.id};
    if (p->guarded)
        return 0;
    if (note_intent(s, who, &record, &intent, err) < 0)
        return -1;
    p->guarded = true;
    int status = net_keep(l, err);
    if (status < 0)
        p->guarded = false;
    note_result(s, who, &record, intent, status < 0 ? err : NULL);
    gate_changed(l->gate);
    if (status == 0) {
        risks_note(l, risk);
        event_tell(s, l->row.owner, l->row.id, "net.changed", NULL);
    }
    return status;
}

void service_net_guard_told(struct service *s, const struct caller *who, const char *ref,
                            service_net_fn *done, void *arg) {
    struct live *l;
    struct err err;
    if (service_net_guard(s, who, ref, &err) < 0 || !(l = live_find(s, who, ref, LIVE_ANY, &err)))
        done(arg, NULL, &err);
    else
        net_answer(l, done, arg);
}

void service_net_remove(struct service *s, const struct caller *who, const char *ref, uint64_t rule,
                        service_net_fn *done, void *arg) {
    char detail[48];
    struct live *l;
    struct err err;
    snprintf(detail, sizeof(detail), "{\"rule\":%" PRIu64 "}", rule);
    if (change(s, who, ref, "net.unrule", detail, take_away, &rule, &l, &err) < 0)
        done(arg, NULL, &err);
    else
        added(adding_new(l, done, arg), NULL);
}
