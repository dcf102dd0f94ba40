#include "cli/cli.h"

#include <assert.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "base/defer.h"
#include "base/jot.h"
#include "cli/safe.h"
#include "cli/text/choices.h"
#include "cli/text/colour.h"
#include "cli/text/habits.h"
#include "cli/text/nearest.h"
#include "io/place.h"

enum { FORM_WIDTH = 36 };

static int cmd_help(int argc, char **argv);

const struct option_row list_rows[] = {
    {'q', "quiet", NULL, OPTION_FLAG, offsetof(struct list_flags, quiet), "print only ids"},
    {0, "json", NULL, OPTION_FLAG, offsetof(struct list_flags, json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, 0, "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};
const struct option_row done_rows[] = {
    {'q', "quiet", NULL, OPTION_FLAG, offsetof(struct done_flags, quiet), DONE_QUIET_HELP},
    {0, "json", NULL, OPTION_FLAG, offsetof(struct done_flags, json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, offsetof(struct done_flags, help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};
/* Options of commands that use cli_words(). */
#define json_rows (list_rows + 1)
#define help_rows (list_rows + 2)

const struct command commands[] = {
    {"run", "[OPTIONS] [[--] COMMAND [ARG...]]", "run a command in a new machine, then delete it",
     cmd_run, run_rows, "Run commands"},
    {"exec", "[OPTIONS] MACHINE [--] COMMAND [ARG...]", "run a command in a machine", cmd_exec,
     exec_rows, NULL},
    {"sh", "[OPTIONS] MACHINE [EXEC]", "open a shell in a machine, or return to an open one",
     cmd_sh, sh_rows, NULL, NULL, sh_notes},
    {"ssh", "[OPTIONS] MACHINE [COMMAND [ARG...]]",
     "log in to a machine with OpenSSH, or let scp and rsync do so", cmd_ssh, ssh_rows, NULL, NULL,
     ssh_notes},
    {"cp", "[OPTIONS] SOURCE DESTINATION", "copy files to or from a machine (MACHINE:PATH)", cmd_cp,
     cp_rows, NULL},
    {"logs", "[OPTIONS] MACHINE [EXEC]", "list a machine's commands, or print the output of one",
     cmd_logs, logs_rows, NULL},

    {"new", "[OPTIONS]", "create a machine and print its id", cmd_new, new_rows, "Machines"},
    {"ls", "[OPTIONS]", "list machines", cmd_ls, ls_rows, NULL},
    {"show", "[--json] MACHINE", "show one machine", cmd_show, json_rows, NULL},
    {"set", "[OPTIONS] MACHINE", "change a machine's limits, ttl, idle time or metadata", cmd_set,
     set_rows, NULL},
    {"rename", "[OPTIONS] MACHINE|MACHINE@STEP NAME", "change the name of a machine, or of a step",
     cmd_rename, done_rows, NULL, rename_forms},
    {"rm", "[OPTIONS] MACHINE...", "delete machines and everything in them", cmd_rm, rm_rows, NULL},
    {"pause", "[--json] MACHINE", "freeze what runs in a machine; in a vm or cell, save it",
     cmd_pause, json_rows, NULL},
    {"hibernate", "[--json] [--files-only] MACHINE",
     "save a machine's processes to disk, if the host supports it", cmd_hibernate, hibernate_rows,
     NULL},
    {"stop", "[--json] MACHINE", "end a machine's processes and keep its files", cmd_stop,
     json_rows, NULL},
    {"move", "[OPTIONS] MACHINE", "make a box a vm with the same files and grants", cmd_move,
     move_rows, NULL},
    {"serial", "[OPTIONS] MACHINE", "show a vm's serial console, and type into it", cmd_serial,
     serial_rows, NULL, NULL, serial_notes},
    {"timer", "add|ls|rm [OPTIONS] MACHINE [TIMER | COMMAND [ARG...]]",
     "let a machine run commands at set times", cmd_timer, timer_rows, NULL, timer_forms,
     timer_notes},
    {"resume", "[--json] MACHINE", "start a machine again after pause, hibernate or stop",
     cmd_resume, json_rows, NULL},
    {"stats", "[--json] [MACHINE]", "show the resource use of a machine or of the daemon",
     cmd_stats, json_rows, NULL},
    {"health", "[--json] MACHINE", "check a machine: guest, disk and memory", cmd_health, json_rows,
     NULL, NULL, health_notes},
    {"top", "[OPTIONS]", "watch the cpu, memory and disk use of all machines", cmd_top, top_rows,
     NULL},

    {"snap", "[OPTIONS] MACHINE [NAME]", "take a step (a snapshot) now, with a name", cmd_snap,
     snap_rows, "Steps (snapshots)"},
    {"steps", "[OPTIONS] MACHINE [STEP]", "list a machine's steps (snapshots), or show one",
     cmd_steps, steps_rows, NULL, NULL, steps_notes},
    {"diff", "[OPTIONS] MACHINE [FROM [TO]]",
     "show which files changed between two steps (snapshots)", cmd_diff, diff_rows, NULL},
    {"rewind", "[OPTIONS] MACHINE STEP",
     "return a machine's files to a step; save the present ones first", cmd_rewind, rewind_rows,
     NULL},
    {"reinstall", "[OPTIONS] MACHINE",
     "return a machine to its image; save the present files first", cmd_reinstall, reinstall_rows,
     NULL, NULL, reinstall_notes},
    {"fork", "[OPTIONS] MACHINE", "create new machines from a step (snapshot) of a machine",
     cmd_fork, fork_rows, NULL},

    {"agent", "claude|codex|opencode|gemini|ls|update|import-settings|accept [OPTIONS] [-- ARG...]",
     "run an agent on a copy of this directory, then review its changes", cmd_agent, agent_rows,
     "Agents", agent_forms},
    {"do", "[OPTIONS] [MACHINE] [TASK]", "let a model carry out a task in a machine", cmd_do,
     do_rows, NULL},
    {"mcp", "[OPTIONS]", "serve a machine to an agent over MCP on stdin and stdout", cmd_mcp,
     mcp_rows, NULL},
    {"ship", "[OPTIONS] MACHINE[:PATH] [DIRECTORY]",
     "review a machine's changes and copy them to this host", cmd_ship, ship_rows, NULL},
    {"pending", "[OPTIONS]", "list requests of machines that wait for your approval", cmd_pending,
     pending_rows, NULL},
    {"approve", "[OPTIONS] ITEM...", "approve requests that carrel pending lists", cmd_approve,
     approve_rows, NULL},
    {"answer", "[OPTIONS] ITEM TEXT", "answer a question that carrel pending lists", cmd_answer,
     answer_rows},
    {"deny", "[OPTIONS] ITEM...", "refuse requests that carrel pending lists", cmd_deny, deny_rows,
     NULL},
    {"events", "[OPTIONS] [MACHINE]", "print what happens to machines, images and runs", cmd_events,
     events_rows, NULL},

    {"net", "MACHINE [allow|deny|ask|rm|show] [OPTIONS] [TARGET...]",
     "show or change what a machine may connect to", cmd_net, net_rows, "Network and grants",
     net_forms, net_notes},
    {"expose", "[OPTIONS] MACHINE [PORT]",
     "make a machine's port reachable over HTTP, with a token or for everybody", cmd_expose,
     expose_rows, NULL, expose_forms},
    {"forward", "[OPTIONS] MACHINE [LOCAL:]PORT...",
     "connect TCP ports of this host to ports of a machine", cmd_forward, forward_rows, NULL, NULL,
     forward_notes},
    {"desktop", "MACHINE start|screenshot|click|move|scroll|type|key [OPTIONS] [WORD...]",
     "look at a machine's desktop, click and type", cmd_desktop, desktop_rows, NULL, desktop_forms},
    {"grants", "[OPTIONS] MACHINE", "list a machine's grants, such as directories and secrets",
     cmd_grants, list_rows, NULL},
    {"grant", "ls|show|add|revoke MACHINE [OPTIONS] [GRANT]",
     "add or revoke a machine's grants, such as files and secrets", cmd_grant, grant_rows, NULL,
     grant_forms},
    {"secret", "set|ls|show|rm [OPTIONS] [NAME]",
     "manage secrets, which machines use but never see", cmd_secret, secret_rows, NULL,
     secret_forms},
    {"login", "claude|codex|ls|rm [OPTIONS] [LOGIN]",
     "manage subscription logins, which agents use but never see", cmd_login, login_rows, NULL,
     login_forms, login_notes},
    {"volume", "create|ls|show|snap|rm [OPTIONS] [VOLUME] [NAME]",
     "manage volumes, disks that outlive machines", cmd_volume, volume_rows, NULL, volume_forms},
    {"backup", "[ls|verify|restore|forget|prune] [OPTIONS] [MACHINE|BACKUP]",
     "back up machines, and create machines from backups", cmd_backup, backup_rows, NULL,
     backup_forms},
    {"models", "[ls|usage|show|raise] [OPTIONS] [MACHINE]", "list models, their cost and budgets",
     cmd_models, models_rows, NULL, models_forms},

    {"image",
     "ls|show|import|export|build|builds|log|cancel|tag|pull|push|rm|prune|cache [OPTIONS] "
     "[WORD...]",
     "import, build, export and delete images", cmd_image, image_rows, "Images and storage",
     image_forms},
    {"store", "check|init|boxes|adopt [OPTIONS] [ID]",
     "verify snapshots, set the disk format, adopt orphan machines", cmd_store, store_rows, NULL,
     store_forms},

    {"serve", "[OPTIONS]", "run the daemon in the foreground", cmd_serve, serve_rows, "This host"},
    {"console", "[OPTIONS]", "open the console in a browser, or print a link to it", cmd_console,
     console_rows, NULL},
    {"doctor", "[--json]", "check what this host supports, and suggest fixes", cmd_doctor,
     json_rows, NULL},
    {"token", "new|ls|show|rm [OPTIONS] [TOKEN...]",
     "manage access tokens of clients that connect over TCP", cmd_token, token_rows, NULL,
     token_forms},
    {"e2b", "env [OPTIONS]", "print the environment of programs that use the E2B SDK", cmd_e2b,
     e2b_rows, NULL, e2b_forms},
    {"audit", "[verify [RECEIPT...]] [OPTIONS]", "print the audit journal, or verify it", cmd_audit,
     audit_rows, NULL, audit_forms},

    {"cell", "run|check|fuel|replay|warm FILE ...",
     "run WebAssembly programs and count their instructions (fuel)", cmd_cell, NULL, "Other"},
    {"wast", "[OPTIONS] FILE...", "run WebAssembly specification scripts", cmd_wast, NULL, NULL},
    {"completion", "bash|zsh|fish", "print a shell completion script", cmd_completion, help_rows,
     NULL},
    {"version", "", "print the version", cmd_version, help_rows, NULL},
    {"help", "[VERB]", "list commands, or show one command's options", cmd_help, help_rows, NULL},
    {NULL, NULL, NULL, NULL, NULL, NULL},
};

const struct command *cli_find(const char *name) {
    for (const struct command *c = commands; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

static bool fails_as_json; /* the command was given --json */

/* Prints the error as the API does. */
static void fail_in_json(const struct err *err) {
    struct buf text DEFER(buf_done) = BUF(16 * sizeof(*err));
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_object(&j, "error");
    jot_string(&j, "code", err_code_name(err->code));
    jot_string(&j, "message", err->text);
    if (err->remedy[0])
        jot_string(&j, "remedy", err->remedy);
    jot_end(&j, '}');
    jot_end(&j, '}');
    safe_json_line(j.failed ? "{\"error\":{\"code\":\"internal\",\"message\":\"\"}}" : text.data);
}

int cli_fail(const struct err *err) {
    if (fails_as_json)
        fail_in_json(err);
    fputs("carrel: ", stderr);
    safe_name(stderr, err->text);
    fputs(err->remedy[0] ? ": " : "", stderr);
    safe_name(stderr, err->remedy);
    fputc('\n', stderr);
    return CLI_FAILED;
}

void cli_done(bool quiet, const char *format, ...) {
    char text[1024];
    va_list ap;
    if (quiet)
        return;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    fflush(stdout);
    fputs("carrel: ", stderr);
    safe_name(stderr, text);
    fputc('\n', stderr);
}

void cli_usage(const char *name) {
    const struct command *c = cli_find(name);
    assert(c);
    printf("usage: carrel %s%s%s\n\n%s.\n", c->name, *c->usage ? " " : "", c->usage, c->summary);
    if (c->forms)
        puts("");
    for (const struct form *f = c->forms; f && f->usage; f++)
        printf("  %-*s %s\n", FORM_WIDTH, f->usage, f->summary);
    if (c->notes) { /* printf() of safe.h would escape the line breaks */
        puts("");
        puts(c->notes);
    }
    if (c->forms || c->notes)
        puts("");
}

void cli_help(const char *name) {
    cli_usage(name);
    options_print(cli_find(name)->options);
}

static void overview(FILE *to) {
    fputs("Carrel gives every AI agent its own computer.\n\nusage: carrel COMMAND [OPTIONS]\n", to);
    for (const struct command *c = commands; c->name; c++) {
        if (c->group && to == stdout) {
            fputs("\n", to);
            colour_begin(COLOUR_BOLD);
            printf("%s:", c->group);
            colour_end();
            fputs("\n", to);
        } else if (c->group) {
            fprintf(to, "\n%s:\n", c->group);
        }
        fprintf(to, "  %-10s %s\n", c->name, c->summary);
    }
    fputs("\n`carrel COMMAND --help` shows a command's options.\n", to);
}

static bool is_option(const char *word, const char *letter, const char *name) {
    return strcmp(word, letter) == 0 || strcmp(word, name) == 0;
}

/* `rows` is the option table list_rows, or its end: json_rows or help_rows. */
static int read_words(int argc, char **argv, int words, const struct option_row *rows,
                      struct list_flags *ret, int *ret_status) {
    struct err err;
    int given = 0;
    for (int i = 1; i < argc; i++) {
        bool option = argv[i][0] == '-';
        if (is_option(argv[i], "-h", "--help")) {
            cli_usage(argv[0]);
            options_print(rows);
            *ret_status = 0;
            return -1;
        }
        if (rows != help_rows && is_option(argv[i], "--json", "--json")) {
            ret->json = true;
        } else if (rows == list_rows && is_option(argv[i], "-q", "--quiet")) {
            ret->quiet = true;
        } else if (option || ++given > words) {
            if (option) {
                options_unknown(rows, argv[i], &err);
            } else {
                err_set(&err, ERR_INVALID, "unexpected argument '%s'", argv[i]);
                err_remedy(&err, "see carrel %s --help", argv[0]);
            }
            *ret_status = cli_fail(&err);
            return -1;
        }
    }
    return 0;
}

int cli_words(int argc, char **argv, int words, bool *json, int *ret_status) {
    struct list_flags flags = {.json = false};
    int r = read_words(argc, argv, words, json ? json_rows : help_rows, &flags, ret_status);
    if (json)
        *json |= flags.json;
    return r;
}

int cli_list_words(int argc, char **argv, int words, struct list_flags *ret, int *ret_status) {
    return read_words(argc, argv, words, list_rows, ret, ret_status);
}

static int unknown(const char *name) {
    struct err err;
    struct nearest near = NEAREST(name);
    const char *answer = habit_answer(name);
    for (const struct command *c = commands; c->name; c++)
        nearest_try(&near, c->name);
    err_set(&err, ERR_INVALID, "unknown command '%s'", name);
    if (answer)
        err_remedy(&err, "use %s", answer);
    else if (near.best)
        err_remedy(&err, "did you mean 'carrel %s'?", near.best);
    else
        err_remedy(&err, "see carrel help");
    return cli_fail(&err);
}

int cli_unknown_subcommand(const char *command, const char *word, struct err *err) {
    const struct command *c = cli_find(command);
    char choices[128], all[160], *rest = choices;
    assert(c);
    struct nearest near = NEAREST(word);
    const char *from = strchr(c->usage, '|');
    while (from && from > c->usage && from[-1] != ' ' && from[-1] != '[')
        from--;
    snprintf(choices, sizeof(choices), "%s", from ? from : "");
    choices[strcspn(choices, " ]")] = '\0';
    choices_say(choices, all, sizeof(all));
    for (const char *one; (one = strsep(&rest, "|"));)
        nearest_try(&near, one);
    if (*word)
        err_set(err, ERR_INVALID, "unknown subcommand '%s'", word);
    else
        err_set(err, ERR_INVALID, "carrel %s requires a subcommand", command);
    if (near.best)
        return err_remedy(err, "did you mean '%s'?", near.best);
    return *all ? err_remedy(err, "use %s; see carrel %s --help", all, command)
                : err_remedy(err, "see carrel %s --help", command);
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

/* The WebAssembly engine is another program, so that untrusted code never runs in this process. */
static int exec_cell(char **argv) {
    struct place place;
    struct err err;
    char program[PLACE_SIZE + 16];
    if (place_find(&place, &err) < 0)
        return cli_fail(&err);
    snprintf(program, sizeof(program), "%s/carrel-cell", place.libexec);
    execv(program, argv);
    err_sys(&err, "cannot run program '%s'", program);
    return cli_fail(&err);
}

int cmd_cell(int argc, char **argv) {
    (void)argc;
    argv[0] = (char *)"carrel-cell";
    return exec_cell(argv);
}

int cmd_wast(int argc, char **argv) {
    (void)argc;
    /* carrel-cell expects the verb as argv[1]: start one element earlier. */
    argv[0] = (char *)"wast";
    argv[-1] = (char *)"carrel-cell";
    return exec_cell(argv - 1);
}

/* Opens /dev/null for closed standard streams: else the next open() would return descriptor 0, 1
 * or 2. */
static bool fill_closed_streams(void) {
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY) != fd)
            return false;
    return true;
}

/*
 * True if --json is among the options of the command, also behind an option that is wrong. The
 * words of a command to run in a machine do not count.
 */
static bool has_json(const struct command *c, int argc, char **argv) {
    int words = 0,
        most = strstr(c->usage, "COMMAND") ? (strstr(c->usage, "MACHINE") ? 1 : 0) : argc;
    bool known = false;
    for (const struct option_row *r = c->options; r && r->name; r++)
        known |= strcmp(r->name, "json") == 0;
    for (int i = 1; known && i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--json") == 0)
            return true;
        if (argv[i][0] != '-' && ++words > most)
            return false;
        if (argv[i][0] == '-' && options_awaiting(c->options, argv[i]))
            i++;
    }
    return false;
}

static int run_command(const struct command *c, int argc, char **argv) {
    fails_as_json = has_json(c, argc, argv);
    return c->run(argc, argv);
}

/* Runs the command of Carrel that a command name of another tool (Docker) stands for. */
static int run_habit(int argc, char **argv) {
    bool json;
    const char *name = habit_command(argv[0], &json);
    char **words DEFER_FREE = xcalloc((size_t)argc + 2, sizeof(*words));
    if (!name)
        return unknown(argv[0]);
    int count = 0;
    words[count++] = (char *)name;
    if (json)
        words[count++] = (char *)"--json";
    for (int i = 1; i < argc; i++)
        words[count++] = argv[i];
    return run_command(cli_find(name), count, words);
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
    return c ? run_command(c, argc - 1, argv + 1) : run_habit(argc - 1, argv + 1);
}
