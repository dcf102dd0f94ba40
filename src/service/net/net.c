#include "service/net/net.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "base/image_id.h"
#include "base/log.h"
#include "gate/preset.h"
#include "service/exec/live.h"
#include "service/grants/live.h"
#include "service/images/live.h"
#include "service/models.h"
#include "service/net/inner.h"
#include "service/rights.h"
#include "service/taint.h"
#include "store/networks.h"

enum {
    HOSTS_MAX = 1 << 20,
    POLICY_MAX = 512 << 10,
    DOORS_MS = 1000,
    REFUSED_MS = 1000,
    REFUSALS_MS = 60000, /* refusals of so long are counted together */
};

/* Who enters through an exposed port has shown a token, so this is only about bursts. */
static const struct flood_limit entry_limit = {.window_ms = 1000, .most = 50};

struct live_net *live_net_new(void) {
    struct live_net *n = calloc(1, sizeof(*n));
    if (!n)
        abort();
    return n;
}

void live_net_free(struct live_net *n) {
    free(n->env.v);
    free(n);
}

/* ---- what is written down ---- */

static const struct {
    const char *verb, *event;
} outcomes[] = {
    [GATE_ALLOWED] = {"net.allow", NULL}, [GATE_DENIED] = {"net.deny", "net.denied"},
    [GATE_CLOSED] = {"net.close", NULL},  [GATE_HELD] = {"net.hold", "net.held"},
    [GATE_USED] = {"secret.use", NULL},
};

static void put_crossing(struct jot *j, const struct gate_crossing *c) {
    jot_object(j, NULL);
    jot_string(j, "host", c->host);
    jot_u64(j, "port", c->port);
    if (c->protocol)
        jot_string(j, "protocol", c->protocol);
    if (c->method)
        jot_string(j, "method", c->method);
    if (c->path)
        jot_bytes(j, "path", c->path, strnlen(c->path, 1024));
    if (c->address)
        jot_string(j, "address", c->address);
    if (c->rule)
        jot_u64(j, "rule", c->rule);
    if (c->pending)
        jot_string(j, "pending", c->pending);
    if (c->secret) {
        jot_string(j, "secret", c->secret);
        jot_string(j, "as", c->way);
    }
    if (c->outcome == GATE_CLOSED) {
        jot_u64(j, "sent", c->sent);
        jot_u64(j, "received", c->received);
    }
    if (c->why)
        jot_string(j, "why", c->why);
    jot_end(j, '}');
}

static void write_note(struct live *l, const char *verb, const char *why, const char *detail,
                       uint64_t bytes) {
    struct err err;
    const struct journal_record r = {.kind = JOURNAL_NOTE,
                                     .owner = l->row.owner,
                                     .verb = verb,
                                     .machine = l->row.id,
                                     .reason = why,
                                     .bytes = bytes,
                                     .detail = detail};
    if (store_log(l->service->store, &r, NULL, &err) < 0)
        log_line(LOG_ERROR, "service", "write the journal: %s", err.text);
}

static struct flood_limit refusal_limit(const struct live *l) {
    return (struct flood_limit){.window_ms = REFUSALS_MS,
                                .most = l->service->conf->journal_refusals};
}

static void tell_counted(struct live *l, const char *verb, uint64_t counted) {
    char why[80], detail[48];
    if (!counted)
        return;
    snprintf(why, sizeof(why), "%" PRIu64 " more were counted and not written one by one", counted);
    snprintf(detail, sizeof(detail), "{\"count\":%" PRIu64 "}", counted);
    write_note(l, verb, why, detail, 0);
}

/* From time to time, so that the count of a window is told though nothing more happens. */
static void floods_look(struct live *l, uint64_t now_ms) {
    const struct flood_limit limit = refusal_limit(l);
    uint64_t counted;
    if (flood_turn(&l->net->refusals, &limit, now_ms, &counted))
        tell_counted(l, "net.deny", counted);
    if (flood_turn(&l->net->entries, &entry_limit, now_ms, &counted))
        tell_counted(l, "expose.enter", counted);
}

/* A machine cannot fill the journal by being refused: false once it was refused too often. */
static bool admit_refusal(struct live *l) {
    const struct flood_limit limit = refusal_limit(l);
    floods_look(l, loop_now_ms(l->service->loop));
    return flood_admit(&l->net->refusals, &limit);
}

static bool admit_entry(struct live *l) {
    floods_look(l, loop_now_ms(l->service->loop));
    return flood_admit(&l->net->entries, &entry_limit);
}

void net_note(struct live *l, const char *verb, const char *why, const char *detail) {
    if (why ? admit_refusal(l) : admit_entry(l))
        write_note(l, verb, why, detail, 0);
}

static void no_doors(struct live *l, const char *why);

/* A taint that is not stored would be forgotten by the next daemon: until then nothing goes in. */
static void cut_unsaved(void *arg) {
    struct live *l = arg;
    struct err err;
    if (taint_join(l, TAINT_NETWORK, NULL, &err) < 0) {
        gate_silence(l->gate);
        no_doors(l, err.text);
    }
    l->net->cutting = false;
    live_unref(l);
}

/* The first word of a stranger: from now on what is in the machine may be their doing. */
static bool net_taint(struct live *l, const struct gate_crossing *c) {
    struct err err;
    if (taint_crossed(l, c->rule, c->host, &err) == 0)
        return true;
    if (l->net->cutting)
        return false;
    log_line(LOG_ERROR, "service", "%s id=%s", err.text, l->row.id);
    l->net->cutting = true;
    live_ref(l);
    l->net->cut = (struct loop_call){.fn = cut_unsaved, .arg = l};
    loop_defer(l->service->loop, &l->net->cut); /* connections are in use while they are told of */
    return false;
}

static bool crossed(void *arg, const char *machine, const struct gate_crossing *c) {
    struct service *s = arg;
    struct live *l = map_get(&s->machines, machine);
    if (!l || (c->outcome == GATE_DENIED && !admit_refusal(l)))
        return false;
    struct buf text DEFER(buf_done) = BUF(JOURNAL_DETAIL_MAX);
    struct jot j = JOT(&text);
    put_crossing(&j, c);
    const char *detail = j.failed ? NULL : text.data;
    write_note(l, outcomes[c->outcome].verb, c->why, detail, c->sent + c->received);
    if (c->outcome == GATE_USED)
        secrets_used(l, c->secret);
    bool goes_on = c->outcome != GATE_ALLOWED || net_taint(l, c);
    if (outcomes[c->outcome].event)
        event_tell(s, l->row.owner, l->row.id, outcomes[c->outcome].event, detail);
    idle_touch(&l->idle, loop_now_ms(s->loop));
    return goes_on;
}

/* Of these nothing is known but how many there were: a line for all of a second. */
static void refused(void *arg, const char *machine, const struct gate_refusal *r) {
    struct service *s = arg;
    struct live *l = map_get(&s->machines, machine);
    char detail[128];
    if (!l)
        return;
    l->net->packets.admitted++;
    snprintf(detail, sizeof(detail),
             "{\"protocol\":\"%s\",\"packets\":%" PRIu64 ",\"total\":%" PRIu64 "}", r->protocol,
             r->packets, r->total);
    write_note(l, "net.refused", r->why, detail, 0);
    event_tell(s, l->row.owner, l->row.id, "net.refused", detail);
}

static void net_named(void *arg, const char *machine, uint32_t number, const char *name) {
    struct service *s = arg;
    struct err err;
    if (store_network_name_put(s->store, machine, number, name, &err) < 0)
        log_line(LOG_WARN, "service", "keep a name: %s id=%s", err.text, machine);
}

static void pended(void *arg, const char *machine, const struct pending *p, bool gone) {
    struct service *s = arg;
    char *wish DEFER_FREE = NULL;
    if (asprintf(&wish, "%s\n%s\n%" PRIu64 "\n%s\n%s", p->path, p->query, p->body, p->hash,
                 p->fields) < 0)
        abort();
    struct pending_row row = {.port = p->port,
                              .path = wish,
                              .rule = p->rule,
                              .since_ms = p->since_ms,
                              .until_ms = now_ms() + (int64_t)(p->until_ms - loop_now_ms(s->loop)),
                              .approved = p->state == PENDING_APPROVED};
    struct err err;
    snprintf(row.id, sizeof(row.id), "%s", p->id);
    snprintf(row.machine, sizeof(row.machine), "%s", machine);
    snprintf(row.host, sizeof(row.host), "%s", p->host);
    snprintf(row.protocol, sizeof(row.protocol), "%s", p->protocol);
    snprintf(row.method, sizeof(row.method), "%s", p->method);
    if ((gone ? store_pending_remove(s->store, p->id, &err)
              : store_pending_put(s->store, &row, &err)) < 0)
        log_line(LOG_WARN, "service", "keep a request that waits: %s id=%s", err.text, machine);
}

/* Path, query, the body's bytes, its hash and that of the fields, a line each. What an earlier
   version wrote lacks the last ones: no request fits it. */
static void read_wish(char *text, struct pending *ret) {
    const char *lines[5] = {"", "", "0", "", ""};
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines) && text; i++)
        lines[i] = strsep(&text, "\n");
    ret->path = (char *)lines[0];
    ret->query = (char *)lines[1];
    ret->body = strtoull(lines[2], NULL, 10);
    snprintf(ret->hash, sizeof(ret->hash), "%s", lines[3]);
    snprintf(ret->fields, sizeof(ret->fields), "%s", lines[4]);
}

static void restore_pending(void *arg, const struct pending_row *row) {
    struct live *l = arg;
    int64_t left = row->until_ms - now_ms();
    char *wish DEFER_FREE = strdup(row->path ? row->path : "");
    struct pending p = {.port = (uint16_t)row->port,
                        .rule = row->rule,
                        .since_ms = row->since_ms,
                        .state = row->approved ? PENDING_APPROVED : PENDING_WAITS};
    if (!wish)
        abort();
    read_wish(wish, &p);
    snprintf(p.id, sizeof(p.id), "%s", row->id);
    snprintf(p.host, sizeof(p.host), "%s", row->host);
    snprintf(p.protocol, sizeof(p.protocol), "%s", row->protocol);
    snprintf(p.method, sizeof(p.method), "%s", row->method);
    if (left > 0 && left <= POLICY_HOLD_MAX_MS)
        gate_restore_pending(l->gate, &p, (uint64_t)left);
    else
        (void)store_pending_remove(l->service->store, row->id, NULL);
}

static struct secret *secret(void *arg, const char *machine, const char *name) {
    return secrets_value(arg, machine, name);
}

static const struct gate_hooks hooks = {crossed, net_named, pended, secret, refused};

/* ---- the gate ---- */

static int read_hosts_line(struct gate *g, char *line, struct err *err) {
    char *rest = line + strcspn(line, "#");
    *rest = '\0';
    rest = line;
    const char *address = NULL;
    for (char *word; (word = strsep(&rest, " \t\r"));) {
        if (!*word)
            continue;
        if (!address)
            address = word;
        else if (gate_set_name(g, word, address, err) < 0)
            return -1;
    }
    return 0;
}

static int read_hosts(struct gate *g, const char *path, struct err *err) {
    char *text DEFER_FREE = calloc(1, HOSTS_MAX);
    FILE *f = text ? fopen(path, "re") : NULL;
    if (!f)
        return err_sys(err, "open '%s'", path);
    size_t n = fread(text, 1, HOSTS_MAX - 1, f);
    fclose(f);
    text[n] = '\0';
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));)
        if (read_hosts_line(g, line, err) < 0)
            return err_wrap(err, "read '%s'", path);
    return 0;
}

struct gate *net_gate_new(struct service *s, struct err *err) {
    const struct gate_options o = {.loop = s->loop, .hooks = &hooks, .arg = s};
    struct gate *g = gate_new(&o);
    if (gate_trust(g, s->conf->gate_ca, err) < 0 ||
        (s->conf->gate_hosts[0] && read_hosts(g, s->conf->gate_hosts, err) < 0)) {
        gate_free(g);
        return NULL;
    }
    return g;
}

void service_net_stats(struct service *s, struct gate_stats *ret) {
    gate_stats(s->gate, ret);
}

/* ---- machines ---- */

struct restoring {
    struct live *live;
    uint32_t newest;
    bool any;
};

static void restore_name(void *arg, uint32_t number, const char *name) {
    struct restoring *r = arg;
    gate_restore_name(r->live->gate, number, name);
    r->newest = number;
    r->any = true;
}

/* Whether it was guarded or tainted is not known where it cannot be read: then it counts as both.
 */
static void restore_policy(struct live *l) {
    struct policy *p = gate_policy(l->gate);
    struct err err;
    char *json DEFER_FREE = NULL;
    if (store_network_get(l->service->store, l->row.id, &json, &err) == 0 &&
        (!json || policy_read(json, p, &err) == 0)) {
        taint_restored(l);
        return;
    }
    log_line(LOG_ERROR, "service", "rules of a machine: %s: it is closed id=%s", err.text,
             l->row.id);
    p->guarded = true;
    policy_taint(p, 0, "rules that cannot be read", now_ms());
}

void net_restore(struct live *l) {
    struct restoring r = {.live = l};
    struct store *store = l->service->store;
    struct err err;
    restore_policy(l);
    if (store_network_names(store, l->row.id, restore_name, &r, &err) < 0)
        log_line(LOG_ERROR, "service", "names of a machine: %s id=%s", err.text, l->row.id);
    if (r.any)
        gate_restored_names(l->gate, r.newest);
    if (store_pending_list(store, l->row.id, restore_pending, l, &err) < 0)
        log_line(LOG_ERROR, "service", "requests that wait: %s id=%s", err.text, l->row.id);
    net_restore_trust(l);
    grants_restore(l);
    expose_restore(l);
}

int net_keep(struct live *l, struct err *err) {
    struct policy *p = gate_policy(l->gate);
    struct buf text DEFER(buf_done) = BUF(POLICY_MAX);
    struct jot j = JOT(&text);
    if (!p->count && !p->last_id && !p->guarded && !p->tainted[0])
        return 0;
    policy_write(p, &j, NULL);
    if (j.failed)
        return err_set(err, ERR_LIMIT, "the policy of machine '%s' is too large", l->row.id);
    return store_network_set(l->service->store, l->row.id, text.data, err);
}

static void no_doors(struct live *l, const char *why) {
    log_line(LOG_WARN, "service", "a machine has no gate: %s id=%s", why, l->row.id);
    l->net->doors_ms = loop_now_ms(l->service->loop) + DOORS_MS;
}

void net_attach_made(struct live *l) {
    struct machine *m = l->machine;
    struct err err;
    int doors[PLAN_GATE_FDS];
    for (int i = 0; i < PLAN_GATE_FDS; i++)
        doors[i] = TAKE_FD(m->doors[i]);
    if (doors[0] < 0)
        net_attach_adopted(l); /* it was made, but nobody heard the answer */
    else if (gate_listen(l->gate, doors, &err) < 0)
        no_doors(l, err.text);
}

static void doors_came(void *arg, const int *doors, const struct err *failed) {
    struct live *l = arg;
    struct err err;
    l->net->opening = false;
    l->net->refused_ms = 0; /* there is something to read now */
    if (failed)
        no_doors(l, failed->text);
    else if (gate_listen(l->gate, doors, &err) < 0)
        no_doors(l, err.text);
    if (l->row.state == MACHINE_ENDING)
        gate_silence(l->gate);
    live_unref(l);
}

void net_attach_adopted(struct live *l) {
    l->net->opening = true;
    l->net->doors_ms = 0;
    live_ref(l);
    l->service->driver->listen(l->machine, doors_came, l);
}

/*
 * Only while something runs in it, or did: others send nothing, and cost nothing. The kernel goes
 * on counting, so a machine that is refused all the time is read again when the next window begins.
 */
static void count_refused(struct live *l, uint64_t now_ms) {
    const struct flood_limit limit = refusal_limit(l);
    uint64_t unused;
    if (now_ms < l->net->refused_ms ||
        (!execs_running(l) && l->idle.active_ms + REFUSED_MS < l->net->refused_ms))
        return;
    l->net->refused_ms = now_ms + REFUSED_MS;
    flood_turn(&l->net->packets, &limit, now_ms, &unused);
    if (l->net->packets.admitted < limit.most)
        gate_count_refused(l->gate);
}

void net_look(struct live *l, uint64_t now_ms) {
    gate_look(l->gate);
    count_refused(l, now_ms);
    floods_look(l, now_ms);
    if (l->net->doors_ms && now_ms >= l->net->doors_ms && l->machine && !l->net->opening &&
        l->row.state != MACHINE_ENDING)
        net_attach_adopted(l);
}

void net_ended(struct live *l) {
    gate_count_refused(l->gate);
    tell_counted(l, "net.deny", flood_take(&l->net->refusals));
    tell_counted(l, "expose.enter", flood_take(&l->net->entries));
}

void net_detach(struct live *l) {
    gate_silence(l->gate);
    models_detach(l);
    expose_detach(l);
    l->net->doors_ms = 0;
}

/* ---- rules ---- */

static int fill_rule(const struct net_request *r, struct policy_rule *rule, struct err *err) {
    *rule = (struct policy_rule){.action = POLICY_ALLOW};
    if (r->action && policy_action_parse(r->action, &rule->action, err) < 0)
        return -1;
    if (r->methods && policy_methods_read(r->methods, rule->methods, err) < 0)
        return -1;
    rule->local = r->local;
    rule->trusted = r->trusted;
    rule->tainted = r->tainted;
    rule->bytes_max = r->bytes.value;
    rule->rate = r->rate.value;
    rule->hold_ms = r->hold.value;
    rule->expires_ms = r->ttl.is ? now_ms() + (int64_t)r->ttl.value : 0;
    return policy_target_read(r->target, rule, err);
}

/* What stands for "/" of an image, on the host: of one that is a file that is what was kept. */
static int open_image_root(const struct service *s, const char *image, struct err *err) {
    int root = image_id_valid(image) ? image_open_presets(s, image)
                                     : open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return root < 0 ? err_sys(err, "open the files of image '%s'", image) : root;
}

/*
 * The rules of a preset, as the image says now; what the machine writes does not count. Where an
 * image leads that is tainted may be a stranger's choice: its rules are as good as any others.
 */
static int add_preset(const struct service *s, const char *owner, const char *image,
                      const struct net_request *r, struct policy *policy, struct err *err) {
    struct preset_targets *t DEFER_FREE = calloc(1, sizeof(*t));
    bool doubted;
    if (!t)
        abort();
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

int net_add_rules(const struct service *s, const char *owner, const char *image,
                  const struct rows *rules, struct policy *policy, struct err *err) {
    const struct net_request *r = rules->v;
    for (size_t i = 0; i < rules->count; i++) {
        struct policy_rule rule;
        int status = preset_exists(r[i].target) ? add_preset(s, owner, image, &r[i], policy, err)
                     : fill_rule(&r[i], &rule, err) < 0 ? -1
                                                        : policy_add(policy, &rule, err);
        if (status < 0)
            return -1;
    }
    return 0;
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
    if (risks_find(l, risk))
        jot_string(&j, "warnings", risk);
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

/* The rules as they are, to go back to. */
static struct policy net_copy_of(const struct policy *p) {
    struct policy copy = *p;
    size_t n = p->count * sizeof(*p->rules);
    copy.rules = n ? malloc(n) : NULL;
    if (n && !copy.rules)
        abort();
    if (n)
        memcpy(copy.rules, p->rules, n);
    return copy;
}

void net_inherit(struct live *l, const struct live *parent) {
    struct policy *p = gate_policy(l->gate);
    if (!parent)
        return;
    policy_done(p);
    *p = net_copy_of(gate_policy(parent->gate));
    p->shown_count = 0; /* none of its ports are exposed */
    for (size_t i = 0; i < p->count; i++)
        p->rules[i].busy_ms = 0;
    net_inherit_trust(l, parent);
}

typedef int net_change_fn(struct live *l, const void *what, struct err *err);

static int net_add(struct live *l, const void *what, struct err *err) {
    struct rows one = {.v = (void *)what, .count = 1};
    return net_add_rules(l->service, l->row.owner, l->row.image, &one, gate_policy(l->gate), err);
}

static int take_away(struct live *l, const void *what, struct err *err) {
    return policy_remove(gate_policy(l->gate), *(const uint64_t *)what, err);
}

/* Written down before it is done, and taken back if that cannot be. */
static int change(struct service *s, const struct caller *who, const char *ref, const char *verb,
                  const char *detail, net_change_fn *fn, const void *what, struct live **ret,
                  struct err *err) {
    char risk[RISKS_SIZE];
    uint64_t intent;
    struct live *l =
        authorise(who, RIGHT_NET_RULE, err) < 0 ? NULL : live_find(s, who, ref, LIVE_ANY, err);
    if (!l)
        return -1;
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
    *ret = l;
    return 0;
}

/* The rule is there; the answer waits until the machine trusts what may speak for its servers. */
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

static void added(void *arg, const struct err *err) {
    struct adding *a = arg;
    (void)err;
    net_tell(a->live, net_told, a);
}

static struct adding *adding_new(struct live *l, service_net_fn *done, void *arg) {
    struct adding *a = calloc(1, sizeof(*a));
    if (!a)
        abort();
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

/* It only takes away, so whoever may use the machine may do it; it is never undone. */
int service_net_guard(struct service *s, const struct caller *who, const char *ref,
                      struct err *err) {
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
    return status;
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
        net_tell(l, net_told, adding_new(l, done, arg));
}
