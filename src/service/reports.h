/*
 * Reports of an agent about its work: recorded in the journal and sent as an event.
 *
 * The agent writes the text, so it is not trusted.
 */
#pragma once

#include "service/service.h"

/* Records a report. machine: id of a machine, or "" for none. json: the report, one object. */
int service_report(struct service *s, const struct caller *who, const char *machine,
                   const char *json, struct err *err);
