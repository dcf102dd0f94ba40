#include <jansson.h>
#include <string.h>

#include "base/defer.h"
#include "gate/policy.h"

/* The JSON members of a rule, except action and target. Each has one row, which is used for writing
 * and for reading. */
enum kind { KIND_NUMBER, KIND_TIME, KIND_FLAG, KIND_TEXT };

#define AT(member) offsetof(struct policy_rule, member), sizeof(((struct policy_rule *)0)->member)

static const struct member {
    const char *name;
    enum kind kind;
    size_t offset, size;
} members[] = {
    {"id", KIND_NUMBER, AT(id)},
    {"methods", KIND_TEXT, AT(methods)},
    {"exact", KIND_FLAG, AT(exact)},
    {"query", KIND_TEXT, AT(query)},
    {"local", KIND_FLAG, AT(local)},
    {"bytes", KIND_NUMBER, AT(bytes_max)},
    {"rate", KIND_NUMBER, AT(rate)},
    {"hold_ms", KIND_NUMBER, AT(hold_ms)},
    {"expires", KIND_TIME, AT(expires_ms)},
    {"preset", KIND_TEXT, AT(preset)},
    {"from", KIND_TEXT, AT(from)},
    {"trusted", KIND_FLAG, AT(trusted)},
    {"tainted", KIND_FLAG, AT(tainted)},
};
enum { MEMBERS = sizeof(members) / sizeof(*members) };

static void write_member(const struct member *m, const char *at, struct jot *j) {
    uint64_t number = 0;
    if (m->kind == KIND_TEXT) {
        if (*at)
            jot_string(j, m->name, at);
    } else if (m->kind == KIND_FLAG) {
        if (*(const bool *)at)
            jot_bool(j, m->name, true);
    } else {
        memcpy(&number, at, sizeof(number));
        if (number)
            jot_u64(j, m->name, number);
    }
}

void policy_rule_write(const struct policy_rule *r, struct jot *j, const char *name) {
    char target[POLICY_TARGET_SIZE];
    policy_target_write(r, target);
    jot_object(j, name);
    jot_string(j, "action", policy_action_name(r->action));
    jot_string(j, "target", target);
    for (size_t i = 0; i < MEMBERS; i++)
        write_member(&members[i], (const char *)r + members[i].offset, j);
    jot_end(j, '}');
}

void policy_taint_write(const struct policy *p, struct jot *j) {
    jot_bool(j, "guarded", p->guarded);
    if (!p->tainted[0])
        return;
    jot_string(j, "tainted", p->tainted);
    jot_u64(j, "tainted_ms", (uint64_t)p->tainted_ms);
    if (!p->shown_count)
        return;
    jot_array(j, "shown");
    for (size_t i = 0; i < p->shown_count; i++)
        jot_u64(j, NULL, p->shown[i]);
    jot_end(j, ']');
}

void policy_write(const struct policy *p, struct jot *j, const char *name) {
    jot_object(j, name);
    jot_string(j, "default", "deny");
    policy_taint_write(p, j);
    jot_array(j, "rules");
    for (size_t i = 0; i < p->count; i++)
        policy_rule_write(&p->rules[i], j, NULL);
    jot_end(j, ']');
    jot_end(j, '}');
}

static int policy_json_bad(const char *name, struct err *err) {
    return err_set(err, ERR_INVALID,
                   "the stored network rule has an invalid or unknown member '%.40s'", name);
}

static int read_member(const char *name, const json_t *value, struct policy_rule *r,
                       struct err *err) {
    const struct member *m = members;
    while (m < members + MEMBERS && strcmp(m->name, name) != 0)
        m++;
    if (m == members + MEMBERS)
        return policy_json_bad(name, err);
    char *at = (char *)r + m->offset;
    if (m->kind == KIND_TEXT) {
        const char *text = json_string_value(value);
        if (!text || strlen(text) >= m->size)
            return policy_json_bad(name, err);
        snprintf(at, m->size, "%s", text);
    } else if (m->kind == KIND_FLAG) {
        if (!json_is_boolean(value))
            return policy_json_bad(name, err);
        *(bool *)at = json_is_true(value);
    } else {
        if (!json_is_integer(value) || json_integer_value(value) < 0)
            return policy_json_bad(name, err);
        memcpy(at, &(uint64_t){(uint64_t)json_integer_value(value)}, sizeof(uint64_t));
    }
    return 0;
}

static int read_rule(const json_t *from, struct policy_rule *r, struct err *err) {
    const char *name, *action = json_string_value(json_object_get(from, "action"));
    const char *target = json_string_value(json_object_get(from, "target"));
    json_t *value;
    char methods[POLICY_METHODS_SIZE];
    if (!action || !target || policy_action_parse(action, &r->action, err) < 0)
        return policy_json_bad("action", err);
    if (policy_target_read(target, r, err) < 0)
        return -1;
    json_object_foreach((json_t *)from, name, value) {
        if (strcmp(name, "action") != 0 && strcmp(name, "target") != 0 &&
            read_member(name, value, r, err) < 0)
            return -1;
    }
    if (policy_methods_read(r->methods, methods, err) < 0)
        return -1;
    snprintf(r->methods, sizeof(r->methods), "%s", methods);
    return 0;
}

/* Reads the members about the taint, which older stored policies do not have. A malformed value of
 * "tainted" still counts as tainted. */
static void read_taint(const json_t *root, struct policy *p) {
    const json_t *by = json_object_get(root, "tainted");
    const char *text = json_string_value(by);
    snprintf(p->tainted, sizeof(p->tainted), "%s", text && *text ? text : by ? "unknown" : "");
    p->tainted_ms = json_integer_value(json_object_get(root, "tainted_ms"));
    p->guarded = json_is_true(json_object_get(root, "guarded"));
    const json_t *port, *shown = json_object_get(root, "shown");
    size_t i;
    json_array_foreach((json_t *)shown, i, port) {
        policy_show(p, (uint16_t)json_integer_value(port), true);
    }
}

int policy_read(const char *json, struct policy *ret, struct err *err) {
    json_t *root DEFER(json_decrefp) = json_loads(json, 0, NULL);
    const json_t *rules = json_object_get(root, "rules");
    struct policy p = {.rules = NULL};
    if (!json_is_array(rules))
        return err_set(err, ERR_INVALID, "the stored network policy has no array 'rules'");
    read_taint(root, &p);
    for (size_t i = 0; i < json_array_size(rules); i++) {
        struct policy_rule r = {.id = 0};
        if (read_rule(json_array_get(rules, i), &r, err) < 0) {
            policy_done(&p);
            return -1;
        }
        uint64_t id = r.id;
        if (policy_add(&p, &r, err) < 0) {
            policy_done(&p);
            return -1;
        }
        if (id) /* a stored rule keeps its id */
            p.last_id = p.rules[p.count - 1].id = id;
    }
    policy_done(ret);
    *ret = p;
    return 0;
}
