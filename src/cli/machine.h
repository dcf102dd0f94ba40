/*
 * What `run` and `exec` have in common: the command's user, directory and environment, and what
 * is said about its end.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/plan.h"
#include "cli/client.h"
#include "cli/options.h"
#include "cli/session.h"

/* Options of both; a command's own struct starts with this. */
struct command_options {
    struct option_list env;
    const char *cwd;
    const char *user;
    uint64_t timeout_ms;
    bool terminal, no_terminal;
    bool json, quiet, verbose, help;
};

#define COMMAND_OPTIONS(type, member)                                                              \
    {'e',                                                                                          \
     "env",                                                                                        \
     "NAME[=VALUE]",                                                                               \
     OPTION_LIST,                                                                                  \
     offsetof(type, member.env),                                                                   \
     "set a variable, or pass one on"},                                                            \
        {0, "cwd", "DIR", OPTION_TEXT, offsetof(type, member.cwd), "working directory inside"},    \
        {'u',                                                                                      \
         "user",                                                                                   \
         "NAME",                                                                                   \
         OPTION_TEXT,                                                                              \
         offsetof(type, member.user),                                                              \
         "user, root, or a number (default: user)"},                                               \
        {0,                                                                                        \
         "timeout",                                                                                \
         "TIME",                                                                                   \
         OPTION_DURATION,                                                                          \
         offsetof(type, member.timeout_ms),                                                        \
         "end it after this time (30s, 5m); exit status 124"},                                     \
        {'t', "tty", NULL, OPTION_FLAG, offsetof(type, member.terminal), "give it a terminal"},    \
        {'T',                                                                                      \
         "no-tty",                                                                                 \
         NULL,                                                                                     \
         OPTION_FLAG,                                                                              \
         offsetof(type, member.no_terminal),                                                       \
         "give it none, even if we have one"},                                                     \
        {0,                                                                                        \
         "json",                                                                                   \
         NULL,                                                                                     \
         OPTION_FLAG,                                                                              \
         offsetof(type, member.json),                                                              \
         "print one JSON object: output, exit status, usage"},                                     \
        {'q', "quiet", NULL, OPTION_FLAG, offsetof(type, member.quiet), "say nothing of our own"}, \
        {'v', "verbose", NULL, OPTION_FLAG, offsetof(type, member.verbose), "say more"}, {         \
        'h', "help", NULL, OPTION_FLAG, offsetof(type, member.help), "show this"                   \
    }

/* The daemon that has the machine; where none runs there is no machine either. */
int cli_machine_open(struct client *c, const char *machine, struct err *err);

/* Adds all pages of the daemon's list to an array, newest first. */
int machines_list(struct client *c, json_t *rows, struct err *err);

enum { ENV_MAX = 96, CAPTURE_MAX = 8 << 20 };

struct command_setup {
    struct session session;
    char texts[ENV_MAX][4096];
    const char *env[ENV_MAX];
    size_t env_count;
    struct buf out, err;
};

/* Fills session.exec from the options; argv is NULL-terminated and outlives the setup. */
int command_prepare(struct command_setup *c, const struct command_options *o, char **argv,
                    const char *default_cwd, struct err *err);
void command_done(struct command_setup *c);

/* What is known about the end of a command, for a person or as JSON; returns the exit status. */
struct command_end {
    const char *id;
    const struct plan_facts *facts; /* NULL: not asked, nothing went wrong */
    uint64_t changed_files;
    bool has_grants;
};
int command_report(const struct command_setup *c, const struct command_options *o,
                   const struct command_end *end);
