/* carrel exec, and what it shares with run and sh: environment, request and report of a command. */
#include "cli/exec.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/jot.h"
#include "base/parse.h"
#include "base/text/accounts.h"
#include "cli/cli.h"
#include "cli/machine.h"
#include "cli/remote.h"
#include "cli/table.h"
#include "cli/text/env_file.h"
#include "cli/text/units.h"

static int env_set(struct command_setup *c, const char *name, size_t len, const char *value,
                   struct err *err) {
    size_t at = 0;
    while (at < c->env_count && !(strncmp(c->env[at], name, len) == 0 && c->env[at][len] == '='))
        at++;
    if (at >= ENV_MAX - 1)
        return err_set(err, ERR_LIMIT, "--env: more than %d variables", ENV_MAX);
    int n = snprintf(c->texts[at], sizeof(c->texts[at]), "%.*s=%s", (int)len, name, value);
    if (n < 0 || (size_t)n >= sizeof(c->texts[at]))
        return err_set(err, ERR_LIMIT, "--env %.*s: the value is too long", (int)len, name);
    c->env[at] = c->texts[at];
    if (at == c->env_count)
        c->env[++c->env_count] = NULL;
    return 0;
}

static int env_from_option(struct command_setup *c, const char *text, struct err *err) {
    size_t len;
    const char *value;
    return env_entry_split(text, &len, &value, err) < 0 ? -1 : env_set(c, text, len, value, err);
}

static int env_from_line(void *setup, const char *line, struct err *err) {
    return env_from_option(setup, line, err);
}

/* Refuses a wrong --user before a machine is created: the daemon would refuse it afterwards. */
static int check_user(const char *user, struct err *err) {
    uint64_t uid;
    if (!user || account_name_is_valid(user) || parse_u64(user, 0, 65534, &uid, NULL) == 0)
        return 0;
    err_set(err, ERR_INVALID, "--user %s: not a valid name of a user", user);
    return err_remedy(err, "use a name from the machine's /etc/passwd, or a number up to 65534");
}

int command_prepare(struct command_setup *c, const struct command_options *o, char **argv,
                    const char *default_cwd, struct err *err) {
    struct session *s = &c->session;
    const char *term = getenv("TERM");
    bool terminal = o->terminal || (!o->no_terminal && !o->json && session_wants_terminal());
    c->out = BUF(CAPTURE_MAX);
    c->err = BUF(CAPTURE_MAX);
    if (o->terminal && o->no_terminal)
        return err_set(err, ERR_INVALID, "-t and -T exclude each other");
    if (check_user(o->user, err) < 0 ||
        env_set(c, "TERM", 4, terminal && term ? term : "dumb", err) < 0)
        return -1;
    for (size_t i = 0; i < o->env_files.count; i++)
        if (env_file_read(o->env_files.items[i], env_from_line, c, err) < 0)
            return -1;
    for (size_t i = 0; i < o->env.count; i++)
        if (env_from_option(c, o->env.items[i], err) < 0)
            return -1;
    /* Members without an option stay unset: the image may have a default for them. */
    s->request = (struct session_request){.argv = (const char *const *)argv,
                                          .env = c->env,
                                          .cwd = o->cwd ? o->cwd : default_cwd,
                                          .user = o->user,
                                          .timeout_ms = o->timeout_ms,
                                          .terminal = terminal};
    if (o->json) {
        s->captured[0] = &c->out;
        s->captured[1] = &c->err;
    }
    return 0;
}

void command_done(struct command_setup *c) {
    buf_done(&c->out);
    buf_done(&c->err);
}

static bool timed_out(const struct session_result *r) {
    return r->end == EXEC_END_TIMEOUT || r->end == EXEC_END_UNANSWERED;
}

/* True if the memory limit killed the command, or another process of its machine. */
static bool out_of_memory(const struct session_result *r, const struct command_end *end) {
    return r->end == EXEC_END_MEMORY || (end->facts && end->facts->oom_kills);
}

/* Writes why the command ended, in one sentence; empty after an ordinary exit. */
static void reason(const struct command_setup *c, const struct command_options *o,
                   const struct command_end *end, char *text, size_t size) {
    const struct session_result *r = &c->session.result;
    uint64_t limit = end->facts ? end->facts->mem_limit_bytes >> 20 : 0;
    bool oom = out_of_memory(r, end);
    text[0] = '\0';
    if (r->reason[0])
        snprintf(text, size, "%s", r->reason);
    else if (c->session.lost)
        snprintf(text, size, "output of the command was lost: %s", strerror(c->session.lost));
    else if (timed_out(r))
        snprintf(text, size,
                 "the command ended after %" PRIu64 ".%03" PRIu64
                 " s: the time limit (--timeout)%s",
                 o->timeout_ms / 1000, o->timeout_ms % 1000,
                 r->end == EXEC_END_UNANSWERED ? "; the machine did not answer" : "");
    else if (oom && limit)
        snprintf(text, size,
                 "a process was killed: the memory limit of %" PRIu64 " MiB was reached (--mem)",
                 limit);
    else if (oom)
        snprintf(text, size, "a process was killed: the memory limit was reached");
    else if (end->facts && end->facts->pids_refused)
        snprintf(text, size, "the limit of processes was reached (--pids)");
    else if (end->facts && end->facts->lookups_refused)
        snprintf(text, size, "a name lookup failed: this machine has no network");
}

static void command_print_json(const struct command_setup *c, const struct command_end *end,
                               int status, const char *why) {
    const struct session_result *x = &c->session.result;
    struct buf text = BUF(6 * (CAPTURE_MAX + CAPTURE_MAX) + 65536);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "machine", end->id);
    jot_i64(&j, "exit_status", status);
    if (x->signal)
        jot_u64(&j, "signal", x->signal);
    jot_bool(&j, "timed_out", timed_out(x));
    jot_bool(&j, "out_of_memory", out_of_memory(x, end));
    if (*why)
        jot_string(&j, "reason", why);
    jot_object(&j, "usage");
    jot_u64(&j, "user_us", x->user_us);
    jot_u64(&j, "system_us", x->system_us);
    jot_u64(&j, "wall_us", x->wall_us);
    jot_u64(&j, "max_rss_kb", x->max_rss_kb);
    if (x->fuel)
        jot_u64(&j, "fuel", x->fuel);
    jot_end(&j, '}');
    if (end->has_grants)
        jot_u64(&j, "changed_files", end->changed_files);
    jot_bytes(&j, "stdout", c->out.data ? c->out.data : "", c->out.len);
    jot_bytes(&j, "stderr", c->err.data ? c->err.data : "", c->err.len);
    jot_bool(&j, "truncated", c->session.cut[0] || c->session.cut[1]);
    jot_end(&j, '}');
    safe_json_line(j.failed ? "{\"error\":{\"code\":\"limit\",\"message\":\"output too large\"}}"
                            : text.data);
    buf_done(&text);
}

static void print_usage(const struct session_result *r, const char *machine, int status) {
    char user[UNITS_SIZE], system[UNITS_SIZE], wall[UNITS_SIZE], peak[16], fuel[40] = "";
    amount_duration(r->user_us, user);
    amount_duration(r->system_us, system);
    amount_duration(r->wall_us, wall);
    table_bytes((long long)r->max_rss_kb << 10, peak);
    if (r->fuel)
        snprintf(fuel, sizeof(fuel), "; fuel %" PRIu64, r->fuel);
    fprintf(stderr,
            "carrel: %s: exit status %d; time: user %s, system %s, wall %s; peak memory %s%s\n",
            machine, status, user, system, wall, peak, fuel);
}

/* Says that the step after the command has no restore point, if that is so. */
static void report_step(const struct command_setup *c) {
    struct remote *r = c->session.remote;
    char target[CLIENT_TARGET_SIZE];
    json_t *answer DEFER(json_decrefp) = NULL;
    struct err err; /* ignored: the command itself succeeded */
    const struct client_request q = {.method = "GET", .target = target};
    if (client_target(target, &err, "/v1/machines/%s/steps?limit=%s", r->id, "10") < 0 ||
        remote_call(r, &q, &answer, &err) < 0)
        return;
    const json_t *step;
    size_t i;
    json_array_foreach(json_object_get(answer, "steps"), i, step) {
        if (strcmp(client_text(step, "exec"), r->exec) != 0 ||
            json_is_true(json_object_get(step, "restorable")))
            continue;
        fprintf(stderr, "carrel: step %lld has no restore point: ", client_number(step, "number"));
        safe_name(stderr, client_text(step, "reason"));
        fprintf(stderr, "; nor have later steps while processes run (see: carrel steps %s)\n",
                r->id);
    }
}

int command_report(const struct command_setup *c, const struct command_options *o,
                   const struct command_end *end) {
    char why[300];
    int status = c->session.lost ? CLI_FAILED : c->session.result.status;
    reason(c, o, end, why, sizeof(why));
    if (o->json)
        command_print_json(c, end, status, why);
    else if (*why && !o->quiet)
        fprintf(stderr, "carrel: %s\n", why);
    if (c->session.result.check_step && !c->session.ends_machine && !o->json && !o->quiet)
        report_step(c);
    if (o->verbose && !o->json)
        print_usage(&c->session.result, end->id, status);
    return status;
}

/* ---- carrel exec ---- */

struct exec_options {
    struct command_options command;
};

const struct option_row exec_rows[] = {
    COMMAND_OPTIONS(struct exec_options, command),
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

struct exec {
    struct exec_options o;
    struct command_setup setup;
    struct client client;
    struct remote remote;
};

static void exec_free(struct exec **slot) {
    if (!*slot)
        return;
    remote_done(&(*slot)->remote);
    client_close(&(*slot)->client);
    command_done(&(*slot)->setup);
    free(*slot);
}

/* True for a cell. Its commands run without a terminal, unless --tty asks for one. */
static bool has_no_terminals(struct client *c, const char *id) {
    char target[CLIENT_TARGET_SIZE];
    json_t *machine DEFER(json_decrefp) = NULL;
    const struct client_request r = {.method = "GET", .target = target};
    struct err err; /* the request for the command says it */
    return client_target(target, &err, "/v1/machines/%s", id) == 0 &&
           client_call(c, &r, &machine, &err) == 0 &&
           strcmp(client_text(machine, "kind"), "cell") == 0;
}

int cmd_exec(int argc, char **argv) {
    struct err err = {0};
    int next, more = 0;
    struct exec *x DEFER(exec_free) = xnew(struct exec);
    if (options_parse(exec_rows, argc - 1, argv + 1, &x->o, &next, &err) < 0)
        return cli_fail(&err);
    const char *id = argv[1 + next];
    /* Options may follow the machine, up to the command or "--". */
    if (id && options_parse(exec_rows, argc - 2 - next, argv + 2 + next, &x->o, &more, &err) < 0)
        return cli_fail(&err);
    if (x->o.command.help) {
        cli_usage("exec");
        options_print(exec_rows);
        return 0;
    }
    if (cli_machine_check(id, &err) < 0)
        return cli_fail(&err);
    char **command = argv + 2 + next + more;
    if (!command[0]) {
        err_set(&err, ERR_INVALID, "no command to run");
        err_remedy(&err, "carrel exec %s -- COMMAND [ARG...]", id);
        return cli_fail(&err);
    }
    x->remote = (struct remote){.client = &x->client, .machine = id};
    x->setup.session.remote = &x->remote;
    if (cli_machine_open(&x->client, id, &err) < 0)
        return cli_fail(&err);
    x->o.command.no_terminal |=
        !x->o.command.terminal && session_wants_terminal() && has_no_terminals(&x->client, id);
    if (command_prepare(&x->setup, &x->o.command, command, NULL, &err) < 0)
        return cli_fail(&err);
    if (session_run(&x->setup.session, &err) < 0) {
        if (x->remote.id[0])
            err_wrap(&err, "machine '%s'", x->remote.id);
        return cli_fail(&err);
    }
    struct command_end end = {.id = x->remote.id};
    return command_report(&x->setup, &x->o.command, &end);
}
