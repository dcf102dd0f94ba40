/*
 * Backups of machines: all files of a box or vm, stored in packs below CARREL_HOME. A backup stores
 * only what the one before it does not have, and each one can be restored alone.
 *
 * A backup is complete and on disk before `done` is called. docs/internals/packs.md describes the
 * files.
 */
#pragma once

#include "service/net/net.h"
#include "service/service.h"

enum { BACKUPS_MAX = 256 }; /* of a machine */

/* Makes a backup of the present files of a machine. Answers one backup. */
void service_backup_take(struct service *s, const struct caller *who, const char *machine,
                         service_net_fn *done, void *arg);
/* Answers {"backups":[...]}, newest first. machine: id or name, also of an ended one; NULL: all. */
void service_backup_list(struct service *s, const struct caller *who, const char *machine,
                         service_net_fn *done, void *arg);
/* Reads all files of a backup and compares them with their hashes. */
void service_backup_verify(struct service *s, const struct caller *who, const char *id,
                           service_net_fn *done, void *arg);
/* Deletes a backup, and files that no other backup needs. */
void service_backup_forget(struct service *s, const struct caller *who, const char *id,
                           service_net_fn *done, void *arg);
/* Deletes all but the newest backups of a machine. */
void service_backup_prune(struct service *s, const struct caller *who, const char *machine,
                          const struct backup_prune_request *r, service_net_fn *done, void *arg);
/* Makes a new machine with the files of a backup, and the limits of its machine. */
void service_backup_restore(struct service *s, const struct caller *who, const char *id,
                            const struct backup_restore_request *r, service_machine_fn *done,
                            void *arg);

/* ---- copies that leave the host ---- */

struct backup_export;
struct backup_bring;
/* `ended` is called once, unless the client cancels. */
struct backup_events {
    void *arg;
    void (*room)(void *arg);                                  /* import: feed more */
    void (*data)(void *arg, const void *bytes, size_t count); /* export */
    service_net_fn *ended;                                    /* import: with the backup */
};
/*
 * Sends a backup as a tar. packs: numbers of the packs to send, such as "0-3,7"; NULL: all. Returns
 * NULL with *err.
 */
struct backup_export *service_backup_export(struct service *s, const struct caller *who,
                                            const char *id, const char *packs,
                                            const struct backup_events *events, struct err *err);
void backup_export_hold(struct backup_export *x, bool held);
void backup_export_cancel(struct backup_export *x);
/* Takes such a tar, and makes a backup of it. Returns NULL with *err. */
struct backup_bring *service_backup_import(struct service *s, const struct caller *who,
                                           const struct backup_events *events, struct err *err);
/* Returns the number of bytes taken. last: no bytes follow after these. */
size_t backup_bring_feed(struct backup_bring *b, const void *bytes, size_t n, bool last);
void backup_bring_cancel(struct backup_bring *b);

/* Time of the newest backup of a machine, in milliseconds since 1970; 0: none, or unknown. */
int64_t service_backup_last(struct service *s, const char *machine_id);
