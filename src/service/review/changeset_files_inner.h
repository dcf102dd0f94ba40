/*
 * Files of a change set below $CARREL_HOME/changesets: the archive, the baseline, the database
 * diff, the list of changed paths and the metadata. The metadata file is written last, so a change
 * set that has it is complete.
 */
#pragma once

#include <jansson.h>

#include "base/buf.h"
#include "service/review/changesets.h"
#include "service/review/inner.h"

enum {
    CHANGESET_PATH = PLACE_SIZE + 64,
    CHANGESET_HEX = 2 * SHA256_BYTES + 1,
    CHANGESET_WORDS = 65536, /* of the metadata */
};

#define CHANGESET_META ".json"
#define CHANGESET_ARCHIVE ".tar"
#define CHANGESET_BASE ".base"
#define CHANGESET_DATABASE ".db"
#define CHANGESET_CHANGED ".changed"

void changeset_path(const struct service *s, const char *id, const char *ending,
                    char ret[CHANGESET_PATH]);
/* Creates the directory of change sets. */
int changeset_make_dir(const struct service *s, struct err *err);
/* Writes a file of a change set atomically and syncs it. Any thread; blocks. */
int changeset_write(const struct service *s, const char *id, const char *ending, const char *text,
                    size_t n, struct err *err);
/* Writes the metadata as JSON. False: it is longer than ret's limit. */
bool changeset_words(const struct changeset_view *v, struct buf *ret);
/* The view of metadata, which must outlive it; without state. words NULL: an empty one. */
struct changeset_view changeset_view_of(const struct service *s, const char *id,
                                        const json_t *words);
/* Writes the metadata file. Call it after all other files of the change set were written. */
int changeset_write_words(const struct service *s, const struct changeset_view *v, struct err *err);
/* Deletes all files of an unfinished change set. */
void changeset_remove(const struct service *s, const char *id);
