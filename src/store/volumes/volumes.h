/*
 * Volumes: disks of owners that outlive machines. A row exists while the volume does. Which machine
 * has a volume is in its grants (kind "volume"), so that a machine that ends gives it back.
 */
#pragma once

#include "store/db.h"
#include "store/grants.h"

enum {
    STORE_VOLUMES_MAX = 128,      /* volumes and snapshots of an owner */
    STORE_VOLUME_NAME_SIZE = 132, /* NAME, or NAME@SNAPSHOT, of 64 characters each */
};

struct volume_row {
    char id[ID_SIZE]; /* v-... */
    char owner[STORE_NAME_SIZE];
    char token[ID_SIZE]; /* id of the API token that made it; empty: none */
    char name[STORE_VOLUME_NAME_SIZE];
    uint64_t bytes; /* its limit */
    int64_t created_ms;
    char origin[STORE_VOLUME_NAME_SIZE]; /* name of the volume that it is a copy of; or empty */
};

struct volume_list {
    struct volume_row *rows;
    size_t count;
};
void volume_list_done(struct volume_list *list);

int store_volume_add(struct store *s, const struct volume_row *row, struct err *err);
/* ERR_NOT_FOUND: the owner has no volume of this name. */
int store_volume_find(struct store *s, const char *owner, const char *name, struct volume_row *ret,
                      struct err *err);
/* Lists volumes by name. owner NULL: those of all owners. */
int store_volume_list(struct store *s, const char *owner, struct volume_list *ret, struct err *err);
int store_volume_remove(struct store *s, const char *id, struct err *err);
int store_volume_by_id(struct store *s, const char *id, struct volume_row *ret, struct err *err);
/* True if a row has this id; also true if the read fails. */
bool store_volume_exists(struct store *s, const char *id);
/*
 * Lists the grants of one volume, or with name NULL of all volumes of the owner, to machines that
 * have not ended.
 */
int store_volume_uses(struct store *s, const char *owner, const char *name, struct grant_list *ret,
                      struct err *err);
/* Number and bytes of the volumes of all owners, for metrics. */
int store_volume_totals(struct store *s, uint64_t *ret_count, uint64_t *ret_bytes, struct err *err);
