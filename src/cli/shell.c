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

struct shell {
    struct command_options o;
    struct command_setup setup;
    struct client client;
    struct remote remote;
};

#define AT(member) offsetof(struct command_options, member)

const struct option_row sh_rows[] = {
    {'e', "env", "NAME[=VALUE]", OPTION_LIST, AT(env), ENV_HELP},
    {0, "env-file", "FILE", OPTION_LIST, AT(env_files), ENV_FILE_HELP},
    {'w', "cwd", "DIR", OPTION_TEXT, AT(cwd), CWD_HELP},
    {'u', "user", "NAME", OPTION_TEXT, AT(user), USER_HELP},
    {'t', "tty", NULL, OPTION_FLAG, AT(terminal), TTY_HELP},
    {'i', "interactive", NULL, OPTION_FLAG, AT(interactive), INTERACTIVE_HELP},
    {'T', "no-tty", NULL, OPTION_FLAG, AT(no_terminal), NO_TTY_HELP},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
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

static int shell_run(struct shell *s, const char *machine, const char *exec, struct err *err) {
    static const char *const login[] = {
        "/bin/sh", "-c", "if [ -x /bin/bash ]; then exec /bin/bash -l; fi; exec /bin/sh -l", NULL};
    static const char *const plain[] = {
        "/bin/sh", "-c", "if [ -x /bin/bash ]; then exec /bin/bash; fi; exec /bin/sh", NULL};
    struct session *session = &s->setup.session;
    s->remote = (struct remote){.client = &s->client, .machine = machine};
    session->remote = &s->remote;
    if (cli_machine_open(&s->client, machine, err) < 0 ||
        command_prepare(&s->setup, &s->o, (char **)plain, NULL, err) < 0)
        return -1;
    if (exec) {
        session->request.terminal = true;
        snprintf(s->remote.exec, sizeof(s->remote.exec), "%s", exec);
    }
    if (session->request.terminal)
        session->request.argv = login;
    session->detaches = session->request.terminal;
    if (session->detaches && isatty(STDIN_FILENO))
        session->hint = "to leave the shell running, " SESSION_LEAVE_HELP;
    return session_run(session, err);
}

static bool shell_left(const struct shell *s) {
    return s->setup.session.result.end == EXEC_END_DETACHED;
}

int cmd_sh(int argc, char **argv) {
    struct err err = {0};
    int next;
    struct shell *s DEFER(shell_free) = xnew(struct shell);
    if (options_parse(sh_rows, argc - 1, argv + 1, &s->o, &next, &err) < 0)
        return cli_fail(&err);
    if (s->o.help) {
        cli_usage("sh");
        options_print(sh_rows);
        return 0;
    }
    const char *machine = argv[1 + next], *exec = machine ? argv[2 + next] : NULL;
    if (exec && argv[3 + next])
        err_set(&err, ERR_INVALID, "unexpected argument '%s'", argv[3 + next]);
    else if (shell_run(s, machine, exec, &err) == 0 && !shell_left(s))
        return command_report(&s->setup, &s->o, &(struct command_end){.id = s->remote.id});
    else if (shell_left(s)) {
        fprintf(stderr, "\ncarrel: the shell continues; to return to it: carrel sh %s %s\n",
                machine, s->remote.exec);
        return 0;
    }
    return cli_fail(&err);
}
