/*
 * Chooses CPUs by load. Pure: the loads are the cpu limits of boxes, not what they use.
 */
#pragma once

#include <sched.h>
#include <stdint.h>

/* Load of each CPU, in thousandths. */
struct cpu_loads {
    uint64_t milli[CPU_SETSIZE];
};

/* Adds a box to the loads: its limit is spread over its CPUs. */
void cpu_loads_add(struct cpu_loads *loads, const cpu_set_t *cpus, uint64_t cpu_milli);

/*
 * Chooses the CPUs for a limit from `allowed`. If several CPUs have the same load, the first one at
 * or after CPU `from` is chosen. Limit 0: all of `allowed`.
 */
void cpus_choose(const struct cpu_loads *loads, const cpu_set_t *allowed, uint64_t cpu_milli,
                 unsigned from, cpu_set_t *ret);
