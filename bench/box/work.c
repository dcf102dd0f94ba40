/*
 * box_work FOLDER: what a system call costs here. Static and without a library of ours, so that
 * the same bytes run inside and outside. Prints "NAME NANOSECONDS" for every chunk of calls.
 *
 * box_work FOLDER COUNT: creates and deletes that many files, four times, and prints
 * "churn NANOSECONDS" of processor time for each round.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHUNKS = 10, RESTED_CHUNKS = 2, CHURN_ROUNDS = 4 };

static void do_getppid(void) {
    (void)!getppid();
}

static void do_open(void) {
    int fd = open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        _exit(1);
    close(fd);
}

static void do_stat(void) {
    struct stat st;
    if (stat("/etc/passwd", &st) < 0)
        _exit(1);
}

static void do_create(void) {
    int fd = open("work.tmp", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, "x", 1) != 1)
        _exit(1);
    close(fd);
    unlink("work.tmp");
}

static void do_fork(void) {
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    if (pid < 0 || waitpid(pid, NULL, 0) < 0)
        _exit(1);
}

/* In a box this file is written by the guest when somebody opens it after a pause. */
static void do_meminfo(void) {
    char text[8192];
    int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof(text)) <= 0)
        _exit(1);
    close(fd);
}

static const struct {
    const char *name;
    unsigned count; /* calls in a chunk */
    void (*call)(void);
    unsigned rest_ms; /* pause before a chunk, which is not measured */
} works[] = {
    {"getppid", 20000, do_getppid},
    {"open+close", 4000, do_open},
    {"stat", 8000, do_stat},
    {"create+write+unlink", 500, do_create},
    {"fork+wait", 50, do_fork},
    {"meminfo", 2000, do_meminfo},
    {"meminfo-after-1s", 1, do_meminfo, 1100},
};

static uint64_t now_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t now(void) {
    return now_of(CLOCK_MONOTONIC);
}

static void churn_round(unsigned count) {
    char name[32];
    for (unsigned i = 0; i < 2 * count; i++) {
        snprintf(name, sizeof(name), "churn%u", i % count);
        int fd = i < count ? open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
        if (i < count ? fd < 0 : unlink(name) < 0)
            _exit(1);
        if (fd >= 0)
            close(fd);
    }
}

/* ext4 prefers inodes that were not deleted in an earlier second, so the rounds are in different
 * ones. */
static int churn(unsigned count) {
    for (int round = 0; round < CHURN_ROUNDS; round++) {
        uint64_t start = now_of(CLOCK_PROCESS_CPUTIME_ID);
        churn_round(count);
        printf("churn %llu\n", (unsigned long long)(now_of(CLOCK_PROCESS_CPUTIME_ID) - start));
        usleep(1100000);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 2 || argc > 3 || chdir(argv[1]) < 0)
        return 2;
    if (argc == 3)
        return churn((unsigned)strtoul(argv[2], NULL, 10));
    for (size_t i = 0; i < sizeof(works) / sizeof(*works); i++)
        for (int chunk = 0; chunk < (works[i].rest_ms ? RESTED_CHUNKS : CHUNKS); chunk++) {
            usleep(works[i].rest_ms * 1000);
            uint64_t start = now();
            for (unsigned k = 0; k < works[i].count; k++)
                works[i].call();
            printf("%s %llu\n", works[i].name,
                   (unsigned long long)((now() - start) / works[i].count));
        }
    return 0;
}
