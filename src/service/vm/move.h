/* A box becomes a vm in place: `carrel move`. */
#pragma once

#include "service/service.h"

struct kind_request {
    const char *kind; /* "vm": the only kind that a box can become */
    struct given mem; /* memory of the vm; not given: the limit of the box, or that of a new vm */
};

/*
 * The machine keeps its id, name, files, grants, network rules, budget and steps; its programs end.
 * The answer comes when the vm runs and the store says so. After any failure the machine is a box.
 * A machine that is a vm already is answered at once.
 */
void service_move(struct service *s, const struct caller *who, const char *ref,
                  const struct kind_request *r, service_machine_fn *done, void *arg);
