/* box_bench: what a box costs, beside fork+exec and the peers, in one run. */
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "bench/prefer.h"
#include "bench/settle.h"
#include "measures.h"

struct options {
    bool quick, help;
    const char *json, *table, *build, *only;
};

static const struct option long_options[] = {
    {"quick", no_argument, NULL, 'q'},
    {"json", required_argument, NULL, 'j'},
    {"table", required_argument, NULL, 't'},
    {"build", required_argument, NULL, 'b'},
    {"only", required_argument, NULL, 'o'},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0},
};

static const char usage[] =
    "usage: box_bench [--quick] [--only MEASURE] [--json FILE] [--table FILE] [--build FOLDER]\n"
    "  --quick   few samples: does everything still measure?\n"
    "  --only    one of: latency rate memory crowd inside churn\n"
    "  --json    the data\n"
    "  --table   the tables, which also go to standard output\n"
    "  --build   the folder that holds carrel (default: build)\n";

static const struct {
    const char *name;
    int (*run)(struct bench *b, struct err *err);
} measures[] = {
    {"latency", measure_latency}, {"rate", measure_rate},     {"memory", measure_memory},
    {"crowd", measure_crowd},     {"inside", measure_inside}, {"churn", measure_churn},
};

enum { SKIP = 77 };

static int run_measures(struct bench *b, const char *only, struct err *err) {
    bool known = !only;
    for (size_t i = 0; i < sizeof(measures) / sizeof(*measures); i++) {
        if (only && strcmp(only, measures[i].name) != 0)
            continue;
        known = true;
        fprintf(stderr, "box_bench: %s\n", measures[i].name);
        if (world_settle(&b->world, 0, err) < 0 || measures[i].run(b, err) < 0)
            return err_wrap(err, "measure %s", measures[i].name);
    }
    return known ? 0 : err_set(err, ERR_INVALID, "no measure '%s'", only);
}

static int run(struct bench *b, const struct options *o, struct err *err) {
    if (world_open(&b->world, o->build, WORLD_USUAL, err) < 0)
        return -1;
    int r = peers_open(&b->peers, b->world.place.home, err);
    if (r == 0)
        r = run_measures(b, o->only, err);
    world_close(&b->world);
    return r;
}

static void add_skipped(struct bench *b) {
    report_section(b->report, "Skipped");
    for (size_t i = 0; i < PEER_MAX; i++)
        if (b->peers.all[i].why_not[0])
            report_skip(b->report, b->peers.all[i].name, b->peers.all[i].why_not);
}

static int read_options(int argc, char **argv, struct options *o) {
    for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;)
        switch (c) {
        case 'q':
            o->quick = true;
            break;
        case 'j':
            o->json = optarg;
            break;
        case 't':
            o->table = optarg;
            break;
        case 'b':
            o->build = optarg;
            break;
        case 'o':
            o->only = optarg;
            break;
        case 'h':
            o->help = true;
            break;
        default:
            return -1;
        }
    return optind == argc ? 0 : -1;
}

/* Standard input is what every child gets for a null device; a crowd needs many descriptors. */
static void prepare(void) {
    struct rlimit files;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0)
        dup2(null, STDIN_FILENO);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

int main(int argc, char **argv) {
    struct options o = {.build = "build"};
    struct err err = {0};
    if (read_options(argc, argv, &o) < 0 || o.help) {
        fputs(usage, o.help ? stdout : stderr);
        return o.help ? 0 : 2;
    }
    mount_run();
    struct bench b = {.report = report_new("box"), .build = o.build, .quick = o.quick};
    report_host(b.report);
    prepare();
    struct preference preference;
    prefer(&preference, b.report);
    int r = run(&b, &o, &err);
    prefer_no_more(&preference);
    add_skipped(&b);
    if (report_show(b.report, o.table, o.json, r < 0 ? NULL : &err) < 0)
        r = -1;
    bool whole = report_is_whole(b.report);
    report_free(b.report);
    if (r < 0)
        fprintf(stderr, "box_bench: %s\n", err.text);
    if (r < 0 && o.quick && err.code == ERR_UNSUPPORTED)
        return SKIP; /* this host makes no boxes */
    return r < 0 || !whole;
}
