/*
 * A connection to the spawner, started on first use as tmux starts its server.
 *
 * Requests are answered in order. Closing the connection ends the boxes created through it that
 * were not created with PLAN_KEPT or PLAN_DAEMONS.
 */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "base/wire/plan.h"
#include "io/place.h"

/*
 * Returns a connected socket, or -1. `waiting` (may be NULL) is called once if starting takes long.
 */
int spawn_connect(const struct place *place, void (*waiting)(void), struct err *err);

/*
 * As spawn_connect(), for the daemon that owns the run directory. A spawner of another version
 * (after an upgrade) or of another store is stopped and a new one started. Boxes continue to run,
 * and the new spawner adopts them.
 */
int spawn_connect_current(const struct place *place, struct err *err);

/* As spawn_connect(), but does not start a spawner: ERR_NOT_FOUND if none is running. */
int spawn_try_connect(const struct place *place, struct err *err);

/*
 * Creates a box. fds has one open directory per grant (shared directory). *ret_guest is the
 * connection to the guest. ret_uppers (PLAN_MAX_GRANTS, -1 for none) are the directories that
 * receive the changes of cow grants, in their order. The answer is in m: m->text has warnings.
 */
int spawn_create(int link, struct plan_message *m, const int *fds, int *ret_guest, int *ret_uppers,
                 struct err *err);

int spawn_facts(int link, const char *id, struct plan_facts *ret, struct err *err);
int spawn_destroy(int link, const char *id, struct err *err);
int spawn_status(int link, char *json, size_t size, struct err *err);
int spawn_stop(int link, struct err *err);
