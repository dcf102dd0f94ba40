/* carrel secret: sets, lists and deletes secrets, which machines use but never see. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/defer.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/text/hidden.h"
#include "cli/text/units.h"

enum { VALUE_MAX = 8192, WORDS = 2 };

struct secret_options {
    bool quiet, json, help;
};

#define AT(member) offsetof(struct secret_options, member)

const struct option_row secret_rows[] = {
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet), "ls: print only names; set, rm: print nothing"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

/* ---- subcommands ---- */

static int call(struct client *c, const char *method, const char *target, const struct buf *body,
                json_t **ret, struct err *err) {
    const struct client_request r = {.method = method, .target = target, .body = body};
    return client_call(c, &r, ret, err);
}

static int set(struct client *c, char **words, json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE], value[VALUE_MAX + 2];
    struct buf body DEFER(buf_done) = BUF(8 * VALUE_MAX);
    struct jot j = JOT(&body);
    (void)ret;
    if (hidden_read("secret", value, VALUE_MAX, err) < 0)
        return -1;
    jot_object(&j, NULL);
    jot_string(&j, "value", value);
    jot_end(&j, '}');
    explicit_bzero(value, sizeof(value));
    int r = client_target(target, err, "/v1/secrets/%s", words[0]);
    if (r == 0)
        r = call(c, "PUT", target, &body, NULL, err);
    explicit_bzero(body.data, body.len);
    return r;
}

static int secret_list(struct client *c, char **words, json_t **ret, struct err *err) {
    (void)words;
    return call(c, "GET", "/v1/secrets", NULL, ret, err);
}

static int secret_drop(struct client *c, char **words, json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    (void)ret;
    if (client_target(target, err, "/v1/secrets/%s", words[0]) < 0)
        return -1;
    return call(c, "DELETE", target, NULL, NULL, err);
}

static int secret_show(struct client *c, char **words, json_t **ret, struct err *err) {
    json_t *list DEFER(json_decrefp) = NULL;
    if (secret_list(c, words, &list, err) < 0)
        return -1;
    const json_t *secret = table_find(json_object_get(list, "secrets"), "name", words[0]);
    if (!secret) {
        err_set(err, ERR_NOT_FOUND, "secret '%s' does not exist", words[0]);
        return err_remedy(err, "see carrel secret ls");
    }
    *ret = json_copy((json_t *)secret);
    if (!json_object_get(*ret, "used_ms"))
        json_object_set_new(*ret, "used_ms", json_integer(0));
    return 0;
}

static const struct {
    const char *name;
    int words;
    int (*run)(struct client *c, char **words, json_t **ret, struct err *err);
    const char *done; /* what it did to the secret; NULL: nothing was changed */
} verbs[] = {
    {"set", 1, set, "stored secret"},
    {"ls", 0, secret_list, NULL},
    {"show", 1, secret_show, NULL},
    {"rm", 1, secret_drop, "deleted secret"},
};
enum { VERBS = sizeof(verbs) / sizeof(*verbs) };

static void print_secret(const json_t *s) {
    char used[32] = "never";
    time_t seconds = (time_t)(client_number(s, "used_ms") / 1000);
    struct tm tm;
    if (seconds && localtime_r(&seconds, &tm))
        strftime(used, sizeof(used), "%Y-%m-%d %H:%M", &tm);
    table_cell(client_text(s, "name"), 32);
    table_cell(used, 0);
    putchar('\n');
}

static void print_answer(const json_t *answer, const struct secret_options *o) {
    const json_t *secrets = json_object_get(answer, "secrets");
    size_t i;
    const json_t *row;
    if (o->json) {
        print_json(answer);
        return;
    }
    if (!secrets)
        units_print(answer, 0);
    else if (o->quiet)
        print_ids(secrets, "name");
    else
        puts("NAME                              USED");
    json_array_foreach(o->quiet ? NULL : secrets, i, row) {
        print_secret(row);
    }
}

int cmd_secret(int argc, char **argv) {
    struct client c DEFER(client_close) = {0};
    json_t *answer DEFER(json_decrefp) = NULL;
    struct err err;
    struct secret_options o = {.quiet = false};
    char *words[WORDS] = {NULL};
    int count = options_words(secret_rows, argc, argv, &o, words, WORDS, &err);
    if (count < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_help("secret");
        return 0;
    }
    size_t v = 0;
    while (v < VERBS && (!count || strcmp(verbs[v].name, words[0]) != 0))
        v++;
    if (v == VERBS) {
        cli_unknown_subcommand("secret", count ? words[0] : "", &err);
        return cli_fail(&err);
    }
    if (verbs[v].words != count - 1) {
        err_set(&err, ERR_INVALID, "carrel secret %s takes %d argument%s", words[0], verbs[v].words,
                verbs[v].words == 1 ? "" : "s");
        err_remedy(&err, "see carrel secret --help");
        return cli_fail(&err);
    }
    if (client_open(&c, CLIENT_START, NULL, &err) < 0 ||
        verbs[v].run(&c, words + 1, &answer, &err) < 0)
        return cli_fail(&err);
    if (!answer && o.json)
        answer = json_pack("{s:s}", "name", words[1]);
    if (answer)
        print_answer(answer, &o);
    if (verbs[v].done)
        cli_done(o.quiet || o.json, "%s '%s'", verbs[v].done, words[1]);
    return 0;
}
