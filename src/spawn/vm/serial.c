#include "spawn/vm/serial.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fdio.h"
#include "base/parse.h"
#include "base/wire/vm_line.h"

enum { PIECE = 4096, TYPED_MAX = 4096, EXIT_USAGE = 2, LAST_WORDS = 16384 };

/* What a kernel writes before it ends, and how many bytes may come from there to the end. */
static const struct {
    const char *text, *word;
    size_t within;
} last_words[] = {
    {"reboot: Restarting system", VM_SAID_RESTART, 128},
    {"reboot: Power down", VM_SAID_OFF, 128},
    {"Kernel panic - not syncing", VM_SAID_PANIC, LAST_WORDS},
};

struct serial_client {
    int fd; /* -1: the slot is free */
    char line[SERIAL_LINE];
    size_t line_n;  /* bytes of the first line */
    bool has_begun; /* the first line is complete */
    bool has_ended; /* it types no more, and gets the bytes before `until` */
    uint64_t at, until;
};

struct serial {
    int qemu;
    bool is_over;           /* QEMU has ended */
    uint64_t written;       /* bytes that the vm wrote */
    char kept[SERIAL_KEPT]; /* the last of them: byte n is at n % SERIAL_KEPT */
    char typed[TYPED_MAX];  /* not yet taken by QEMU */
    size_t typed_n;
    struct serial_client clients[SERIAL_CLIENTS];
};

static void client_drop(struct serial_client *c) {
    close(c->fd);
    *c = (struct serial_client){.fd = -1};
}

/* Reads what the vm writes, whether or not somebody looks: else its kernel would wait. */
static void serial_hear(struct serial *s) {
    size_t at = s->written % SERIAL_KEPT, room = SERIAL_KEPT - at;
    ssize_t n = recv(s->qemu, s->kept + at, room < PIECE ? room : PIECE, MSG_DONTWAIT);
    if (n > 0)
        s->written += (uint64_t)n;
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        s->is_over = true;
}

static void serial_type(struct serial *s) {
    ssize_t n = send(s->qemu, s->typed, s->typed_n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n <= 0)
        return;
    s->typed_n -= (size_t)n;
    memmove(s->typed, s->typed + n, s->typed_n);
}

/* Chooses where the client begins: at the offset it asked for, if those bytes are still kept. */
static bool client_begin(const struct serial *s, struct serial_client *c) {
    struct err err;
    char head[SERIAL_LINE];
    uint64_t oldest = s->written > SERIAL_KEPT ? s->written - SERIAL_KEPT : 0;
    c->line[c->line_n - 1] = '\0';
    if (parse_u64(c->line, 0, INT64_MAX, &c->at, &err) < 0)
        return false;
    if (c->at < oldest)
        c->at = oldest;
    if (c->at > s->written)
        c->at = s->written;
    c->has_begun = true;
    int n = snprintf(head, sizeof(head), "%" PRIu64 "\n", c->at);
    return send(c->fd, head, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) == n;
}

static bool client_read_line(const struct serial *s, struct serial_client *c) {
    if (c->line_n == sizeof(c->line))
        return false;
    ssize_t n = recv(c->fd, c->line + c->line_n, 1, MSG_DONTWAIT);
    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR);
    return c->line[c->line_n++] != '\n' || client_begin(s, c);
}

/* False: the client is to be disconnected. */
static bool client_hear(struct serial *s, struct serial_client *c) {
    if (!c->has_begun)
        return client_read_line(s, c);
    ssize_t n = recv(c->fd, s->typed + s->typed_n, TYPED_MAX - s->typed_n, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    s->typed_n += (size_t)n;
    c->has_ended = n == 0;
    c->until = s->written;
    return true;
}

static uint64_t client_left(const struct serial *s, const struct serial_client *c) {
    return (c->has_ended ? c->until : s->written) - c->at;
}

/* Sends as much as the client takes. False: it is to be disconnected. */
static bool client_show(const struct serial *s, struct serial_client *c) {
    while (c->has_begun && client_left(s, c)) {
        if (s->written - c->at > SERIAL_KEPT)
            return false;
        size_t at = c->at % SERIAL_KEPT, n = SERIAL_KEPT - at;
        if (n > client_left(s, c))
            n = client_left(s, c);
        ssize_t sent = send(c->fd, s->kept + at, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0)
            return errno == EAGAIN || errno == EINTR;
        c->at += (uint64_t)sent;
    }
    return !c->has_ended;
}

/* A client too many is told so by the end of its connection. */
static void serial_accept(struct serial *s, int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    for (int i = 0; fd >= 0 && i < SERIAL_CLIENTS; i++)
        if (s->clients[i].fd < 0) {
            s->clients[i] = (struct serial_client){.fd = fd};
            return;
        }
    if (fd >= 0)
        close(fd);
}

static short client_events(const struct serial *s, const struct serial_client *c) {
    bool hears = !c->has_ended && (!c->has_begun || s->typed_n < TYPED_MAX);
    bool shows = c->has_begun && client_left(s, c);
    return (short)((hears ? POLLIN : 0) | (shows ? POLLOUT : 0));
}

static void serial_once(struct serial *s, int listener) {
    struct pollfd polls[2 + SERIAL_CLIENTS] = {
        {.fd = s->qemu, .events = (short)(POLLIN | (s->typed_n ? POLLOUT : 0))},
        {.fd = listener, .events = POLLIN},
    };
    struct pollfd *of_clients = polls + 2;
    for (int i = 0; i < SERIAL_CLIENTS; i++)
        of_clients[i] =
            (struct pollfd){.fd = s->clients[i].fd, .events = client_events(s, &s->clients[i])};
    if (poll(polls, 2 + SERIAL_CLIENTS, -1) < 0)
        return;
    if (polls[0].revents)
        serial_hear(s);
    if (s->typed_n)
        serial_type(s);
    for (int i = 0; i < SERIAL_CLIENTS; i++) {
        struct serial_client *c = &s->clients[i];
        if (c->fd < 0)
            continue;
        bool heard = !(of_clients[i].revents & (POLLIN | POLLHUP | POLLERR)) || c->has_ended ||
                     client_hear(s, c);
        if (!heard || !client_show(s, c) || of_clients[i].revents & POLLERR)
            client_drop(c);
    }
    if (polls[1].revents)
        serial_accept(s, listener);
}

/* How the vm ended; NULL: unknown. A program may write such words too, and deceives only itself. */
static const char *serial_last_word(const struct serial *s) {
    static char tail[LAST_WORDS];
    size_t n = s->written < LAST_WORDS ? (size_t)s->written : LAST_WORDS;
    for (size_t i = 0; i < n; i++)
        tail[i] = s->kept[(s->written - n + i) % SERIAL_KEPT];
    for (size_t i = 0; i < sizeof(last_words) / sizeof(*last_words); i++) {
        size_t within = n < last_words[i].within ? n : last_words[i].within;
        if (memmem(tail + n - within, within, last_words[i].text, strlen(last_words[i].text)))
            return last_words[i].word;
    }
    return NULL;
}

static void client_tell(int fd, const char *word) {
    (void)send(fd, word, strlen(word), MSG_DONTWAIT | MSG_NOSIGNAL);
    close(fd);
}

/* Until the process is killed. */
static void __attribute__((noreturn)) serial_tell_all(int listener, const char *word) {
    struct pollfd p = {.fd = listener, .events = POLLIN};
    for (;;) {
        int fd = poll(&p, 1, -1) < 0 ? -1 : accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            client_tell(fd, word);
    }
}

void serial_serve(int qemu, int listener) {
    static struct serial serial;
    struct serial *s = &serial;
    *s = (struct serial){.qemu = qemu};
    for (int i = 0; i < SERIAL_CLIENTS; i++)
        s->clients[i].fd = -1;
    while (!s->is_over)
        serial_once(s, listener);
    const char *word = serial_last_word(s);
    for (int i = 0; i < SERIAL_CLIENTS; i++) {
        struct serial_client *c = &s->clients[i];
        if (c->fd < 0)
            continue;
        if (word && !c->has_begun) { /* the daemon, which came a moment too early */
            client_tell(c->fd, word);
            continue;
        }
        client_show(s, c); /* the last words */
        client_drop(c);
    }
    if (word)
        serial_tell_all(listener, word);
}

int serial_main(int argc, char **argv) {
    struct err err;
    uint64_t qemu, listener;
    if (argc != 2 || parse_u64(argv[0], 3, INT32_MAX, &qemu, &err) < 0 ||
        parse_u64(argv[1], 3, INT32_MAX, &listener, &err) < 0)
        return EXIT_USAGE;
    prctl(PR_SET_NAME, "carrel-serial");
    serial_serve((int)qemu, (int)listener);
    return 0;
}
