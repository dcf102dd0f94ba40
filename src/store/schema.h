/*
 * The database schema as numbered migrations. PRAGMA user_version is the number of the last one
 * applied. A released migration never changes; append a new one instead.
 */
#pragma once

#include <sqlite3.h>
#include <stddef.h>

#include "base/err.h"

/* Migration i changes the database from version i to i + 1. */
extern const char *const schema_steps[];
extern const size_t schema_version;

/*
 * Applies the missing migrations in one transaction: after a failure the database is unchanged.
 * ERR_UNSUPPORTED: the database has a later version. Tests pass other `steps` than schema_steps.
 */
int schema_migrate(sqlite3 *db, const char *const *steps, size_t count, struct err *err);

int schema_version_of(sqlite3 *db, size_t *ret, struct err *err);

/*
 * Backs up the database to `carrel.db.vN` in directory `home` if migrations are missing. Call it
 * before schema_migrate().
 */
int schema_copy(sqlite3 *db, size_t count, int home, struct err *err);

/* Fails unless tables, indexes, views and triggers are exactly those of the migrations. */
int schema_check(sqlite3 *db, const char *const *steps, size_t count, struct err *err);
