/*
 * Writes a tree as one uncompressed erofs file that the kernel mounts.
 *
 * Equal trees give equal bytes. The file uses only long inodes, inline tails and inline attributes,
 * and no optional kernel feature. The code that mounts the file accepts only this subset
 * (base/fs/erofs.h), so the kernel parses nothing else.
 *
 * Two passes: the first collects all entries and assigns offsets, the second writes.
 */
#pragma once

#include "image/report.h"
#include "image/walk.h"

/* out: an empty regular file. id: the image id, which is stored in the filesystem. */
int image_erofs(int out, int root, struct image_ids ids, const char *id, struct report *report,
                struct err *err);
