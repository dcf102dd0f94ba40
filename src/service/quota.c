#include <inttypes.h>
#include <string.h>

#include "base/amount.h"
#include "service/state.h"
#include "service/vm/memory.h"
#include "service/volumes/live.h"

struct quota_rule {
    const char *what, *option;
    enum amount_unit unit;
    uint64_t limit, have, want; /* want 0: the machine has no limit */
};

/* Checks one quota. whose: "the owner" or "this token". */
static int quota_rule_check(const struct quota_rule *r, const char *whose, struct err *err) {
    char limit[AMOUNT_SIZE], have[AMOUNT_SIZE], want[AMOUNT_SIZE];
    amount_show(r->unit, r->limit, limit);
    amount_show(r->unit, r->have, have);
    amount_show(r->unit, r->want, want);
    if (r->limit && !r->want) {
        err_set(err, ERR_LIMIT, "%s quota of %s is %s, but the machine has no %s limit", r->what,
                whose, limit, r->what);
        return err_remedy(err, "set --%s", r->option);
    }
    if (r->limit && r->have + r->want > r->limit) {
        err_set(err, ERR_LIMIT, "%s quota of %s is %s: %s in use, %s more requested", r->what,
                whose, limit, have, want);
        return r->option ? err_remedy(err, "delete machines, or set a smaller --%s", r->option)
                         : err_remedy(err, "delete machines that you no longer need");
    }
    return 0;
}

static int quota_ttl_check(uint64_t limit_ms, uint64_t ttl_ms, const char *whose, struct err *err) {
    char limit[AMOUNT_SIZE], ttl[AMOUNT_SIZE];
    if (!limit_ms || (ttl_ms && ttl_ms <= limit_ms))
        return 0;
    amount_show(AMOUNT_MS, limit_ms, limit);
    amount_show(AMOUNT_MS, ttl_ms, ttl);
    err_set(err, ERR_LIMIT, "ttl quota of %s is %s, but the machine's ttl is %s", whose, limit,
            ttl_ms ? ttl : "unlimited");
    return err_remedy(err, "set --ttl to at most %s", limit);
}

static int within(const char *whose, const struct quota *quota, const struct quota *used,
                  const struct machine_row *row, struct err *err) {
    const struct quota_rule rules[] = {
        {"machine", NULL, AMOUNT_ONES, quota->machines, used->machines, 1},
        {"cpu", "cpus", AMOUNT_MILLIS, quota->cpu_milli, used->cpu_milli, row->cpu_milli},
        {"memory", "mem", AMOUNT_BYTES, quota->mem_bytes, used->mem_bytes, row->mem_bytes},
        {"disk", "disk", AMOUNT_BYTES, quota->disk_bytes, used->disk_bytes, row->disk_bytes},
    };
    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++)
        if (quota_rule_check(&rules[i], whose, err) < 0)
            return -1;
    if (quota->lifetime_ms && row->on_ttl == TTL_PAUSE)
        return err_set(err, ERR_LIMIT,
                       "ttl quota of %s: the machine must end with its ttl, not pause", whose);
    return quota_ttl_check(quota->lifetime_ms, row->ttl_ms, whose, err);
}

static uint64_t held_disk(const struct service *s, const char *owner, const char *token) {
    uint64_t bytes = 0;
    for (const struct disk_hold *h = s->holds; h; h = h->next)
        if (strcmp(h->who->owner, owner) == 0 && (!token || strcmp(h->who->token, token) == 0))
            bytes += h->bytes;
    return bytes;
}

static void quota_drop(struct quota *q, const struct machine_row *row) {
    q->machines--;
    q->cpu_milli -= row->cpu_milli;
    q->mem_bytes -= row->mem_bytes;
    q->disk_bytes -= row->disk_bytes;
}

static bool row_counts(const struct machine_row *row, const struct caller *who, const char *token) {
    return strcmp(row->owner, who->owner) == 0 && (!token || strcmp(row->token, token) == 0);
}

/* Machines that serve volumes count for no quota. One that ends counts until its row is written. */
static void drop_doors(struct service *s, const struct caller *who, const char *token,
                       struct quota *q) {
    const struct live *l;
    for (size_t at = 0; (l = map_next(&s->machines, &at));)
        if (l->row.state <= MACHINE_RUNNING && row_counts(&l->row, who, token) &&
            volume_serves(s, l->row.id))
            quota_drop(q, &l->row);
}

/*
 * Adds up the resources that an owner or one of its tokens uses, except for the machine that is
 * being changed.
 */
static int used_by_others(struct service *s, const struct caller *who, const char *token,
                          const struct machine_row *before, struct quota *ret, struct err *err) {
    if (store_quota_used(s->store, who->owner, token, ret, err) < 0)
        return -1;
    ret->disk_bytes += held_disk(s, who->owner, token);
    ret->disk_bytes += memory_used(s, who->owner, token, NULL);
    drop_doors(s, who, token, ret);
    if (before && row_counts(before, who, token))
        quota_drop(ret, before);
    return 0;
}

/* Checks the limits of carrel.conf. */
static int quota_check_count(struct service *s, const struct caller *who, struct err *err) {
    uint64_t all = s->conf->max_machines, own = s->conf->machines_per_owner;
    struct quota used;
    if (all && s->machines.count >= all) {
        err_set(err, ERR_LIMIT, "this daemon has reached its limit of %" PRIu64 " machines", all);
        return err_remedy(err, "delete machines that you no longer need, or raise max_machines in "
                               "carrel.conf");
    }
    if (!own)
        return 0;
    if (used_by_others(s, who, NULL, NULL, &used, err) < 0)
        return -1;
    if (used.machines < own)
        return 0;
    err_set(err, ERR_LIMIT, "you have %" PRIu64 " machines, which is the limit of an owner", own);
    return err_remedy(err,
                      "delete machines that you no longer need, or raise machines_per_owner in "
                      "carrel.conf");
}

static int quota_check_owner(struct service *s, const struct caller *who,
                             const struct machine_row *before, const struct machine_row *row,
                             struct err *err) {
    struct owner_row owner;
    struct quota used;
    if (!before && quota_check_count(s, who, err) < 0)
        return -1;
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

/* Lowers *room to the disk space that this quota leaves; 0 in *room means unlimited. */
static int lessen(struct service *s, const struct caller *who, const char *whose, const char *token,
                  uint64_t limit, uint64_t *room, struct err *err) {
    struct quota used;
    if (!limit)
        return 0;
    if (used_by_others(s, who, token, NULL, &used, err) < 0)
        return -1;
    if (used.disk_bytes >= limit) {
        char shown[AMOUNT_SIZE];
        amount_size(limit, shown);
        err_set(err, ERR_LIMIT, "disk quota of %s is %s, and all of it is in use", whose, shown);
        return err_remedy(err, "delete machines or images, or wait for a running import");
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

/* Checks that a quota leaves h->bytes of disk space. */
static int quota_leaves(struct service *s, const struct disk_hold *h, const char *whose,
                        const char *token, uint64_t limit, struct err *err) {
    struct quota used;
    if (!limit)
        return 0;
    if (used_by_others(s, h->who, token, NULL, &used, err) < 0)
        return -1;
    const struct quota_rule rule = {"disk", "size", AMOUNT_BYTES, limit, used.disk_bytes, h->bytes};
    return quota_rule_check(&rule, whose, err);
}

int quota_reserve(struct service *s, struct disk_hold *h, struct err *err) {
    const struct caller *who = h->who;
    struct owner_row owner;
    if (store_owner_get(s->store, who->owner, &owner, err) < 0)
        return -1;
    if (quota_leaves(s, h, "the owner", NULL, owner.quota.disk_bytes, err) < 0 ||
        (who->token[0] &&
         quota_leaves(s, h, "this token", who->token, who->quota.disk_bytes, err) < 0)) {
        s->hits[HIT_QUOTA] += err->code == ERR_LIMIT;
        return -1;
    }
    h->next = s->holds;
    s->holds = h;
    return 0;
}

int quota_check(struct service *s, const struct caller *who, const struct machine_row *before,
                const struct machine_row *row, struct err *err) {
    int r = quota_check_owner(s, who, before, row, err);
    s->hits[HIT_QUOTA] += r < 0 && err->code == ERR_LIMIT;
    return r;
}
