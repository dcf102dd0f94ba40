/* carrel exec, ls, rm: machines that were kept. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/id.h"
#include "cli/cli.h"
#include "cli/machine.h"
#include "cli/remote.h"
#include "cli/table.h"
#include "io/place.h"
#include "io/spawn_link.h"

struct exec_options {
    struct command_options command;
};

static const struct option_row exec_rows[] = {
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
    guest_link_free((*slot)->setup.session.link);
    remote_done(&(*slot)->remote);
    client_close(&(*slot)->client);
    command_done(&(*slot)->setup);
    free(*slot);
}

static int check_id(const char *id, struct err *err) {
    if (id && id_valid(id, strlen(id), 'm'))
        return 0;
    err_set(err, ERR_INVALID, id ? "'%s' is not the id of a machine" : "no machine named", id);
    return err_remedy(err, "see `carrel ls`");
}

/* A machine of the daemon's, if it is running and knows it. */
static bool is_daemons(struct exec *x, const char *machine) {
    struct err err;
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    if (client_open(&x->client, CLIENT_ONLY_RUNNING, NULL, &err) < 0 ||
        client_target(target, &err, "/v1/machines/%s", machine) < 0 ||
        client_call(&x->client, &r, NULL, &err) < 0)
        return false;
    x->remote = (struct remote){.client = &x->client, .machine = machine};
    x->setup.session.remote = &x->remote;
    x->setup.session.far = &far_daemon;
    return true;
}

static int connect_to(const struct place *place, const char *id, struct guest_link **ret,
                      struct err *err) {
    char path[PLACE_SIZE + 64];
    snprintf(path, sizeof(path), "%s/boxes/%s/guest.sock", place->run, id);
    *ret = guest_link_connect(path, err);
    if (*ret)
        return 0;
    err_set(err, ERR_NOT_FOUND, "there is no machine '%s'", id);
    return err_remedy(err, "see `carrel ls`");
}

int cmd_exec(int argc, char **argv) {
    struct err err = {0};
    struct place place;
    int next;
    struct exec *x DEFER(exec_free) = calloc(1, sizeof(*x));
    if (!x)
        return CLI_FAILED;
    if (options_parse(exec_rows, argc - 1, argv + 1, &x->o, &next, &err) < 0)
        return cli_fail(&err);
    if (x->o.command.help) {
        cli_usage("exec");
        options_print(exec_rows);
        return 0;
    }
    const char *id = argv[1 + next];
    if (!id) {
        check_id(id, &err);
        return cli_fail(&err);
    }
    char **command = argv + 2 + next;
    if (command[0] && strcmp(command[0], "--") == 0)
        command++;
    if (!command[0]) {
        err_set(&err, ERR_INVALID, "no command to run");
        err_remedy(&err, "carrel exec %s -- COMMAND [ARG...]", id);
        return cli_fail(&err);
    }
    x->setup.session.far = &far_guest;
    if (!is_daemons(x, id) && (check_id(id, &err) < 0 || place_find(&place, &err) < 0 ||
                               connect_to(&place, id, &x->setup.session.link, &err) < 0))
        return cli_fail(&err);
    if (command_prepare(&x->setup, &x->o.command, command, NULL, &err) < 0)
        return cli_fail(&err);
    if (session_run(&x->setup.session, &err) < 0) {
        err_wrap(&err, "machine '%s'", id);
        return cli_fail(&err);
    }
    struct command_end end = {.id = id};
    return command_report(&x->setup, &x->o.command, &end);
}

/* ---- ls ---- */

/* What the spawner has, if there is one: boxes that `run --keep` left, and counts. */
static int spawner_status(json_t **ret, struct err *err) {
    struct place place;
    char *text DEFER_FREE = calloc(1, PLAN_TEXT_SIZE);
    if (!text)
        return err_set(err, ERR_LIMIT, "out of memory");
    if (place_find(&place, err) < 0)
        return -1;
    int link DEFER_CLOSE = spawn_try_connect(&place, err);
    if (link < 0 && err->code != ERR_NOT_FOUND)
        return -1;
    if (link >= 0 && spawn_status(link, text, PLAN_TEXT_SIZE, err) < 0)
        return -1;
    *ret = link < 0 ? json_pack("{s:i,s:[]}", "boxes", 0, "machines") : json_loads(text, 0, NULL);
    return *ret ? 0 : err_set(err, ERR_INTERNAL, "the spawner's answer is no JSON");
}

/* All pages of the daemon's list, newest first. */
static int daemon_machines(struct client *c, json_t *rows, struct err *err) {
    char cursor[128] = "", target[CLIENT_TARGET_SIZE];
    do {
        json_t *page DEFER(json_free) = NULL;
        const struct client_request r = {.method = "GET", .target = target};
        snprintf(target, sizeof(target), "/v1/machines");
        if (client_query(target, "limit", "500", err) < 0 ||
            client_query(target, "cursor", cursor[0] ? cursor : NULL, err) < 0 ||
            client_call(c, &r, &page, err) < 0)
            return -1;
        json_array_extend(rows, json_object_get(page, "machines"));
        snprintf(cursor, sizeof(cursor), "%s", client_text(page, "next"));
    } while (cursor[0]);
    return 0;
}

static bool has_id(const json_t *rows, const char *id) {
    size_t i;
    json_t *m;
    json_array_foreach(rows, i, m) {
        if (strcmp(client_text(m, "id"), id) == 0)
            return true;
    }
    return false;
}

/* The spawner's status, with the daemon's machines described as the daemon does. */
static int list_machines(json_t **ret, struct err *err) {
    struct client c DEFER(client_close) = {0};
    json_t *rows = json_array(), *m;
    size_t i;
    if (spawner_status(ret, err) < 0 || (client_open(&c, CLIENT_ONLY_RUNNING, NULL, err) < 0
                                             ? err->code != ERR_NOT_FOUND
                                             : daemon_machines(&c, rows, err) < 0)) {
        json_decref(rows);
        return -1;
    }
    json_array_foreach(json_object_get(*ret, "machines"), i, m) {
        if (!has_id(rows, client_text(m, "id")))
            json_array_append(rows, m);
    }
    json_object_set_new(*ret, "machines", rows);
    return 0;
}

static void print_machine(const json_t *m) {
    const char *name = client_text(m, "name"), *state = client_text(m, "state");
    bool drifted = json_is_true(json_object_get(m, "drifted"));
    char age[16] = "-", mem[16] = "-";
    if (*client_text(m, "created")) {
        table_age(client_text(m, "created"), age);
        table_bytes(client_number(json_object_get(m, "limits"), "mem"), mem);
    }
    table_cell(client_text(m, "id"), 14);
    table_cell(*name ? name : "-", 12);
    table_cell(*state ? state : "running", 8);
    table_cell(mem, 5);
    table_cell(age, 4);
    puts(drifted ? "drifted" : "");
}

int cmd_ls(int argc, char **argv) {
    struct err err = {0};
    json_t *list DEFER(json_free) = NULL;
    bool as_json = false;
    int status;
    size_t i;
    json_t *m;
    if (cli_words(argc, argv, 0, &as_json, &status) < 0)
        return status;
    if (list_machines(&list, &err) < 0)
        return cli_fail(&err);
    if (as_json) {
        print_json(list);
        return 0;
    }
    puts("MACHINE         NAME          STATE     MEM    AGE");
    json_array_foreach(json_object_get(list, "machines"), i, m) {
        print_machine(m);
    }
    return 0;
}

/* ---- rm ---- */

static int remove_one(struct client *c, const char *machine, struct err *err) {
    struct place place;
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "DELETE", .target = target};
    if (c->http && client_target(target, err, "/v1/machines/%s", machine) == 0) {
        if (client_call(c, &r, NULL, err) == 0)
            return 0;
        if (err->code != ERR_NOT_FOUND)
            return -1;
    }
    if (check_id(machine, err) < 0 || place_find(&place, err) < 0)
        return -1;
    int link DEFER_CLOSE = spawn_try_connect(&place, err);
    if (link < 0)
        return err_set(err, ERR_NOT_FOUND, "there is no machine '%s'", machine);
    return spawn_destroy(link, machine, err);
}

int cmd_rm(int argc, char **argv) {
    struct client c DEFER(client_close) = {0};
    struct err err = {0};
    int status = 0;
    if (cli_words(argc, argv, argc, NULL, &status) < 0)
        return status;
    if (argc < 2) {
        check_id(NULL, &err);
        return cli_fail(&err);
    }
    client_open(&c, CLIENT_ONLY_RUNNING, NULL, &err);
    for (int i = 1; i < argc; i++)
        if (remove_one(&c, argv[i], &err) < 0)
            status = cli_fail(&err);
    return status;
}
