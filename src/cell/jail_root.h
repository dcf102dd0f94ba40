/*
 * The root directory of a worker with files, which the spawner makes (spawn/cell_root.h).
 *
 * The parent asks for it before it forks the worker. The worker enters it before its filter closes,
 * and then has no rights, and no way to any file outside of it.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"
#include "cell/jail.h"

struct jail_root {
    int socket, userns, mntns;
    pid_t spawner;
};
#define JAIL_ROOT_NONE ((struct jail_root){.socket = -1, .userns = -1, .mntns = -1})

int jail_root_open(const struct jail *j, struct jail_root *ret, struct err *err);
/* Ends the spawner, which gives back the ids of the worker. */
void jail_root_close(struct jail_root *r);
/* Called by the worker. Directory i is then "/i". */
int jail_root_enter(const struct jail_root *r);
