/*
 * `carrel` inside a machine: passes its words to the guest, which passes them to the daemon, and
 * prints the answer. It knows no subcommand itself, so that it fits every daemon. It has no rights
 * of its own: any program of the machine can say the same to the same socket (guest/calls.h).
 */
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/wire/msg.h"

#define NAME "carrel"

enum { WAIT_MS = 60000, AGAIN_MS = 200, AGAIN_TRIES = 100, STATUS_FAILED = 125 };

static int inside_fail(const char *text) {
    (void)!write(STDERR_FILENO, text, strlen(text));
    return STATUS_FAILED;
}

/* Joins the words, each with its NUL. Returns the number of bytes; 0: they do not fit. */
static size_t inside_join(char **words, char *to, size_t size) {
    size_t at = 0;
    for (; *words; words++) {
        size_t n = strlen(*words) + 1;
        if (n > size - at)
            return 0;
        memcpy(to + at, *words, n);
        at += n;
    }
    return at;
}

static int inside_connect(void) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path + 1, NAME, sizeof(NAME) - 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a,
                           offsetof(struct sockaddr_un, sun_path) + sizeof(NAME)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Returns the length of the answer, 0: none came in time, -1: nobody is there. */
static ssize_t inside_call(const char *words, size_t n, int wait_ms, char *to, size_t size) {
    int fd = inside_connect();
    if (fd < 0)
        return -1;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    /* A busy guest answers without reading: then the send fails, and the answer is there. */
    (void)!send(fd, words, n, MSG_NOSIGNAL);
    ssize_t got = poll(&p, 1, wait_ms) == 1 ? recv(fd, to, size, 0) : 0;
    close(fd);
    return got;
}

static int inside_print(const char *answer, size_t n) {
    int to = answer[0] ? STDERR_FILENO : STDOUT_FILENO;
    for (size_t at = 1; at < n;) {
        ssize_t done = write(to, answer + at, n - at);
        if (done <= 0)
            return STATUS_FAILED;
        at += (size_t)done;
    }
    return (unsigned char)answer[0];
}

int main(int argc, char **argv) {
    static char words[MSG_CALL_MAX], answer[MSG_CALL_ANSWER_MAX + 1];
    static char help[] = "help";
    char *none[] = {help, NULL};
    size_t n = inside_join(argc > 1 ? argv + 1 : none, words, sizeof(words));
    if (!n)
        return inside_fail("carrel: the arguments are too long\n");
    bool asks = strcmp(words, "ask") == 0 || strcmp(words, "move") == 0;
    int wait_ms = asks ? -1 : WAIT_MS; /* the owner may take any time */
    for (int i = 0; i < AGAIN_TRIES; i++) {
        ssize_t got = inside_call(words, n, wait_ms, answer, sizeof(answer));
        if (got > 0 && answer[0] != MSG_CALL_AGAIN)
            return inside_print(answer, (size_t)got);
        if (got < 0)
            return inside_fail("carrel: this machine has no connection to its host\n");
        if (got == 0 && wait_ms > 0)
            break;
        nanosleep(&(struct timespec){.tv_nsec = AGAIN_MS * 1000000L}, NULL);
    }
    return inside_fail("carrel: the host does not answer; try again later\n");
}
