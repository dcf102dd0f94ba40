/*
 * Writes a cpio archive in the format of the kernel's initramfs ("newc"). Pure.
 *
 * All entries belong to root and have no time, so equal files make equal archives. False: the
 * archive has reached the limit of the buffer.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Paths have no slash in front; parents come first. */
bool cpio_add_dir(struct buf *to, const char *path);
bool cpio_add_file(struct buf *to, const char *path, unsigned mode, const void *bytes, size_t len);
bool cpio_end(struct buf *to);
