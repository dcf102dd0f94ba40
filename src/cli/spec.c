#include "cli/spec.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/amount.h"
#include "base/limits.h"
#include "cli/table.h"

static void show_bytes(uint64_t value, char ret[AMOUNT_SIZE]) {
    table_bytes((long long)value, ret);
}

static void show_milli(uint64_t value, char ret[AMOUNT_SIZE]) {
    snprintf(ret, AMOUNT_SIZE, "%g", (double)value / 1000);
}

static void show_number(uint64_t value, char ret[AMOUNT_SIZE]) {
    snprintf(ret, AMOUNT_SIZE, "%" PRIu64, value);
}

static void show_ms(uint64_t value, char ret[AMOUNT_SIZE]) {
    amount_duration(value * 1000, ret);
}

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

/* Limits in the words of the options, before the daemon would refuse its own fields. */
static int spec_check(const struct spec *s, struct err *err) {
    const struct {
        const char *option;
        uint64_t value, min, max;
        void (*show)(uint64_t value, char ret[AMOUNT_SIZE]);
    } rows[] = {
        {"mem", s->mem, LIMIT_MEM_MIN, LIMIT_BYTES_MAX, show_bytes},
        {"disk", s->disk, LIMIT_DISK_MIN, LIMIT_BYTES_MAX, show_bytes},
        {"cpus", s->cpu_milli, 1, LIMIT_CPU_MAX_MILLI, show_milli},
        {"pids", s->pids, 1, LIMIT_PIDS_MAX, show_number},
        {"ttl", s->ttl_ms, 1, LIMIT_LIFETIME_MAX_MS, show_ms},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char value[AMOUNT_SIZE], min[AMOUNT_SIZE], max[AMOUNT_SIZE];
        if (!rows[i].value || (rows[i].value >= rows[i].min && rows[i].value <= rows[i].max))
            continue;
        rows[i].show(rows[i].value, value);
        rows[i].show(rows[i].min, min);
        rows[i].show(rows[i].max, max);
        return err_set(err, ERR_INVALID, "--%s %s: must be between %s and %s", rows[i].option,
                       value, min, max);
    }
    return 0;
}

int spec_put(struct jot *j, const struct spec *s, const struct grants *g, const struct plan *plan,
             struct err *err) {
    if (spec_check(s, err) < 0)
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
