/*
 * carrel console: opens the console in a browser with a one-time link, or prints the link, and
 * ships what the owner orders there.
 *
 * The daemon never writes to the owner's files. This command runs as the owner, asks the daemon for
 * orders and runs `carrel ship` for each of them.
 */
#include <assert.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/console/browser.h"
#include "cli/console/output.h"
#include "cli/options.h"
#include "cli/safe.h"
#include "cli/table.h"

enum {
    POLL_MS = 300,
    ORDER_LIST_MAX = 60,
    SHIP_WORDS = 2 * 2 * ORDER_LIST_MAX + 16, /* two lists of options with values, and the rest */
    BUSY_MS = 1000,  /* the daemon believes that a worker is there for 5 s */
    RESULTS_MAX = 8, /* orders that the daemon keeps for an owner */
};

struct console_options {
    bool link, print, json, help;
};

#define AT(member) offsetof(struct console_options, member)

const struct option_row console_rows[] = {
    {0, "link", NULL, OPTION_FLAG, AT(link),
     "print only the link and return; shipping then needs another carrel console"},
    {0, "print", NULL, OPTION_FLAG, AT(print), "print the link, do not open a browser"},
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

/* ---- the link ---- */

/* own_user: nobody else opens it, since other users see the words of a browser in the process list.
 */
static int link_new(struct client *c, bool own_user, json_t **ret, struct err *err) {
    return console_post(c, "/console/link", json_pack("{s:b}", "own_user", own_user), ret, err);
}

/* How to reach a daemon that a browser on another host cannot: the link names the loopback. */
static void link_tell_ssh(const char *url) {
    const char *ssh = getenv("SSH_CONNECTION"), *user = getenv("USER");
    char host[64], port[8], server[64], server_port[8];
    if (!ssh || sscanf(ssh, "%*63s %*7s %63s %7s", server, server_port) != 2 ||
        sscanf(url, "http://%63[^:/]:%7[0-9]", host, port) != 2)
        return;
    bool usual = strcmp(server_port, "22") == 0;
    cli_done(false,
             "to open it on the computer you came from, run there: ssh -N%s%s -L %s:%s:%s %s%s%s",
             usual ? "" : " -p ", usual ? "" : server_port, port, host, port, user ? user : "",
             user ? "@" : "", server);
}

static void link_print(const json_t *answer) {
    puts(client_text(answer, "url"));
    fflush(stdout);
    link_tell_ssh(client_text(answer, "url"));
    cli_done(false,
             "this link works once, for %lld seconds. Leave this command running to ship from the "
             "console; end it with Ctrl+C",
             client_number(answer, "expires_s"));
}

static int link_print_new(struct client *c, struct err *err) {
    json_t *answer DEFER(json_decrefp) = NULL;
    if (link_new(c, false, &answer, err) < 0)
        return -1;
    link_print(answer);
    return 0;
}

/* Opens the console in a browser. If no browser can be started, prints a link. */
static int link_show(struct client *c, struct browser *b, struct err *err) {
    json_t *answer DEFER(json_decrefp) = NULL;
    if (link_new(c, true, &answer, err) < 0)
        return -1;
    if (!browser_open(b, client_text(answer, "url")))
        return link_print_new(c, err);
    cli_done(false,
             "opened the console in a browser (%s). Leave this command running to ship from the "
             "console; end it with Ctrl+C",
             b->name);
    return 0;
}

/* A browser that cannot show the page ends soon after it was started. */
static int browser_check(struct client *c, struct browser *b, struct err *err) {
    int status = browser_failed(b);
    if (!status)
        return 0;
    cli_done(false, "%s failed with exit status %d; open this link in a browser:", b->name, status);
    return link_print_new(c, err);
}

/* ---- shipping ---- */

/* The words of `carrel ship`; texts belong to the order. */
struct ship_words {
    const char *v[SHIP_WORDS];
    size_t count;
    char from[4200];
    bool json; /* it prints reviews, an object on each line */
};

static void ship_word(struct ship_words *w, const char *word) {
    assert(w->count < SHIP_WORDS - 1);
    w->v[w->count++] = word;
}

/* Nothing of a list is left out: an order with a part of it would ship more or less than picked. */
static int ship_list_words(struct ship_words *w, const json_t *order, const char *name,
                           const char *option, struct err *err) {
    const json_t *list = json_object_get(order, name);
    json_t *value;
    size_t i;
    if (list && !json_is_array(list))
        return err_set(err, ERR_INVALID, "field '%s' of the order is not a list", name);
    if (json_array_size(list) > ORDER_LIST_MAX)
        return err_set(err, ERR_LIMIT, "field '%s' of the order has more than %d elements", name,
                       ORDER_LIST_MAX);
    json_array_foreach(list, i, value) {
        if (!json_string_value(value))
            return err_set(err, ERR_INVALID, "field '%s' of the order is not a list of texts",
                           name);
        ship_word(w, option);
        ship_word(w, json_string_value(value));
    }
    return 0;
}

/* An order names what `carrel ship` takes; a machine or change set cannot look like an option. */
static int ship_order(struct ship_words *w, const json_t *order, struct err *err) {
    const char *machine = client_text(order, "machine"), *path = client_text(order, "path");
    const char *undo = client_text(order, "undo"), *comment = client_text(order, "comment");
    const char *to = client_text(order, "to"), *subject = *undo ? undo : machine;
    const char *target = client_text(order, "target");
    if (!*subject || strlen(path) > 4095 || strlen(machine) > 63 || strlen(undo) > 63)
        return err_set(err, ERR_INVALID, "the order names no machine");
    ship_word(w, "carrel");
    ship_word(w, "ship");
    if (*comment) {
        ship_word(w, "--return");
        ship_word(w, comment);
    } else if (json_is_true(json_object_get(order, "yes"))) {
        ship_word(w, "--yes");
    } else if (!json_is_true(json_object_get(order, "text"))) {
        w->json = true;
        ship_word(w, "--json");
    }
    if (*undo)
        ship_word(w, "--undo");
    if (ship_list_words(w, order, "only", "--only", err) < 0 ||
        ship_list_words(w, order, "hunks", "--hunk", err) < 0)
        return -1;
    if (json_is_true(json_object_get(order, "uncommitted")))
        ship_word(w, "--uncommitted");
    if (*target) {
        ship_word(w, "--target");
        ship_word(w, target);
    }
    snprintf(w->from, sizeof(w->from), !*undo && *path && *to ? "%s:%s" : "%s", subject, path);
    ship_word(w, "--");
    ship_word(w, w->from);
    if (*to)
        ship_word(w, to);
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

/* Tells the daemon, or the next one, that this worker is there while `carrel ship` runs. */
static void ship_tell(struct client *c) {
    struct client_search once = {.start = CLIENT_NEVER};
    struct err err;
    if (!c->http ||
        console_post(c, "/console/work", json_pack("{s:b}", "busy", true), NULL, &err) < 0)
        client_look(c, &once, &err);
}

/* Waits until `carrel ship` prints something or ends. */
static void ship_wait(struct client *c, int out) {
    struct pollfd fd = {.fd = out, .events = POLLIN};
    while (poll(&fd, 1, BUSY_MS) == 0)
        ship_tell(c);
}

/* Runs `carrel ship` and reads what it prints. Returns its exit status. */
static int ship_run(struct client *c, const struct ship_words *w, struct buf *ret,
                    struct err *err) {
    int ends[2], status = 0;
    char piece[16384];
    ssize_t n;
    bool fits = true;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, "cannot make a pipe");
    pid_t pid = fork();
    if (pid == 0)
        ship_child(w, ends[1]);
    close(ends[1]);
    for (; pid > 0;
         fits = fits && buf_add(ret, piece, (size_t)n)) { /* all is read, so it can end */
        ship_wait(c, ends[0]);
        n = read(ends[0], piece, sizeof(piece));
        if (n <= 0)
            break;
    }
    close(ends[0]);
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return err_sys(err, "cannot run carrel ship");
    if (!fits && w->json)
        return err_set(err, ERR_LIMIT, "the review is too long for the console: use carrel ship");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* What `carrel ship` printed, as text for the page; ends the order if it cannot be shown. */
static int output_text(const struct ship_words *w, const struct buf *all, json_t **ret,
                       struct err *err) {
    struct buf part DEFER(buf_done) = BUF(OUTPUT_SENT_MAX + 1);
    if ((w->json ? output_fit_reviews : output_fit_text)(all, OUTPUT_SENT_MAX, &part, err) < 0)
        return -1;
    *ret = json_stringn(part.len ? part.data : "", part.len);
    return *ret ? 0 : err_set(err, ERR_INTERNAL, "the output of carrel ship is not UTF-8");
}

/*
 * What orders printed that were carried out. A page sends an order again after a restart of the
 * daemon, with the same id: it gets the result, and nothing is done twice.
 */
struct results {
    json_t *rows[RESULTS_MAX];
    size_t next;
};

static json_t *result_find(const struct results *r, json_int_t id) {
    for (size_t i = 0; i < RESULTS_MAX; i++)
        if (r->rows[i] && json_integer_value(json_object_get(r->rows[i], "id")) == id)
            return r->rows[i];
    return NULL;
}

static json_t *result_keep(struct results *r, json_t *result) {
    json_t **row = &r->rows[r->next++ % RESULTS_MAX];
    json_decref(*row);
    return *row = result;
}

static json_t *order_run(struct client *c, json_int_t id, const json_t *order) {
    struct ship_words words = {.count = 0};
    struct buf output DEFER(buf_done) = BUF(OUTPUT_READ_MAX);
    bool ships = json_is_true(json_object_get(order, "yes"));
    json_t *text = NULL;
    struct err bad;
    int status = ship_order(&words, order, &bad) < 0 ? -1 : ship_run(c, &words, &output, &bad);
    if (status < 0 || output_text(&words, &output, &text, &bad) < 0) {
        text = json_sprintf("%s%s%s", bad.text, *bad.remedy ? ": " : "", bad.remedy);
        status = 125;
    }
    if (ships)
        printf("%s %s: exit status %d\n", json_object_get(order, "undo") ? "undo" : "ship",
               words.from, status);
    fflush(stdout);
    return json_pack("{s:I, s:i, s:o}", "id", id, "status", status, "output", text);
}

/* The daemon may have gone away while `carrel ship` ran. */
static int worker_connect(struct client *c, struct err *err) {
    struct client_search search = {.start = CLIENT_START};
    return c->http ? 0 : client_await(c, &search, err);
}

/*
 * A daemon that has restarted meanwhile does not know the order and refuses its result. The page
 * sends the order again then.
 */
static void order_serve(struct client *c, struct results *r, const json_t *answer) {
    json_int_t id = json_integer_value(json_object_get(answer, "id"));
    json_t *result = result_find(r, id);
    struct err err;
    if (!result)
        result = result_keep(r, order_run(c, id, json_object_get(answer, "order")));
    if (worker_connect(c, &err) == 0)
        console_post(c, "/console/done", json_incref(result), NULL, &err);
}

/* Ends only with an error, or by a signal. */
static int orders_serve(struct client *c, struct browser *b, struct err *err) {
    struct results results = {.next = 0};
    for (;;) {
        json_t *answer DEFER(json_decrefp) = NULL;
        const struct client_request r = {.method = "POST", .target = "/console/work"};
        if (worker_connect(c, err) < 0 || browser_check(c, b, err) < 0 ||
            client_call_again(c, &r, &answer, err) < 0)
            return -1;
        if (json_object_get(answer, "order"))
            order_serve(c, &results, answer);
        else
            usleep(POLL_MS * 1000);
    }
}

int cmd_console(int argc, char **argv) {
    struct client c DEFER(client_close) = {0};
    json_t *answer DEFER(json_decrefp) = NULL;
    struct console_options o = {.link = false};
    struct browser b = {.pid = 0};
    char *words[1] = {NULL};
    struct err err;
    int count = options_words(console_rows, argc, argv, &o, words, 0, &err);
    if (count < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_help("console");
        return 0;
    }
    if (client_open(&c, CLIENT_START, NULL, &err) < 0)
        return cli_fail(&err);
    bool alone = o.link || o.json;
    if (alone || o.print || !browser_may_show()) {
        if (link_new(&c, false, &answer, &err) < 0)
            return cli_fail(&err);
        if (o.json)
            print_json(answer);
        else if (o.link)
            puts(client_text(answer, "url"));
        else
            link_print(answer);
    } else if (link_show(&c, &b, &err) < 0) {
        return cli_fail(&err);
    }
    return alone || orders_serve(&c, &b, &err) == 0 ? 0 : cli_fail(&err);
}
