/*
 * A tree as one file that the kernel mounts: an erofs filesystem, uncompressed.
 *
 * The same tree is the same bytes. Only what is needed is used: inodes of the long form, ends of
 * files and small directories beside their inode, attributes in it, no feature that a kernel could
 * lack. Whoever mounts it asks for exactly that (base/fs/erofs.h), so nothing else gets to the
 * kernel.
 *
 * Two walks: the first collects what there is, so that everything has its place; the second writes.
 */
#pragma once

#include "image/report.h"
#include "image/walk.h"

/* out: an empty regular file. id: the image's, which the filesystem is marked with. */
int image_erofs(int out, int root, struct image_ids ids, const char *id, struct report *report,
                struct err *err);
