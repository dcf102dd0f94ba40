/* Opens a database connection with the settings that the store requires. */
#pragma once

#include <sqlite3.h>

#include "base/err.h"

/* For one thread at a time. No automatic checkpoints; waits up to 10 s for a lock. */
int connection_open(const char *path, sqlite3 **ret, struct err *err);
