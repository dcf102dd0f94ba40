/* carrel ship --ls: lists change sets, also those of machines that were deleted. */
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/safe.h"
#include "cli/ship/ship.h"
#include "cli/table.h"

/* Prints what a change set is of: "REPOSITORY (REF)", "PATH of DIRECTORY", or PATH. */
static void list_subject(const json_t *set) {
    const char *home = client_text(set, "home"), *ref = client_text(set, "ref");
    if (strcmp(client_text(set, "kind"), "repo") == 0) {
        safe_name(stdout, home);
        if (*ref) {
            fputs(" (", stdout);
            safe_name(stdout, ref);
            putchar(')');
        }
    } else {
        safe_name(stdout, client_text(set, *client_text(set, "slice") ? "slice" : "path"));
        if (*home) {
            fputs(" of ", stdout);
            safe_name(stdout, home);
        }
    }
    if (*client_text(set, "instead"))
        printf("  see %s", client_text(set, "instead"));
    putchar('\n');
}

static void list_print(const json_t *sets) {
    const json_t *set;
    size_t i;
    json_array_foreach(sets, i, set) {
        const char *name = client_text(set, "machine_name");
        char age[16];
        table_age(client_text(set, "created"), age);
        table_cell(client_text(set, "id"), 14);
        table_cell(*name ? name : client_text(set, "machine"), 14);
        table_cell(client_text(set, "state"), 10);
        table_cell(age, 4);
        list_subject(set);
    }
}

static int list_page(struct ship *s, const char *machine, char cursor[64], json_t *to,
                     struct err *err) {
    char target[CLIENT_TARGET_SIZE] = "/v1/changesets";
    const struct client_request r = {.method = "GET", .target = target};
    json_t *page DEFER(json_decrefp) = NULL;
    if (client_query(target, "limit", "1000", err) < 0 ||
        client_query(target, "machine", machine, err) < 0 ||
        client_query(target, "state", s->options->all ? "all" : NULL, err) < 0 ||
        client_query(target, "cursor", *cursor ? cursor : NULL, err) < 0 ||
        client_call_again(s->client, &r, &page, err) < 0)
        return -1;
    json_array_extend(to, json_object_get(page, "changesets"));
    snprintf(cursor, 64, "%s", client_text(page, "next"));
    return 0;
}

/* If no daemon ever ran here, the list is empty, like that of `carrel ls`. */
int ship_list_none(const struct ship *s) {
    if (s->options->json)
        puts("{\"changesets\":[]}");
    return 0;
}

int ship_list(struct ship *s, const char *machine, struct err *err) {
    json_t *all DEFER(json_decrefp) = json_pack("{s:[]}", "changesets");
    json_t *sets = json_object_get(all, "changesets");
    char cursor[64] = "";
    do {
        if (list_page(s, machine, cursor, sets, err) < 0)
            return -1;
    } while (*cursor);
    if (s->options->json)
        print_json(all);
    else
        list_print(sets);
    return 0;
}
