/* carrel move: makes a box a vm. */
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/options.h"
#include "cli/table.h"

struct move_options {
    const char *kind;
    uint64_t mem;
    bool json, help;
};

#define AT(member) offsetof(struct move_options, member)

const struct option_row move_rows[] = {
    {0, "kind", "vm", OPTION_TEXT, AT(kind), "the new kind of the machine; required"},
    {'m', "mem", "SIZE", OPTION_SIZE, AT(mem),
     "memory of the vm (default: the limit set for the box, or 512M)"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

static int move_check(const struct move_options *o, int count, struct err *err) {
    if (count != 1) {
        err_set(err, ERR_INVALID, "no machine given");
        return err_remedy(err, "carrel move --kind vm MACHINE");
    }
    if (o->kind && strcmp(o->kind, "vm") == 0)
        return 0;
    if (!o->kind)
        err_set(err, ERR_INVALID, "no --kind given");
    else
        err_set(err, ERR_INVALID, "--kind %s: a box can only become a vm", o->kind);
    return err_remedy(err, "carrel move --kind vm MACHINE");
}

static int move_ask(struct client *c, const struct move_options *o, const char *machine,
                    json_t **ret, struct err *err) {
    struct buf body DEFER(buf_done) = BUF(256);
    struct jot j = JOT(&body);
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "POST", .target = target, .body = &body};
    jot_object(&j, NULL);
    jot_string(&j, "kind", o->kind);
    if (o->mem)
        jot_u64(&j, "mem", o->mem);
    jot_end(&j, '}');
    if (client_open(c, CLIENT_IF_MACHINES, NULL, err) < 0 ||
        client_target(target, err, "/v1/machines/%s/move", machine) < 0)
        return -1;
    return client_call(c, &r, ret, err);
}

int cmd_move(int argc, char **argv) {
    struct client c DEFER(client_close) = {0};
    json_t *machine DEFER(json_decrefp) = NULL;
    struct move_options o = {.json = false};
    char *words[1] = {NULL};
    struct err err;
    int count = options_words(move_rows, argc, argv, &o, words, 1, &err);
    if (count < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_help("move");
        return 0;
    }
    if (move_check(&o, count, &err) < 0 || move_ask(&c, &o, words[0], &machine, &err) < 0)
        return cli_fail(&err);
    if (*client_text(machine, "warnings"))
        fprintf(stderr, "carrel: warning: %s\n", client_text(machine, "warnings"));
    if (o.json)
        print_json(machine);
    else
        printf("%s %s\n", client_text(machine, "id"), client_text(machine, "state"));
    return 0;
}
