/*
 * Follows the log of a build until it ends: shows each step, and how long the present one takes.
 *
 * A lost connection is opened again, and the log continues where it was. SIGINT, SIGTERM and SIGHUP
 * cancel the build.
 */
#pragma once

#include "cli/client.h"

/* From now on signals are noted, for the functions below. */
void build_watch_signals(void);
/* True after a signal. Uploads stop then. */
bool build_watch_is_over(void);
/* *ret is the build as it ended. Fails with its error if it was not successful. */
int build_watch(struct client *c, const char *id, bool quiet, json_t **ret, struct err *err);
/* Cancels the build, after a failure or a signal. A signal then ends this process. */
void build_watch_cancel(struct client *c, const char *id);
/* Prints the log as text on standard output. follow: until the build has ended. */
int build_log_print(struct client *c, const char *id, bool follow, struct err *err);
