/*
 * Volumes: filesystems of fixed size in files of the store (volumes/v-.../disk), which outlive the
 * machines that use them.
 *
 * All machines that have a volume share one mounted filesystem. Only files that the spawner itself
 * has formatted, or copies of them, are ever mounted: a machine writes to a volume only through its
 * filesystem. The daemon decides who may have a volume, and that one machine writes.
 */
#pragma once

#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"

struct rootfs_maker;
struct spawner;
struct plan_message;
struct fd_message;

/*
 * Handles the request VOLUME. A new volume is made in directory volumes/new-v-..., which the daemon
 * renames once its row is written.
 */
int volume_request(struct spawner *s, const struct plan_message *m, struct err *err);

/*
 * Returns a detached mount of the files of a volume, with the id map of `userns`, or -1. dir: the
 * volume's directory as the daemon opened it; it must be one of this store. *ret is set to the
 * metadata of the top directory.
 */
int volume_lower(struct rootfs_maker *maker, int dir, int userns, struct stat *ret,
                 struct err *err);

/*
 * Handles the request PEEK: opens two states of a volume, read-only, with user ids as on disk. m
 * becomes the answer. in: the directories of the volumes, as the daemon opened them.
 */
int volume_view(struct spawner *s, struct plan_message *m, const struct fd_message *in, int ret[2],
                struct err *err);
