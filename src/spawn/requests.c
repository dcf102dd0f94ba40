/* Requests of clients to the spawner, with one function per request. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/fs_room.h"
#include "base/jot.h"
#include "base/log.h"
#include "spawn/archives.h"
#include "spawn/create_later.h"
#include "spawn/disk/layers.h"
#include "spawn/disk/saved.h"
#include "spawn/disk/upkeep.h"
#include "spawn/disk/volume.h"
#include "spawn/server.h"
#include "spawn/spawner.h"
#include "spawn/vm/boot.h"
#include "spawn/vm/memory.h"

static void answer_error(struct server *v, struct client *c, const struct err *err) {
    plan_error(&v->message, err);
    server_answer(v, c, &v->message, NULL, 0);
}

/*
 * Rebuilds the image `host` if the host's packages changed, and marks the boxes that use the old
 * image as drifted.
 */
static void renew_image(struct server *v) {
    struct spawner *s = v->s;
    struct image fresh;
    struct err err;
    uint64_t now = boot_ms();
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
    /*
     * The key is unchanged, so the packages are the same: the image could not be built before, or
     * the files changed only for a moment.
     */
    if (strcmp(fresh.key, s->image.key) == 0) {
        image_close(&s->image);
        s->image = fresh;
        return;
    }
    log_line(LOG_NOTE, "spawn", "the host's packages changed: built a new host image image=%s",
             fresh.key);
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

/* Lists the limits that this host cannot enforce and returns their number. */
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

void server_create(struct server *v, struct client *c, const struct fd_message *in) {
    struct err err;
    struct box *box;
    int fds[1 + PLAN_MAX_GRANTS + NETNS_FDS];
    renew_image(v);
    struct making *m = box_begin(v->s, &v->message.plan, in->fds, in->nfds, &box, &err);
    if (!m) {
        answer_error(v, c, &err);
        return;
    }
    v->created_ms = boot_ms();
    box->owner = c->fd;
    server_note_due(v, box);
    v->message.type = PLAN_CREATED;
    v->message.text[0] = '\0';
    if (!v->warned)
        warn_unenforced(v->s, v->message.text, sizeof(v->message.text));
    v->warned = true;
    server_answer(v, c, &v->message, fds, box_descriptors(m, fds));
    server_watch_box(v, box);
    /*
     * If the client is gone, nobody knows the new box: end the box, even if it was to outlive its
     * client.
     */
    if (box_settle(v->s, box, &v->message.plan, m) < 0 || c->gone)
        server_end_box(v, box);
}

static void do_create(struct server *v, struct client *c, struct fd_message *in) {
    if (!create_put_aside(v, c, in))
        server_create(v, c, in);
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

static void do_facts(struct server *v, struct client *c, struct fd_message *in) {
    (void)in;
    struct box *box = wanted(v, c);
    if (!box)
        return;
    box_facts(v->s, box, &v->message.facts);
    v->message.type = PLAN_FACTS_ARE;
    server_answer(v, c, &v->message, NULL, 0);
}

static void do_destroy(struct server *v, struct client *c, struct fd_message *in) {
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
        err_set(&err, ERR_BUSY,
                "too many requests already wait for machines to end: try again later");
        answer_error(v, c, &err);
        return;
    }
    *w = (struct waiter){.next = v->waiters, .client = c->fd, .tag = v->message.tag};
    memcpy(w->id, box->id, sizeof(w->id));
    v->waiters = w;
    v->waiting_count++;
    server_end_box(v, box);
}

/* Lists only the newest machines, because an answer is one packet. */
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

static void put_reuse(struct jot *j, const char *what, uint64_t reused, uint64_t used_up) {
    jot_object(j, what);
    jot_u64(j, "reused", reused);
    jot_u64(j, "used_up", used_up);
    jot_end(j, '}');
}

static void do_status(struct server *v, struct client *c, struct fd_message *in) {
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
    put_reuse(&j, "networks", s->net.reuse.reused, s->net.reuse.used_up);
    put_reuse(&j, "cgroups", s->cgroups.kept.reused, s->cgroups.kept.used_up);
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
    server_answer(v, c, &v->message, NULL, 0);
}

static void do_root(struct server *v, struct client *c, struct fd_message *in) {
    (void)in;
    struct err err;
    int root DEFER_CLOSE = -1;
    struct box *box = box_find(v->s, v->message.plan.id);
    /*
     * The previous switch of the root is complete, so nothing uses box->old_root any more. Closing
     * it may take long, so the undertaker does it.
     */
    if (box)
        left_add(&v->s->maker.left, TAKE_FD(box->old_root));
    if (layers_root(v->s, &v->message, &root, &err) < 0)
        answer_error(v, c, &err);
    else
        server_answer(v, c, &v->message, &root, root >= 0);
    if (root >= 0)
        layers_detach_old(v->s, box);
}

static void do_view(struct server *v, struct client *c, struct fd_message *in) {
    (void)in;
    struct err err;
    int dirs[2], n = layers_view(v->s, &v->message, dirs, &err);
    if (n < 0) {
        answer_error(v, c, &err);
        return;
    }
    server_answer(v, c, &v->message, dirs, (size_t)n);
    while (n)
        close(dirs[--n]);
}

static void do_keep(struct server *v, struct client *c, struct fd_message *in) {
    (void)in;
    struct err err;
    if (!v->undertaker.pid)
        server_start_undertaker(v);
    if (upkeep_keep(v->s, &v->message, &v->undertaker, &err) < 0)
        answer_error(v, c, &err);
    else
        server_answer(v, c, &v->message, NULL, 0);
}

static void do_merge(struct server *v, struct client *c, struct fd_message *in) {
    (void)in;
    struct err err;
    if (!v->undertaker.pid)
        server_start_undertaker(v);
    if (upkeep_merge(v->s, &v->message, &v->undertaker, &err) < 0)
        answer_error(v, c, &err);
    else
        server_answer_done(v, c);
}

static void do_copy(struct server *v, struct client *c, struct fd_message *in) {
    (void)in;
    struct err err;
    if (!v->undertaker.pid)
        server_start_undertaker(v);
    if (upper_copy(v->s, &v->message, &v->undertaker, &err) < 0)
        answer_error(v, c, &err);
    else
        server_answer(v, c, &v->message, NULL, 0);
}

static void do_saved(struct server *v, struct client *c, struct fd_message *in) {
    (void)in;
    struct err err;
    if (!v->undertaker.pid)
        server_start_undertaker(v);
    int r = v->message.type == PLAN_SAVE ? saved_copy(v->s, &v->message, &v->undertaker, &err)
                                         : saved_shed(v->s, &v->message, &v->undertaker, &err);
    if (r < 0)
        answer_error(v, c, &err);
    else
        server_answer_done(v, c);
}

static void do_tell(struct server *v, struct client *c, struct fd_message *in) {
    (void)in;
    struct err err;
    if (upkeep_tell(v->s, &v->message, &err) < 0)
        answer_error(v, c, &err);
    else
        server_answer_done(v, c);
}

static void do_archive(struct server *v, struct client *c, struct fd_message *in) {
    struct err err;
    if (archives_begin(v->s, &v->message, in, &err) < 0)
        answer_error(v, c, &err);
    else
        server_answer_done(v, c);
}

static void do_wipe(struct server *v, struct client *c, struct fd_message *in) {
    (void)in;
    struct err err;
    if (!v->undertaker.pid)
        server_start_undertaker(v);
    if (archives_wipe(v->s, &v->message, &v->undertaker, &err) < 0)
        answer_error(v, c, &err);
    else
        server_answer_done(v, c);
}

static void do_volume(struct server *v, struct client *c, struct fd_message *in) {
    (void)in;
    struct err err;
    if (volume_request(v->s, &v->message, &err) < 0)
        answer_error(v, c, &err);
    else
        server_answer_done(v, c);
}

static void do_peek(struct server *v, struct client *c, struct fd_message *in) {
    struct err err;
    int dirs[2];
    if (volume_view(v->s, &v->message, in, dirs, &err) < 0) {
        answer_error(v, c, &err);
        return;
    }
    server_answer(v, c, &v->message, dirs, 2);
    close(dirs[0]);
    close(dirs[1]);
}

static void do_boot(struct server *v, struct client *c, struct fd_message *in) {
    struct err err;
    int console DEFER_CLOSE = -1;
    pid_t maker = v->s->templates.maker_pid;
    int r = vm_boot(v->s, &v->message, in, &console, &err);
    if (v->s->templates.maker_pid != maker)
        server_watch_maker(v, v->s->templates.maker);
    if (r < 0)
        answer_error(v, c, &err);
    else
        server_answer(v, c, &v->message, &console, 1);
}

static void do_memory(struct server *v, struct client *c, struct fd_message *in) {
    struct err err;
    int r = vm_memory_request(v->s, &v->message, c->fd, in, &err);
    server_watch_savings(v);
    if (r < 0)
        answer_error(v, c, &err);
    else
        server_answer_done(v, c);
}

static void do_halt(struct server *v, struct client *c, struct fd_message *in) {
    struct err err;
    (void)in;
    if (vm_halt(v->s, &v->message, &err) < 0)
        answer_error(v, c, &err);
    else
        server_answer_done(v, c);
}

static void do_hello(struct server *v, struct client *c, struct fd_message *in) {
    (void)in;
    v->message.type = PLAN_TEXT;
    snprintf(v->message.text, sizeof(v->message.text), "%s", v->s->program);
    server_answer(v, c, &v->message, NULL, 0);
}

static void do_stop(struct server *v, struct client *c, struct fd_message *in) {
    (void)in;
    struct err err;
    if (v->s->box_count) {
        err_set(&err, ERR_BUSY, "the spawner cannot stop: %zu machines are still running",
                v->s->box_count);
        answer_error(v, c, &err);
        return;
    }
    v->stopping = true;
    server_answer_done(v, c);
}

static void (*const requests[])(struct server *, struct client *, struct fd_message *) = {
    [PLAN_CREATE] = do_create, [PLAN_FACTS] = do_facts,   [PLAN_DESTROY] = do_destroy,
    [PLAN_HELLO] = do_hello,   [PLAN_STATUS] = do_status, [PLAN_STOP] = do_stop,
    [PLAN_ROOT] = do_root,     [PLAN_VIEW] = do_view,     [PLAN_DISK] = do_view,
    [PLAN_KEEP] = do_keep,     [PLAN_MERGE] = do_merge,   [PLAN_UNPACK] = do_archive,
    [PLAN_PACK] = do_archive,  [PLAN_DRAW] = do_archive,  [PLAN_WIPE] = do_wipe,
    [PLAN_TELL] = do_tell,     [PLAN_SAVE] = do_saved,    [PLAN_SHED] = do_saved,
    [PLAN_COPY] = do_copy,     [PLAN_VOLUME] = do_volume, [PLAN_PEEK] = do_peek,
    [PLAN_BOOT] = do_boot,     [PLAN_HALT] = do_halt,     [PLAN_MERGE_HOME] = do_merge,
    [PLAN_MEMORY] = do_memory,
};

static void do_verb(struct server *v, struct client *c, verb_fn *verb) {
    struct err err;
    struct verb_fds fds = {.count = 0};
    int r = verb(v->s, &v->message, &fds, &err);
    struct box *box = box_find(v->s, v->message.plan.id);
    if (box)
        server_note_due(v, box); /* the deadline of the box may have changed */
    if (r < 0)
        answer_error(v, c, &err);
    else
        server_answer(v, c, &v->message, fds.v, fds.count);
    while (fds.count)
        close(fds.v[--fds.count]);
}

void server_serve_client(struct server *v, struct client *c) {
    struct fd_message in = {0};
    struct err err;
    int r = recv_fds(c->fd, v->packet, sizeof(v->packet), &in);
    if (r < 0 || in.len == 0) {
        c->gone = r != -EAGAIN;
        /* even a packet without data may carry descriptors, which must be closed */
        fd_message_close(&in);
        return;
    }
    int decoded = plan_decode(v->packet, in.len, &v->message, &err);
    if (decoded == 0)
        create_settle(v, v->message.plan.id);
    if (decoded < 0)
        answer_error(v, c, &err);
    else if (verb_of(v->message.type))
        do_verb(v, c, verb_of(v->message.type));
    else if (v->message.type >= sizeof(requests) / sizeof(*requests) || !requests[v->message.type])
        c->gone = true;
    else
        requests[v->message.type](v, c, &in);
    fd_message_close(&in);
}
