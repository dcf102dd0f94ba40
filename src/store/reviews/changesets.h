/*
 * Change sets and what became of them. Their files are in the store directory; a row of this table
 * says the state, and keeps enough to list the change set after its files were deleted.
 *
 * Of the change sets of one subject (a path in a machine) at most one waits for a decision: a new
 * one supersedes the one before.
 */
#pragma once

#include "base/sha256.h"
#include "store/db.h"

enum changeset_state {
    CHANGESET_PENDING = 1,
    CHANGESET_RETURNED, /* to the model, with a comment; it can still be shipped */
    CHANGESET_SHIPPED,
    CHANGESET_UNDONE,
    CHANGESET_SUPERSEDED, /* by the change set `instead` */
    CHANGESET_DROPPED,    /* its files were deleted */
    CHANGESET_STATES,
};
const char *changeset_state_name(enum changeset_state state);
int changeset_state_parse(const char *text, enum changeset_state *ret, struct err *err);

struct changeset_row {
    uint64_t number; /* grows with every change set */
    char id[ID_SIZE], owner[STORE_NAME_SIZE], machine[ID_SIZE];
    char *subject; /* path in the machine */
    char sha256[2 * SHA256_BYTES + 1];
    enum changeset_state state;
    char instead[ID_SIZE]; /* superseded: the change set to look at; else empty */
    int64_t created_ms, changed_ms;
    char *words; /* metadata of the change set as JSON */
};
void changeset_row_done(struct changeset_row *row);

struct changeset_rows {
    struct changeset_row *rows;
    size_t count;
};
void changeset_rows_done(struct changeset_rows *list);

struct changeset_filter {
    const char *owner;   /* NULL: all owners */
    const char *machine; /* NULL: all machines */
    uint32_t states;     /* bits 1 << enum changeset_state */
    uint64_t before;     /* only smaller numbers; 0: all */
    size_t limit;        /* 0: 100; at most STORE_PAGE_MAX */
};

/* Adds the row of a new change set: supersedes the one before, or is superseded by one with the
 * same content that was decided about. Ignores `number`, `state` and `instead`. */
int store_changeset_add(struct store *s, const struct changeset_row *row, struct err *err);
/* ERR_NOT_FOUND: no such row. */
int store_changeset_find(struct store *s, const char *id, struct changeset_row *ret,
                         struct err *err);
/* Newest first. The cost depends on the rows that are listed, not on all rows. */
int store_changeset_list(struct store *s, const struct changeset_filter *filter,
                         struct changeset_rows *ret, struct err *err);
/* Sets the state to shipped, undone or dropped. A change set with the same content that waits is
 * superseded by one that was shipped or undone. Does nothing if no row exists. */
int store_changeset_decide(struct store *s, const char *id, enum changeset_state state,
                           int64_t now_ms, struct err *err);
/* The work of the machine that was frozen until now_ms, and waits, was returned. */
int store_changesets_return(struct store *s, const char *machine, int64_t now_ms, struct err *err);
/* Deletes at most 1000 rows that have been dropped before this time. */
int store_changesets_forget(struct store *s, int64_t before_ms, struct err *err);
/* Number of rows that are not dropped. */
int store_changeset_count(struct store *s, uint64_t *ret, struct err *err);
