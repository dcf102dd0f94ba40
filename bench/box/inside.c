/* What work costs in a box: the same programs, in turn inside and outside. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "measures.h"

enum { WORKS = 7, OUT = 65536 };

static const char *const names[WORKS] = {
    "getppid", "open+close",      "stat", "create+write+unlink", "fork+wait",
    "meminfo", "meminfo-after-1s"};

struct inside {
    struct box box;
    uint32_t exec_id;
    char folder[PLACE_SIZE + 16]; /* outside; on a tmpfs, as the box's /tmp is */
    char disk[PLACE_SIZE + 16];   /* outside, where builds are done without a box */
    char *text;
    struct samples in[WORKS], out[WORKS], build_in, build_tmpfs, build_disk;
};

/* Lines of "NAME NANOSECONDS". */
static void take(const char *text, struct samples to[WORKS]) {
    char name[32];
    uint64_t ns;
    for (; sscanf(text, "%31s %" SCNu64, name, &ns) == 2; text = strchr(text, '\n') + 1)
        for (int i = 0; i < WORKS; i++)
            if (strcmp(name, names[i]) == 0)
                samples_add(&to[i], ns);
}

static int call_round(struct bench *b, struct inside *s, struct err *err) {
    char program[PLACE_SIZE + 16];
    snprintf(program, sizeof(program), "%s/box_work", b->world.tools);
    const char *const out[] = {program, s->folder, NULL}, *const in[] = {"/bench/box_work", "/tmp",
                                                                         NULL};
    struct rusage usage;
    struct guest_result result;
    if (outside_read(out, s->text, OUT, &usage, err) < 0)
        return -1;
    take(s->text, s->out);
    if (box_read(&s->box, ++s->exec_id, in, s->text, OUT, &result, err) < 0)
        return -1;
    take(s->text, s->in);
    return 0;
}

static int build_outside(struct bench *b, struct inside *s, const char *folder, struct samples *to,
                         struct err *err) {
    char script[PLACE_SIZE + 16];
    snprintf(script, sizeof(script), "%s/build.sh", b->world.tools);
    const char *const argv[] = {"/bin/sh", script, folder, NULL};
    struct rusage u;
    if (outside_read(argv, s->text, OUT, &u, err) < 0)
        return -1;
    samples_add(to, (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000u +
                        (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000u);
    return 0;
}

static int build_round(struct bench *b, struct inside *s, struct err *err) {
    static const char *const argv[] = {"/bin/sh", "/bench/build.sh", "/tmp", NULL};
    struct guest_result r;
    if (build_outside(b, s, s->disk, &s->build_disk, err) < 0 ||
        build_outside(b, s, s->folder, &s->build_tmpfs, err) < 0 ||
        box_read(&s->box, ++s->exec_id, argv, s->text, OUT, &r, err) < 0)
        return -1;
    samples_add(&s->build_in, (r.exit.user_us + r.exit.system_us) * 1000);
    return 0;
}

static int run_rounds(struct bench *b, struct inside *s, struct err *err) {
    for (int i = 0; i < (b->quick ? 1 : 10); i++)
        if (call_round(b, s, err) < 0)
            return -1;
    if (access("/usr/bin/gcc", X_OK) < 0)
        return 0;
    for (int i = 0; i < (b->quick ? 1 : 15); i++)
        if (build_round(b, s, err) < 0)
            return -1;
    return 0;
}

static void report_inside(struct bench *b, struct inside *s) {
    char name[80];
    report_section(b->report,
                   "Calls outside and inside, files on tmpfs (inside: overlay on tmpfs)");
    for (int i = 0; i < WORKS; i++) {
        snprintf(name, sizeof(name), "outside: %s", names[i]);
        report_times(b->report, name, &s->out[i], NULL);
        snprintf(name, sizeof(name), "inside: %s", names[i]);
        report_times(b->report, name, &s->in[i], &s->out[i]);
    }
    report_section(b->report, "Build-like work (8 compilations, tar, untar), cpu time");
    if (!s->build_in.n) {
        report_skip(b->report, "build-like work", "gcc is not installed");
        return;
    }
    report_times(b->report, "outside, folder on disk", &s->build_disk, NULL);
    report_times(b->report, "outside, folder on tmpfs", &s->build_tmpfs, &s->build_disk);
    report_times(b->report, "inside", &s->build_in, &s->build_disk);
    double inside = (double)samples_quantile(&s->build_in, 500);
    report_bar(b->report, "build-like work inside / outside on disk, cpu, p50",
               inside / (double)samples_quantile(&s->build_disk, 500), 1.05, "x");
    report_bar(b->report, "build-like work inside / outside on tmpfs, cpu, p50",
               inside / (double)samples_quantile(&s->build_tmpfs, 500), 1.05, "x");
}

int measure_inside(struct bench *b, struct err *err) {
    struct inside s = {.text = malloc(OUT)};
    if (!s.text)
        abort();
    snprintf(s.folder, sizeof(s.folder), "%s/outside", b->world.place.run);
    snprintf(s.disk, sizeof(s.disk), "%s/outside", b->world.place.home);
    mkdir(s.folder, 0755);
    mkdir(s.disk, 0755);
    int r = box_open(&s.box, b->world.link, &(struct box_spec){.grant = b->world.tools}, err);
    if (r == 0)
        r = run_rounds(b, &s, err);
    if (s.box.guest && box_destroy(&s.box, b->world.link, err) < 0)
        r = -1;
    rmdir(s.folder);
    rmdir(s.disk);
    if (r == 0)
        report_inside(b, &s);
    for (int i = 0; i < WORKS; i++) {
        samples_done(&s.in[i]);
        samples_done(&s.out[i]);
    }
    samples_done(&s.build_in);
    samples_done(&s.build_tmpfs);
    samples_done(&s.build_disk);
    free(s.text);
    return r;
}
