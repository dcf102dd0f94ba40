/*
 * Adds the files and directories that every box needs to the tree of an image, and finds the user
 * that runs the programs of the image.
 *
 * Deterministic: the same input tree gives the same output, so added entries have a fixed time.
 */
#pragma once

#include "base/err.h"
#include "image/config.h"
#include "image/tree.h"

/* Creates the mount points of a box, and its resolv.conf and hosts file. Fails if the image has a
 * file of another type at such a path. */
int image_fit(int root, const struct image_ids *ids, struct err *err);

/*
 * The same for a layer above an image that has all of these paths: the layer keeps only changes of
 * them that a box can live with.
 */
int image_fit_layer(int root, struct err *err);

/* True for a directory that every box needs. A layer cannot hide it, only what is in it. */
bool image_fit_is_place(const char *path);

struct image_user {
    uint32_t uid, gid;
    char name[64];
    char home[256];
};

/*
 * Looks up `user` ("", "1000", "app" or "app:staff") in the passwd and group file of the image.
 * below: the files of the image that `root` is a layer above; -1: none.
 */
int image_user_find(int root, int below, const char *user, struct image_user *ret, struct err *err);

/* Find a line of a passwd or group file by name, or by number if `name` is a number. False: no line
 * matches. Pure. */
bool image_passwd_find(const char *text, const char *name, struct image_user *ret);
bool image_group_find(const char *text, const char *name, uint32_t *ret);
