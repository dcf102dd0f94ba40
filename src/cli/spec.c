#include "cli/spec.h"

#include <stdio.h>

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

int spec_put(struct jot *j, const struct spec *s, const struct grants *g, const struct plan *plan,
             struct err *err) {
    const struct limits_told limits = {.mem_bytes = s->mem,
                                       .disk_bytes = s->disk,
                                       .pids = s->pids,
                                       .cpu_milli = s->cpu_milli,
                                       .lifetime_ms = s->ttl_ms};
    if (limits_in_range(&limits, err) < 0)
        return -1;
    if (s->mem || s->cpu_milli || s->pids || s->disk)
        put_limits(j, s);
    spec_put_duration(j, "ttl", s->ttl_ms);
    if (g->count)
        put_dirs(j, g, plan);
    if (s->unreviewed)
        jot_bool(j, "unreviewed", true);
    if (s->guard)
        jot_bool(j, "guard", true);
    return 0;
}
