#include "base/limits.h"

#include <inttypes.h>
#include <stddef.h>

#include "base/err.h"
#include "base/jot.h"

int limits_in_range(const struct limits_told *l, struct err *err) {
    const struct {
        const char *name;
        uint64_t value, min, max;
    } rows[] = {
        {"memory", l->mem_bytes, LIMIT_MEM_MIN, LIMIT_BYTES_MAX},
        {"cpu", l->cpu_milli, 1, LIMIT_CPU_MAX_MILLI},
        {"process", l->pids, 1, LIMIT_PIDS_MAX},
        {"disk", l->disk_bytes, LIMIT_DISK_MIN, LIMIT_BYTES_MAX},
        {"lifetime", l->lifetime_ms, 1, LIMIT_LIFETIME_MAX_MS},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (rows[i].value && (rows[i].value < rows[i].min || rows[i].value > rows[i].max))
            return err_set(err, ERR_INVALID,
                           "%s limit %" PRIu64 " is out of range (%" PRIu64 " to %" PRIu64 ")",
                           rows[i].name, rows[i].value, rows[i].min, rows[i].max);
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
