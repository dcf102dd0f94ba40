/*
 * Files of a change set below $CARREL_HOME/changesets: the archive, the baseline, the database
 * diff, and last its description. A change set with a description is therefore complete.
 */
#pragma once

#include "service/review/changesets.h"
#include "service/review/inner.h"

enum { CHANGESET_PATH = PLACE_SIZE + 64, CHANGESET_HEX = 2 * SHA256_BYTES + 1 };

#define CHANGESET_ARCHIVE ".tar"
#define CHANGESET_BASE ".base"
#define CHANGESET_DATABASE ".db"

void changeset_path(const struct service *s, const char *id, const char *ending,
                    char ret[CHANGESET_PATH]);
/* The directory of all of them. */
int changeset_make_dir(const struct service *s, struct err *err);
/* A file of one of them, whole and on the disk, or not there. From any thread; it blocks. */
int changeset_write(const struct service *s, const char *id, const char *ending, const char *text,
                    size_t n, struct err *err);
/* Its words: the last that is written. */
int changeset_write_words(const struct service *s, const struct changeset_view *v, struct err *err);
/* It is not to be: whatever there is of it goes. */
void changeset_remove(const struct service *s, const char *id);
