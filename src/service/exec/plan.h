/*
 * Builds the EXEC message for the guest from an exec_request.
 *
 * Pure. Sets the defaults (user, clean environment, home directory) and checks every number and
 * name from outside.
 */
#pragma once

#include "base/err.h"
#include "base/wire/msg.h"
#include "service/request.h"

enum { EXEC_ENV_MAX = 256, EXEC_ARGV_MAX = 4096, EXEC_TEXT_MAX = 1 << 19 };

/* Who commands run as in a machine whose image says so. Texts are its owner's. */
struct exec_defaults {
    uint32_t uid, gid;
    const char *user, *home, *cwd;
    struct texts env; /* names and values in turn */
};

/* The message and the memory its texts live in. */
struct exec_plan {
    struct msg_exec exec;
    const char **argv; /* NULL-terminated */
    const char **env;
    char *text; /* what env is made of */
    const char *user, *home;
};

/*
 * machine_env: names and values in turn; cwd: of the machine, may be NULL. image NULL: the host's,
 * whose commands run as `user`.
 */
int exec_plan_make(struct exec_plan *ret, const struct exec_request *r,
                   const struct exec_defaults *image, const struct texts *network_env,
                   const struct texts *machine_env, const char *cwd, struct err *err);
void exec_plan_done(struct exec_plan *p);
