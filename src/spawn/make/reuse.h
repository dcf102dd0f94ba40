/*
 * Network namespaces of ended boxes that later boxes use.
 *
 * To create, configure and destroy a network namespace is more than a tenth of what a short run
 * costs. Most boxes never use theirs. So the namespace of a box that has ended rests for a moment,
 * until packets that the kernel still had to send are sent. Then it is used again if the kernel
 * shows exactly the state of a new one (residue.h), and else destroyed.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct netns_maker;

enum { REUSE_MAX = 16, REUSE_REST_MS = 50 };

/*
 * REUSE_BAITED: a namespace in which a socket joined and left a multicast group is resting. The
 * kernel reports that later, in a packet that a rule drops: the trace that is hardest to see. If
 * residue_read() does not show it on this kernel, no namespace is used again.
 */
enum reuse_state { REUSE_UNKNOWN, REUSE_BAITED, REUSE_ON, REUSE_OFF };

struct netns_reuse {
    enum reuse_state state;
    char *fresh; /* residue_read() of a new namespace */
    struct {
        int fd;
        uint64_t since_ms;
    } resting[REUSE_MAX], bait; /* oldest first */
    size_t count;
    uint64_t reused;  /* number of namespaces that were used again */
    uint64_t used_up; /* number of namespaces that had residue */
};

/* Takes the network namespace of a box whose processes have all ended. Owns `ns`. */
void reuse_rest(struct netns_maker *maker, int ns);

/* Returns a descriptor of a network namespace as netns_new() makes them; -1: there is none. */
int reuse_take(struct netns_maker *maker);
