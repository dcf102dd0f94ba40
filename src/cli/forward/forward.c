/* carrel forward: makes TCP ports of a machine reachable on this host, until it is interrupted. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/forward/serve.h"
#include "cli/options.h"
#include "cli/table.h"
#include "io/peer/tcp.h"

enum { PORTS_MAX = 16, CHILDREN_MAX = 256, LOOK_MS = 3000 };

struct forward_options {
    const char *address;
    bool all_users, quiet, help;
};

#define AT(member) offsetof(struct forward_options, member)

const struct option_row forward_rows[] = {
    {0, "address", "ADDRESS", OPTION_TEXT, AT(address),
     "listen on this address of the host (default 127.0.0.1)"},
    {0, "all-users", NULL, OPTION_FLAG, AT(all_users),
     "let programs of other users of this host connect"},
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet), "do not print the addresses"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

union listen_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

struct listener {
    int sock;
    uint16_t port; /* of the machine */
};

struct forwarding {
    const char *machine;
    const struct forward_options *o;
    bool checks_user; /* only programs of our user may connect */
    struct listener listeners[PORTS_MAX];
    size_t count;
    int signals;
    pid_t children[CHILDREN_MAX];
    size_t child_count;
};

/* ---- listening ---- */

static int read_address(const char *text, union listen_address *ret, struct err *err) {
    *ret = (union listen_address){.v4 = {.sin_family = AF_INET}};
    if (inet_pton(AF_INET, text, &ret->v4.sin_addr) == 1)
        return 0;
    *ret = (union listen_address){.v6 = {.sin6_family = AF_INET6}};
    if (inet_pton(AF_INET6, text, &ret->v6.sin6_addr) == 1)
        return 0;
    return err_set(err, ERR_INVALID, "--address %s: not an IP address", text);
}

static bool is_loopback(const union listen_address *a) {
    return a->any.sa_family == AF_INET ? ntohl(a->v4.sin_addr.s_addr) >> 24 == 127
                                       : IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
}

/* Parses "5432" or "15432:5432". */
static int read_ports(const char *word, uint16_t *ret_here, uint16_t *ret_there, struct err *err) {
    char first[8];
    uint64_t here, there;
    const char *colon = strchr(word, ':');
    size_t n = colon ? (size_t)(colon - word) : 0;
    if (n >= sizeof(first))
        return err_set(err, ERR_INVALID, "'%s' is not a port", word);
    memcpy(first, word, n);
    first[n] = '\0';
    if (parse_u64(colon ? colon + 1 : word, 1, 65535, &there, err) < 0 ||
        (colon && parse_u64(first, 0, 65535, &here, err) < 0))
        return err_wrap(err, "port '%s'", word);
    *ret_here = (uint16_t)(colon ? here : there);
    *ret_there = (uint16_t)there;
    return 0;
}

static int forward_listen(struct forwarding *f, union listen_address a, const char *word,
                          struct err *err) {
    struct listener *l = &f->listeners[f->count];
    uint16_t here = 0;
    socklen_t n = sizeof(a);
    if (read_ports(word, &here, &l->port, err) < 0)
        return -1;
    *(a.any.sa_family == AF_INET ? &a.v4.sin_port : &a.v6.sin6_port) = htons(here);
    int sock DEFER_CLOSE = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(sock, &a.any, a.any.sa_family == AF_INET ? sizeof(a.v4) : sizeof(a.v6)) < 0 ||
        listen(sock, SOMAXCONN) < 0 || getsockname(sock, &a.any, &n) < 0) {
        err_sys(err, "cannot listen on %s port %u", f->o->address, here);
        return err_remedy(err, "choose another port of this host: carrel forward %s 0:%u",
                          f->machine, l->port);
    }
    here = ntohs(a.any.sa_family == AF_INET ? a.v4.sin_port : a.v6.sin6_port);
    l->sock = TAKE_FD(sock);
    f->count++;
    if (!f->o->quiet)
        printf(a.any.sa_family == AF_INET ? "%s:%u to port %u of machine '%s'\n"
                                          : "[%s]:%u to port %u of machine '%s'\n",
               f->o->address, here, l->port, f->machine);
    return 0;
}

/* ---- connections ---- */

/* A process that has closed its end already counts as somebody else's. */
static bool forward_is_ours(int sock) {
    uid_t uid;
    return tcp_peer_user(sock, &uid) && uid == geteuid();
}

static void forward_accept(struct forwarding *f, const struct listener *l) {
    int sock DEFER_CLOSE = accept4(l->sock, NULL, NULL, SOCK_CLOEXEC);
    if (sock < 0)
        return;
    if (f->checks_user && !forward_is_ours(sock)) {
        fputs("carrel: refused a connection of another user (see --all-users)\n", stderr);
        return;
    }
    pid_t parent = getpid(), pid = fork();
    if (pid < 0) {
        perror("carrel: cannot start a process for a connection");
    } else if (pid > 0) {
        f->children[f->child_count++] = pid;
    } else {
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        for (size_t i = 0; i < f->count; i++)
            close(f->listeners[i].sock);
        int status = getppid() == parent
                         ? forward_serve((struct forward_ends){sock, sock}, f->machine, l->port)
                         : 1;
        fflush(NULL);
        _exit(status);
    }
}

/* True: a child found that the machine has ended. */
static bool forward_reap(struct forwarding *f) {
    bool ended = false;
    int status;
    for (size_t i = 0; i < f->child_count;) {
        if (waitpid(f->children[i], &status, WNOHANG) <= 0) {
            i++;
            continue;
        }
        ended |= WIFEXITED(status) && WEXITSTATUS(status) == FORWARD_MACHINE_ENDED;
        f->children[i] = f->children[--f->child_count];
    }
    return ended;
}

/* Returns the exit status of the command, or -1 to go on. */
static int forward_signalled(struct forwarding *f) {
    struct signalfd_siginfo info;
    if (read(f->signals, &info, sizeof(info)) != sizeof(info))
        return -1;
    if (info.ssi_signo != SIGCHLD)
        return 0;
    return forward_reap(f) ? CLI_FAILED : -1;
}

/*
 * Without a connection only a look finds that the machine has ended. A daemon that does not answer
 * may come again.
 */
static bool forward_is_over(const struct forwarding *f) {
    struct client c DEFER(client_close) = {0};
    json_t *machine DEFER(json_decrefp) = NULL;
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    struct err err;
    if (client_target(target, &err, "/v1/machines/%s", f->machine) < 0 ||
        client_open(&c, CLIENT_NEVER, NULL, &err) < 0)
        return false;
    if (client_call(&c, &r, &machine, &err) < 0) {
        if (err.code != ERR_NOT_FOUND && err.code != ERR_GONE)
            return false;
    } else {
        const char *state = json_string_value(json_object_get(machine, "state"));
        if (!state || strcmp(state, "ended") != 0)
            return false;
    }
    fprintf(stderr, "carrel: machine '%s' has ended\n", f->machine);
    return true;
}

static int forward_loop(struct forwarding *f) {
    int status = -1;
    while (status < 0) {
        struct pollfd polls[PORTS_MAX + 1] = {{.fd = f->signals, .events = POLLIN}};
        bool has_room = f->child_count < CHILDREN_MAX;
        for (size_t i = 0; i < f->count; i++)
            polls[i + 1] =
                (struct pollfd){.fd = has_room ? f->listeners[i].sock : -1, .events = POLLIN};
        int ready = poll(polls, f->count + 1, LOOK_MS);
        if (ready == 0 && forward_is_over(f))
            status = CLI_FAILED;
        if (ready <= 0)
            continue;
        if (polls[0].revents)
            status = forward_signalled(f);
        for (size_t i = 0; status < 0 && i < f->count; i++)
            if (polls[i + 1].revents && f->child_count < CHILDREN_MAX)
                forward_accept(f, &f->listeners[i]);
    }
    for (size_t i = 0; i < f->child_count; i++)
        kill(f->children[i], SIGTERM);
    return status;
}

/* ---- the command ---- */

static int forward_start(struct forwarding *f, char **words, int count, struct err *err) {
    struct client c DEFER(client_close) = {0};
    json_t *machine DEFER(json_decrefp) = NULL;
    char target[CLIENT_TARGET_SIZE];
    union listen_address a;
    sigset_t set;
    const struct client_request r = {.method = "GET", .target = target};
    if (read_address(f->o->address, &a, err) < 0 ||
        client_target(target, err, "/v1/machines/%s", f->machine) < 0 ||
        client_open(&c, CLIENT_START, NULL, err) < 0 || client_call(&c, &r, &machine, err) < 0)
        return -1;
    f->checks_user = is_loopback(&a) && !f->o->all_users;
    sigemptyset(&set);
    for (const int *s = (const int[]){SIGCHLD, SIGINT, SIGTERM, SIGHUP, 0}; *s; s++)
        sigaddset(&set, *s);
    sigprocmask(SIG_BLOCK, &set, NULL);
    f->signals = signalfd(-1, &set, SFD_CLOEXEC);
    if (f->signals < 0)
        return err_sys(err, "cannot wait for signals");
    for (int i = 1; i < count; i++)
        if (forward_listen(f, a, words[i], err) < 0)
            return -1;
    if (!is_loopback(&a))
        fprintf(stderr, "carrel: everybody who reaches %s can connect to the machine\n",
                f->o->address);
    fflush(stdout);
    return 0;
}

int cmd_forward(int argc, char **argv) {
    struct forward_options o = {.address = "127.0.0.1"};
    struct err err;
    char *words[PORTS_MAX + 1] = {NULL};
    int count = options_words(forward_rows, argc, argv, &o, words, PORTS_MAX + 1, &err);
    if (count >= 0 && o.help) {
        cli_help("forward");
        return 0;
    }
    if (count >= 0 && count < 2) {
        count = err_set(&err, ERR_INVALID, count ? "no port given" : "no machine given");
        err_remedy(&err, "see carrel forward --help");
    }
    struct forwarding f = {.machine = words[0], .o = &o, .signals = -1};
    if (count < 0 || forward_start(&f, words, count, &err) < 0)
        return cli_fail(&err);
    return forward_loop(&f);
}
