/* carrel net: shows and changes the network rules of a machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/machine.h"
#include "cli/net.h"
#include "cli/options.h"
#include "cli/table.h"

struct net_options {
    const char *methods;
    uint64_t bytes, rate, hold_ms, for_ms;
    bool local, trusted, tainted, quiet, json, help;
};

#define AT(member) offsetof(struct net_options, member)

const struct option_row net_rows[] = {
    {0, "method", "METHOD[,...]", OPTION_TEXT, AT(methods),
     "apply the rule only to these HTTP methods; requires an http(s):// TARGET"},
    {0, "local", NULL, OPTION_FLAG, AT(local),
     "also allow connections to private addresses and to this host"},
    {0, "trusted", NULL, OPTION_FLAG, AT(trusted),
     "trust TARGET: reading from it does not mark the machine as tainted (untrusted)"},
    {0, "tainted", NULL, OPTION_FLAG, AT(tainted),
     "keep the rule in force after a machine with --guard has read untrusted data"},
    {0, "bytes", "SIZE", OPTION_SIZE, AT(bytes),
     "close a connection after this size, sent and received together"},
    {0, "rate", "SIZE", OPTION_SIZE, AT(rate),
     "limit all traffic of the rule to this size per second"},
    {0, "for", "TIME", OPTION_DURATION, AT(for_ms), "delete the rule after this time, such as 2h"},
    {0, "hold", "TIME", OPTION_DURATION, AT(hold_ms),
     "ask: refuse a request after this time without approval (default: 2m)"},
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet), "print only the numbers of rules"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

static void put_seconds(struct jot *j, const char *name, uint64_t ms) {
    char text[32];
    if (!ms)
        return;
    snprintf(text, sizeof(text), "%.3f", (double)ms / 1000);
    jot_raw(j, name, text);
}

static void put_rule(struct jot *j, const char *action, const char *target,
                     const struct net_options *o) {
    jot_object(j, NULL);
    jot_string(j, "action", action);
    jot_string(j, "target", target);
    if (o->methods)
        jot_string(j, "methods", o->methods);
    if (o->local)
        jot_bool(j, "local", true);
    if (o->trusted)
        jot_bool(j, "trusted", true);
    if (o->tainted)
        jot_bool(j, "tainted", true);
    if (o->bytes)
        jot_u64(j, "bytes", o->bytes);
    if (o->rate)
        jot_u64(j, "rate", o->rate);
    put_seconds(j, "hold", o->hold_ms);
    put_seconds(j, "ttl", o->for_ms);
    jot_end(j, '}');
}

/* Writes the rules of --net [allow:|deny:|ask:]TARGET[,local]. */
int net_put(struct jot *j, const struct option_list *list, struct err *err) {
    static const char *const actions[] = {"allow", "deny", "ask"};
    if (!list->count || (list->count == 1 && strcmp(list->items[0], "none") == 0))
        return 0;
    jot_array(j, "net");
    for (size_t i = 0; i < list->count; i++) {
        const char *text = list->items[i], *action = actions[0];
        struct net_options o = {.local = false};
        char target[1024];
        for (size_t k = 0; k < 3; k++) {
            size_t n = strlen(actions[k]);
            if (strncmp(text, actions[k], n) == 0 && text[n] == ':' && text[n + 1] != '/') {
                action = actions[k];
                text += n + 1;
                break;
            }
        }
        if ((size_t)snprintf(target, sizeof(target), "%s", text) >= sizeof(target))
            return err_set(err, ERR_INVALID, "--net %.40s...: the target is too long", text);
        char *comma = strstr(target, ",local");
        if (comma && !comma[6]) {
            *comma = '\0';
            o.local = true;
        }
        put_rule(j, action, target, &o);
    }
    jot_end(j, ']');
    return 0;
}

/* Writes one limit of --models: tokens=N or money=X. */
static int put_limit(struct jot *j, const char *word, struct err *err) {
    uint64_t n;
    const char *value = strchr(word, '=');
    if (strncmp(word, "tokens=", 7) == 0) {
        if (parse_u64(value + 1, 0, 1ull << 50, &n, err) < 0)
            return -1;
        jot_u64(j, "tokens", n);
        return 0;
    }
    if (strncmp(word, "money=", 6) == 0) {
        if (parse_micro(value + 1, &n, err) < 0)
            return -1;
        jot_string(j, "money", value + 1);
        return 0;
    }
    err_set(err, ERR_INVALID, "--models %s: unknown limit", word);
    return err_remedy(err, "use any, tokens=N, money=X or tokens=N,money=X");
}

int net_put_models(struct jot *j, const char *text, struct err *err) {
    char words[128], *rest = words;
    if (!text)
        return 0;
    if ((size_t)snprintf(words, sizeof(words), "%s", text) >= sizeof(words))
        return err_set(err, ERR_INVALID, "--models %.40s...: the value is too long", text);
    jot_object(j, "models");
    jot_bool(j, "allow", true);
    for (char *word; strcmp(text, "any") != 0 && (word = strsep(&rest, ","));)
        if (put_limit(j, word, err) < 0)
            return -1;
    jot_end(j, '}');
    return 0;
}

/* Prints the target of a rule. A rule for one exact path is marked "(only)", with its query. */
static void print_target(const json_t *r) {
    struct buf text DEFER(buf_done) = BUF(4096);
    const char *query = client_text(r, "query");
    bool exact = json_is_true(json_object_get(r, "exact"));
    (void)!buf_addf(&text, "%s%s%s%s", client_text(r, "target"), *query ? "?" : "", query,
                    exact ? " (only)" : "");
    table_cell(text.data ? text.data : "", 40);
}

/* Flags of a rule, by their names in the API and on the command line. */
static const char *const rule_words[] = {"local", "trusted", "tainted"};

static void print_rule(const json_t *r) {
    char id[24], bytes[16] = "-", left[TABLE_LEFT_SIZE];
    snprintf(id, sizeof(id), "%lld", client_number(r, "id"));
    if (client_number(r, "bytes"))
        table_bytes(client_number(r, "bytes"), bytes);
    table_cell(id, 4);
    table_cell(client_text(r, "action"), 6);
    print_target(r);
    table_cell(*client_text(r, "methods") ? client_text(r, "methods") : "-", 10);
    table_cell(bytes, 6);
    table_left(client_number(r, "expires"), left);
    table_cell(left, TABLE_LEFT_WIDTH);
    for (size_t i = 0; i < sizeof(rule_words) / sizeof(*rule_words); i++)
        if (json_is_true(json_object_get(r, rule_words[i])))
            table_cell(rule_words[i], 0);
    table_cell(client_text(r, "preset"), 0);
    putchar('\n');
}

static void print_network(const json_t *n, const struct net_options *o) {
    size_t i;
    json_t *r;
    if (o->json || o->quiet) {
        if (o->json)
            print_json(n);
        else
            print_ids(json_object_get(n, "rules"), "id");
        return;
    }
    puts("RULE  ACTION  TARGET                                    METHODS     BYTES   LEFT");
    if (*client_text(n, "warnings"))
        fprintf(stderr, "carrel: warning: %s\n", client_text(n, "warnings"));
    json_array_foreach(json_object_get(n, "rules"), i, r) {
        print_rule(r);
    }
    puts("      deny    everything else");
    if (*client_text(n, "tainted"))
        printf("tainted: the machine has read from %s%s\n", client_text(n, "tainted"),
               json_is_true(json_object_get(n, "guarded"))
                   ? "; guarded: only presets, rules with --tainted and approved requests are "
                     "still allowed"
                   : "");
    else if (json_is_true(json_object_get(n, "guarded")))
        puts("guarded: the network is closed once the machine has read from an untrusted source");
    if (!json_is_true(json_object_get(n, "listening")))
        puts("the network gate of the machine is not open: the machine can reach nothing now");
}

static int net_show(struct client *c, const char *machine, json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    if (client_target(target, err, "/v1/machines/%s/net", machine) < 0)
        return -1;
    return client_call(c, &r, ret, err);
}

static int net_add(struct client *c, const char *machine, const char *action, const char *rule,
                   const struct net_options *o, json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    struct buf body DEFER(buf_done) = BUF(8192);
    struct jot j = JOT(&body);
    const struct client_request r = {.method = "POST", .target = target, .body = &body};
    put_rule(&j, action, rule, o);
    json_decref(*ret);
    *ret = NULL;
    if (client_target(target, err, "/v1/machines/%s/net/rules", machine) < 0)
        return -1;
    return client_call(c, &r, ret, err);
}

static int take_away(struct client *c, const char *machine, const char *rule, json_t **ret,
                     struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "DELETE", .target = target};
    json_decref(*ret);
    *ret = NULL;
    if (client_target(target, err, "/v1/machines/%s/net/rules/%s", machine, rule) < 0)
        return -1;
    return client_call(c, &r, ret, err);
}

static bool is_action(const char *verb) {
    return strcmp(verb, "allow") == 0 || strcmp(verb, "deny") == 0 || strcmp(verb, "ask") == 0;
}

static int net_act(struct client *c, const char *machine, const char *verb, char **words,
                   const struct net_options *o, json_t **ret, struct err *err) {
    bool removing = strcmp(verb, "rm") == 0;
    if (strcmp(verb, "show") == 0) {
        if (!words[0])
            return net_show(c, machine, ret, err);
        err_set(err, ERR_INVALID, "unexpected argument '%s'", words[0]);
        return err_remedy(err, "see carrel net --help");
    }
    if (!is_action(verb) && !removing)
        return cli_unknown_subcommand("net", verb, err);
    if (!words[0])
        return err_set(err, ERR_INVALID,
                       removing ? "no number of a rule given" : "no target of the rule given");
    for (; *words; words++)
        if ((removing ? take_away(c, machine, *words, ret, err)
                      : net_add(c, machine, verb, *words, o, ret, err)) < 0)
            return -1;
    return 0;
}

int cmd_net(int argc, char **argv) {
    struct net_options o = {0};
    struct client c DEFER(client_close) = {0};
    json_t *network DEFER(json_decrefp) = NULL;
    struct err err;
    int count = options_take(net_rows, argc, argv, &o, &err);
    if (count < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_help("net");
        return 0;
    }
    const char *machine = count ? argv[1] : NULL, *verb = count > 1 ? argv[2] : "show";
    if (cli_machine_check(machine, &err) < 0 || client_open(&c, CLIENT_START, NULL, &err) < 0 ||
        net_act(&c, machine, verb, argv + (count > 1 ? 3 : 2), &o, &network, &err) < 0)
        return cli_fail(&err);
    print_network(network, &o);
    return 0;
}
