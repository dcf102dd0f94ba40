/*
 * The machine of `carrel mcp` with grants: made with the owner's rights when the command starts,
 * and found again by its directory and options. The tools of the agent are then bound to it.
 */
#pragma once

#include "base/id.h"
#include "cli/new.h"

struct mcp_grants {
    struct option_list dirs, net;
    const char *models, *budget, *image;
    uint64_t mem, cpu_milli, disk;
};

/* True if an option was given that needs a machine with grants or limits. */
bool mcp_grants_given(const struct mcp_grants *g);

/* Finds or creates the machine of this directory with these options. */
int mcp_machine(struct client *c, const struct mcp_grants *g, char ret[ID_SIZE], struct err *err);
