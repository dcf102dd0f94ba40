/* Reads kernel counters of a box from cgroup files and /proc, and changes nothing. */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "spawn/cgroup.h"

/*
 * Reads the number after `key` in a file of "key number" lines; key NULL: the file contains only a
 * number.
 */
static uint64_t read_counter(int base, const char *group, const char *file, const char *key) {
    char path[96], text[1024] = "";
    if (base < 0)
        return 0;
    snprintf(path, sizeof(path), "%s/%s", group, file);
    if (read_file_at(base, path, text, sizeof(text)) <= 0)
        return 0;
    const char *at = key ? strstr(text, key) : text;
    return at ? strtoull(at + (key ? strlen(key) : 0), NULL, 10) : 0;
}

/* Writes the path of a file in the group that has the limits of a box. */
static void counter_path(char *ret, size_t size, bool v1, uint64_t number, const char *file) {
    snprintf(ret, size, v1 ? "b%" PRIu64 "/%s" : "b%" PRIu64 "/work/%s", number, file);
}

void cgroup_facts(struct cgroups *cg, uint64_t number, struct plan_facts *ret) {
    char name[48];
    bool v1 = cg->mode == CGROUP_V1;
    snprintf(name, sizeof(name), v1 ? "b%" PRIu64 : "b%" PRIu64 "/work", number);
    ret->oom_kills =
        read_counter(cg->memory, name, v1 ? "memory.oom_control" : "memory.events", "oom_kill ");
    ret->mem_peak_bytes =
        read_counter(cg->memory, name, v1 ? "memory.max_usage_in_bytes" : "memory.peak", NULL);
    ret->mem_limit_bytes =
        read_counter(cg->memory, name, v1 ? "memory.limit_in_bytes" : "memory.max", NULL);
    ret->pids_refused = read_counter(cg->pids, name, "pids.events", "max ");
    /* v1: cpuacct is mostly mounted together with cpu, and counts nanoseconds. */
    ret->cpu_us = v1 ? read_counter(cg->cpu, name, "cpuacct.usage", NULL) / 1000
                     : read_counter(cg->cpu, name, "cpu.stat", "usage_usec ");
}

static const char *const memory_files[CGROUP_MEMORY_FILES][2] = {
    {"memory.max", "memory.limit_in_bytes"},
    {"memory.current", "memory.usage_in_bytes"},
    {"memory.stat", "memory.stat"},
};
/* v2 counts the time even without the cpu controller. */
static const char *const cpu_files[CGROUP_CPU_FILES][2] = {
    {"cpu.max", "cpu.cfs_quota_us"},
    {"cpu.stat", "cpuacct.stat"},
};

void cgroup_open_counters(struct cgroups *cg, struct cgroup_set *set) {
    bool v1 = cg->mode == CGROUP_V1, complete = true;
    int cpu = v1 ? cg->cpu : cg->freezer;
    char path[96];
    for (int i = 0; i < CGROUP_MEMORY_FILES; i++) {
        counter_path(path, sizeof(path), v1, set->number, memory_files[i][v1]);
        set->memory[i] = cg->memory < 0 ? -1 : openat(cg->memory, path, O_RDONLY | O_CLOEXEC);
        complete &= set->memory[i] >= 0;
    }
    for (int i = 0; i < CGROUP_MEMORY_FILES && !complete; i++)
        close_fd(&set->memory[i]);
    for (int i = 0; i < CGROUP_CPU_FILES; i++) {
        counter_path(path, sizeof(path), v1, set->number, cpu_files[i][v1]);
        set->cpu[i] = cpu < 0 ? -1 : openat(cpu, path, O_RDONLY | O_CLOEXEC);
    }
}

struct sum {
    int proc;
    uint64_t ticks, io_bytes;
    unsigned left; /* number of processes that may still be read */
};

/*
 * Returns the sum of the fields 14 to 17 of /proc/PID/stat: user and system time of the process and
 * of its ended children.
 */
static uint64_t ticks_of(int proc, int pid) {
    char path[32], text[1024];
    unsigned long long t[4];
    snprintf(path, sizeof(path), "%d/stat", pid);
    if (read_file_at(proc, path, text, sizeof(text)) <= 0)
        return 0;
    /* The process chooses its name, which stands in parentheses: parse after the last ')'. */
    const char *after = strrchr(text, ')');
    int n = after ? sscanf(after + 1,
                           " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu",
                           &t[0], &t[1], &t[2], &t[3])
                  : 0;
    return n == 4 ? t[0] + t[1] + t[2] + t[3] : 0;
}

static uint64_t io_of(int proc, int pid) {
    char path[32], text[512];
    unsigned long long in, out;
    snprintf(path, sizeof(path), "%d/io", pid);
    if (read_file_at(proc, path, text, sizeof(text)) <= 0)
        return 0;
    return sscanf(text, "rchar: %llu wchar: %llu", &in, &out) == 2 ? in + out : 0;
}

static void add_process(int pid, void *arg) {
    struct sum *sum = arg;
    if (!sum->left)
        return;
    sum->left--;
    sum->ticks += ticks_of(sum->proc, pid);
    sum->io_bytes += io_of(sum->proc, pid);
}

/*
 * Adds up the CPU time of the processes of a box. A process counts the time of the children that it
 * waited for, and pid 1 waits for all others: so the sum over live processes includes dead ones.
 * Hosts without cpuacct beside cpu have no other counter.
 */
static void add_processes(struct cgroups *cg, int proc, uint64_t number, struct plan_stats *ret) {
    struct sum sum = {.proc = proc, .left = 256};
    cgroup_each_pid(cg, number, add_process, &sum);
    ret->io_bytes = sum.io_bytes;
    if (!ret->cpu_us)
        ret->cpu_us = sum.ticks * 1000000 / (uint64_t)sysconf(_SC_CLK_TCK);
}

static bool is_frozen(struct cgroups *cg, uint64_t number) {
    char group[48];
    snprintf(group, sizeof(group), "b%" PRIu64 "/work", number);
    bool v1 = cg->mode == CGROUP_V1;
    return read_counter(cg->freezer, group, v1 ? "freezer.self_freezing" : "cgroup.freeze", NULL);
}

void cgroup_stats(struct cgroups *cg, int proc, uint64_t number, struct plan_stats *ret) {
    struct plan_facts facts = {0};
    char name[48];
    bool v1 = cg->mode == CGROUP_V1;
    if (cg->memory < 0)
        ret->exists |= PLAN_NO_MEMORY;
    if (cg->pids < 0)
        ret->exists |= PLAN_NO_PIDS;
    if (cg->mode == CGROUP_NONE) {
        ret->exists |= PLAN_NO_CPU;
        return;
    }
    cgroup_facts(cg, number, &facts);
    snprintf(name, sizeof(name), v1 ? "b%" PRIu64 : "b%" PRIu64 "/work", number);
    ret->cpu_us = facts.cpu_us;
    ret->mem_bytes =
        read_counter(cg->memory, name, v1 ? "memory.usage_in_bytes" : "memory.current", NULL);
    ret->mem_peak_bytes = facts.mem_peak_bytes;
    ret->mem_limit_bytes = facts.mem_limit_bytes;
    ret->oom_kills = facts.oom_kills;
    ret->pids_refused = facts.pids_refused;
    uint64_t pids = read_counter(cg->pids, name, "pids.current", NULL);
    ret->pids = v1 && pids ? pids - 1 : pids; /* v1: without the guest's worker thread */
    ret->frozen = is_frozen(cg, number);
    add_processes(cg, proc, number, ret);
}
