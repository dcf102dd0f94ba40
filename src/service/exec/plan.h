/*
 * Builds the EXEC message for the guest from an exec_request.
 *
 * Pure. Sets the defaults (user, clean environment, home directory) and checks every number and
 * name from outside.
 */
#pragma once

#include "base/capability.h"
#include "base/err.h"
#include "base/wire/msg.h"
#include "service/request.h"

enum { EXEC_ENV_MAX = 256, EXEC_ARGV_MAX = 4096, EXEC_TEXT_MAX = 1 << 19 };

/* The user that commands run as, from the image. Texts belong to the image. */
struct exec_defaults {
    uint32_t uid, gid;
    const char *user, *home, *cwd;
    struct texts env; /* alternating names and values */
};

/* The message and the memory of its texts. */
/* Directory of the command `carrel` in a machine. */
#define EXEC_OWN_PATH "/run/carrel/bin"

struct exec_plan {
    struct msg_exec exec;
    const char **argv;  /* NULL-terminated */
    const char **shown; /* the words of the caller: argv, or a later part of it */
    char limits[3][24]; /* in a cell machine: memory of words before `shown` */
    char allowed[CAPABILITIES_SIZE];
    const char **env;
    char *text; /* memory of env */
    char *path; /* memory of the variable PATH, while env is made */
    const char *user, *home;
    const char *account; /* the user that the guest looks up in the machine; NULL: none */
};

/*
 * has_names: the guest can look up users (MSG_FEATURE_NAMES).
 * network_env, machine_env: alternating names and values. cwd: working directory of the machine, or
 * NULL. image: NULL for the host image, whose commands run as the user `user`.
 */
int exec_plan_make(struct exec_plan *ret, const struct exec_request *r,
                   const struct exec_defaults *image, const struct texts *network_env,
                   const struct texts *machine_env, const char *cwd, bool has_names,
                   struct err *err);

/* Limits of a command in a cell machine. */
struct cell_limits {
    uint64_t fuel;       /* of the whole command */
    uint64_t fuel_rate;  /* per second; 0: no limit */
    uint64_t mem_bytes;  /* of the machine */
    const char *allowed; /* capabilities of its programs; empty: none */
    const char *machine; /* its name */
    bool knows_allow;    /* the guest has a worker that takes capabilities */
    bool knows_module;   /* the guest has a worker that takes a program on standard input */
};

/* As exec_plan_make(), for a cell machine: argv names a program of the machine. */
int exec_plan_make_cell(struct exec_plan *ret, const struct exec_request *r,
                        const struct cell_limits *limits, const struct exec_defaults *image,
                        const struct texts *network_env, const struct texts *machine_env,
                        struct err *err);
void exec_plan_done(struct exec_plan *p);
