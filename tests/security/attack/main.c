/*
 * attack [--list] [--group N] [--bomb NAME [N]] [KEY=VALUE...]
 * attack --rise COMMAND...
 * attack --page
 *
 * Tries every row that concerns this user, each in a process of its own, and prints one JSON
 * object a line. --list prints the rows instead. --bomb uses up one resource (see bomb.c). --rise
 * runs a command as root; the file must be setuid for that. --page changes its output later
 * (page.h).
 */
#include "attack.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bomb.h"
#include "page.h"

enum { PATIENCE_S = 10 };

static const struct attack_table *const tables[] = {&proc_attacks, &call_attacks,  &file_attacks,
                                                    &net_attacks,  &power_attacks, &trace_attacks};
static char **facts;

const char *attack_fact(const char *key) {
    size_t n = strlen(key);
    for (char **f = facts; *f; f++)
        if (strncmp(*f, key, n) == 0 && (*f)[n] == '=')
            return *f + n + 1;
    return NULL;
}

int attack_read(const struct attack *a) {
    char byte;
    int fd = open(a->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return errno;
    ssize_t n = read(fd, &byte, 1);
    return n < 0 ? errno : n == 0 ? ENODATA : 0;
}

/* Its own text, so that where it gets through nothing changes. */
int attack_write(const struct attack *a) {
    char text[4096];
    int fd = open(a->path, a->n[0] ? O_RDWR | O_CLOEXEC : O_WRONLY | O_CLOEXEC);
    if (fd < 0 || !a->n[0])
        return attack_outcome(fd);
    ssize_t n = read(fd, text, sizeof(text));
    if (n < 0)
        return errno;
    return attack_outcome(pwrite(fd, text, (size_t)n, 0));
}

int attack_list(const struct attack *a) {
    char entries[4096];
    int fd = open(a->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    long n = syscall(SYS_getdents64, fd, entries, sizeof(entries));
    /* "." and ".." are 24 bytes each. */
    return n < 0 ? errno : n <= 48 ? ENODATA : 0;
}

int attack_syscall(const struct attack *a) {
    return attack_outcome(syscall(a->n[0], a->n[1], a->n[2], a->n[3], a->n[4], a->n[5], 0L));
}

/* The outcome travels as a number; a process that dies without sending one was killed. */
static int try_apart(const struct attack *a) {
    int ends[2], outcome = -1, status;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return errno;
    fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        return errno;
    if (pid == 0) {
        signal(SIGALRM, SIG_DFL);
        alarm(PATIENCE_S);
        setpgid(0, 0);
        outcome = a->run(a);
        (void)!write(ends[1], &outcome, sizeof(outcome));
        _exit(0);
    }
    close(ends[1]);
    bool said = read(ends[0], &outcome, sizeof(outcome)) == sizeof(outcome);
    close(ends[0]);
    waitpid(pid, &status, 0);
    kill(-pid, SIGKILL);
    if (said)
        return outcome;
    int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    return number == SIGALRM ? ATTACK_TIMEOUT : ATTACK_KILLED + number;
}

static void print_numbers(const char *key, const int *numbers, int most) {
    printf(",\"%s\":[", key);
    for (int i = 0; i < most && numbers[i]; i++)
        printf("%s%d", i ? "," : "", numbers[i]);
    printf("]");
}

static void print_row(const struct attack *a, size_t n) {
    printf("{\"n\":%zu,\"group\":%d,\"name\":\"%s\",\"who\":\"%c\",\"control\":\"%s\"", n, a->group,
           a->name, a->who ? a->who : 'b', a->control ? a->control : "outside");
    print_numbers("refusals", a->refusals, 6);
    print_numbers("reached", a->reached, 4);
    puts("}");
}

static bool concerns_us(const struct attack *a) {
    return !a->who || (a->who == 'r') == (geteuid() == 0);
}

static void each_row(bool list, int group) {
    size_t n = 0;
    for (size_t t = 0; t < sizeof(tables) / sizeof(*tables); t++)
        for (size_t i = 0; i < tables[t]->count; i++, n++) {
            const struct attack *a = &tables[t]->rows[i];
            if (group && a->group != group)
                continue;
            if (list)
                print_row(a, n);
            else if (concerns_us(a))
                printf("{\"n\":%zu,\"name\":\"%s\",\"outcome\":%d}\n", n, a->name, try_apart(a));
        }
}

enum { SPARES_WANT = 82, SPARES = 83, HEAD = 16 };

/* True when a whole frame of that type has come. */
static bool hear(int fd, unsigned char type) {
    unsigned char in[4096];
    struct pollfd p = {.fd = fd, .events = POLLIN};
    for (size_t len = 0; len < sizeof(in) && poll(&p, 1, 5000) > 0;) {
        ssize_t n = read(fd, in + len, sizeof(in) - len);
        if (n <= 0)
            return false;
        len += (size_t)n;
        for (size_t at = 0; at + HEAD <= len; at += HEAD + in[at])
            if (in[at + 4] == type && at + HEAD + in[at] <= len)
                return true;
    }
    return false;
}

/* A frame may come in any number of pieces. Its name tells whoever looks that this was heard. */
static void ask_slowly(int fd) {
    static const unsigned char want[HEAD + 2] = {[0] = 2, [4] = SPARES_WANT, [HEAD] = 1};
    for (size_t i = 0; i < sizeof(want); i++) {
        (void)!write(fd, &want[i], 1);
        usleep(5000);
    }
    if (hear(fd, SPARES))
        prctl(PR_SET_NAME, "heard");
}

/*
 * As pid 1 of a box instead of carrel-guest: what the spawner must bear from a guest that was taken
 * over. Asks for command groups without end and never reads an answer.
 */
static void __attribute__((noreturn)) hostile_guest(char **argv) {
    /* The wish, and two frames without meaning that make it 64 bytes: however much the spawner
       reads at once, it reads whole frames. */
    static const unsigned char want[64] = {
        [0] = 2, [4] = SPARES_WANT, [16] = 255, [22] = 4, [34] = 14, [38] = 4};
    int fd = -1;
    for (; *argv; argv++)
        if (strncmp(*argv, "spawn=", 6) == 0)
            fd = (int)strtol(*argv + 6, NULL, 10);
    ask_slowly(fd);
    for (int i = 0; i < 100000 && write(fd, want, sizeof(want)) > 0; i++)
        ;
    for (;;)
        pause();
}

static int rise(char **argv) {
    if (setresgid(0, 0, 0) < 0 || setgroups(0, NULL) < 0 || setresuid(0, 0, 0) < 0)
        return 1;
    execv(argv[0], argv);
    return 2;
}

int main(int argc, char **argv) {
    if (strcmp(argv[0], "carrel-guest") == 0)
        hostile_guest(argv);
    if (argc > 2 && strcmp(argv[1], "--rise") == 0)
        return rise(argv + 2);
    if (argc > 1 && strcmp(argv[1], "--page") == 0)
        return page_output();
    bool list = false;
    int group = 0, i = 1;
    for (; i < argc && strncmp(argv[i], "--", 2) == 0; i++) {
        if (strcmp(argv[i], "--bomb") == 0 && i + 1 < argc)
            return bomb(argv[i + 1], argv[i + 2] ? strtol(argv[i + 2], NULL, 10) : 0);
        list = list || strcmp(argv[i], "--list") == 0;
        if (strcmp(argv[i], "--group") == 0 && i + 1 < argc)
            group = (int)strtol(argv[++i], NULL, 10);
    }
    facts = argv + i;
    setvbuf(stdout, NULL, _IOLBF, 0);
    each_row(list, group);
    return 0;
}
