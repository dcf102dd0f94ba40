/*
 * Writes the files of /proc that show a machine instead of its host: meminfo, stat, cpuinfo,
 * loadavg and uptime.
 *
 * Pure, without allocation: carrel-guest uses it. Functions that write return the length of the
 * text, and leave out what does not fit. Times are in ticks of PROCVIEW_HZ.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROCVIEW_HZ 100u /* ticks per second in /proc; the kernel's USER_HZ */

/* Memory of a machine, in bytes. */
struct procview_memory {
    uint64_t total, used;
    uint64_t file, shmem, anon, mapped, dirty, writeback, slab, slab_reclaimable;
    uint64_t active_anon, inactive_anon, active_file, inactive_file, unevictable;
};

/* Reads the text of a memory.stat file of cgroup v1 or v2 into all fields but total and used. */
void procview_memory_read(const char *text, struct procview_memory *ret);

size_t procview_meminfo(char *out, size_t size, const struct procview_memory *m);

/* A process, from /proc/PID/stat: the times include those of children that it waited for. */
struct procview_process {
    char state;
    uint64_t user, system;
    uint64_t threads;
};

/* False: the text is not complete. The process chooses its own name in it. */
bool procview_process_read(const char *text, struct procview_process *ret);

struct procview_cpu {
    unsigned cpus;
    uint64_t user, system;
    uint64_t up;    /* since the machine started */
    uint64_t btime; /* boot time in seconds since 1970 */
    uint64_t processes, running, blocked;
};

size_t procview_stat(char *out, size_t size, const struct procview_cpu *c);

/* `up` is the uptime to show; the idle time is that of all processors since c->up began. */
size_t procview_uptime(char *out, size_t size, uint64_t up, const struct procview_cpu *c);

/*
 * Cuts the text of the host's /proc/cpuinfo to its first `cpus` processors, numbered from 0, and
 * returns the new length. It never grows.
 */
size_t procview_cpuinfo(char *text, size_t n, unsigned cpus);

/* The load averages of a machine; all zero at its start, but at_ns. */
struct procview_load {
    uint64_t average[3]; /* of 1, 5 and 15 minutes; 1,024,000 is a load of 1 */
    uint64_t at_ns;      /* time up to which the averages count, by the monotonic clock */
    uint64_t ticks;      /* CPU time that was used until then */
};

struct procview_load_now {
    uint64_t ns, ticks;
    uint64_t runnable;       /* tasks that run or wait for a CPU */
    uint64_t capacity_milli; /* CPUs that the machine may use, in thousandths */
};

/*
 * Brings the averages up to date, in whole seconds. The load of a period is its CPU time. If the
 * machine used nearly all the CPU time that it may use, tasks had to wait: then the load is the
 * number of runnable tasks, if that is higher. So nothing has to be sampled between two calls.
 */
void procview_load_advance(struct procview_load *l, const struct procview_load_now *now);

size_t procview_loadavg(char *out, size_t size, const struct procview_load *l, uint64_t running,
                        uint64_t threads, uint64_t last_pid);
