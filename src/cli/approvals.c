/* carrel pending, approve, deny: list, approve and refuse requests that wait for an approval. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/options.h"
#include "cli/safe.h"
#include "cli/table.h"

enum { TARGET_MAX = 32768 };

/* Prints text of a machine, which is untrusted: indented, with control characters made visible. */
static void print_indented(const char *text) {
    while (*text) {
        size_t n = strcspn(text, "\n");
        char *line DEFER_FREE = xstrndup(text, n);
        fputs("    ", stdout);
        safe_name(stdout, line);
        putchar('\n');
        text += n + (text[n] == '\n');
    }
}

/* Prints the network rule that --always adds, or why none can be added. A tool call of a run has
 * neither. */
static void print_rule(const json_t *p) {
    const char *rule = client_text(p, "always"), *why = client_text(p, "no_rule");
    struct buf line DEFER(buf_done) = BUF(TARGET_MAX);
    if (!*rule && !*why)
        return;
    (void)!buf_addf(&line, "--always: %s", *rule ? rule : why);
    if (line.data)
        print_indented(line.data);
}

static void print_item(const json_t *p) {
    char where[300], left[16];
    bool web = client_number(p, "port"); /* 0: a tool call of a run, which waits without a limit */
    snprintf(where, sizeof(where), web ? "%s:%lld" : "%s", client_text(p, "host"),
             client_number(p, "port"));
    snprintf(left, sizeof(left), web ? "%llds" : "-", client_number(p, "left_ms") / 1000);
    table_cell(client_text(p, "id"), 14);
    table_cell(client_text(p, "machine"), 14);
    table_cell(left, 5);
    table_cell(client_text(p, "protocol"), 8);
    table_cell(where, 30);
    table_cell(client_text(p, "method"), 6);
    const char *query = client_text(p, "query");
    struct buf target DEFER(buf_done) = BUF(TARGET_MAX);
    (void)!buf_addf(&target, "%s%s%s", client_text(p, "path"), *query ? "?" : "", query);
    table_cell(target.data ? target.data : "", 0);
    putchar('\n');
    if (!web)
        printf("    call: %lld bytes, sha256 %s; repeated spaces are shown as dots\n",
               client_number(p, "bytes"), client_text(p, "sha256"));
    print_indented(client_text(p, "why"));
    print_indented(client_text(p, "first"));
    if (json_object_get(p, "body_sha256"))
        printf("    body: %lld bytes, sha256 %s\n", client_number(p, "body"),
               client_text(p, "body_sha256"));
    print_rule(p);
}

int cmd_pending(int argc, char **argv) {
    struct client c DEFER(client_close) = {0};
    json_t *list DEFER(json_decrefp) = NULL, *p;
    const struct client_request r = {.method = "GET", .target = "/v1/pending"};
    struct err err;
    struct list_flags flags = {.quiet = false};
    int status;
    size_t i;
    if (cli_list_words(argc, argv, 0, &flags, &status) < 0)
        return status;
    if (client_open(&c, CLIENT_START, NULL, &err) < 0 || client_call(&c, &r, &list, &err) < 0)
        return cli_fail(&err);
    if (flags.json || flags.quiet) {
        if (flags.json)
            print_json(list);
        else
            print_ids(json_object_get(list, "pending"), "id");
        return 0;
    }
    puts("ITEM            MACHINE         LEFT   PROTOCOL  WHERE                           METHOD  "
         "PATH");
    json_array_foreach(json_object_get(list, "pending"), i, p) {
        print_item(p);
    }
    return 0;
}

struct approve_options {
    uint64_t for_ms;
    bool always, quiet, help;
};

#define AT(member) offsetof(struct approve_options, member)

const struct option_row approve_rows[] = {
    {0, "always", NULL, OPTION_FLAG, AT(always),
     "approve the requests and add the network rule that carrel pending shows"},
    {0, "for", "TIME", OPTION_DURATION, AT(for_ms),
     "like --always, but delete the added rule after this time, such as 2h"},
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet), DONE_QUIET_HELP},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};
const struct option_row deny_rows[] = {
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet), DONE_QUIET_HELP},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

static int decide(struct client *c, const char *id, const char *decision,
                  const struct approve_options *o, struct err *err) {
    char target[CLIENT_TARGET_SIZE], seconds[32];
    struct buf body DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&body);
    const struct client_request r = {.method = "POST", .target = target, .body = &body};
    jot_object(&j, NULL);
    jot_string(&j, "decision", decision);
    if (o->always)
        jot_bool(&j, "always", true);
    snprintf(seconds, sizeof(seconds), "%.3f", (double)o->for_ms / 1000);
    if (o->for_ms)
        jot_raw(&j, "ttl", seconds);
    jot_end(&j, '}');
    json_t *answer DEFER(json_decrefp) = NULL;
    if (client_target(target, err, "/v1/pending/%s", id) < 0 ||
        client_call(c, &r, &answer, err) < 0)
        return -1;
    cli_done(o->quiet, "%s request '%s'", strcmp(decision, "deny") == 0 ? "denied" : "approved",
             id);
    if (json_object_get(answer, "rule") && !o->quiet) {
        printf("rule %lld: ", client_number(answer, "rule"));
        safe_name(stdout, client_text(answer, "added"));
        putchar('\n');
    }
    return 0;
}

static int decide_all(int argc, char **argv, const struct option_row *rows) {
    struct client c DEFER(client_close) = {0};
    struct approve_options o = {0};
    struct err err;
    int status = 0;
    if (options_take(rows, argc, argv, &o, &err) < 0)
        return cli_fail(&err);
    char **ids = argv + 1;
    if (o.help) {
        cli_usage(argv[0]);
        options_print(rows);
        return 0;
    }
    if (!ids[0]) {
        err_set(&err, ERR_INVALID, "carrel %s requires the id of a pending item", argv[0]);
        err_remedy(&err, "to list the ids: carrel pending");
        return cli_fail(&err);
    }
    if (o.always && o.for_ms) {
        err_set(&err, ERR_INVALID, "--always and --for exclude each other");
        return cli_fail(&err);
    }
    if (client_open(&c, CLIENT_START, NULL, &err) < 0)
        return cli_fail(&err);
    for (; *ids; ids++)
        if (decide(&c, *ids, argv[0], &o, &err) < 0)
            status = cli_fail(&err);
    return status;
}

int cmd_approve(int argc, char **argv) {
    return decide_all(argc, argv, approve_rows);
}

int cmd_deny(int argc, char **argv) {
    return decide_all(argc, argv, deny_rows);
}
