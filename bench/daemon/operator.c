/*
 * A step of the operator, with a rehearsal for its model: beside the same command through the API
 * and one flush of a small write, which is what a step cannot do without.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/jot.h"
#include "bench.h"

enum { RUNS = 10, QUICK_RUNS = 1, STEPS = 100, QUICK_STEPS = 5, WARM_UP = 20 };

static void die(const char *what) {
    fprintf(stderr, "daemon_bench: operator: %s\n", what);
    exit(1);
}

/* One turn a step; the commands differ, or the run would be told that it goes in circles. */
static void put_script(struct buf *to, unsigned steps) {
    struct jot j = JOT(to);
    jot_object(&j, NULL);
    jot_array(&j, "turns");
    for (unsigned i = 0; i <= steps; i++) {
        char text[200];
        snprintf(text, sizeof(text),
                 i < steps
                     ? "{\"turn\":%u,\"calls\":[{\"tool\":\"exec\",\"arguments\":{\"argv\":"
                       "[\"/bin/true\",\"%u\"]}}]}"
                     : "{\"turn\":%u,\"calls\":[{\"tool\":\"finish\",\"arguments\":{\"status\":"
                       "\"partial\",\"summary\":\"s\",\"open_issues\":[\"%u\"]}}]}",
                 i, i);
        jot_raw(&j, NULL, text);
    }
    jot_end(&j, ']');
    jot_end(&j, '}');
    if (j.failed)
        die("the script is too long");
}

/* From the request to the last line of its transcript. */
static uint64_t play(struct bench *b, const char *machine, unsigned steps) {
    struct buf script DEFER(buf_done) = BUF(1 << 20), body DEFER(buf_done) = BUF(2 << 20),
                      answer DEFER(buf_done) = BUF(64 << 20);
    struct jot j = JOT(&body);
    char target[BENCH_TARGET];
    put_script(&script, steps);
    jot_object(&j, NULL);
    jot_string(&j, "task", "t");
    jot_string(&j, "machine", machine);
    jot_string(&j, "model", "rehearsal/bench");
    jot_u64(&j, "turns", 2 * steps + 10);
    jot_string(&j, "script", script.data);
    jot_end(&j, '}');
    uint64_t began = now_ns();
    bench_ask(b, "POST", "/v1/runs", body.data, &answer);
    const char *id = strstr(answer.data, "\"id\":\"r-");
    if (!id)
        die("there is no run");
    snprintf(target, sizeof(target), "/v1/runs/%.14s/transcript?follow=1", id + 6);
    bench_ask(b, "GET", target, NULL, &answer);
    uint64_t took = now_ns() - began;
    if (!strstr(answer.data, "\"event\":\"end\""))
        die("the run did not end");
    return took;
}

static uint64_t flush_once(int fd) {
    static const char line[200] = "x";
    uint64_t began = now_ns();
    if (write(fd, line, sizeof(line)) != sizeof(line) || fdatasync(fd) < 0)
        die("a write failed");
    return now_ns() - began;
}

static uint64_t exec_once(struct bench *b, const char *target, struct buf *answer) {
    uint64_t began = now_ns();
    bench_ask(b, "POST", target, "{\"argv\":[\"/bin/true\"]}", answer);
    return now_ns() - began;
}

static void sample(struct bench *b, const char *machine, struct samples *step,
                   struct samples *floor) {
    struct buf answer DEFER(buf_done) = BUF(1 << 20);
    unsigned runs = b->quick ? QUICK_RUNS : RUNS, steps = b->quick ? QUICK_STEPS : STEPS;
    char target[BENCH_TARGET], path[128];
    snprintf(path, sizeof(path), "%s/flushed", b->dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0)
        die("no file to flush");
    bench_exec_target(machine, target);
    for (unsigned i = 0; i < WARM_UP; i++)
        exec_once(b, target, &answer);
    for (unsigned i = 0; i < runs; i++) {
        uint64_t plain = 0;
        for (unsigned k = 0; k < steps; k++)
            plain += exec_once(b, target, &answer) + flush_once(fd);
        samples_add(floor, plain / steps);
        samples_add(step, play(b, machine, steps) / steps);
    }
    close(fd);
}

void measure_operator(struct bench *b) {
    struct samples step = {0}, floor = {0};
    char id[BENCH_ID];
    report_section(b->report, "Operator: one step of a rehearsed run, mean of each run");
    bench_create(b, id);
    sample(b, id, &step, &floor);
    bench_destroy(b, id);
    report_times(b->report, "POST .../execs and one fdatasync", &floor, NULL);
    report_times(b->report, "a turn with an exec", &step, &floor);
    report_bar(b->report, "operator step / (exec by REST + fdatasync), p50",
               (double)samples_quantile(&step, 500) / (double)samples_quantile(&floor, 500), 3,
               "x");
    samples_done(&step);
    samples_done(&floor);
}
