/*
 * Warns if one machine has private data, untrusted content and network access at once. Content that
 * such a machine reads can make it send the private data out.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/grants/live.h"
#include "service/state.h"

/* Every warning of risks_find() begins with this text, so that an earlier one is found. It is the
 * last of the warnings of a machine. */
#define RISK_MARK "this machine has private data ("

static bool is_private(const char *kind) {
    static const char *const kinds[] = {"dir", "file", "repo", "sqlite", "postgres", "volume"};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
        if (strcmp(kinds[i], kind) == 0)
            return true;
    return false;
}

static bool only_reads(const char *methods) {
    static const char *const reading[] = {"GET", "HEAD", "GET,HEAD", "HEAD,GET"};
    for (size_t i = 0; i < sizeof(reading) / sizeof(*reading); i++)
        if (strcmp(reading[i], methods) == 0)
            return true;
    return false;
}

static const char *host_of(const struct policy_rule *r, char ret[NAME_SIZE + 2]) {
    snprintf(ret, NAME_SIZE + 2, "%s%s", r->host_kind == HOST_BELOW ? "*." : "",
             r->host_kind == HOST_ANY ? "*" : r->host);
    return ret;
}

/*
 * way_out false: finds a rule for an untrusted host. way_out true: finds a rule that can send data
 * out. Any request can do that, except reading from one named host.
 */
static const struct policy_rule *find_rule(const struct policy *p, bool way_out) {
    for (size_t i = 0; i < p->count; i++) {
        const struct policy_rule *r = &p->rules[i];
        if (r->expires_ms && r->expires_ms <= wall_ms())
            continue;
        bool stranger = r->action != POLICY_DENY && !r->trusted && !r->preset[0];
        bool out = r->action == POLICY_ALLOW && !r->preset[0] && !r->trusted &&
                   (r->host_kind != HOST_EXACT || !only_reads(r->methods));
        if (way_out ? out : stranger)
            return r;
    }
    return NULL;
}

bool risks_find(struct live *l, char ret[RISKS_SIZE]) {
    const struct policy *p = gate_policy(l->gate);
    const struct policy_rule *stranger = find_rule(p, false), *out = find_rule(p, true);
    struct grant_list list DEFER(grant_list_done) = {0};
    char first[NAME_SIZE + 2], second[NAME_SIZE + 2];
    struct err err;
    if (p->guarded || !stranger || !out ||
        store_grant_list(l->service->store, l->row.id, NULL, &list, &err) < 0)
        return false;
    for (size_t i = 0; i < list.count; i++) {
        if (!is_private(list.rows[i].kind))
            continue;
        snprintf(
            ret, RISKS_SIZE,
            RISK_MARK
            "%s '%.200s'), untrusted content (%.60s) and network "
            "access (%.60s): content it reads could make it send the data out. Remove one of them, "
            "or guard it (--guard), which closes its network once it has read untrusted content",
            list.rows[i].kind, list.rows[i].what, host_of(stranger, first), host_of(out, second));
        return true;
    }
    return false;
}

/* Takes a warning back that is not true any more. */
static void risks_settle(struct live *l) {
    char *told = l->row.warnings ? strstr(l->row.warnings, RISK_MARK) : NULL;
    struct err err;
    if (!told)
        return;
    while (told > l->row.warnings && strchr("; ", told[-1]))
        told--;
    *told = '\0';
    if (store_machine_update(l->service->store, &l->row, &err) < 0)
        log_line(LOG_ERROR, "service", "delete a warning about a machine: %s id=%s", err.text,
                 l->row.id);
}

/* Warns once: an earlier warning of the same kind is not repeated. */
bool risks_note(struct live *l, char ret[RISKS_SIZE]) {
    char *before = l->row.warnings;
    struct err err;
    const struct journal_record r = {.kind = JOURNAL_NOTE,
                                     .owner = l->row.owner,
                                     .verb = "grant.risk",
                                     .machine = l->row.id,
                                     .reason = ret};
    if (!risks_find(l, ret)) {
        risks_settle(l);
        return false;
    }
    if (before && strstr(before, RISK_MARK))
        return true;
    l->row.warnings = xformat("%s%s%s", before ? before : "", before && *before ? "; " : "", ret);
    free(before);
    if (store_log(l->service->store, &r, NULL, &err) < 0 ||
        store_machine_update(l->service->store, &l->row, &err) < 0)
        log_line(LOG_ERROR, "service", "save a warning about a machine: %s id=%s", err.text,
                 l->row.id);
    event_tell(l->service, l->row.owner, l->row.id, "grant.risk", NULL);
    return true;
}
