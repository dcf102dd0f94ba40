#include "spawn/make/reuse.h"

#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "spawn/make/netns.h"
#include "spawn/make/residue.h"
#include "spawn/weaken.h"

enum { LOOPBACK = 1, TRIES = 4 };

/* Joins a multicast group on the loopback device, and leaves it. */
static int join_and_leave(void) {
    const struct ip_mreqn group = {.imr_multiaddr.s_addr = htonl(0xe00000fb),
                                   .imr_ifindex = LOOPBACK};
    int sock DEFER_CLOSE = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return sock < 0 || setsockopt(sock, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof(group)) < 0
               ? -errno
               : 0;
}

/*
 * Reads the state of a network namespace, and with `bait` leaves a trace in it afterwards. Ends the
 * spawner if it cannot return to its own: all later work would happen in the wrong one.
 */
static int visit(struct netns_maker *maker, int ns, struct buf *ret, int (*bait)(void)) {
    int settings = netns_settings(maker);
    if (setns(ns, CLONE_NEWNET) < 0)
        return -errno;
    int r = residue_read(maker->proc, settings, ret);
    if (r == 0 && bait)
        r = bait();
    if (setns(maker->home, CLONE_NEWNET) < 0)
        abort();
    return r;
}

static bool is_as_new(struct netns_maker *maker, int ns) {
    struct buf text DEFER(buf_done) = BUF(RESIDUE_MAX_BYTES);
    return visit(maker, ns, &text, NULL) == 0 && strcmp(text.data, maker->reuse.fresh) == 0;
}

static void reuse_off(struct netns_reuse *reuse, const char *why) {
    log_line(LOG_NOTE, "spawn", "network namespaces are not used again: %s", why);
    while (reuse->count)
        close(reuse->resting[--reuse->count].fd);
    reuse->state = REUSE_OFF;
}

/*
 * Learns what a new namespace looks like, and leaves the trace in it that must be seen later. The
 * sockets that configured the namespace end a little after they are closed: then try again later.
 */
static void set_bait(struct netns_maker *maker) {
    struct netns_reuse *reuse = &maker->reuse;
    struct buf text DEFER(buf_done) = BUF(RESIDUE_MAX_BYTES);
    if (reuse->bait.fd < 0)
        reuse->bait.fd = netns_new(maker);
    int r =
        reuse->bait.fd < 0 ? reuse->bait.fd : visit(maker, reuse->bait.fd, &text, join_and_leave);
    if (r == -EBUSY)
        return;
    if (r < 0) {
        close_fd(&reuse->bait.fd);
        reuse_off(reuse, strerror(-r));
        return;
    }
    reuse->fresh = buf_take(&text);
    reuse->bait.since_ms = boot_ms();
    reuse->state = REUSE_BAITED;
}

static void look_at_bait(struct netns_maker *maker) {
    struct netns_reuse *reuse = &maker->reuse;
    if (boot_ms() - reuse->bait.since_ms < REUSE_REST_MS)
        return;
    bool unseen = is_as_new(maker, reuse->bait.fd);
    close_fd(&reuse->bait.fd);
    if (unseen)
        reuse_off(reuse, "this kernel does not count all packets");
    else
        reuse->state = REUSE_ON;
}

void reuse_rest(struct netns_maker *maker, int ns) {
    struct netns_reuse *reuse = &maker->reuse;
    if (reuse->state == REUSE_UNKNOWN)
        set_bait(maker);
    if (reuse->state == REUSE_OFF || reuse->count == REUSE_MAX) {
        close(ns);
        return;
    }
    reuse->resting[reuse->count].fd = ns;
    reuse->resting[reuse->count++].since_ms = boot_ms();
}

/* Takes the oldest namespace, if it has rested; -1: none has. */
static int take_rested(struct netns_reuse *reuse) {
    if (!reuse->count || boot_ms() - reuse->resting[0].since_ms < REUSE_REST_MS)
        return -1;
    int ns = reuse->resting[0].fd;
    memmove(reuse->resting, reuse->resting + 1, --reuse->count * sizeof(*reuse->resting));
    return ns;
}

int reuse_take(struct netns_maker *maker) {
    struct netns_reuse *reuse = &maker->reuse;
    if (reuse->state == REUSE_UNKNOWN && reuse->count)
        set_bait(maker);
    if (reuse->state == REUSE_BAITED)
        look_at_bait(maker);
    for (int i = 0; reuse->state == REUSE_ON && i < TRIES; i++) {
        int ns = take_rested(reuse);
        if (ns < 0)
            break;
        if (weakened("residue") || is_as_new(maker, ns)) {
            reuse->reused++;
            return ns;
        }
        reuse->used_up++;
        close(ns);
    }
    return -1;
}
