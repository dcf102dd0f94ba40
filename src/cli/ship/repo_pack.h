/*
 * Lets git in a machine pack a clone as a bundle, and freezes the bundle as a change set.
 *
 * The machine is hostile: nothing here trusts the bundle. The list of changed files that the script
 * gets comes from the daemon and only saves git in the machine from looking at all files.
 */
#pragma once

#include "cli/ship/ship.h"
#include "review/slices.h"

/* The files of the change set: a bundle, or else the commit of HEAD, which is one of the owner's.
 */
#define REPO_BUNDLE "repo.bundle"
#define REPO_UNCHANGED "unchanged"
#define REPO_UNCOMMITTED "refs/carrel/uncommitted" /* in the bundle: a commit on top of HEAD */

/* Packs the clone and sets s->set. The bundle is deleted in the machine. */
int repo_pack(struct ship *s, const char *machine, const struct slice *clone, struct err *err);
