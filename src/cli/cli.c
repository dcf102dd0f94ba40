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

static const struct command commands[] = {
    {"run", "[OPTIONS] [--] COMMAND [ARG...]",
     "run a command in a fresh box, thrown away afterwards", cmd_run},
    {"exec", "[OPTIONS] MACHINE [--] COMMAND [ARG...]", "run a command in a kept machine",
     cmd_exec},
    {"sh", "[OPTIONS] MACHINE [EXEC]", "a shell in a machine, or back to one", cmd_sh},
    {"cp", "[OPTIONS] SOURCE DESTINATION", "copy files in and out: MACHINE:PATH on one side",
     cmd_cp},
    {"new", "[OPTIONS]", "make a machine that stays, and print its id", cmd_new},
    {"show", "[--json] MACHINE", "show one machine", cmd_show},
    {"ls", "[--json]", "list the machines that are there", cmd_ls},
    {"rm", "MACHINE...", "end machines and remove all that is left of them", cmd_rm},
    {"pause", "[--json] MACHINE", "freeze every process of a machine; memory is kept", cmd_pause},
    {"resume", "[--json] MACHINE", "let it go on after pause or stop", cmd_resume},
    {"stop", "[--json] MACHINE", "end every process of a machine; files are kept", cmd_stop},
    {"stats", "[--json] [MACHINE]", "what a machine uses, or what the daemon does", cmd_stats},
    {"logs", "[OPTIONS] MACHINE [EXEC]", "list a machine's commands, or print one's output",
     cmd_logs},
    {"net", "MACHINE [allow|deny|ask|rm|show] [OPTIONS] [TARGET...]",
     "what a machine may reach, changed while it runs", cmd_net},
    {"snap", "[--json] MACHINE [NAME]", "keep what a machine is now, under a name", cmd_snap},
    {"log", "[OPTIONS] MACHINE", "what a machine was after each change", cmd_log},
    {"rewind", "[OPTIONS] MACHINE STEP", "return to a step; what was there is kept as one",
     cmd_rewind},
    {"fork", "[OPTIONS] MACHINE", "make machines from a step of this one", cmd_fork},
    {"pending", "[--json]", "requests of machines that wait for an approval", cmd_pending},
    {"approve", "[--once|--always|--for TIME] ITEM...", "let requests that wait go on",
     cmd_approve},
    {"deny", "ITEM...", "refuse requests that wait", cmd_deny},
    {"serve", "[OPTIONS]", "run the daemon in the foreground", cmd_serve},
    {"token", "new|ls|rm [OPTIONS]", "tokens for clients over TCP", cmd_token},
    {"audit", "[verify] [OPTIONS]", "show the journal, or prove that it is whole", cmd_audit},
    {"mcp", "[OPTIONS]", "serve a machine to an agent: MCP on standard input and output", cmd_mcp},
    {"cell", "run|check|fuel|replay FILE ...", "WebAssembly programs with exact fuel", cmd_cell},
    {"wast", "[OPTIONS] FILE...", "run WebAssembly specification scripts", cmd_wast},
    {"doctor", "[--json]", "what this host offers, and how to mend what is missing", cmd_doctor},
    {"version", "", "print the version", cmd_version},
    {"help", "[COMMAND]", "this overview, or one command's options", cmd_help},
};
enum { COMMANDS = sizeof(commands) / sizeof(*commands) };

static const struct command *find(const char *name) {
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
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
    const struct command *c = find(name);
    assert(c);
    printf("usage: carrel %s%s%s\n\n%s.\n", c->name, *c->usage ? " " : "", c->usage, c->summary);
}

static void overview(FILE *to) {
    fputs("Carrel gives every AI agent its own computer.\n\nusage: carrel COMMAND [OPTIONS]\n\n",
          to);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-9s %s\n", commands[i].name, commands[i].summary);
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
    const struct command *c = argc > 1 ? find(argv[1]) : NULL;
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
    const struct command *c = find(argv[1]);
    return c ? c->run(argc - 1, argv + 1) : unknown(argv[1]);
}
