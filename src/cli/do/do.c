/* carrel do: starts a run (a model that works on a task) and shows its tool calls. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "cli/do/do.h"
#include "cli/net.h"
#include "cli/options.h"
#include "cli/safe.h"
#include "cli/table.h"
#include "cli/text/colour.h"
#include "cli/text/units.h"

enum {
    LINE_MAX_BYTES = 32 << 20,
    SECOND_THOUGHTS_MS = 2000,
    LOOK_MS = 300, /* time between two checks for ^C */
};

#define AT(member) offsetof(struct do_options, member)
const struct option_row do_rows[] = {
    {0, "model", "PROVIDER/MODEL", OPTION_TEXT, AT(model),
     "model to use (default: from carrel.conf)"},
    {0, "provider", "NAME", OPTION_TEXT, AT(provider),
     "provider of --model; `rehearsal` answers from --script and needs no API key"},
    {0, "script", "FILE", OPTION_TEXT, AT(script),
     "script of model answers for the provider `rehearsal`"},
    {0, "mode", "free|plan-then-execute|action-selector|map|handles", OPTION_TEXT, AT(mode),
     "limit tool calls (plan-then-execute, action-selector) or seen results (map, handles)"},
    {0, "menu", "FILE", OPTION_TEXT, AT(menu),
     "file of the tool calls that the model may make in mode action-selector"},
    {0, "ask-deviations", NULL, OPTION_FLAG, AT(ask_deviations),
     "mode plan-then-execute: ask you about tool calls outside the plan (carrel pending)"},
    {0, "turns", "N", OPTION_NUMBER, AT(turns),
     "stop the run after N turns (answers) of the model (default: 200)"},
    {0, "tokens", "N", OPTION_NUMBER, AT(tokens),
     "stop the run after N tokens, input and output together (default: no limit)"},
    {0, "money", "AMOUNT", OPTION_TEXT, AT(money),
     "stop the run after this cost, such as 1.50 (default: no limit)"},
    {0, "timeout", "TIME", OPTION_DURATION, AT(timeout_ms),
     "stop the run after this time, without pauses, such as 20m (default: no limit)"},
    {0, "tries", "N", OPTION_NUMBER, AT(tries),
     "make N attempts at the task at once, each in its own machine; keep the best"},
    {0, "check", "COMMAND", OPTION_TEXT, AT(check),
     "with --tries: an attempt succeeds if this command exits with 0"},
    {0, "check-file", "FILE:/PATH", OPTION_LIST, AT(check_files),
     "with --check: copy this file into the machine before the command runs (repeatable)"},
    NEW_OPTIONS(struct do_options, made),
    {0, "resume", "RUN", OPTION_TEXT, AT(resume),
     "continue an interrupted run of a task, or watch one that is in progress"},
    {0, "cancel", "RUN", OPTION_TEXT, AT(cancel), "cancel a run of a task"},
    {0, "export", "RUN", OPTION_TEXT, AT(export),
     "print a run as JSON in the Agent Trajectory Format (ATIF)"},
    {0, "ls", NULL, OPTION_FLAG, AT(ls), "list the runs of tasks"},
    {0, "show", "RUN", OPTION_TEXT, AT(show), "show one run of a task"},
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet), "with --ls: print only ids"},
    {'v', "verbose", NULL, OPTION_FLAG, AT(verbose),
     "show the model's texts and the output of its tool calls"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print the run as JSON when it ends"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

struct doing {
    struct client client;
    const struct do_options *options;
    const char *run;
    json_t *view; /* the run as it was at its start */
    struct do_screen screen;
    unsigned questions; /* number of questions so far */
    bool interrupted;
};

/* ---- questions of the model ---- */

/* A request about the run on a connection of its own, because the first one carries the events. */
static int ask_beside(struct doing *d, struct client_request *r, const char *target_format,
                      json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    struct client second = d->client;
    if (client_target(target, err, target_format, d->run) < 0)
        return -1;
    r->target = target;
    second.http = client_again(&d->client, err);
    if (!second.http)
        return -1;
    int status = client_call(&second, r, ret, err);
    http_client_free(second.http);
    return status;
}

/* True if the run still waits for this answer: the transcript has old questions too. */
static bool is_asked_now(struct doing *d, const char *question) {
    struct client_request r = {.method = "GET"};
    json_t *run DEFER(json_decrefp) = NULL;
    struct err none;
    return ask_beside(d, &r, "/v1/runs/%s", &run, &none) == 0 &&
           strcmp(client_text(json_object_get(run, "question"), "id"), question) == 0;
}

static int send_answer(struct doing *d, const char *question, const char *answer, struct err *err) {
    struct buf body DEFER(buf_done) = BUF(128 << 10);
    struct jot j = JOT(&body);
    struct client_request r = {.method = "POST", .body = &body};
    jot_object(&j, NULL);
    jot_string(&j, "question", question);
    jot_string(&j, "action", answer ? "accept" : "decline");
    if (answer)
        jot_string(&j, "answer", answer);
    jot_end(&j, '}');
    if (ask_beside(d, &r, "/v1/runs/%s/answer", NULL, err) == 0)
        return 0;
    if (err->code != ERR_BUSY && err->code != ERR_INVALID)
        return -1;
    fputs("carrel: the question was answered already, or has changed: your answer was not sent\n",
          stderr);
    return 0;
}

static void print_options(const json_t *options) {
    size_t i;
    json_t *option;
    json_array_foreach(options, i, option) {
        printf("  %zu. ", i + 1);
        safe_name(stdout, json_string_value(option) ? json_string_value(option) : "");
        putchar('\n');
    }
    if (json_array_size(options))
        puts("Type a number, or another answer.");
}

/* The option whose number was typed, else the answer as it was typed. */
static const char *chosen_option(const json_t *options, const char *answer) {
    uint64_t number;
    const char *option = NULL;
    if (parse_u64(answer, 1, json_array_size(options), &number, NULL) == 0)
        option = json_string_value(json_array_get(options, (size_t)number - 1));
    return option ? option : answer;
}

static int ask_person(struct doing *d, const json_t *event, struct err *err) {
    json_t *asked DEFER(json_decrefp) = json_loads(client_text(event, "text"), 0, NULL);
    const char *id = client_text(asked, "id");
    char answer[4096];
    if (!*client_text(asked, "question") || !is_asked_now(d, id))
        return 0;
    if (!isatty(STDIN_FILENO) || d->options->json)
        return send_answer(d, id, NULL, err);
    printf("\nQuestion %u: ", ++d->questions);
    safe_name(stdout, client_text(asked, "question"));
    putchar('\n');
    print_options(json_object_get(asked, "options"));
    fputs("> ", stdout);
    fflush(stdout);
    if (!fgets(answer, sizeof(answer), stdin))
        return send_answer(d, id, NULL, err);
    answer[strcspn(answer, "\n")] = '\0';
    return send_answer(d, id, chosen_option(json_object_get(asked, "options"), answer), err);
}

/* ---- following a run ---- */

/* True if a directory, repository or database was lent to the machine as a copy. */
static bool may_ship(struct doing *d, const char *machine) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    json_t *view DEFER(json_decrefp) = NULL, *grant;
    struct client second = d->client;
    struct err err; /* ignored: the run has ended, and this is only a hint */
    size_t i;
    bool found = false;
    if (client_target(target, &err, "/v1/machines/%s/grants", machine) < 0 ||
        !(second.http = client_again(&d->client, &err)))
        return false;
    if (client_call(&second, &r, &view, &err) == 0)
        json_array_foreach(json_object_get(view, "grants"), i, grant) {
            found |= strcmp(client_text(grant, "mode"), "cow") == 0;
        }
    http_client_free(second.http);
    return found;
}

static void show_next(struct doing *d, const json_t *event) {
    const char *best = client_text(json_object_get(event, "report"), "machine");
    const char *machine = *best ? best : client_text(d->view, "machine");
    if (*machine && strcmp(client_text(event, "status"), "cancelled") != 0)
        do_show_next(event, machine, may_ship(d, machine));
}

static int show_line(struct doing *d, const char *line, size_t n, struct err *err) {
    json_t *event DEFER(json_decrefp) = json_loadb(line, n, 0, NULL);
    const char *kind = client_text(event, "event");
    if (!d->options->json) {
        do_show_event(&d->screen, event);
        if (strcmp(kind, "end") == 0)
            show_next(d, event);
        fflush(stdout);
    }
    return strcmp(kind, "held") == 0 ? ask_person(d, event, err) : 0;
}

static int show_lines(struct doing *d, struct buf *text, struct err *err) {
    size_t at = 0;
    for (char *end; at < text->len && (end = memchr(text->data + at, '\n', text->len - at));) {
        if (show_line(d, text->data + at, (size_t)(end - text->data) - at, err) < 0)
            return -1;
        at = (size_t)(end + 1 - text->data);
    }
    if (at) {
        memmove(text->data, text->data + at, text->len - at + 1);
        text->len -= at;
    }
    return 0;
}

static volatile sig_atomic_t interrupts;

static void on_interrupt(int number) {
    (void)number;
    interrupts++;
}

/* The first ^C leaves the run running; a second one within two seconds cancels it. */
static int do_let_go(struct doing *d, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "POST", .target = target};
    fprintf(stderr, "\ncarrel: run %s continues; press ^C again to cancel it\n", d->run);
    for (int i = 0; i < SECOND_THOUGHTS_MS / 50 && interrupts < 2; i++)
        usleep(50000);
    if (interrupts < 2) {
        fprintf(stderr, "carrel: to watch the run: carrel do --resume %s\n", d->run);
        return 0;
    }
    struct client second = d->client;
    second.http = client_again(&d->client, err);
    if (!second.http || client_target(target, err, "/v1/runs/%s/cancel", d->run) < 0)
        return -1;
    int status = client_call(&second, &r, NULL, err);
    http_client_free(second.http);
    return status;
}

static int do_follow(struct doing *d, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target, .accept = "*/*"};
    const struct http_head *head;
    struct buf text DEFER(buf_done) = BUF(LINE_MAX_BYTES);
    const char *bytes;
    size_t n;
    if (client_target(target, err, "/v1/runs/%s/transcript?follow=1", d->run) < 0 ||
        client_send(&d->client, d->client.http, &r, err) < 0 ||
        client_answer(d->client.http, &head, err) < 0)
        return -1;
    signal(SIGINT, on_interrupt);
    http_client_set_timeout(d->client.http, LOOK_MS);
    for (;;) {
        int more = http_client_read(d->client.http, &bytes, &n, err);
        if (interrupts) {
            d->interrupted = true;
            return do_let_go(d, err);
        }
        if (more < 0 && err->code == ERR_TIMEOUT) { /* nothing new */
            if (!d->options->json)
                do_show_wait(&d->screen);
            continue;
        }
        if (more <= 0)
            return more;
        if (!buf_add(&text, bytes, n))
            return err_set(err, ERR_LIMIT,
                           "the daemon sent a line of the run's transcript that is too long");
        if (show_lines(d, &text, err) < 0)
            return -1;
    }
}

/* ---- the command ---- */

static int show_state(struct doing *d, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    json_t *view DEFER(json_decrefp) = NULL;
    if (client_target(target, err, "/v1/runs/%s", d->run) < 0 ||
        client_call(&d->client, &r, &view, err) < 0)
        return -1;
    if (d->options->json)
        print_json(view);
    if (strcmp(client_text(view, "state"), "ended") == 0)
        return strcmp(client_text(view, "status"), "done") == 0 ? 0 : DO_NOT_DONE;
    if (!d->interrupted) {
        fputs("carrel: the run was interrupted: ", stderr);
        safe_name(stderr, client_text(view, "reason"));
        fprintf(stderr, "\ncarrel: to continue the run: carrel do --resume %s\n", d->run);
    }
    return DO_INTERRUPTED;
}

/* The old connection still delivers the transcript, so further requests need another one. */
static int reconnect(struct doing *d, struct err *err) {
    struct http_client *other = client_again(&d->client, err);
    if (!other)
        return -1;
    http_client_free(d->client.http);
    d->client.http = other;
    return 0;
}

static void print_run(const struct doing *d) {
    const char *machine = client_text(d->view, "machine");
    printf("run %s", d->run);
    if (d->options->tries)
        printf(", %llu tries", (unsigned long long)d->options->tries);
    if (*machine)
        printf(" on %s %s", d->options->tries ? "forks of" : "machine", machine);
    printf(", model %s\n", client_text(d->view, "model"));
}

static int do_watch(struct doing *d, struct err *err) {
    d->run = client_text(d->view, "id");
    if (!d->options->json)
        print_run(d);
    fflush(stdout);
    if (do_follow(d, err) < 0) {
        err_remedy(err, "the run may continue; to watch it: carrel do --resume %s", d->run);
        return -1;
    }
    if (d->interrupted && reconnect(d, err) < 0)
        return -1;
    http_client_set_timeout(d->client.http, -1);
    return show_state(d, err);
}

static int do_start(struct doing *d, const char *machine, const char *task, struct err *err) {
    struct buf body DEFER(buf_done) = BUF(DO_BODY_MAX);
    struct jot j = JOT(&body);
    struct do_machines made = {.count = 0};
    const struct client_request r = {.method = "POST", .target = "/v1/runs", .body = &body};
    if (do_make(d->options, &d->client, &made, err) < 0 ||
        do_put_start(&j, d->options, &d->client, machine, &made, task, err) < 0 ||
        client_call(&d->client, &r, &d->view, err) < 0)
        return -1;
    return do_watch(d, err);
}

static int resume(struct doing *d, struct err *err) {
    struct buf body DEFER(buf_done) = BUF(DO_BODY_MAX);
    struct jot j = JOT(&body);
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "POST", .target = target, .body = &body};
    jot_object(&j, NULL);
    do_put_keys(&j, &d->client);
    jot_end(&j, '}');
    if (client_target(target, err, "/v1/runs/%s/resume", d->options->resume) < 0 ||
        client_call_again(&d->client, &r, &d->view, err) < 0)
        return -1;
    return do_watch(d, err);
}

static int cancel(struct doing *d, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "POST", .target = target};
    if (client_target(target, err, "/v1/runs/%s/cancel", d->options->cancel) < 0 ||
        client_call_again(&d->client, &r, &d->view, err) < 0)
        return -1;
    if (d->options->json)
        print_json(d->view);
    cli_done(d->options->json || d->options->quiet, "cancelled run '%s'", d->options->cancel);
    return 0;
}

static int do_show(struct doing *d, struct err *err) {
    char target[CLIENT_TARGET_SIZE], cost[32];
    const struct client_request r = {.method = "GET", .target = target};
    if (client_target(target, err, "/v1/runs/%s", d->options->show) < 0 ||
        client_call(&d->client, &r, &d->view, err) < 0)
        return -1;
    if (d->options->json) {
        print_json(d->view);
        return 0;
    }
    snprintf(cost, sizeof(cost), "%.6f", (double)client_number(d->view, "cost_micro") / 1e6);
    json_object_del(d->view, "cost_micro");
    json_object_set_new(d->view, "cost", json_string(cost));
    json_t *tools DEFER(json_decrefp) =
        json_incref(json_object_get(json_object_get(d->view, "report"), "tools"));
    json_object_del(json_object_get(d->view, "report"), "tools");
    units_print(d->view, 0);
    do_show_tools(tools);
    return 0;
}

static int export(struct doing *d, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    if (client_target(target, err, "/v1/runs/%s/export", d->options->export) < 0 ||
        client_call(&d->client, &r, &d->view, err) < 0)
        return -1;
    print_json(d->view);
    return 0;
}

static void print_row(const json_t *run) {
    char age[16], turns[24];
    const char *status = client_text(run, "status");
    table_age(client_text(run, "created"), age);
    snprintf(turns, sizeof(turns), "%lld", client_number(run, "turns"));
    table_cell(client_text(run, "id"), 14);
    table_cell(client_text(run, "machine"), 14);
    table_cell(*status ? status : client_text(run, "state"), 12);
    table_cell(age, 4);
    table_cell(turns, 5);
    do_print_words(client_text(run, "task"));
    putchar('\n');
}

static int do_list(struct doing *d, struct err *err) {
    const struct client_request r = {.method = "GET", .target = "/v1/runs"};
    size_t i;
    json_t *run;
    if (client_call(&d->client, &r, &d->view, err) < 0)
        return -1;
    if (d->options->json || d->options->quiet) {
        if (d->options->json)
            print_json(d->view);
        else
            print_ids(json_object_get(d->view, "runs"), "id");
        return 0;
    }
    colour_heading("RUN             MACHINE         STATUS        AGE   TURNS  TASK");
    json_array_foreach(json_object_get(d->view, "runs"), i, run) {
        print_row(run);
    }
    return 0;
}

static void doing_done(struct doing *d) {
    do_screen_done(&d->screen);
    json_decref(d->view);
    client_close(&d->client);
}

static int words_of(int argc, char **argv, struct do_options *o, char *words[2], struct err *err) {
    int count = options_words(do_rows, argc, argv, o, words, 2, err);
    if (count < 0)
        return -1;
    bool other = o->resume || o->cancel || o->export || o->show || o->ls || o->help;
    if (count == 2 && do_makes(o))
        return err_set(err, ERR_INVALID,
                       "options of a new machine cannot be used with existing machine '%s'",
                       words[0]);
    if (o->check && !o->tries)
        return err_set(err, ERR_INVALID, "--check requires --tries");
    if (o->check_files.count && !o->check)
        return err_set(err, ERR_INVALID, "--check-file requires --check");
    if (o->tries > DO_TRIES_MAX)
        return err_set(err, ERR_INVALID, "--tries must be at most %d", DO_TRIES_MAX);
    if (other == (count > 0) && (other || !do_may_ask())) {
        err_set(err, ERR_INVALID, other ? "unexpected argument '%s'" : "no task given%s",
                other ? words[0] : "");
        return err_remedy(err, "use: carrel do [MACHINE] \"TASK\"");
    }
    return count;
}

static void do_announce(void) {
    fputs("carrel: preparing this host for its first machine...\n", stderr);
}

int cmd_do(int argc, char **argv) {
    struct do_options o = {0};
    struct doing d DEFER(doing_done) = {.options = &o};
    char *words[2] = {0};
    struct err err;
    int count = words_of(argc, argv, &o, words, &err);
    if (count >= 0 && o.help) {
        cli_usage("do");
        options_print(do_rows);
        return 0;
    }
    if (count < 0 || client_open(&d.client, CLIENT_START, do_announce, &err) < 0)
        return cli_fail(&err);
    d.screen.verbose = o.verbose;
    char typed[DO_TASK_SIZE];
    struct do_task task = {0};
    bool other = o.resume || o.cancel || o.export || o.show || o.ls;
    if (!other && do_find_task(&o, &d.client, words, count, typed, &task, &err) < 0)
        return cli_fail(&err);
    int status = o.resume   ? resume(&d, &err)
                 : o.cancel ? cancel(&d, &err)
                 : o.export ? export(&d, &err)
                 : o.show   ? do_show(&d, &err)
                 : o.ls     ? do_list(&d, &err)
                            : do_start(&d, task.machine, task.text, &err);
    return status < 0 ? cli_fail(&err) : status;
}
