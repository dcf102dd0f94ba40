/* The same command through the API, through MCP over HTTP and through `carrel mcp`, interleaved. */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fdio.h"
#include "bench.h"

enum { ROUNDS = 1000, QUICK = 10, WARM_UP = 20, LINE = 1 << 16 };
enum { REST, HTTP, LINES, WAYS };

#define INITIALIZE                                                                             \
    "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":" \
    "\"2025-11-25\",\"capabilities\":{},\"clientInfo\":{\"name\":\"bench\",\"version\":\"1\"}}}"
#define CALL                                                                                 \
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"exec\"," \
    "\"arguments\":{\"argv\":[\"/bin/true\"]}}}"

/* A session over HTTP, on one kept connection. */
struct talk {
    struct http_client *http;
    char target[BENCH_TARGET], session[64];
};

static void die(const char *what) {
    fprintf(stderr, "daemon_bench: mcp: %s\n", what);
    exit(1);
}

static void post(struct talk *t, const char *body, struct buf *ret) {
    const struct http_head *head;
    struct err err;
    const struct http_pair fields[] = {{"Content-Type", "application/json"},
                                       {"Accept", "application/json, text/event-stream"},
                                       {t->session[0] ? "Mcp-Session-Id" : NULL, t->session},
                                       {NULL, NULL}};
    const struct http_request r = {
        .method = "POST", .target = t->target, .fields = fields, .body = body, .n = strlen(body)};
    ret->len = 0;
    if (http_client_send(t->http, &r, &err) < 0 || http_client_answer(t->http, &head, &err) < 0)
        bench_fail(&err);
    struct http_text id = http_field_only(head, "Mcp-Session-Id");
    if (id.s && id.n < sizeof(t->session))
        snprintf(t->session, sizeof(t->session), "%.*s", (int)id.n, id.s);
    if (http_client_collect(t->http, ret, &err) < 0)
        bench_fail(&err);
}

/* `carrel mcp` on two pipes. */
struct bridge {
    pid_t pid;
    int in, out;
};

static void bridge_start(struct bridge *g, const struct bench *b, const char *machine) {
    char program[4096];
    int in[2], out[2];
    snprintf(program, sizeof(program), "%s/carrel", b->build);
    if (pipe(in) < 0 || pipe(out) < 0 || (g->pid = fork()) < 0)
        die("start carrel mcp");
    if (g->pid == 0) {
        setenv("CARREL_RUN", b->place.run, 1);
        setenv("CARREL_HOME", b->place.home, 1);
        dup2(in[0], STDIN_FILENO);
        dup2(out[1], STDOUT_FILENO);
        close(in[1]);
        close(out[0]);
        execl(program, "carrel", "mcp", "--machine", machine, (char *)NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    g->in = in[1];
    g->out = out[0];
}

static void say(struct bridge *g, const char *line, char answer[LINE]) {
    size_t n = 0;
    if (write_all(g->in, line, strlen(line)) < 0 || write_all(g->in, "\n", 1) < 0)
        die("write");
    while (!n || answer[n - 1] != '\n') {
        ssize_t got = read(g->out, answer + n, LINE - 1 - n);
        if (got <= 0)
            die("read");
        n += (size_t)got;
    }
    answer[n] = '\0';
}

static void bridge_stop(struct bridge *g) {
    close(g->in);
    close(g->out);
    waitpid(g->pid, NULL, 0);
}

static void expect_exit(const char *answer) {
    if (!answer || !strstr(answer, "\"status\":\"exited\""))
        die("the tool answered something else");
}

static void sample(struct bench *b, const char *machine, struct samples all[WAYS]) {
    struct buf answer DEFER(buf_done) = BUF(1 << 20);
    struct talk t = {.http = bench_connect(b)};
    struct bridge g;
    char target[BENCH_TARGET], line[LINE];
    unsigned rounds = b->quick ? QUICK : ROUNDS;
    bench_exec_target(machine, target);
    snprintf(t.target, sizeof(t.target), "/mcp?machine=%s", machine);
    post(&t, INITIALIZE, &answer);
    bridge_start(&g, b, machine);
    say(&g, INITIALIZE, line);
    for (unsigned i = 0; i < rounds + WARM_UP; i++) {
        uint64_t at[WAYS + 1] = {now_ns()};
        bench_ask(b, "POST", target, "{\"argv\":[\"/bin/true\"]}", &answer);
        at[1] = now_ns();
        post(&t, CALL, &answer);
        at[2] = now_ns();
        say(&g, CALL, line);
        at[3] = now_ns();
        expect_exit(answer.data);
        expect_exit(line);
        for (size_t k = 0; i >= WARM_UP && k < WAYS; k++)
            samples_add(&all[k], at[k + 1] - at[k]);
    }
    bridge_stop(&g);
    http_client_free(t.http);
}

/* ---- the tool program ---- */

enum { PROGRAMS = 100 };

/* Adds two numbers: 250 bytes of text. */
#define PROGRAM                                                                                 \
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"program\"," \
    "\"arguments\":{\"invoke\":\"sum\",\"args\":[\"10\"],\"wat\":\"(module (func (export "      \
    "\\\"sum\\\")"                                                                              \
    " (param $n i32) (result i32) (local $sum i32) (loop $again (local.set $sum (i32.add"       \
    " (local.get $sum) (local.get $n))) (br_if $again (local.tee $n (i32.sub (local.get $n)"    \
    " (i32.const 1))))) (local.get $sum)))\"}}}"

/* The floor: the time to start a native program and wait for it. */
static void start_true(void) {
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, NULL, 0) != pid)
        die("start true");
}

static void measure_programs(struct bench *b) {
    struct buf answer DEFER(buf_done) = BUF(1 << 20);
    struct talk t = {.http = bench_connect(b), .target = "/mcp"};
    struct samples floor = {0}, calls = {0};
    post(&t, INITIALIZE, &answer);
    for (unsigned i = 0; i < (b->quick ? QUICK : PROGRAMS) + WARM_UP; i++) {
        uint64_t begun = now_ns();
        start_true();
        uint64_t started = now_ns();
        post(&t, PROGRAM, &answer);
        uint64_t ended = now_ns();
        if (!answer.data || !strstr(answer.data, "\"value\":\"55\""))
            die("the tool program answered something else");
        if (i >= WARM_UP) {
            samples_add(&floor, started - begun);
            samples_add(&calls, ended - started);
        }
    }
    http_client_free(t.http);
    report_section(b->report, "MCP: tools/call program, 100 on one connection");
    report_times(b->report, "fork, exec and wait for true", &floor, NULL);
    report_times(b->report, "POST /mcp", &calls, &floor);
    double p50 = (double)samples_quantile(&calls, 500);
    report_bar(b->report, "program / fork+exec, p50", p50 / (double)samples_quantile(&floor, 500),
               3, "x");
    report_bar(b->report, "program, p99 / p50", (double)samples_quantile(&calls, 990) / p50, 3,
               "x");
    /* On a busy host the slow calls wait for a processor, as plain processes do. */
    report_figure(b->report, "floor: fork+exec, p99 / p50",
                  (double)samples_quantile(&floor, 990) / (double)samples_quantile(&floor, 500),
                  "x");
    samples_done(&floor);
    samples_done(&calls);
}

void measure_mcp(struct bench *b) {
    struct samples all[WAYS] = {0};
    char id[BENCH_ID];
    report_section(b->report, "MCP: tools/call exec true, beside the same by REST");
    bench_create(b, id);
    sample(b, id, all);
    bench_destroy(b, id);
    report_times(b->report, "POST .../execs", &all[REST], NULL);
    report_times(b->report, "POST /mcp", &all[HTTP], &all[REST]);
    report_times(b->report, "carrel mcp, over pipes", &all[LINES], &all[REST]);
    double rest = (double)samples_quantile(&all[REST], 500);
    report_bar(b->report, "MCP over HTTP / REST, p50",
               (double)samples_quantile(&all[HTTP], 500) / rest, 1.3, "x");
    report_bar(b->report, "carrel mcp / REST, p50",
               (double)samples_quantile(&all[LINES], 500) / rest, 1.3, "x");
    for (size_t k = 0; k < WAYS; k++)
        samples_done(&all[k]);
    measure_programs(b);
}
