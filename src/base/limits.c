#include "base/limits.h"

#include <stddef.h>

#include "base/amount.h"
#include "base/err.h"
#include "base/jot.h"

int limits_in_range(const struct limits_told *l, struct err *err) {
    const struct {
        const char *name;
        enum amount_unit unit;
        uint64_t value, min, max;
    } rows[] = {
        {"memory", AMOUNT_BYTES, l->mem_bytes, LIMIT_MEM_MIN, LIMIT_BYTES_MAX},
        {"cpu", AMOUNT_MILLIS, l->cpu_milli, 1, LIMIT_CPU_MAX_MILLI},
        {"process", AMOUNT_ONES, l->pids, 1, LIMIT_PIDS_MAX},
        {"disk", AMOUNT_BYTES, l->disk_bytes, LIMIT_DISK_MIN, LIMIT_BYTES_MAX},
        {"ttl", AMOUNT_MS, l->lifetime_ms, 1, LIMIT_LIFETIME_MAX_MS},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char value[AMOUNT_SIZE], min[AMOUNT_SIZE], max[AMOUNT_SIZE];
        if (!rows[i].value || (rows[i].value >= rows[i].min && rows[i].value <= rows[i].max))
            continue;
        amount_show(rows[i].unit, rows[i].value, value);
        amount_show(rows[i].unit, rows[i].min, min);
        amount_show(rows[i].unit, rows[i].max, max);
        return err_set(err, ERR_INVALID, "%s limit %s is out of range: must be between %s and %s",
                       rows[i].name, value, min, max);
    }
    return 0;
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
