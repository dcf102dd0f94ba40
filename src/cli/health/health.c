/* carrel health: checks one machine. */
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "cli/cli.h"
#include "cli/machine.h"
#include "cli/table.h"

enum { IS_BAD = 1 }; /* exit status */

static void health_print(const json_t *health) {
    const json_t *check;
    size_t i;
    json_array_foreach(json_object_get(health, "checks"), i, check) {
        table_cell(client_text(check, "name"), 8);
        table_cell(client_text(check, "state"), 9);
        puts(client_text(check, "text"));
    }
}

int cmd_health(int argc, char **argv) {
    struct client c DEFER(client_close) = {0};
    json_t *health DEFER(json_decrefp) = NULL;
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    struct err err;
    bool json = false;
    const char *machine = NULL;
    int status;
    if (cli_words(argc, argv, 1, &json, &status) < 0)
        return status;
    for (int i = 1; i < argc; i++)
        if (argv[i][0] != '-')
            machine = argv[i];
    if (cli_machine_check(machine, &err) < 0 || cli_machine_open(&c, machine, &err) < 0 ||
        client_target(target, &err, "/v1/machines/%s/health", machine) < 0 ||
        client_call(&c, &r, &health, &err) < 0)
        return cli_fail(&err);
    if (json)
        print_json(health);
    else
        health_print(health);
    return strcmp(client_text(health, "state"), "bad") == 0 ? IS_BAD : 0;
}
