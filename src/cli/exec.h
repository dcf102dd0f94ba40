/*
 * Options, request and result of a command in a machine, shared by run, exec and sh.
 *
 * The exit status is the command's own; 125 means that Carrel failed.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/id.h"
#include "base/wire/plan.h"
#include "cli/client.h"
#include "cli/options.h"
#include "cli/session.h"

/* Options that run and exec share. */
struct command_options {
    struct option_list env, env_files;
    const char *cwd;
    const char *user;
    uint64_t timeout_ms;
    bool terminal, no_terminal, interactive;
    bool json, quiet, verbose, help;
};

#define ENV_HELP "set a variable, or pass on the caller's value"
#define ENV_FILE_HELP "read variables from a file, one per line"
#define CWD_HELP "working directory (default: of the first --dir or --repo, or home)"
#define USER_HELP "run the command as this user of the machine: a name or a uid (default: user)"
#define TTY_HELP "give the command a terminal"
#define NO_TTY_HELP "give the command no terminal, even if stdin is one"
#define INTERACTIVE_HELP "ignored (so that -it works): standard input is always connected"

#define COMMAND_OPTIONS(type, member)                                                          \
    {'e', "env", "NAME[=VALUE]", OPTION_LIST, offsetof(type, member.env), ENV_HELP},           \
        {0, "env-file", "FILE", OPTION_LIST, offsetof(type, member.env_files), ENV_FILE_HELP}, \
        {'w', "cwd", "DIR", OPTION_TEXT, offsetof(type, member.cwd), CWD_HELP},                \
        {'u', "user", "NAME", OPTION_TEXT, offsetof(type, member.user), USER_HELP},            \
        {0,                                                                                    \
         "timeout",                                                                            \
         "TIME",                                                                               \
         OPTION_DURATION,                                                                      \
         offsetof(type, member.timeout_ms),                                                    \
         "kill the command after this time, such as 5m (exit status 124)"},                    \
        {'t', "tty", NULL, OPTION_FLAG, offsetof(type, member.terminal), TTY_HELP},            \
        {'i',                                                                                  \
         "interactive",                                                                        \
         NULL,                                                                                 \
         OPTION_FLAG,                                                                          \
         offsetof(type, member.interactive),                                                   \
         INTERACTIVE_HELP},                                                                    \
        {'T', "no-tty", NULL, OPTION_FLAG, offsetof(type, member.no_terminal), NO_TTY_HELP},   \
        {0,                                                                                    \
         "json",                                                                               \
         NULL,                                                                                 \
         OPTION_FLAG,                                                                          \
         offsetof(type, member.json),                                                          \
         "print one JSON object: output, exit status, resource use"},                          \
        {'q',                                                                                  \
         "quiet",                                                                              \
         NULL,                                                                                 \
         OPTION_FLAG,                                                                          \
         offsetof(type, member.quiet),                                                         \
         "suppress Carrel's own messages, except errors"},                                     \
        {'v',                                                                                  \
         "verbose",                                                                            \
         NULL,                                                                                 \
         OPTION_FLAG,                                                                          \
         offsetof(type, member.verbose),                                                       \
         "also print the command's exit status, cpu time and memory use"},                     \
    {                                                                                          \
        'h', "help", NULL, OPTION_FLAG, offsetof(type, member.help), "show this help"          \
    }

enum { ENV_MAX = 96, CAPTURE_MAX = 8 << 20 };

struct command_setup {
    struct session session;
    char texts[ENV_MAX][4096];
    const char *env[ENV_MAX];
    size_t env_count;
    struct buf out, err;
};

/* Finds the running command with this name and writes its id; 0: there is none (shell.c). */
int exec_find_running(struct client *c, const char *machine, const char *name, char ret[ID_SIZE],
                      struct err *err);

/* Fills session.request from the options; argv is NULL-terminated and outlives the setup. */
int command_prepare(struct command_setup *c, const struct command_options *o, char **argv,
                    const char *default_cwd, struct err *err);
void command_done(struct command_setup *c);

/* Prints how the command ended, as text or JSON; returns the exit status. */
struct command_end {
    const char *id;
    const struct plan_facts *facts; /* NULL: not asked for, because the command succeeded */
    uint64_t changed_files;
    bool has_grants;
};
int command_report(const struct command_setup *c, const struct command_options *o,
                   const struct command_end *end);
