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

#include "base/buf.h"
#include "base/id.h"
#include "cli/agent/project.h"
#include "cli/client.h"
#include "cli/new.h"
#include "cli/options.h"

/* Where the machine sees the agent's program, read-only. */
#define AGENT_INSIDE "/opt/carrel-agent"
/* Name of the agent's command on a terminal, by which a later call returns to it. */
#define AGENT_EXEC "agent"
/* Home of the user that commands run as. */
#define AGENT_HOME_INSIDE "/home/user"

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

enum { AGENT_DROP_MAX = 8 };

/* A file of the owner's home that `import-settings` copies. */
struct agent_setting {
    const char *path;
    enum { AGENT_SETTING_TEXT, AGENT_SETTING_DIR, AGENT_SETTING_JSON } kind;
    const char *only;                 /* JSON: the only member to copy; NULL: all members */
    const char *drop[AGENT_DROP_MAX]; /* JSON: members that stay out */
};

/* How an agent uses a subscription login of the owner. The machine gets placeholders only. */
struct agent_login {
    const char *name;               /* of the login */
    const struct agent_file *files; /* as in struct agent_row; NULL: none */
    const char *const *env;         /* as in struct agent_row */
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
    const struct agent_setting *settings; /* ended by a row without path; NULL: unknown */
    const char *memory;                   /* file of notes in the home; NULL: notes.md */
    const char *const *env;               /* NAME=VALUE, ended by NULL; NULL: none */
    const struct agent_login *login;      /* NULL: API keys only */
    const char *image;                    /* NULL: the default image */
    const char *start, *resume;           /* with a terminal; NULL: not possible */
    const char *once, *once_resume;       /* for one task without a terminal */
};

struct agent_options {
    struct new_options made;
    const char *task, *budget;
    bool login, resume, fresh, no_project, keep, yes, quiet, json, help;
};

/* The directory that the agent works on. */
struct agent_slice {
    char dir[PATH_MAX]; /* present directory */
    char top[PATH_MAX]; /* what the machine gets: the repository, or the directory itself */
    bool is_repo;
};

enum { AGENT_HOME_SIZE = 65 };

struct agent {
    const struct agent_options *o;
    struct client *client;
    const struct agent_row *row;
    json_t *conf; /* answer of /v1/agents; rows of carrel.conf point into it */
    struct agent_row own;
    const char *own_env[64];
    struct agent_slice slice;
    char machine[ID_SIZE];      /* id */
    char name[128];             /* name of the machine */
    char home[AGENT_HOME_SIZE]; /* volume of the agent's home; empty: the home is in the machine */
    struct agent_accept *project; /* accepted project file; NULL: none */
    char **args;                  /* further arguments of the agent, ended by NULL */
    bool is_new;
    bool uses_login; /* the machine was made with --login */
};

/* ---- table.c ---- */

extern const struct agent_row agent_table[];
extern const size_t agent_count;
/* Asks the daemon for carrel.conf, and finds the row: one of carrel.conf counts first. */
int agent_find(struct agent *a, const char *name, struct err *err);
/* Whether a provider of models that this agent calls has its key. */
int agent_check_models(const struct agent *a, struct err *err);

/* ---- program.c ---- */

/* Writes the directory of Carrel's own files for agents, on this host. */
int agent_data_dir(char ret[PATH_MAX], struct err *err);
/* Creates a directory and those above it. */
int agent_make_dirs(char *path, struct err *err);
/* Writes the directory of the agent's program on this host; true: it is complete. */
bool agent_program_is_there(const struct agent_row *row, char ret[PATH_MAX]);
/* Downloads and unpacks the program. *ret is its directory. */
int agent_program_make(struct client *c, const struct agent_row *row, bool quiet,
                       char ret[PATH_MAX], struct err *err);

/* ---- machine.c ---- */

int agent_slice_find(struct agent_slice *ret, struct err *err);
/* True if path is dir, or below it. */
bool agent_path_is_below(const char *path, const char *dir);
/* Finds the machine of this agent and directory, or makes it; says on stderr what the agent gets.
 */
int agent_machine_open(struct agent *a, struct err *err);
/* Makes the parent directories of a path in the machine. */
int agent_make_parent(const struct agent *a, const char *path, struct err *err);
/* The machines of agents, as {"machines":[...]}. agent, dir: NULL: any. */
int agent_machines(struct client *c, const char *agent, const char *dir, json_t **ret,
                   struct err *err);

/* ---- home.c ---- */

/* True if the volume of this agent and directory exists. */
bool agent_home_exists(const struct agent *a);
/* Makes the volume unless it exists. *option: the value of --volume; empty: there is no volume. */
int agent_home_make(struct agent *a, char option[AGENT_HOME_SIZE + 32], struct err *err);
/* Finds the volume of the home in the description of a machine. */
void agent_home_of(struct agent *a, const json_t *machine);

/* ---- accept.c ---- */

struct agent_accept;
void agent_accept_free(struct agent_accept *f);
/* carrel agent accept */
int agent_accept_run(struct agent *a, char **words, struct err *err);
/* Reads the project file. Asks on a terminal if it was not accepted. Only an accepted one is kept
 * in a->project. */
int agent_project_open(struct agent *a, struct err *err);
const struct project *agent_project(const struct agent *a); /* NULL: none was accepted */
/* Writes its budget as --budget takes it; false: it has none. */
bool agent_project_budget(const struct agent_accept *f, char ret[96]);
/* Writes the script that sets up a new machine: commands of package managers that need root, or the
 * others and then the setup of the file. false: there is nothing to run. */
bool agent_project_script(const struct agent *a, bool as_root, struct buf *ret);
/* Replaces the task @NAME by the prompt of that name. */
int agent_project_task(struct agent *a, const char **task, struct err *err);

/* ---- settings.c ---- */

/* carrel agent import-settings NAME */
int agent_import(struct agent *a, char **words, struct err *err);

/* ---- launch.c ---- */

/* Copies the text of a file. {dir} becomes the path as a part of a JSON string. */
int agent_file_text(const struct agent_file *f, const char *dir, struct buf *ret, struct err *err);
/* Runs the scripts of the project file in a new machine. */
int agent_setup(struct agent *a, struct err *err);
/* Runs the agent. *ret_left: the user left it running. Returns the exit status, or -1. */
int agent_launch(struct agent *a, bool resume, const char *task, bool *ret_left, struct err *err);

/* ---- waiting.c ---- */

struct aside;
/* Items that wait for the owner, beside an agent on a terminal (cli/aside.h). */
struct aside *agent_waiting_open(const struct agent *a);
void agent_waiting_close(struct aside **slot);

/* ---- after.c ---- */

/* Shows the changes and asks what happens to them. *ret_comment: the agent is to continue with this
 * comment; the caller frees it. */
int agent_after(struct agent *a, char **ret_comment, struct err *err);
/* Counts the changes in the machine: commits of a repository, else files. */
int agent_changes(struct agent *a, long long *ret, struct err *err);
/* Asks on the terminal; only y is yes. */
bool agent_confirms(const char *question);
