/*
 * Builds of images: jobs that run in the daemon. A row exists from the start of a build until it is
 * one of the oldest ended builds of its owner. The log is a file of the store.
 */
#pragma once

#include "base/image_id.h"
#include "store/db.h"

enum build_state {
    BUILD_UPLOADING = 1,
    BUILD_RUNNING,
    BUILD_DONE,
    BUILD_FAILED,
    BUILD_CANCELLED,
    BUILD_STATES
};

struct build_row {
    char id[ID_SIZE]; /* b-... */
    char owner[STORE_NAME_SIZE];
    char token[ID_SIZE];        /* id of the API token that started it; empty: none */
    char name[IMAGE_NAME_SIZE]; /* name of the new image; empty: none */
    enum build_state state;
    uint32_t step, steps; /* the present step, from 1 */
    uint32_t made, cached;
    int64_t started_ms, ended_ms; /* ended_ms 0: not yet */
    char image[IMAGE_ID_SIZE];    /* the result; empty: none */
    char *code, *error, *remedy;  /* of a build that failed; empty: none */
};

struct build_list {
    struct build_row *rows;
    size_t count;
};

void build_row_done(struct build_row *row);
void build_list_done(struct build_list *list);

/* Adds the row of a build, or replaces it. */
int store_build_put(struct store *s, const struct build_row *row, struct err *err);
/* Finds a build by its id. owner NULL: of any owner. */
int store_build_find(struct store *s, const char *owner, const char *id, struct build_row *ret,
                     struct err *err);
/* Lists builds, newest first; at most STORE_PAGE_MAX. owner NULL: of all owners. */
int store_build_list(struct store *s, const char *owner, struct build_list *ret, struct err *err);
int store_build_delete(struct store *s, const char *id, struct err *err);
/* Ends every build that has not ended as failed, with the code `unknown` and this error. */
int store_builds_lose(struct store *s, int64_t now_ms, const char *error, struct err *err);
