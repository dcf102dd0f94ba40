/* The texts of /proc that show a machine instead of its host. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/text/procview.h"

static const char v1_stat[] = "cache 10\nrss 20\nshmem 30\nactive_anon 1\n"
                              "hierarchical_memory_limit 999\n"
                              "total_cache 8192\ntotal_rss 4096\ntotal_shmem 2048\n"
                              "total_inactive_file 1024\ntotal_active_file 3072\n";
static const char v2_stat[] = "anon 4096\nfile 8192\nkernel 77\nshmem 2048\nfile_mapped 1024\n"
                              "inactive_file 1024\nactive_file 3072\nslab_reclaimable 2048\n"
                              "slab 4096\nworkingset_refault_anon 5\n";

/* Returns the number of kB in the row `name`; UINT64_MAX: there is none. */
static uint64_t row(const char *text, const char *name) {
    char key[32];
    snprintf(key, sizeof(key), "%s:", name);
    const char *at = strstr(text, key);
    return at ? strtoull(at + strlen(key), NULL, 10) : UINT64_MAX;
}

static void both_versions_of_memory_stat_are_read(void **state) {
    (void)state;
    const char *const texts[] = {v1_stat, v2_stat};
    for (size_t i = 0; i < 2; i++) {
        struct procview_memory m = {0};
        procview_memory_read(texts[i], &m);
        assert_int_equal(m.file, 8192);
        assert_int_equal(m.anon, 4096);
        assert_int_equal(m.shmem, 2048);
        assert_int_equal(m.inactive_file, 1024);
        assert_int_equal(m.active_file, 3072);
        assert_int_equal(m.slab, i ? 4096 : 0);
    }
}

static void meminfo_has_the_limit_and_counts_cache_as_available(void **state) {
    (void)state;
    char text[4096];
    struct procview_memory m = {.total = 64 << 20, .used = 24 << 20};
    m.active_file = m.inactive_file = 4 << 20;
    m.shmem = 1 << 20;
    m.file = 9 << 20;
    size_t n = procview_meminfo(text, sizeof(text), &m);
    assert_int_equal(n, strlen(text));
    assert_memory_equal(text, "MemTotal:          65536 kB\n", 28);
    assert_int_equal(row(text, "MemFree"), 40 << 10);
    assert_int_equal(row(text, "MemAvailable"), 48 << 10);
    assert_int_equal(row(text, "Cached"), 9 << 10);
    assert_int_equal(row(text, "SwapTotal"), 0);
    m.used = 70 << 20; /* counters of v1 may pass the limit for a moment */
    procview_meminfo(text, sizeof(text), &m);
    assert_int_equal(row(text, "MemFree"), 0);
    m.used = 0;
    procview_meminfo(text, sizeof(text), &m);
    assert_int_equal(row(text, "MemAvailable"), 64 << 10);
}

static void a_process_cannot_forge_its_times_by_its_name(void **state) {
    (void)state;
    struct procview_process p;
    static const char text[] =
        "42 (a) R 1 9 9 9 9 9 9 9 9 9 9999 9 9 9 9 (b)) S 1 42 42 0 -1 4194304 "
        "100 0 0 0 7 5 30 20 20 0 3 0 12345 1000 10\n";
    assert_true(procview_process_read(text, &p));
    assert_int_equal(p.state, 'S');
    assert_int_equal(p.user, 37);
    assert_int_equal(p.system, 25);
    assert_int_equal(p.threads, 3);
    assert_false(procview_process_read("42 (a) R 1 2", &p));
    assert_false(procview_process_read("42 (a)", &p));
    assert_false(procview_process_read("", &p));
}

static void stat_has_a_line_per_processor_and_no_work_of_the_host(void **state) {
    (void)state;
    char text[1024];
    struct procview_cpu c = {.cpus = 2,
                             .user = 100,
                             .system = 20,
                             .up = 1000,
                             .btime = 1700000000,
                             .processes = 9,
                             .running = 1};
    size_t n = procview_stat(text, sizeof(text), &c);
    assert_int_equal(n, strlen(text));
    assert_string_equal(text, "cpu  100 0 20 1880 0 0 0 0 0 0\n"
                              "cpu0 50 0 10 940 0 0 0 0 0 0\n"
                              "cpu1 50 0 10 940 0 0 0 0 0 0\n"
                              "intr 0\nctxt 0\nbtime 1700000000\nprocesses 9\nprocs_running 1\n"
                              "procs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n");
    /* More processors than there is room for: lines are left out, and none is cut. */
    c.cpus = 4000;
    n = procview_stat(text, sizeof(text), &c);
    assert_true(n < sizeof(text) && text[n - 1] == '\n');
}

static void uptime_has_the_idle_time_of_all_processors(void **state) {
    (void)state;
    char text[64];
    struct procview_cpu c = {.cpus = 2, .up = 1000, .user = 100, .system = 21};
    size_t n = procview_uptime(text, sizeof(text), 1203, &c);
    assert_int_equal(n, strlen(text));
    assert_string_equal(text, "12.03 18.79\n");
    c.user = 5000; /* time that was used on more processors than the machine has now */
    procview_uptime(text, sizeof(text), 1203, &c);
    assert_string_equal(text, "12.03 0.00\n");
}

static void cpuinfo_keeps_the_first_processors_and_numbers_them(void **state) {
    (void)state;
    static const char host[] = "processor\t: 0\nflags\t\t: fp\n\nprocessor\t: 10\nflags\t\t: fp\n\n"
                               "processor\t: 12\nflags\t\t: fp\n\n";
    static const struct {
        unsigned cpus;
        const char *want;
    } rows[] = {
        {1, "processor\t: 0\nflags\t\t: fp\n\n"},
        {2, "processor\t: 0\nflags\t\t: fp\n\nprocessor\t: 1\nflags\t\t: fp\n\n"},
        {9, "processor\t: 0\nflags\t\t: fp\n\nprocessor\t: 1\nflags\t\t: fp\n\n"
            "processor\t: 2\nflags\t\t: fp\n\n"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        char text[sizeof(host)];
        memcpy(text, host, sizeof(host));
        size_t n = procview_cpuinfo(text, sizeof(host) - 1, rows[i].cpus);
        assert_int_equal(n, strlen(rows[i].want));
        assert_memory_equal(text, rows[i].want, n);
    }
    char other[] = "processor 0: version = FF\nprocessors\t: 3\nno newline";
    assert_int_equal(procview_cpuinfo(other, sizeof(other) - 1, 1), sizeof(other) - 1);
}

#define SECOND 1000000000ull

static void load_follows_cpu_time_and_decays_like_the_kernels(void **state) {
    (void)state;
    char text[128];
    struct procview_load l = {.at_ns = 5 * SECOND};
    struct procview_load_now now = {.ns = 5 * SECOND, .capacity_milli = 4000};
    procview_load_advance(&l, &now);
    procview_loadavg(text, sizeof(text), &l, 1, 7, 42);
    assert_string_equal(text, "0.00 0.00 0.00 1/7 42\n");
    /* One CPU of four for a minute, seen at the end only: 1 - 1/e, and so on. */
    now.ns += 60 * SECOND;
    now.ticks += 60 * PROCVIEW_HZ;
    procview_load_advance(&l, &now);
    procview_loadavg(text, sizeof(text), &l, 1, 7, 42);
    assert_string_equal(text, "0.63 0.18 0.06 1/7 42\n");
    now.ns += 60 * SECOND;
    procview_load_advance(&l, &now);
    procview_loadavg(text, sizeof(text), &l, 0, 7, 42);
    assert_string_equal(text, "0.23 0.15 0.06 0/7 42\n");
}

static void load_is_the_same_however_often_it_is_read(void **state) {
    (void)state;
    struct procview_load often = {0}, once = {0};
    struct procview_load_now now = {.capacity_milli = 8000};
    for (int i = 0; i < 700; i++) { /* 0.7 s and 140 ticks each: a load of 2 */
        now.ns += 700000000;
        now.ticks += 140;
        procview_load_advance(&often, &now);
    }
    procview_load_advance(&once, &now);
    for (int i = 0; i < 3; i++)
        assert_in_range(often.average[i], once.average[i] * 98 / 100, once.average[i] * 102 / 100);
}

static void tasks_that_wait_for_a_limit_count_as_load(void **state) {
    (void)state;
    struct procview_load l = {0};
    /* Four tasks share half a CPU for an hour. */
    struct procview_load_now now = {
        .ns = 3600 * SECOND, .ticks = 3600 * PROCVIEW_HZ / 2, .runnable = 4, .capacity_milli = 500};
    procview_load_advance(&l, &now);
    assert_in_range(l.average[0], 3990 * 1024, 4000 * 1024);
    /* With room to spare, tasks that happen to run at the end do not count for the whole hour. */
    l = (struct procview_load){0};
    now.capacity_milli = 2000;
    procview_load_advance(&l, &now);
    assert_in_range(l.average[0], 490 * 1024, 500 * 1024);
}

UNIT_MAIN(cmocka_unit_test(both_versions_of_memory_stat_are_read),
          cmocka_unit_test(meminfo_has_the_limit_and_counts_cache_as_available),
          cmocka_unit_test(a_process_cannot_forge_its_times_by_its_name),
          cmocka_unit_test(stat_has_a_line_per_processor_and_no_work_of_the_host),
          cmocka_unit_test(uptime_has_the_idle_time_of_all_processors),
          cmocka_unit_test(cpuinfo_keeps_the_first_processors_and_numbers_them),
          cmocka_unit_test(load_follows_cpu_time_and_decays_like_the_kernels),
          cmocka_unit_test(load_is_the_same_however_often_it_is_read),
          cmocka_unit_test(tasks_that_wait_for_a_limit_count_as_load))
