/*
 * Throw-away databases on servers of owners: a row from before one is made until it is dropped, so
 * that none is forgotten whoever dies meanwhile. It outlives grant and machine.
 *
 * What it takes to reach the server is sealed among the secrets, as DATABASE_SECRET and the id.
 */
#pragma once

#include "store/db.h"

#define DATABASE_SECRET "postgres."

enum { STORE_DATABASES_MAX = 1000, DATABASE_NAME_SIZE = 40 };

struct database_row {
    char id[ID_SIZE]; /* of its grant */
    char owner[STORE_NAME_SIZE];
    char machine[ID_SIZE];
    char *server;                  /* HOST:PORT */
    char name[DATABASE_NAME_SIZE]; /* of the database and its role */
    int64_t created_ms;
    char *why; /* it could not be dropped when that was tried last; empty: it was not */
};

struct database_list {
    struct database_row *rows;
    size_t count;
};
void database_row_done(struct database_row *row);
void database_list_done(struct database_list *list);

/* A new one, or other words for one that is there. */
int store_database_put(struct store *s, const struct database_row *row, struct err *err);
int store_database_remove(struct store *s, const char *id, struct err *err);
/* All there are, oldest first. */
int store_database_list(struct store *s, struct database_list *ret, struct err *err);
/* Those whose grant or machine is over. */
int store_database_orphans(struct store *s, struct database_list *ret, struct err *err);
