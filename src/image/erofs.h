/*
 * Writes a tree as one uncompressed erofs file that the kernel mounts.
 *
 * Equal trees give equal bytes. The file uses only long inodes, inline tails and inline attributes,
 * and no optional kernel feature. The mounting side accepts exactly that (base/fs/erofs.h), so
 * nothing else reaches the kernel.
 *
 * Two passes: the first collects all entries and assigns offsets, the second writes.
 */
#pragma once

#include "image/report.h"
#include "image/walk.h"

/* out: an empty regular file. id: the image's, which the filesystem is marked with. */
int image_erofs(int out, int root, struct image_ids ids, const char *id, struct report *report,
                struct err *err);
