/* A connection to the database, set up the one way that this store uses it. */
#pragma once

#include <sqlite3.h>

#include "base/err.h"

/* For one thread at a time. Never checkpoints by itself, waits up to 10 s for a lock. */
int connection_open(const char *path, sqlite3 **ret, struct err *err);
