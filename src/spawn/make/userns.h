/*
 * User namespaces with the id maps of boxes, made in advance.
 *
 * A slot is a range of 65,536 host ids and belongs to one running box on the whole host. The box
 * itself holds the lock, an open file, so the lock lasts as long as the box.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum { SLOT_IDS = 65536, SLOT_MAX = 4096 };

/*
 * An extent of an id map: ids on disk (or in the namespace) from `inside` on appear as the ids from
 * `outside` on.
 */
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

/* Maps ids 0 to 65535 to host ids from `first` on, for users and groups. */
struct id_map id_map_plain(uint32_t first);

/*
 * Rootless: id 1000 (`user`) is the user of the spawner, so that it owns the directories which that
 * user grants. All other ids are subordinate ids from `first` on; first + 1000 is unused.
 *
 * A user namespace without an id 0, the nest, lies between those of the spawner and the box. The
 * kernel gives files of an unreadable process in /proc to the root of the first namespace that
 * knows the owner of its program, or to the host's root if there is none.
 */
struct id_map id_map_shared(uint32_t first);
struct id_map id_map_nest(uint32_t first);

#define ID_BOX_USER 1000u /* `user` of a box, in the box */

/* Returns the id on disk, as the spawner's namespace shows it, of an id in a rootless box. */
uint32_t id_shared(uint32_t id, uint32_t first);

/*
 * Like id_map_plain(), but swaps the ids `owner` and 1000 (`user`), so that the map stays one to
 * one. If `owner` is above 65535, id 1000 on disk is not mapped.
 */
struct id_list id_list_swap(uint32_t owner, uint32_t first);

/* Maps only the id `owner`, to id 1000 in the box. */
struct id_list id_list_one(uint32_t owner, uint32_t first);

struct slots {
    uint32_t base; /* first host id of the first slot */
    uint32_t count;
    uint32_t next; /* number of the slot where the next search starts */
    int lock_dir;  /* directory with the lock files of this host */
    bool shared;   /* rootless: all boxes share one id range, without locks */
    uint64_t taken[SLOT_MAX / 64];
};

/* Takes a free slot, and a descriptor that holds its lock (-1 if shared). */
int slots_take(struct slots *s, uint32_t *ret_slot, int *ret_lock, struct err *err);
void slots_mark(struct slots *s, uint32_t slot); /* marks the slot of an adopted box as used */
void slots_give(struct slots *s, uint32_t slot); /* frees the slot of a box that is gone */
/* ranges: text of /etc/subuid or /etc/subgid. Slots in these assigned ranges are not used. */
void slots_avoid(struct slots *s, const char *ranges);
void slots_close(struct slots *s);
uint32_t slots_first(const struct slots *s, uint32_t slot);

/*
 * Creates a user namespace with that id map; proc: descriptor of /proc. Returns a descriptor or
 * -errno. The kernel counts inotify, queued signals and locked memory for the owner of the
 * namespace too: with its own owner, a box cannot use up the limits of root and others.
 */
int userns_new(int proc, uid_t owner, const struct id_map *map);

/* Like userns_new(), but below the namespace `nest`; the map uses ids of the nest. */
int userns_new_in(int proc, int nest, const struct id_map *map);
