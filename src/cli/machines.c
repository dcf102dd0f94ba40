/* carrel ls and rm: lists and deletes machines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "cli/cli.h"
#include "cli/machine.h"
#include "cli/safe.h"
#include "cli/table.h"
#include "cli/text/colour.h"

int cli_machine_check(const char *machine, struct err *err) {
    if (machine && *machine && !strchr(machine, '/'))
        return 0;
    if (machine && *machine)
        err_set(err, ERR_NOT_FOUND, "machine '%s' does not exist", machine);
    else
        err_set(err, ERR_INVALID, "no machine given");
    return err_remedy(err, "see `carrel ls`");
}

int cli_machine_open(struct client *c, const char *machine, struct err *err) {
    if (cli_machine_check(machine, err) < 0)
        return -1;
    if (client_open(c, CLIENT_IF_MACHINES, NULL, err) == 0)
        return 0;
    if (err->code != ERR_NOT_FOUND)
        return -1;
    err_set(err, ERR_NOT_FOUND, "machine '%s' does not exist", machine);
    return err_remedy(err, "see `carrel ls`");
}

/* ---- ls ---- */

struct ls_options {
    const char *state, *name;
    struct option_list meta;
    bool all, quiet, json, help;
};

#define AT(member) offsetof(struct ls_options, member)

const struct option_row ls_rows[] = {
    {'a', "all", NULL, OPTION_FLAG, AT(all), "include machines that have ended"},
    {0, "state", "STATE[,STATE...]", OPTION_TEXT, AT(state),
     "list only machines that are running, paused, stopped or ended (deleted)"},
    {0, "name", "NAME", OPTION_TEXT, AT(name), "list only machines with this name"},
    {0, "meta", "NAME=VALUE", OPTION_LIST, AT(meta),
     "list only machines with this metadata (repeatable: with all of it)"},
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet), "print only ids"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};
#undef AT

static bool has_metadata(const json_t *machine, const char *pair) {
    char name[256];
    size_t n = strcspn(pair, "=");
    if (n >= sizeof(name))
        return false;
    snprintf(name, sizeof(name), "%.*s", (int)n, pair);
    const json_t *value = json_object_get(json_object_get(machine, "metadata"), name);
    return json_is_string(value) && strcmp(json_string_value(value), pair + n + 1) == 0;
}

/* The daemon filters by the first --meta, and this by the others. */
static void add_page(const json_t *page, const struct ls_options *o, json_t *to) {
    size_t i;
    json_t *m;
    json_array_foreach(json_object_get(page, "machines"), i, m) {
        bool fits = true;
        for (size_t k = 1; k < o->meta.count; k++)
            fits &= has_metadata(m, o->meta.items[k]);
        if (fits)
            json_array_append(to, m);
    }
}

/* Adds the machines of all pages to {"machines":[...]}, and the last page's other members. */
static int list_pages(struct client *c, const struct ls_options *o, json_t *to, struct err *err) {
    static const char *const more[] = {"left_alone", "store"};
    char cursor[128] = "", target[CLIENT_TARGET_SIZE];
    do {
        json_t *page DEFER(json_decrefp) = NULL;
        const struct client_request r = {.method = "GET", .target = target};
        snprintf(target, sizeof(target), "/v1/machines");
        if (client_query(target, "limit", "500", err) < 0 ||
            client_query(target, "cursor", cursor[0] ? cursor : NULL, err) < 0 ||
            client_query(target, "state", o->all ? "all" : o->state, err) < 0 ||
            client_query(target, "name", o->name, err) < 0 ||
            client_query(target, "meta", o->meta.count ? o->meta.items[0] : NULL, err) < 0 ||
            client_call(c, &r, &page, err) < 0)
            return -1;
        add_page(page, o, json_object_get(to, "machines"));
        for (size_t i = 0; i < sizeof(more) / sizeof(*more); i++)
            if (json_object_get(page, more[i]))
                json_object_set(to, more[i], json_object_get(page, more[i]));
        snprintf(cursor, sizeof(cursor), "%s", client_text(page, "next"));
    } while (cursor[0]);
    return 0;
}

int machines_list(struct client *c, json_t **ret, struct err *err) {
    *ret = json_pack("{s:[]}", "machines");
    return list_pages(c, &(struct ls_options){.all = false}, *ret, err);
}

void store_note(const json_t *store, FILE *to) {
    char free[16], total[16];
    if (!store)
        return;
    table_bytes(client_number(store, "free_bytes"), free);
    table_bytes(client_number(store, "total_bytes"), total);
    fprintf(to, "carrel: the disk of the store is used by %lld %%: %s of %s are free; ",
            client_number(store, "used_percent"), free, total);
    safe_name(to, client_text(store, "remedy"));
    fputc('\n', to);
}

/* Gets {"machines":[...]}; the list is empty if this user has neither a daemon nor a store. */
static int list_machines(const struct ls_options *o, struct client *c, json_t **ret,
                         struct err *err) {
    *ret = json_pack("{s:[]}", "machines");
    if (client_open(c, CLIENT_IF_MACHINES, NULL, err) < 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    return list_pages(c, o, *ret, err);
}

/* Names the store that was read: machines of another store or user are not in the list. */
static void explain_empty(const struct client *c) {
    struct stat st;
    fflush(stdout);
    if (!c->local) {
        fputs("carrel: no machines at the daemon of CARREL_URL\n", stderr);
        return;
    }
    if (c->http && stat(c->socket, &st) == 0 && st.st_uid != geteuid()) {
        fprintf(stderr, "carrel: you have no machines at the daemon of another user (uid %u)\n",
                (unsigned)st.st_uid);
        return;
    }
    fprintf(stderr, "carrel: no machines in store '%s'; to create one: carrel new\n",
            c->place.home);
    if (geteuid() != 0 && access(PLACE_SHARED_RUN, F_OK) == 0)
        fputs("carrel: root may have machines of its own; to list them: sudo carrel ls\n", stderr);
}

static void print_machine(const json_t *m) {
    const char *name = client_text(m, "name"), *state = client_text(m, "state");
    bool drifted = json_is_true(json_object_get(m, "drifted"));
    char age[16], mem[16];
    table_age(client_text(m, "created"), age);
    table_bytes(client_number(json_object_get(m, "limits"), "mem"), mem);
    table_cell(client_text(m, "id"), 14);
    table_cell(*name ? name : "-", 12);
    colour_begin(colour_of_state(state));
    table_cell(state, 8);
    colour_end();
    table_cell(mem, 5);
    table_cell(age, 4);
    puts(drifted ? "drifted" : "");
}

static int ls_read(int argc, char **argv, struct ls_options *o, struct err *err) {
    int next;
    if (options_parse(ls_rows, argc - 1, argv + 1, o, &next, err) < 0)
        return -1;
    if (argv[1 + next])
        return err_set(err, ERR_INVALID, "unexpected argument '%s'", argv[1 + next]);
    if (o->all && o->state)
        return err_set(err, ERR_INVALID, "--all and --state exclude each other");
    for (size_t i = 0; i < o->meta.count; i++)
        if (!strchr(o->meta.items[i], '='))
            return err_set(err, ERR_INVALID, "--meta %s: write it as NAME=VALUE", o->meta.items[i]);
    return 0;
}

static void ls_print(const json_t *list, bool ids_only) {
    size_t i;
    json_t *m;
    if (!ids_only)
        colour_heading("MACHINE         NAME          STATE     MEM    AGE");
    json_array_foreach(json_object_get(list, "machines"), i, m) {
        if (ids_only)
            puts(client_text(m, "id"));
        else
            print_machine(m);
    }
    long long alone = client_number(list, "left_alone");
    if (alone && !ids_only)
        fprintf(stderr, "carrel: %lld %s to no machine of this store; see: carrel store boxes\n",
                alone, alone == 1 ? "box on this host belongs" : "boxes on this host belong");
    if (!ids_only)
        store_note(json_object_get(list, "store"), stderr);
}

static bool is_filtered(const struct ls_options *o) {
    return o->state || o->name || o->meta.count;
}

int cmd_ls(int argc, char **argv) {
    struct client c DEFER(client_close) = {0};
    struct ls_options o = {.all = false};
    struct err err = {0};
    json_t *list DEFER(json_decrefp) = NULL;
    if (ls_read(argc, argv, &o, &err) < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_usage("ls");
        options_print(ls_rows);
        return 0;
    }
    if (list_machines(&o, &c, &list, &err) < 0)
        return cli_fail(&err);
    if (o.json)
        print_json(list);
    else
        ls_print(list, o.quiet);
    if (!o.json && !o.quiet && !is_filtered(&o) &&
        !json_array_size(json_object_get(list, "machines")))
        explain_empty(&c);
    return 0;
}

/* ---- rm ---- */

/* True if the machine has ended by itself, such as that of a `carrel run` listed a moment ago. */
static bool has_ended(struct client *c, const char *target) {
    const struct client_request r = {.method = "GET", .target = target};
    json_t *shown DEFER(json_decrefp) = NULL;
    struct err none;
    return client_call(c, &r, &shown, &none) == 0 &&
           strcmp(client_text(shown, "state"), "ended") == 0;
}

static int remove_one(struct client *c, const char *machine, bool quiet, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "DELETE", .target = target};
    if (cli_machine_check(machine, err) < 0 ||
        (!c->http && cli_machine_open(c, machine, err) < 0) ||
        client_target(target, err, "/v1/machines/%s", machine) < 0)
        return -1;
    if (client_call(c, &r, NULL, err) == 0) {
        cli_done(quiet, "deleted machine '%s'", machine);
        return 0;
    }
    if (err->code != ERR_GONE || !has_ended(c, target))
        return -1;
    cli_done(quiet, "machine '%s' has already ended", machine);
    return 0;
}

struct rm_options {
    bool all, yes, quiet, help;
};

const struct option_row rm_rows[] = {
    {'a', "all", NULL, OPTION_FLAG, offsetof(struct rm_options, all), "delete all your machines"},
    {'y', "yes", NULL, OPTION_FLAG, offsetof(struct rm_options, yes),
     "do not ask for confirmation (--all asks on a terminal)"},
    {'q', "quiet", NULL, OPTION_FLAG, offsetof(struct rm_options, quiet), DONE_QUIET_HELP},
    {'h', "help", NULL, OPTION_FLAG, offsetof(struct rm_options, help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

static bool is_confirmed(size_t count) {
    int c, first = 0;
    if (!isatty(STDIN_FILENO) || !count)
        return true;
    fprintf(stderr, "carrel: delete %zu machine%s? [y/N] ", count, count == 1 ? "" : "s");
    while ((c = getchar()) != EOF && c != '\n')
        first = first ? first : c;
    return first == 'y' || first == 'Y';
}

static int remove_all(struct client *c, const struct rm_options *o, struct err *err) {
    json_t *list DEFER(json_decrefp) = NULL, *m;
    int status = 0;
    size_t i;
    if (list_machines(&(struct ls_options){.all = false}, c, &list, err) < 0)
        return cli_fail(err);
    const json_t *rows = json_object_get(list, "machines");
    if (!json_array_size(rows))
        cli_done(o->quiet, "no machines to delete");
    if (!o->yes && !is_confirmed(json_array_size(rows)))
        return CLI_FAILED;
    json_array_foreach(rows, i, m) {
        if (remove_one(c, client_text(m, "id"), o->quiet, err) < 0 && err->code != ERR_NOT_FOUND)
            status = cli_fail(err);
    }
    return status;
}

int cmd_rm(int argc, char **argv) {
    struct client c DEFER(client_close) = {0};
    struct rm_options o = {.all = false};
    struct err err = {0};
    int status = 0;
    if (options_take(rm_rows, argc, argv, &o, &err) < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_usage("rm");
        options_print(rm_rows);
        return 0;
    }
    char **names = argv + 1;
    if (o.all && names[0]) {
        err_set(&err, ERR_INVALID, "--all and machine '%s' exclude each other", names[0]);
        return cli_fail(&err);
    }
    if (o.all)
        return remove_all(&c, &o, &err);
    if (!names[0] && cli_machine_check(NULL, &err) < 0)
        return cli_fail(&err);
    for (; *names; names++)
        if (remove_one(&c, *names, o.quiet, &err) < 0)
            status = cli_fail(&err);
    return status;
}
