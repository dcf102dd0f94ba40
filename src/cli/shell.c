/*
 * carrel sh: opens a shell in a machine, or returns to one. The shell continues when the user
 * detaches, or when the terminal is closed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "cli/cli.h"
#include "cli/exec.h"
#include "cli/machine.h"
#include "cli/remote.h"
#include "cli/table.h"
#include "cli/text/colour.h"

struct shell_options {
    struct command_options command;
    const char *name;
    bool list;
};

struct shell {
    struct shell_options o;
    struct command_setup setup;
    struct client client;
    struct remote remote;
};

static const char *const login[] = {
    "/bin/sh", "-c", "if [ -x /bin/bash ]; then exec /bin/bash -l; fi; exec /bin/sh -l", NULL};
static const char *const plain[] = {
    "/bin/sh", "-c", "if [ -x /bin/bash ]; then exec /bin/bash; fi; exec /bin/sh", NULL};

#define AT(member) offsetof(struct shell_options, member)

const struct option_row sh_rows[] = {
    {0, "ls", NULL, OPTION_FLAG, AT(list), "list the machine's open shells"},
    {0, "name", "NAME", OPTION_TEXT, AT(name),
     "return to the open shell NAME; open it if there is none"},
    {'e', "env", "NAME[=VALUE]", OPTION_LIST, AT(command.env), ENV_HELP},
    {0, "env-file", "FILE", OPTION_LIST, AT(command.env_files), ENV_FILE_HELP},
    {'w', "cwd", "DIR", OPTION_TEXT, AT(command.cwd), CWD_HELP},
    {'u', "user", "NAME", OPTION_TEXT, AT(command.user), USER_HELP},
    {'t', "tty", NULL, OPTION_FLAG, AT(command.terminal), TTY_HELP},
    {'i', "interactive", NULL, OPTION_FLAG, AT(command.interactive), INTERACTIVE_HELP},
    {'T', "no-tty", NULL, OPTION_FLAG, AT(command.no_terminal), NO_TTY_HELP},
    {'q', "quiet", NULL, OPTION_FLAG, AT(command.quiet),
     "suppress Carrel's own messages; with --ls print only ids"},
    {0, "json", NULL, OPTION_FLAG, AT(command.json), "with --ls: print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(command.help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

static void shell_free(struct shell **slot) {
    if (!*slot)
        return;
    remote_done(&(*slot)->remote);
    client_close(&(*slot)->client);
    command_done(&(*slot)->setup);
    free(*slot);
}

/* ---- open shells ---- */

/* Gets the running commands of the machine, with and without a terminal. */
static int shell_list(struct client *c, const char *machine, json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request q = {.method = "GET", .target = target};
    return client_target(target, err, "/v1/machines/%s/execs?state=%s&limit=%s", machine, "running",
                         "1000") < 0
               ? -1
               : client_call(c, &q, ret, err);
}

int exec_find_running(struct client *c, const char *machine, const char *name, char ret[ID_SIZE],
                      struct err *err) {
    json_t *list DEFER(json_decrefp) = NULL;
    if (shell_list(c, machine, &list, err) < 0)
        return -1;
    const json_t *x = table_find(json_object_get(list, "execs"), "name", name);
    if (!x)
        return 0;
    snprintf(ret, ID_SIZE, "%s", client_text(x, "id"));
    return 1;
}

static int shell_find(struct shell *s, const char *machine, const char *name, struct err *err) {
    return exec_find_running(&s->client, machine, name, s->remote.exec, err);
}

static void print_shell(const json_t *x) {
    char age[16];
    const json_t *argv = json_object_get(x, "argv");
    const char *script = json_string_value(json_array_get(argv, 2));
    table_age(client_text(x, "started"), age);
    table_cell(*client_text(x, "name") ? client_text(x, "name") : "-", 14);
    table_cell(client_text(x, "id"), 14);
    table_cell(age, 4);
    table_cell(client_text(x, "user"), 8);
    table_cell(script && strcmp(script, login[2]) == 0 ? "shell"
                                                       : json_string_value(json_array_get(argv, 0)),
               0);
    putchar('\n');
}

/* carrel sh --ls: what `carrel sh` can return to, the commands with a terminal. */
static int shell_print_list(struct shell *s, const char *machine, struct err *err) {
    json_t *list DEFER(json_decrefp) = NULL;
    json_t *shells DEFER(json_decrefp) = json_pack("{s:[]}", "shells"), *x;
    size_t i;
    if (cli_machine_open(&s->client, machine, err) < 0 ||
        shell_list(&s->client, machine, &list, err) < 0)
        return -1;
    json_array_foreach(json_object_get(list, "execs"), i, x) {
        if (json_is_true(json_object_get(x, "terminal")))
            json_array_append(json_object_get(shells, "shells"), x);
    }
    if (s->o.command.json) {
        print_json(shells);
        return 0;
    }
    if (s->o.command.quiet) {
        print_ids(json_object_get(shells, "shells"), "id");
        return 0;
    }
    colour_heading("NAME            EXEC            AGE   USER      COMMAND");
    json_array_foreach(json_object_get(shells, "shells"), i, x) {
        print_shell(x);
    }
    return 0;
}

/* ---- one shell ---- */

/* Decides which shell to return to: by EXEC, which must exist, or by --name, if it runs. */
static int shell_choose(struct shell *s, const char *machine, const char *exec, struct err *err) {
    struct session_request *request = &s->setup.session.request;
    if (exec && strncmp(exec, "x-", 2) != 0) {
        int found = shell_find(s, machine, exec, err);
        if (found != 0)
            return found < 0 ? -1 : 0;
        err_set(err, ERR_NOT_FOUND, "machine '%s' has no open shell '%s'", machine, exec);
        return err_remedy(err, "see carrel sh --ls %s", machine);
    }
    if (exec)
        snprintf(s->remote.exec, sizeof(s->remote.exec), "%s", exec);
    if (!s->o.name)
        return 0;
    if (!request->terminal) {
        err_set(err, ERR_INVALID, "--name requires a terminal");
        return err_remedy(err, "use -t");
    }
    request->name = s->o.name;
    return shell_find(s, machine, s->o.name, err) < 0 ? -1 : 0;
}

/* Runs the session. If another client has opened a shell of this name meanwhile, returns to it. */
static int shell_session(struct shell *s, const char *machine, struct err *err) {
    struct session *session = &s->setup.session;
    bool opens = !s->remote.exec[0];
    if (session_run(session, err) == 0)
        return 0;
    if (!opens || !s->o.name || err->code != ERR_EXISTS ||
        shell_find(s, machine, s->o.name, err) <= 0)
        return -1;
    return session_run(session, err);
}

static int shell_run(struct shell *s, const char *machine, const char *exec, struct err *err) {
    struct session *session = &s->setup.session;
    s->remote = (struct remote){.client = &s->client, .machine = machine};
    session->remote = &s->remote;
    if (cli_machine_open(&s->client, machine, err) < 0 ||
        command_prepare(&s->setup, &s->o.command, (char **)plain, NULL, err) < 0 ||
        shell_choose(s, machine, exec, err) < 0)
        return -1;
    session->request.terminal |= s->remote.exec[0] != '\0';
    if (session->request.terminal)
        session->request.argv = login;
    session->detaches = session->request.terminal;
    if (session->detaches && isatty(STDIN_FILENO) && !s->o.command.quiet)
        session->hint = "to leave the shell running, " SESSION_LEAVE_HELP;
    return shell_session(s, machine, err);
}

static bool shell_left(const struct shell *s) {
    return s->setup.session.result.end == EXEC_END_DETACHED;
}

/* Refuses options that exclude each other. */
static int shell_check(const struct shell *s, const char *exec, struct err *err) {
    const struct shell_options *o = &s->o;
    if (o->list && (exec || o->name))
        return err_set(err, ERR_INVALID, "--ls takes only a machine");
    if (o->name && exec)
        return err_set(err, ERR_INVALID, "--name and EXEC exclude each other");
    return o->command.json && !o->list ? err_set(err, ERR_INVALID, "--json requires --ls") : 0;
}

int cmd_sh(int argc, char **argv) {
    struct err err = {0};
    char *words[2] = {NULL, NULL};
    struct shell *s DEFER(shell_free) = xnew(struct shell);
    if (options_words(sh_rows, argc, argv, &s->o, words, 2, &err) < 0)
        return cli_fail(&err);
    if (s->o.command.help) {
        cli_usage("sh");
        options_print(sh_rows);
        return 0;
    }
    const char *machine = words[0], *exec = words[1];
    if (shell_check(s, exec, &err) < 0)
        return cli_fail(&err);
    if (s->o.list)
        return shell_print_list(s, machine, &err) < 0 ? cli_fail(&err) : 0;
    if (shell_run(s, machine, exec, &err) < 0)
        return cli_fail(&err);
    if (!shell_left(s))
        return command_report(&s->setup, &s->o.command, &(struct command_end){.id = s->remote.id});
    if (!s->o.command.quiet)
        fprintf(stderr, "\ncarrel: the shell continues; to return to it: carrel sh %s %s\n",
                machine, s->o.name ? s->o.name : s->remote.exec);
    return 0;
}
