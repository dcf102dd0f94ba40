/* carrel snap, steps, rewind, fork, hibernate: takes, lists and restores steps of a machine. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/exec_end.h"
#include "base/id.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/image/build_wait.h"
#include "cli/options.h"
#include "cli/safe.h"
#include "cli/table.h"
#include "cli/text/colour.h"
#include "cli/text/pager.h"
#include "cli/text/units.h"

enum { WORDS_MAX = 3, FORKS_MAX = 1000 };

/* Arguments of a command; options may stand before, between and after them. */
struct words {
    char *v[WORDS_MAX];
    size_t count;
};

static int parse(const struct option_row *rows, int argc, char **argv, void *into,
                 struct words *ret, struct err *err) {
    int count = options_words(rows, argc, argv, into, ret->v, WORDS_MAX, err);
    ret->count = count < 0 ? 0 : (size_t)count;
    return count < 0 ? -1 : 0;
}

static int need(const struct words *w, size_t least, size_t most, const char *what,
                struct err *err) {
    if (w->count > most)
        return err_set(err, ERR_INVALID, "unexpected argument '%s'", w->v[most]);
    if (w->count >= least)
        return 0;
    err_set(err, ERR_INVALID, "no %s given", w->count ? what : "machine");
    return err_remedy(err, w->count ? "see `carrel steps %s`" : "see `carrel ls`", w->v[0]);
}

/* Sends a POST request about a machine, with a small JSON body. */
static int post(struct client *c, const char *machine, const char *format, const struct buf *body,
                json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "POST", .target = target, .body = body};
    return client_target(target, err, format, machine) < 0 ? -1 : client_call(c, &r, ret, err);
}

/* ---- printing a step ---- */

/* Prints the arguments of the command that caused the step, or a remark. */
static void print_what(const json_t *step) {
    const char *what = client_text(step, "what");
    json_t *argv DEFER(json_decrefp) = *what == '[' ? json_loads(what, 0, NULL) : NULL;
    size_t i;
    json_t *word;
    if (!json_is_array(argv)) {
        table_cell(what, 0);
        return;
    }
    json_array_foreach(argv, i, word) {
        table_cell(json_is_string(word) ? json_string_value(word) : "", 0);
    }
}

static void print_step(const json_t *step) {
    char number[24], status[24] = "", age[16], size[16] = "", files[24] = "";
    bool can = json_is_true(json_object_get(step, "restorable"));
    bool lasts = json_is_true(json_object_get(step, "durable"));
    snprintf(number, sizeof(number), "%lld%s", client_number(step, "number"),
             !can    ? "!"
             : lasts ? "*"
                     : "");
    if (client_number(step, "status") >= 0)
        snprintf(status, sizeof(status), "%lld", client_number(step, "status"));
    if (json_is_true(json_object_get(step, "counted"))) {
        table_bytes(client_number(step, "bytes"), size);
        snprintf(files, sizeof(files), "%lld", client_number(step, "files"));
    }
    table_age(client_text(step, "created"), age);
    table_cell(number, 5);
    table_cell(client_text(step, "kind"), 6);
    table_cell(age, 4);
    table_cell(status, 6);
    table_cell(files, 6);
    table_cell(size, 6);
    table_cell(client_text(step, "name"), 10);
    print_what(step);
    if (!can) {
        fputs("  (cannot be restored: ", stdout);
        safe_name(stdout, client_text(step, "reason"));
        putchar(')');
    }
    putchar('\n');
}

/* ---- snap and rewind ---- */

struct plain_options {
    const char *image;
    bool quiet, json, drifted, help, files_only, stop_processes, memory;
};

#define AT(type, member) offsetof(struct type, member)
const struct option_row snap_rows[] = {
    {0, "image", "IMAGE", OPTION_TEXT, AT(plain_options, image),
     "create an image of this name from the machine"},
    {0, "memory", NULL, OPTION_FLAG, AT(plain_options, memory),
     "save the memory of a vm too: a rewind resumes its processes"},
    {'q', "quiet", NULL, OPTION_FLAG, AT(plain_options, quiet), "print only the number or id"},
    {0, "json", NULL, OPTION_FLAG, AT(plain_options, json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(plain_options, help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};
const struct option_row hibernate_rows[] = {
    {0, "json", NULL, OPTION_FLAG, AT(plain_options, json), "print JSON"},
    {0, "files-only", NULL, OPTION_FLAG, AT(plain_options, files_only),
     "take a step (snapshot) and stop the machine; do not save its processes"},
    {'h', "help", NULL, OPTION_FLAG, AT(plain_options, help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};
const struct option_row rewind_rows[] = {
    {0, "json", NULL, OPTION_FLAG, AT(plain_options, json), "print JSON"},
    {0, "stop-processes", NULL, OPTION_FLAG, AT(plain_options, stop_processes),
     "end all processes; if STEP has no restore point, use the one before it"},
    {0, "drifted", NULL, OPTION_FLAG, AT(plain_options, drifted),
     "proceed even if the host's packages changed since the machine was created"},
    {'h', "help", NULL, OPTION_FLAG, AT(plain_options, help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

static int show_help(const char *name, const struct option_row *rows) {
    cli_usage(name);
    options_print(rows);
    return 0;
}

static void image_wait(void *arg) {
    build_wait_tick(arg);
}

/* Shows how long it takes, because all files of a machine on the host's programs are copied. */
static int post_image(struct client *c, const char *machine, const struct buf *body, bool quiet,
                      json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE], what[160];
    struct build_wait wait;
    const struct client_request r = {
        .method = "POST", .target = target, .body = body, .idle = image_wait, .arg = &wait};
    snprintf(what, sizeof(what), "making an image of '%.100s'", machine);
    if (client_target(target, err, "/v1/machines/%s/image", machine) < 0)
        return -1;
    build_wait_begin(&wait, c, what, quiet);
    int made = client_call(c, &r, ret, err);
    build_wait_end(&wait);
    return made;
}

/* Creates an image of the present state, or of the named step. */
static int snap_image(struct client *c, const struct plain_options *o, const struct words *w,
                      struct err *err) {
    struct buf body DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&body);
    json_t *image DEFER(json_decrefp) = NULL;
    jot_object(&j, NULL);
    jot_string(&j, "name", o->image);
    if (w->count > 1)
        jot_string(&j, "step", w->v[1]);
    jot_end(&j, '}');
    if (post_image(c, w->v[0], &body, o->quiet, &image, err) < 0)
        return -1;
    if (o->json)
        print_json(image);
    else
        printf("%s%s%s\n", o->quiet ? "" : client_text(image, "name"), o->quiet ? "" : " ",
               client_text(image, "id"));
    return 0;
}

int cmd_snap(int argc, char **argv) {
    struct plain_options o = {0};
    struct words w = {.count = 0};
    struct client c DEFER(client_close) = {0};
    struct buf body DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&body);
    json_t *step DEFER(json_decrefp) = NULL;
    struct err err;
    if (parse(snap_rows, argc, argv, &o, &w, &err) < 0)
        return cli_fail(&err);
    if (o.help)
        return show_help("snap", snap_rows);
    jot_object(&j, NULL);
    if (w.count > 1)
        jot_string(&j, "name", w.v[1]);
    if (o.memory)
        jot_bool(&j, "memory", true);
    jot_end(&j, '}');
    if (need(&w, 1, 2, "step", &err) < 0 || client_open(&c, CLIENT_IF_MACHINES, NULL, &err) < 0)
        return cli_fail(&err);
    if ((w.count > 1 || !o.image) &&
        post(&c, w.v[0], "/v1/machines/%s/steps", &body, &step, &err) < 0)
        return cli_fail(&err);
    if (o.image)
        return snap_image(&c, &o, &w, &err) < 0 ? cli_fail(&err) : 0;
    if (o.json)
        print_json(step);
    else
        printf("%lld\n", client_number(step, "number"));
    return 0;
}

int cmd_hibernate(int argc, char **argv) {
    struct plain_options o = {0};
    struct words w = {.count = 0};
    struct client c DEFER(client_close) = {0};
    struct buf body DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&body);
    json_t *machine DEFER(json_decrefp) = NULL;
    struct err err;
    if (parse(hibernate_rows, argc, argv, &o, &w, &err) < 0)
        return cli_fail(&err);
    if (o.help)
        return show_help("hibernate", hibernate_rows);
    jot_object(&j, NULL);
    jot_bool(&j, "files_only", o.files_only);
    jot_end(&j, '}');
    if (need(&w, 1, 1, "machine", &err) < 0 ||
        client_open(&c, CLIENT_IF_MACHINES, NULL, &err) < 0 ||
        post(&c, w.v[0], "/v1/machines/%s/hibernate", &body, &machine, &err) < 0)
        return cli_fail(&err);
    if (o.json)
        print_json(machine);
    else
        printf("%s %s\n", client_text(machine, "id"), client_text(machine, "state"));
    return 0;
}

int cmd_rewind(int argc, char **argv) {
    struct plain_options o = {0};
    struct words w = {.count = 0};
    struct client c DEFER(client_close) = {0};
    struct buf body DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&body);
    json_t *step DEFER(json_decrefp) = NULL, *machine DEFER(json_decrefp) = NULL;
    struct err err;
    if (parse(rewind_rows, argc, argv, &o, &w, &err) < 0)
        return cli_fail(&err);
    if (o.help)
        return show_help("rewind", rewind_rows);
    if (need(&w, 2, 2, "step", &err) < 0)
        return cli_fail(&err);
    jot_object(&j, NULL);
    jot_string(&j, "step", w.v[1]);
    if (o.drifted)
        jot_bool(&j, "drifted", true);
    if (o.stop_processes)
        jot_bool(&j, "stop_processes", true);
    jot_end(&j, '}');
    char target[CLIENT_TARGET_SIZE];
    const struct client_request look = {.method = "GET", .target = target};
    if (client_open(&c, CLIENT_IF_MACHINES, NULL, &err) < 0 ||
        client_target(target, &err, "/v1/machines/%s", w.v[0]) < 0 ||
        client_call(&c, &look, &machine, &err) < 0)
        return cli_fail(&err);
    long long running = client_number(machine, "commands");
    if (running > 0)
        fprintf(stderr, "carrel: %lld running command%s killed\n", running,
                running == 1 ? " is" : "s are");
    if (post(&c, w.v[0], "/v1/machines/%s/rewind", &body, &step, &err) < 0)
        return cli_fail(&err);
    if (o.json)
        print_json(step);
    else
        print_step(step);
    return 0;
}

/* ---- steps ---- */

struct steps_options {
    uint64_t count;
    bool quiet, json, help;
};

const struct option_row steps_rows[] = {
    {'n', "count", "N", OPTION_NUMBER, AT(steps_options, count),
     "print only the last N steps, at most 1000 (default: 100)"},
    {'q', "quiet", NULL, OPTION_FLAG, AT(steps_options, quiet), "print only the numbers of steps"},
    {0, "json", NULL, OPTION_FLAG, AT(steps_options, json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(steps_options, help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

/* Prints a step for people: arguments as a line, and no fields without a value. */
static void show_step(json_t *step) {
    json_t *argv DEFER(json_decrefp) = json_loads(client_text(step, "what"), 0, NULL);
    struct buf words DEFER(buf_done) = BUF(1 << 20);
    size_t i;
    json_t *word;
    json_array_foreach(argv, i, word) {
        if (!buf_addf(&words, "%s%s", i ? " " : "",
                      json_string_value(word) ? json_string_value(word) : ""))
            break;
    }
    if (words.len)
        json_object_set_new(step, "what", json_string(words.data));
    if (client_number(step, "status") < 0)
        json_object_del(step, "status");
    if (!json_is_true(json_object_get(step, "counted"))) {
        json_object_del(step, "files");
        json_object_del(step, "bytes");
    }
    json_object_del(step, "counted");
    units_print(step, 0);
}

/* Says what to do about steps without a restore point. */
static void advise(const char *machine, size_t lacking) {
    if (!lacking)
        return;
    printf("%zu step%s without a restore point (marked !), taken while processes ran:\n"
           "  carrel rewind --stop-processes %s STEP   returns to the restore point before STEP\n",
           lacking, lacking == 1 ? "" : "s", machine);
    if (geteuid() == 0)
        printf("  carrel store init --btrfs SIZE   gives new machines disks where such steps can "
               "be restored\n");
}

static int steps_show(const struct words *w, bool json, struct err *err) {
    struct client c DEFER(client_close) = {0};
    json_t *step DEFER(json_decrefp) = NULL;
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    if (client_open(&c, CLIENT_IF_MACHINES, NULL, err) < 0 ||
        client_target(target, err, "/v1/machines/%s/steps/%s", w->v[0], w->v[1]) < 0 ||
        client_call(&c, &r, &step, err) < 0)
        return -1;
    if (json)
        print_json(step);
    else
        show_step(step);
    return 0;
}

int cmd_steps(int argc, char **argv) {
    struct steps_options o = {.count = 100};
    struct words w = {.count = 0};
    struct client c DEFER(client_close) = {0};
    json_t *answer DEFER(json_decrefp) = NULL;
    char target[CLIENT_TARGET_SIZE], count[24];
    const struct client_request r = {.method = "GET", .target = target};
    struct err err;
    if (parse(steps_rows, argc, argv, &o, &w, &err) < 0)
        return cli_fail(&err);
    if (o.help)
        return show_help("steps", steps_rows);
    snprintf(count, sizeof(count), "%llu", (unsigned long long)(o.count < 1000 ? o.count : 1000));
    if (need(&w, 1, 2, "", &err) < 0)
        return cli_fail(&err);
    if (w.count > 1)
        return steps_show(&w, o.json, &err) < 0 ? cli_fail(&err) : 0;
    if (client_open(&c, CLIENT_IF_MACHINES, NULL, &err) < 0 ||
        client_target(target, &err, "/v1/machines/%s/steps?limit=%s", w.v[0], count) < 0 ||
        client_call(&c, &r, &answer, &err) < 0)
        return cli_fail(&err);
    if (o.json) {
        print_json(answer);
        return 0;
    }
    const json_t *steps = json_object_get(answer, "steps");
    size_t lacking = 0;
    if (!o.quiet) {
        pager_start();
        colour_heading("STEP   KIND    AGE   STATUS  FILES   SIZE    NAME        WHAT");
    }
    for (size_t i = json_array_size(steps); i > 0; i--) {
        const json_t *step = json_array_get(steps, i - 1);
        if (o.quiet)
            printf("%lld\n", client_number(step, "number"));
        else
            print_step(step);
        lacking += !json_is_true(json_object_get(step, "restorable"));
    }
    if (!o.quiet)
        advise(w.v[0], lacking);
    return 0;
}

/* ---- fork, and scores of forks ---- */

struct fork_options {
    uint64_t count;
    const char *at, *run, *score;
    bool keep_best, drifted, memory, quiet, json, help;
};

const struct option_row fork_rows[] = {
    {'n', "count", "N", OPTION_NUMBER, AT(fork_options, count), "create N machines (default: 1)"},
    {0, "at", "STEP", OPTION_TEXT, AT(fork_options, at),
     "step (snapshot) to start from (default: the machine's present state)"},
    {0, "run", "COMMAND", OPTION_TEXT, AT(fork_options, run),
     "run a shell command in all new machines at once"},
    {0, "score", "COMMAND", OPTION_TEXT, AT(fork_options, score),
     "run this command after --run; the last number it prints is the machine's score"},
    {0, "keep-best", NULL, OPTION_FLAG, AT(fork_options, keep_best),
     "delete all new machines except the one with the highest score"},
    {0, "drifted", NULL, OPTION_FLAG, AT(fork_options, drifted),
     "proceed even if the host's packages changed since the machine was created"},
    {0, "memory", NULL, OPTION_FLAG, AT(fork_options, memory),
     "copy the memory of a vm too: its processes go on in each fork"},
    {'q', "quiet", NULL, OPTION_FLAG, AT(fork_options, quiet), "print only ids"},
    {0, "json", NULL, OPTION_FLAG, AT(fork_options, json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(fork_options, help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

/* One fork, with the command of --run and its score. */
struct runner {
    const char *id;
    char exec[32];
    long long status;
    double score;
    bool scored;
};

static int steps_start(struct client *c, const char *machine, const char *command, bool background,
                       json_t **ret, struct err *err) {
    struct buf body DEFER(buf_done) = BUF(1 << 20);
    struct jot j = JOT(&body);
    jot_object(&j, NULL);
    jot_string(&j, "command", command);
    jot_string(&j, "key", id_new('k').text);
    if (background)
        jot_bool(&j, "background", true);
    jot_end(&j, '}');
    if (j.failed)
        return err_set(err, ERR_LIMIT, "the command of --run is too long");
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "POST", .target = target, .body = &body};
    return client_target(target, err, "/v1/machines/%s/execs", machine) < 0
               ? -1
               : client_call_again(c, &r, ret, err);
}

/* Waits until the command or the connection ends. -1: the daemon refused the request. */
static int steps_follow(struct client *c, const struct runner *r, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct http_head *head = NULL;
    const char *bytes;
    size_t n;
    const struct client_request q = {.method = "GET", .target = target, .accept = "*/*"};
    if (client_target(target, err, "/v1/machines/%s/execs/%s/events", r->id, r->exec) < 0)
        return -1;
    if (client_send(c, c->http, &q, err) < 0)
        return 0;
    if (client_answer(c->http, &head, err) < 0)
        return head && err->code != ERR_BUSY ? -1 : 0;
    while (http_client_read(c->http, &bytes, &n, err) > 0)
        ;
    return 0;
}

static bool is_under_way(const json_t *exec) {
    const char *state = client_text(exec, "state");
    return *state && exec_end_of(state, client_text(exec, "reason")) == EXEC_END_NONE;
}

/* Waits for the end of the command, also across a restart of the daemon. */
static int steps_wait_for(struct client *c, struct runner *r, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request look = {.method = "GET", .target = target};
    if (client_target(target, err, "/v1/machines/%s/execs/%s", r->id, r->exec) < 0)
        return -1;
    for (;;) {
        json_t *exec DEFER(json_decrefp) = NULL;
        if (steps_follow(c, r, err) < 0 || client_call_again(c, &look, &exec, err) < 0)
            return -1;
        r->status = client_number(exec, "status");
        if (!is_under_way(exec))
            return 0;
        usleep(CLIENT_AGAIN_MS * 1000);
    }
}

/* Finds the last number in a text; false: it has none. */
static bool last_number(const char *text, double *ret) {
    bool found = false;
    while (*text) {
        char *end;
        double value = strtod(text, &end);
        if (end == text) {
            text++;
            continue;
        }
        *ret = value;
        found = true;
        text = end;
    }
    return found;
}

static int score(struct client *c, const char *command, struct runner *r, struct err *err) {
    json_t *result DEFER(json_decrefp) = NULL;
    if (steps_start(c, r->id, command, false, &result, err) < 0)
        return -1;
    r->scored = client_number(json_object_get(result, "exec"), "status") == 0 &&
                last_number(client_text(result, "stdout"), &r->score);
    return 0;
}

static size_t best_of(const struct runner *runners, size_t count) {
    size_t best = count;
    for (size_t i = 0; i < count; i++)
        if (runners[i].scored && (best == count || runners[i].score > runners[best].score))
            best = i;
    return best;
}

static int destroy_others(struct client *c, const struct runner *runners, size_t count, size_t best,
                          struct err *err) {
    for (size_t i = 0; i < count; i++) {
        char target[CLIENT_TARGET_SIZE];
        const struct client_request r = {.method = "DELETE", .target = target};
        if (i != best && (client_target(target, err, "/v1/machines/%s", runners[i].id) < 0 ||
                          client_call(c, &r, NULL, err) < 0))
            return -1;
    }
    return 0;
}

/* Prints the ids of the forks that are left: with --keep-best only the best, if one has a score. */
static void print_kept(const struct fork_options *o, const struct runner *runners, size_t count,
                       size_t best) {
    for (size_t i = 0; i < count; i++)
        if (!o->keep_best || best == count || i == best)
            puts(runners[i].id);
}

static void print_tournament(const struct runner *runners, size_t count, size_t best, bool json) {
    json_t *list DEFER(json_decrefp) = json_array();
    if (!json)
        puts("MACHINE         STATUS  SCORE");
    for (size_t i = 0; i < count; i++) {
        char status[24], value[32] = "none";
        const struct runner *r = &runners[i];
        snprintf(status, sizeof(status), "%lld", r->status);
        if (r->scored)
            snprintf(value, sizeof(value), "%g", r->score);
        if (json) {
            json_t *row = json_pack("{s:s,s:I,s:b}", "machine", r->id, "status",
                                    (json_int_t)r->status, "best", i == best);
            if (r->scored)
                json_object_set_new(row, "score", json_real(r->score));
            json_array_append_new(list, row);
            continue;
        }
        table_cell(r->id, 14);
        table_cell(status, 6);
        fputs(value, stdout);
        puts(i == best ? "  best" : "");
    }
    json_t *object DEFER(json_decrefp) = json ? json_pack("{s:O}", "forks", list) : NULL;
    if (json)
        print_json(object);
}

static int tournament(struct client *c, const struct fork_options *o, const json_t *machines,
                      struct err *err) {
    size_t count = json_array_size(machines);
    struct runner *runners DEFER_FREE = xcalloc(count + 1, sizeof(*runners));
    for (size_t i = 0; i < count; i++) {
        json_t *exec DEFER(json_decrefp) = NULL;
        runners[i].id = client_text(json_array_get(machines, i), "id");
        if (steps_start(c, runners[i].id, o->run, true, &exec, err) < 0)
            return -1;
        snprintf(runners[i].exec, sizeof(runners[i].exec), "%s", client_text(exec, "id"));
    }
    for (size_t i = 0; i < count; i++)
        if (steps_wait_for(c, &runners[i], err) < 0)
            return -1;
    for (size_t i = 0; o->score && i < count; i++)
        if (score(c, o->score, &runners[i], err) < 0)
            return -1;
    size_t best = best_of(runners, count);
    /* If no fork has a score, keep all. */
    if (o->keep_best && best < count && destroy_others(c, runners, count, best, err) < 0)
        return -1;
    bool failed = o->keep_best && best == count;
    if (o->quiet)
        print_kept(o, runners, count, best);
    else if (!failed || !o->json)
        print_tournament(runners, count, best, o->json);
    return failed ? err_set(err, ERR_UNKNOWN, "no fork has a score: all forks are kept") : 0;
}

static int check_fork(const struct fork_options *o, const struct words *w, struct err *err) {
    if (need(w, 1, 1, "", err) < 0)
        return -1;
    if (o->count > FORKS_MAX)
        return err_set(err, ERR_LIMIT, "--count must be at most %d", FORKS_MAX);
    if (o->score && !o->run)
        return err_set(err, ERR_INVALID, "--score requires --run");
    if (o->keep_best && !o->score)
        return err_set(err, ERR_INVALID, "--keep-best requires --score");
    return 0;
}

static int make_forks(struct client *c, const char *machine, const struct fork_options *o,
                      json_t **ret, struct err *err) {
    struct buf body DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&body);
    jot_object(&j, NULL);
    jot_u64(&j, "count", o->count);
    jot_string(&j, "key", id_new('k').text);
    if (o->at)
        jot_string(&j, "step", o->at);
    if (o->drifted)
        jot_bool(&j, "drifted", true);
    if (o->memory)
        jot_bool(&j, "memory", true);
    jot_end(&j, '}');
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "POST", .target = target, .body = &body};
    return client_target(target, err, "/v1/machines/%s/fork", machine) < 0
               ? -1
               : client_call_again(c, &r, ret, err);
}

int cmd_fork(int argc, char **argv) {
    struct fork_options o = {.count = 1};
    struct words w = {.count = 0};
    struct client c DEFER(client_close) = {0};
    json_t *answer DEFER(json_decrefp) = NULL;
    struct err err;
    if (parse(fork_rows, argc, argv, &o, &w, &err) < 0)
        return cli_fail(&err);
    if (o.help)
        return show_help("fork", fork_rows);
    if (check_fork(&o, &w, &err) < 0 || client_open(&c, CLIENT_IF_MACHINES, NULL, &err) < 0 ||
        make_forks(&c, w.v[0], &o, &answer, &err) < 0)
        return cli_fail(&err);
    const json_t *machines = json_object_get(answer, "machines");
    size_t i;
    json_t *m;
    if (o.run && tournament(&c, &o, machines, &err) < 0) {
        fputs("carrel: these forks were created:", stderr);
        json_array_foreach(machines, i, m) {
            fprintf(stderr, " %s", client_text(m, "id"));
        }
        fputc('\n', stderr);
        return cli_fail(&err);
    }
    if (o.run)
        return 0;
    if (o.json)
        print_json(answer);
    json_array_foreach(machines, i, m) {
        if (!o.json)
            puts(client_text(m, "id"));
    }
    return 0;
}
