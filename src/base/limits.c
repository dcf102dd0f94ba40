#include "base/limits.h"

#include "base/err.h"
#include "base/jot.h"

int ranges_check(const struct limit_range *rows, size_t count, struct err *err) {
    for (size_t i = 0; i < count; i++) {
        const struct limit_range *r = &rows[i];
        char value[AMOUNT_SIZE], min[AMOUNT_SIZE], max[AMOUNT_SIZE];
        if (!r->value || (r->value >= r->min && r->value <= r->max))
            continue;
        amount_show(r->unit, r->value, value);
        amount_show(r->unit, r->min, min);
        amount_show(r->unit, r->max, max);
        return err_set(err, ERR_INVALID, "%s %s: must be between %s and %s", r->name, value, min,
                       max);
    }
    return 0;
}

int limits_in_range(const struct limits_told *l, struct err *err) {
    const struct limit_range rows[] = {
        {"memory limit", AMOUNT_BYTES, l->mem_bytes, LIMIT_MEM_MIN, LIMIT_BYTES_MAX},
        {"cpu limit", AMOUNT_MILLIS, l->cpu_milli, 1, LIMIT_CPU_MAX_MILLI},
        {"process limit", AMOUNT_ONES, l->pids, 1, LIMIT_PIDS_MAX},
        {"disk limit", AMOUNT_BYTES, l->disk_bytes, LIMIT_DISK_MIN, LIMIT_BYTES_MAX},
        {"ttl", AMOUNT_MS, l->lifetime_ms, 1, LIMIT_LIFETIME_MAX_MS},
    };
    return ranges_check(rows, sizeof(rows) / sizeof(*rows), err);
}

void limits_write(struct jot *j, const struct limits_told *l) {
    jot_object(j, "limits");
    jot_u64(j, "memory_bytes", l->mem_bytes);
    jot_u64(j, "disk_bytes", l->disk_bytes);
    jot_u64(j, "processes", l->pids);
    if (l->cpu_milli)
        jot_u64(j, "cpu_milli", l->cpu_milli);
    jot_u64(j, "lifetime_ms", l->lifetime_ms);
    jot_end(j, '}');
}
