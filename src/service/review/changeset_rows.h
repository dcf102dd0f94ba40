/*
 * The rows of change sets in the database: state, and what supersedes what. Only src/service
 * includes this header. The files of a change set are what makes it exist; a row that a crash lost
 * is made again when the daemon starts.
 */
#pragma once

#include "service/review/changesets.h"
#include "store/reviews/changesets.h"

/* Adds the row of a change set that was frozen. */
int changeset_row_add(struct service *s, const struct changeset_view *v, struct err *err);
/* Notes a decision. A failure is logged: the journal has the decision too. */
void changeset_row_decide(struct service *s, const char *id, enum changeset_state state);
void changeset_rows_return(struct service *s, const char *machine);
/*
 * Compares the rows with the files when the daemon starts. Missing rows, such as those of an
 * earlier Carrel, get their state from the journal.
 */
void changesets_sweep(struct service *s);
