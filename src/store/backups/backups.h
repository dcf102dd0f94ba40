/*
 * Backups of machines, which outlive them. A row exists only while all files of the backup are in
 * the store: it is added after the last of them was synced, and removed before the first is
 * deleted.
 */
#pragma once

#include "base/sha256.h"
#include "store/db.h"

struct backup_row {
    char id[ID_SIZE]; /* k-... */
    char owner[STORE_NAME_SIZE];
    char token[ID_SIZE];        /* id of the API token that made it; empty: none */
    char machine[ID_SIZE];      /* its files are in the directory of this name */
    char name[STORE_NAME_SIZE]; /* of the machine at that time, or empty */
    int64_t created_ms;
    char manifest[SHA256_HEX]; /* hash of its manifest, as a text */
    uint64_t entries, bytes;   /* of the machine's files */
    uint64_t written;          /* bytes that it added to the store */
    char *details;             /* JSON: what the restored machine needs besides files */
};

struct backup_list {
    struct backup_row *rows; /* newest first */
    size_t count;
};
void backup_row_done(struct backup_row *row);
void backup_list_done(struct backup_list *list);

int store_backup_add(struct store *s, const struct backup_row *row, struct err *err);
int store_backup_remove(struct store *s, const char *id, struct err *err);
/* owner NULL: of all owners. machine, id: NULL matches all. */
int store_backup_list(struct store *s, const char *owner, const char *machine, const char *id,
                      struct backup_list *ret, struct err *err);
/* Time of the newest backup of a machine in milliseconds since 1970; 0: none. */
int store_backup_last(struct store *s, const char *machine, int64_t *ret_ms, struct err *err);
