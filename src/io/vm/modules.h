/*
 * Finds the modules of a kernel that a vm needs, in the order to load them. Pure: the caller reads
 * the files `modules.dep` and `modules.builtin` of the kernel.
 */
#pragma once

#include "base/err.h"

enum { MODULES_MAX = 32, MODULE_PATH_SIZE = 256 };

struct modules {
    /* below the directory of the kernel's modules */
    char path[MODULES_MAX][MODULE_PATH_SIZE];
    unsigned count;
};

/* Adds a module and, before it, those that it depends on, unless they are there. Adds nothing if
 * the kernel has it built in. `name` is as in lsmod, with underscores. */
int modules_add(struct modules *m, const char *dep, const char *builtin, const char *name,
                struct err *err);
