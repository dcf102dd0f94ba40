#include "spawn/vm/qmp.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fdio.h"

/* Reads one line. The rest of a line that is too long is dropped. */
static bool qmp_line(struct qmp *q, uint64_t until_ms) {
    for (q->have = 0;;) {
        uint64_t now = boot_ms();
        struct pollfd p = {q->sock, POLLIN, 0};
        char c;
        if (now >= until_ms || poll(&p, 1, (int)(until_ms - now)) <= 0)
            return false;
        ssize_t n = recv(q->sock, &c, 1, MSG_DONTWAIT);
        q->is_gone = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
        if (q->is_gone)
            return false;
        if (n < 0)
            continue;
        if (c == '\n')
            break;
        if (q->have < sizeof(q->line) - 1)
            q->line[q->have++] = c;
    }
    q->line[q->have] = '\0';
    return true;
}

bool qmp_do(struct qmp *q, const char *command, int fd, uint64_t until_ms) {
    char text[1024], id[64];
    q->number++;
    snprintf(id, sizeof(id), "\"id\": \"%" PRIx64 "-%u\"", q->salt, q->number);
    int n = snprintf(text, sizeof(text), "%s, %s}", command, id);
    if (n < 0 || n >= (int)sizeof(text))
        return false;
    q->is_gone = send_fds(q->sock, text, (size_t)n, &fd, fd >= 0) < 0;
    if (q->is_gone)
        return false;
    while (qmp_line(q, until_ms))
        if (strstr(q->line, id))
            return strstr(q->line, "\"return\"") != NULL;
    return false;
}

bool qmp_open(struct qmp *q, int sock, uint64_t until_ms) {
    *q = (struct qmp){.sock = sock};
    if (getrandom(&q->salt, sizeof(q->salt), 0) != sizeof(q->salt))
        return false;
    /* An error says that an earlier client did it. */
    return qmp_do(q, "{\"execute\":\"qmp_capabilities\"", -1, until_ms) || q->have > 0;
}
