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

/* Between these two every path begins at the anchor. -errno: it was not entered. */
int box_go_in(struct spawner *s, const struct box *box);
void box_go_out(struct spawner *s);

/* Where its root is, there: on one of two sides. */
const char *box_side_path(char side);

/*
 * LEND: of the directories that were handed to it, those at these paths (one a line) stay, all
 * others are taken away; one that was moved elsewhere inside is no longer at its path. *m becomes
 * the answer: "in use" if something inside still has one of them open.
 */
int box_lend(struct spawner *s, const struct box *box, struct plan_message *m, struct err *err);

/* Is this a place of the box itself, where no directory is ever lent? */
bool lend_is_own(const char *path);
/* Is it one of these lines? */
bool lend_stays(const char *lines, const char *path);
