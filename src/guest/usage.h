/*
 * What the machine may use and what it uses: read from files of its cgroups, which the spawner
 * opened for the guest, and from its own processes. A file that the host does not have is -1.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/text/procview.h"

struct usage_files {
    int proc;       /* /proc of the machine; -1: use the mounted one */
    bool is_hidden; /* a cell machine: /proc is not mounted, so `proc` is the only way to it */
    int processors; /* the host's /proc/cpuinfo */
    int memory[3];  /* files of the memory group: limit, use, memory.stat */
    int quota, cpu; /* files of the cpu group: limit, use */
};

extern struct usage_files usage_files;

void usage_memory(struct procview_memory *ret);

/* Numbers of all processes in the machine, pid 1 included. */
struct usage_processes {
    uint64_t user, system; /* ticks of all processes, also of those that have ended */
    uint64_t threads, running, blocked, last_pid;
};

void usage_processes(struct usage_processes *ret);

/* Returns the CPU time of the machine, which never decreases, in ticks. */
void usage_cpu(const struct usage_processes *all, uint64_t *ret_user, uint64_t *ret_system);

/* Returns how many CPUs the guest may run on: the spawner sets as many as the limit allows. */
unsigned usage_cpus(void);
/* Returns how much CPU time per second the machine may use, in thousandths of a CPU. */
uint64_t usage_capacity_milli(void);
