/* What an agent says about its work: written into the journal and told as an event. */
#pragma once

#include "service/service.h"

/* machine: id, or "" for none. json: one object. */
int service_report(struct service *s, const struct caller *who, const char *machine,
                   const char *json, struct err *err);
