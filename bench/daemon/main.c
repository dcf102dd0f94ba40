/*
 * daemon_bench: what a machine, a command, its output and a crowd cost through the daemon.
 * `--slow-sync LIB` measures the first two once more with a daemon whose every sync takes 5 ms
 * longer (a preloaded library).
 */
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "bench/prefer.h"
#include "bench/settle.h"

struct options {
    struct bench bench;
    const char *json, *table, *preload, *only;
};

static bool wanted(const struct options *o, const char *measure) {
    return !o->only || strcmp(o->only, measure) == 0;
}

static void run(struct options *o) {
    struct bench *b = &o->bench;
    bench_start(b, NULL);
    if (wanted(o, "latency"))
        measure_latency(b, false);
    if (wanted(o, "mcp"))
        measure_mcp(b);
    if (wanted(o, "operator"))
        measure_operator(b);
    if (wanted(o, "steps"))
        measure_steps(b);
    if (wanted(o, "history"))
        measure_history(b);
    if (wanted(o, "flat"))
        measure_flat(b);
    if (wanted(o, "forks"))
        measure_forks(b);
    if (wanted(o, "output"))
        measure_output(b);
    if (wanted(o, "load"))
        measure_load(b);
    bench_stop(b);
    if (wanted(o, "forks")) {
        bench_start_bare(b);
        measure_first_exec(b);
        bench_stop(b);
    }
    if (o->preload && wanted(o, "latency")) {
        bench_start(b, o->preload);
        measure_latency(b, true);
        bench_stop(b);
    }
}

static const struct option long_options[] = {
    {"build", required_argument, NULL, 'b'},
    {"json", required_argument, NULL, 'j'},
    {"table", required_argument, NULL, 't'},
    {"only", required_argument, NULL, 'o'},
    {"slow-sync", required_argument, NULL, 's'},
    {"quick", no_argument, NULL, 'q'},
    {NULL, 0, NULL, 0},
};

static int read_options(int argc, char **argv, struct options *o) {
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;)
        switch (c) {
        case 'b':
            o->bench.build = optarg;
            break;
        case 'j':
            o->json = optarg;
            break;
        case 't':
            o->table = optarg;
            break;
        case 'o':
            o->only = optarg;
            break;
        case 's':
            o->preload = optarg;
            break;
        case 'q':
            o->bench.quick = true;
            break;
        default:
            return -1;
        }
    return optind == argc ? 0 : -1;
}

int main(int argc, char **argv) {
    struct options o = {.bench = {.build = "build"}};
    struct err err;
    if (read_options(argc, argv, &o) < 0) {
        fputs("usage: daemon_bench [--build DIR] [--only "
              "latency|mcp|operator|steps|history|flat|forks|output|load] "
              "[--slow-sync LIB] "
              "[--quick] [--table FILE] [--json FILE]\n",
              stderr);
        return 2;
    }
    mount_run();
    o.bench.report = report_new("daemon");
    report_host(o.bench.report);
    struct preference preference;
    prefer(&preference, o.bench.report);
    run(&o);
    prefer_no_more(&preference);
    if (report_show(o.bench.report, o.table, o.json, &err) < 0)
        bench_fail(&err);
    int status = report_is_whole(o.bench.report) ? 0 : 1;
    report_free(o.bench.report);
    return status;
}
