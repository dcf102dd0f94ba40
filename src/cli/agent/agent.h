/*
 * carrel agent: runs the program of an agent in a machine of its own, on a copy of the present
 * directory, and asks afterwards what happens to the changes.
 *
 * The machine is the boundary. So an agent's own sandbox, questions, telemetry and updates are
 * switched off inside, and its key is a placeholder.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "base/id.h"
#include "cli/client.h"
#include "cli/new.h"
#include "cli/options.h"

/* Where the machine sees the agent's program, read-only. */
#define AGENT_INSIDE "/opt/carrel-agent"

/* An npm package that is unpacked without running its scripts. */
struct agent_package {
    const char *cpu;    /* machine name of uname(2); NULL: any */
    const char *spec;   /* NAME@VERSION */
    const char *into;   /* subdirectory of the program; "": none */
    const char *sha512; /* of the archive, in hexadecimal digits */
};

/* A file in the home of the machine, written unless it exists. {dir} is the directory in JSON. */
struct agent_file {
    const char *path, *text;
};

/*
 * One agent. The commands are run by the shell of the machine: $agent is its program, $task the
 * task or empty, and "$@" are the further arguments.
 */
struct agent_row {
    const char *name;
    const char *version;                  /* NULL: the agent is part of its image */
    const char *format;                   /* of the models that it calls; NULL: unknown */
    const struct agent_package *packages; /* ended by a row without spec; NULL: none */
    const struct agent_file *files;       /* ended by a row without path; NULL: none */
    const char *const *env;               /* NAME=VALUE, ended by NULL; NULL: none */
    const char *image;                    /* NULL: the default image */
    const char *start, *resume;           /* with a terminal; NULL: not possible */
    const char *once, *once_resume;       /* for one task without a terminal */
};

struct agent_options {
    struct new_options made;
    const char *task, *budget;
    bool resume, keep, quiet, json, help;
};

/* The directory that the agent works on. */
struct agent_slice {
    char dir[PATH_MAX]; /* present directory */
    char top[PATH_MAX]; /* what the machine gets: the repository, or the directory itself */
    bool is_repo;
};

struct agent {
    const struct agent_options *o;
    struct client *client;
    const struct agent_row *row;
    json_t *conf; /* answer of /v1/agents; rows of carrel.conf point into it */
    struct agent_row own;
    const char *own_env[64];
    struct agent_slice slice;
    char machine[ID_SIZE]; /* id */
    char name[128];        /* name of the machine */
    char **args;           /* further arguments of the agent, ended by NULL */
    bool is_new;
};

/* ---- table.c ---- */

extern const struct agent_row agent_table[];
extern const size_t agent_count;
/* Asks the daemon for carrel.conf, and finds the row: one of carrel.conf counts first. */
int agent_find(struct agent *a, const char *name, struct err *err);
/* Whether a provider of models that this agent calls has its key. */
int agent_check_models(const struct agent *a, struct err *err);

/* ---- program.c ---- */

/* Writes the directory of the agent's program on this host; true: it is complete. */
bool agent_program_is_there(const struct agent_row *row, char ret[PATH_MAX]);
/* Downloads and unpacks the program. *ret is its directory. */
int agent_program_make(struct client *c, const struct agent_row *row, bool quiet,
                       char ret[PATH_MAX], struct err *err);

/* ---- machine.c ---- */

int agent_slice_find(struct agent_slice *ret, struct err *err);
/* Finds the machine of this agent and directory, or makes it; says on stderr what the agent gets.
 */
int agent_machine_open(struct agent *a, struct err *err);
/* The machines of agents, as {"machines":[...]}. agent, dir: NULL: any. */
int agent_machines(struct client *c, const char *agent, const char *dir, json_t **ret,
                   struct err *err);

/* ---- launch.c ---- */

/* Runs the agent. *ret_left: the user left it running. Returns the exit status, or -1. */
int agent_launch(struct agent *a, bool resume, const char *task, bool *ret_left, struct err *err);

/* ---- after.c ---- */

/* Shows the changes and asks what happens to them. *ret_comment: the agent is to continue with this
 * comment; the caller frees it. */
int agent_after(struct agent *a, char **ret_comment, struct err *err);
