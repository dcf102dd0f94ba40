#include "guest/usage.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysinfo.h>

#include "guest/scratch.h"
#include "guest/sys.h"

struct usage_files usage_files = {-1, false, -1, {-1, -1, -1}, -1, -1};

enum { TEXT_SIZE = 16384, QUOTA_PERIOD_US = 100000 };

static char text[TEXT_SIZE] SCRATCH;

/* Reads a file from its start into `text`, as far as it fits. */
static size_t usage_read(int fd) {
    ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

/* Returns the number in a file; `none` if there is no number, like "max" of cgroup v2. */
static uint64_t usage_number(int fd, uint64_t none) {
    usage_read(fd);
    return *text >= '0' && *text <= '9' ? strtoull(text, NULL, 10) : none;
}

void usage_memory(struct procview_memory *ret) {
    struct sysinfo host;
    *ret = (struct procview_memory){.total = usage_number(usage_files.memory[0], UINT64_MAX)};
    uint64_t most = sysinfo(&host) == 0 ? (uint64_t)host.totalram * host.mem_unit : ret->total;
    if (ret->total > most)
        ret->total = most;
    ret->used = usage_number(usage_files.memory[1], 0);
    usage_read(usage_files.memory[2]);
    procview_memory_read(text, ret);
}

static void usage_add(int proc, const char *pid, struct usage_processes *ret) {
    char path[32];
    struct procview_process p;
    snprintf(path, sizeof(path), "%.10s/stat", pid);
    int fd DEFER_CLOSE = openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (!usage_read(fd) || !procview_process_read(text, &p))
        return;
    uint64_t number = strtoull(pid, NULL, 10);
    ret->user += p.user;
    ret->system += p.system;
    ret->threads += p.threads;
    ret->running += p.state == 'R';
    ret->blocked += p.state == 'D';
    if (number > ret->last_pid)
        ret->last_pid = number;
}

void usage_processes(struct usage_processes *ret) {
    *ret = (struct usage_processes){0};
    int fd = openat(usage_files.proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        close_fd(&fd);
        return;
    }
    for (struct dirent *e; (e = readdir(dir));)
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
            usage_add(fd, e->d_name, ret);
    closedir(dir);
}

/* Returns the number after `key`, which begins a line, in `text`. */
static uint64_t usage_value(const char *key) {
    const char *at = strstr(text, key);
    return at ? strtoull(at + strlen(key), NULL, 10) : 0;
}

/*
 * cgroup v2 counts microseconds (cpu.stat), v1 ticks (cpuacct.stat). Without such a file the times
 * of processes are added up: pid 1 has those of all processes that it has reaped.
 */
void usage_cpu(const struct usage_processes *all, uint64_t *ret_user, uint64_t *ret_system) {
    static uint64_t most_user, most_system;
    uint64_t user = all->user, system = all->system;
    if (usage_read(usage_files.cpu)) {
        bool v2 = strstr(text, "user_usec ") != NULL;
        user = v2 ? usage_value("user_usec ") / (1000000 / PROCVIEW_HZ) : usage_value("user ");
        system =
            v2 ? usage_value("system_usec ") / (1000000 / PROCVIEW_HZ) : usage_value("system ");
    }
    /* A process that nobody waits for takes its time with it. */
    *ret_user = most_user = user > most_user ? user : most_user;
    *ret_system = most_system = system > most_system ? system : most_system;
}

unsigned usage_cpus(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) < 0 || CPU_COUNT(&set) < 1)
        return 1;
    return (unsigned)CPU_COUNT(&set);
}

uint64_t usage_capacity_milli(void) {
    uint64_t all = usage_cpus() * 1000ull;
    uint64_t quota_us = usage_number(usage_files.quota, UINT64_MAX);
    uint64_t milli = quota_us / (QUOTA_PERIOD_US / 1000);
    return milli < all ? milli : all;
}
