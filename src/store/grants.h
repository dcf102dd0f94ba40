/*
 * Grants (permissions): resources of the owner that a machine may use, one row each. A row exists
 * while the grant is in force; the journal has its history.
 */
#pragma once

#include "store/db.h"

enum { STORE_GRANTS_MAX = 512 }; /* maximum number of grants per machine */

struct grant_row {
    char id[ID_SIZE]; /* g-... */
    char machine[ID_SIZE];
    char kind[16]; /* dir, file, env, secret, repo, db, identity */
    char *what;    /* the resource of the owner: a path or a name */
    char *place;   /* path in the machine; for a secret: the host that may receive it */
    char mode[16]; /* path: ro, cow, rw; secret: header, basic, query; database: sqlite, postgres */
    char *detail;  /* JSON: data that only this kind of grant uses */
    int64_t created_ms;
    int64_t expires_ms; /* 0: never */
};

struct grant_list {
    struct grant_row *rows;
    size_t count;
};
void grant_row_done(struct grant_row *row);
void grant_list_done(struct grant_list *list);

/* A grant with the same machine, kind, what and place is updated and keeps its id. */
int store_grant_put(struct store *s, const struct grant_row *row, struct err *err);
/* Lists the grants of a machine, oldest first. kind NULL: grants of all kinds. */
int store_grant_list(struct store *s, const char *machine, const char *kind, struct grant_list *ret,
                     struct err *err);
/* Reads the row of a grant by its id. */
int store_grant_get(struct store *s, const char *machine, const char *id, struct grant_row *ret,
                    struct err *err);
int store_grant_remove(struct store *s, const char *id, struct err *err);
/* True if the grant is in force and its machine has not ended; also true if the read fails. */
bool store_grant_lives(struct store *s, const char *id);
/* Counts the grants of machines that have not ended, per kind. */
typedef void store_grant_count_fn(void *arg, const char *kind, uint64_t count);
int store_grant_count(struct store *s, store_grant_count_fn *fn, void *arg, struct err *err);
/* Returns the earliest expiry of a grant of that machine; 0: none expires. */
int store_grant_due(struct store *s, const char *machine, int64_t *ret_ms, struct err *err);
