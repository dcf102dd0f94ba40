/*
 * http_bench: what a tiny request costs, beside a server that does nothing but the system calls,
 * and beside Node; and how fast a long answer flows. All over unix sockets, in one run.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "bench/report.h"
#include "io/http_server.h"

static const char reply[] = "HTTP/1.1 200 OK\r\nDate: Sun, 15 Nov 2026 08:00:00 GMT\r\n"
                            "Content-Length: 6\r\nContent-Type: text/plain\r\n\r\nhello\n";
static const char request[] = "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench\r\n"
                              "Accept: */*\r\n\r\n";
static char piece[64 << 10];

static int unix_socket(const char *path, bool listens) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
    if (sock < 0 ||
        (listens ? bind(sock, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(sock, 64) < 0
                 : connect(sock, (struct sockaddr *)&a, sizeof(a)) < 0)) {
        perror(path);
        exit(1);
    }
    return sock;
}

/* The floor: epoll, recv, send; it does not look at what it is asked, but for a long answer. */
static void floor_answer(int sock) {
    char in[4096];
    ssize_t n = recv(sock, in, sizeof(in), 0);
    if (n <= 0) {
        close(sock);
        return;
    }
    if (in[5] == ' ') {
        if (send(sock, reply, sizeof(reply) - 1, MSG_NOSIGNAL) < 0)
            close(sock);
        return;
    }
    for (uint64_t left = strtoull(in + 5, NULL, 10); left; left -= sizeof(piece))
        if (write_all(sock, piece, sizeof(piece)) < 0)
            break;
    close(sock);
}

static void serve_floor(const char *path, int ready) {
    int listener = unix_socket(path, true), epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event e = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e);
    write_all(ready, "r", 1);
    for (;;) {
        if (epoll_wait(epoll, &e, 1, -1) != 1)
            continue;
        if (e.data.fd != listener) {
            floor_answer(e.data.fd);
            continue;
        }
        struct epoll_event one = {.events = EPOLLIN,
                                  .data.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)};
        epoll_ctl(epoll, EPOLL_CTL_ADD, one.data.fd, &one);
    }
}

/* Ours */

static void pour(struct http_exchange *x) {
    uint64_t left = (uint64_t)(uintptr_t)x->user;
    while (left) {
        left -= sizeof(piece);
        if (!http_write(x, piece, sizeof(piece)))
            break;
    }
    x->user = (void *)(uintptr_t)left;
    if (!left)
        http_end(x);
}

static void gone(struct http_exchange *x) {
    http_drop(x);
}

static void on_request(struct http_exchange *x, void *arg) {
    (void)arg;
    if (x->head->path.n == 1) {
        http_reply(x, 200, HTTP_FIELDS({"Content-Type", "text/plain"}), "hello\n", 6);
        return;
    }
    x->user = (void *)(uintptr_t)strtoull(x->head->path.s + 1, NULL, 10);
    x->on_drain = pour;
    x->on_gone = gone;
    http_begin(x, 200, NULL, -1);
    pour(x);
}

static void serve_carrel(const char *path, int ready) {
    static const struct http_server_config config = {.on_request = on_request};
    struct err err;
    struct loop *loop = loop_new(&err);
    if (!loop || http_listen_unix(http_server_new(loop, &config), path, 0600, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        _exit(1);
    }
    write_all(ready, "r", 1);
    loop_run(loop);
}

static const char *script;

static void serve_node(const char *path, int ready) {
    dup2(ready, STDOUT_FILENO);
    execlp("node", "node", script, path, (char *)NULL);
}

/* Contenders */

static struct contender {
    const char *name;
    void (*serve)(const char *path, int ready);
    char path[64];
    pid_t pid;
    int sock;
    uint64_t cpu_ns, requests;
    struct samples times, pours;
} contenders[] = {
    {.name = "floor: epoll, recv, send", .serve = serve_floor},
    {.name = "carrel", .serve = serve_carrel},
    {.name = "node", .serve = serve_node},
};
enum { CONTENDERS = sizeof(contenders) / sizeof(*contenders) };

static bool start(struct contender *c, const char *dir, size_t i) {
    int ready[2];
    char byte;
    snprintf(c->path, sizeof(c->path), "%s/%zu", dir, i);
    if (pipe2(ready, O_CLOEXEC) < 0 || (c->pid = fork()) < 0)
        exit(1);
    if (c->pid == 0) {
        c->serve(c->path, ready[1]);
        _exit(127);
    }
    close(ready[1]);
    bool up = read(ready[0], &byte, 1) == 1;
    close(ready[0]);
    if (up)
        c->sock = unix_socket(c->path, false);
    return up;
}

static void stop(struct contender *c) {
    close_fd(&c->sock);
    kill(c->pid, SIGKILL);
    waitpid(c->pid, NULL, 0);
    unlink(c->path);
}

/* Time on a processor, of all threads. */
static uint64_t cpu_ns(pid_t pid) {
    clockid_t clock;
    struct timespec t = {0};
    if (clock_getcpuclockid(pid, &clock) == 0)
        clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void ask_once(struct contender *c, const char *text, size_t n) {
    char in[4096];
    size_t got = 0;
    if (send(c->sock, text, n, MSG_NOSIGNAL) != (ssize_t)n)
        exit(1);
    while (got < 6 || memcmp(in + got - 6, "hello\n", 6) != 0) {
        ssize_t more = recv(c->sock, in + got, sizeof(in) - got, 0);
        if (more <= 0)
            exit(1);
        got += (size_t)more;
    }
}

static void ask_batch(struct contender *c, unsigned count) {
    uint64_t before = cpu_ns(c->pid);
    for (unsigned i = 0; i < count; i++) {
        uint64_t start_ns = now_ns();
        ask_once(c, request, sizeof(request) - 1);
        samples_add(&c->times, now_ns() - start_ns);
    }
    c->cpu_ns += cpu_ns(c->pid) - before;
    c->requests += count;
}

/* A long answer; nanoseconds for each MiB. */
static void pour_once(struct contender *c, uint64_t mib) {
    static char in[256 << 10];
    char text[128];
    int sock = unix_socket(c->path, false);
    int n =
        snprintf(text, sizeof(text), "GET /%llu HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                 (unsigned long long)mib << 20);
    uint64_t start_ns = now_ns(), got = 0;
    if (send(sock, text, (size_t)n, MSG_NOSIGNAL) != n)
        exit(1);
    for (ssize_t more; (more = recv(sock, in, sizeof(in), 0)) > 0;)
        got += (uint64_t)more;
    if (got < mib << 20)
        exit(1);
    samples_add(&c->pours, (now_ns() - start_ns) / mib);
    close(sock);
}

/* The run */

static void run_rounds(bool up[], unsigned rounds, unsigned batch, uint64_t mib) {
    for (size_t i = 0; i < CONTENDERS; i++)
        if (up[i])
            ask_batch(&contenders[i], batch); /* warm */
    for (size_t i = 0; i < CONTENDERS; i++) {
        samples_done(&contenders[i].times);
        contenders[i].cpu_ns = contenders[i].requests = 0;
    }
    for (unsigned round = 0; round < rounds; round++)
        for (size_t k = 0; k < CONTENDERS; k++) {
            size_t i = (k + round) % CONTENDERS;
            if (!up[i])
                continue;
            ask_batch(&contenders[i], batch);
            if (round % 10 == 0)
                pour_once(&contenders[i], mib);
        }
}

static double cpu_each(const struct contender *c) {
    return (double)c->cpu_ns / (double)c->requests / 1000;
}

static void fill(struct report *r, const bool up[]) {
    report_section(r, "A tiny GET on one kept connection, there and back");
    for (size_t i = 0; i < CONTENDERS; i++)
        if (up[i])
            report_times(r, contenders[i].name, &contenders[i].times,
                         i ? &contenders[0].times : NULL);
        else
            report_skip(r, contenders[i].name, "it is not installed");
    report_section(r, "Processor time of the server for each of these");
    for (size_t i = 0; i < CONTENDERS; i++)
        if (up[i])
            report_figure(r, contenders[i].name, cpu_each(&contenders[i]), "us");
    report_bar(r, "carrel / floor", cpu_each(&contenders[1]) / cpu_each(&contenders[0]), 2, "x");
    report_section(r, "A long answer, time for each MiB (the floor: plain write, no chunks)");
    for (size_t i = 0; i < CONTENDERS; i++)
        if (up[i])
            report_times(r, contenders[i].name, &contenders[i].pours,
                         i ? &contenders[0].pours : NULL);
}

int main(int argc, char **argv) {
    bool quick = false, up[CONTENDERS], node = system("node --version >/dev/null 2>&1") == 0;
    const char *json = NULL, *table = NULL;
    static const struct option options[] = {{"quick", no_argument, NULL, 'q'},
                                            {"table", required_argument, NULL, 't'},
                                            {"json", required_argument, NULL, 'j'},
                                            {"script", required_argument, NULL, 's'},
                                            {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == '?')
            return 2;
        quick = quick || c == 'q';
        json = c == 'j' ? optarg : json;
        table = c == 't' ? optarg : table;
        script = c == 's' ? optarg : script;
    }
    char dir[] = "/tmp/http-bench-XXXXXX";
    if (!mkdtemp(dir))
        return perror(dir), 1;
    for (size_t i = 0; i < CONTENDERS; i++) {
        contenders[i].sock = -1;
        up[i] = (contenders[i].serve != serve_node || (node && script)) &&
                start(&contenders[i], dir, i);
    }
    run_rounds(up, quick ? 3 : 200, quick ? 50 : 500, quick ? 4 : 128);
    struct report *r = report_new("http");
    struct err err;
    report_host(r);
    fill(r, up);
    int shown = report_show(r, table, json, &err);
    for (size_t i = 0; i < CONTENDERS; i++)
        if (up[i])
            stop(&contenders[i]);
    rmdir(dir);
    bool whole = report_is_whole(r);
    if (shown < 0)
        return fprintf(stderr, "%s\n", err.text), 1;
    report_free(r);
    return whole ? 0 : 1;
}
