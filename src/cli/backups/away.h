/*
 * Copies of backups in a directory outside of the store: packs/, manifests/, and in backups/ a
 * description of each. Backups in one directory share packs. A description is written last, so a
 * copy that was interrupted does not count.
 */
#pragma once

#include <stdbool.h>

#include "cli/client.h"

/* True for a word that names such a directory, not a machine or backup: it has a slash. */
bool away_is_dir(const char *word);

/* Copies a backup to the directory, which may be new. *ret_bytes: how many were copied. */
int away_save(struct client *c, const char *id, const char *dir, bool quiet, uint64_t *ret_bytes,
              struct err *err);

/* id NULL: the newest backup in the directory. *ret: its description. */
int away_find(const char *dir, const char *id, json_t **ret, struct err *err);

/* The descriptions of all backups in the directory, newest first, as an array. */
int away_list(const char *dir, json_t **ret, struct err *err);

/* Compares all files of a backup with their hashes. */
int away_verify(const char *dir, const json_t *backup, bool quiet, uint64_t *ret_bytes,
                struct err *err);

/* Sends a backup to the daemon, which stores it. *ret: what it is there. */
int away_send(struct client *c, const char *dir, const json_t *backup, bool quiet, json_t **ret,
              struct err *err);
