/* carrel models: the budgets of machines for calls of language models. */
#include <string.h>

#include "base/defer.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/text/units.h"

enum { MODELS_WORDS = 2 };

struct models_options {
    const char *money;
    uint64_t tokens;
    bool quiet, json, help;
};

#define AT(member) offsetof(struct models_options, member)

const struct option_row models_rows[] = {
    {0, "money", "AMOUNT", OPTION_TEXT, AT(money), "raise: new budget in money, such as 1.50"},
    {0, "tokens", "N", OPTION_NUMBER, AT(tokens), "raise: new budget in tokens"},
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet), DONE_QUIET_HELP},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

static int models_get(struct client *c, const char *machine, json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    json_t *stats DEFER(json_decrefp) = NULL;
    const struct client_request r = {.method = "GET", .target = target};
    if (client_target(target, err, "/v1/machines/%s/stats", machine) < 0 ||
        client_call(c, &r, &stats, err) < 0)
        return -1;
    *ret = json_incref(json_object_get(stats, "models"));
    if (*ret)
        return 0;
    err_set(err, ERR_NOT_FOUND, "machine '%s' has not called a model", machine);
    return err_remedy(err, "give a new machine access with --models, or an existing one with "
                           "carrel net MACHINE allow http://models.carrel");
}

static int models_show(struct client *c, const struct models_options *o, char **words, json_t **ret,
                       struct err *err) {
    (void)o;
    return models_get(c, words[0], ret, err);
}

static int models_raise(struct client *c, const struct models_options *o, char **words,
                        json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    struct buf body DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&body);
    uint64_t micro;
    const struct client_request r = {.method = "PATCH", .target = target, .body = &body};
    if (!o->money && !o->tokens) {
        err_set(err, ERR_INVALID, "carrel models raise requires --money AMOUNT or --tokens N");
        return err_remedy(err, "see carrel models --help");
    }
    if (o->money && parse_micro(o->money, &micro, err) < 0)
        return err_wrap(err, "--money %s", o->money);
    jot_object(&j, NULL);
    jot_object(&j, "models");
    if (o->money)
        jot_string(&j, "money", o->money);
    if (o->tokens)
        jot_u64(&j, "tokens", o->tokens);
    jot_end(&j, '}');
    jot_end(&j, '}');
    if (client_target(target, err, "/v1/machines/%s", words[0]) < 0 ||
        client_call(c, &r, NULL, err) < 0)
        return -1;
    return o->json ? models_get(c, words[0], ret, err) : 0;
}

static const struct {
    const char *name;
    int words;
    int (*run)(struct client *c, const struct models_options *o, char **words, json_t **ret,
               struct err *err);
    const char *done; /* what it did; NULL: nothing was changed */
} models_verbs[] = {
    {"show", 1, models_show, NULL},
    {"raise", 1, models_raise, "changed the model budget of machine"},
};
enum { MODELS_VERBS = sizeof(models_verbs) / sizeof(*models_verbs) };

/* Finds the subcommand and checks the number of its arguments. */
static int models_verb(char **words, int count, size_t *ret, struct err *err) {
    size_t v = 0;
    while (v < MODELS_VERBS && (!count || strcmp(models_verbs[v].name, words[0]) != 0))
        v++;
    if (v == MODELS_VERBS) {
        cli_unknown_subcommand("models", count ? words[0] : "", err);
        return -1;
    }
    *ret = v;
    if (models_verbs[v].words == count - 1)
        return 0;
    err_set(err, ERR_INVALID, "carrel models %s takes %d argument%s", words[0],
            models_verbs[v].words, models_verbs[v].words == 1 ? "" : "s");
    return err_remedy(err, "see carrel models --help");
}

int cmd_models(int argc, char **argv) {
    struct client c DEFER(client_close) = {0};
    json_t *answer DEFER(json_decrefp) = NULL;
    struct err err = {0};
    struct models_options o = {.quiet = false};
    char *words[MODELS_WORDS] = {NULL};
    size_t v = 0;
    int count = options_words(models_rows, argc, argv, &o, words, MODELS_WORDS, &err);
    if (count < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_help("models");
        return 0;
    }
    if (models_verb(words, count, &v, &err) < 0 ||
        client_open(&c, CLIENT_IF_MACHINES, NULL, &err) < 0 ||
        models_verbs[v].run(&c, &o, words + 1, &answer, &err) < 0)
        return cli_fail(&err);
    if (answer && o.json)
        print_json(answer);
    else if (answer)
        units_print(answer, 0);
    if (models_verbs[v].done)
        cli_done(o.quiet || o.json, "%s '%s'", models_verbs[v].done, words[1]);
    return 0;
}
