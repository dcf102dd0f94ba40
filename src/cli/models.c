/* carrel models: providers and prices, what calls cost, and the budgets of machines. */
#include <stdio.h>
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
    const char *money, *by;
    uint64_t tokens, days;
    bool quiet, json, help;
};

#define AT(member) offsetof(struct models_options, member)

const struct option_row models_rows[] = {
    {0, "money", "AMOUNT", OPTION_TEXT, AT(money), "raise: new budget in money, such as 1.50"},
    {0, "tokens", "N", OPTION_NUMBER, AT(tokens), "raise: new budget in tokens"},
    {0, "by", "day|model|machine|owner", OPTION_TEXT, AT(by),
     "usage: what a line is (default: day)"},
    {0, "days", "N", OPTION_NUMBER, AT(days), "usage: number of days, of UTC (default: 30)"},
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

/* ---- lists ---- */

static int models_list(struct client *c, const struct models_options *o, char **words, json_t **ret,
                       struct err *err) {
    const struct client_request r = {.method = "GET", .target = "/v1/models"};
    (void)o, (void)words;
    return client_call(c, &r, ret, err);
}

static int models_usage(struct client *c, const struct models_options *o, char **words,
                        json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE], days[24];
    const struct client_request r = {.method = "GET", .target = target};
    (void)words;
    snprintf(days, sizeof(days), "%llu", (unsigned long long)(o->days ? o->days : 30));
    if (client_target(target, err, "/v1/models/usage?by=%s&days=%s", o->by ? o->by : "day", days) <
        0)
        return -1;
    return client_call(c, &r, ret, err);
}

static void print_providers(const json_t *answer) {
    size_t i;
    const json_t *p;
    puts("PROVIDER          FORMAT      STATE");
    json_array_foreach(json_object_get(answer, "providers"), i, p) {
        table_cell(client_text(p, "name"), 16);
        table_cell(client_text(p, "format"), 10);
        bool ready = json_is_true(json_object_get(p, "ready"));
        fputs(ready ? "ready" : "not ready: ", stdout);
        table_cell(ready ? "" : client_text(p, "missing"), 0);
        putchar('\n');
    }
}

static void print_aliases(const json_t *answer) {
    size_t i, k;
    const json_t *a, *model;
    const json_t *all = json_object_get(answer, "aliases");
    if (json_array_size(all))
        puts("\nALIAS             MODELS");
    json_array_foreach(all, i, a) {
        table_cell(client_text(a, "name"), 16);
        json_array_foreach(json_object_get(a, "models"), k, model) {
            if (k)
                putchar(' ');
            table_cell(json_string_value(model), 0);
        }
        putchar('\n');
    }
}

/* Prints a price such as "3" or "0.3"; "-" if it is not known. */
static void print_price(const json_t *object, const char *name) {
    const json_t *price = json_object_get(object, name);
    char text[32] = "-";
    if (price)
        snprintf(text, sizeof(text), "%.6g", json_number_value(price));
    table_cell(text, 11);
}

static void print_prices(const json_t *answer) {
    static const char *const names[] = {"in", "out", "cache_read", "cache_write"};
    size_t i;
    const json_t *m;
    const json_t *all = json_object_get(answer, "models");
    if (json_array_size(all))
        printf("\nMODEL                             IN           OUT          CACHE READ   "
               "CACHE WRITE  (%s per million tokens)\n",
               client_text(answer, "currency"));
    json_array_foreach(all, i, m) {
        table_cell(client_text(m, "name"), 32);
        for (size_t k = 0; k < sizeof(names) / sizeof(*names); k++)
            print_price(m, names[k]);
        putchar('\n');
    }
}

static void models_print_list(const json_t *answer) {
    const char *first = client_text(answer, "default");
    print_providers(answer);
    print_aliases(answer);
    print_prices(answer);
    if (first && *first) {
        fputs("\ndefault: ", stdout);
        table_cell(first, 0);
        putchar('\n');
    }
}

struct usage_column {
    const char *member, *title;
};
static const struct usage_column usage_columns[] = {
    {"calls", "CALLS"},        {"in", "INPUT"},   {"cache_read", "CACHED"},
    {"cache_write", "STORED"}, {"out", "OUTPUT"}, {"tokens", "TOKENS"},
};
enum { USAGE_COLUMNS = sizeof(usage_columns) / sizeof(*usage_columns), USAGE_KEY_WIDTH = 28 };

static void print_usage_row(const char *key, const json_t *row) {
    char text[32];
    table_cell(key, USAGE_KEY_WIDTH);
    for (size_t i = 0; i < USAGE_COLUMNS; i++) {
        snprintf(text, sizeof(text), "%lld", client_number(row, usage_columns[i].member));
        table_cell(text, 10);
    }
    printf("%.4f\n", json_number_value(json_object_get(row, "money")));
}

static void models_print_usage(const json_t *answer) {
    const char *by = client_text(answer, "by");
    size_t i;
    const json_t *row;
    const char *const titles[][2] = {
        {"day", "DAY"}, {"model", "MODEL"}, {"machine", "MACHINE"}, {"owner", "OWNER"}};
    for (size_t k = 0; k < sizeof(titles) / sizeof(*titles); k++)
        if (strcmp(titles[k][0], by) == 0)
            table_cell(titles[k][1], USAGE_KEY_WIDTH);
    for (size_t k = 0; k < USAGE_COLUMNS; k++)
        table_cell(usage_columns[k].title, 10);
    printf("%s\n", client_text(answer, "currency"));
    json_array_foreach(json_object_get(answer, "usage"), i, row) {
        const char *name = client_text(row, "name"), *key = client_text(row, by);
        print_usage_row(name && *name ? name : key && *key ? key : "(no machine)", row);
    }
}

static void models_print_budget(const json_t *answer) {
    units_print(answer, 0);
}

static const struct {
    const char *name;
    int words;
    int (*run)(struct client *c, const struct models_options *o, char **words, json_t **ret,
               struct err *err);
    void (*print)(const json_t *answer);
    const char *done; /* what it did; NULL: nothing was changed */
} models_verbs[] = {
    {"ls", 0, models_list, models_print_list, NULL},
    {"usage", 0, models_usage, models_print_usage, NULL},
    {"show", 1, models_show, models_print_budget, NULL},
    {"raise", 1, models_raise, models_print_budget, "changed the model budget of machine"},
};
enum { MODELS_VERBS = sizeof(models_verbs) / sizeof(*models_verbs) };

/* Finds the subcommand and checks the number of its arguments. */
static int models_verb(char **words, int count, size_t *ret, struct err *err) {
    size_t v = 0;
    *ret = 0;
    if (!count) /* the first one */
        return 0;
    while (v < MODELS_VERBS && strcmp(models_verbs[v].name, words[0]) != 0)
        v++;
    if (v == MODELS_VERBS) {
        cli_unknown_subcommand("models", words[0], err);
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
        client_open(&c, models_verbs[v].words ? CLIENT_IF_MACHINES : CLIENT_START, NULL, &err) <
            0 ||
        models_verbs[v].run(&c, &o, words + 1, &answer, &err) < 0)
        return cli_fail(&err);
    if (answer && o.json)
        print_json(answer);
    else if (answer)
        models_verbs[v].print(answer);
    if (models_verbs[v].done)
        cli_done(o.quiet || o.json, "%s '%s'", models_verbs[v].done, words[1]);
    return 0;
}
