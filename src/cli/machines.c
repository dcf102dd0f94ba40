/* carrel ls and rm: existing machines. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "cli/cli.h"
#include "cli/machine.h"
#include "cli/table.h"

int cli_machine_check(const char *machine, struct err *err) {
    if (machine && *machine && !strchr(machine, '/'))
        return 0;
    if (machine && *machine)
        err_set(err, ERR_NOT_FOUND, "there is no machine '%s'", machine);
    else
        err_set(err, ERR_INVALID, "no machine named");
    return err_remedy(err, "see `carrel ls`");
}

int cli_machine_open(struct client *c, const char *machine, struct err *err) {
    if (cli_machine_check(machine, err) < 0)
        return -1;
    if (client_open(c, CLIENT_IF_MACHINES, NULL, err) == 0)
        return 0;
    if (err->code != ERR_NOT_FOUND)
        return -1;
    err_set(err, ERR_NOT_FOUND, "there is no machine '%s'", machine);
    return err_remedy(err, "see `carrel ls`");
}

/* ---- ls ---- */

/* left_alone: boxes that do not belong to machines of this store; 0 if absent. */
static int list_pages(struct client *c, json_t *rows, long long *left_alone, struct err *err) {
    char cursor[128] = "", target[CLIENT_TARGET_SIZE];
    do {
        json_t *page DEFER(json_decrefp) = NULL;
        const struct client_request r = {.method = "GET", .target = target};
        snprintf(target, sizeof(target), "/v1/machines");
        if (client_query(target, "limit", "500", err) < 0 ||
            client_query(target, "cursor", cursor[0] ? cursor : NULL, err) < 0 ||
            client_call(c, &r, &page, err) < 0)
            return -1;
        json_array_extend(rows, json_object_get(page, "machines"));
        *left_alone = client_number(page, "left_alone");
        snprintf(cursor, sizeof(cursor), "%s", client_text(page, "next"));
    } while (cursor[0]);
    return 0;
}

int machines_list(struct client *c, json_t *rows, struct err *err) {
    long long left_alone;
    return list_pages(c, rows, &left_alone, err);
}

/* {"machines":[...]}; where no daemon runs there are none. */
static int list_machines(json_t **ret, struct err *err) {
    struct client c DEFER(client_close) = {0};
    json_t *rows = json_array();
    long long left_alone = 0;
    *ret = json_pack("{s:o}", "machines", rows);
    if (client_open(&c, CLIENT_IF_MACHINES, NULL, err) < 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    if (list_pages(&c, rows, &left_alone, err) < 0)
        return -1;
    if (left_alone)
        json_object_set_new(*ret, "left_alone", json_integer(left_alone));
    return 0;
}

static void print_machine(const json_t *m) {
    const char *name = client_text(m, "name"), *state = client_text(m, "state");
    bool drifted = json_is_true(json_object_get(m, "drifted"));
    char age[16], mem[16];
    table_age(client_text(m, "created"), age);
    table_bytes(client_number(json_object_get(m, "limits"), "mem"), mem);
    table_cell(client_text(m, "id"), 14);
    table_cell(*name ? name : "-", 12);
    table_cell(state, 8);
    table_cell(mem, 5);
    table_cell(age, 4);
    puts(drifted ? "drifted" : "");
}

int cmd_ls(int argc, char **argv) {
    struct err err = {0};
    json_t *list DEFER(json_decrefp) = NULL;
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
    long long alone = client_number(list, "left_alone");
    if (alone)
        fprintf(stderr, "carrel: %lld %s left alone; see: carrel store boxes\n", alone,
                alone == 1 ? "box on this host is" : "boxes on this host are");
    return 0;
}

/* ---- rm ---- */

static int remove_one(struct client *c, const char *machine, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "DELETE", .target = target};
    return cli_machine_check(machine, err) < 0 ||
                   (!c->http && cli_machine_open(c, machine, err) < 0) ||
                   client_target(target, err, "/v1/machines/%s", machine) < 0
               ? -1
               : client_call(c, &r, NULL, err);
}

int cmd_rm(int argc, char **argv) {
    struct client c DEFER(client_close) = {0};
    struct err err = {0};
    int status = 0;
    if (cli_words(argc, argv, argc, NULL, &status) < 0)
        return status;
    if (argc < 2 && cli_machine_check(NULL, &err) < 0)
        return cli_fail(&err);
    for (int i = 1; i < argc; i++)
        if (remove_one(&c, argv[i], &err) < 0)
            status = cli_fail(&err);
    return status;
}
