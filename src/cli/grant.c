/* carrel grant, grants: lists, adds and revokes grants of a machine. */
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/handed.h"
#include "cli/options.h"
#include "cli/safe.h"
#include "cli/spec.h"
#include "cli/table.h"
#include "cli/text/units.h"

struct grant_options {
    struct handed_options handed;
    struct option_list env;
    bool quiet, json, help;
};

#define AT(member) offsetof(struct grant_options, member)

const struct option_row grant_rows[] = {
    HANDED_OPTIONS(struct grant_options, handed),
    {'e', "env", "NAME=VALUE", OPTION_LIST, AT(env),
     "add: set an environment variable for later commands in the machine"},
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet), "print only ids"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

/* ---- printing ---- */

/* Prints other databases of the server, which every role may connect to. */
static void print_others(const json_t *others) {
    size_t i;
    json_t *name;
    if (!json_array_size(others))
        return;
    fputs("  this role may also connect to these databases of the server:", stdout);
    json_array_foreach(others, i, name) {
        putchar(' ');
        safe_name(stdout, json_string_value(name) ? json_string_value(name) : "");
    }
    putchar('\n');
}

/* Prints why a database could not be dropped when its grant ended. */
static void print_stays(const json_t *g) {
    const char *why = client_text(json_object_get(g, "detail"), "why");
    if (!*why)
        return;
    fputs("  the database could not be dropped: ", stdout);
    safe_name(stdout, why);
    puts(strcmp(client_text(g, "mode"), "given-up") == 0
             ? "\n  drop the database and its role on the server, then revoke this grant"
             : "");
}

static void print_grant(const json_t *g) {
    const char *at = client_text(g, "at");
    char left[TABLE_LEFT_SIZE];
    table_cell(client_text(g, "id"), 14);
    table_cell(client_text(g, "kind"), 8);
    table_cell(*client_text(g, "mode") ? client_text(g, "mode") : "-", 8);
    table_left(client_number(g, "expires_ms"), left);
    table_cell(left, TABLE_LEFT_WIDTH);
    safe_name(stdout, client_text(g, "what"));
    if (*at) {
        fputs(strcmp(client_text(g, "kind"), "secret") == 0 ? " @ " : " -> ", stdout);
        safe_name(stdout, at);
    }
    putchar('\n');
    if (*client_text(json_object_get(g, "detail"), "public_key"))
        printf("  %s\n", client_text(json_object_get(g, "detail"), "public_key"));
    print_others(json_object_get(json_object_get(g, "detail"), "others"));
    print_stays(g);
}

static void print_answer(const json_t *answer, const struct grant_options *o) {
    size_t i;
    json_t *row;
    if (o->json) {
        print_json(answer);
        return;
    }
    if (*client_text(answer, "warnings"))
        fprintf(stderr, "carrel: warning: %s\n", client_text(answer, "warnings"));
    if (o->quiet) {
        print_ids(json_object_get(answer, "grants"), "id");
        return;
    }
    puts("GRANT           KIND      MODE      LEFT      WHAT");
    json_array_foreach(json_object_get(answer, "grants"), i, row) {
        print_grant(row);
    }
}

/* ---- subcommands ---- */

static int grant_list(struct client *c, const struct grant_options *o, char **words, json_t **ret,
                      struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    (void)o;
    return client_target(target, err, "/v1/machines/%s/grants", words[0]) < 0
               ? -1
               : client_call(c, &r, ret, err);
}

/* Sets *ret to one grant, not to a list of grants. */
static int grant_show(struct client *c, const struct grant_options *o, char **words, json_t **ret,
                      struct err *err) {
    json_t *list DEFER(json_decrefp) = NULL;
    if (grant_list(c, o, words, &list, err) < 0)
        return -1;
    const json_t *grant = table_find(json_object_get(list, "grants"), "id", words[1]);
    if (!grant) {
        err_set(err, ERR_NOT_FOUND, "machine '%s' has no grant '%s'", words[0], words[1]);
        return err_remedy(err, "see carrel grants %s", words[0]);
    }
    *ret = json_incref((json_t *)grant);
    return 0;
}

static int grant_take_back(struct client *c, const struct grant_options *o, char **words,
                           json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "DELETE", .target = target};
    if (client_target(target, err, "/v1/machines/%s/grants/%s", words[0], words[1]) < 0 ||
        client_call(c, &r, ret, err) < 0)
        return -1;
    cli_done(o->quiet || o->json, "revoked grant '%s' of machine '%s'", words[1], words[0]);
    return 0;
}

static int add_one(struct client *c, const struct grant_options *o, const char *machine,
                   const char *kind, const char *text, json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    struct handed h DEFER(handed_close) = {.count = 0};
    struct buf body DEFER(buf_done) = BUF(1 << 18);
    struct jot j = JOT(&body);
    jot_object(&j, NULL);
    spec_put_duration(&j, "expires", o->handed.expires_ms);
    if (handed_put_words(&j, kind, text, &h, err) < 0 ||
        client_target(target, err, "/v1/machines/%s/grants", machine) < 0)
        return -1;
    jot_end(&j, '}');
    const struct client_request r = {.method = "POST",
                                     .target = target,
                                     .body = &body,
                                     .fds = h.fds,
                                     .nfds = c->local ? h.count : 0};
    json_decref(*ret);
    *ret = NULL;
    return j.failed
               ? err_set(err, ERR_LIMIT, "the options of carrel grant are too long for one request")
               : client_call(c, &r, ret, err);
}

static int grant_add(struct client *c, const struct grant_options *o, char **words, json_t **ret,
                     struct err *err) {
    const struct {
        const char *kind;
        const struct option_list *list;
    } lists[] = {{"file", &o->handed.files},     {"repo", &o->handed.repos},
                 {"db", &o->handed.dbs},         {"identity", &o->handed.identities},
                 {"secret", &o->handed.secrets}, {"env", &o->env}};
    bool any = false;
    for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
        for (size_t k = 0; k < lists[i].list->count; k++) {
            any = true;
            if (add_one(c, o, words[0], lists[i].kind, lists[i].list->items[k], ret, err) < 0)
                return -1;
        }
    if (any)
        return 0;
    err_set(err, ERR_INVALID, "carrel grant add requires an option such as --file or --secret");
    return err_remedy(err, "see carrel grant --help");
}

static const struct {
    const char *name;
    int words;
    int (*run)(struct client *c, const struct grant_options *o, char **words, json_t **ret,
               struct err *err);
} verbs[] = {{"ls", 1, grant_list},
             {"show", 2, grant_show},
             {"add", 1, grant_add},
             {"revoke", 2, grant_take_back}};
enum { VERBS = sizeof(verbs) / sizeof(*verbs), WORDS = 3 };

static int grant_run(const struct grant_options *o, size_t verb, char **words, struct err *err) {
    struct client c DEFER(client_close) = {0};
    json_t *answer DEFER(json_decrefp) = NULL;
    if (client_open(&c, CLIENT_IF_MACHINES, NULL, err) < 0 ||
        verbs[verb].run(&c, o, words, &answer, err) < 0)
        return -1;
    if (json_object_get(answer, "grants") || o->json)
        print_answer(answer, o);
    else
        units_print(answer, 0);
    return 0;
}

int cmd_grant(int argc, char **argv) {
    struct grant_options o = {0};
    char *words[WORDS] = {NULL};
    struct err err;
    int count = options_words(grant_rows, argc, argv, &o, words, WORDS, &err);
    if (count < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_help("grant");
        return 0;
    }
    size_t v = 0;
    while (v < VERBS && (!count || strcmp(verbs[v].name, words[0]) != 0))
        v++;
    if (v == VERBS) {
        cli_unknown_subcommand("grant", count ? words[0] : "", &err);
        return cli_fail(&err);
    }
    if (verbs[v].words != count - 1) {
        err_set(&err, ERR_INVALID, "carrel grant %s takes %d argument%s", words[0], verbs[v].words,
                verbs[v].words == 1 ? "" : "s");
        err_remedy(&err, "see carrel grant --help");
        return cli_fail(&err);
    }
    return grant_run(&o, v, words + 1, &err) < 0 ? cli_fail(&err) : 0;
}

int cmd_grants(int argc, char **argv) {
    struct grant_options o = {0};
    char *machine = NULL;
    struct err err;
    int status;
    struct list_flags flags = {.quiet = false};
    if (cli_list_words(argc, argv, 1, &flags, &status) < 0)
        return status;
    o.quiet = flags.quiet;
    o.json = flags.json;
    for (int i = 1; i < argc; i++)
        if (argv[i][0] != '-')
            machine = argv[i];
    if (!machine) {
        err_set(&err, ERR_INVALID, "no machine given");
        err_remedy(&err, "see `carrel ls`");
        return cli_fail(&err);
    }
    return grant_run(&o, 0, &machine, &err) < 0 ? cli_fail(&err) : 0;
}
