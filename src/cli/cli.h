/*
 * The command line: one table of commands, one file per group.
 *
 * A command gets its own arguments (argv[0] is its name) and returns the exit status. An error
 * before a command has run in a machine is one line on stderr and exit status 125.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "cli/options.h"

enum { CLI_FAILED = 125 };

/* A subcommand: the words that follow the name of the command, and a summary for --help. */
struct form {
    const char *usage;
    const char *summary;
};

struct command {
    const char *name;
    const char *usage;   /* words that follow the command name; completion reads them too */
    const char *summary; /* one line for `carrel help` */
    int (*run)(int argc, char **argv);
    const struct option_row *options; /* NULL: another program parses the options */
    const char *group;        /* heading in `carrel help`; NULL: the heading of the row before */
    const struct form *forms; /* subcommands, ended by a row without usage; NULL: none */
    const char *notes;        /* more lines for --help; NULL: none */
};

/* All commands; ends with a row without a name. */
extern const struct command commands[];
const struct command *cli_find(const char *name); /* NULL: unknown */

int cli_main(int argc, char **argv);

/*
 * Prints "carrel: text: remedy" to stderr; returns CLI_FAILED. If the command was given --json, it
 * also prints the error object of the API to stdout.
 */
int cli_fail(const struct err *err);

/*
 * Prints what was changed, in one line on stderr, so that ids on stdout stay alone: "carrel:
 * deleted machine 'm'". The text is made safe for a terminal. quiet: -q was given, or JSON says it.
 */
void cli_done(bool quiet, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints `--help` of one command without its options: usage, subcommands and notes. */
void cli_usage(const char *name);
/* Prints `--help` of one command with its options. */
void cli_help(const char *name);

/*
 * Reads the arguments of a command without options of its own. words: how many arguments it takes;
 * json: set by `--json` (NULL: not an option). -1: help or an error was printed, and the command
 * must exit with *ret_status.
 */
int cli_words(int argc, char **argv, int words, bool *json, int *ret_status);

/* Flags of commands that print a list. cli_list_words() also reads `-q`. */
struct list_flags {
    bool quiet, json;
};
int cli_list_words(int argc, char **argv, int words, struct list_flags *ret, int *ret_status);

/* Flags of commands that only change something, with rows done_rows. */
struct done_flags {
    bool quiet, json, help;
};
#define DONE_QUIET_HELP "print nothing on success"

/* Sets the error for a word that the usage line of the command does not list; returns -1. */
int cli_unknown_subcommand(const char *command, const char *word, struct err *err);

int cmd_run(int argc, char **argv);
int cmd_exec(int argc, char **argv);
int cmd_sh(int argc, char **argv);
int cmd_cp(int argc, char **argv);
int cmd_ls(int argc, char **argv);
int cmd_rm(int argc, char **argv);
int cmd_new(int argc, char **argv);
int cmd_show(int argc, char **argv);
int cmd_set(int argc, char **argv);
int cmd_rename(int argc, char **argv);
int cmd_pause(int argc, char **argv);
int cmd_resume(int argc, char **argv);
int cmd_stop(int argc, char **argv);
int cmd_stats(int argc, char **argv);
int cmd_top(int argc, char **argv);
int cmd_logs(int argc, char **argv);
int cmd_snap(int argc, char **argv);
int cmd_steps(int argc, char **argv);
int cmd_diff(int argc, char **argv);
int cmd_rewind(int argc, char **argv);
int cmd_hibernate(int argc, char **argv);
int cmd_move(int argc, char **argv);
int cmd_reinstall(int argc, char **argv);
int cmd_serial(int argc, char **argv);
int cmd_timer(int argc, char **argv);
int cmd_fork(int argc, char **argv);
int cmd_store(int argc, char **argv);
int cmd_agent(int argc, char **argv);
int cmd_do(int argc, char **argv);
int cmd_ship(int argc, char **argv);
int cmd_image(int argc, char **argv);
int cmd_serve(int argc, char **argv);
int cmd_pending(int argc, char **argv);
int cmd_approve(int argc, char **argv);
int cmd_answer(int argc, char **argv);
int cmd_deny(int argc, char **argv);
int cmd_events(int argc, char **argv);
int cmd_net(int argc, char **argv);
int cmd_login(int argc, char **argv);
int cmd_models(int argc, char **argv);
int cmd_secret(int argc, char **argv);
int cmd_backup(int argc, char **argv);
int cmd_volume(int argc, char **argv);
int cmd_grant(int argc, char **argv);
int cmd_grants(int argc, char **argv);
int cmd_expose(int argc, char **argv);
int cmd_forward(int argc, char **argv);
int cmd_ssh(int argc, char **argv);
int cmd_desktop(int argc, char **argv);
int cmd_health(int argc, char **argv);
int cmd_token(int argc, char **argv);
int cmd_console(int argc, char **argv);
int cmd_e2b(int argc, char **argv);
int cmd_audit(int argc, char **argv);
int cmd_mcp(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_cell(int argc, char **argv);
int cmd_wast(int argc, char **argv);
int cmd_version(int argc, char **argv);
int cmd_completion(int argc, char **argv);

/* Options of cli_list_words(), and of commands that only change something. */
extern const struct option_row list_rows[], done_rows[];
/* Options of commands that have more options than --json and --help. */
extern const struct option_row run_rows[], exec_rows[], sh_rows[], cp_rows[], new_rows[],
    logs_rows[], ls_rows[], rm_rows[], set_rows[], net_rows[], snap_rows[], steps_rows[],
    diff_rows[], rewind_rows[], hibernate_rows[], fork_rows[], store_rows[], serve_rows[],
    token_rows[], console_rows[], e2b_rows[], audit_rows[], mcp_rows[], approve_rows[],
    answer_rows[], deny_rows[], grant_rows[], top_rows[], pending_rows[], events_rows[], do_rows[],
    ship_rows[], image_rows[], secret_rows[], expose_rows[], forward_rows[], ssh_rows[],
    models_rows[], agent_rows[], volume_rows[], backup_rows[], login_rows[], move_rows[],
    reinstall_rows[], serial_rows[], timer_rows[], desktop_rows[];

/* Subcommands (forms.c). */
extern const struct form net_forms[], expose_forms[], grant_forms[], secret_forms[], image_forms[],
    store_forms[], token_forms[], e2b_forms[], audit_forms[], models_forms[], agent_forms[],
    rename_forms[], volume_forms[], backup_forms[], login_forms[], desktop_forms[], timer_forms[];
extern const char login_notes[];
extern const char net_notes[];
extern const char timer_notes[], forward_notes[], health_notes[], reinstall_notes[], serial_notes[],
    ssh_notes[];
extern const char steps_notes[];
extern const char sh_notes[];
