/*
 * Volumes: disks of an owner that outlive machines. A machine gets a volume when it is created; one
 * machine at a time may write to it.
 *
 * A change is on disk and in the journal before `done` is called.
 */
#pragma once

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

struct volume_counts {
    uint64_t count, bytes; /* of all owners */
};
void service_volume_counts(struct service *s, struct volume_counts *ret);
