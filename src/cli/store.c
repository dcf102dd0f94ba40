/*
 * carrel store: `check` verifies that all layers of all steps exist. `init` sets the disk format.
 * `boxes` lists boxes (sandboxes on this host) that no machine of this store owns, and `adopt`
 * makes a machine of one.
 */
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/options.h"
#include "cli/safe.h"
#include "cli/store_init.h"
#include "cli/table.h"

struct store_options {
    struct store_init init;
    bool quiet, help;
};

#define AT(member) offsetof(struct store_options, member)
const struct option_row store_rows[] = {
    {0, "btrfs", "SIZE", OPTION_SIZE, AT(init.btrfs_bytes),
     "init: give new machines btrfs disks of this size; snapshots are then instant"},
    {0, "plain", NULL, OPTION_FLAG, AT(init.plain), "init: give new machines disks without btrfs"},
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet), "with `boxes`: print only ids"},
    {0, "json", NULL, OPTION_FLAG, AT(init.json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};
#undef AT

static void print_problem(const json_t *p) {
    fputs("machine ", stdout);
    safe_name(stdout, client_text(p, "machine"));
    printf(": %s", client_text(p, "what"));
    if (*client_text(p, "layer"))
        printf(" (%s)", client_text(p, "layer"));
    printf("\n  %s\n", client_text(p, "remedy"));
}

static void print_report(const json_t *answer) {
    size_t i;
    const json_t *p;
    json_array_foreach(json_object_get(answer, "problems"), i, p) print_problem(p);
    printf("%lld machines, %lld layers used by %lld steps and roots: %s\n",
           client_number(answer, "machines"), client_number(answer, "layers"),
           client_number(answer, "stacks"),
           json_is_true(json_object_get(answer, "whole")) ? "complete" : "INCOMPLETE");
    if (client_number(answer, "leftovers"))
        printf("%lld layers are unused; they are deleted with the next old steps\n",
               client_number(answer, "leftovers"));
    if (client_number(answer, "unchecked"))
        printf("%lld machines could not be checked; try again\n",
               client_number(answer, "unchecked"));
}

static int store_cmd_check(const struct store_options *o, struct err *err) {
    struct client c DEFER(client_close) = {0};
    json_t *answer DEFER(json_decrefp) = NULL;
    const struct client_request r = {.method = "GET", .target = "/v1/store/check"};
    if (client_open(&c, CLIENT_IF_MACHINES, NULL, err) < 0 || client_call(&c, &r, &answer, err) < 0)
        return -1;
    if (o->init.json)
        print_json(answer);
    else
        print_report(answer);
    return json_is_true(json_object_get(answer, "whole")) ? 0 : 1;
}

static int boxes(const struct store_options *o, const char *none, struct err *err) {
    struct client c DEFER(client_close) = {0};
    json_t *answer DEFER(json_decrefp) = NULL;
    const struct client_request r = {.method = "GET", .target = "/v1/store/boxes"};
    size_t i;
    const json_t *b;
    (void)none;
    if (client_open(&c, CLIENT_IF_MACHINES, NULL, err) < 0 || client_call(&c, &r, &answer, err) < 0)
        return -1;
    if (o->init.json || o->quiet) {
        if (o->init.json)
            print_json(answer);
        else
            print_ids(json_object_get(answer, "boxes"), "id");
        return 0;
    }
    puts("BOX             STORE           REASON");
    json_array_foreach(json_object_get(answer, "boxes"), i, b) {
        const char *store = client_text(b, "store");
        printf("%-14s  %-14s  %s\n", client_text(b, "id"), *store ? store : "-",
               client_text(b, "reason"));
    }
    return 0;
}

static int adopt(const struct store_options *o, const char *id, struct err *err) {
    struct client c DEFER(client_close) = {0};
    json_t *answer DEFER(json_decrefp) = NULL;
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "POST", .target = target};
    if (client_target(target, err, "/v1/store/boxes/%s/adopt", id) < 0 ||
        client_open(&c, CLIENT_IF_MACHINES, NULL, err) < 0 || client_call(&c, &r, &answer, err) < 0)
        return -1;
    if (o->init.json)
        print_json(answer);
    else
        puts(client_text(answer, "id"));
    return 0;
}

static int check_verb(const struct store_options *o, const char *none, struct err *err) {
    (void)none;
    return store_cmd_check(o, err);
}

static int init_verb(const struct store_options *o, const char *none, struct err *err) {
    (void)none;
    return store_init(&o->init, err);
}

static const struct store_verb {
    const char *name;
    int (*run)(const struct store_options *o, const char *word, struct err *err);
    bool takes_id;
} store_verbs[] = {
    {"check", check_verb, false},
    {"init", init_verb, false},
    {"boxes", boxes, false},
    {"adopt", adopt, true},
};

static const struct store_verb *verb_named(const char *name) {
    for (size_t i = 0; i < sizeof(store_verbs) / sizeof(*store_verbs); i++)
        if (strcmp(store_verbs[i].name, name) == 0)
            return &store_verbs[i];
    return NULL;
}

int cmd_store(int argc, char **argv) {
    struct store_options o = {0};
    struct err err;
    char *words[2] = {NULL, NULL};
    if (options_words(store_rows, argc, argv, &o, words, 2, &err) < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_usage("store");
        options_print(store_rows);
        return 0;
    }
    const struct store_verb *verb = words[0] ? verb_named(words[0]) : NULL;
    const char *word = words[1];
    if (!verb) {
        cli_unknown_subcommand("store", words[0] ? words[0] : "", &err);
        return cli_fail(&err);
    }
    if (!verb->takes_id && word) {
        err_set(&err, ERR_INVALID, "unexpected argument '%s'", word);
        err_remedy(&err, "see carrel store --help");
        return cli_fail(&err);
    }
    if (verb->takes_id && !word) {
        err_set(&err, ERR_INVALID, "no box given");
        err_remedy(&err, "see carrel store boxes");
        return cli_fail(&err);
    }
    int r = verb->run(&o, word, &err);
    return r < 0 ? cli_fail(&err) : r;
}
