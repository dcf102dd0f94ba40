/* A machine goes back to its image: `carrel reinstall`. */
#pragma once

#include "service/service.h"

struct reinstall_request {
    bool keep_home; /* the files in /home and /root stay */
};

/*
 * The machine keeps its id, name, grants, network rules, budget and steps; its programs end. A step
 * is taken before, so that a rewind to it undoes the reinstallation. Whatever dies on the way, the
 * machine has all its files or is reinstalled.
 */
void service_reinstall(struct service *s, const struct caller *who, const char *ref,
                       const struct reinstall_request *r, service_machine_fn *done, void *arg);
