/*
 * Volumes: disks of an owner that outlive machines. A machine gets a volume when it is created; one
 * machine at a time may write to it.
 *
 * A change is on disk and in the journal before `done` is called.
 */
#pragma once

#include "service/access/machine_tokens.h"
#include "service/net/net.h"
#include "service/service.h"

enum { VOLUME_NAME_MAX = 131 }; /* bytes of NAME or NAME@SNAPSHOT */

/*
 * Answers {"volumes":[...]}, each with name, size, used_bytes, created_ms, from and machines (a
 * list of machine, at and mode).
 */
void service_volume_list(struct service *s, const struct caller *who, service_net_fn *done,
                         void *arg);
/* The other verbs answer one volume in the same form. */
void service_volume_show(struct service *s, const struct caller *who, const char *name,
                         service_net_fn *done, void *arg);
/* A copy of a volume (`from`) has the same size. `busy`: a machine has the volume. */
void service_volume_create(struct service *s, const struct caller *who,
                           const struct volume_request *r, service_net_fn *done, void *arg);
/* Makes NAME@SNAPSHOT, a copy that no machine can write to. `busy`: a machine has the volume. */
void service_volume_snap(struct service *s, const struct caller *who, const char *name,
                         const struct volume_snap_request *r, service_net_fn *done, void *arg);
/* `busy`: a machine has the volume, or it has snapshots. */
void service_volume_remove(struct service *s, const struct caller *who, const char *name,
                           service_net_fn *done, void *arg);

/*
 * Calls `done` with the id of a machine that serves the files of a volume: service_file() reaches
 * them, with the volume as the root directory. The caller then calls service_volume_leave() once,
 * and acts in the name of the owner meanwhile. The machine may end at any time, for example because
 * the volume is deleted.
 */
typedef void volume_door_fn(void *arg, const char *machine, const struct err *err);
void service_volume_enter(struct service *s, const struct caller *who, const char *name,
                          volume_door_fn *done, void *arg);
void service_volume_leave(struct service *s, const char *machine);
/* The token for the files of one volume: a keyed hash of its id, which ends with the volume. */
int service_volume_token(struct service *s, const struct caller *who, const char *id,
                         char ret[MACHINE_TOKEN_SIZE], struct err *err);
/* Authenticates its holder. *ret acts for the owner: use it for the files of this volume only. */
int service_caller_by_volume_token(struct service *s, const char *id, const char *token, size_t len,
                                   const char *client, struct caller *ret,
                                   char ret_name[VOLUME_NAME_MAX + 1], struct err *err);

struct volume_counts {
    uint64_t count, bytes; /* of all owners */
};
void service_volume_counts(struct service *s, struct volume_counts *ret);
