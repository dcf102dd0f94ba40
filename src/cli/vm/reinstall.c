/* carrel reinstall: returns a machine to its image. */
#include <stdio.h>

#include "base/defer.h"
#include "cli/cli.h"
#include "cli/machine.h"
#include "cli/options.h"
#include "cli/table.h"

struct reinstall_options {
    bool keep_home, json, help;
};

#define AT(member) offsetof(struct reinstall_options, member)

const struct option_row reinstall_rows[] = {
    {0, "keep-home", NULL, OPTION_FLAG, AT(keep_home), "keep the files in /home and /root"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

static int reinstall_ask(struct client *c, const char *machine, bool keep_home, json_t **ret,
                         struct err *err) {
    struct buf body DEFER(buf_done) = BUF(64);
    struct jot j = JOT(&body);
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "POST", .target = target, .body = &body};
    jot_object(&j, NULL);
    jot_bool(&j, "keep_home", keep_home);
    jot_end(&j, '}');
    if (cli_machine_open(c, machine, err) < 0 ||
        client_target(target, err, "/v1/machines/%s/reinstall", machine) < 0)
        return -1;
    return client_call(c, &r, ret, err);
}

int cmd_reinstall(int argc, char **argv) {
    struct client c DEFER(client_close) = {0};
    json_t *machine DEFER(json_decrefp) = NULL;
    struct reinstall_options o = {.json = false};
    char *words[1] = {NULL};
    struct err err;
    int count = options_words(reinstall_rows, argc, argv, &o, words, 1, &err);
    if (count < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_help("reinstall");
        return 0;
    }
    if (cli_machine_check(words[0], &err) < 0 ||
        reinstall_ask(&c, words[0], o.keep_home, &machine, &err) < 0)
        return cli_fail(&err);
    if (o.json)
        print_json(machine);
    else
        printf("%s %s\n", client_text(machine, "id"), client_text(machine, "state"));
    return 0;
}
