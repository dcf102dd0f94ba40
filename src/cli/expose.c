/* carrel expose: makes ports of machines reachable from this host, with a token. */
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/options.h"
#include "cli/table.h"

enum { WORDS = 3 };

struct expose_options {
    bool is_public, quiet, json, help;
};

static int expose_ask(struct client *c, char **words, int count, const struct expose_options *o,
                      json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    struct buf body DEFER(buf_done) = BUF(256);
    struct client_request r = {.method = "GET", .target = target};
    bool removes = count == 3 && strcmp(words[1], "rm") == 0;
    uint64_t port;
    if (count > 1 && parse_u64(words[count - 1], 1, 65535, &port, err) < 0)
        return err_wrap(err, "port");
    if (removes) {
        r.method = "DELETE";
        if (client_target(target, err, "/v1/machines/%s/exposures/%s", words[0], words[2]) < 0)
            return -1;
    } else if (client_target(target, err, "/v1/machines/%s/exposures", words[0]) < 0) {
        return -1;
    }
    if (count == 2) {
        r.method = "POST";
        r.body = &body;
        if (!buf_addf(&body, "{\"port\":%llu,\"public\":%s}", (unsigned long long)port,
                      o->is_public ? "true" : "false"))
            return err_set(err, ERR_LIMIT, "out of memory");
    }
    return client_call(c, &r, ret, err);
}

#define AT(member) offsetof(struct expose_options, member)

const struct option_row expose_rows[] = {
    {0, "public", NULL, OPTION_FLAG, AT(is_public),
     "no token: whoever reaches the address may use the port"},
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet), "print only port numbers"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

static void print_answer(const json_t *answer, const struct expose_options *o) {
    size_t i;
    json_t *row;
    if (o->json) {
        print_json(answer);
        return;
    }
    if (o->quiet) {
        if (json_object_get(answer, "port"))
            printf("%lld\n", client_number(answer, "port"));
        print_ids(json_object_get(answer, "exposures"), "port");
        return;
    }
    if (*client_text(answer, "url"))
        puts(client_text(answer, "url"));
    if (json_is_true(json_object_get(answer, "replaced")))
        fprintf(stderr, "carrel: the earlier link to port %lld no longer works\n",
                client_number(answer, "port"));
    json_array_foreach(json_object_get(answer, "exposures"), i, row) {
        puts(client_text(row, "url"));
    }
}

static int expose_read_words(int argc, char **argv, struct expose_options *o, char *words[WORDS],
                             struct err *err) {
    int count = options_words(expose_rows, argc, argv, o, words, WORDS, err);
    if (count < 0 || o->help)
        return count;
    if (count == 0) {
        err_set(err, ERR_INVALID, "no machine given");
        return err_remedy(err, "see carrel ls");
    }
    if (count == 3 && strcmp(words[1], "rm") != 0) {
        err_set(err, ERR_INVALID, "unexpected argument '%s'", words[2]);
        return err_remedy(err, "see carrel expose --help");
    }
    if (o->is_public && count != 2)
        return err_set(err, ERR_INVALID, "--public works only with a port to expose");
    return count;
}

int cmd_expose(int argc, char **argv) {
    struct client c DEFER(client_close) = {0};
    json_t *answer DEFER(json_decrefp) = NULL;
    struct expose_options o = {.quiet = false};
    struct err err;
    char *words[WORDS] = {NULL};
    int count = expose_read_words(argc, argv, &o, words, &err);
    if (count < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_help("expose");
        return 0;
    }
    if (client_open(&c, CLIENT_START, NULL, &err) < 0 ||
        expose_ask(&c, words, count, &o, &answer, &err) < 0)
        return cli_fail(&err);
    print_answer(answer, &o);
    if (count == 3)
        cli_done(o.quiet || o.json, "port %s of machine '%s' is no longer exposed", words[2],
                 words[0]);
    return 0;
}
