/*
 * Applies the write-ahead log of an SQLite database to its file in memory. The result is what a
 * reader of both files would see. The functions are pure and safe for any input of a machine.
 *
 * Frames (pages in the log) are valid while salts and checksums match. Those after the last commit
 * are ignored.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { SQLITE_HEAD = 100, SQLITE_FORM = 18, WAL_HEAD = 32, WAL_FRAME_HEAD = 24 };

/*
 * Returns the number of frames applied, which is 0 for an invalid log. -1: the buffer `image` may
 * not grow enough.
 */
long wal_apply(struct buf *image, const uint8_t *wal, size_t n);

/*
 * Sets the header so that SQLite expects no log, as it must for a database in memory. False: the
 * image is too short for a database.
 */
bool wal_settle(struct buf *image);
