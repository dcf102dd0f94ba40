#include "base/text/procview.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A text with room for `size` bytes, NUL included. A piece that does not fit is left out. */
struct page {
    char *s;
    size_t size, n;
};

static void page_add(struct page *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void page_add(struct page *p, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(p->s + p->n, p->size - p->n, fmt, ap);
    va_end(ap);
    if (n > 0 && (size_t)n < p->size - p->n)
        p->n += (size_t)n;
    else if (p->n < p->size)
        p->s[p->n] = '\0';
}

static uint64_t less(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

/* ---- meminfo ---- */

#define FIELD(name) offsetof(struct procview_memory, name)

/* Keys of memory.stat: of v1, which counts a group with those below it in total_*, and of v2. */
static const struct {
    const char *v1, *v2;
    size_t field;
} memory_keys[] = {
    {"total_cache ", "file ", FIELD(file)},
    {"total_shmem ", "shmem ", FIELD(shmem)},
    {"total_rss ", "anon ", FIELD(anon)},
    {"total_mapped_file ", "file_mapped ", FIELD(mapped)},
    {"total_dirty ", "file_dirty ", FIELD(dirty)},
    {"total_writeback ", "file_writeback ", FIELD(writeback)},
    {"total_active_anon ", "active_anon ", FIELD(active_anon)},
    {"total_inactive_anon ", "inactive_anon ", FIELD(inactive_anon)},
    {"total_active_file ", "active_file ", FIELD(active_file)},
    {"total_inactive_file ", "inactive_file ", FIELD(inactive_file)},
    {"total_unevictable ", "unevictable ", FIELD(unevictable)},
    {"total_slab ", "slab ", FIELD(slab)},
    {"total_slab_reclaimable ", "slab_reclaimable ", FIELD(slab_reclaimable)},
};

static uint64_t *memory_field(struct procview_memory *m, size_t field) {
    return (uint64_t *)(void *)((char *)m + field);
}

static const char *after_key(const char *line, const char *key) {
    size_t n = strlen(key);
    return strncmp(line, key, n) == 0 ? line + n : NULL;
}

static void memory_line(const char *line, bool v1, struct procview_memory *ret) {
    for (size_t i = 0; i < sizeof(memory_keys) / sizeof(*memory_keys); i++) {
        const char *at = after_key(line, v1 ? memory_keys[i].v1 : memory_keys[i].v2);
        if (at)
            *memory_field(ret, memory_keys[i].field) = strtoull(at, NULL, 10);
    }
}

void procview_memory_read(const char *text, struct procview_memory *ret) {
    /* v1 has keys of v2 too, which do not count the groups below. */
    bool v1 = strstr(text, "\ntotal_cache ") != NULL;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        memory_line(line, v1, ret);
    }
}

size_t procview_meminfo(char *out, size_t size, const struct procview_memory *m) {
    uint64_t unused = less(m->total, m->used);
    uint64_t cache = m->active_file + m->inactive_file + m->slab_reclaimable;
    uint64_t available = unused + cache < m->total ? unused + cache : m->total;
    const struct {
        const char *name;
        uint64_t bytes;
    } rows[] = {
        {"MemTotal:", m->total},
        {"MemFree:", unused},
        {"MemAvailable:", available},
        {"Buffers:", 0},
        {"Cached:", m->file},
        {"SwapCached:", 0},
        {"Active:", m->active_anon + m->active_file},
        {"Inactive:", m->inactive_anon + m->inactive_file},
        {"Active(anon):", m->active_anon},
        {"Inactive(anon):", m->inactive_anon},
        {"Active(file):", m->active_file},
        {"Inactive(file):", m->inactive_file},
        {"Unevictable:", m->unevictable},
        {"Mlocked:", 0},
        {"SwapTotal:", 0},
        {"SwapFree:", 0},
        {"Dirty:", m->dirty},
        {"Writeback:", m->writeback},
        {"AnonPages:", m->anon},
        {"Mapped:", m->mapped},
        {"Shmem:", m->shmem},
        {"KReclaimable:", m->slab_reclaimable},
        {"Slab:", m->slab},
        {"SReclaimable:", m->slab_reclaimable},
        {"SUnreclaim:", less(m->slab, m->slab_reclaimable)},
        {"CommitLimit:", m->total},
        {"Committed_AS:", m->used},
    };
    struct page p = {out, size, 0};
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        page_add(&p, "%-16s%8" PRIu64 " kB\n", rows[i].name, rows[i].bytes / 1024);
    return p.n;
}

/* ---- processes and processors ---- */

bool procview_process_read(const char *text, struct procview_process *ret) {
    enum { STATE = 3, UTIME = 14, STIME, CUTIME, CSTIME, THREADS = 20 };
    const char *at = strrchr(text, ')');
    uint64_t fields[THREADS + 1] = {0};
    char state = at && at[1] == ' ' ? at[2] : '\0';
    if (!state)
        return false;
    at += 3;
    for (int i = STATE + 1; i <= THREADS; i++) {
        char *end;
        fields[i] = strtoull(at, &end, 10);
        if (end == at)
            return false;
        at = end;
    }
    *ret = (struct procview_process){.state = state,
                                     .user = fields[UTIME] + fields[CUTIME],
                                     .system = fields[STIME] + fields[CSTIME],
                                     .threads = fields[THREADS]};
    return true;
}

static void stat_line(struct page *p, const char *name, uint64_t user, uint64_t system,
                      uint64_t idle) {
    page_add(p, "%s %" PRIu64 " 0 %" PRIu64 " %" PRIu64 " 0 0 0 0 0 0\n", name, user, system, idle);
}

/*
 * The time that the machine used is spread evenly over its processors: cgroup v2 does not say which
 * one it was used on. Activity of the host stays 0.
 */
size_t procview_stat(char *out, size_t size, const struct procview_cpu *c) {
    struct page p = {out, size, 0};
    uint64_t all = c->cpus * c->up, used = c->user + c->system;
    stat_line(&p, "cpu ", c->user, c->system, less(all, used));
    for (unsigned i = 0; i < c->cpus; i++) {
        char name[16];
        uint64_t user = c->user / c->cpus, system = c->system / c->cpus;
        snprintf(name, sizeof(name), "cpu%u", i);
        stat_line(&p, name, user, system, less(c->up, user + system));
    }
    page_add(&p,
             "intr 0\nctxt 0\nbtime %" PRIu64 "\nprocesses %" PRIu64 "\nprocs_running %" PRIu64
             "\nprocs_blocked %" PRIu64 "\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n",
             c->btime, c->processes, c->running, c->blocked);
    return p.n;
}

size_t procview_uptime(char *out, size_t size, uint64_t up, const struct procview_cpu *c) {
    struct page p = {out, size, 0};
    uint64_t idle = less(c->cpus * c->up, c->user + c->system);
    page_add(&p, "%" PRIu64 ".%02" PRIu64 " %" PRIu64 ".%02" PRIu64 "\n", up / PROCVIEW_HZ,
             up % PROCVIEW_HZ, idle / PROCVIEW_HZ, idle % PROCVIEW_HZ);
    return p.n;
}

/* Returns the number in a line "processor : 7", or NULL. */
static char *processor_number(char *line) {
    char *at = (char *)(uintptr_t)after_key(line, "processor");
    if (!at)
        return NULL;
    at += strspn(at, " \t");
    if (*at != ':')
        return NULL;
    return at + 1 + strspn(at + 1, " \t");
}

size_t procview_cpuinfo(char *text, size_t n, unsigned cpus) {
    unsigned seen = 0;
    char *to = text, *end = text + n;
    for (char *line = text, *next; line < end; line = next) {
        char *newline = memchr(line, '\n', (size_t)(end - line)), *rest = line;
        next = newline ? newline + 1 : end;
        char *number = newline ? processor_number(line) : NULL;
        if (number && seen == cpus)
            break;
        if (number) {
            /* Numbers ascend, so the new one is never longer than the host's. */
            char digits[12];
            int len = snprintf(digits, sizeof(digits), "%u", seen++);
            rest = number + strspn(number, "0123456789");
            memmove(to, line, (size_t)(number - line));
            to += number - line;
            if (len <= rest - number) {
                memcpy(to, digits, (size_t)len);
                to += len;
            }
        }
        memmove(to, rest, (size_t)(next - rest));
        to += next - rest;
    }
    return (size_t)(to - text);
}

/* ---- load ---- */

enum { SHIFT = 20, SCALE = 1024 };

#define SECOND_NS 1000000000u

/* e to the power of -1/60, -1/300 and -1/900, with SHIFT binary places. */
static const uint64_t decay_per_second[3] = {1031245, 1045087, 1047412};

static uint64_t decay_over(uint64_t each, uint64_t seconds) {
    uint64_t r = 1u << SHIFT;
    for (; seconds; seconds >>= 1, each = each * each >> SHIFT)
        if (seconds & 1)
            r = r * each >> SHIFT;
    return r;
}

void procview_load_advance(struct procview_load *l, const struct procview_load_now *now) {
    uint64_t ns = less(now->ns, l->at_ns), seconds = ns / SECOND_NS;
    uint64_t ticks = less(now->ticks, l->ticks);
    if (!seconds)
        return;
    uint64_t milli = ticks * (1000000 / PROCVIEW_HZ) / (ns / 1000000);
    if (milli * 10 >= now->capacity_milli * 9 && now->runnable * 1000 > milli)
        milli = now->runnable * 1000;
    for (int i = 0; i < 3; i++) {
        uint64_t kept = decay_over(decay_per_second[i], seconds);
        l->average[i] = (l->average[i] * kept + milli * SCALE * ((1u << SHIFT) - kept)) >> SHIFT;
    }
    l->at_ns += seconds * SECOND_NS;
    l->ticks += ticks * (seconds * 1000) / (ns / 1000000);
}

size_t procview_loadavg(char *out, size_t size, const struct procview_load *l, uint64_t running,
                        uint64_t threads, uint64_t last_pid) {
    struct page p = {out, size, 0};
    for (int i = 0; i < 3; i++) {
        uint64_t hundredths = (l->average[i] / SCALE + 5) / 10;
        page_add(&p, "%" PRIu64 ".%02" PRIu64 " ", hundredths / 100, hundredths % 100);
    }
    page_add(&p, "%" PRIu64 "/%" PRIu64 " %" PRIu64 "\n", running, threads, last_pid);
    return p.n;
}
