/* carrel expose: ports inside machines, shown outside. */
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/table.h"

static int expose_ask(struct client *c, char **words, int count, json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    struct buf body DEFER(buf_done) = BUF(256);
    struct client_request r = {.method = "GET", .target = target};
    bool removes = count == 3 && strcmp(words[1], "rm") == 0;
    uint64_t port;
    if (count > 1 && parse_u64(words[count - 1], 1, 65535, &port, err) < 0)
        return -1;
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
        if (!buf_addf(&body, "{\"port\":%llu}", (unsigned long long)port))
            return err_set(err, ERR_LIMIT, "out of memory");
    }
    return client_call(c, &r, ret, err);
}

static void print_answer(const json_t *answer, bool as_json) {
    size_t i;
    json_t *row;
    if (as_json) {
        print_json(answer);
        return;
    }
    if (*client_text(answer, "url"))
        puts(client_text(answer, "url"));
    json_array_foreach(json_object_get(answer, "exposures"), i, row) {
        puts(client_text(row, "url"));
    }
}

int cmd_expose(int argc, char **argv) {
    struct client c DEFER(client_close) = {0};
    json_t *answer DEFER(json_decrefp) = NULL;
    struct err err;
    char *words[4] = {NULL};
    int count = 0;
    bool as_json = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
            cli_help("expose");
            return 0;
        }
        if (strcmp(argv[i], "--json") == 0)
            as_json = true;
        else if (count < 4)
            words[count++] = argv[i];
    }
    if (count < 1 || count > 3 || (count == 3 && strcmp(words[1], "rm") != 0)) {
        err_set(&err, ERR_INVALID,
                "unexpected arguments: write MACHINE, MACHINE PORT or MACHINE rm PORT");
        err_remedy(&err, "see `carrel expose --help`");
        return cli_fail(&err);
    }
    if (client_open(&c, CLIENT_START, NULL, &err) < 0 ||
        expose_ask(&c, words, count, &answer, &err) < 0)
        return cli_fail(&err);
    print_answer(answer, as_json);
    return 0;
}
