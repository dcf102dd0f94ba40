#include "spawn/create_later.h"

#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fs/disks.h"
#include "base/limits.h"

enum { LATER_MAX = 8 };

/* A request for a box, as it was received. */
struct create_later {
    struct create_later *next;
    struct disk_job job;
    int client;
    char id[ID_SIZE];
    struct fd_message in;
    char packet[];
};

static void create_later_free(struct create_later *l) {
    fd_message_close(&l->in);
    free(l);
}

static bool is_btrfs_disk(const struct spawner *s, uint64_t bytes) {
    return s->maker.btrfs && bytes >= DISKS_BTRFS_MIN;
}

/* True if no prepared box fits, so that a disk must be made. */
static bool wants_disk(const struct spawner *s, const struct plan *plan) {
    uint64_t bytes = plan->disk_bytes ? plan->disk_bytes : s->maker.usual;
    return is_btrfs_disk(s, bytes) && (bytes != s->maker.usual || !s->berth_count) &&
           !ready_has(s, plan);
}

static size_t count_later(const struct server *v) {
    size_t n = 0;
    for (const struct create_later *l = v->later; l; l = l->next)
        n++;
    return n;
}

bool create_put_aside(struct server *v, const struct client *c, struct fd_message *in) {
    const struct plan *plan = &v->message.plan;
    uint64_t bytes = plan->disk_bytes ? plan->disk_bytes : v->s->maker.usual;
    if (!wants_disk(v->s, plan) || box_find(v->s, plan->id) || count_later(v) >= LATER_MAX)
        return false;
    struct create_later *l = calloc(1, sizeof(*l) + in->len);
    if (!l || disk_job_start(&l->job, v->s->maker.store, bytes) < 0) {
        free(l);
        return false;
    }
    l->client = c->fd;
    memcpy(l->id, plan->id, sizeof(l->id));
    memcpy(l->packet, v->packet, in->len);
    l->in = *in;
    in->nfds = 0;
    l->next = v->later;
    v->later = l;
    server_watch_disk(v, l->job.socket);
    return true;
}

/* Processes that were started meanwhile may still have the socket, so closing it is not enough. */
static int create_take_disk(struct server *v, struct disk_job *job) {
    epoll_ctl(v->epoll, EPOLL_CTL_DEL, job->socket, NULL);
    return disk_job_take(job);
}

static void create_cancel_disk(struct server *v, struct disk_job *job) {
    if (job->pid)
        epoll_ctl(v->epoll, EPOLL_CTL_DEL, job->socket, NULL);
    disk_job_cancel(job);
}

/* Creates the box. If the disk could not be made, rootfs_new() tries again and says why. */
static void create_now(struct server *v, struct create_later *l) {
    struct client *c = server_client(v, l->client);
    struct err err;
    v->s->maker.made_bytes = l->job.bytes;
    v->s->maker.made = create_take_disk(v, &l->job);
    if (c && !c->gone && plan_decode(l->packet, l->in.len, &v->message, &err) == 0)
        server_create(v, c, &l->in);
    close_fd(&v->s->maker.made);
    create_later_free(l);
}

/* Removes from the list the request of a job, for a box or of a client. */
static struct create_later *take_later(struct server *v, int job, const char *id, int client) {
    for (struct create_later **at = &v->later; *at; at = &(*at)->next) {
        struct create_later *l = *at;
        if ((job >= 0 && l->job.socket != job) || (id && strcmp(l->id, id) != 0) ||
            (client >= 0 && l->client != client))
            continue;
        *at = l->next;
        return l;
    }
    return NULL;
}

void create_settle(struct server *v, const char *id) {
    struct create_later *l = v->later && id[0] ? take_later(v, -1, id, -1) : NULL;
    if (!l)
        return;
    /* The request that is being served stays as it was received. */
    struct plan_message *message DEFER_FREE = xnew(struct plan_message);
    char *packet DEFER_FREE = xmalloc(sizeof(v->packet));
    *message = v->message;
    memcpy(packet, v->packet, sizeof(v->packet));
    create_now(v, l);
    v->message = *message;
    memcpy(v->packet, packet, sizeof(v->packet));
}

void create_continue(struct server *v, int fd) {
    struct create_later *l = take_later(v, fd, NULL, -1);
    if (l) {
        create_now(v, l);
        return;
    }
    struct rootfs_maker *maker = &v->s->maker;
    if (fd != v->pool_disk.socket)
        return;
    maker->made_bytes = v->pool_disk.bytes;
    maker->made = create_take_disk(v, &v->pool_disk);
    v->pool_disk_failed = maker->made < 0;
    if (pool_wants_root(v->s))
        pool_refill(v->s);
    close_fd(&maker->made);
}

void create_forget(struct server *v, int client) {
    for (struct create_later *l; (l = take_later(v, -1, NULL, client));) {
        create_cancel_disk(v, &l->job);
        create_later_free(l);
    }
    if (client < 0)
        create_cancel_disk(v, &v->pool_disk);
}

bool pool_awaits_disk(struct server *v) {
    const struct rootfs_maker *maker = &v->s->maker;
    if (v->pool_disk.pid)
        return true;
    if (!is_btrfs_disk(v->s, maker->usual) || !pool_wants_root(v->s))
        return false;
    bool failed = v->pool_disk_failed;
    v->pool_disk_failed = false;
    if (failed || disk_job_start(&v->pool_disk, maker->store, maker->usual) < 0)
        return false;
    server_watch_disk(v, v->pool_disk.socket);
    return true;
}
