/*
 * Agents in carrel.conf: a section [agent NAME] for each program that `carrel agent NAME` starts,
 * besides those that the command line knows.
 *
 * The commands are lines for the shell of the machine. The daemon passes them on and runs none.
 */
#pragma once

#include <stddef.h>

#include "base/err.h"

enum { CONF_AGENTS_MAX = 16, CONF_AGENT_ENV_MAX = 16, CONF_AGENT_LINE = 192 };

struct conf_agent {
    char name[32];               /* lower-case letters, digits and "-" */
    char image[128];             /* empty: the default image */
    char start[CONF_AGENT_LINE]; /* with a terminal */
    char once[CONF_AGENT_LINE];  /* without a terminal, for one task */
    char resume[CONF_AGENT_LINE];
    char env[CONF_AGENT_ENV_MAX][CONF_AGENT_LINE]; /* NAME=VALUE */
    size_t env_count;
};

struct conf_agents {
    struct conf_agent list[CONF_AGENTS_MAX];
    size_t count;
};

/* Sets a key of section [agent NAME]; adds the agent with its first key. */
int conf_agent_set(struct conf_agents *agents, const char *name, const char *key, const char *value,
                   struct err *err);
/* Refuses an agent that cannot be started. */
int conf_agents_check(const struct conf_agents *agents, struct err *err);
