/*
 * The database schema as numbered migrations. PRAGMA user_version is the number of the last one
 * applied. A released migration never changes; append a new one instead.
 */
#pragma once

#include <sqlite3.h>
#include <stddef.h>

#include "base/err.h"

/* Step i brings version i to i + 1. */
extern const char *const schema_steps[];
extern const size_t schema_version;

/*
 * Makes the steps that are missing, all in one transaction: on any failure the database stays as it
 * was. `unsupported`: it is of a later version. The steps are an argument for the tests' sake.
 */
int schema_migrate(sqlite3 *db, const char *const *steps, size_t count, struct err *err);

int schema_version_of(sqlite3 *db, size_t *ret, struct err *err);

/* Keeps a copy in that folder, `carrel.db.vN`, if steps are missing: call it before. */
int schema_copy(sqlite3 *db, size_t count, int home, struct err *err);

/* Tables, indexes, views and triggers are exactly those that the steps make. */
int schema_check(sqlite3 *db, const char *const *steps, size_t count, struct err *err);
