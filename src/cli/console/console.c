/*
 * carrel console: prints a one-time link to the console, and ships what the owner orders there.
 *
 * The daemon never writes to the owner's files. This command runs as the owner, asks the daemon for
 * orders and runs `carrel ship` for each of them.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/options.h"
#include "cli/safe.h"
#include "cli/table.h"

enum { POLL_MS = 300, OUTPUT_MAX = 4 << 20, SHIP_WORDS = 200, ORDER_LIST_MAX = 60 };

struct console_options {
    bool link, json, help;
};

#define AT(member) offsetof(struct console_options, member)

const struct option_row console_rows[] = {
    {0, "link", NULL, OPTION_FLAG, AT(link),
     "print only the link; shipping then needs another carrel console"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print the link as JSON and return"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

static int console_post(struct client *c, const char *target, json_t *body, json_t **ret,
                        struct err *err) {
    json_t *owned DEFER(json_decrefp) = body;
    char *text DEFER_FREE = json_dumps(owned, JSON_COMPACT);
    if (!text)
        return err_set(err, ERR_INTERNAL, "out of memory");
    const struct buf bytes = {.data = text, .len = strlen(text)};
    const struct client_request r = {.method = "POST", .target = target, .body = &bytes};
    return client_call(c, &r, ret, err);
}

/* ---- shipping ---- */

/* The words of `carrel ship`; texts belong to the order. */
struct ship_words {
    const char *v[SHIP_WORDS];
    size_t count;
    char from[4200];
};

static void ship_lists(struct ship_words *w, const json_t *order, const char *name,
                       const char *option) {
    json_t *value;
    size_t i;
    json_array_foreach(json_object_get(order, name), i, value) {
        if (i == ORDER_LIST_MAX || !json_string_value(value))
            break;
        w->v[w->count++] = option;
        w->v[w->count++] = json_string_value(value);
    }
}

/* An order names what `carrel ship` takes; a machine or change set cannot look like an option. */
static int ship_order(struct ship_words *w, const json_t *order, struct err *err) {
    const char *machine = client_text(order, "machine"), *path = client_text(order, "path");
    const char *undo = client_text(order, "undo"), *comment = client_text(order, "comment");
    const char *to = client_text(order, "to"), *subject = *undo ? undo : machine;
    if (!*subject || strlen(path) > 4095 || strlen(machine) > 63 || strlen(undo) > 63)
        return err_set(err, ERR_INVALID, "the order names no machine");
    w->v[w->count++] = "carrel";
    w->v[w->count++] = "ship";
    if (*comment) {
        w->v[w->count++] = "--return";
        w->v[w->count++] = comment;
    } else if (json_is_true(json_object_get(order, "yes"))) {
        w->v[w->count++] = "--yes";
    } else if (!json_is_true(json_object_get(order, "text"))) {
        w->v[w->count++] = "--json";
    }
    if (*undo)
        w->v[w->count++] = "--undo";
    ship_lists(w, order, "only", "--only");
    ship_lists(w, order, "hunks", "--hunk");
    if (json_is_true(json_object_get(order, "uncommitted")))
        w->v[w->count++] = "--uncommitted";
    snprintf(w->from, sizeof(w->from), !*undo && *path && *to ? "%s:%s" : "%s", subject, path);
    w->v[w->count++] = "--";
    w->v[w->count++] = w->from;
    if (*to)
        w->v[w->count++] = to;
    w->v[w->count] = NULL;
    return 0;
}

static void ship_child(const struct ship_words *w, int out) {
    int none = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (none < 0 || dup2(none, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(126);
    execv("/proc/self/exe", (char *const *)w->v);
    _exit(127);
}

/* Runs `carrel ship` and reads what it prints. Returns its exit status. */
static int ship_run(const struct ship_words *w, struct buf *ret, struct err *err) {
    int ends[2], status = 0;
    char piece[16384];
    ssize_t n;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, "cannot make a pipe");
    pid_t pid = fork();
    if (pid == 0)
        ship_child(w, ends[1]);
    close(ends[1]);
    while (pid > 0 && (n = read(ends[0], piece, sizeof(piece))) > 0)
        if (!buf_add(ret, piece, (size_t)n))
            continue; /* the rest is read and dropped, so that the program can end */
    close(ends[0]);
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return err_sys(err, "cannot run carrel ship");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int order_run(struct client *c, const json_t *answer, struct err *err) {
    struct ship_words words = {.count = 0};
    struct buf output DEFER(buf_done) = BUF(OUTPUT_MAX);
    const json_t *order = json_object_get(answer, "order");
    bool ships = json_is_true(json_object_get(order, "yes"));
    struct err bad;
    int status = ship_order(&words, order, &bad) < 0 ? -1 : ship_run(&words, &output, &bad);
    json_t *text = json_stringn(output.len ? output.data : "", output.len);
    if (status < 0 || !text) {
        json_decref(text);
        text = json_string(status < 0 ? bad.text : "the output of carrel ship is not UTF-8");
        status = 125;
    }
    if (ships)
        printf("%s %s: exit status %d\n", json_object_get(order, "undo") ? "undo" : "ship",
               words.from, status);
    fflush(stdout);
    return console_post(c, "/console/done",
                        json_pack("{s:I, s:i, s:o}", "id",
                                  json_integer_value(json_object_get(answer, "id")), "status",
                                  status, "output", text),
                        NULL, err);
}

/*
 * Ends only with an error, or by a signal. An order whose answer was lost is not carried out: its
 * page says so after a while.
 */
static int orders_serve(struct client *c, struct err *err) {
    for (;;) {
        json_t *answer DEFER(json_decrefp) = NULL;
        const struct client_request r = {.method = "POST", .target = "/console/work"};
        if (client_call_again(c, &r, &answer, err) < 0)
            return -1;
        if (json_object_get(answer, "order")) {
            if (order_run(c, answer, err) < 0)
                return -1;
        } else {
            usleep(POLL_MS * 1000);
        }
    }
}

int cmd_console(int argc, char **argv) {
    struct client c DEFER(client_close) = {0};
    json_t *answer DEFER(json_decrefp) = NULL;
    struct console_options o = {.link = false};
    char *words[1] = {NULL};
    struct err err;
    int count = options_words(console_rows, argc, argv, &o, words, 0, &err);
    if (count < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_help("console");
        return 0;
    }
    if (client_open(&c, CLIENT_START, NULL, &err) < 0 ||
        console_post(&c, "/console/link", json_object(), &answer, &err) < 0)
        return cli_fail(&err);
    if (o.json) {
        print_json(answer);
        return 0;
    }
    puts(client_text(answer, "url"));
    if (o.link)
        return 0;
    cli_done(false,
             "this link works once, for %lld seconds. Leave this command running to ship from the "
             "console; end it with Ctrl+C",
             client_number(answer, "expires_s"));
    fflush(stdout);
    return orders_serve(&c, &err) < 0 ? cli_fail(&err) : 0;
}
