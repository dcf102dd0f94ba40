/*
 * A database file of SQLite and its write-ahead log, as one image in memory: what a reader of both
 * would see. Pure and total: whatever a machine wrote there, nothing outside of the two is touched.
 *
 * Frames count as far as their salts and checksums go on, and up to the last commit among them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { SQLITE_HEAD = 100, SQLITE_FORM = 18, WAL_HEAD = 32, WAL_FRAME_HEAD = 24 };

/* How many frames were applied; -1: the image has no room for them. A log that is none has none. */
long wal_apply(struct buf *image, const uint8_t *wal, size_t n);

/* Marks the image as one that needs no log, which is what a database in memory must be. */
bool wal_settle(struct buf *image);
