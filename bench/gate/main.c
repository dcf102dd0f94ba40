/*
 * gate_bench: what the line costs. Setting up a box's network beside one with a bare listener;
 * small requests and a long stream through the gate beside loopback itself; many tunnels, and what
 * they take of the gate's memory. Server, gate and client are processes of their own, as in life.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <math.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "bench/report.h"
#include "gate/gate.h"
#include "spawn/make/netns.h"

static const char request[] = "GET / HTTP/1.1\r\nHost: bench.test\r\nAccept: */*\r\n\r\n";
static const char reply[] = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n";
static char piece[256 << 10];
static bool quick;

static _Noreturn void die(const char *what) {
    perror(what);
    exit(1);
}

/* ---- setting up ---- */

static void lo_up(void) {
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq r = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    if (s < 0 || ioctl(s, SIOCSIFFLAGS, &r) < 0)
        die("lo up");
    close(s);
}

static int listener(uint32_t address, uint16_t *port) {
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(*port), .sin_addr.s_addr = htonl(address)};
    socklen_t size = sizeof(a);
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (s < 0 || bind(s, (struct sockaddr *)&a, sizeof(a)) < 0 || listen(s, 4096) < 0 ||
        getsockname(s, (struct sockaddr *)&a, &size) < 0)
        die("listen");
    *port = ntohs(a.sin_port);
    return s;
}

static void bare(int home) {
    uint16_t port = 3129;
    if (unshare(CLONE_NEWNET) < 0)
        die("unshare");
    lo_up();
    close(listener(INADDR_LOOPBACK, &port));
    if (setns(home, CLONE_NEWNET) < 0)
        die("setns");
}

static void whole(struct netns_maker *maker) {
    int doors[NETNS_FDS];
    int ns = netns_new(maker);
    if (ns < 0 || netns_listen(maker, ns, netns_loopback, doors) < 0)
        die("netns");
    for (int i = 0; i < NETNS_FDS; i++)
        close(doors[i]);
    close(ns);
}

static void measure_path(struct report *r, struct netns_maker *maker) {
    struct samples floor = {0}, all = {0};
    for (int i = 0; i < (quick ? 10 : 300); i++) {
        uint64_t began = now_ns();
        bare(maker->home);
        samples_add(&floor, now_ns() - began);
        began = now_ns();
        whole(maker);
        samples_add(&all, now_ns() - began);
    }
    report_section(r, "Setting up the path");
    report_times(r, "unshare, lo up, one listener", &floor, NULL);
    report_times(r, "the same with route, rules, all four sockets and counters", &all, &floor);
    report_bar(r, "setting up the path / unshare, lo up, one listener, p50",
               (double)samples_quantile(&all, 500) / (double)samples_quantile(&floor, 500), 1.4,
               "x");
    samples_done(&floor);
    samples_done(&all);
}

/* ---- the three processes ---- */

/* 'G': an answer; 'S': a stream; 'E': an echo. */
static void serve_one(int s) {
    char in[4096];
    for (ssize_t n; (n = recv(s, in, sizeof(in), 0)) > 0;) {
        if (in[0] == 'G' && send(s, reply, sizeof(reply) - 1, MSG_NOSIGNAL) < 0)
            break;
        if (in[0] == 'E' && send(s, in, (size_t)n, MSG_NOSIGNAL) < 0)
            break;
        for (uint64_t left = in[0] == 'S' ? strtoull(in + 1, NULL, 10) : 0; left;) {
            size_t part = left < sizeof(piece) ? left : sizeof(piece);
            if (write_all(s, piece, part) < 0)
                break;
            left -= part;
        }
    }
    close(s);
}

static pid_t child(void) {
    pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid == 0)
        prctl(PR_SET_PDEATHSIG, SIGKILL);
    return pid;
}

static pid_t start_server(int listening, bool echoes) {
    pid_t pid = child();
    if (pid)
        return pid;
    for (;;) {
        int s = accept(listening, NULL, NULL);
        if (s < 0)
            continue;
        if (echoes) { /* tunnels: held open, one word each */
            char word[16];
            ssize_t n = recv(s, word, sizeof(word), 0);
            (void)!send(s, word, n > 0 ? (size_t)n : 0, MSG_NOSIGNAL);
            continue;
        }
        serve_one(s); /* the client asks for one thing at a time */
    }
}

static bool crossed(void *arg, const char *machine, const struct gate_crossing *c) {
    (void)arg, (void)machine, (void)c;
    return true;
}
static void named(void *arg, const char *machine, uint32_t number, const char *name) {
    (void)arg, (void)machine, (void)number, (void)name;
}

static pid_t start_gate(const int *spaces, size_t count, const struct netns_maker *maker,
                        const char *target) {
    static const struct gate_hooks hooks = {crossed, named};
    pid_t pid = child();
    struct err err;
    if (pid)
        return pid;
    struct loop *loop = loop_new(&err);
    struct gate *g = gate_new(&(struct gate_options){.loop = loop, .hooks = &hooks});
    gate_set_name(g, "bench.test", "127.0.0.1", &err);
    for (size_t i = 0; i < count; i++) {
        int doors[NETNS_FDS];
        struct gate_machine *m = gate_add(g, "m-aaaaaaaaaaaa");
        struct policy_rule rule = {.action = POLICY_ALLOW, .local = true};
        gate_restore_name(m, 0, "bench.test");
        if (netns_listen(maker, spaces[i], netns_loopback, doors) < 0 ||
            gate_listen(m, doors, &err) < 0 || policy_target_read(target, &rule, &err) < 0 ||
            policy_add(gate_policy(m), &rule, &err) < 0)
            die("gate");
    }
    loop_run(loop);
    _exit(0);
}

static int dial(uint32_t address, uint16_t port) {
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
    int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0 || connect(s, (struct sockaddr *)&a, sizeof(a)) < 0)
        die("connect");
    return s;
}

enum { NAMED = 198u << 24 | 18 << 16 | 4 };

static void one_request(uint32_t address, uint16_t port, struct samples *into) {
    char in[512];
    uint64_t began = now_ns();
    int s = dial(address, port);
    if (write_all(s, request, sizeof(request) - 1) < 0 || recv(s, in, sizeof(in), 0) <= 0)
        die("request");
    samples_add(into, now_ns() - began);
    close(s);
}

/* GB/s of a long stream. */
static double stream(uint32_t address, uint16_t port, uint64_t bytes) {
    char order[32];
    uint64_t got = 0;
    int s = dial(address, port);
    snprintf(order, sizeof(order), "S%llu", (unsigned long long)bytes);
    uint64_t began = now_ns();
    if (write_all(s, order, strlen(order)) < 0)
        die("order");
    for (ssize_t n; got < bytes && (n = recv(s, piece, sizeof(piece), 0)) > 0;)
        got += (uint64_t)n;
    double seconds = (double)(now_ns() - began) / 1e9;
    close(s);
    return (double)got / seconds / 1e9;
}

static void stop(pid_t pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void measure_speed(struct report *r, struct netns_maker *maker) {
    struct samples direct = {0}, gated = {0};
    struct samples fast = {0}, slow = {0};
    uint16_t port = 0;
    char web[32], raw[40];
    uint64_t bytes = quick ? 16 << 20 : 1 << 30;
    int listening = listener(INADDR_LOOPBACK, &port);
    pid_t server = start_server(listening, false);
    int space = netns_new(maker);
    snprintf(web, sizeof(web), "http://bench.test:%u", port);
    snprintf(raw, sizeof(raw), "tcp://bench.test:%u", port);
    for (int round = 0; round < (quick ? 1 : 5); round++) {
        pid_t gate = start_gate(&space, 1, maker, web);
        usleep(100000);
        for (int i = 0; i < (quick ? 20 : 300); i++) {
            one_request(INADDR_LOOPBACK, port, &direct);
            setns(space, CLONE_NEWNET);
            one_request(NAMED, port, &gated);
            setns(maker->home, CLONE_NEWNET);
        }
        stop(gate);
        gate = start_gate(&space, 1, maker, raw);
        usleep(100000);
        samples_add(&fast, (uint64_t)(stream(INADDR_LOOPBACK, port, bytes) * 1e6));
        setns(space, CLONE_NEWNET);
        samples_add(&slow, (uint64_t)(stream(NAMED, port, bytes) * 1e6));
        setns(maker->home, CLONE_NEWNET);
        stop(gate);
    }
    report_section(r, "Through the gate");
    report_times(r, "connect and a small request, loopback", &direct, NULL);
    report_times(r, "the same from inside, allowed by a rule", &gated, &direct);
    report_bar(r, "small request from inside / loopback, p50",
               (double)samples_quantile(&gated, 500) / (double)samples_quantile(&direct, 500), 4,
               "x");
    double d = (double)samples_quantile(&fast, 500) / 1e6,
           g = (double)samples_quantile(&slow, 500) / 1e6;
    report_figure(r, "a long stream, loopback", d, "GB/s");
    report_figure(r, "a long stream, tunnel", g, "GB/s");
    report_bar(r, "loopback to tunnel (0.6 of it is 1.67)", d / g, 1 / 0.6, "x");
    stop(server);
    close(listening);
    close(space);
    samples_done(&direct);
    samples_done(&gated);
    samples_done(&fast);
    samples_done(&slow);
}

static long rss_kb(pid_t pid) {
    char path[48], text[4096];
    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    if (read_file_at(AT_FDCWD, path, text, sizeof(text)) <= 0)
        return 0;
    const char *at = strstr(text, "VmRSS:");
    return at ? strtol(at + 6, NULL, 10) : 0;
}

enum { BOXES = 100, EACH = 10 };

static void measure_crowd(struct report *r, struct netns_maker *maker) {
    static int spaces[BOXES], tunnels[BOXES * EACH];
    size_t boxes = quick ? 5 : BOXES, n = 0, bad = 0;
    uint16_t port = 0;
    char target[40], word[8];
    int listening = listener(INADDR_LOOPBACK, &port);
    pid_t server = start_server(listening, true);
    for (size_t i = 0; i < boxes; i++)
        if ((spaces[i] = netns_new(maker)) < 0)
            die("netns");
    snprintf(target, sizeof(target), "tcp://bench.test:%u", port);
    pid_t gate = start_gate(spaces, boxes, maker, target);
    usleep(300000);
    long before = rss_kb(gate);
    for (size_t i = 0; i < boxes; i++) {
        setns(spaces[i], CLONE_NEWNET);
        for (int k = 0; k < EACH; k++) {
            tunnels[n] = dial(NAMED, port);
            if (write_all(tunnels[n], "Eword", 5) < 0 || recv(tunnels[n], word, 5, 0) != 5)
                bad++;
            n++;
        }
    }
    setns(maker->home, CLONE_NEWNET);
    report_section(r, "Many tunnels");
    report_figure(r, "tunnels", (double)n, "");
    report_bar(r, "broken tunnels", (double)bad, 0, "");
    report_bar(r, "the gate's memory for each tunnel", (double)(rss_kb(gate) - before) / (double)n,
               16, "kB");
    while (n)
        close(tunnels[--n]);
    stop(gate);
    stop(server);
}

int main(int argc, char **argv) {
    static const struct option options[] = {{"quick", no_argument, NULL, 'q'},
                                            {"json", required_argument, NULL, 'j'},
                                            {"table", required_argument, NULL, 't'},
                                            {NULL, 0, NULL, 0}};
    const char *json = NULL, *table = NULL;
    struct err err;
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        quick |= c == 'q';
        json = c == 'j' ? optarg : json;
        table = c == 't' ? optarg : table;
    }
    if (geteuid() != 0) {
        puts("skipped: network namespaces of its own need root");
        return 77;
    }
    struct rlimit files = {16384, 16384};
    setrlimit(RLIMIT_NOFILE, &files);
    signal(SIGPIPE, SIG_IGN);
    struct netns_maker maker = {.home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC),
                                .proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    struct report *r = report_new("gate");
    report_host(r);
    measure_path(r, &maker);
    report_fact(r, "steered", "%s", maker.plain ? "no" : "yes");
    measure_speed(r, &maker);
    measure_crowd(r, &maker);
    int status = report_show(r, table, json, &err) < 0 || !report_is_whole(r);
    report_free(r);
    return status;
}
