/*
 * Cgroups of ended boxes that later boxes use, on cgroup v1.
 *
 * The groups of an ended box rest for a moment, until the kernel has freed what it frees late. Then
 * they are used again if each file that shows state has exactly the text that it has in a new
 * group: no process, no byte of memory, no limit reached, the default limits. Else they are
 * removed. Groups of commands are always removed, because the guest had descriptors of them.
 *
 * Only counters of events in memory.stat, such as page faults, go on. Nobody reads them but a guest
 * that was taken over. On v2 the highest use of memory cannot be reset, so no group is used again.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fdio.h"
#include "spawn/cgroup.h"
#include "spawn/weaken.h"

/* A group with other children than these is not used again: "work" has none, its parent has it. */
enum { LINKS_WORK = 2, LINKS_ROOT = 3, REST_MS = 50, KEPT_TRIES = 2 };

#define PEAK "memory.max_usage_in_bytes" /* shown as the highest use; 0 is written to reset it */

/*
 * Files that show processes, use, limits, and how often a limit was reached. A file that the host
 * lacks is missing in new groups too.
 */
static const struct kept_file {
    size_t base; /* offset of the hierarchy in struct cgroups */
    const char *name;
} kept_files[] = {
    {offsetof(struct cgroups, memory), "memory.usage_in_bytes"},
    {offsetof(struct cgroups, memory), PEAK},
    {offsetof(struct cgroups, memory), "memory.limit_in_bytes"},
    {offsetof(struct cgroups, memory), "memory.failcnt"},
    {offsetof(struct cgroups, memory), "memory.oom_control"},
    {offsetof(struct cgroups, memory), "memory.memsw.usage_in_bytes"},
    {offsetof(struct cgroups, memory), "memory.memsw.limit_in_bytes"},
    {offsetof(struct cgroups, memory), "memory.memsw.failcnt"},
    {offsetof(struct cgroups, memory), "memory.kmem.tcp.usage_in_bytes"},
    {offsetof(struct cgroups, memory), "memory.kmem.tcp.limit_in_bytes"},
    {offsetof(struct cgroups, memory), "cgroup.procs"},
    {offsetof(struct cgroups, pids), "pids.current"},
    {offsetof(struct cgroups, pids), "pids.max"},
    {offsetof(struct cgroups, pids), "pids.events"},
    {offsetof(struct cgroups, cpu), "cgroup.procs"},
    {offsetof(struct cgroups, cpu), "cpu.cfs_quota_us"},
    {offsetof(struct cgroups, cpu), "cpu.stat"},
    {offsetof(struct cgroups, freezer), "cgroup.procs"},
    {offsetof(struct cgroups, freezer), "freezer.state"},
    {offsetof(struct cgroups, freezer), "work/cgroup.procs"},
    {offsetof(struct cgroups, freezer), "work/freezer.state"},
};

static int base_of(const struct cgroups *cg, const struct kept_file *file) {
    return *(const int *)((const char *)cg + file->base);
}

/* Reads the state of the groups. Fails if it cannot be read whole. */
static bool kept_state(const struct cgroups *cg, uint64_t number, char ret[CGROUP_STATE_SIZE]) {
    size_t n = 0;
    for (size_t i = 0; i < sizeof(kept_files) / sizeof(*kept_files); i++) {
        int base = base_of(cg, &kept_files[i]);
        char path[96];
        snprintf(path, sizeof(path), "b%" PRIu64 "/%s", number, kept_files[i].name);
        ssize_t got = base < 0 ? -ENOENT : read_file_at(base, path, ret + n, CGROUP_STATE_SIZE - n);
        if (got == -ENOENT)
            got = snprintf(ret + n, CGROUP_STATE_SIZE - n, "none");
        if (got < 0 || (size_t)got + 2 >= CGROUP_STATE_SIZE - n)
            return false;
        n += (size_t)got;
        ret[n++] = ';';
    }
    ret[n] = '\0';
    return true;
}

static bool has_links(int base, uint64_t number, const char *below, nlink_t links) {
    char path[64];
    struct stat st;
    snprintf(path, sizeof(path), "b%" PRIu64 "%s", number, below);
    return fstatat(base, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_nlink == links;
}

/* A cpu group that also counts the time of its processes (cpuacct) cannot be as new again. */
static bool may_keep(const struct cgroups *cg, uint64_t number) {
    char path[64];
    snprintf(path, sizeof(path), "b%" PRIu64 "/cpuacct.usage", number);
    return cg->mode == CGROUP_V1 && (cg->cpu < 0 || faccessat(cg->cpu, path, F_OK, 0) < 0);
}

void cgroup_learn(struct cgroups *cg, uint64_t number) {
    char *fresh = cg->kept.fresh;
    if (!fresh[0] && (!may_keep(cg, number) || !kept_state(cg, number, fresh)))
        fresh[0] = '\0';
}

static bool is_as_new(const struct cgroups *cg, uint64_t number) {
    char state[CGROUP_STATE_SIZE], path[64];
    snprintf(path, sizeof(path), "b%" PRIu64 "/" PEAK, number);
    if (cg->memory >= 0 && write_file_at(cg->memory, path, "0") < 0)
        return false;
    return kept_state(cg, number, state) && strcmp(state, cg->kept.fresh) == 0 &&
           has_links(cg->freezer, number, "", LINKS_ROOT) &&
           has_links(cg->freezer, number, "/work", LINKS_WORK);
}

bool cgroup_keep(struct cgroups *cg, uint64_t number) {
    struct cgroups_kept *k = &cg->kept;
    char path[64];
    if (!k->fresh[0] || k->count == CGROUP_KEPT_MAX)
        return false;
    for (unsigned i = 0;; i++) {
        snprintf(path, sizeof(path), "b%" PRIu64 "/work/c%u", number, i);
        if (unlinkat(cg->freezer, path, AT_REMOVEDIR) < 0)
            break;
    }
    k->list[k->count].number = number;
    k->list[k->count++].since_ms = boot_ms();
    return true;
}

bool cgroup_take_kept(struct cgroups *cg, uint64_t *ret_number) {
    struct cgroups_kept *k = &cg->kept;
    for (int i = 0; i < KEPT_TRIES; i++) {
        if (!k->count || boot_ms() - k->list[0].since_ms < REST_MS)
            return false;
        uint64_t number = k->list[0].number;
        memmove(k->list, k->list + 1, --k->count * sizeof(*k->list));
        if (weakened("cgroup residue") || is_as_new(cg, number)) {
            k->reused++;
            *ret_number = number;
            return true;
        }
        k->used_up++;
        cgroup_remove(cg, number);
    }
    return false;
}

void cgroups_drop_kept(struct cgroups *cg) {
    while (cg->kept.count)
        cgroup_remove(cg, cg->kept.list[--cg->kept.count].number);
}
