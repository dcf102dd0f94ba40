/*
 * Adds to a tree what every box needs, and finds the user of its programs.
 *
 * Deterministic: the same input tree gives the same output, so added entries have a fixed time.
 */
#pragma once

#include "base/err.h"
#include "image/config.h"
#include "image/tree.h"

/* Places where a box mounts something, and names of its network. Refuses what stands in the way. */
int image_fit(int root, const struct image_ids *ids, struct err *err);

struct image_user {
    uint32_t uid, gid;
    char name[64];
    char home[256];
};

/* "", "1000", "app", "app:staff" as the image's own tables have it. */
int image_user_find(int root, const char *user, struct image_user *ret, struct err *err);

/* A line of passwd or group by name, or by number if name is one. Pure. False: there is none. */
bool image_passwd_find(const char *text, const char *name, struct image_user *ret);
bool image_group_find(const char *text, const char *name, uint32_t *ret);
