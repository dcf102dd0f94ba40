/*
 * What the journal and the events say about change sets: changeset.frozen, changeset.shipped,
 * changeset.undone, changeset.returned and changeset.dropped. Only src/service includes this
 * header.
 */
#pragma once

#include "service/review/changesets.h"
#include "service/state.h"

/* Writes a JSON object of at most JOURNAL_DETAIL_MAX bytes. `ret` is a new BUF of that size. */
void changeset_detail(const struct changeset_view *v, struct buf *ret);
/* Tells the watchers of the change set's owner. */
void changeset_tell(struct service *s, const struct changeset_view *v, const char *type);
/* The same for change sets that were deleted because they were old, with a note in the journal. */
void changesets_dropped_tell(struct service *s, const struct changesets_dropped *list);
