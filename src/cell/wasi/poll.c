/*
 * poll_oneoff. With the virtual clock nothing waits: descriptors are ready, and if there are only
 * timeouts, the clock moves to the first of them. With the real clock the worker waits.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "cell/wasi/wasi_inner.h"

enum { SUBSCRIPTIONS_MAX = WASI_FDS_MAX, EVENT_SIZE = 32, SOCKET_WAIT_MS = 50 };

struct wasi_sub {
    uint64_t user;
    uint8_t type;
    uint32_t fd;
    uint32_t clock;
    uint64_t due_ns; /* clocks: time on its own clock */
    int error;       /* reported as an event */
};

/* What a program waits for, in one struct: the earliest timeout, and the descriptors. */
struct wasi_waiting {
    struct wasi_sub *subs;
    uint32_t count, events;
    bool has_clock, has_input, has_socket, has_ready;
};

static void wasi_read_clock(const struct wasi_at *a, const uint8_t *p, struct wasi_sub *ret) {
    p += a->c->is_unstable ? 8 : 0; /* its own user data, which nothing uses */
    ret->clock = (uint32_t)wasi_number(p, 4);
    uint64_t timeout = wasi_number(p + 8, 8);
    if (ret->clock > CLOCK_ID_MONOTONIC) {
        ret->error = ret->clock > CLOCK_ID_THREAD ? WASI_INVAL : WASI_NOTSUP;
        return;
    }
    uint64_t now = wasi_clock_now(a, ret->clock);
    if (wasi_number(p + 24, 2) & SUBCLOCK_ABSTIME)
        ret->due_ns = timeout;
    else if (__builtin_add_overflow(now, timeout, &ret->due_ns))
        ret->due_ns = UINT64_MAX;
}

static void wasi_read_sub(const struct wasi_at *a, const uint8_t *p, struct wasi_sub *ret) {
    struct wasi_fd *f;
    *ret = (struct wasi_sub){.user = wasi_number(p, 8), .type = p[8]};
    if (ret->type == EVENT_CLOCK) {
        wasi_read_clock(a, p + 16, ret);
        return;
    }
    ret->fd = (uint32_t)wasi_number(p + 16, 4);
    ret->error = ret->type > EVENT_FD_WRITE
                     ? WASI_INVAL
                     : wasi_fd_with(a->w, ret->fd, RIGHT_POLL_FD_READWRITE, &f);
}

static int wasi_put_event(const struct wasi_at *a, struct wasi_waiting *w,
                          const struct wasi_sub *s) {
    uint8_t out[EVENT_SIZE] = {0};
    wasi_set_number(out, s->user, 8);
    wasi_set_number(out + 8, (uint64_t)s->error, 2);
    out[10] = s->type;
    if (s->type != EVENT_CLOCK && !s->error)
        wasi_set_number(out + 16, 1, 8);
    return wasi_put(a, wasi_u32(a, 1) + EVENT_SIZE * w->events++, out, sizeof(out));
}

static bool wasi_socket_ready(const struct wasi_fd *f, bool writes) {
    struct pollfd p = {.fd = f->host, .events = writes ? POLLOUT : POLLIN};
    const struct timespec now = {0};
    return ppoll(&p, 1, &now, NULL) != 0;
}

/* True if the descriptor can be read or written now. Standard input is asked for separately. */
static bool wasi_sub_ready(const struct wasi_at *a, const struct wasi_sub *s, bool input) {
    const struct wasi_fd *f = wasi_fd_at(a->w, s->fd);
    if (f->kind == KIND_STDIN)
        return input;
    if (f->kind == KIND_LISTENER || f->kind == KIND_STREAM)
        return wasi_socket_ready(f, s->type == EVENT_FD_WRITE);
    return true;
}

static int wasi_put_ready(const struct wasi_at *a, struct wasi_waiting *w, bool input) {
    int error = WASI_OK;
    for (uint32_t i = 0; !error && i < w->count; i++) {
        const struct wasi_sub *s = &w->subs[i];
        bool is_due = s->error || (s->type == EVENT_CLOCK ? wasi_clock_now(a, s->clock) >= s->due_ns
                                                          : wasi_sub_ready(a, s, input));
        if (is_due)
            error = wasi_put_event(a, w, s);
    }
    return error;
}

/* Returns the time until the first timeout. */
static uint64_t wasi_first_due(const struct wasi_at *a, const struct wasi_waiting *w) {
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < w->count; i++) {
        const struct wasi_sub *s = &w->subs[i];
        if (s->type != EVENT_CLOCK || s->error)
            continue;
        uint64_t now = wasi_clock_now(a, s->clock), left = s->due_ns > now ? s->due_ns - now : 0;
        least = left < least ? left : least;
    }
    return least;
}

static void wasi_sort_waiting(const struct wasi_at *a, struct wasi_waiting *w) {
    for (uint32_t i = 0; i < w->count; i++) {
        const struct wasi_sub *s = &w->subs[i];
        const struct wasi_fd *f =
            s->error || s->type == EVENT_CLOCK ? NULL : wasi_fd_at(a->w, s->fd);
        w->has_clock |= s->type == EVENT_CLOCK;
        w->has_ready |= s->error != 0;
        if (!f)
            continue;
        w->has_input |= f->kind == KIND_STDIN;
        w->has_socket |= f->kind == KIND_LISTENER || f->kind == KIND_STREAM;
        w->has_ready |= f->kind != KIND_STDIN && f->kind != KIND_LISTENER && f->kind != KIND_STREAM;
    }
}

/* The link and sockets cannot be waited for together, so sockets are looked at from time to time.
 */
static int wasi_wait(const struct wasi_at *a, struct wasi_waiting *w) {
    const struct wasi_outside *o = &a->w->config.outside;
    bool input = false;
    for (;;) {
        uint64_t left = w->has_ready ? 0 : wasi_first_due(a, w);
        int error = wasi_put_ready(a, w, input);
        if (error || w->events)
            return error;
        const uint64_t step = (uint64_t)SOCKET_WAIT_MS * 1000000;
        input = o->wait(o->ctx, w->has_input, w->has_socket && left > step ? step : left);
    }
}

static int wasi_poll(const struct wasi_at *a, struct wasi_waiting *w) {
    wasi_sort_waiting(a, w);
    bool has_fds = w->has_input || w->has_socket || w->has_ready;
    if (a->w->config.has_clock || w->has_socket)
        return wasi_wait(a, w);
    if (!has_fds) {
        uint64_t left = wasi_first_due(a, w);
        if (__builtin_add_overflow(a->w->slept_ns, left, &a->w->slept_ns))
            a->w->slept_ns = UINT64_MAX;
    }
    return wasi_put_ready(a, w, true);
}

int wasi_poll_oneoff(const struct wasi_at *a) {
    uint32_t count = wasi_u32(a, 2), size = a->c->is_unstable ? 56 : 48;
    const uint8_t *in = wasi_bytes(a->c, wasi_u32(a, 0), (uint64_t)count * size);
    if (!in || !wasi_bytes(a->c, wasi_u32(a, 1), (uint64_t)count * EVENT_SIZE))
        return WASI_FAULT;
    if (!count || count > SUBSCRIPTIONS_MAX)
        return WASI_INVAL;
    struct wasi_waiting w = {.subs = calloc(count, sizeof(*w.subs)), .count = count};
    if (!w.subs)
        return WASI_NOMEM;
    for (uint32_t i = 0; i < count; i++)
        wasi_read_sub(a, in + (size_t)i * size, &w.subs[i]);
    int error = wasi_poll(a, &w);
    free(w.subs);
    return error ? error : wasi_put_number(a, wasi_u32(a, 3), w.events, 4);
}
