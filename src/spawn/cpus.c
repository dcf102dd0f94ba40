#include "spawn/cpus.h"

void cpu_loads_add(struct cpu_loads *loads, const cpu_set_t *cpus, uint64_t cpu_milli) {
    uint64_t count = (uint64_t)CPU_COUNT(cpus), seen = 0;
    for (unsigned i = 0; seen < count; i++)
        if (CPU_ISSET(i, cpus)) {
            loads->milli[i] += cpu_milli / count;
            seen++;
        }
}

/* Finds the CPU of `left` with the least load. */
static unsigned least_loaded(const struct cpu_loads *loads, const cpu_set_t *left, unsigned from) {
    unsigned best = CPU_SETSIZE;
    for (unsigned n = 0; n < CPU_SETSIZE; n++) {
        unsigned i = (from + n) % CPU_SETSIZE;
        if (CPU_ISSET(i, left) && (best == CPU_SETSIZE || loads->milli[i] < loads->milli[best]))
            best = i;
    }
    return best;
}

void cpus_choose(const struct cpu_loads *loads, const cpu_set_t *allowed, uint64_t cpu_milli,
                 unsigned from, cpu_set_t *ret) {
    uint64_t want = cpu_milli / 1000 + (cpu_milli % 1000 != 0);
    cpu_set_t left = *allowed;
    if (want == 0 || want >= (uint64_t)CPU_COUNT(allowed)) {
        *ret = *allowed;
        return;
    }
    CPU_ZERO(ret);
    for (; want > 0; want--) {
        unsigned cpu = least_loaded(loads, &left, from);
        CPU_SET(cpu, ret);
        CPU_CLR(cpu, &left);
    }
}
