/*
 * Opens the SQLite connections of the store.
 *
 * All connections have the same settings for locks, checkpoints and durability.
 */
#pragma once

#include <sqlite3.h>

#include "base/err.h"

/*
 * Opens a connection, for one thread at a time. It makes no automatic checkpoints and waits up to
 * 10 s for a lock.
 */
int connection_open(const char *path, sqlite3 **ret, struct err *err);
