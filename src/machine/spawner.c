#include "machine/spawner.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/log.h"
#include "io/spawn_link.h"

enum {
    UNDER_WAY_MAX = 32, /* requests with a fast reply: few enough that the spawner never finds our
                           socket full */
    ENDING_MAX = 256,   /* requests to end a box, answered when it is gone: small and slow */
    TRIES_MAX = 4,
    PACKETS_MAX = 16, /* packets read per turn of the loop */
    AGAIN_MS = 200,
    AGAIN_MAX_MS = 5000,
    SILENCE_MS = 20000, /* time without a reply to a fast request that counts as silence */
    LOOKS = 10,         /* checks for silence in that time */
};

struct request {
    struct request *next;
    uint64_t tag;
    enum plan_type type;
    bool once; /* do not send the request to another spawner */
    unsigned tries;
    spawner_answer_fn *done;
    void *arg;
    int fds[PLAN_MAX_GRANTS]; /* owned copies of the caller's descriptors */
    size_t nfds;
    struct err err; /* set once the request has failed */
    size_t len;
    char packet[];
};

/* A queue of requests. */
struct line {
    struct request *first, **end;
    size_t count;
};

/* Fast and slow requests have separate lanes (pairs of queues), so neither blocks the other. */
struct lane {
    struct line waiting, asked;
    size_t most;
};
enum { PROMPT, LATE, LANES };

struct connecting {
    struct spawner_link *link; /* NULL: the link was freed */
    struct place place;
    int fd;
    struct err err;
};

struct spawner_link {
    struct loop *loop;
    struct place place;
    int fd; /* -1: not connected */
    struct loop_watch *watch;
    unsigned armed;
    struct connecting *job;
    struct loop_timer *again;
    uint64_t again_ms;
    struct line failed;
    struct loop_call later; /* reports the failed requests */
    uint64_t tag;
    uint64_t losses;
    struct loop_timer *look; /* checks whether the spawner still replies */
    /* Time of the spawner's last reply, or of the first request after idle time. */
    uint64_t heard_ms;
    uint64_t silence_ms;
    bool is_silent; /* requests fail at once until the spawner responds again */
    unsigned depth;
    bool is_freed;
    struct lane lanes[LANES];
    char packet[PLAN_MAX_BYTES];
    struct plan_message message;
};

static void on_event(void *arg, unsigned events);
static void connect_now(void *arg);
static void tell_failed(void *arg);
static void spawner_look(void *arg);

/* ---- queues ---- */

static void line_init(struct line *l) {
    *l = (struct line){.end = &l->first};
}

static void line_add(struct line *l, struct request *r) {
    r->next = NULL;
    *l->end = r;
    l->end = &r->next;
    l->count++;
}

static struct request *line_cut(struct line *l, struct request **at) {
    struct request *r = *at;
    *at = r->next;
    if (!*at)
        l->end = at;
    l->count--;
    return r;
}

static void request_free(struct request *r) {
    for (size_t i = 0; i < r->nfds; i++)
        close(r->fds[i]);
    free(r);
}

static void line_clear(struct line *l) {
    while (l->first)
        request_free(line_cut(l, &l->first));
}

/* ---- opening and freeing ---- */

struct spawner_link *spawner_link_new(struct loop *loop, const struct place *place) {
    struct spawner_link *l = xnew(struct spawner_link);
    l->loop = loop;
    l->place = *place;
    l->fd = -1;
    l->again = loop_timer_new(loop, connect_now, l);
    l->again_ms = AGAIN_MS;
    l->look = loop_timer_new(loop, spawner_look, l);
    spawner_link_set_silence(l, SILENCE_MS);
    l->later = (struct loop_call){.fn = tell_failed, .arg = l};
    line_init(&l->failed);
    for (int i = 0; i < LANES; i++) {
        line_init(&l->lanes[i].waiting);
        line_init(&l->lanes[i].asked);
    }
    l->lanes[PROMPT].most = UNDER_WAY_MAX;
    l->lanes[LATE].most = ENDING_MAX;
    connect_now(l);
    return l;
}

void spawner_link_set_silence(struct spawner_link *l, uint64_t ms) {
    l->silence_ms = ms;
    loop_timer_start(l->look, ms / LOOKS, ms / LOOKS);
}

static void drop_connection(struct spawner_link *l) {
    loop_watch_free(TAKE(l->watch));
    close_fd(&l->fd);
    l->is_silent = false;
}

void spawner_link_free(struct spawner_link *l) {
    if (!l)
        return;
    l->is_freed = true;
    for (int i = 0; i < LANES; i++) {
        line_clear(&l->lanes[i].waiting);
        line_clear(&l->lanes[i].asked);
    }
    line_clear(&l->failed);
    if (l->depth)
        return;
    if (l->job)
        l->job->link = NULL;
    loop_timer_free(l->again);
    loop_timer_free(l->look);
    loop_call_cancel(l->loop, &l->later);
    drop_connection(l);
    free(l);
}

uint64_t spawner_link_losses(const struct spawner_link *l) {
    return l->losses;
}

static void spawner_enter(struct spawner_link *l) {
    l->depth++;
}

static void spawner_leave(struct spawner_link *l) {
    if (--l->depth == 0 && l->is_freed)
        spawner_link_free(l);
}

static void spawner_tell(struct spawner_link *l, struct request *r, const struct plan_message *m,
                         struct fd_message *fds, const struct err *err) {
    spawner_enter(l);
    if (r->done)
        r->done(r->arg, m, fds, err);
    request_free(r);
    spawner_leave(l);
}

/* Fails a request later from the loop, never from within the caller. */

static void spawner_fail(struct spawner_link *l, struct request *r, const struct err *why) {
    r->err = *why;
    line_add(&l->failed, r);
    loop_defer(l->loop, &l->later);
}

static void tell_failed(void *arg) {
    struct spawner_link *l = arg;
    spawner_enter(l);
    while (l->failed.first) {
        struct request *r = line_cut(&l->failed, &l->failed.first);
        struct err err = r->err;
        spawner_tell(l, r, NULL, NULL, &err);
    }
    spawner_leave(l);
}

/* ---- sending ---- */

static void rearm(struct spawner_link *l, bool is_full) {
    unsigned want = LOOP_READ | (is_full ? LOOP_WRITE : 0u);
    if (want != l->armed && l->watch)
        loop_watch_set(l->watch, want);
    l->armed = want;
}

/* Returns 1 if the request was sent, else 0. A broken connection is noticed on the next read. */
static int send_first(struct spawner_link *l, struct lane *lane) {
    struct request *r = lane->waiting.first;
    int e = send_fds(l->fd, r->packet, r->len, r->fds, r->nfds);
    if (e < 0)
        return 0;
    r->tries++;
    if (lane == &l->lanes[PROMPT] && !lane->asked.count)
        l->heard_ms = loop_now_ms(l->loop);
    line_add(&lane->asked, line_cut(&lane->waiting, &lane->waiting.first));
    return 1;
}

static void send_waiting(struct spawner_link *l) {
    bool is_full = false;
    for (int i = 0; i < LANES && l->fd >= 0; i++) {
        struct lane *lane = &l->lanes[i];
        while (lane->waiting.first && lane->asked.count < lane->most && !is_full)
            is_full = send_first(l, lane) == 0;
    }
    rearm(l, is_full);
}

/* The spawner runs but does not respond: stopped by a signal, or blocked in the kernel. */
static int say_silent(const struct spawner_link *l, struct err *err) {
    struct ucred peer = {.pid = 0};
    socklen_t n = sizeof(peer);
    (void)getsockopt(l->fd, SOL_SOCKET, SO_PEERCRED, &peer, &n);
    err_set(err, ERR_TIMEOUT, "the spawner (pid %d) does not respond: it may be stopped",
            (int)peer.pid);
    return err_remedy(
        err,
        "continue the spawner with `kill -CONT %d`, or use `kill -KILL`: machines keep running",
        (int)peer.pid);
}

static int keep_fds(struct request *r, const int *fds, size_t nfds, struct err *err) {
    if (nfds > PLAN_MAX_GRANTS)
        return err_set(err, ERR_LIMIT, "too many granted directories: at most %d", PLAN_MAX_GRANTS);
    for (; r->nfds < nfds; r->nfds++) {
        r->fds[r->nfds] = fcntl(fds[r->nfds], F_DUPFD_CLOEXEC, 3);
        if (r->fds[r->nfds] < 0)
            return err_sys(err, "cannot duplicate a descriptor for a request to the spawner");
    }
    return 0;
}

void spawner_ask(struct spawner_link *l, struct plan_message *m, const int *fds, size_t nfds,
                 spawner_answer_fn *done, void *arg) {
    m->tag = ++l->tag;
    size_t len = plan_encode(m, l->packet);
    struct request *r = xcalloc(1, sizeof(*r) + len);
    r->tag = m->tag;
    r->type = m->type;
    r->once = m->type == PLAN_LIST && m->cursor;
    r->done = done;
    r->arg = arg;
    r->len = len;
    memcpy(r->packet, l->packet, len);
    struct err err;
    if (keep_fds(r, fds, nfds, &err) < 0 || (l->is_silent && say_silent(l, &err) < 0)) {
        spawner_fail(l, r, &err);
        return;
    }
    line_add(&l->lanes[m->type == PLAN_DESTROY ? LATE : PROMPT].waiting, r);
    if (l->fd >= 0)
        send_waiting(l);
    else if (!l->job)
        connect_now(l);
}

/* ---- loss of the spawner ---- */

/* Fails all waiting requests, or only those that were sent TRIES_MAX times. */
static void fail_waiting(struct spawner_link *l, bool all, const struct err *why) {
    for (int i = 0; i < LANES; i++) {
        struct line *line = &l->lanes[i].waiting;
        for (struct request **at = &line->first; *at;) {
            if (all || (*at)->tries >= TRIES_MAX)
                spawner_fail(l, line_cut(line, at), why);
            else
                at = &(*at)->next;
        }
    }
}

static void on_connected(void *arg) {
    struct connecting *job DEFER_FREE = arg;
    struct spawner_link *l = job->link;
    int fd DEFER_CLOSE = job->fd;
    if (!l)
        return;
    l->job = NULL;
    if (fd >= 0 && loop_watch_new(l->loop, fd, LOOP_READ, on_event, l, &l->watch, &job->err) == 0) {
        l->fd = TAKE_FD(fd);
        l->armed = LOOP_READ;
        l->again_ms = AGAIN_MS;
        send_waiting(l);
        return;
    }
    log_line(LOG_WARN, "machine", "%s", job->err.text);
    loop_timer_start(l->again, l->again_ms, 0);
    l->again_ms = 2 * l->again_ms < AGAIN_MAX_MS ? 2 * l->again_ms : AGAIN_MAX_MS;
    fail_waiting(l, true, &job->err);
}

static void find_spawner(void *arg) {
    struct connecting *job = arg;
    job->fd = spawn_connect_current(&job->place, &job->err);
}

static void connect_now(void *arg) {
    struct spawner_link *l = arg;
    if (l->job || l->fd >= 0)
        return;
    loop_timer_stop(l->again);
    l->job = xnew(struct connecting);
    *l->job = (struct connecting){.link = l, .place = l->place, .fd = -1};
    loop_work(l->loop, find_spawner, on_connected, l->job);
}

/* Requests in flight go back to the head of their queue, in order. */
static void ask_again(struct lane *lane) {
    struct line all = lane->asked;
    if (!all.first)
        return;
    *all.end = lane->waiting.first;
    if (!lane->waiting.first)
        lane->waiting.end = all.end;
    lane->waiting.first = all.first;
    lane->waiting.count += all.count;
    line_init(&lane->asked);
}

static void lost(struct spawner_link *l) {
    struct err why;
    drop_connection(l);
    l->losses++;
    err_set(&why, ERR_UNKNOWN, "the spawner ended before it replied");
    for (int i = 0; i < LANES; i++) {
        for (struct request *r = l->lanes[i].asked.first; r; r = r->next)
            if (r->once)
                r->tries = TRIES_MAX;
        ask_again(&l->lanes[i]);
    }
    fail_waiting(l, false, &why);
    connect_now(l);
}

/* ---- silence of the spawner ---- */

static void fail_asked(struct spawner_link *l, const struct err *why) {
    for (int i = 0; i < LANES; i++)
        while (l->lanes[i].asked.first)
            spawner_fail(l, line_cut(&l->lanes[i].asked, &l->lanes[i].asked.first), why);
    fail_waiting(l, true, why);
}

/*
 * Detects a silent spawner by its fast requests, because the end of a box may take long. If no fast
 * request is pending, a status request is sent to get a reply. A request that fails here may still
 * be carried out, so callers undo it.
 */
static void spawner_look(void *arg) {
    struct spawner_link *l = arg;
    struct err why;
    uint64_t silent_ms = loop_now_ms(l->loop) - l->heard_ms;
    /* An unread reply is not silence: this process was stopped itself. */
    bool unread = l->fd >= 0 && poll(&(struct pollfd){.fd = l->fd, .events = POLLIN}, 1, 0) != 0;
    if (l->fd < 0 || l->is_silent || unread)
        return;
    if (l->lanes[PROMPT].asked.count && silent_ms >= l->silence_ms) {
        say_silent(l, &why);
        log_line(LOG_ERROR, "machine", "%s", why.text);
        l->is_silent = true;
        fail_asked(l, &why);
    } else if (!l->lanes[PROMPT].asked.count && l->lanes[LATE].asked.count &&
               silent_ms >= l->silence_ms) {
        static struct plan_message probe;
        probe = (struct plan_message){.type = PLAN_STATUS};
        spawner_ask(l, &probe, NULL, 0, NULL, NULL);
    }
}

/* ---- receiving ---- */

static struct request *take_asked(struct spawner_link *l, uint64_t tag) {
    for (int i = 0; i < LANES; i++)
        for (struct request **at = &l->lanes[i].asked.first; *at; at = &(*at)->next)
            if ((*at)->tag == tag)
                return line_cut(&l->lanes[i].asked, at);
    return NULL;
}

static void take_packet(struct spawner_link *l, struct fd_message *in) {
    struct err err;
    struct plan_message *m = &l->message;
    if (plan_decode(l->packet, in->len, m, &err) < 0) {
        log_line(LOG_ERROR, "machine", "read a reply of the spawner: %s", err.text);
        return;
    }
    struct request *r = take_asked(l, m->tag);
    if (!r)
        return;
    bool failed = m->type == PLAN_ERROR;
    if (failed && r->type == PLAN_CREATE && m->error.code == ERR_EXISTS && r->tries > 1)
        err_set(&m->error, ERR_UNKNOWN, "the spawner ended before it replied");
    if (!failed && m->type != plan_reply(r->type)) {
        failed = true;
        err_set(&m->error, ERR_INTERNAL,
                "the spawner replied to a request of type %d with a message of type %d",
                (int)r->type, (int)m->type);
        err_remedy(&m->error, "kill carrel-spawn: a new one starts by itself, and machines go on");
    }
    spawner_tell(l, r, failed ? NULL : m, in, failed ? &m->error : NULL);
}

/* Reads one packet. Returns 1 if there was one, 0 if none waits, -1 if the connection is closed. */
static int take_one(struct spawner_link *l) {
    struct fd_message in DEFER(fd_message_close) = {0};
    int r = recv_fds(l->fd, l->packet, sizeof(l->packet), &in);
    /* The kernel reports ECONNRESET once, before the last replies of the dead spawner. */
    if (r == -ECONNRESET)
        r = recv_fds(l->fd, l->packet, sizeof(l->packet), &in);
    if (r == -EAGAIN)
        return 0;
    /* The reply's descriptors did not fit. Pass it on; a receiver that needs them checks. */
    if (r == -EMSGSIZE && in.len > 0)
        r = 0;
    if (r < 0 || in.len == 0)
        return -1;
    l->heard_ms = loop_now_ms(l->loop);
    l->is_silent = false;
    take_packet(l, &in);
    return 1;
}

static void on_event(void *arg, unsigned events) {
    struct spawner_link *l = arg;
    int r = 1;
    if (events & LOOP_ERROR)
        l->armed =
            0; /* the loop stopped this watch; still read what the spawner sent before it closed */
    spawner_enter(l);
    if (events & ~(unsigned)LOOP_WRITE)
        for (int i = 0; i < PACKETS_MAX && r > 0 && !l->is_freed; i++)
            r = take_one(l);
    if (!l->is_freed && r < 0)
        lost(l);
    else if (!l->is_freed)
        send_waiting(l);
    spawner_leave(l);
}
