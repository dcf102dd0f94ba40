#include "spawn/fuse/nodes.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/defer.h"

enum { HANDLES_FIRST = 64 };

/* Pages that are not used cost nothing. */
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

static void nodes_chain_add(struct nodes *n, uint32_t id) {
    struct node *node = &n->slots[id];
    uint32_t *chain = nodes_chain(n, node->dev, node->ino, node->mount);
    node->next = *chain;
    *chain = id;
}

void nodes_restore(struct nodes *n, uint32_t id, int fd, const struct statx *st,
                   const struct node *like) {
    struct node *node = &n->slots[id];
    if (id == 1) { /* the root is there already */
        node->lookups = like->lookups;
        close_fd(&fd);
        return;
    }
    while (n->end < id)
        n->slots[n->end++].fd = -1;
    n->end = id + 1;
    *node = *like;
    node->fd = fd;
    node->dev = (uint64_t)st->stx_dev_major << 32 | st->stx_dev_minor;
    node->ino = st->stx_ino;
    node->mount = st->stx_mnt_id;
    node->lookups += node->lookups == 0; /* a number with lookups is not free */
    if (fd >= 0)
        nodes_chain_add(n, id);
}

void nodes_restored(struct nodes *n, uint64_t generation) {
    n->generation = generation;
    for (uint32_t i = n->end; i-- > 2;)
        if (n->slots[i].fd < 0 && n->slots[i].lookups == 0) {
            n->slots[i].next = n->free;
            n->free = i;
        }
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

/* Makes room for this slot. */
static int handles_grow(struct handles *h, uint32_t slot) {
    uint32_t size = h->size ? h->size : HANDLES_FIRST;
    h->end += h->end == 0; /* without slot 0 */
    if (slot < h->size)
        return 0;
    while (size <= slot)
        size *= 2;
    struct handle *slots = reallocarray(h->slots, size, sizeof(*slots));
    if (!slots)
        return -ENFILE;
    h->slots = slots;
    h->size = size;
    return 0;
}

int handles_restore(struct handles *h, uint32_t id, int fd, bool is_dir) {
    int owned DEFER_CLOSE = fd;
    if (handles_grow(h, id) < 0)
        return -ENFILE;
    while (h->end < id)
        h->slots[h->end++] = (struct handle){.fd = -1};
    h->slots[id] = (struct handle){.fd = TAKE_FD(owned), .is_dir = is_dir, .is_lost = fd < 0};
    h->end = id + 1;
    return 0;
}

void handles_restored(struct handles *h) {
    for (uint32_t i = h->end; i-- > 1;)
        if (h->slots[i].fd < 0 && !h->slots[i].is_lost) {
            h->slots[i].next = h->free;
            h->free = i;
        }
}

int64_t handles_add(struct handles *h, int fd, bool is_dir) {
    int owned DEFER_CLOSE = fd;
    uint32_t i = h->free;
    if (!i && handles_grow(h, h->end) < 0)
        return -ENFILE;
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
