/*
 * User namespaces made in advance: an id map, later used by one box.
 *
 * A slot is 65,536 host ids and belongs to one running box on the whole host. The box itself holds
 * the lock, an open file, so the lock lasts as long as the box.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum { SLOT_IDS = 65536, SLOT_MAX = 4096 };

/* Extents of a map: ids on disk (or inside) from `inside` appear as `outside`. */
struct id_extent {
    uint32_t inside, outside, count;
};

enum { ID_EXTENTS = 5 };

struct id_list {
    struct id_extent list[ID_EXTENTS];
    unsigned count;
};

struct id_map {
    struct id_list uids, gids;
};

/* 0-65535 from `first` on, for users and groups. */
struct id_map id_map_plain(uint32_t first);

/*
 * Rootless: `user` (1000) is whoever runs the spawner, because only so may it own what that user
 * lends; all others come from the subordinate ids, `first` on. first + 1000 is nobody's in the box.
 *
 * Between the spawner's namespace and the box's lies another one, the nest, in which nobody is
 * number 0: the kernel gives the files of an unreadable process in /proc to the root of the first
 * namespace that knows the owner of its program, and where there is none, to the host's root.
 */
struct id_map id_map_shared(uint32_t first);
struct id_map id_map_nest(uint32_t first);

#define ID_NEST_USER 100000u /* whoever runs the spawner, in the nest */

/* The id on disk, in the spawner's namespace, of an id in such a box. */
uint32_t id_shared(uint32_t id, uint32_t first);

/*
 * As id_map_plain(), but `owner` appears as 1000 (`user`) and 1000 takes its place, so that it
 * stays one to one; an owner beyond the range leaves 1000 itself without a name.
 */
struct id_list id_list_swap(uint32_t owner, uint32_t first);

/* Only `owner`, as 1000; everybody else has no number inside. */
struct id_list id_list_one(uint32_t owner, uint32_t first);

struct slots {
    uint32_t base; /* host id of the first slot */
    uint32_t count;
    uint32_t next; /* where the next search starts */
    int lock_dir;  /* holds the host-wide locks */
    bool shared;   /* rootless: one range, no locks */
    uint64_t taken[SLOT_MAX / 64];
};

/* A free slot and the descriptor that holds its lock (-1 when shared). */
int slots_take(struct slots *s, uint32_t *ret_slot, int *ret_lock, struct err *err);
void slots_mark(struct slots *s, uint32_t slot); /* an adopted box lives there */
void slots_give(struct slots *s, uint32_t slot); /* the box is gone */
/* Text of /etc/subuid or /etc/subgid: what is somebody's is not used (DECISIONS 6). */
void slots_avoid(struct slots *s, const char *ranges);
void slots_close(struct slots *s);
uint32_t slots_first(const struct slots *s, uint32_t slot);

/*
 * A new user namespace with that map; proc is an open /proc. Descriptor or -errno. What the kernel
 * counts for a user (inotify, queued signals, locked memory) it also counts for the owner of the
 * namespace: with an owner of its own, a box cannot use up what the host's root and others have.
 */
int userns_new(int proc, uid_t owner, const struct id_map *map);

/* The same below the namespace `nest`, in whose ids the map is written. */
int userns_new_in(int proc, int nest, const struct id_map *map);
