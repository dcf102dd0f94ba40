#include "base/limits.h"

#include "base/jot.h"

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
