#include "cli/spec.h"

#include <stdio.h>
#include <string.h>

#include "base/amount.h"
#include "base/capability.h"
#include "base/limits.h"

void spec_put_duration(struct jot *j, const char *name, uint64_t ms) {
    char seconds[40];
    if (!ms)
        return;
    snprintf(seconds, sizeof(seconds), "%.3f", (double)ms / 1000);
    jot_raw(j, name, seconds);
}

static void put_limits(struct jot *j, const struct spec *s) {
    char cpus[32];
    jot_object(j, "limits");
    if (s->mem)
        jot_u64(j, "mem", s->mem);
    if (s->cpu_milli) {
        snprintf(cpus, sizeof(cpus), "%.3f", (double)s->cpu_milli / 1000);
        jot_raw(j, "cpus", cpus);
    }
    if (s->pids)
        jot_u64(j, "pids", s->pids);
    if (s->disk)
        jot_u64(j, "disk", s->disk);
    if (s->fuel)
        jot_u64(j, "fuel", s->fuel);
    if (s->fuel_rate)
        jot_u64(j, "fuel_rate", s->fuel_rate);
    jot_end(j, '}');
}

static void put_dirs(struct jot *j, const struct grants *g, const struct plan *plan) {
    jot_array(j, "dirs");
    for (size_t i = 0; i < g->count; i++) {
        jot_object(j, NULL);
        jot_string(j, "path", g->host[i]);
        jot_string(j, "at", plan->grants[i].path);
        jot_string(j, "mode", plan_mode_name(plan->grants[i].mode));
        if (g->untrusted[i])
            jot_bool(j, "untrusted", true);
        jot_end(j, '}');
    }
    jot_end(j, ']');
}

/* Writes VOLUME:/GUEST[:MODE]. */
static int put_volume(struct jot *j, const char *text, struct err *err) {
    char name[PLAN_PATH_SIZE];
    enum plan_grant_mode mode;
    if (snprintf(name, sizeof(name), "%s", text) >= (int)sizeof(name))
        return err_set(err, ERR_LIMIT, "--volume %.40s...: the value is too long", text);
    char *at = strchr(name, ':'), *last = strrchr(name, ':');
    const char *said = at && last != at ? last + 1 : NULL;
    if (said)
        *last = '\0';
    if (at)
        *at++ = '\0';
    if (name[0] == '/' && at && at[0] == '/') {
        err_set(err, ERR_INVALID, "--volume %s: '%s' is a path, not a volume", text, name);
        return err_remedy(err, "for a directory of this host: --dir %s:%s", name, at);
    }
    if (!at || at[0] != '/' || !name[0] || (said && !plan_mode_by_name(said, &mode))) {
        err_set(err, ERR_INVALID, "--volume %s: no volume and path", text);
        return err_remedy(err, "write --volume VOLUME:/GUEST[:ro|cow|rw]");
    }
    jot_object(j, NULL);
    jot_string(j, "name", name);
    jot_string(j, "at", at);
    if (said)
        jot_string(j, "mode", said);
    jot_end(j, '}');
    return 0;
}

static int put_volumes(struct jot *j, const struct option_list *volumes, struct err *err) {
    if (!volumes->count)
        return 0;
    jot_array(j, "volumes");
    for (size_t i = 0; i < volumes->count; i++)
        if (put_volume(j, volumes->items[i], err) < 0)
            return -1;
    jot_end(j, ']');
    return 0;
}

/* Refuses limits that the daemon would refuse too, so that the error names the option. */
static int spec_check(const struct spec *s, struct err *err) {
    const struct limit_range rows[] = {
        {"--mem", AMOUNT_BYTES, s->mem, LIMIT_MEM_MIN, LIMIT_MEM_MAX},
        {"--disk", AMOUNT_BYTES, s->disk, LIMIT_DISK_MIN, LIMIT_DISK_MAX},
        {"--cpus", AMOUNT_MILLIS, s->cpu_milli, LIMIT_CPU_MIN_MILLI, LIMIT_CPU_MAX_MILLI},
        {"--pids", AMOUNT_ONES, s->pids, LIMIT_PIDS_MIN, LIMIT_PIDS_MAX},
        {"--ttl", AMOUNT_MS, s->ttl_ms, 1, LIMIT_TTL_MAX_MS},
        {"--fuel", AMOUNT_ONES, s->fuel, 1, LIMIT_FUEL_MAX},
        {"--fuel-rate", AMOUNT_ONES, s->fuel_rate, 1, LIMIT_FUEL_MAX},
    };
    uint32_t bits;
    if (s->allow && capabilities_parse(s->allow, &bits, err) < 0)
        return err_wrap(err, "--allow");
    return ranges_check(rows, sizeof(rows) / sizeof(*rows), err);
}

int spec_put(struct jot *j, const struct spec *s, const struct grants *g, const struct plan *plan,
             struct err *err) {
    if (spec_check(s, err) < 0)
        return -1;
    if (s->mem || s->cpu_milli || s->pids || s->disk || s->fuel || s->fuel_rate)
        put_limits(j, s);
    spec_put_duration(j, "ttl", s->ttl_ms);
    if (g->count)
        put_dirs(j, g, plan);
    if (put_volumes(j, &s->volumes, err) < 0)
        return -1;
    if (s->allow)
        jot_string(j, "allow", s->allow);
    if (s->unreviewed)
        jot_bool(j, "unreviewed", true);
    if (s->guard)
        jot_bool(j, "guard", true);
    return 0;
}
