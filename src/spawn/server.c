/*
 * The spawner's loop: clients, guests, dying boxes, and refilling when there is nothing else.
 *
 * One unit of work an iteration, requests first, so that a request waits for at most one unit.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/fs_room.h"
#include "base/jot.h"
#include "base/log.h"
#include "base/msg.h"
#include "spawn/archives.h"
#include "spawn/disk/layers.h"
#include "spawn/disk/saved.h"
#include "spawn/disk/upkeep.h"
#include "spawn/spawner.h"

enum {
    CLIENT_MAX = 4096,
    WAITING_MAX = 65536,
    RETRY_MS = 2,
    FINISH_MS = 2000,
    QUIET_MS = 3,
    PRESS_MS = 20,
    PRESS_LATE_MS = 250,
    IMAGE_MS = 200,
    IMAGE_MORE = 1 << 20, /* so much more room is worth another try to build it */
    LEFT_LOOK_MS = 60,
    DEAD_MANY = 64,
    EVENTS = 64,
    WORDS_MAX = 4096,
    BOX_FD_MAX = 1 << 16,
};

/* What an epoll event is about. Boxes have two: their pid 1 and their guest's connection. */
enum source {
    SOURCE_LISTENER,
    SOURCE_SIGNAL,
    SOURCE_CLIENT,
    SOURCE_PID,
    SOURCE_LINK,
    SOURCE_UNDERTAKER
};

struct client {
    struct client *next;
    int fd;
    bool gone;
};

/* DESTROY is answered when its box is gone. */
struct waiter {
    struct waiter *next;
    int client;
    uint64_t tag;
    char id[ID_SIZE];
};

struct server {
    struct spawner *s;
    int epoll;
    int listener;
    struct client *clients;
    size_t client_count;
    bool stopping;
    bool warned; /* what is not enforced is said once */
    uint64_t quiet_since_ms;
    uint64_t created_ms; /* when a box was last asked for */
    struct waiter *waiters;
    size_t waiting_count;
    uint64_t image_checked_ms;
    uint64_t due_ms; /* when the first box is due to be ended by us; 0: none is */
    size_t dead_count;
    struct undertaker undertaker;
    bool undertaker_busy; /* it takes no more before it has said that somebody is buried */
    size_t ending_count;  /* told to end and not dead yet */
    uint64_t ended_ms;    /* when one was last told, or died */
    uint64_t pressed_ms;  /* when they were last told again */
    struct box *box_of[BOX_FD_MAX]; /* by the descriptors of its pid 1 and its guest */
    char packet[PLAN_MAX_BYTES];
    struct plan_message message;
};

/* Descriptor and source fit an epoll word: no pointer can dangle in the kernel. */
static void watch(struct server *v, int fd, enum source source) {
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = (uint64_t)source << 32 | (uint32_t)fd};
    epoll_ctl(v->epoll, EPOLL_CTL_ADD, fd, &e);
}

static void watch_box(struct server *v, struct box *box) {
    const struct {
        int fd;
        enum source source;
    } both[] = {{box->pidfd, SOURCE_PID}, {box->link, SOURCE_LINK}};
    for (size_t i = 0; i < 2; i++)
        if (both[i].fd >= 0 && both[i].fd < BOX_FD_MAX) {
            v->box_of[both[i].fd] = box;
            watch(v, both[i].fd, both[i].source);
        }
}

static void answer(struct server *v, struct client *c, const struct plan_message *m, const int *fds,
                   size_t nfds) {
    size_t n = plan_encode(m, v->packet);
    if (send_fds(c->fd, v->packet, n, fds, nfds) < 0)
        c->gone = true;
}

static void answer_error(struct server *v, struct client *c, const struct err *err) {
    plan_error(&v->message, err);
    answer(v, c, &v->message, NULL, 0);
}

static void answer_done(struct server *v, struct client *c) {
    v->message.type = PLAN_DONE;
    answer(v, c, &v->message, NULL, 0);
}

static void unwatch(struct server *v, int fd) {
    if (fd < 0)
        return;
    epoll_ctl(v->epoll, EPOLL_CTL_DEL, fd, NULL);
    if (fd < BOX_FD_MAX)
        v->box_of[fd] = NULL;
}

/* Its guest has nothing more to say: of a thousand, that is a thousand words less to hear. */
static void end_box(struct server *v, struct box *box) {
    if (box->ending || box->dead)
        return;
    v->ended_ms = spawner_now_ms();
    if (v->ending_count++ == 0)
        v->pressed_ms = v->ended_ms;
    unwatch(v, box->link);
    box_kill(v->s, box);
}

/*
 * Who is not gone when no more die, or after a while, is told again, and thawed: its guest may have
 * been freezing it.
 */
static void press_ending(struct server *v) {
    uint64_t now = spawner_now_ms();
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

static void note_due(struct server *v, const struct box *box) {
    if (box->due_ms && (!v->due_ms || box->due_ms < v->due_ms))
        v->due_ms = box->due_ms;
}

/* Time is a limit too, and no limit is left to a guest that may hang or lie. */
static void end_overdue(struct server *v) {
    uint64_t now = spawner_now_ms();
    if (!v->due_ms || now < v->due_ms)
        return;
    v->due_ms = 0;
    for (struct box *b = v->s->list; b; b = b->next) {
        if (b->due_ms > now) {
            note_due(v, b);
        } else if (b->due_ms && !b->dead && !b->ending) {
            log_line(LOG_NOTE, "spawn", "machine '%s' outlived its lifetime", b->id);
            end_box(v, b);
        }
    }
}

/* The image follows the host's packages; boxes made from an older one are marked. */
static void renew_image(struct server *v) {
    struct spawner *s = v->s;
    struct image fresh;
    struct err err;
    uint64_t now = spawner_now_ms();
    if (now - v->image_checked_ms < IMAGE_MS)
        return;
    v->image_checked_ms = now;
    bool missing = s->image.skeleton < 0;
    if (missing ? fs_room(s->store) < s->image_room + IMAGE_MORE : !image_stale(&s->image, s->host))
        return;
    if (image_open(s->store, s->host, s->image.base, &fresh, &err) < 0) {
        log_line(LOG_WARN, "spawn", "%s", err.text);
        s->image_room = fs_room(s->store);
        return;
    }
    if (strcmp(fresh.key, s->image.key) == 0) { /* only a look at them had failed, or their times */
        image_close(&s->image);
        s->image = fresh;
        return;
    }
    log_line(LOG_NOTE, "spawn", "the host's packages changed: image=%s", fresh.key);
    pool_drop(s);
    image_close(&s->image);
    s->image = fresh;
    for (struct box *b = s->list; b; b = b->next)
        b->drifted |= box_has_usr(b);
}

static const struct {
    const char *name;
    size_t offset;
} enforceable[] = {
    {"memory", offsetof(struct cgroups, memory)},
    {"cpu", offsetof(struct cgroups, cpu)},
    {"processes", offsetof(struct cgroups, pids)},
};

enum { ENFORCEABLE = sizeof(enforceable) / sizeof(*enforceable) };

static bool enforced(const struct spawner *s, size_t i) {
    return *(const int *)((const char *)&s->cgroups + enforceable[i].offset) >= 0;
}

/* The names of limits that this host cannot keep; how many. */
static size_t unenforced(const struct spawner *s, const char *names[ENFORCEABLE + 1]) {
    size_t n = 0;
    for (size_t i = 0; i < ENFORCEABLE; i++)
        if (!enforced(s, i))
            names[n++] = enforceable[i].name;
    if (s->maker.tmpfs_bare)
        names[n++] = "disk";
    return n;
}

static void warn_unenforced(const struct spawner *s, char *text, size_t size) {
    const char *names[ENFORCEABLE + 1];
    size_t n = 0, count = unenforced(s, names);
    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s",
                              n ? ", " : "limits not enforced on this host: ", names[i]);
}

static void do_create(struct server *v, struct client *c, const struct fd_message *in) {
    struct err err;
    struct box *box;
    int fds[1 + PLAN_MAX_GRANTS + NETNS_FDS];
    renew_image(v);
    struct making *m = box_begin(v->s, &v->message.plan, in->fds, in->nfds, &box, &err);
    if (!m) {
        answer_error(v, c, &err);
        return;
    }
    v->created_ms = spawner_now_ms();
    box->owner = c->fd;
    note_due(v, box);
    v->message.type = PLAN_CREATED;
    v->message.text[0] = '\0';
    if (!v->warned)
        warn_unenforced(v->s, v->message.text, sizeof(v->message.text));
    v->warned = true;
    answer(v, c, &v->message, fds, box_descriptors(m, fds));
    watch_box(v, box);
    /* Nobody knows of it whose creator died meanwhile, though it may be one to linger. */
    if (box_settle(v->s, box, &v->message.plan, m) < 0 || c->gone)
        end_box(v, box);
}

static struct box *wanted(struct server *v, struct client *c) {
    struct box *box = box_find(v->s, v->message.plan.id);
    struct err err;
    if (!box) {
        box_missing(v->s, v->message.plan.id, &err);
        answer_error(v, c, &err);
    }
    return box;
}

static void do_facts(struct server *v, struct client *c, const struct fd_message *in) {
    (void)in;
    struct box *box = wanted(v, c);
    if (!box)
        return;
    box_facts(v->s, box, &v->message.facts);
    v->message.type = PLAN_FACTS_ARE;
    answer(v, c, &v->message, NULL, 0);
}

static void do_destroy(struct server *v, struct client *c, const struct fd_message *in) {
    (void)in;
    const char *store = v->message.plan.store;
    struct box *box = wanted(v, c);
    struct err err;
    if (!box)
        return;
    if (store[0] && box->store[0] && strcmp(store, box->store) != 0) {
        err_set(&err, ERR_NOT_FOUND, "machine '%s' belongs to store '%s'", box->id, box->store);
        answer_error(v, c, &err);
        return;
    }
    struct waiter *w = v->waiting_count < WAITING_MAX ? calloc(1, sizeof(*w)) : NULL;
    if (!w) {
        err_set(&err, ERR_BUSY, "too many wait for machines to end");
        answer_error(v, c, &err);
        return;
    }
    *w = (struct waiter){.next = v->waiters, .client = c->fd, .tag = v->message.tag};
    memcpy(w->id, box->id, sizeof(w->id));
    v->waiters = w;
    v->waiting_count++;
    end_box(v, box);
}

/* Those that wait for id (NULL: any) on behalf of client (-1: any) do not wait any longer. */
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

/* The newest; an answer is one packet. */
static void list_machines(const struct spawner *s, struct jot *j) {
    size_t left = 256;
    jot_array(j, "machines");
    for (const struct box *b = s->list; b && left; b = b->next) {
        if (b->dead || ready_is_name(b->id))
            continue;
        left--;
        jot_object(j, NULL);
        jot_string(j, "id", b->id);
        jot_bool(j, "drifted", b->drifted);
        jot_end(j, '}');
    }
    jot_end(j, ']');
}

static void do_status(struct server *v, struct client *c, const struct fd_message *in) {
    (void)in;
    static const char *const modes[] = {"none", "v1", "v2"};
    const struct spawner *s = v->s;
    struct buf text DEFER(buf_done) = BUF(PLAN_TEXT_SIZE - 1);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "version", CARREL_VERSION);
    jot_i64(&j, "pid", getpid());
    jot_bool(&j, "rootless", s->rootless);
    jot_string(&j, "cgroup", modes[s->cgroups.mode]);
    jot_string(&j, "image", s->image.key);
    jot_u64(&j, "boxes", s->box_count);
    jot_u64(&j, "alive", s->box_count - v->dead_count);
    jot_u64(&j, "created", s->created);
    jot_object(&j, "fallbacks");
    jot_u64(&j, "box_not_ready", s->not_ready);
    jot_u64(&j, "box_without_pool", s->no_berth);
    jot_end(&j, '}');
    jot_bool(&j, "probed", s->probed);
    jot_string(&j, "layers", s->maker.by_name ? "by name" : "by descriptor");
    jot_bool(&j, "tmpfs_idmap", !s->maker.tmpfs_plain);
    jot_string(&j, "disk",
               s->maker.tmpfs_bare       ? "none"
               : s->rootless             ? "tmpfs"
               : s->maker.btrfs          ? "btrfs"
               : s->maker.uppers.limited ? "quota"
                                         : "image");
    jot_string(&j, "images", sealed_probe(v->s) == 0 ? "erofs" : "directory");
    jot_string(&j, "network", s->net.plain ? "proxy" : "steered");
    if (s->net.plain)
        jot_string(&j, "network_note", strerror(-s->net.why_plain));
    const char *names[ENFORCEABLE + 1];
    size_t count = unenforced(s, names);
    jot_array(&j, "unenforced");
    for (size_t i = 0; i < count; i++)
        jot_string(&j, NULL, names[i]);
    jot_end(&j, ']');
    jot_object(&j, "pool");
    jot_u64(&j, "berths", s->berth_count);
    jot_u64(&j, "berths_wanted", POOL_SIZE);
    jot_u64(&j, "ready", s->ready.count);
    jot_u64(&j, "ready_wanted", s->ready.wanted);
    jot_u64(&j, "ready_of_images", ready_of_images(s));
    jot_string(&j, "refusal", s->pool_broken ? s->pool_err.text : "");
    jot_string(&j, "remedy", s->pool_broken ? s->pool_err.remedy : "");
    jot_end(&j, '}');
    list_machines(s, &j);
    jot_end(&j, '}');
    snprintf(v->message.text, sizeof(v->message.text), "%s", text.data ? text.data : "{}");
    v->message.type = PLAN_TEXT;
    answer(v, c, &v->message, NULL, 0);
}

static void do_root(struct server *v, struct client *c, const struct fd_message *in) {
    (void)in;
    struct err err;
    int root DEFER_CLOSE = -1;
    struct box *box = box_find(v->s, v->message.plan.id);
    /* The root before the last is left by now; dropping what it has cached is not for us. */
    if (box)
        left_add(&v->s->maker.left, TAKE_FD(box->old_root));
    if (layers_root(v->s, &v->message, &root, &err) < 0)
        answer_error(v, c, &err);
    else
        answer(v, c, &v->message, &root, root >= 0);
}

static void do_view(struct server *v, struct client *c, const struct fd_message *in) {
    (void)in;
    struct err err;
    int dirs[2], n = layers_view(v->s, &v->message, dirs, &err);
    if (n < 0) {
        answer_error(v, c, &err);
        return;
    }
    answer(v, c, &v->message, dirs, (size_t)n);
    while (n)
        close(dirs[--n]);
}

static int start_undertaker(struct server *v);

static void do_keep(struct server *v, struct client *c, const struct fd_message *in) {
    (void)in;
    struct err err;
    if (!v->undertaker.pid)
        start_undertaker(v);
    if (upkeep_keep(v->s, &v->message, &v->undertaker, &err) < 0)
        answer_error(v, c, &err);
    else
        answer(v, c, &v->message, NULL, 0);
}

static void do_merge(struct server *v, struct client *c, const struct fd_message *in) {
    (void)in;
    struct err err;
    if (!v->undertaker.pid)
        start_undertaker(v);
    if (upkeep_merge(v->s, &v->message, &v->undertaker, &err) < 0)
        answer_error(v, c, &err);
    else
        answer_done(v, c);
}

static void do_copy(struct server *v, struct client *c, const struct fd_message *in) {
    (void)in;
    struct err err;
    if (!v->undertaker.pid)
        start_undertaker(v);
    if (upper_copy(v->s, &v->message, &v->undertaker, &err) < 0)
        answer_error(v, c, &err);
    else
        answer(v, c, &v->message, NULL, 0);
}

static void do_saved(struct server *v, struct client *c, const struct fd_message *in) {
    (void)in;
    struct err err;
    if (!v->undertaker.pid)
        start_undertaker(v);
    int r = v->message.type == PLAN_SAVE ? saved_copy(v->s, &v->message, &v->undertaker, &err)
                                         : saved_shed(v->s, &v->message, &v->undertaker, &err);
    if (r < 0)
        answer_error(v, c, &err);
    else
        answer_done(v, c);
}

static void do_tell(struct server *v, struct client *c, const struct fd_message *in) {
    (void)in;
    struct err err;
    if (upkeep_tell(v->s, &v->message, &err) < 0)
        answer_error(v, c, &err);
    else
        answer_done(v, c);
}

static void do_archive(struct server *v, struct client *c, const struct fd_message *in) {
    struct err err;
    if (archives_begin(v->s, &v->message, in, &err) < 0)
        answer_error(v, c, &err);
    else
        answer_done(v, c);
}

static void do_wipe(struct server *v, struct client *c, const struct fd_message *in) {
    (void)in;
    struct err err;
    if (!v->undertaker.pid)
        start_undertaker(v);
    if (archives_wipe(v->s, &v->message, &v->undertaker, &err) < 0)
        answer_error(v, c, &err);
    else
        answer_done(v, c);
}

static void do_hello(struct server *v, struct client *c, const struct fd_message *in) {
    (void)in;
    v->message.type = PLAN_TEXT;
    snprintf(v->message.text, sizeof(v->message.text), "%s", v->s->program);
    answer(v, c, &v->message, NULL, 0);
}

static void do_stop(struct server *v, struct client *c, const struct fd_message *in) {
    (void)in;
    struct err err;
    if (v->s->box_count) {
        err_set(&err, ERR_BUSY, "%zu boxes are running", v->s->box_count);
        answer_error(v, c, &err);
        return;
    }
    v->stopping = true;
    answer_done(v, c);
}

static void (*const requests[])(struct server *, struct client *, const struct fd_message *) = {
    [PLAN_CREATE] = do_create, [PLAN_FACTS] = do_facts,   [PLAN_DESTROY] = do_destroy,
    [PLAN_HELLO] = do_hello,   [PLAN_STATUS] = do_status, [PLAN_STOP] = do_stop,
    [PLAN_ROOT] = do_root,     [PLAN_VIEW] = do_view,     [PLAN_DISK] = do_view,
    [PLAN_KEEP] = do_keep,     [PLAN_MERGE] = do_merge,   [PLAN_UNPACK] = do_archive,
    [PLAN_PACK] = do_archive,  [PLAN_DRAW] = do_archive,  [PLAN_WIPE] = do_wipe,
    [PLAN_TELL] = do_tell,     [PLAN_SAVE] = do_saved,    [PLAN_SHED] = do_saved,
    [PLAN_COPY] = do_copy,
};

static void do_verb(struct server *v, struct client *c, verb_fn *verb) {
    struct err err;
    struct verb_fds fds = {.count = 0};
    int r = verb(v->s, &v->message, &fds, &err);
    struct box *box = box_find(v->s, v->message.plan.id);
    if (box)
        note_due(v, box); /* that may have been changed */
    if (r < 0)
        answer_error(v, c, &err);
    else
        answer(v, c, &v->message, fds.v, fds.count);
    while (fds.count)
        close(fds.v[--fds.count]);
}

static void serve_client(struct server *v, struct client *c) {
    struct fd_message in = {0};
    struct err err;
    int r = recv_fds(c->fd, v->packet, sizeof(v->packet), &in);
    if (r < 0 || in.len == 0) {
        c->gone = r != -EAGAIN;
        fd_message_close(&in); /* an empty packet may carry some */
        return;
    }
    if (plan_decode(v->packet, in.len, &v->message, &err) < 0)
        answer_error(v, c, &err);
    else if (verb_of(v->message.type))
        do_verb(v, c, verb_of(v->message.type));
    else if (v->message.type >= sizeof(requests) / sizeof(*requests) || !requests[v->message.type])
        c->gone = true;
    else
        requests[v->message.type](v, c, &in);
    fd_message_close(&in);
}

/* Only our own user may ask: the socket's directory is private, and this is the second lock. */
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
    watch(v, c->fd, SOURCE_CLIENT);
}

/* A box that does not linger ends with its creator. */
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
                    end_box(v, b);
            }
        for (struct waiter *w; (w = take_waiter(v, NULL, c->fd));)
            free(w);
        *at = c->next;
        close(c->fd);
        free(c);
        v->client_count--;
    }
}

static struct client *client_by_fd(struct server *v, int fd) {
    for (struct client *c = v->clients; c; c = c->next)
        if (c->fd == fd)
            return c;
    return NULL;
}

/* Ending a thousand boxes is two thousand events: no search for each. */
static struct box *box_by_fd(struct server *v, int fd) {
    return fd >= 0 && fd < BOX_FD_MAX ? v->box_of[fd] : NULL;
}

/* Reaped at once; what it left on disk and in cgroups is taken away when there is time. */
static void box_died(struct server *v, struct box *box) {
    unwatch(v, box->pidfd);
    unwatch(v, box->link);
    waitpid(box->pid, NULL, WNOHANG);
    if (box->ending)
        v->ending_count--;
    v->ended_ms = spawner_now_ms();
    box->dead = true;
    v->dead_count++;
}

/*
 * The guest's side of our link is hostile bytes: what is not a small request is not read again. A
 * frame may come in pieces.
 */
static void serve_guest(struct server *v, struct box *box) {
    uint8_t *to;
    struct frame frame;
    size_t room = frame_space(&box->heard, &to);
    ssize_t n = recv(box->link, to, room, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) {
        /* A guest closes this only by dying. */
        end_box(v, box);
    }
    if (n <= 0)
        return;
    frame_fed(&box->heard, (size_t)n);
    int r;
    while ((r = frame_next(&box->heard, &frame)) > 0) {
        struct msg_spares want;
        if (msg_get_spares_want(&frame, &want) == 0 && box_add_spares(v->s, box, want.count) < 0) {
            r = -1; /* it does not read what it asks for */
            break;
        }
        box->words++;
    }
    if (r < 0 || box->words > WORDS_MAX)
        unwatch(v, box->link);
}

static void tell_waiting(struct server *v, const char *id) {
    for (struct waiter *w; (w = take_waiter(v, id, -1));) {
        struct client *c = client_by_fd(v, w->client);
        v->message.tag = w->tag;
        if (c)
            answer_done(v, c);
        free(w);
    }
}

static int start_undertaker(struct server *v) {
    int r = v->undertaker.pid ? 0 : undertaker_open(&v->undertaker);
    v->undertaker_busy = false;
    if (r < 0)
        return r;
    watch(v, v->undertaker.socket, SOURCE_UNDERTAKER);
    upkeep_resume(v->s, &v->undertaker);
    return 0;
}

static void stop_undertaker(struct server *v) {
    undertaker_close(&v->undertaker);
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
    if (r < 0)
        stop_undertaker(v);
}

/* Are its mounts gone? If not, sees to it. */
static bool is_buried(struct server *v, struct box *box) {
    if (box->burying || !spaces_held(box->held))
        return !box->burying;
    if (!v->undertaker.pid && start_undertaker(v) < 0) {
        spaces_close(box->held); /* then we do it */
        return true;
    }
    if (!v->undertaker_busy) {
        box->burying = undertaker_take(&v->undertaker, box->id, box->held);
        v->undertaker_busy = !box->burying;
    }
    return false;
}

/* One dead box an iteration; true while some are left that could not yet be cleaned. */
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
        /* What the dead have asked for is not carried out behind the back of who comes next. */
        if ((c = client_by_fd(v, fd)) && e->events & (EPOLLHUP | EPOLLERR))
            c->gone = true;
        else if (c)
            serve_client(v, c);
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
 * Cleaning and refilling would compete with the box that was just asked for, and with those that
 * are dying; they wait until nobody has asked or died for a moment, unless they have become urgent.
 */
static bool may_tidy(const struct server *v) {
    uint64_t now = spawner_now_ms();
    if (v->s->berth_count < POOL_SIZE / 2 && v->ending_count <= DEAD_MANY)
        return true;
    if (v->ending_count && now - v->ended_ms < RETRY_MS)
        return false;
    return v->dead_count > DEAD_MANY || v->waiting_count || now - v->created_ms >= QUIET_MS;
}

/* Of a crowd of requests each takes what it needs; pools are filled once nobody asks. */
static bool refill(struct server *v, bool asked) {
    return asked || pool_refill(v->s) || ready_refill(v->s);
}

/* One unit of tidying; true if there may be more. */
static bool tidy(struct server *v, bool asked, bool *ret_dying) {
    bool did = false;
    *ret_dying = clean_one(v, &did);
    if (layers_untidy(v->s) && (v->undertaker.pid || start_undertaker(v) == 0))
        layers_tidy(v->s, &v->undertaker);
    bool removing = uppers_step(&v->s->maker.uppers);
    return did || refill(v, asked) || removing;
}

/* How long to sleep: not at all with work to do, a little while a box dies, else until idle. */
static int patience(struct server *v, uint64_t idle_ms, bool work, bool dying) {
    if (work)
        return may_tidy(v) ? 0 : RETRY_MS;
    if (dying)
        return RETRY_MS;
    if (layers_untidy(v->s))
        return LEFT_LOOK_MS;
    if (v->s->box_count || v->client_count) {
        v->quiet_since_ms = spawner_now_ms();
        return v->ending_count ? PRESS_MS : -1;
    }
    uint64_t quiet = spawner_now_ms() - v->quiet_since_ms;
    return quiet >= idle_ms ? 0 : (int)(idle_ms - quiet);
}

static int until_due(const struct server *v, int otherwise) {
    if (!v->due_ms)
        return otherwise;
    uint64_t now = spawner_now_ms(), left = v->due_ms > now ? v->due_ms - now : 0;
    return otherwise < 0 || left < (uint64_t)otherwise ? (int)(left < 60000 ? left : 60000)
                                                       : otherwise;
}

static bool is_idle(const struct server *v, uint64_t idle_ms) {
    return !v->s->box_count && !v->client_count && !v->s->maker.uppers.pending &&
           spawner_now_ms() - v->quiet_since_ms >= idle_ms;
}

/* Those that were left behind are closed; by the undertaker, if there is one, for it takes long. */
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

/* Who was told to die is taken away before we go; who lives outlives us. */
static bool some_dying(const struct server *v) {
    for (const struct box *b = v->s->list; b; b = b->next)
        if (b->dead || b->ending)
            return true;
    return false;
}

static void finish(struct server *v) {
    stop_undertaker(v);
    for (struct box *b = v->s->list; b; b = b->next)
        spaces_close(b->held);
    uint64_t end = spawner_now_ms() + FINISH_MS;
    while (some_dying(v) && spawner_now_ms() < end) {
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
        return err_sys(err, "start serving");
    v->s = s;
    v->epoll = epoll;
    v->undertaker = UNDERTAKER_NONE;
    v->listener = listener;
    v->quiet_since_ms = spawner_now_ms();
    watch(v, listener, SOURCE_LISTENER);
    watch(v, signals, SOURCE_SIGNAL);
    for (struct box *b = s->list; b; b = b->next) {
        if (b->dead) {
            v->dead_count++;
            continue;
        }
        v->ending_count += b->ending;
        watch_box(v, b);
        note_due(v, b);
    }

    serve(v, idle_ms);
    finish(v);
    return 0;
}
