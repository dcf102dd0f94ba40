#include "guest/relay.h"

#include <sys/ioctl.h>

#include "guest/sys.h"

#define RELAY_LEAST 4096u /* always fits if the pipe is not full */

int relay_open(struct guest *g) {
    return g->relay[0] >= 0 ? 0 : pipe2(g->relay, O_CLOEXEC | O_NONBLOCK);
}

static void relay_close(struct guest *g) {
    close_fd(&g->relay[0]);
    close_fd(&g->relay[1]);
}

/* Removes bytes that the host's pipe did not take. Later bytes must never follow them. */
static void relay_empty(struct guest *g, size_t n) {
    while (n > 0) {
        ssize_t gone = splice(g->relay[0], NULL, g->null, NULL, n, SPLICE_F_NONBLOCK);
        if (gone <= 0) {
            relay_close(g);
            return;
        }
        n -= (size_t)gone;
    }
}

/* Returns about how many bytes a pipe can take; 0: it is full. */
static size_t relay_room(int to) {
    int size = fcntl(to, F_GETPIPE_SZ), unread = 0;
    if (size < 0 || ioctl(to, FIONREAD, &unread) < 0)
        return RELAY_LEAST;
    if (unread >= size)
        return 0;
    size_t room = (size_t)(size - unread);
    return room > RELAY_LEAST ? room : RELAY_LEAST;
}

/* Fills the guest's pipe with at most max of the bytes. */
static ssize_t relay_fill(struct guest *g, const struct iovec *v, int pieces, size_t max) {
    struct iovec part[2];
    for (int i = 0; i < pieces; i++) {
        part[i] = v[i];
        if (part[i].iov_len > max)
            part[i].iov_len = max;
        max -= part[i].iov_len;
    }
    return writev(g->relay[1], part, pieces);
}

ssize_t relay_write(struct guest *g, int to, const struct iovec *v, int pieces) {
    size_t room = relay_room(to);
    errno = EAGAIN;
    if (room == 0 || relay_open(g) < 0)
        return -1;
    ssize_t n = relay_fill(g, v, pieces, room);
    if (n <= 0)
        return -1;
    ssize_t moved = splice(g->relay[0], NULL, to, NULL, (size_t)n, SPLICE_F_NONBLOCK);
    int failed = errno;
    relay_empty(g, (size_t)(moved > 0 ? n - moved : n));
    errno = failed;
    return moved;
}
