#include "guest/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "guest/log.h"
#include "guest/relay.h"

/* Number of bytes read from one stream before other streams are served: more than a pipe holds. */
#define LOG_BURST (1u << 20)
#define LOG_READ (256u << 10)

static uint8_t *ring_new(uint32_t size) {
    void *ring = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return ring == MAP_FAILED ? NULL : ring;
}

static void ring_free(uint8_t **ring, uint32_t size) {
    if (*ring)
        munmap(*ring, size);
    *ring = NULL;
}

/*
 * Finds the bytes [from, from + n) of a stream in the ring; returns the number of pieces, 1 or 2.
 */
static int ring_pieces(uint8_t *ring, uint32_t size, uint64_t from, uint32_t n,
                       struct iovec ret[2]) {
    uint32_t at = (uint32_t)(from % size);
    uint32_t first = n < size - at ? n : size - at;
    ret[0] = (struct iovec){ring + at, first};
    ret[1] = (struct iovec){ring, n - first};
    return n > first ? 2 : 1;
}

/*
 * Handles the end of an output stream. Closes only the descriptor: the last bytes stay in the ring,
 * to be sent again if needed.
 */
static void out_ended(struct guest *g, struct stream_out *s) {
    s->eof = true;
    s->readable = false;
    if (s->log)
        log_end(s->log, s->index);
    source_close(g, &s->src);
    source_close(g, &s->copy);
}

/*
 * Call it after each read. A short read means that the pipe is empty, and epoll will report new
 * data. If the other end is closed, there is no further event, so read on until the end. A terminal
 * returns few bytes per read, so it is read until EAGAIN.
 */
static void was_read(struct guest *g, struct stream_out *s, ssize_t n, uint32_t room) {
    if (n > 0) {
        s->produced += (uint64_t)n;
        s->readable = (uint32_t)n == room || s->hung_up || s->is_terminal;
    } else if (n < 0 && errno == EINTR) {
        return;
    } else if (n < 0 && (errno == EAGAIN || s->may_reopen)) {
        s->readable = false;
        if (s->copy_end != UINT64_MAX) /* the command has exited, and all of its output was read */
            source_close(g, &s->copy);
    } else {
        out_ended(g, s);
    }
}

/* Output to the host's pipe (MSG_EXEC_COPY). */

static uint64_t bytes_unread(const struct stream_out *s) {
    int n = 0;
    return ioctl(s->src.fd, FIONREAD, &n) == 0 && n > 0 ? (uint64_t)n : 0;
}

void stream_out_copy_stop(struct stream_out *s) {
    if (s->copy.fd >= 0)
        s->copy_end = s->produced + bytes_unread(s);
}

void stream_out_copy_unread(struct guest *g, struct stream_out *s) {
    if (s->copy_end == UINT64_MAX)
        out_ended(g, s);
    source_close(g, &s->copy);
}

/* Finds the bytes [copied, end), which are all of the last read: in the log, or in the spill. */
static int copy_pieces(const struct stream_out *s, uint64_t end, struct iovec ret[2]) {
    size_t n = (size_t)(end - s->copied);
    if (!s->spilled)
        return outlog_find(&s->log->w, s->index, s->copied, n, ret);
    ret[0] = (struct iovec){s->spill + (s->spilled - (s->produced - s->copied)), n};
    return 1;
}

/*
 * Writes bytes that were read from the command to the host's pipe. They are those of the log, and
 * not a second look at the command's pipe: that may hold pages that the command can still change.
 * False: the pipe is full, and copy_ready() will be called; or no memory is left for a copy, and
 * cmd_tick() tries again.
 */
static bool copy_push(struct guest *g, struct stream_out *s) {
    while (s->copy.fd >= 0) {
        uint64_t end = s->produced < s->copy_end ? s->produced : s->copy_end;
        if (s->copied == s->copy_end)
            source_close(g, &s->copy);
        if (s->copied == end)
            return true;
        struct iovec v[2];
        ssize_t n = relay_write(g, s->copy.fd, v, copy_pieces(s, end, v));
        if (n > 0) {
            s->copied += (uint64_t)n;
        } else if (errno == EPIPE) {
            stream_out_copy_unread(g, s);
        } else {
            s->is_starved = errno != EAGAIN;
            g->has_timers |= s->is_starved;
            return false;
        }
    }
    return true;
}

/* Returns the number of bytes that may be read into the log now. */
static uint32_t log_room(const struct stream_out *s) {
    if (!s->paced || s->copy.fd >= 0)
        return LOG_READ;
    uint64_t end = s->consumed + outlog_window(&s->log->w.log.caps, s->index);
    uint64_t room = end > s->produced ? end - s->produced : 0;
    return room < LOG_READ ? (uint32_t)room : LOG_READ;
}

static void log_read(struct guest *g, struct stream_out *s, uint32_t room) {
    uint64_t lost = s->log->w.lost[s->index];
    ssize_t n = log_fill(s->log, s->index, s->src.fd, room, s->spill);
    s->spilled = (uint32_t)(s->log->w.lost[s->index] - lost);
    was_read(g, s, n, room);
}

/* Reads on only when the host's pipe has all that was read before, so the command waits for it. */
static void fill_log(struct guest *g, struct stream_out *s) {
    uint64_t until = s->produced + LOG_BURST;
    uint32_t room = 0;
    bool sent;
    while ((sent = copy_push(g, s)) && s->readable && s->produced < until &&
           (room = log_room(s)) > 0)
        log_read(g, s, room);
    if (sent && s->readable && room > 0)
        source_rearm(g, &s->src, EPOLLIN | EPOLLET);
}

static void read_once(struct guest *g, struct stream_out *s, uint32_t room) {
    struct iovec v[2];
    int pieces = ring_pieces(s->ring, s->size, s->produced, room, v);
    was_read(g, s, readv(s->src.fd, v, pieces), room);
}

bool stream_out_fill(struct guest *g, struct stream_out *s) {
    if (s->src.fd < 0)
        return true;
    if (s->log) {
        fill_log(g, s);
        return true;
    }
    if (!s->readable)
        return true;
    if (!s->ring && !(s->ring = ring_new(s->size)))
        return false;
    uint32_t room;
    while (s->readable && (room = s->size - (uint32_t)(s->produced - s->consumed)) > 0)
        read_once(g, s, room);
    return true;
}

uint32_t stream_out_take(struct stream_out *s, uint8_t *to, uint32_t max) {
    uint64_t left = s->produced - s->sent;
    uint32_t n = left < max ? (uint32_t)left : max;
    if (n == 0)
        return 0;
    struct iovec v[2];
    int pieces = ring_pieces(s->ring, s->size, s->sent, n, v);
    for (int i = 0; i < pieces; i++) {
        memcpy(to, v[i].iov_base, v[i].iov_len);
        to += v[i].iov_len;
    }
    s->sent += n;
    return n;
}

bool stream_out_has_news(const struct stream_out *s) {
    return !s->log && (s->sent < s->produced || (s->eof && !s->eof_sent));
}

bool stream_out_credit(struct stream_out *s, uint64_t consumed) {
    if (s->log) {
        s->paced = consumed != UINT64_MAX;
        s->consumed = s->paced ? consumed : 0;
        return consumed <= s->produced || !s->paced;
    }
    if (consumed > s->sent)
        return false;
    if (consumed > s->consumed)
        s->consumed = consumed;
    return true;
}

static void in_ended(struct guest *g, struct stream_in *s) {
    /* the command will not read the rest of its input: report it as read */
    s->written = s->received;
    source_close(g, &s->src);
}

static ssize_t in_write(struct guest *g, struct stream_in *s, const struct iovec *v, int pieces) {
    ssize_t n;
    while ((n = writev(s->src.fd, v, pieces)) < 0 && errno == EINTR)
        ;
    if (n < 0 && errno != EAGAIN)
        in_ended(g, s);
    return n;
}

/* Ends the input: closes a pipe, or writes ^D to a terminal. */
static void in_finish(struct guest *g, struct stream_in *s) {
    if (!s->is_terminal)
        source_close(g, &s->src);
    else if (write(s->src.fd, "\004", 1) == 1)
        s->eof = false;
}

void stream_in_push(struct guest *g, struct stream_in *s) {
    while (s->src.fd >= 0 && s->written < s->received) {
        struct iovec v[2];
        uint32_t n = (uint32_t)(s->received - s->written);
        ssize_t done = in_write(g, s, v, ring_pieces(s->ring, s->size, s->written, n, v));
        if (done < 0)
            return;
        s->written += (uint64_t)done;
    }
    if (s->src.fd >= 0 && s->eof && s->written == s->received)
        in_finish(g, s);
}

static bool in_store(struct stream_in *s, const uint8_t *bytes, uint32_t n) {
    if (!s->ring && !(s->ring = ring_new(s->size)))
        return false;
    struct iovec v[2];
    int pieces = ring_pieces(s->ring, s->size, s->received, n, v);
    for (int i = 0; i < pieces; i++) {
        memcpy(v[i].iov_base, bytes, v[i].iov_len);
        bytes += v[i].iov_len;
    }
    s->received += n;
    return true;
}

bool stream_in_add(struct guest *g, struct stream_in *s, const struct msg_data *data, bool eof) {
    uint64_t end = data->offset + data->data.n;
    if (data->offset > s->received || end < data->offset || end - s->written > s->size)
        return false;
    if (end < s->received || s->eof)
        return true; /* the host sent this input again after a reconnect */
    uint32_t n = (uint32_t)(end - s->received);
    const uint8_t *bytes = data->data.p + (data->data.n - n);
    s->eof = eof;
    if (s->src.fd < 0) {
        s->received = s->written = end;
        return true;
    }
    if (n > 0 && !in_store(s, bytes, n))
        return false;
    stream_in_push(g, s);
    return true;
}

bool stream_in_owes_credit(const struct stream_in *s) {
    return s->written - s->reported >= s->size / 2;
}

void stream_in_close(struct guest *g, struct stream_in *s) {
    source_close(g, &s->src);
    ring_free(&s->ring, s->size);
}

void stream_out_close(struct guest *g, struct stream_out *s) {
    if (s->log)
        log_end(s->log, s->index);
    source_close(g, &s->src);
    source_close(g, &s->copy);
    ring_free(&s->ring, s->size);
}
