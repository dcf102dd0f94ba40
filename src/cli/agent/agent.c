/* carrel agent: the command, its options, and its subcommands. */
#include "cli/agent/agent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "cli/cli.h"
#include "cli/session.h"
#include "cli/table.h"
#include "cli/text/colour.h"

#define AT(member) offsetof(struct agent_options, member)

const struct option_row agent_rows[] = {
    {'p', "prompt", "TASK", OPTION_TEXT, AT(task),
     "carry out one task without a terminal or questions, for scripts"},
    {0, "resume", NULL, OPTION_FLAG, AT(resume), "continue the agent's last session"},
    {0, "fresh", NULL, OPTION_FLAG, AT(fresh),
     "delete the agent's machine first, and make one with the present files"},
    {0, "no-project", NULL, OPTION_FLAG, AT(no_project), "ignore the file .carrel/agent.conf"},
    {0, "budget", "any|AMOUNT|tokens=N|money=X", OPTION_TEXT, AT(budget),
     "new machine: limit of its model calls (default: from [agents] of carrel.conf)"},
    {0, "login", NULL, OPTION_FLAG, AT(login),
     "new machine: use your subscription login instead of a key (see carrel login --help)"},
    {0, "image", "IMAGE", OPTION_TEXT, AT(made.image),
     "new machine: image to start from (default: host, the programs of this host)"},
    {'m', "mem", "SIZE", OPTION_SIZE, AT(made.spec.mem), "new machine: memory limit (default: 2G)"},
    {'c', "cpus", "N", OPTION_MILLI, AT(made.spec.cpu_milli),
     "new machine: cpu limit, such as 0.5 (default: unlimited)"},
    {0, "disk", "SIZE", OPTION_SIZE, AT(made.spec.disk), "new machine: disk limit (default: 1G)"},
    {0, "net", "[allow:|deny:|ask:]TARGET[,local]", OPTION_LIST, AT(made.net),
     "new machine: allow connections to TARGET (see carrel net --help)"},
    {'e', "env", "NAME[=VALUE]", OPTION_LIST, AT(made.env),
     "new machine: set a variable for all commands, or pass on the caller's value"},
    {0, "keep", NULL, OPTION_FLAG, AT(keep),
     "do not ask at the end: keep the changes in the machine"},
    {'y', "yes", NULL, OPTION_FLAG, AT(yes), "do not ask: --fresh, import-settings, accept"},
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet),
     "suppress Carrel's own messages; ls: print only ids"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "ls, update: print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};
#undef AT

static void agent_announce(void) {
    fputs("carrel: preparing this host for its first machine...\n", stderr);
}

static void agent_free(struct agent **slot) {
    if (!*slot)
        return;
    json_decref((*slot)->conf);
    agent_accept_free((*slot)->project);
    free(*slot);
}

/* ---- ls ---- */

static void agent_print(const json_t *m) {
    char age[16];
    const json_t *meta = json_object_get(m, "metadata");
    const char *state = client_text(m, "state");
    table_age(client_text(m, "created"), age);
    table_cell(client_text(meta, "agent"), 10);
    table_cell(client_text(m, "name"), 30);
    colour_begin(colour_of_state(state));
    table_cell(state, 8);
    colour_end();
    table_cell(age, 4);
    table_cell(client_text(meta, "agent_dir"), 0);
    putchar('\n');
}

static int agent_ls(struct agent *a, char **words, struct err *err) {
    json_t *list DEFER(json_decrefp) = NULL, *m;
    size_t i;
    if (words[0])
        return err_set(err, ERR_INVALID, "unexpected argument '%s'", words[0]);
    if (agent_machines(a->client, NULL, NULL, &list, err) < 0)
        return -1;
    if (a->o->json) {
        print_json(list);
        return 0;
    }
    if (a->o->quiet) {
        print_ids(json_object_get(list, "machines"), "id");
        return 0;
    }
    colour_heading("AGENT       MACHINE                         STATE     AGE   DIRECTORY");
    json_array_foreach(json_object_get(list, "machines"), i, m) {
        agent_print(m);
    }
    return 0;
}

/* ---- update ---- */

static int agent_install(struct agent *a, const struct agent_row *row, json_t *to,
                         struct err *err) {
    char program[PATH_MAX];
    bool was = agent_program_is_there(row, program);
    if (!was && agent_program_make(a->client, row, a->o->quiet || a->o->json, program, err) < 0)
        return -1;
    json_array_append_new(
        json_object_get(to, "agents"),
        json_pack("{s:s, s:s, s:s}", "name", row->name, "version", row->version, "path", program));
    if (!a->o->json && !a->o->quiet)
        printf("%s %s %s\n", row->name, row->version, was ? "is installed" : "was installed");
    return 0;
}

/* Installs the version that this version of Carrel knows. Machines keep the one they started with.
 */
static int agent_update(struct agent *a, char **words, struct err *err) {
    json_t *done DEFER(json_decrefp) = json_pack("{s:[]}", "agents");
    if (words[0] && words[1])
        return err_set(err, ERR_INVALID, "unexpected argument '%s'", words[1]);
    if (words[0] && agent_find(a, words[0], err) < 0)
        return -1;
    if (words[0] && !a->row->packages) {
        err_set(err, ERR_INVALID, "agent '%s' is part of its image", words[0]);
        return err_remedy(err, "build the image again: carrel image build");
    }
    for (size_t i = 0; i < agent_count; i++)
        if ((!a->row || a->row == &agent_table[i]) &&
            agent_install(a, &agent_table[i], done, err) < 0)
            return -1;
    if (a->o->json)
        print_json(done);
    return 0;
}

/* ---- an agent ---- */

/* Runs the agent until its work is shipped, kept or discarded; returns its last exit status. */
static int agent_loop(struct agent *a, struct err *err) {
    const char *task = a->o->task;
    char *comment DEFER_FREE = NULL;
    bool resume = a->o->resume, left = false;
    if (agent_project_task(a, &task, err) < 0 || (a->is_new && agent_setup(a, err) < 0))
        return -1;
    for (;;) {
        int status = agent_launch(a, resume, task, &left, err);
        if (status < 0)
            return -1;
        if (left) {
            cli_done(a->o->quiet, "the agent continues; to return to it: carrel agent %s",
                     a->row->name);
            return 0;
        }
        if (a->o->task) {
            cli_done(a->o->quiet, "to review the changes: carrel ship %s%s",
                     a->slice.is_repo ? "--uncommitted " : "", a->name);
            return status;
        }
        free(comment);
        if (agent_after(a, &comment, err) < 0)
            return -1;
        if (!comment)
            return status;
        task = comment;
        resume = true;
    }
}

static int agent_check(const struct agent *a, struct err *err) {
    if (a->o->json)
        return err_set(err, ERR_INVALID, "--json requires ls or update");
    if (a->o->task && !*a->o->task)
        return err_set(err, ERR_INVALID, "--prompt: the task is empty");
    if (a->o->task || session_wants_terminal())
        return 0;
    err_set(err, ERR_INVALID, "carrel agent %s requires a terminal", a->row->name);
    return err_remedy(err, "for scripts: carrel agent %s -p TASK", a->row->name);
}

static int agent_run(struct agent *a, char **words, struct err *err) {
    a->args = words + 1;
    if (agent_find(a, words[0], err) < 0 || agent_check(a, err) < 0 ||
        agent_machine_open(a, err) < 0)
        return -1;
    return agent_loop(a, err);
}

static const struct {
    const char *name;
    int (*run)(struct agent *a, char **words, struct err *err);
} agent_subs[] = {
    {"ls", agent_ls},
    {"update", agent_update},
    {"import-settings", agent_import},
    {"accept", agent_accept_run},
};
enum { AGENT_SUBS = sizeof(agent_subs) / sizeof(*agent_subs) };

int cmd_agent(int argc, char **argv) {
    struct agent_options *o DEFER_FREE = xnew(struct agent_options);
    struct client c DEFER(client_close) = {0};
    struct err err = {0};
    struct agent *a DEFER(agent_free) = xnew(struct agent);
    a->o = o;
    a->client = &c;
    if (options_take(agent_rows, argc, argv, o, &err) < 0)
        return cli_fail(&err);
    if (o->help) {
        cli_help("agent");
        return 0;
    }
    char **words = argv + 1;
    if (!words[0]) {
        cli_unknown_subcommand("agent", "", &err);
        return cli_fail(&err);
    }
    if (client_open(&c, CLIENT_START, o->quiet || o->json ? client_silent : agent_announce, &err) <
        0)
        return cli_fail(&err);
    size_t sub = 0;
    while (sub < AGENT_SUBS && strcmp(agent_subs[sub].name, words[0]) != 0)
        sub++;
    int status =
        sub < AGENT_SUBS ? agent_subs[sub].run(a, words + 1, &err) : agent_run(a, words, &err);
    return status < 0 ? cli_fail(&err) : status;
}
