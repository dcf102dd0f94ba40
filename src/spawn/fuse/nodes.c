#include "spawn/fuse/nodes.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/defer.h"

/* As many as a process can have descriptors, see launch.c. Pages that are not used cost nothing. */
enum { NODES_MAX = 1 << 19, HANDLES_FIRST = 64 };

#define NODES_BYTES (NODES_MAX * (sizeof(struct node) + sizeof(uint32_t)))

static uint32_t *nodes_chain(const struct nodes *n, uint64_t dev, uint64_t ino, uint64_t mount) {
    uint64_t h = (ino ^ dev << 20 ^ mount << 40) * 0x9e3779b97f4a7c15u;
    return &n->chains[h >> 32 & (NODES_MAX - 1)];
}

int nodes_init(struct nodes *n, int root) {
    struct statx st;
    uint64_t id;
    void *memory = mmap(NULL, NODES_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return -errno;
    *n = (struct nodes){.slots = memory, .end = 1};
    n->chains = (uint32_t *)(n->slots + NODES_MAX);
    if (statx(root, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &st) < 0)
        return -errno;
    return nodes_add(n, root, &st, &id);
}

struct node *nodes_get(const struct nodes *n, uint64_t id) {
    return id > 0 && id < n->end && n->slots[id].fd >= 0 ? &n->slots[id] : NULL;
}

/* A slot for one more node; 0: there are too many. */
static uint32_t nodes_slot(struct nodes *n) {
    uint32_t i = n->free;
    if (i) {
        n->free = n->slots[i].next;
        return i;
    }
    return n->end < NODES_MAX ? n->end++ : 0;
}

int nodes_add(struct nodes *n, int fd, const struct statx *st, uint64_t *ret) {
    int owned DEFER_CLOSE = fd;
    uint64_t dev = (uint64_t)st->stx_dev_major << 32 | st->stx_dev_minor;
    uint64_t ino = st->stx_ino, mount = st->stx_mnt_id;
    for (uint32_t i = *nodes_chain(n, dev, ino, mount); i; i = n->slots[i].next) {
        struct node *node = &n->slots[i];
        if (node->ino == ino && node->dev == dev && node->mount == mount) {
            node->lookups++;
            *ret = i;
            return 0;
        }
    }
    uint32_t i = nodes_slot(n);
    if (!i)
        return -ENFILE;
    uint32_t *chain = nodes_chain(n, dev, ino, mount);
    n->slots[i] = (struct node){.fd = TAKE_FD(owned),
                                .type = st->stx_mode & S_IFMT,
                                .dev = dev,
                                .ino = ino,
                                .mount = mount,
                                .lookups = 1,
                                .generation = ++n->generation,
                                .next = *chain};
    *chain = i;
    *ret = i;
    return 0;
}

void nodes_forget(struct nodes *n, uint64_t id, uint64_t lookups) {
    struct node *node = nodes_get(n, id);
    if (!node || id == 1)
        return;
    node->lookups -= lookups < node->lookups ? lookups : node->lookups;
    if (node->lookups > 0)
        return;
    uint32_t *at = nodes_chain(n, node->dev, node->ino, node->mount);
    while (*at != id)
        at = &n->slots[*at].next;
    *at = node->next;
    close_fd(&node->fd);
    node->next = n->free;
    n->free = (uint32_t)id;
}

int64_t handles_add(struct handles *h, int fd, bool is_dir) {
    int owned DEFER_CLOSE = fd;
    uint32_t i = h->free;
    if (!i && h->end >= h->size) {
        uint32_t size = h->size ? h->size * 2 : HANDLES_FIRST;
        struct handle *slots = reallocarray(h->slots, size, sizeof(*slots));
        if (!slots)
            return -ENFILE;
        h->slots = slots;
        h->size = size;
        h->end += h->end == 0; /* without slot 0 */
    }
    if (i)
        h->free = h->slots[i].next;
    else
        i = h->end++;
    h->slots[i] = (struct handle){.fd = TAKE_FD(owned), .is_dir = is_dir};
    return i;
}

int handles_get(const struct handles *h, uint64_t id, bool is_dir) {
    return id > 0 && id < h->end && h->slots[id].is_dir == is_dir ? h->slots[id].fd : -1;
}

void handles_close(struct handles *h, uint64_t id, bool is_dir) {
    if (handles_get(h, id, is_dir) < 0)
        return;
    close_fd(&h->slots[id].fd);
    h->slots[id].next = h->free;
    h->free = (uint32_t)id;
}
