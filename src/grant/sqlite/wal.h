/*
 * Applies the write-ahead log of an SQLite database to its file in memory: the result is what a
 * reader of both would see. Pure and total: whatever a machine wrote, nothing outside is touched.
 *
 * Frames are valid while salts and checksums match, up to the last commit among them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { SQLITE_HEAD = 100, SQLITE_FORM = 18, WAL_HEAD = 32, WAL_FRAME_HEAD = 24 };

/*
 * Returns the number of frames applied; -1: the image has no space for them. An invalid log has
 * none.
 */
long wal_apply(struct buf *image, const uint8_t *wal, size_t n);

/* Marks the image as one without a log, as a database in memory must be. */
bool wal_settle(struct buf *image);
