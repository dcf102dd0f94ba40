/*
 * A connection to the spawner, started on first use as tmux starts its server.
 *
 * Requests are answered in order. Closing the connection ends the boxes made through it that
 * were not told to linger.
 */
#pragma once

#include <stddef.h>

#include "base/err.h"
#include "base/wire/plan.h"
#include "io/place.h"

/* A connected socket, or -1. `waiting` (may be NULL) is called once when starting takes a while. */
int spawn_connect(const struct place *place, void (*waiting)(void), struct err *err);

/*
 * The same, for the daemon that holds the run directory. A spawner of another program, as before an
 * upgrade, or of another store is ended and the next one started: boxes go on, and that adopts
 * them.
 */
int spawn_connect_current(const struct place *place, struct err *err);

/* The same, but only if a spawner is running: ERR_NOT_FOUND otherwise. */
int spawn_try_connect(const struct place *place, struct err *err);

/*
 * A new box: fds are one open directory a grant. ret_guest is its creator's connection to the
 * guest; ret_uppers (PLAN_MAX_GRANTS, -1 where there is none) hold the changes of cow grants, in
 * their order. m holds the answer: m->text are warnings.
 */
int spawn_create(int link, struct plan_message *m, const int *fds, int *ret_guest, int *ret_uppers,
                 struct err *err);

int spawn_facts(int link, const char *id, struct plan_facts *ret, struct err *err);
int spawn_destroy(int link, const char *id, struct err *err);
int spawn_status(int link, char *json, size_t size, struct err *err);
int spawn_stop(int link, struct err *err);
