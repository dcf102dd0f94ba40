/*
 * The files that the kernel of a vm knows, each with a descriptor (O_PATH), and those it has open.
 *
 * The numbers of both tables come from the vm, so they are looked up and never believed. A file is
 * known by device, inode and mount: what a read-only mount shows stays read-only, even if the vm
 * has the same file over another mount, too.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

/* As many as a process can have descriptors, see launch.c. */
enum { NODES_MAX = 1 << 19 };

struct node {
    int fd;        /* -1: the slot is free */
    uint32_t type; /* S_IFMT bits */
    uint64_t dev, ino, mount;
    uint64_t lookups; /* as often as this the kernel must forget it */
    uint64_t generation;
    struct statx_timestamp changed; /* when it was opened last */
    uint32_t next;                  /* in its chain or the list of free slots; 0: none */
};

struct nodes {
    struct node *slots; /* slot 1 is the root; slot 0 is not used. They never move. */
    uint32_t *chains;
    uint32_t end, free;
    uint64_t generation;
};

struct handle {
    int fd; /* -1: the slot is free */
    bool is_dir;
    bool is_lost; /* the number is taken, but its file is not there: see spawn/fuse/table.h */
    uint32_t next;
};

struct handles {
    struct handle *slots; /* slot 0 is not used */
    uint32_t size, end, free;
};

/* Takes a descriptor of the root. -errno. */
int nodes_init(struct nodes *n, int root);

struct node *nodes_get(const struct nodes *n, uint64_t id);

/*
 * Finds or adds the file of a descriptor, which it takes, and counts one lookup. *ret is its
 * number. 0 or -errno.
 */
int nodes_add(struct nodes *n, int fd, const struct statx *st, uint64_t *ret);
void nodes_forget(struct nodes *n, uint64_t id, uint64_t lookups);

/*
 * Fills an empty table with the numbers of another one, which grow: `like` has all members that the
 * file itself does not tell. Takes the descriptor; -1: the number stays taken without a file.
 * Afterwards nodes_restored() makes the numbers between them free.
 */
void nodes_restore(struct nodes *n, uint32_t id, int fd, const struct statx *st,
                   const struct node *like);
void nodes_restored(struct nodes *n, uint64_t generation);

/* Takes a descriptor. The number of the handle or -errno. */
int64_t handles_add(struct handles *h, int fd, bool is_dir);

/* The descriptor of a handle; -1: there is none of this kind. */
int handles_get(const struct handles *h, uint64_t id, bool is_dir);
void handles_close(struct handles *h, uint64_t id, bool is_dir);

/* As nodes_restore() and nodes_restored(). 0 or -errno. */
int handles_restore(struct handles *h, uint32_t id, int fd, bool is_dir);
void handles_restored(struct handles *h);
