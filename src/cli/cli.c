#include "cli/cli.h"

#include <assert.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/safe.h"
#include "io/place.h"

static int cmd_help(int argc, char **argv);

/* Of commands that read their words with cli_words(). */
static const struct option_row json_rows[] = {
    {0, "json", NULL, OPTION_FLAG, 0, "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, 0, "show this"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};
#define help_rows (json_rows + 1)

const struct command commands[] = {
    {"run", "[OPTIONS] [--] COMMAND [ARG...]",
     "run a command in a fresh box, thrown away afterwards", cmd_run, run_rows},
    {"exec", "[OPTIONS] MACHINE [--] COMMAND [ARG...]", "run a command in a kept machine", cmd_exec,
     exec_rows},
    {"sh", "[OPTIONS] MACHINE [EXEC]", "a shell in a machine, or back to one", cmd_sh, sh_rows},
    {"cp", "[OPTIONS] SOURCE DESTINATION", "copy files in and out: MACHINE:PATH on one side",
     cmd_cp, cp_rows},
    {"new", "[OPTIONS]", "make a machine that stays, and print its id", cmd_new, new_rows},
    {"show", "[--json] MACHINE", "show one machine", cmd_show, json_rows},
    {"ls", "[--json]", "list the machines that are there", cmd_ls, json_rows},
    {"rm", "MACHINE...", "end machines and remove all that is left of them", cmd_rm, help_rows},
    {"pause", "[--json] MACHINE", "freeze every process of a machine; memory is kept", cmd_pause,
     json_rows},
    {"hibernate", "[--json] [--files-only] MACHINE",
     "write its processes to the store, where that can be", cmd_hibernate, hibernate_rows},
    {"resume", "[--json] MACHINE", "let it go on after pause or stop", cmd_resume, json_rows},
    {"stop", "[--json] MACHINE", "end every process of a machine; files are kept", cmd_stop,
     json_rows},
    {"stats", "[--json] [MACHINE]", "what a machine uses, or what the daemon does", cmd_stats,
     json_rows},
    {"top", "[OPTIONS]", "watch what machines use: cpu, memory, disk, last command", cmd_top,
     top_rows},
    {"logs", "[OPTIONS] MACHINE [EXEC]", "list a machine's commands, or print one's output",
     cmd_logs, logs_rows},
    {"net", "MACHINE [allow|deny|ask|rm|show] [OPTIONS] [TARGET...]",
     "what a machine may reach, changed while it runs", cmd_net, net_rows},
    {"expose", "[--json] MACHINE [PORT]", "show a port inside a machine outside, with a token",
     cmd_expose, json_rows},
    {"grants", "[--json] MACHINE", "what a machine was handed", cmd_grants, json_rows},
    {"grant", "ls|add|revoke MACHINE [OPTIONS] [GRANT]",
     "hand a machine more, or take something back", cmd_grant, grant_rows},
    {"secret", "set|ls|rm [--json] [NAME...]", "values that machines use and never see", cmd_secret,
     json_rows},
    {"snap", "[OPTIONS] MACHINE [NAME]", "keep what a machine is now, under a name", cmd_snap,
     snap_rows},
    {"steps", "[OPTIONS] MACHINE", "list the steps (snapshots) of a machine", cmd_steps,
     steps_rows},
    {"diff", "[OPTIONS] MACHINE [FROM [TO]]",
     "what changed in its files between two steps, or since one", cmd_diff, diff_rows},
    {"rewind", "[OPTIONS] MACHINE STEP", "return to a step; what was there is kept as one",
     cmd_rewind, rewind_rows},
    {"fork", "[OPTIONS] MACHINE", "make machines from a step of this one", cmd_fork, fork_rows},
    {"do", "[OPTIONS] [MACHINE] TASK", "let a model carry out a task on a machine", cmd_do,
     do_rows},
    {"ship", "[OPTIONS] MACHINE[:PATH] [DIRECTORY]",
     "review what a machine hands out, then let it out", cmd_ship, ship_rows},
    {"image", "ls|show|import|export|build|tag|rm|prune [OPTIONS] [WORD...]",
     "what machines can start from: import, build, export, remove", cmd_image, image_rows},
    {"store", "check|init|boxes|adopt [OPTIONS] [ID]",
     "verify snapshot layers, set the disk format, adopt unknown boxes", cmd_store, store_rows},
    {"pending", "[--json]", "requests of machines that wait for an approval", cmd_pending,
     json_rows},
    {"approve", "[OPTIONS] ITEM...", "let requests that wait go on", cmd_approve, approve_rows},
    {"deny", "ITEM...", "refuse requests that wait", cmd_deny, help_rows},
    {"serve", "[OPTIONS]", "run the daemon in the foreground", cmd_serve, serve_rows},
    {"token", "new|ls|rm [OPTIONS]", "tokens for clients over TCP", cmd_token, token_rows},
    {"audit", "[verify [RECEIPT...]] [OPTIONS]", "show the journal, or prove that it is whole",
     cmd_audit, audit_rows},
    {"mcp", "[OPTIONS]", "serve a machine to an agent: MCP on standard input and output", cmd_mcp,
     mcp_rows},
    {"cell", "run|check|fuel|replay FILE ...", "WebAssembly programs with exact fuel", cmd_cell,
     NULL},
    {"wast", "[OPTIONS] FILE...", "run WebAssembly specification scripts", cmd_wast, NULL},
    {"doctor", "[--json]", "what this host offers, and how to mend what is missing", cmd_doctor,
     json_rows},
    {"completion", "bash|zsh", "print what a shell needs to complete our words", cmd_completion,
     help_rows},
    {"version", "", "print the version", cmd_version, help_rows},
    {"help", "[VERB]", "this overview, or one command's options", cmd_help, help_rows},
    {NULL, NULL, NULL, NULL, NULL},
};

const struct command *cli_find(const char *name) {
    for (const struct command *c = commands; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

int cli_fail(const struct err *err) {
    fputs("carrel: ", stderr);
    safe_name(stderr, err->text);
    fputs(err->remedy[0] ? ": " : "", stderr);
    safe_name(stderr, err->remedy);
    fputc('\n', stderr);
    return CLI_FAILED;
}

void cli_usage(const char *name) {
    const struct command *c = cli_find(name);
    assert(c);
    printf("usage: carrel %s%s%s\n\n%s.\n", c->name, *c->usage ? " " : "", c->usage, c->summary);
}

static void overview(FILE *to) {
    fputs("Carrel gives every AI agent its own computer.\n\nusage: carrel COMMAND [OPTIONS]\n\n",
          to);
    for (const struct command *c = commands; c->name; c++)
        fprintf(to, "  %-10s %s\n", c->name, c->summary);
    fputs("\n`carrel COMMAND --help` shows a command's options.\n", to);
}

int cli_words(int argc, char **argv, int words, bool *json, int *ret_status) {
    struct err err;
    int given = 0;
    for (int i = 1; i < argc; i++) {
        bool option = argv[i][0] == '-';
        if (option && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
            cli_usage(argv[0]);
            *ret_status = 0;
            return -1;
        }
        if (json && strcmp(argv[i], "--json") == 0) {
            *json = true;
        } else if (option || ++given > words) {
            err_set(&err, ERR_INVALID, option ? "unknown option '%s'" : "one word too many: '%s'",
                    argv[i]);
            err_remedy(&err, "see `carrel %s --help`", argv[0]);
            *ret_status = cli_fail(&err);
            return -1;
        }
    }
    return 0;
}

static int unknown(const char *name) {
    struct err err;
    err_set(&err, ERR_INVALID, "unknown command '%s'", name);
    err_remedy(&err, "see `carrel help`");
    return cli_fail(&err);
}

static int cmd_help(int argc, char **argv) {
    int status;
    const struct command *c = argc > 1 ? cli_find(argv[1]) : NULL;
    if (cli_words(argc, argv, 1, NULL, &status) < 0)
        return status;
    if (argc > 1 && !c)
        return unknown(argv[1]);
    if (c) {
        char *words[] = {argv[1], (char *)"--help", NULL};
        return c->run(2, words);
    }
    overview(stdout);
    return 0;
}

int cmd_version(int argc, char **argv) {
    int status;
    if (cli_words(argc, argv, 0, NULL, &status) < 0)
        return status;
    printf("carrel %s\n", CARREL_VERSION);
    return 0;
}

/* The engine is a program of its own: untrusted code never runs in this one. */
static int exec_cell(char **argv) {
    struct place place;
    struct err err;
    char program[PLACE_SIZE + 16];
    if (place_find(&place, &err) < 0)
        return cli_fail(&err);
    snprintf(program, sizeof(program), "%s/carrel-cell", place.libexec);
    execv(program, argv);
    err_sys(&err, "run '%s'", program);
    return cli_fail(&err);
}

int cmd_cell(int argc, char **argv) {
    if (argc < 2 || strcmp(argv[1], "--help") == 0) {
        cli_usage("cell");
        return argc < 2 ? 64 : 0;
    }
    argv[0] = (char *)"carrel-cell";
    return exec_cell(argv);
}

int cmd_wast(int argc, char **argv) {
    (void)argc;
    /* carrel-cell's first word is its verb, which is our own name: one word back. */
    argv[0] = (char *)"wast";
    argv[-1] = (char *)"carrel-cell";
    return exec_cell(argv - 1);
}

/* A stream the caller closed would become whatever is opened first, and be handed on as such. */
static bool fill_closed_streams(void) {
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) != fd)
            return false;
    return true;
}

int cli_main(int argc, char **argv) {
    if (!fill_closed_streams())
        return CLI_FAILED;
    if (argc < 2) {
        overview(stderr);
        return CLI_FAILED;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return cmd_help(1, argv);
    if (strcmp(argv[1], "--version") == 0)
        return cmd_version(1, argv);
    const struct command *c = cli_find(argv[1]);
    return c ? c->run(argc - 1, argv + 1) : unknown(argv[1]);
}
