/* carrel new, show, set, rename, pause, resume, stop, stats and logs: commands about machines. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/do/do.h"
#include "cli/grants.h"
#include "cli/handed.h"
#include "cli/net.h"
#include "cli/new.h"
#include "cli/options.h"
#include "cli/spec.h"
#include "cli/table.h"
#include "cli/text/colour.h"
#include "cli/text/env_file.h"
#include "cli/text/pager.h"
#include "cli/text/units.h"

static void verbs_announce(void) {
    fputs("carrel: preparing this host for its first machine...\n", stderr);
}

/* ---- new ---- */

struct new_command {
    struct new_options made;
    bool json, help;
};

#define AT(member) offsetof(struct new_command, member)

const struct option_row new_rows[] = {
    NEW_OPTIONS(struct new_command, made),
    {'q', "quiet", NULL, OPTION_FLAG, AT(made.quiet), "print only the id, and warnings"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

static int put_metadata(struct jot *j, const struct option_list *pairs, struct err *err) {
    if (!pairs->count)
        return 0;
    jot_object(j, "metadata");
    for (size_t i = 0; i < pairs->count; i++) {
        char key[256];
        const char *eq = strchr(pairs->items[i], '=');
        if (!eq || eq == pairs->items[i] || (size_t)(eq - pairs->items[i]) >= sizeof(key))
            return err_set(err, ERR_INVALID, "--meta %s: write it as NAME=VALUE", pairs->items[i]);
        snprintf(key, sizeof(key), "%.*s", (int)(eq - pairs->items[i]), pairs->items[i]);
        jot_string(j, key, eq + 1);
    }
    jot_end(j, '}');
    return 0;
}

/* Adds one variable to the json_t object `env`; the last value of a name counts. */
static int add_variable(void *env, const char *text, struct err *err) {
    size_t len;
    const char *value;
    if (env_entry_split(text, &len, &value, err) < 0)
        return -1;
    char *name DEFER_FREE = strndup(text, len);
    json_t *string = json_string(value);
    if (!name || !string || json_object_set_new(env, name, string) < 0)
        return err_set(err, ERR_INVALID, "--env %.*s: the text is not UTF-8", (int)len, text);
    return 0;
}

static int put_env(struct jot *j, const struct new_options *o, struct err *err) {
    json_t *env DEFER(json_decrefp) = json_object(), *value;
    const char *name;
    for (size_t i = 0; i < o->env_files.count; i++)
        if (env_file_read(o->env_files.items[i], add_variable, env, err) < 0)
            return -1;
    for (size_t i = 0; i < o->env.count; i++)
        if (add_variable(env, o->env.items[i], err) < 0)
            return -1;
    if (!json_object_size(env))
        return 0;
    jot_object(j, "env");
    json_object_foreach(env, name, value) {
        jot_string(j, name, json_string_value(value));
    }
    jot_end(j, '}');
    return 0;
}

static int check_kind(const char *kind, struct err *err) {
    if (!kind || strcmp(kind, "box") == 0 || strcmp(kind, "cell") == 0 || strcmp(kind, "vm") == 0)
        return 0;
    return err_set(err, ERR_INVALID, "--kind %s: must be box, cell or vm", kind);
}

static int verbs_describe(const struct new_options *o, const struct grants *g,
                          const struct plan *plan, struct handed *h, struct buf *text,
                          struct err *err) {
    struct jot j = JOT(text);
    const struct id key =
        id_new('k'); /* idempotency key: a repeated request makes no second machine */
    const struct {
        const char *name, *value;
    } texts[] = {{"kind", o->kind},   {"image", o->image},   {"from", o->from},
                 {"name", o->name},   {"on_ttl", o->on_ttl}, {"idle_action", o->idle_action},
                 {"steps", o->steps}, {"key", key.text}};
    if (check_kind(o->kind, err) < 0)
        return -1;
    jot_object(&j, NULL);
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        if (texts[i].value)
            jot_string(&j, texts[i].name, texts[i].value);
    if (spec_put(&j, &o->spec, g, plan, err) < 0)
        return -1;
    spec_put_duration(&j, "idle", o->idle_ms);
    if (net_put(&j, &o->net, err) < 0 || net_put_models(&j, o->models, err) < 0 ||
        handed_put(&j, &o->handed, h, err) < 0 || put_env(&j, o, err) < 0 ||
        put_metadata(&j, &o->meta, err) < 0)
        return -1;
    jot_end(&j, '}');
    return j.failed
               ? err_set(err, ERR_LIMIT, "the options of the command are too long for one request")
               : 0;
}

int new_make(const struct new_options *o, struct client *c, json_t **ret, struct err *err) {
    struct plan *plan DEFER_FREE = xnew(struct plan);
    struct grants *g DEFER_FREE = xnew(struct grants);
    struct handed h DEFER(handed_close) = {.quiet = o->quiet};
    int fds[PLAN_MAX_GRANTS + HANDED_MAX];
    struct buf body DEFER(buf_done) = BUF(1 << 20);
    int r = grants_open(&o->spec.dirs, plan, g, err);
    if (r == 0)
        r = verbs_describe(o, g, plan, &h, &body, err);
    memcpy(fds, g->dirs, g->count * sizeof(int));
    memcpy(fds + g->count, h.fds, h.count * sizeof(int));
    const struct client_request request = {.method = "POST",
                                           .target = "/v1/machines",
                                           .body = &body,
                                           .fds = fds,
                                           .nfds = c->local ? g->count + h.count : 0};
    if (r == 0)
        r = client_call_again(c, &request, ret, err);
    if (r == 0)
        grants_warn(g, plan);
    grants_close(g);
    if (r < 0)
        return -1;
    if (*client_text(*ret, "warnings"))
        fprintf(stderr, "carrel: warning: %s\n", client_text(*ret, "warnings"));
    return 0;
}

static int verbs_make(const struct new_command *o, struct client *c, struct err *err) {
    json_t *machine DEFER(json_decrefp) = NULL;
    if (new_make(&o->made, c, &machine, err) < 0)
        return -1;
    if (o->json)
        print_json(machine);
    else
        puts(client_text(machine, "id"));
    return 0;
}

int cmd_new(int argc, char **argv) {
    struct new_command o = {.json = false};
    struct client c DEFER(client_close) = {0};
    struct err err = {0};
    int next;
    if (options_parse(new_rows, argc - 1, argv + 1, &o, &next, &err) < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_usage("new");
        options_print(new_rows);
        return 0;
    }
    if (argv[1 + next])
        err_set(&err, ERR_INVALID, "unexpected argument '%s'", argv[1 + next]);
    else if (client_open(&c, CLIENT_START, o.made.quiet ? client_silent : verbs_announce, &err) ==
                 0 &&
             verbs_make(&o, &c, &err) == 0)
        return 0;
    return cli_fail(&err);
}

/* ---- commands about one machine ---- */

/* Connects if needed, and sends one request about a machine; the answer is *ret. */
static int about(struct client *c, const char *machine, const char *method, const char *format,
                 json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = method, .target = target};
    if (!c->http && client_open(c, CLIENT_IF_MACHINES, NULL, err) < 0)
        return -1;
    return client_target(target, err, format, machine) < 0 ? -1 : client_call(c, &r, ret, err);
}

/* Reads the arguments of `carrel VERB [--json] MACHINE`. */
static int one_machine(int argc, char **argv, const char **ret_machine, bool *json, int *status) {
    struct err err;
    if (cli_words(argc, argv, 1, json, status) < 0)
        return -1;
    *ret_machine = NULL;
    for (int i = 1; i < argc; i++)
        if (argv[i][0] != '-')
            *ret_machine = argv[i];
    if (*ret_machine)
        return 0;
    err_set(&err, ERR_INVALID, "no machine given");
    err_remedy(&err, "see `carrel ls`");
    *status = cli_fail(&err);
    return -1;
}

/* A paused machine has its programs in memory or on disk. */
static void print_state(const json_t *machine) {
    const char *in = client_text(machine, "paused_in"), *why = client_text(machine, "paused_why");
    const char *where = strcmp(in, "disk") == 0 ? " on disk" : *in ? " in memory" : "";
    printf("%s %s%s\n", client_text(machine, "id"), client_text(machine, "state"), where);
    if (*why)
        fprintf(stderr, "carrel: what runs stays in memory: %s\n", why);
}

static int change_state(int argc, char **argv, const char *format) {
    struct client c DEFER(client_close) = {0};
    struct err err;
    json_t *machine DEFER(json_decrefp) = NULL;
    const char *name;
    bool json = false;
    int status;
    if (one_machine(argc, argv, &name, &json, &status) < 0)
        return status;
    if (about(&c, name, "POST", format, &machine, &err) < 0)
        return cli_fail(&err);
    if (json)
        print_json(machine);
    else
        print_state(machine);
    return 0;
}

int cmd_pause(int argc, char **argv) {
    return change_state(argc, argv, "/v1/machines/%s/pause");
}

int cmd_resume(int argc, char **argv) {
    return change_state(argc, argv, "/v1/machines/%s/resume");
}

int cmd_stop(int argc, char **argv) {
    return change_state(argc, argv, "/v1/machines/%s/stop");
}

/* Counters of a machine, which some hosts do not have, and disk_bytes in its place. */
static const char *const stats_counts[] = {
    "cpu_us",   "mem_bytes",  "mem_peak_bytes", "mem_limit_bytes", "pids",
    "io_bytes", "disk_bytes", "oom_kills",      "pids_refused",    NULL};

/* counts: members to print as "-" if they are absent; NULL: none. */
static int verbs_show(int argc, char **argv, const char *format, const char *const *counts) {
    struct client c DEFER(client_close) = {0};
    struct err err;
    json_t *answer DEFER(json_decrefp) = NULL;
    const char *name;
    bool json = false;
    int status;
    if (one_machine(argc, argv, &name, &json, &status) < 0)
        return status;
    if (about(&c, name, "GET", format, &answer, &err) < 0)
        return cli_fail(&err);
    if (json) {
        print_json(answer);
        return 0;
    }
    json_t *tools DEFER(json_decrefp) = json_incref(json_object_get(answer, "tools"));
    json_object_del(answer, "tools");
    if (counts)
        units_print_counts(answer, counts);
    else
        units_print(answer, 0);
    do_show_tools(tools);
    return 0;
}

int cmd_show(int argc, char **argv) {
    return verbs_show(argc, argv, "/v1/machines/%s", NULL);
}

/* Shows the resource use of a machine; without a machine, the status of the daemon. */
int cmd_stats(int argc, char **argv) {
    struct client c DEFER(client_close) = {0};
    struct err err;
    json_t *answer DEFER(json_decrefp) = NULL;
    bool json = false, named = false;
    int status;
    for (int i = 1; i < argc; i++)
        named |= argv[i][0] != '-' || strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0;
    if (named)
        return verbs_show(argc, argv, "/v1/machines/%s/stats", stats_counts);
    if (cli_words(argc, argv, 0, &json, &status) < 0)
        return status;
    if (about(&c, "", "GET", "/v1/status", &answer, &err) < 0)
        return cli_fail(&err);
    if (json) {
        print_json(answer);
        return 0;
    }
    json_t *tools DEFER(json_decrefp) = json_incref(json_object_get(answer, "tools"));
    json_object_del(answer, "tools");
    units_print(answer, 0);
    do_show_tools(tools);
    return 0;
}

/* ---- set and rename ---- */

struct set_options {
    struct spec spec;
    const char *on_ttl, *idle_action, *steps;
    uint64_t idle_ms;
    struct option_list meta;
    bool quiet, json, help;
};

#define SET(member) offsetof(struct set_options, member)

const struct option_row set_rows[] = {
    {'m', "mem", "SIZE", OPTION_SIZE, SET(spec.mem), "memory limit"},
    {'c', "cpus", "N", OPTION_MILLI, SET(spec.cpu_milli), "cpu limit, such as 0.5"},
    {0, "pids", "N", OPTION_NUMBER, SET(spec.pids), "limit of processes and threads"},
    {0, "disk", "SIZE", OPTION_SIZE, SET(spec.disk), "disk limit"},
    {0, "fuel", "N", OPTION_NUMBER, SET(spec.fuel), "cell: limit of instructions of each command"},
    {0, "fuel-rate", "N", OPTION_NUMBER, SET(spec.fuel_rate),
     "cell: limit of instructions per second"},
    {0, "allow", "LIST", OPTION_TEXT, SET(spec.allow),
     "cell: capabilities of its programs, such as log,args; '' removes all"},
    {0, "ttl", "TIME", OPTION_DURATION, SET(spec.ttl_ms), "apply --on-ttl this long from now"},
    {0, "on-ttl", "destroy|pause", OPTION_TEXT, SET(on_ttl), ON_TTL_HELP},
    {0, "idle", "TIME", OPTION_DURATION, SET(idle_ms),
     "apply --idle-action after this time without use, such as 30m"},
    {0, "idle-action", "pause|stop|destroy|release", OPTION_TEXT, SET(idle_action),
     "action after --idle; release: destroy if unchanged, else stop"},
    {0, "steps", "every|risky|manual", OPTION_TEXT, SET(steps),
     "take snapshots (steps) after changes, before risky commands or on request"},
    {0, "meta", "NAME=VALUE", OPTION_LIST, SET(meta),
     "set the metadata; names that are not given are deleted (repeatable)"},
    {'q', "quiet", NULL, OPTION_FLAG, SET(quiet), DONE_QUIET_HELP},
    {0, "json", NULL, OPTION_FLAG, SET(json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, SET(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

/* Changes a machine, or one of its steps. step: NULL, or which one. */
static int patch(const char *machine, const char *step, const struct buf *body, bool json,
                 struct err *err) {
    struct client c DEFER(client_close) = {0};
    json_t *answer DEFER(json_decrefp) = NULL;
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "PATCH", .target = target, .body = body};
    if (client_open(&c, CLIENT_IF_MACHINES, NULL, err) < 0 ||
        client_target(target, err, step ? "/v1/machines/%s/steps/%s" : "/v1/machines/%s", machine,
                      step) < 0 ||
        client_call(&c, &r, &answer, err) < 0)
        return -1;
    if (json)
        print_json(answer);
    return 0;
}

static int set_describe(const struct set_options *o, struct buf *text, struct err *err) {
    static const struct grants none = {.count = 0};
    struct jot j = JOT(text);
    jot_object(&j, NULL);
    if (spec_put(&j, &o->spec, &none, NULL, err) < 0)
        return -1;
    spec_put_duration(&j, "idle", o->idle_ms);
    if (o->on_ttl)
        jot_string(&j, "on_ttl", o->on_ttl);
    if (o->idle_action)
        jot_string(&j, "idle_action", o->idle_action);
    if (o->steps)
        jot_string(&j, "steps", o->steps);
    if (put_metadata(&j, &o->meta, err) < 0)
        return -1;
    jot_end(&j, '}');
    return j.failed
               ? err_set(err, ERR_LIMIT, "the options of the command are too long for one request")
               : 0;
}

static bool is_any_given(const struct set_options *o) {
    for (const struct option_row *r = set_rows; r->name; r++)
        if (r->offset != SET(json) && r->offset != SET(quiet) && option_is_given(r, o))
            return true;
    return false;
}

int cmd_set(int argc, char **argv) {
    struct set_options o = {.json = false};
    struct buf body DEFER(buf_done) = BUF(1 << 20);
    struct err err = {0};
    char *machine = NULL;
    if (options_words(set_rows, argc, argv, &o, &machine, 1, &err) < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_usage("set");
        options_print(set_rows);
        return 0;
    }
    if (!machine) {
        err_set(&err, ERR_INVALID, "no machine given");
        err_remedy(&err, "see `carrel ls`");
    } else if (!is_any_given(&o)) {
        err_set(&err, ERR_INVALID, "carrel set requires an option");
        err_remedy(&err, "see carrel set --help");
    } else if (set_describe(&o, &body, &err) == 0 &&
               patch(machine, NULL, &body, o.json, &err) == 0) {
        cli_done(o.quiet || o.json, "changed machine '%s'", machine);
        return 0;
    }
    return cli_fail(&err);
}

int cmd_rename(int argc, char **argv) {
    struct buf body DEFER(buf_done) = BUF(65536);
    struct jot j = JOT(&body);
    char *words[2] = {NULL, NULL};
    struct done_flags flags = {.quiet = false};
    struct err err = {0};
    int count = options_words(done_rows, argc, argv, &flags, words, 2, &err);
    if (count < 0)
        return cli_fail(&err);
    if (flags.help) {
        cli_help("rename");
        return 0;
    }
    if (count < 2) {
        err_set(&err, ERR_INVALID, count ? "no new name given" : "no machine given");
        err_remedy(&err, "see carrel rename --help");
        return cli_fail(&err);
    }
    char *machine DEFER_FREE = xstrdup(words[0]), *step = strchr(machine, '@');
    if (step)
        *step++ = '\0';
    if (!*machine || (step && !*step)) {
        err_set(&err, ERR_INVALID, *machine ? "no step given" : "no machine given");
        err_remedy(&err, step ? "name a step as MACHINE@STEP, such as work@7" : "see `carrel ls`");
        return cli_fail(&err);
    }
    jot_object(&j, NULL);
    jot_string(&j, "name", words[1]);
    jot_end(&j, '}');
    if (patch(machine, step, &body, flags.json, &err) < 0)
        return cli_fail(&err);
    cli_done(flags.quiet || flags.json,
             *words[1] ? "renamed %s '%s' to '%s'" : "removed the name of %s '%s'",
             step ? "step" : "machine", words[0], words[1]);
    return 0;
}

/* ---- logs ---- */

struct logs_options {
    bool follow, errors, all, quiet, json, help;
};

const struct option_row logs_rows[] = {
    {'a', "all", NULL, OPTION_FLAG, offsetof(struct logs_options, all),
     "also list commands that Carrel ran itself, as for a review"},
    {'f', "follow", NULL, OPTION_FLAG, offsetof(struct logs_options, follow),
     "wait for more output, also of processes that it left behind"},
    {0, "stderr", NULL, OPTION_FLAG, offsetof(struct logs_options, errors),
     "print standard error instead of standard output"},
    {'q', "quiet", NULL, OPTION_FLAG, offsetof(struct logs_options, quiet),
     "print only ids, or only the output"},
    {0, "json", NULL, OPTION_FLAG, offsetof(struct logs_options, json),
     "print the list of commands as JSON"},
    {'h', "help", NULL, OPTION_FLAG, offsetof(struct logs_options, help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

static void print_execs(const json_t *list, bool ids_only) {
    size_t i;
    json_t *x;
    if (!ids_only) {
        pager_start();
        colour_heading("EXEC            STATE     STATUS  AGE   COMMAND");
    }
    json_array_foreach(list, i, x) {
        char status[24], age[16];
        if (ids_only) {
            puts(client_text(x, "id"));
            continue;
        }
        long long number = client_number(x, "status"); /* -1: the command has none yet */
        snprintf(status, sizeof(status), number < 0 ? "-" : "%lld", number);
        table_age(client_text(x, *client_text(x, "ended") ? "ended" : "started"), age);
        table_cell(client_text(x, "id"), 14);
        table_cell(client_text(x, "state"), 8);
        table_cell(status, 6);
        table_cell(age, 4);
        size_t k;
        json_t *word;
        json_array_foreach(json_object_get(x, "argv"), k, word) {
            table_cell(json_string_value(word), 0);
        }
        putchar('\n');
    }
}

static void print_gap(uint64_t bytes) {
    char size[16];
    table_bytes((long long)bytes, size);
    fprintf(stderr, "carrel: %s of output at this place were not kept\n", size);
}

/* Copies output from *offset on, up to a gap (bytes that were not kept). 1: bytes were copied, and
 * more may follow. */
static int copy_answer(struct client *c, const char *machine, const char *exec,
                       const struct logs_options *o, uint64_t *offset, struct err *err) {
    char target[CLIENT_TARGET_SIZE], from[24];
    const struct http_head *head;
    const char *bytes;
    size_t n;
    int more;
    const struct client_request r = {.method = "GET", .target = target, .accept = "*/*"};
    snprintf(from, sizeof(from), "%" PRIu64, *offset);
    if (client_target(target, err, "/v1/machines/%s/execs/%s/output?stream=%s&follow=%s&offset=%s",
                      machine, exec, o->errors ? "stderr" : "stdout", o->follow ? "1" : "0",
                      from) < 0 ||
        client_send(c, c->http, &r, err) < 0 || client_answer(c->http, &head, err) < 0)
        return -1;
    struct http_text gap = http_field_only(head, "Carrel-Left-Out");
    uint64_t left_out = gap.s ? strtoull(gap.s, NULL, 10) : 0;
    struct http_text left_open = http_field_only(head, "Carrel-Left-Open");
    if (o->follow && !*offset && left_open.s && *left_open.s == '1')
        cli_done(o->quiet,
                 "command '%s' has ended; waiting for output of processes that it left behind",
                 exec);
    if (left_out)
        print_gap(left_out);
    else if (*offset)
        return 0;
    *offset += left_out;
    while ((more = http_client_read(c->http, &bytes, &n, err)) > 0) {
        int w = write_all(1, bytes, n);
        if (w < 0)
            return err_num(err, w, "cannot write the output of the command");
        *offset += n;
    }
    return more < 0 ? -1 : *offset > 0;
}

/* Copies all output. An answer ends before output that was not kept, so ask again after it. */
static int copy_output(struct client *c, const char *machine, const char *exec,
                       const struct logs_options *o, struct err *err) {
    uint64_t offset = 0;
    json_t *one DEFER(json_decrefp) = NULL;
    char target[CLIENT_TARGET_SIZE];
    const struct client_request find = {.method = "GET", .target = target};
    int r;
    /* The name of a machine ends with it, but its id does not: it may be deleted meanwhile. */
    if (o->follow && (client_target(target, err, "/v1/machines/%s/execs/%s", machine, exec) < 0 ||
                      client_call(c, &find, &one, err) < 0))
        return -1;
    while ((r = copy_answer(c, one ? client_text(one, "machine") : machine, exec, o, &offset,
                            err)) > 0)
        ;
    if (r == 0 && !offset)
        cli_done(o->quiet,
                 "no %s of command '%s' is kept: it printed none, or its output went only to the "
                 "client that ran it",
                 o->errors ? "stderr" : "stdout", exec);
    return r;
}

int cmd_logs(int argc, char **argv) {
    struct logs_options o = {0};
    struct client c DEFER(client_close) = {0};
    struct err err;
    json_t *list DEFER(json_decrefp) = NULL;
    char *words[2] = {NULL, NULL};
    if (options_words(logs_rows, argc, argv, &o, words, 2, &err) < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_usage("logs");
        options_print(logs_rows);
        return 0;
    }
    const char *machine = words[0], *exec = words[1];
    if (!machine) {
        err_set(&err, ERR_INVALID, "no machine given");
        err_remedy(&err, "see `carrel ls`");
        return cli_fail(&err);
    }
    if (exec && o.json) {
        err_set(&err, ERR_INVALID, "--json lists commands, it does not print the output of one");
        err_remedy(&err, "leave out --json or '%s'", exec);
        return cli_fail(&err);
    }
    if (client_open(&c, CLIENT_IF_MACHINES, NULL, &err) < 0)
        return cli_fail(&err);
    if (exec)
        return copy_output(&c, machine, exec, &o, &err) < 0 ? cli_fail(&err) : 0;
    if (about(&c, machine, "GET", o.all ? "/v1/machines/%s/execs?all=1" : "/v1/machines/%s/execs",
              &list, &err) < 0)
        return cli_fail(&err);
    if (o.json)
        print_json(list);
    else
        print_execs(json_object_get(list, "execs"), o.quiet);
    return 0;
}
