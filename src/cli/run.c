/* carrel run: a fresh box, one command, thrown away. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/defer.h"
#include "cli/changes.h"
#include "cli/cli.h"
#include "cli/grants.h"
#include "cli/machine.h"
#include "io/place.h"
#include "io/spawn_link.h"

struct run_options {
    struct command_options command;
    struct option_list dirs;
    bool unreviewed, apply, keep;
    uint64_t mem, cpu_milli, pids, disk, lifetime_ms;
    const char *net;
};

#define AT(member) offsetof(struct run_options, member)

static const struct option_row rows[] = {
    {'d', "dir", "HOST[:GUEST][:ro|cow|rw]", OPTION_LIST, AT(dirs),
     "lend a directory (default cow: it works on a copy)"},
    {0, "apply", NULL, OPTION_FLAG, AT(apply),
     "at the end show what changed, ask, and copy it back"},
    {0, "keep", NULL, OPTION_FLAG, AT(keep), "keep the machine and print its id"},
    {0, "unreviewed", NULL, OPTION_FLAG, AT(unreviewed), "allow --dir ...:rw"},
    {'m', "mem", "SIZE", OPTION_SIZE, AT(mem), "memory limit (default 2G)"},
    {'c', "cpus", "N", OPTION_MILLI, AT(cpu_milli), "cpu limit, such as 0.5 (default: none)"},
    {0, "pids", "N", OPTION_NUMBER, AT(pids), "limit of processes and threads (default 1024)"},
    {0, "disk", "SIZE", OPTION_SIZE, AT(disk), "limit of what it can write (default 1G)"},
    {0, "lifetime", "TIME", OPTION_DURATION, AT(lifetime_ms),
     "end the machine itself after this time"},
    {0, "net", "none", OPTION_TEXT, AT(net), "network: none"},
    COMMAND_OPTIONS(struct run_options, command),
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

struct run {
    struct run_options o;
    struct place place;
    struct plan_message message;
    struct plan plan;
    struct grants grants;
    struct command_setup setup;
    int spawner;
    struct timespec started;
};

static void announce(void) {
    fputs("carrel: preparing this host for its first box...\n", stderr);
}

static int fill_plan(struct run *r, struct err *err) {
    struct plan *p = &r->plan;
    snprintf(p->image, sizeof(p->image), "host");
    p->mem_bytes = r->o.mem;
    p->cpu_milli = r->o.cpu_milli;
    p->pids = r->o.pids;
    p->disk_bytes = r->o.disk;
    p->deadline_ms = r->o.lifetime_ms;
    p->linger = r->o.keep;
    if (r->o.net && strcmp(r->o.net, "none") != 0) {
        err_set(err, ERR_UNSUPPORTED, "--net %s: a box has no network yet", r->o.net);
        return err_remedy(err, "leave it out, or say --net none");
    }
    if (r->o.apply && (r->o.command.json || !r->o.dirs.count)) {
        err_set(err, ERR_INVALID,
                r->o.command.json ? "--apply asks, and --json has nobody to ask"
                                  : "--apply without a --dir has nothing to copy back");
        return err_remedy(err, "leave one of them out, or lend a directory: --dir .");
    }
    const char *const own[] = {r->place.home, r->place.run, NULL};
    return grants_open(&r->o.dirs, r->o.unreviewed, own, p, &r->grants, err);
}

/* Such a directory is the host's own: what is bound in it answers, whoever knocks. */
static void warn_of_doors(const struct run *r) {
    for (size_t i = 0; i < r->grants.count && !r->o.command.quiet; i++)
        if (r->plan.grants[i].mode == PLAN_GRANT_RW)
            fprintf(stderr,
                    "carrel: '%s' is lent rw: changes go out unreviewed, and sockets and pipes in "
                    "it lead to the host's processes\n",
                    r->grants.host[i]);
}

static int ask_once(struct run *r, int *ret_guest, struct err *err) {
    struct id id = id_new('m');
    memcpy(r->plan.id, id.text, sizeof(r->plan.id));
    if (r->spawner >= 0)
        close(r->spawner);
    r->spawner = spawn_connect(&r->place, r->o.command.quiet ? NULL : announce, err);
    if (r->spawner < 0)
        return -1;
    clock_gettime(CLOCK_REALTIME, &r->started);
    r->message.plan = r->plan;
    return spawn_create(r->spawner, &r->message, r->grants.dirs, ret_guest, r->grants.uppers, err);
}

/*
 * A spawner that went away before it answered has started nothing that the next one would not
 * remove, and no command has run: asking again, for a new machine, is safe.
 */
static int create(struct run *r, struct err *err) {
    int guest = -1, tries = 3;
    while (ask_once(r, &guest, err) < 0)
        if (err->code != ERR_GONE || --tries == 0)
            return -1;
    if (r->message.text[0] && !r->o.command.quiet)
        fprintf(stderr, "carrel: warning: %s\n", r->message.text);
    r->setup.session.link = guest_link_adopt(guest);
    return r->setup.session.link ? 0 : err_set(err, ERR_LIMIT, "out of memory");
}

/* Says once what became of the changes in lent directories; returns how many there were. */
static uint64_t settle_changes(struct run *r, struct err *err) {
    uint64_t total = 0;
    for (size_t i = 0; i < r->grants.count; i++) {
        struct changes c DEFER(changes_done) = {0};
        if (r->grants.uppers[i] < 0 ||
            changes_find(r->grants.uppers[i], r->grants.dirs[i], &c, err) < 0 || c.count == 0)
            continue;
        total += c.count;
        struct apply a = {.link = r->setup.session.link,
                          .grants = &r->grants,
                          .plan = &r->plan,
                          .since = r->started};
        if (r->setup.session.unanswered)
            continue; /* what changed is read through the guest */
        if (r->o.apply && changes_apply(&a, i, &c, err) < 0)
            cli_fail(err);
    }
    if (total && !r->o.apply && !r->o.command.quiet && !r->o.command.json)
        fprintf(stderr,
                r->o.keep ? "carrel: %" PRIu64 " file%s changed in %s\n"
                          : "carrel: %" PRIu64 " file%s changed, discarded: --keep to keep the "
                            "machine, --apply to review and copy them back\n",
                total, total == 1 ? "" : "s", r->plan.id);
    return total;
}

static int finish(struct run *r, struct err *err) {
    struct plan_facts facts;
    struct command_end end = {.id = r->plan.id, .has_grants = r->grants.count > 0};
    if (guest_result_status(&r->setup.session.result) != 0 &&
        spawn_facts(r->spawner, r->plan.id, &facts, err) == 0)
        end.facts = &facts;
    if (r->grants.count)
        end.changed_files = settle_changes(r, err);
    if (r->o.keep && !r->o.command.json)
        fprintf(stderr, "carrel: kept as %s (carrel exec %s -- COMMAND, carrel rm %s)\n",
                r->plan.id, r->plan.id, r->plan.id);
    return command_report(&r->setup, &r->o.command, &end);
}

/* The machine went away under its command: by its own deadline, or nobody knows why. */
static int lost(const struct run *r, struct err *err) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t ms = (uint64_t)(now.tv_sec - r->started.tv_sec) * 1000 +
                  (uint64_t)(now.tv_nsec / 1000000 - r->started.tv_nsec / 1000000);
    err_wrap(err, "machine '%s'", r->plan.id);
    if (err->code != ERR_GONE || !r->plan.deadline_ms || ms < r->plan.deadline_ms)
        return cli_fail(err);
    if (!r->o.command.quiet)
        fprintf(stderr,
                "carrel: ended after %" PRIu64 ".%03" PRIu64
                " s: the machine's lifetime (--lifetime)\n",
                r->plan.deadline_ms / 1000, r->plan.deadline_ms % 1000);
    return 124;
}

static void run_free(struct run **slot) {
    struct run *r = *slot;
    if (!r)
        return;
    guest_link_free(r->setup.session.link);
    grants_close(&r->grants);
    command_done(&r->setup);
    if (r->spawner >= 0)
        close(r->spawner);
    free(r);
}

int cmd_run(int argc, char **argv) {
    struct err err = {0};
    int next;
    struct run *r DEFER(run_free) = calloc(1, sizeof(*r));
    if (!r)
        return CLI_FAILED;
    r->spawner = -1;
    memset(r->grants.dirs, -1, sizeof(r->grants.dirs));
    memset(r->grants.uppers, -1, sizeof(r->grants.uppers));
    if (options_parse(rows, argc - 1, argv + 1, &r->o, &next, &err) < 0)
        return cli_fail(&err);
    if (r->o.command.help) {
        cli_usage("run");
        options_print(rows);
        return 0;
    }
    char **command = argv + 1 + next;
    if (!command[0]) {
        err_set(&err, ERR_INVALID, "no command to run");
        err_remedy(&err, "carrel run -- COMMAND [ARG...]");
        return cli_fail(&err);
    }
    if (place_find(&r->place, &err) < 0 || fill_plan(r, &err) < 0)
        return cli_fail(&err);
    warn_of_doors(r);
    const char *cwd = r->grants.working >= 0 ? r->plan.grants[r->grants.working].path : NULL;
    r->setup.session.far = &far_guest;
    r->setup.session.ends_machine = !r->o.keep;
    if (command_prepare(&r->setup, &r->o.command, command, cwd, &err) < 0 || create(r, &err) < 0)
        return cli_fail(&err);
    if (session_run(&r->setup.session, &err) < 0)
        return lost(r, &err);
    return finish(r, &err);
}
