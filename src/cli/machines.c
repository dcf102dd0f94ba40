/* carrel exec, ls, rm: machines that were kept. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/id.h"
#include "cli/cli.h"
#include "cli/machine.h"
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
};

static void exec_free(struct exec **slot) {
    if (!*slot)
        return;
    guest_link_free((*slot)->setup.session.link);
    command_done(&(*slot)->setup);
    free(*slot);
}

static int check_id(const char *id, struct err *err) {
    if (id && id_valid(id, strlen(id), 'm'))
        return 0;
    err_set(err, ERR_INVALID, id ? "'%s' is not the id of a machine" : "no machine named", id);
    return err_remedy(err, "see `carrel ls`");
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
    if (check_id(id, &err) < 0)
        return cli_fail(&err);
    char **command = argv + 2 + next;
    if (command[0] && strcmp(command[0], "--") == 0)
        command++;
    if (!command[0]) {
        err_set(&err, ERR_INVALID, "no command to run");
        err_remedy(&err, "carrel exec %s -- COMMAND [ARG...]", id);
        return cli_fail(&err);
    }
    if (place_find(&place, &err) < 0 || connect_to(&place, id, &x->setup.session.link, &err) < 0 ||
        command_prepare(&x->setup, &x->o.command, command, NULL, &err) < 0)
        return cli_fail(&err);
    if (session_run(&x->setup.session, &err) < 0) {
        err_wrap(&err, "machine '%s'", id);
        return cli_fail(&err);
    }
    struct command_end end = {.id = id};
    return command_report(&x->setup, &x->o.command, &end);
}

int cmd_ls(int argc, char **argv) {
    struct err err = {0};
    struct place place;
    char json[PLAN_TEXT_SIZE] = "";
    bool as_json = false;
    int status;
    if (cli_words(argc, argv, 0, &as_json, &status) < 0)
        return status;
    if (place_find(&place, &err) < 0)
        return cli_fail(&err);
    int link DEFER_CLOSE = spawn_try_connect(&place, &err);
    if (link < 0 && err.code != ERR_NOT_FOUND)
        return cli_fail(&err);
    if (link >= 0 && spawn_status(link, json, sizeof(json), &err) < 0)
        return cli_fail(&err);
    if (as_json) {
        puts(link < 0 ? "{\"boxes\":0,\"machines\":[]}" : json);
        return 0;
    }
    /* Our own JSON, written by our own spawner: its machines are "id" texts in order. */
    puts("MACHINE         STATE");
    for (const char *at = json; (at = strstr(at, "{\"id\":\"")); at++) {
        bool drifted = strncmp(at + 7 + ID_SIZE - 1, "\",\"drifted\":true", 16) == 0;
        printf("%.14s  running%s\n", at + 7, drifted ? ", drifted" : "");
    }
    return 0;
}

int cmd_rm(int argc, char **argv) {
    struct err err = {0};
    struct place place;
    int status = 0;
    if (cli_words(argc, argv, argc, NULL, &status) < 0)
        return status;
    if (argc < 2) {
        check_id(NULL, &err);
        return cli_fail(&err);
    }
    if (place_find(&place, &err) < 0)
        return cli_fail(&err);
    int link DEFER_CLOSE = spawn_try_connect(&place, &err);
    for (int i = 1; i < argc; i++) {
        if (check_id(argv[i], &err) < 0) {
            status = cli_fail(&err);
        } else if (link < 0) {
            err_set(&err, ERR_NOT_FOUND, "there is no machine '%s'", argv[i]);
            status = cli_fail(&err);
        } else if (spawn_destroy(link, argv[i], &err) < 0) {
            status = cli_fail(&err);
        }
    }
    return status;
}
