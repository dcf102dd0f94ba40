/*
 * Work inside the mount namespace of a box. The spawner enters it briefly; no path of the host is
 * reachable there.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/wire/plan.h"

struct spawner;
struct box;

/*
 * Enter and leave the mount namespace of a box. Between these two calls "/" is the anchor, the
 * outermost root of a box (host.c). -errno: the namespace was not entered.
 */
int box_go_in(struct spawner *s, const struct box *box);
void box_go_out(struct spawner *s);

/* Returns the path of the box's root in that namespace: "/a" or "/b". */
const char *box_side_path(char side);

/*
 * Handles the request LEND: keeps the granted directories at the paths in m->text (one per line)
 * and unmounts all others, also those that were moved. *m becomes the answer: "in use" if a process
 * in the box still uses an unmounted directory.
 */
int box_lend(struct spawner *s, const struct box *box, struct plan_message *m, struct err *err);

/*
 * True for a path that belongs to the box itself, such as /proc, where no directory is ever
 * granted.
 */
bool lend_is_own(const char *path);
/* True if one of the lines in `lines` is the path. */
bool lend_stays(const char *lines, const char *path);
