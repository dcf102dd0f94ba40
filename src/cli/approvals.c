/* carrel pending, approve, deny, answer: requests and questions that wait for their owner. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "cli/approvals.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/events.h"
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

/* A question of a program in a machine, which is untrusted text. */
static void print_question(const json_t *p) {
    char left[16];
    snprintf(left, sizeof(left), "%llds", client_number(p, "left_ms") / 1000);
    table_cell(client_text(p, "id"), 14);
    table_cell(client_text(p, "machine"), 14);
    table_cell(left, 5);
    table_cell("question", 8);
    printf(json_is_true(json_object_get(p, "moves")) ? "carrel approve %s makes it a vm\n"
                                                     : "carrel answer %s TEXT\n",
           client_text(p, "id"));
    print_indented(client_text(p, "question"));
}

static bool is_question(const json_t *p) {
    return strcmp(client_text(p, "protocol"), "question") == 0;
}

static void print_item(const json_t *p) {
    char where[300], left[16];
    if (is_question(p)) {
        print_question(p);
        return;
    }
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

const struct option_row answer_rows[] = {
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet), DONE_QUIET_HELP},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

static int question_answer(struct client *c, const char *id, const char *text, bool quiet,
                           struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    struct buf body DEFER(buf_done) = BUF(TARGET_MAX * 4);
    struct jot j = JOT(&body);
    const struct client_request r = {.method = "POST", .target = target, .body = &body};
    jot_object(&j, NULL);
    jot_string(&j, "decision", "answer");
    jot_string(&j, "text", text);
    jot_end(&j, '}');
    if (j.failed)
        return err_set(err, ERR_LIMIT, "the answer is too long");
    if (client_target(target, err, "/v1/pending/%s", id) < 0 || client_call(c, &r, NULL, err) < 0)
        return -1;
    cli_done(quiet, "answered question '%s'", id);
    return 0;
}

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

int cmd_answer(int argc, char **argv) {
    struct client c DEFER(client_close) = {0};
    struct approve_options o = {0};
    struct err err;
    char *words[3] = {NULL};
    int count = options_words(answer_rows, argc, argv, &o, words, 2, &err);
    if (count < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_usage("answer");
        options_print(answer_rows);
        return 0;
    }
    if (count < 2) {
        err_set(&err, ERR_INVALID, "carrel answer requires the id of a question and a text");
        err_remedy(&err, "to list the questions: carrel pending");
        return cli_fail(&err);
    }
    if (client_open(&c, CLIENT_START, NULL, &err) < 0 ||
        question_answer(&c, words[0], words[1], o.quiet, &err) < 0)
        return cli_fail(&err);
    return 0;
}

int cmd_approve(int argc, char **argv) {
    return decide_all(argc, argv, approve_rows);
}

int cmd_deny(int argc, char **argv) {
    return decide_all(argc, argv, deny_rows);
}

/* ---- carrel pending ---- */

struct pending_options {
    bool watch, quiet, json, help;
};

#undef AT
#define AT(member) offsetof(struct pending_options, member)

const struct option_row pending_rows[] = {
    {0, "watch", NULL, OPTION_FLAG, AT(watch),
     "print requests as they come; on a terminal, ask what to do with each"},
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet), "print only ids"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print JSON; with --watch, one object per line"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

struct pending_watch {
    struct client *second; /* the first connection delivers the events */
    const struct pending_options *options;
    bool asks;
    json_t *seen; /* ids of the requests that wait and were shown */
};

int approvals_get(struct client *c, json_t **ret, struct err *err) {
    const struct client_request r = {.method = "GET", .target = "/v1/pending"};
    return client_call_again(c, &r, ret, err);
}

bool approvals_is_open(const json_t *item) {
    return !json_is_true(json_object_get(item, "approved"));
}

static void print_head(void) {
    puts("ITEM            MACHINE         LEFT   PROTOCOL  WHERE                           METHOD  "
         "PATH");
}

static const struct pending_choice {
    char letter;
    const char *decision; /* NULL: the request continues to wait */
    bool always;
} choices[] = {
    {'y', "approve", false}, {'a', "approve", true}, {'n', "deny", false}, {'l', NULL, false}};

/* Reads the owner's choice; NULL: the input ended. */
static const struct pending_choice *read_choice(const json_t *item, approvals_read_fn *read,
                                                void *arg) {
    bool can = *client_text(item, "always");
    for (;;) {
        printf("    approve it? [y]es, %s[n]o, [l]ater: ", can ? "[a]lways, " : "");
        char *line DEFER_FREE = read(arg);
        if (!line)
            return NULL;
        for (size_t i = 0; i < sizeof(choices) / sizeof(*choices); i++)
            if (line[0] == choices[i].letter && (can || !choices[i].always))
                return &choices[i];
    }
}

/* An empty line leaves the question open. */
static bool ask_for_answer(struct client *c, const json_t *item, approvals_read_fn *read,
                           void *arg) {
    struct err err;
    fputs("    answer (empty: later): ", stdout);
    char *line DEFER_FREE = read(arg);
    if (line && *line && question_answer(c, client_text(item, "id"), line, false, &err) < 0)
        cli_fail(&err);
    return line;
}

static bool ask_about(struct client *c, const json_t *item, approvals_read_fn *read, void *arg) {
    const struct pending_choice *chosen = read_choice(item, read, arg);
    struct err err;
    if (!chosen || !chosen->decision)
        return chosen;
    const struct approve_options o = {.always = chosen->always};
    if (decide(c, client_text(item, "id"), chosen->decision, &o, &err) < 0)
        cli_fail(&err);
    return true;
}

bool approvals_ask(struct client *c, const json_t *item, approvals_read_fn *read, void *arg) {
    print_item(item);
    return is_question(item) ? ask_for_answer(c, item, read, arg) : ask_about(c, item, read, arg);
}

static char *read_stdin(void *arg) {
    char *line = NULL;
    size_t size = 0;
    (void)arg;
    fflush(stdout);
    ssize_t n = getline(&line, &size, stdin);
    if (n > 0 && line[n - 1] == '\n')
        line[n - 1] = '\0';
    if (n >= 0)
        return line;
    free(line);
    return NULL;
}

static void show_new(struct pending_watch *w, const json_t *item) {
    if (w->options->json)
        print_json(item);
    else if (w->options->quiet)
        puts(client_text(item, "id"));
    else if (w->asks)
        w->asks = approvals_ask(w->second, item, read_stdin, NULL);
    else
        print_item(item);
}

static int pending_look_again(void *arg, struct err *err) {
    struct pending_watch *w = arg;
    json_t *list DEFER(json_decrefp) = NULL, *now = json_object(), *item;
    size_t i;
    if (approvals_get(w->second, &list, err) < 0) {
        json_decref(now);
        return -1;
    }
    json_t *before DEFER(json_decrefp) = w->seen;
    w->seen = now;
    json_array_foreach(json_object_get(list, "pending"), i, item) {
        const char *id = client_text(item, "id");
        json_object_set_new(now, id, json_true());
        if (!json_object_get(before, id) && approvals_is_open(item))
            show_new(w, item);
    }
    fflush(stdout);
    return 0;
}

static int pending_event(void *arg, const json_t *event, struct err *err) {
    const char *type = client_text(event, "type");
    bool may_wait = strncmp(type, "net.", 4) == 0 || strncmp(type, "run.", 4) == 0 ||
                    strncmp(type, "machine.a", 9) == 0;
    return may_wait ? pending_look_again(arg, err) : 0;
}

static int pending_watch(struct client *c, const struct pending_options *o, struct err *err) {
    struct client second = *c;
    struct pending_watch w = {.second = &second,
                              .options = o,
                              .asks = !o->json && !o->quiet && isatty(STDIN_FILENO) &&
                                      isatty(STDOUT_FILENO)};
    struct events_follow f = {.event = pending_event, .connected = pending_look_again, .arg = &w};
    second.http = client_again(c, err);
    if (!second.http)
        return -1;
    if (!o->json && !o->quiet)
        print_head();
    int r = events_follow(c, &f, err);
    json_decref(w.seen);
    http_client_free(second.http);
    return r;
}

static int pending_list(struct client *c, const struct pending_options *o, struct err *err) {
    json_t *list DEFER(json_decrefp) = NULL, *p;
    size_t i;
    if (approvals_get(c, &list, err) < 0)
        return -1;
    if (o->json) {
        print_json(list);
    } else if (o->quiet) {
        print_ids(json_object_get(list, "pending"), "id");
    } else {
        print_head();
        json_array_foreach(json_object_get(list, "pending"), i, p) {
            print_item(p);
        }
    }
    return 0;
}

int cmd_pending(int argc, char **argv) {
    struct client c DEFER(client_close) = {0};
    struct pending_options o = {0};
    struct err err;
    if (options_words(pending_rows, argc, argv, &o, NULL, 0, &err) < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_usage("pending");
        options_print(pending_rows);
        return 0;
    }
    if (client_open(&c, CLIENT_START, NULL, &err) < 0 ||
        (o.watch ? pending_watch(&c, &o, &err) : pending_list(&c, &o, &err)) < 0)
        return cli_fail(&err);
    return 0;
}
