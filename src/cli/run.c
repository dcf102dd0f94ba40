/* carrel run: makes a machine, runs one command in it, and deletes it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "cli/cli.h"
#include "cli/exec.h"
#include "cli/grants.h"
#include "cli/handed.h"
#include "cli/image/image.h"
#include "cli/net.h"
#include "cli/remote.h"
#include "cli/ship/changes.h"
#include "cli/spec.h"
#include "cli/table.h"

struct run_options {
    struct command_options command;
    struct spec spec;
    struct option_list net;
    struct handed_options handed;
    const char *models;
    const char *kind, *image;
    bool apply, keep, rm;
};

#define AT(member) offsetof(struct run_options, member)

const struct option_row run_rows[] = {
    {0, "apply", NULL, OPTION_FLAG, AT(apply),
     "afterwards show the changed files, ask, and copy them back to the host"},
    {0, "keep", NULL, OPTION_FLAG, AT(keep), "keep the machine and print its id"},
    {0, "rm", NULL, OPTION_FLAG, AT(rm), "delete the machine afterwards (the default)"},
    {0, "kind", "box|vm", OPTION_TEXT, AT(kind), "kind of machine (default: box)"},
    {0, "image", "IMAGE", OPTION_TEXT, AT(image),
     "image to start from, and whose command to run if none is given (default: host)"},
    SPEC_OPTIONS(struct run_options, spec),
    {0, "ttl", "TIME", OPTION_DURATION, AT(spec.ttl_ms), SPEC_TTL_HELP},
    {0, "net", "none|[ask:]TARGET[,local]", OPTION_LIST, AT(net), NET_OPTION_HELP},
    HANDED_OPTIONS(struct run_options, handed),
    {0, "models", "any|tokens=N|money=X|tokens=N,money=X", OPTION_TEXT, AT(models),
     MODELS_OPTION_HELP},
    COMMAND_OPTIONS(struct run_options, command),
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

struct run {
    struct run_options o;
    struct client client;
    struct remote remote;
    struct buf spec;
    struct plan plan; /* only the member `grants` is used */
    struct grants grants;
    struct handed handed;
    int fds[PLAN_MAX_GRANTS + HANDED_MAX]; /* descriptors of `grants`, then of `handed` */
    struct command_setup setup;
    struct timespec started;
    json_t *image;      /* the image, if its own command is run */
    const char **words; /* that command */
};

static void run_announce(void) {
    fputs("carrel: preparing this host for its first machine...\n", stderr);
}

static int check_options(const struct run_options *o, struct err *err) {
    if (o->apply && (o->command.json || !o->spec.dirs.count)) {
        err_set(err, ERR_INVALID,
                o->command.json ? "--apply and --json exclude each other"
                                : "--apply requires --dir");
        return err_remedy(err, "remove --apply or --json, or grant a directory: --dir .");
    }
    if (o->keep && o->rm)
        return err_set(err, ERR_INVALID, "--keep and --rm exclude each other");
    return 0;
}

/* Writes the request for the machine, and opens granted files and directories. */
static int run_describe(struct run *r, struct err *err) {
    struct jot j = JOT(&r->spec);
    r->handed.quiet = r->o.command.quiet;
    if (grants_open(&r->o.spec.dirs, &r->plan, &r->grants, err) < 0)
        return -1;
    jot_object(&j, NULL);
    if (r->o.keep) /* a repeated request creates no second machine */
        jot_string(&j, "key", id_new('k').text);
    if (r->o.kind)
        jot_string(&j, "kind", r->o.kind);
    if (r->o.image)
        jot_string(&j, "image", r->o.image);
    if (spec_put(&j, &r->o.spec, &r->grants, &r->plan, err) < 0 ||
        net_put(&j, &r->o.net, err) < 0 || net_put_models(&j, r->o.models, err) < 0 ||
        handed_put(&j, &r->o.handed, &r->handed, err) < 0)
        return -1;
    memcpy(r->fds, r->grants.dirs, r->grants.count * sizeof(int));
    memcpy(r->fds + r->grants.count, r->handed.fds, r->handed.count * sizeof(int));
    jot_end(&j, '}');
    return j.failed
               ? err_set(err, ERR_LIMIT, "the options of carrel run are too long for one request")
               : 0;
}

/* Gets a descriptor of the changes for each directory granted as a copy (cow), in order. */
static int take_uppers(struct run *r, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request q = {.method = "GET", .target = target};
    int fds[HTTP_CLIENT_FDS_MAX];
    size_t count, next = 0;
    if (client_target(target, err, "/v1/machines/%s/changes", r->remote.id) < 0 ||
        remote_call(&r->remote, &q, NULL, err) < 0)
        return -1;
    count = http_client_take_fds(r->remote.second, fds);
    for (size_t i = 0; i < r->grants.count; i++)
        if (r->plan.grants[i].mode == PLAN_GRANT_COW && next < count)
            r->grants.uppers[i] = fds[next++];
    while (next < count)
        close(fds[next++]);
    return 0;
}

/* Applies or reports the changes in granted directories; returns their number. */
static uint64_t settle_changes(struct run *r, struct err *err) {
    uint64_t total = 0;
    if (take_uppers(r, err) < 0)
        return 0;
    for (size_t i = 0; i < r->grants.count; i++) {
        struct changes c DEFER(changes_done) = {0};
        if (r->grants.uppers[i] >= 0)
            changes_find(r->grants.uppers[i], r->grants.dirs[i], &c);
        if (c.count == 0)
            continue;
        total += c.count;
        struct apply a = {
            .remote = &r->remote, .grants = &r->grants, .plan = &r->plan, .since = r->started};
        enum exec_end how = r->setup.session.result.end;
        if (how == EXEC_END_UNANSWERED || how == EXEC_END_UNHEARD)
            continue; /* the guest, which reads the changes, does not answer */
        if (r->o.apply && changes_apply(&a, i, &c, err) < 0)
            cli_fail(err);
    }
    if (total && !r->o.apply && !r->o.command.quiet && !r->o.command.json)
        fprintf(stderr,
                r->o.keep ? "carrel: %" PRIu64 " file%s changed in machine %s\n"
                          : "carrel: %" PRIu64 " file%s changed and discarded; use --keep to keep "
                            "the machine, or --apply to review and copy them back\n",
                total, total == 1 ? "" : "s", r->remote.id);
    return total;
}

/* Asks the daemon which limits the machine has reached. */
static int find_facts(struct run *r, struct plan_facts *ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request q = {.method = "GET", .target = target};
    json_t *stats DEFER(json_decrefp) = NULL;
    if (client_target(target, err, "/v1/machines/%s/stats", r->remote.id) < 0 ||
        remote_call(&r->remote, &q, &stats, err) < 0)
        return -1;
    *ret = (struct plan_facts){
        .oom_kills = (uint64_t)client_number(stats, "oom_kills"),
        .pids_refused = (uint64_t)client_number(stats, "pids_refused"),
        .mem_limit_bytes = (uint64_t)client_number(stats, "mem_limit_bytes"),
        .lookups_refused = (uint64_t)client_number(stats, "lookups_refused"),
    };
    return 0;
}

/*
 * Ends the machine and waits for that, so that the next command can have its volumes. Errors are
 * ignored: the machine also ends by itself.
 */
static void return_volumes(struct run *r) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request q = {.method = "DELETE", .target = target};
    struct err err;
    if (r->o.spec.volumes.count && !r->o.keep &&
        client_target(target, &err, "/v1/machines/%s", r->remote.id) == 0)
        remote_call(&r->remote, &q, NULL, &err);
}

static int run_finish(struct run *r, struct err *err) {
    struct plan_facts facts;
    struct command_end end = {.id = r->remote.id, .has_grants = r->grants.count > 0};
    if (r->setup.session.result.status != 0 && find_facts(r, &facts, err) == 0)
        end.facts = &facts;
    if (r->grants.count)
        end.changed_files = settle_changes(r, err);
    if (r->o.keep && !r->o.command.json)
        fprintf(stderr,
                "carrel: the machine is kept as %s (carrel exec %s -- COMMAND, carrel rm %s)\n",
                r->remote.id, r->remote.id, r->remote.id);
    int status = command_report(&r->setup, &r->o.command, &end);
    return_volumes(r);
    return status;
}

/* Reports that the machine ended before its command: at its --ttl, or for another reason. */
static int lost(const struct run *r, struct err *err) {
    uint64_t ttl_ms = r->o.spec.ttl_ms;
    int64_t began_ms = (int64_t)r->started.tv_sec * 1000 + r->started.tv_nsec / 1000000;
    uint64_t ms = (uint64_t)(wall_ms() - began_ms);
    if (!r->remote.id[0])
        return cli_fail(err);
    err_wrap(err, "machine '%s'", r->remote.id);
    if (err->code == ERR_UNKNOWN && !err->remedy[0] && !r->o.keep)
        err_remedy(err, "the machine and its files are gone; with carrel run --keep it is restored "
                        "from its last saved step");
    if (err->code != ERR_UNKNOWN || !ttl_ms || ms < ttl_ms)
        return cli_fail(err);
    if (!r->o.command.quiet)
        fprintf(stderr,
                "carrel: the machine ended after %" PRIu64 ".%03" PRIu64
                " s: its time limit (--ttl)\n",
                ttl_ms / 1000, ttl_ms % 1000);
    return 124;
}

static void run_free(struct run **slot) {
    struct run *r = *slot;
    if (!r)
        return;
    remote_done(&r->remote);
    client_close(&r->client);
    grants_close(&r->grants);
    handed_close(&r->handed);
    command_done(&r->setup);
    buf_done(&r->spec);
    json_decref(r->image);
    free(r->words);
    free(r);
}

static struct run *run_new(void) {
    struct run *r = xnew(struct run);
    r->spec = BUF(1 << 20);
    memset(r->grants.dirs, -1, sizeof(r->grants.dirs));
    memset(r->grants.uppers, -1, sizeof(r->grants.uppers));
    return r;
}

/* Refuses granted files and directories over TCP, which carries no descriptors. */
static int check_lent(const struct run *r, struct err *err) {
    if (r->client.local || r->grants.count + r->handed.count == 0)
        return 0;
    err_set(err, ERR_UNSUPPORTED,
            r->grants.count ? "--dir works only with a daemon on this host"
                            : "--file, --repo and --db work only with a daemon on this host");
    return err_remedy(err, "create a machine with `carrel new` and copy files with `carrel cp`");
}

static int connect_and_run(struct run *r, struct err *err) {
    if (client_open(&r->client, CLIENT_START, r->o.command.quiet ? client_silent : run_announce,
                    err) < 0 ||
        check_lent(r, err) < 0)
        return -1;
    r->remote = (struct remote){.client = &r->client,
                                .spec = &r->spec,
                                .dirs = r->fds,
                                .dir_count = r->grants.count + r->handed.count,
                                .keep = r->o.keep,
                                .quiet = r->o.command.quiet};
    r->setup.session.remote = &r->remote;
    r->setup.session.ends_machine = !r->o.keep;
    clock_gettime(CLOCK_REALTIME, &r->started);
    return session_run(&r->setup.session, err);
}

/* ---- the command of an image ---- */

static size_t image_words(const json_t *list, const char **to, size_t n) {
    const json_t *word;
    size_t i;
    json_array_foreach(list, i, word) if (json_is_string(word)) to[n++] = json_string_value(word);
    return n;
}

/* Sets *ret to the entry point and command of the image. */
static int image_command(struct run *r, char ***ret, struct err *err) {
    struct client c = {0};
    if (!r->o.image || strcmp(r->o.image, "host") == 0) {
        err_set(err, ERR_INVALID, "no command to run");
        return err_remedy(err, "carrel run -- COMMAND [ARG...]");
    }
    int found =
        client_open(&c, CLIENT_START, r->o.command.quiet ? client_silent : run_announce, err) < 0
            ? -1
            : image_show(&c, r->o.image, &r->image, err);
    client_close(&c);
    if (found < 0)
        return -1;
    const json_t *config = json_object_get(r->image, "config");
    const json_t *entry = json_object_get(config, "entrypoint");
    const json_t *command = json_object_get(config, "command");
    r->words = xcalloc(json_array_size(entry) + json_array_size(command) + 1, sizeof(char *));
    if (image_words(command, r->words, image_words(entry, r->words, 0)) == 0) {
        err_set(err, ERR_INVALID, "image '%s' has no command of its own", r->o.image);
        return err_remedy(err, "carrel run --image %s -- COMMAND [ARG...]", r->o.image);
    }
    *ret = (char **)r->words;
    return 0;
}

int cmd_run(int argc, char **argv) {
    struct err err = {0};
    int next;
    struct run *r DEFER(run_free) = run_new();
    if (options_parse(run_rows, argc - 1, argv + 1, &r->o, &next, &err) < 0)
        return cli_fail(&err);
    if (r->o.command.help) {
        cli_usage("run");
        options_print(run_rows);
        return 0;
    }
    char **command = argv + 1 + next;
    if ((!command[0] && image_command(r, &command, &err) < 0) || check_options(&r->o, &err) < 0 ||
        run_describe(r, &err) < 0)
        return cli_fail(&err);
    if (!r->o.command.quiet && r->o.spec.unreviewed)
        grants_warn(&r->grants, &r->plan);
    /* Without one, the daemon chooses the first granted directory or repository. */
    const char *cwd = r->grants.working >= 0 ? r->plan.grants[r->grants.working].path : NULL;
    if (command_prepare(&r->setup, &r->o.command, command, cwd, &err) < 0)
        return cli_fail(&err);
    if (connect_and_run(r, &err) < 0)
        return lost(r, &err);
    return run_finish(r, &err);
}
