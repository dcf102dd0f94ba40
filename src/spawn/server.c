/*
 * The loop of the spawner: clients, guests, dying boxes, and background work.
 *
 * Each iteration does one unit of work, requests first, so that a request waits for at most one
 * unit.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/log.h"
#include "base/wire/msg.h"
#include "spawn/archives.h"
#include "spawn/create_later.h"
#include "spawn/disk/layers.h"
#include "spawn/disk/upkeep.h"
#include "spawn/server.h"
#include "spawn/spawner.h"
#include "spawn/vm/memory.h"

/*
 * The source of an epoll event. A box has two sources: its pid 1 and the connection to its guest.
 */
enum source {
    SOURCE_LISTENER,
    SOURCE_SIGNAL,
    SOURCE_CLIENT,
    SOURCE_PID,
    SOURCE_LINK,
    SOURCE_UNDERTAKER,
    SOURCE_DISK,
    SOURCE_MAKER,
    SOURCE_SAVING,
};

/*
 * Watches a descriptor. The epoll event holds the descriptor and its source instead of a pointer,
 * so it cannot point to freed memory.
 */
static void server_watch(struct server *v, int fd, enum source source) {
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = (uint64_t)source << 32 | (uint32_t)fd};
    epoll_ctl(v->epoll, EPOLL_CTL_ADD, fd, &e);
}

void server_watch_disk(struct server *v, int socket) {
    server_watch(v, socket, SOURCE_DISK);
}

void server_watch_maker(struct server *v, int socket) {
    server_watch(v, socket, SOURCE_MAKER);
}

/* Only its end is an event: what it says is read when a client asks. */
void server_watch_savings(struct server *v) {
    for (int pidfd; (pidfd = vm_memory_unwatched(v->s)) >= 0;)
        server_watch(v, pidfd, SOURCE_SAVING);
}

void server_watch_box(struct server *v, struct box *box) {
    const struct {
        int fd;
        enum source source;
    } both[] = {{box->pidfd, SOURCE_PID}, {box->link, SOURCE_LINK}};
    for (size_t i = 0; i < 2; i++)
        if (both[i].fd >= 0 && both[i].fd < BOX_FD_MAX) {
            v->box_of[both[i].fd] = box;
            server_watch(v, both[i].fd, both[i].source);
        }
}

void server_answer(struct server *v, struct client *c, const struct plan_message *m, const int *fds,
                   size_t nfds) {
    size_t n = plan_encode(m, v->packet);
    if (send_fds(c->fd, v->packet, n, fds, nfds) < 0)
        c->gone = true;
}

void server_answer_done(struct server *v, struct client *c) {
    v->message.type = PLAN_DONE;
    server_answer(v, c, &v->message, NULL, 0);
}

static void unwatch(struct server *v, int fd) {
    if (fd < 0)
        return;
    epoll_ctl(v->epoll, EPOLL_CTL_DEL, fd, NULL);
    if (fd < BOX_FD_MAX)
        v->box_of[fd] = NULL;
}

/* Kills the box, and stops listening to its guest: ending a thousand boxes would cause a thousand
 * useless events. */
void server_end_box(struct server *v, struct box *box) {
    if (box->ending || box->dead)
        return;
    v->ended_ms = boot_ms();
    if (v->ending_count++ == 0)
        v->pressed_ms = v->ended_ms;
    unwatch(v, box->link);
    box_kill(v->s, box);
}

/*
 * Kills and thaws the boxes again that are still alive some time after they were killed: the guest
 * may have frozen them.
 */
static void press_ending(struct server *v) {
    uint64_t now = boot_ms();
    bool due = now - v->ended_ms >= PRESS_MS || now - v->pressed_ms >= PRESS_LATE_MS;
    if (!v->ending_count || !due)
        return;
    v->ended_ms = v->pressed_ms = now;
    for (struct box *b = v->s->list; b; b = b->next)
        if (b->ending && !b->dead) {
            box_kill(v->s, b);
            cgroup_thaw(&v->s->cgroups, b->cgroup);
        }
}

void server_note_due(struct server *v, const struct box *box) {
    if (box->due_ms && (!v->due_ms || box->due_ms < v->due_ms))
        v->due_ms = box->due_ms;
}

/* The spawner enforces deadlines itself, because a guest may hang or lie. */
static void end_overdue(struct server *v) {
    uint64_t now = boot_ms();
    if (!v->due_ms || now < v->due_ms)
        return;
    v->due_ms = 0;
    for (struct box *b = v->s->list; b; b = b->next) {
        if (b->due_ms > now) {
            server_note_due(v, b);
        } else if (b->due_ms && !b->dead && !b->ending) {
            log_line(LOG_NOTE, "spawn", "ending machine '%s': its time to live (ttl) is over",
                     b->id);
            server_end_box(v, b);
        }
    }
}

/*
 * Removes from the list a waiter for machine `id` (NULL: any machine) of `client` (-1: any client).
 */
static struct waiter *take_waiter(struct server *v, const char *id, int client) {
    for (struct waiter **at = &v->waiters; *at; at = &(*at)->next) {
        struct waiter *w = *at;
        if ((id && strcmp(w->id, id) != 0) || (client >= 0 && w->client != client))
            continue;
        *at = w->next;
        v->waiting_count--;
        return w;
    }
    return NULL;
}

/*
 * Only the user of the spawner may connect. The directory of the socket is private already; this is
 * a second check.
 */
static void accept_client(struct server *v) {
    int fd DEFER_CLOSE = accept4(v->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct ucred peer;
    socklen_t size = sizeof(peer);
    if (fd < 0 || v->client_count >= CLIENT_MAX ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.uid != geteuid())
        return;
    struct client *c = calloc(1, sizeof(*c));
    if (!c)
        return;
    c->fd = TAKE_FD(fd);
    c->next = v->clients;
    v->clients = c;
    v->client_count++;
    server_watch(v, c->fd, SOURCE_CLIENT);
}

/* Removes clients that disconnected. Ends their boxes, except those that linger (are to outlive
 * their creator). */
static void drop_gone_clients(struct server *v) {
    for (struct client **at = &v->clients; *at;) {
        struct client *c = *at;
        if (!c->gone) {
            at = &c->next;
            continue;
        }
        for (struct box *b = v->s->list; b; b = b->next)
            if (b->owner == c->fd) {
                b->owner = -1;
                if (!b->linger)
                    server_end_box(v, b);
            }
        for (struct waiter *w; (w = take_waiter(v, NULL, c->fd));)
            free(w);
        create_forget(v, c->fd);
        vm_memory_client_gone(v->s, c->fd);
        *at = c->next;
        close(c->fd);
        free(c);
        v->client_count--;
    }
}

struct client *server_client(struct server *v, int fd) {
    for (struct client *c = v->clients; c; c = c->next)
        if (c->fd == fd)
            return c;
    return NULL;
}

/*
 * Finds the box of a descriptor in a table, which is fast: ending a thousand boxes causes two
 * thousand events.
 */
static struct box *box_by_fd(struct server *v, int fd) {
    return fd >= 0 && fd < BOX_FD_MAX ? v->box_of[fd] : NULL;
}

/* Waits for pid 1 of the box, which is dead. clean_one() removes its disk and cgroups later. */
static void box_died(struct server *v, struct box *box) {
    unwatch(v, box->pidfd);
    unwatch(v, box->link);
    waitpid(box->pid, NULL, WNOHANG);
    if (box->ending)
        v->ending_count--;
    v->ended_ms = boot_ms();
    box->dead = true;
    v->dead_count++;
}

/*
 * Reads requests of a guest. Its data is untrusted: after anything but a small valid request, the
 * connection is not read any more. A frame may arrive in pieces.
 */
static void serve_guest(struct server *v, struct box *box) {
    uint8_t *to;
    struct frame frame;
    size_t room = frame_space(&box->heard, &to);
    ssize_t n = recv(box->link, to, room, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) {
        /* A guest closes this connection only when it dies. */
        server_end_box(v, box);
    }
    if (n <= 0)
        return;
    frame_fed(&box->heard, (size_t)n);
    int r;
    while ((r = frame_next(&box->heard, &frame)) > 0) {
        struct msg_spares want;
        if (msg_get_spares_want(&frame, &want) == 0 && box_add_spares(v->s, box, want.count) < 0) {
            r = -1; /* the guest does not read the replies of the spawner */
            break;
        }
        box->words++;
    }
    if (r < 0 || box->words > WORDS_MAX)
        unwatch(v, box->link);
}

static void tell_waiting(struct server *v, const char *id) {
    for (struct waiter *w; (w = take_waiter(v, id, -1));) {
        struct client *c = server_client(v, w->client);
        v->message.tag = w->tag;
        if (c)
            server_answer_done(v, c);
        free(w);
    }
}

int server_start_undertaker(struct server *v) {
    int r = v->undertaker.pid ? 0 : undertaker_open(&v->undertaker);
    v->undertaker_busy = false;
    if (r < 0)
        return r;
    server_watch(v, v->undertaker.socket, SOURCE_UNDERTAKER);
    upkeep_resume(v->s, &v->undertaker);
    return 0;
}

/* Boxes whose work the undertaker did not finish are given to the next one. */
static void forget_orders(struct server *v) {
    for (struct box *b = v->s->list; b; b = b->next) {
        b->burying = false;
        for (int i = 0; i < CHORES; i++)
            b->chores[i].number = 0;
    }
}

static void hear_undertaker(struct server *v) {
    struct undertaker_word word;
    int r;
    while ((r = undertaker_next(&v->undertaker, &word)) > 0) {
        struct box *box = word.id[0] ? box_find(v->s, word.id) : NULL;
        if (box && word.chore)
            chore_done(&box->chores[word.chore], &word);
        else if (box)
            box->burying = false;
        v->undertaker_busy = false;
    }
    if (r < 0) {
        undertaker_close(&v->undertaker);
        forget_orders(v);
    }
}

/* True if the mounts of the dead box are gone; otherwise starts removing them. */
static bool is_buried(struct server *v, struct box *box) {
    if (box->burying || !spaces_held(box->held))
        return !box->burying;
    box_return_netns(v->s, box);
    if (!v->undertaker.pid && server_start_undertaker(v) < 0) {
        /* the spawner itself closes the namespaces, which unmounts their filesystems */
        spaces_close(box->held);
        return true;
    }
    if (!v->undertaker_busy) {
        box->burying = undertaker_take(&v->undertaker, box->id, box->held);
        v->undertaker_busy = !box->burying;
    }
    return false;
}

/* Cleans up one dead box. Returns true while other dead boxes cannot be cleaned up yet. */
static bool clean_one(struct server *v, bool *ret_did) {
    bool left = false;
    for (struct box *b = v->dead_count ? v->s->list : NULL, *next; b; b = next) {
        next = b->next;
        if (!b->dead)
            continue;
        char id[ID_SIZE];
        memcpy(id, b->id, sizeof(id));
        if (is_buried(v, b) && box_clean(v->s, b)) {
            v->dead_count--;
            tell_waiting(v, id);
            *ret_did = true;
            return true;
        }
        left = true;
    }
    return left;
}

static void handle(struct server *v, const struct epoll_event *e) {
    int fd = (int)(uint32_t)e->data.u64;
    enum source source = (enum source)(e->data.u64 >> 32);
    struct client *c;
    struct box *b;
    switch (source) {
    case SOURCE_LISTENER:
        accept_client(v);
        break;
    case SOURCE_SIGNAL:
        v->stopping = true;
        break;
    case SOURCE_CLIENT:
        /*
         * Requests of a client that disconnected are dropped: they must not run after the requests
         * of the next daemon.
         */
        if ((c = server_client(v, fd)) && e->events & (EPOLLHUP | EPOLLERR))
            c->gone = true;
        else if (c)
            server_serve_client(v, c);
        break;
    case SOURCE_PID:
        if ((b = box_by_fd(v, fd)))
            box_died(v, b);
        break;
    case SOURCE_LINK:
        if ((b = box_by_fd(v, fd)))
            serve_guest(v, b);
        break;
    case SOURCE_UNDERTAKER:
        hear_undertaker(v);
        break;
    case SOURCE_DISK:
        create_continue(v, fd);
        break;
    case SOURCE_MAKER:
        vm_template_collect(&v->s->templates);
        break;
    case SOURCE_SAVING:
        vm_memory_ended(v->s, fd);
        server_watch_savings(v);
        break;
    }
}

static int open_signals(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/*
 * True if background work may run now. Cleaning up and refilling the pools take time from new and
 * dying boxes. So they wait until no box was created or died for a moment, unless they are urgent.
 */
static bool may_tidy(const struct server *v) {
    uint64_t now = boot_ms();
    if (v->s->berth_count < POOL_SIZE / 2 && v->ending_count <= DEAD_MANY)
        return true;
    if (v->ending_count && now - v->ended_ms < RETRY_MS)
        return false;
    return v->dead_count > DEAD_MANY || v->waiting_count || now - v->created_ms >= QUIET_MS;
}

/*
 * Refills the pools of prepared boxes if no request waits. Under load each request creates the
 * parts that it needs.
 */
static bool refill(struct server *v, bool asked) {
    return asked || (!pool_awaits_disk(v) && pool_refill(v->s)) || ready_refill(v->s);
}

/* Does one unit of background work. True if there may be more work. */
static bool tidy(struct server *v, bool asked, bool *ret_dying) {
    bool did = false;
    *ret_dying = clean_one(v, &did);
    if (layers_untidy(v->s) && (v->undertaker.pid || server_start_undertaker(v) == 0))
        layers_tidy(v->s, &v->undertaker);
    bool removing = uppers_step(&v->s->maker.uppers);
    return did || refill(v, asked) || removing;
}

/* Returns how long to wait for events, in ms: 0 if there is work to do, a short time while a box
 * dies, else until the spawner counts as idle. */
static int patience(struct server *v, uint64_t idle_ms, bool work, bool dying) {
    if (work)
        return may_tidy(v) ? 0 : RETRY_MS;
    if (dying)
        return RETRY_MS;
    if (layers_untidy(v->s))
        return LEFT_LOOK_MS;
    if (v->s->box_count || v->client_count) {
        v->quiet_since_ms = boot_ms();
        return v->ending_count ? PRESS_MS : -1;
    }
    uint64_t quiet = boot_ms() - v->quiet_since_ms;
    return quiet >= idle_ms ? 0 : (int)(idle_ms - quiet);
}

static int until_due(const struct server *v, int otherwise) {
    if (!v->due_ms)
        return otherwise;
    uint64_t now = boot_ms(), left = v->due_ms > now ? v->due_ms - now : 0;
    return otherwise < 0 || left < (uint64_t)otherwise ? (int)(left < 60000 ? left : 60000)
                                                       : otherwise;
}

static bool is_idle(const struct server *v, uint64_t idle_ms) {
    return !v->s->box_count && !v->client_count && !v->s->maker.uppers.pending &&
           boot_ms() - v->quiet_since_ms >= idle_ms;
}

/*
 * Closes mounts that are no longer needed; the undertaker does it if it runs, because it takes
 * long.
 */
static void close_left(struct server *v) {
    struct left *left = &v->s->maker.left;
    if (left->count)
        undertaker_close_all(&v->undertaker, left->fds, left->count);
    while (left->count)
        close(left->fds[--left->count]);
}

static void serve(struct server *v, uint64_t idle_ms) {
    bool work = true, dying = true;
    while (!v->stopping) {
        struct epoll_event events[EVENTS];
        int n =
            epoll_wait(v->epoll, events, EVENTS, until_due(v, patience(v, idle_ms, work, dying)));
        for (int i = 0; i < n; i++)
            handle(v, &events[i]);
        close_left(v);
        drop_gone_clients(v);
        end_overdue(v);
        if (n > 0) {
            work = true;
        } else if (is_idle(v, idle_ms)) {
            break;
        }
        press_ending(v);
        if (may_tidy(v))
            work = tidy(v, n > 0, &dying);
    }
}

/* True if a box must be cleaned up before the spawner exits. Running boxes outlive the spawner. */
static bool some_dying(const struct server *v) {
    for (const struct box *b = v->s->list; b; b = b->next)
        if (b->dead || b->ending)
            return true;
    return false;
}

static void server_finish(struct server *v) {
    undertaker_leave(&v->undertaker);
    forget_orders(v);
    for (struct box *b = v->s->list; b; b = b->next)
        spaces_close(b->held);
    uint64_t end = boot_ms() + FINISH_MS;
    while (some_dying(v) && boot_ms() < end) {
        struct epoll_event events[EVENTS];
        bool did = false;
        int n = epoll_wait(v->epoll, events, EVENTS, RETRY_MS);
        for (int i = 0; i < n; i++)
            if (events[i].data.u64 >> 32 == SOURCE_PID)
                handle(v, &events[i]);
        press_ending(v);
        clean_one(v, &did);
    }
}

int server_run(struct spawner *s, int listener, uint64_t idle_ms, struct err *err) {
    struct server *v DEFER_FREE = calloc(1, sizeof(*v));
    int epoll DEFER_CLOSE = epoll_create1(EPOLL_CLOEXEC);
    int signals DEFER_CLOSE = open_signals();
    if (!v || epoll < 0 || signals < 0)
        return err_sys(err, "cannot start the event loop of the spawner");
    v->s = s;
    v->epoll = epoll;
    v->undertaker = UNDERTAKER_NONE;
    v->pool_disk = DISK_JOB_NONE;
    v->listener = listener;
    v->quiet_since_ms = boot_ms();
    server_watch(v, listener, SOURCE_LISTENER);
    server_watch(v, signals, SOURCE_SIGNAL);
    for (struct box *b = s->list; b; b = b->next) {
        if (b->dead) {
            v->dead_count++;
            continue;
        }
        v->ending_count += b->ending;
        server_watch_box(v, b);
        server_note_due(v, b);
    }
    server_watch_savings(v);

    serve(v, idle_ms);
    create_forget(v, -1);
    server_finish(v);
    return 0;
}
