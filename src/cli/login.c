/*
 * carrel login: stores, lists and deletes subscription logins. The daemon keeps them outside of
 * machines.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/login.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/text/hidden.h"

enum { LOGIN_VALUE_MAX = 16 << 10, LOGIN_WORDS = 2 };

struct login_options {
    bool quiet, json, help;
};

#define AT(member) offsetof(struct login_options, member)

const struct option_row login_rows[] = {
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet), "ls: print only names; else: print nothing"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

static int login_call(struct client *c, const char *method, const char *name,
                      const struct buf *body, json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = method, .target = target, .body = body};
    if ((*name ? client_target(target, err, "/v1/logins/%s", name)
               : client_target(target, err, "/v1/logins")) < 0)
        return -1;
    return client_call(c, &r, ret, err);
}

/* ---- a new login ---- */

/* Whether standard input is the file that Codex itself uses on this host. */
static bool is_host_login(void) {
    char path[PATH_MAX];
    struct stat given, own;
    const char *dir = getenv("CODEX_HOME"), *home = getenv("HOME");
    if (dir && *dir)
        snprintf(path, sizeof(path), "%s/auth.json", dir);
    else
        snprintf(path, sizeof(path), "%s/.codex/auth.json", home ? home : "");
    return fstat(STDIN_FILENO, &given) == 0 && stat(path, &own) == 0 &&
           given.st_dev == own.st_dev && given.st_ino == own.st_ino;
}

/* Codex renews its tokens, and a renewal by one of two users of a login logs out the other. */
static int check_codex(struct err *err) {
    if (isatty(STDIN_FILENO))
        err_set(err, ERR_INVALID, "carrel login codex reads a file from standard input");
    else if (is_host_login())
        err_set(err, ERR_INVALID,
                "this is the login of Codex on this host: Carrel and Codex would log out each "
                "other");
    else
        return 0;
    return err_remedy(err, "make another login: CODEX_HOME=DIR codex login; carrel login codex "
                           "<DIR/auth.json; rm -r DIR");
}

static int login_set(struct client *c, char **words, json_t **ret, struct err *err) {
    char value[LOGIN_VALUE_MAX + 2];
    struct buf body DEFER(buf_done) = BUF(8 * LOGIN_VALUE_MAX);
    struct jot j = JOT(&body);
    (void)ret;
    if ((strcmp(words[0], LOGIN_CODEX) == 0 && check_codex(err) < 0) ||
        hidden_read("token", value, LOGIN_VALUE_MAX, err) < 0)
        return -1;
    jot_object(&j, NULL);
    jot_string(&j, "value", value);
    jot_end(&j, '}');
    explicit_bzero(value, sizeof(value));
    int r = j.failed ? err_set(err, ERR_INVALID, "the login is not UTF-8 text")
                     : login_call(c, "PUT", words[0], &body, NULL, err);
    explicit_bzero(body.data, body.len);
    return r;
}

/* ---- others ---- */

static int login_ls(struct client *c, char **words, json_t **ret, struct err *err) {
    (void)words;
    return login_call(c, "GET", "", NULL, ret, err);
}

static int login_rm(struct client *c, char **words, json_t **ret, struct err *err) {
    (void)ret;
    return login_call(c, "DELETE", words[1], NULL, NULL, err);
}

static const struct {
    const char *name;
    int words;
    int (*run)(struct client *c, char **words, json_t **ret, struct err *err);
    const char *done; /* what it did to the login; NULL: nothing was changed */
} login_verbs[] = {
    {LOGIN_CLAUDE, 0, login_set, "stored login"},
    {LOGIN_CODEX, 0, login_set, "stored login"},
    {"ls", 0, login_ls, NULL},
    {"rm", 1, login_rm, "deleted login"},
};
enum { LOGIN_VERBS = sizeof(login_verbs) / sizeof(*login_verbs) };

static void login_print_row(const json_t *l) {
    char used[32] = "never";
    const char *problem = client_text(l, "problem");
    time_t seconds = (time_t)(client_number(l, "used_ms") / 1000);
    struct tm tm;
    if (seconds && localtime_r(&seconds, &tm))
        strftime(used, sizeof(used), "%Y-%m-%d %H:%M", &tm);
    table_cell(client_text(l, "name"), 10);
    table_cell(used, 16);
    table_cell(*problem ? problem : "ready", 0);
    putchar('\n');
}

static void login_print(const json_t *answer, const struct login_options *o) {
    const json_t *logins = json_object_get(answer, "logins");
    size_t i;
    const json_t *row;
    if (o->json) {
        print_json(answer);
        return;
    }
    if (o->quiet)
        print_ids(logins, "name");
    else
        puts("LOGIN       USED              STATE");
    json_array_foreach(o->quiet ? NULL : logins, i, row) {
        login_print_row(row);
    }
}

static int login_verb(char **words, int count, size_t *ret, struct err *err) {
    size_t v = 0;
    while (v < LOGIN_VERBS && (!count || strcmp(login_verbs[v].name, words[0]) != 0))
        v++;
    if (v == LOGIN_VERBS) {
        cli_unknown_subcommand("login", count ? words[0] : "", err);
        return -1;
    }
    *ret = v;
    if (login_verbs[v].words == count - 1)
        return 0;
    err_set(err, ERR_INVALID, "carrel login %s takes %d argument%s", words[0], login_verbs[v].words,
            login_verbs[v].words == 1 ? "" : "s");
    return err_remedy(err, "see carrel login --help");
}

int cmd_login(int argc, char **argv) {
    struct client c DEFER(client_close) = {0};
    json_t *answer DEFER(json_decrefp) = NULL;
    struct err err;
    struct login_options o = {.quiet = false};
    char *words[LOGIN_WORDS] = {NULL};
    size_t v;
    int count = options_words(login_rows, argc, argv, &o, words, LOGIN_WORDS, &err);
    if (count < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_help("login");
        return 0;
    }
    if (login_verb(words, count, &v, &err) < 0 || client_open(&c, CLIENT_START, NULL, &err) < 0 ||
        login_verbs[v].run(&c, words, &answer, &err) < 0)
        return cli_fail(&err);
    const char *name = login_verbs[v].words ? words[1] : words[0];
    if (!answer && o.json)
        answer = json_pack("{s:s}", "name", name);
    if (answer && login_verbs[v].done)
        print_json(answer);
    else if (answer)
        login_print(answer, &o);
    if (login_verbs[v].done)
        cli_done(o.quiet || o.json, "%s '%s'", login_verbs[v].done, name);
    return 0;
}
