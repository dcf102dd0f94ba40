/*
 * Temporary databases on servers of owners. The row of a database exists from before the database
 * is created until it is dropped, so that no database is forgotten after a crash. The row outlives
 * the grant (permission) and the machine that the database belongs to.
 *
 * The credentials for the server are stored as a secret named DATABASE_SECRET followed by the id.
 */
#pragma once

#include "store/db.h"

#define DATABASE_SECRET "postgres."

enum { STORE_DATABASES_MAX = 1000, DATABASE_NAME_SIZE = 40 };

struct database_row {
    char id[ID_SIZE]; /* id of the grant that the database belongs to */
    char owner[STORE_NAME_SIZE];
    char machine[ID_SIZE];
    char *server;                  /* HOST:PORT */
    char name[DATABASE_NAME_SIZE]; /* name of the database and of its role */
    int64_t created_ms;
    char *why; /* error of the last attempt to drop it; empty: not attempted */
};

struct database_list {
    struct database_row *rows;
    size_t count;
};
void database_row_done(struct database_row *row);
void database_list_done(struct database_list *list);

/* Adds the row of a database or replaces an existing one. */
int store_database_put(struct store *s, const struct database_row *row, struct err *err);
int store_database_remove(struct store *s, const char *id, struct err *err);
/* Lists the rows of all databases, oldest first. */
int store_database_list(struct store *s, struct database_list *ret, struct err *err);
/* Lists the databases whose grant or machine has ended. */
int store_database_orphans(struct store *s, struct database_list *ret, struct err *err);
