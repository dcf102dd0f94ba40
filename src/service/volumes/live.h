/*
 * Volumes, for the rest of src/service: machines that are created or restored open their volumes
 * here. Only files of volumes/ know struct service_volumes.
 */
#pragma once

#include "base/buf.h"
#include "base/wire/plan.h"
#include "service/service.h"
#include "store/grants.h"

struct service_volumes;

struct service_volumes *service_volumes_new(void);
/* Call it after all jobs of the loop have ended. */
void service_volumes_free(struct service *s);
/* Called when the daemon starts: finishes or undoes what the last daemon had not finished. */
void volumes_sweep(struct service *s);

/*
 * Opens the volume of a request. *ret gets mode and `volume`, *row the fields `what`, `mode` and
 * `detail`. The descriptor is that of the volume's directory, for the spawner; the caller owns it.
 */
int volume_open(struct service *s, const char *owner, const struct volume_use_request *r,
                size_t number, struct plan_grant *ret, struct grant_row *row, struct err *err);
/*
 * Checks that a machine may have the volume of this row. `busy`: another machine writes to it, or
 * it is being copied or deleted. Also called in the transaction that writes the row, so that two
 * machines never write to one volume.
 */
int volume_check(struct service *s, const char *owner, const struct grant_row *row,
                 struct err *err);
/* Opens the directory of a volume in the store, for the spawner. */
int open_volume_dir(const struct service *s, const char *id, const char *name, struct err *err);
/*
 * True for a machine that serves the files of a volume (doors.c). It counts for no quota, is in no
 * list, and does nothing else.
 */
bool volume_serves(const struct service *s, const char *machine);
/* The same of a machine that has ended, or is about to. */
bool volume_served(const struct service *s, const char *machine);
/*
 * Finds the state that the changes of a machine in a volume are compared with. row: the grant of
 * the volume. from: for mode rw a snapshot of the volume, NAME@SNAPSHOT or SNAPSHOT; NULL: the
 * newest one. Mode cow: the volume itself.
 */
struct volume_row;
int volume_base(struct service *s, const char *owner, const struct grant_row *row, const char *from,
                struct volume_row *ret, struct err *err);
enum { VOLUMES_OF_MAX = PLAN_MAX_GRANTS * (PLAN_PATH_SIZE + 256) };
/* Writes the volumes of a machine as a JSON array; NULL: it has none. */
const char *volumes_of(struct service *s, const char *machine, struct buf *text);
/*
 * Opens the volume of a row again, for a machine that gets a new box; or -1. The row gets the
 * number of the volume in the plan of that box.
 */
int volume_reopen(struct service *s, const char *owner, struct grant_row *row, size_t number,
                  struct plan_grant *ret, struct err *err);
