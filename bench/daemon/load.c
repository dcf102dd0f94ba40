/*
 * Many boxes and many clients: each client runs one command after the other, in a box taken at
 * random, for a minute. Every answer is looked at, and none may take longer than a client waits.
 */
#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

enum {
    BOXES = 500,
    CLIENTS = 50,
    SECONDS = 60,
    FLOOR_SECONDS = 10,
    QUICK_BOXES = 6,
    QUICK_CLIENTS = 3,
    QUIET = 300,
    STREAM_EVERY = 8, /* commands of which one is followed as a stream */
};

struct crowd {
    struct bench *bench;
    char (*ids)[BENCH_ID];
    unsigned boxes;
    _Atomic bool over;
};

struct client {
    struct crowd *crowd;
    pthread_t thread;
    unsigned seed;
    struct samples took;
    uint64_t errors, streams;
    struct err first; /* of its errors */
};

static const char exec_true[] = "{\"argv\":[\"/bin/true\"]}";
static const char exec_lines[] = "{\"argv\":[\"/bin/echo\",\"one line\"]}";

/* Start, output and exit must all come. */
static int follow(struct http_client *http, const char *target, struct buf *answer,
                  struct err *err) {
    static const struct http_pair fields[] = {{"Accept", "application/x-ndjson"}, {NULL, NULL}};
    const struct http_head *head = NULL;
    const struct http_request r = {.method = "POST",
                                   .target = target,
                                   .fields = fields,
                                   .body = exec_lines,
                                   .n = sizeof(exec_lines) - 1};
    answer->len = 0;
    if (http_client_send(http, &r, err) < 0 || http_client_answer(http, &head, err) < 0 ||
        http_client_collect(http, answer, err) < 0)
        return -1;
    if (head->status == 200 && strstr(answer->data, "one line") &&
        strstr(answer->data, "\"type\":\"exit\"") && strstr(answer->data, "\"status\":0"))
        return 0;
    return err_set(err, ERR_INTERNAL, "a stream is not whole: %d %.200s", head->status,
                   answer->data);
}

static int command(struct http_client *http, const char *target, struct buf *answer,
                   struct err *err) {
    if (bench_try(http, "POST", target, exec_true, answer, err) < 0)
        return -1;
    if (strstr(answer->data, "\"state\":\"exited\"") && strstr(answer->data, "\"status\":0"))
        return 0;
    return err_set(err, ERR_INTERNAL, "a command did not end well: %.200s", answer->data);
}

static void one_round(struct client *c, struct http_client *http, struct buf *answer) {
    char target[BENCH_TARGET];
    struct err err;
    bool streamed = rand_r(&c->seed) % STREAM_EVERY == 0;
    bench_exec_target(c->crowd->ids[(unsigned)rand_r(&c->seed) % c->crowd->boxes], target);
    uint64_t began = now_ns();
    int r = streamed ? follow(http, target, answer, &err) : command(http, target, answer, &err);
    if (r < 0 && !c->errors++)
        c->first = err;
    else if (r == 0 && streamed)
        c->streams++;
    else if (r == 0)
        samples_add(&c->took, now_ns() - began);
}

static void *client_main(void *arg) {
    struct client *c = arg;
    struct buf answer DEFER(buf_done) = BUF(1 << 20);
    struct http_client *http DEFER(http_client_freep) = bench_connect(c->crowd->bench);
    while (!c->crowd->over)
        one_round(c, http, &answer);
    return NULL;
}

/* What the host itself makes of as many at once: plain processes, started by as many threads. */
static void *floor_main(void *arg) {
    static char *const words[] = {(char *)"/bin/true", NULL}, *const none[] = {NULL};
    struct client *c = arg;
    while (!c->crowd->over) {
        uint64_t began = now_ns();
        pid_t pid;
        int status;
        if (posix_spawn(&pid, words[0], NULL, NULL, words, none) != 0 ||
            waitpid(pid, &status, 0) != pid || status != 0)
            c->errors++;
        samples_add(&c->took, now_ns() - began);
    }
    return NULL;
}

static void quiet(struct crowd *crowd, struct samples *ret) {
    struct client c = {.crowd = crowd, .seed = 1};
    struct buf answer DEFER(buf_done) = BUF(1 << 20);
    while (c.took.n < (crowd->bench->quick ? 10 : QUIET)) {
        one_round(&c, crowd->bench->http, &answer);
        if (c.errors)
            bench_fail(&c.first);
    }
    *ret = c.took;
}

static void load(struct crowd *crowd, void *(*work)(void *), struct client *clients, unsigned count,
                 unsigned seconds) {
    crowd->over = false;
    for (unsigned i = 0; i < count; i++) {
        clients[i] = (struct client){.crowd = crowd, .seed = i + 1};
        if (pthread_create(&clients[i].thread, NULL, work, &clients[i]) != 0)
            exit(1);
    }
    sleep(seconds);
    crowd->over = true;
    for (unsigned i = 0; i < count; i++)
        pthread_join(clients[i].thread, NULL);
}

static void gather(struct client *clients, unsigned count, struct client *ret) {
    for (unsigned i = 0; i < count; i++) {
        for (size_t k = 0; k < clients[i].took.n; k++)
            samples_add(&ret->took, clients[i].took.v[k]);
        if (clients[i].errors && !ret->errors)
            ret->first = clients[i].first;
        ret->errors += clients[i].errors;
        ret->streams += clients[i].streams;
        samples_done(&clients[i].took);
    }
}

/* The same ratio for plain processes: what 50 at once on these cores cost whoever runs them. */
static void show_floor(struct crowd *crowd, struct client *clients, unsigned count) {
    struct client one = {0}, all = {0};
    struct report *r = crowd->bench->report;
    unsigned seconds = crowd->bench->quick ? 1 : FLOOR_SECONDS;
    load(crowd, floor_main, clients, 1, seconds);
    gather(clients, 1, &one);
    load(crowd, floor_main, clients, count, seconds);
    gather(clients, count, &all);
    report_times(r, "floor: plain processes, one thread", &one.took, NULL);
    report_times(r, "floor: plain processes, as many threads", &all.took, &one.took);
    report_figure(
        r, "floor: p99 of as many / p50 of one",
        (double)samples_quantile(&all.took, 990) / (double)samples_quantile(&one.took, 500), "x");
    samples_done(&one.took);
    samples_done(&all.took);
}

void measure_load(struct bench *b) {
    unsigned count = b->quick ? QUICK_CLIENTS : CLIENTS, seconds = b->quick ? 1 : SECONDS;
    struct crowd crowd = {.bench = b, .boxes = b->quick ? QUICK_BOXES : BOXES};
    struct client clients[CLIENTS], all = {0};
    struct samples before = {0};
    crowd.ids = calloc(crowd.boxes, sizeof(*crowd.ids));
    if (!crowd.ids)
        abort();
    report_section(b->report, "500 live boxes, 50 clients, 60 s: exec true");
    for (unsigned i = 0; i < crowd.boxes; i++)
        bench_create(b, crowd.ids[i]);
    quiet(&crowd, &before);
    load(&crowd, client_main, clients, count, seconds);
    gather(clients, count, &all);
    if (all.errors)
        fprintf(stderr, "daemon_bench: %s\n", all.first.text);
    report_times(b->report, "one client", &before, NULL);
    report_times(b->report, "all clients at once", &all.took, &before);
    report_figure(b->report, "commands a second", (double)(all.took.n + all.streams) / seconds,
                  "/s");
    report_figure(b->report, "streams that were whole", (double)all.streams, "");
    show_floor(&crowd, clients, count);
    report_bar(b->report, "errors and stuck streams under load", (double)all.errors, 0, "");
    report_bar(b->report, "p99 of exec under load / p50 of one client",
               (double)samples_quantile(&all.took, 990) / (double)samples_quantile(&before, 500),
               20, "x");
    for (unsigned i = 0; i < crowd.boxes; i++)
        bench_destroy(b, crowd.ids[i]);
    samples_done(&before);
    samples_done(&all.took);
    free(crowd.ids);
}
