/*
 * A connection to Chromium in a machine, over its DevTools protocol.
 *
 * Chromium is a command of the machine that reads requests from its standard input and answers on
 * its output: nothing listens on a port. A connection lasts for one call of a tool; a later one
 * finds the command by its name. One request is open at a time. Everything that comes back is
 * untrusted, and is a struct or an object of JSON here, never a command: the size of a message, its
 * values and the bytes of all messages of a connection are limited.
 */
#pragma once

#include <jansson.h>

#include "tools/coproc.h"

struct devtools;

/* result: an object, or NULL with an error of Chromium, a short text. */
typedef void devtools_fn(void *arg, const json_t *result, const char *error);

/* None of them is called after devtools_close(), which all may call. */
struct devtools_events {
    void *arg;
    /* An event of the session, or of the browser. */
    void (*event)(void *arg, const char *method, const json_t *params);
    /* The browser has ended, or could not be started. */
    void (*ended)(void *arg, const struct err *err);
};

/*
 * Finds the browser with this name, or starts it: then *fresh is true. With fresh = NULL it is not
 * started, and the error is ERR_NOT_FOUND.
 */
struct devtools *devtools_open(const struct coproc_place *place, const char *machine,
                               const char *name, const struct devtools_events *events, bool *fresh,
                               struct err *err);
/* Sends a request, takes over `params`, and answers later. */
void devtools_ask(struct devtools *d, const char *method, json_t *params, devtools_fn *fn);
/* The same without an answer. */
void devtools_tell(struct devtools *d, const char *method, json_t *params);
/* Later requests are for the session with this id, which devtools_is_id() takes. */
void devtools_attach(struct devtools *d, const char *session);
/* Ends the connection. The browser stays, and sends no more events. */
void devtools_close(struct devtools *d);
/* Kills the browser; ended() follows with this reason, a text that stays valid. */
void devtools_break(struct devtools *d, const char *reason);
/* Kills the browser of this name, if it runs. */
void devtools_kill(const struct coproc_place *place, const char *machine, const char *name);

/* Whether a text is an id as Chromium makes them, which may be sent back to it. */
bool devtools_is_id(const char *text);
