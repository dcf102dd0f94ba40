#include <inttypes.h>
#include <string.h>

#include "service/state.h"

static int within(const char *whose, const struct quota *quota, const struct quota *used,
                  const struct machine_row *row, struct err *err) {
    const struct {
        const char *what;
        uint64_t limit, have, want; /* want 0: any amount */
    } rules[] = {
        {"machines", quota->machines, used->machines, 1},
        {"thousandths of a cpu", quota->cpu_milli, used->cpu_milli, row->cpu_milli},
        {"bytes of memory", quota->mem_bytes, used->mem_bytes, row->mem_bytes},
        {"bytes of disk", quota->disk_bytes, used->disk_bytes, row->disk_bytes},
    };
    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
        if (rules[i].limit && !rules[i].want) {
            err_set(err, ERR_LIMIT, "quota of %s: %" PRIu64 " %s, but the request has no limit",
                    whose, rules[i].limit, rules[i].what);
            return err_remedy(err, "request a limit within the quota");
        }
        if (rules[i].limit && rules[i].have + rules[i].want > rules[i].limit) {
            err_set(err, ERR_LIMIT,
                    "quota of %s: %" PRIu64 " %s, in use: %" PRIu64 ", requested: %" PRIu64, whose,
                    rules[i].limit, rules[i].what, rules[i].have, rules[i].want);
            return err_remedy(err, "destroy machines or request less");
        }
    }
    if (quota->lifetime_ms && (!row->ttl_ms || row->ttl_ms > quota->lifetime_ms)) {
        err_set(err, ERR_LIMIT, "quota of %s: the ttl must be at most %" PRIu64 " s", whose,
                quota->lifetime_ms / 1000);
        return err_remedy(err, "set a ttl within the quota");
    }
    return 0;
}

static uint64_t held_disk(const struct service *s, const char *owner, const char *token) {
    uint64_t bytes = 0;
    for (const struct disk_hold *h = s->holds; h; h = h->next)
        if (strcmp(h->who->owner, owner) == 0 && (!token || strcmp(h->who->token, token) == 0))
            bytes += h->bytes;
    return bytes;
}

/* Usage of an owner or token, without the machine that is about to change. */
static int used_by_others(struct service *s, const struct caller *who, const char *token,
                          const struct machine_row *before, struct quota *ret, struct err *err) {
    if (store_quota_used(s->store, who->owner, token, ret, err) < 0)
        return -1;
    ret->disk_bytes += held_disk(s, who->owner, token);
    if (before && strcmp(before->owner, who->owner) == 0 &&
        (!token || strcmp(before->token, token) == 0)) {
        ret->machines--;
        ret->cpu_milli -= before->cpu_milli;
        ret->mem_bytes -= before->mem_bytes;
        ret->disk_bytes -= before->disk_bytes;
    }
    return 0;
}

static int quota_check_owner(struct service *s, const struct caller *who,
                             const struct machine_row *before, const struct machine_row *row,
                             struct err *err) {
    struct owner_row owner;
    struct quota used;
    if (!before && s->conf->max_machines && s->machines.count >= s->conf->max_machines)
        return err_set(err, ERR_LIMIT,
                       "the limit of %" PRIu64 " machines of this daemon is reached",
                       s->conf->max_machines);
    if (store_owner_get(s->store, who->owner, &owner, err) < 0)
        return -1;
    static const struct quota none;
    if (memcmp(&owner.quota, &none, sizeof(none)) != 0 &&
        (used_by_others(s, who, NULL, before, &used, err) < 0 ||
         within("the owner", &owner.quota, &used, row, err) < 0))
        return -1;
    if (who->token[0] && memcmp(&who->quota, &none, sizeof(none)) != 0 &&
        (used_by_others(s, who, who->token, before, &used, err) < 0 ||
         within("this token", &who->quota, &used, row, err) < 0))
        return -1;
    return 0;
}

/* Lowers *room to what this quota leaves. */
static int lessen(struct service *s, const struct caller *who, const char *whose, const char *token,
                  uint64_t limit, uint64_t *room, struct err *err) {
    struct quota used;
    if (!limit)
        return 0;
    if (used_by_others(s, who, token, NULL, &used, err) < 0)
        return -1;
    if (used.disk_bytes >= limit) {
        err_set(err, ERR_LIMIT, "quota of %s: all %" PRIu64 " bytes of disk are in use", whose,
                limit);
        return err_remedy(err, "destroy machines, delete images, or wait for running imports");
    }
    if (!*room || limit - used.disk_bytes < *room)
        *room = limit - used.disk_bytes;
    return 0;
}

int quota_hold(struct service *s, struct disk_hold *h, struct err *err) {
    const struct caller *who = h->who;
    struct owner_row owner;
    h->bytes = 0;
    if (store_owner_get(s->store, who->owner, &owner, err) < 0)
        return -1;
    if (lessen(s, who, "the owner", NULL, owner.quota.disk_bytes, &h->bytes, err) < 0 ||
        (who->token[0] &&
         lessen(s, who, "this token", who->token, who->quota.disk_bytes, &h->bytes, err) < 0)) {
        s->hits[HIT_QUOTA] += err->code == ERR_LIMIT;
        return -1;
    }
    h->next = s->holds;
    s->holds = h;
    return 0;
}

void quota_release(struct service *s, struct disk_hold *h) {
    for (struct disk_hold **at = &s->holds; *at; at = &(*at)->next)
        if (*at == h) {
            *at = h->next;
            return;
        }
}

int quota_check(struct service *s, const struct caller *who, const struct machine_row *before,
                const struct machine_row *row, struct err *err) {
    int r = quota_check_owner(s, who, before, row, err);
    s->hits[HIT_QUOTA] += r < 0 && err->code == ERR_LIMIT;
    return r;
}
