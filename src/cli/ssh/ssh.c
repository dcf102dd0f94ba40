/* carrel ssh: OpenSSH's client in a machine, and the lines that let other programs use it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "cli/cli.h"
#include "cli/machine.h"
#include "cli/options.h"
#include "cli/ssh/inner.h"

struct ssh_options {
    const char *user;
    bool config, stdio, terminal, help;
};

#define AT(member) offsetof(struct ssh_options, member)

const struct option_row ssh_rows[] = {
    {'u', "user", "NAME", OPTION_TEXT, AT(user),
     "log in as this user of the machine (default: user)"},
    {'t', "tty", NULL, OPTION_FLAG, AT(terminal), "give the command a terminal"},
    {0, "config", NULL, OPTION_FLAG, AT(config),
     "print the lines for ~/.ssh/config: then ssh, scp and rsync work"},
    {0, "stdio", NULL, OPTION_FLAG, AT(stdio),
     "connect standard input and output to sshd, as a ProxyCommand"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

/* One `carrel ssh`. */
struct ssh_call {
    struct ssh_options o;
    const char *machine; /* as it was typed */
    char id[ID_SIZE], name[128], user[ACCOUNT_NAME_MAX + 1];
    struct ssh_files files;
};

/* Options of OpenSSH, as in its configuration. The machine gets no agent and no display. */
enum { SETTINGS = 9, SETTING = PATH_MAX + 128 };

struct ssh_setting {
    char text[SETTING]; /* "Name value" */
};

/* Quotes a word for the shell that OpenSSH runs, and doubles % for OpenSSH. */
static void quote(char *to, size_t size, const char *word) {
    size_t n = 0;
    for (; *word && n + 6 < size; word++) {
        if (*word == '\'')
            n += (size_t)snprintf(to + n, size - n, "'\\''");
        else
            n += (size_t)snprintf(to + n, size - n, *word == '%' ? "%%%%" : "%c", *word);
    }
    to[n] = '\0';
}

static int ssh_settings(const struct ssh_call *s, struct ssh_setting ret[SETTINGS],
                        struct err *err) {
    char self[PATH_MAX], quoted[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n < 0)
        return err_sys(err, "cannot find this program");
    self[n] = '\0';
    quote(quoted, sizeof(quoted), self);
    const struct {
        const char *name, *value;
    } rows[] = {
        {"HostKeyAlias", s->id},        {"User", s->user},
        {"IdentityFile", s->files.key}, {"UserKnownHostsFile", s->files.known},
        {"IdentitiesOnly", "yes"},      {"StrictHostKeyChecking", "yes"},
        {"ForwardAgent", "no"},         {"ForwardX11", "no"},
    };
    _Static_assert(sizeof(rows) / sizeof(*rows) == SETTINGS - 1, "and ProxyCommand");
    for (size_t i = 0; i < SETTINGS - 1; i++)
        snprintf(ret[i].text, SETTING, strchr(rows[i].value, '/') ? "%s \"%s\"" : "%s %s",
                 rows[i].name, rows[i].value);
    snprintf(ret[SETTINGS - 1].text, SETTING, "ProxyCommand '%s' ssh --stdio%s%s %s", quoted,
             s->o.user ? " --user " : "", s->o.user ? s->o.user : "", s->id);
    return 0;
}

static void print_config(const struct ssh_call *s, const struct ssh_setting *settings) {
    printf("Host carrel-%s\n    HostName %s\n", s->name, s->id);
    for (size_t i = 0; i < SETTINGS; i++)
        printf("    %s\n", settings[i].text);
}

/* Becomes OpenSSH's client. */
static int become_ssh(const struct ssh_call *s, const struct ssh_setting *settings, int count,
                      char **command, struct err *err) {
    const char **words = xcalloc((size_t)count + 2 * SETTINGS + 8, sizeof(*words));
    size_t n = 0;
    words[n++] = "ssh";
    for (size_t i = 0; i < SETTINGS; i++) {
        words[n++] = "-o";
        words[n++] = settings[i].text;
    }
    if (s->o.terminal)
        words[n++] = "-t";
    words[n++] = "--";
    words[n++] = s->id;
    for (int i = 0; i < count; i++)
        words[n++] = command[i];
    execvp("ssh", (char *const *)words);
    int failed = errno;
    free(words);
    if (failed != ENOENT)
        return err_num(err, -failed, "cannot run ssh");
    err_set(err, ERR_UNSUPPORTED, "ssh is not installed on this host");
    return err_remedy(err, "install it: apt install openssh-client");
}

/* Finds the machine. A cell has no users and no programs to log in to. */
static int find_machine(struct ssh_call *s, struct err *err) {
    struct client c DEFER(client_close) = {0};
    json_t *machine DEFER(json_decrefp) = NULL;
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    if (cli_machine_check(s->machine, err) < 0 ||
        client_target(target, err, "/v1/machines/%s", s->machine) < 0 ||
        cli_machine_open(&c, s->machine, err) < 0 || client_call(&c, &r, &machine, err) < 0)
        return -1;
    if (strcmp(client_text(machine, "kind"), "cell") == 0)
        return err_set(err, ERR_UNSUPPORTED, "machine '%s' is a cell, which has no sshd",
                       s->machine);
    snprintf(s->id, sizeof(s->id), "%s", client_text(machine, "id"));
    snprintf(s->name, sizeof(s->name), "%s", client_text(machine, "name"));
    if (!*s->name)
        snprintf(s->name, sizeof(s->name), "%s", s->id);
    return ssh_files_make(s->id, &s->files, err);
}

static int ssh_connect(struct ssh_call *s, int count, char **command, struct err *err) {
    struct ssh_setting *settings DEFER_FREE = xcalloc(SETTINGS, sizeof(*settings));
    if (s->o.user && !account_name_is_valid(s->o.user))
        return err_set(err, ERR_INVALID, "--user %s: not a valid name of a user", s->o.user);
    if (ssh_account(s->id, s->o.user, s->user, err) < 0 || ssh_settings(s, settings, err) < 0)
        return -1;
    if (!s->o.config)
        return become_ssh(s, settings, count, command, err);
    print_config(s, settings);
    return 0;
}

static int ssh_check(const struct ssh_call *s, int count, struct err *err) {
    if (s->o.config && s->o.stdio)
        return err_set(err, ERR_INVALID, "--config and --stdio exclude each other");
    if (count && (s->o.config || s->o.stdio))
        return err_set(err, ERR_INVALID, "--config and --stdio take only a machine");
    return 0;
}

int cmd_ssh(int argc, char **argv) {
    struct err err;
    int next, more = 0;
    struct ssh_call *s DEFER_FREE = xnew(struct ssh_call);
    if (options_parse(ssh_rows, argc - 1, argv + 1, &s->o, &next, &err) < 0)
        return cli_fail(&err);
    s->machine = argv[1 + next];
    /* Options may follow the machine, up to the command or "--". */
    if (s->machine &&
        options_parse(ssh_rows, argc - 2 - next, argv + 2 + next, &s->o, &more, &err) < 0)
        return cli_fail(&err);
    if (s->o.help) {
        cli_help("ssh");
        return 0;
    }
    int first = s->machine ? 2 + next + more : argc;
    if (ssh_check(s, argc - first, &err) < 0 || find_machine(s, &err) < 0)
        return cli_fail(&err);
    if (s->o.stdio)
        return ssh_way(&s->files, s->id, s->o.user);
    return ssh_connect(s, argc - first, argv + first, &err) < 0 ? cli_fail(&err) : 0;
}
