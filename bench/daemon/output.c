/*
 * A gigabyte of output: over a plain pipe, into the log through the API, and through `carrel exec`
 * to a pipe. Every byte that is promised is looked at. Memory counts as constant when four times
 * the output has the same peak.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "bench.h"

enum { LINE = 16, READ = 64 << 10, ROUNDS = 3 };
#define WHOLE (1ull << 30)
#define QUICK_WHOLE (64ull << 20)

static char pattern[READ + LINE];

static void make_pattern(void) {
    for (size_t i = 0; i < sizeof(pattern); i++)
        pattern[i] = "0123456789abcde\n"[i % LINE];
}

static void command_of(uint64_t bytes, char *to, size_t n) {
    snprintf(to, n, "yes 0123456789abcde | head -c %" PRIu64, bytes);
}

_Noreturn static void wrong(const char *what, uint64_t at) {
    fprintf(stderr, "daemon_bench: %s: byte %" PRIu64 " is missing or wrong\n", what, at);
    exit(1);
}

static void check(const char *what, uint64_t at, const char *p, size_t n) {
    while (n) {
        size_t part = n < READ ? n : READ;
        if (memcmp(p, pattern + at % LINE, part) != 0)
            wrong(what, at);
        at += part;
        p += part;
        n -= part;
    }
}

/* ---- to a pipe ---- */

static uint64_t drain(const char *what, const char *const *argv, char *const *env, uint64_t bytes) {
    static char chunk[READ];
    uint64_t began = now_ns(), at = 0;
    int ends[2], status;
    if (pipe2(ends, O_CLOEXEC) < 0)
        exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execve(argv[0], (char *const *)argv, env);
        _exit(127);
    }
    close(ends[1]);
    for (ssize_t n; (n = read(ends[0], chunk, sizeof(chunk))) > 0; at += (uint64_t)n)
        check(what, at, chunk, (size_t)n);
    close(ends[0]);
    waitpid(pid, &status, 0);
    if (status != 0 || at != bytes)
        wrong(what, at);
    return now_ns() - began;
}

static uint64_t plain_pipe(uint64_t bytes) {
    char command[80];
    command_of(bytes, command, sizeof(command));
    const char *const argv[] = {"/bin/sh", "-c", command, NULL};
    return drain("a plain pipe", argv, environ, bytes);
}

static uint64_t carrel_exec(const struct bench *b, const char *id, uint64_t bytes) {
    char command[80], program[4096], run[PLACE_SIZE + 16], home[PLACE_SIZE + 16];
    command_of(bytes, command, sizeof(command));
    snprintf(program, sizeof(program), "%s/carrel", b->build);
    snprintf(run, sizeof(run), "CARREL_RUN=%s", b->place.run);
    snprintf(home, sizeof(home), "CARREL_HOME=%s", b->place.home);
    const char *const argv[] = {program, "exec", id, "--", "/bin/sh", "-c", command, NULL};
    char path[] = "PATH=/usr/bin:/bin", *const env[] = {path, run, home, NULL};
    return drain("carrel exec", argv, env, bytes);
}

/* ---- into the log ---- */

static uint64_t number_of(const struct buf *answer, const char *name) {
    const char *at = strstr(answer->data, name);
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

/* One answer, from an offset to a gap or the end; how many bytes it accounts for. */
static uint64_t check_range(struct bench *b, const char *output, uint64_t at) {
    const struct http_head *head = NULL;
    char path[256];
    const char *p;
    size_t n;
    uint64_t from = at;
    struct err err;
    int r;
    snprintf(path, sizeof(path), "%s?offset=%" PRIu64, output, at);
    const struct http_request request = {.method = "GET", .target = path};
    if (http_client_send(b->http, &request, &err) < 0 ||
        http_client_answer(b->http, &head, &err) < 0)
        bench_fail(&err);
    struct http_text left = http_field_only(head, "Carrel-Left-Out");
    at += left.s ? strtoull(left.s, NULL, 10) : 0;
    while ((r = http_client_read(b->http, &p, &n, &err)) > 0) {
        check("the log", at, p, n);
        at += n;
    }
    if (r < 0)
        bench_fail(&err);
    return at - from;
}

/* What the log still has of it: the beginning and the end, and it says how much is between. */
static void check_log(struct bench *b, const char *target, const char *exec, uint64_t bytes) {
    char output[160];
    uint64_t at = 0, more;
    snprintf(output, sizeof(output), "%s/%.14s/output", target, exec);
    while ((more = check_range(b, output, at)) > 0)
        at += more;
    if (at != bytes)
        wrong("the log", at);
}

static uint64_t into_log(struct bench *b, const char *id, uint64_t bytes) {
    struct buf answer DEFER(buf_done) = BUF(1 << 16);
    char command[80], body[200], target[BENCH_TARGET];
    command_of(bytes, command, sizeof(command));
    bench_exec_target(id, target);
    snprintf(body, sizeof(body), "{\"command\":\"%s\",\"output_max\":0}", command);
    uint64_t began = now_ns();
    bench_ask(b, "POST", target, body, &answer);
    uint64_t took = now_ns() - began;
    const char *exec = strstr(answer.data, "\"id\":\"x-");
    uint64_t produced = number_of(&answer, "\"stdout_bytes\":");
    if (!exec || produced != bytes || !strstr(answer.data, "\"status\":0"))
        wrong("exec", produced);
    check_log(b, target, exec + 6, bytes);
    return took;
}

/* ---- memory ---- */

/* The highest resident set since the last reset, in bytes. */
static double peak(pid_t pid) {
    char path[64], text[4096];
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    int fd DEFER_CLOSE = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (n < 0)
        return 0;
    text[n] = '\0';
    const char *at = strstr(text, "VmHWM:");
    return at ? (double)strtoull(at + 6, NULL, 10) * 1024 : 0;
}

static void peak_reset(pid_t pid) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/clear_refs", (int)pid);
    write_file_at(AT_FDCWD, path, "5");
}

static pid_t guest_of(const struct bench *b, const char *id) {
    char path[PLACE_SIZE + 64], text[1024];
    snprintf(path, sizeof(path), "%s/boxes/%s/box", b->place.run, id);
    int fd DEFER_CLOSE = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    text[n > 0 ? n : 0] = '\0';
    const char *at = strstr(text, "pid=");
    return at ? (pid_t)strtol(at + 4, NULL, 10) : 0;
}

struct peaks {
    double daemon, guest;
};

static struct peaks peaks_of(struct bench *b, const char *id, pid_t guest, uint64_t bytes) {
    peak_reset(b->daemon);
    peak_reset(guest);
    into_log(b, id, bytes);
    carrel_exec(b, id, bytes);
    return (struct peaks){peak(b->daemon), peak(guest)};
}

static void report_memory(struct bench *b, const char *id, uint64_t whole) {
    const double mib = 1 << 20;
    pid_t guest = guest_of(b, id);
    struct peaks little = peaks_of(b, id, guest, whole / 4), all = peaks_of(b, id, guest, whole);
    report_figure(b->report, "daemon, peak memory, a quarter of it", little.daemon / mib, "MiB");
    report_figure(b->report, "daemon, peak memory, all of it", all.daemon / mib, "MiB");
    report_figure(b->report, "guest, peak memory, a quarter of it", little.guest / mib, "MiB");
    report_figure(b->report, "guest, peak memory, all of it", all.guest / mib, "MiB");
    report_bar(b->report, "daemon's peak memory, 1 GiB / 256 MiB of output",
               all.daemon / little.daemon, 1.1, "x");
    report_bar(b->report, "guest's peak memory, 1 GiB / 256 MiB of output",
               all.guest / little.guest, 1.1, "x");
}

/* ---- all of it ---- */

void measure_output(struct bench *b) {
    const double least = 0.3; /* of a plain pipe's speed */
    uint64_t whole = b->quick ? QUICK_WHOLE : WHOLE;
    struct samples pipes = {0}, logs = {0}, execs = {0};
    char id[BENCH_ID];
    make_pattern();
    report_section(b->report, "1 GiB of output, every byte checked");
    bench_create(b, id);
    into_log(b, id, QUICK_WHOLE); /* the first one meets cold memory */
    for (int i = 0; i < (b->quick ? 1 : ROUNDS); i++) {
        samples_add(&pipes, plain_pipe(whole));
        samples_add(&logs, into_log(b, id, whole));
        samples_add(&execs, carrel_exec(b, id, whole));
    }
    report_times(b->report, "a plain pipe", &pipes, NULL);
    report_times(b->report, "the API, into the log", &logs, &pipes);
    report_times(b->report, "carrel exec, to a pipe", &execs, &pipes);
    double p = (double)samples_quantile(&pipes, 500);
    report_bar(b->report, "1 GiB into the log / over a plain pipe, time",
               (double)samples_quantile(&logs, 500) / p, 1 / least, "x");
    report_bar(b->report, "1 GiB through carrel exec / over a plain pipe, time",
               (double)samples_quantile(&execs, 500) / p, 1 / least, "x");
    report_memory(b, id, whole);
    bench_destroy(b, id);
    samples_done(&pipes);
    samples_done(&logs);
    samples_done(&execs);
}
