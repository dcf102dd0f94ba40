/*
 * Reports of an agent about its work: recorded in the journal and sent as an event.
 *
 * The text is the agent's and is not trusted.
 */
#pragma once

#include "service/service.h"

/* machine: id, or "" for none. json: one object. */
int service_report(struct service *s, const struct caller *who, const char *machine,
                   const char *json, struct err *err);
