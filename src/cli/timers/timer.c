/* carrel timer: commands that a machine runs at set times. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/defer.h"
#include "base/jot.h"
#include "cli/cli.h"
#include "cli/machine.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/text/colour.h"

enum { DAY_S = 86400, BODY_MAX = 64 << 10 };

struct timer_options {
    uint64_t every, in;
    const char *at, *user, *task;
    bool quiet, json, help;
};

#define AT(member) offsetof(struct timer_options, member)

const struct option_row timer_rows[] = {
    {0, "every", "TIME", OPTION_DURATION, AT(every), "add: run again and again; at least 1m"},
    {0, "in", "TIME", OPTION_DURATION, AT(in), "add: time until the first run"},
    {0, "at", "TIME", OPTION_TEXT, AT(at),
     "add: first run at HH:MM or \"YYYY-MM-DD HH:MM\", local time"},
    {0, "task", "NAME", OPTION_TEXT, AT(task), "add: keep in order: updates, cleanup or units"},
    {'u', "user", "NAME", OPTION_TEXT, AT(user), "add: run as this user (default: the image's)"},
    {'q', "quiet", NULL, OPTION_FLAG, AT(quiet), "ls: print only ids; rm: print nothing"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print JSON"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

/* Reads a local time. HH:MM is the next such time. */
static int timer_time(const char *text, uint64_t *ret_ms, struct err *err) {
    time_t now = (time_t)(wall_ms() / 1000), then;
    struct tm tm, of_day;
    localtime_r(&now, &tm);
    of_day = tm;
    tm.tm_sec = of_day.tm_sec = 0;
    const char *end = strptime(text, "%Y-%m-%d %H:%M", &tm);
    const char *end_of_day = strptime(text, "%H:%M", &of_day);
    if (end && !*end) {
        tm.tm_isdst = -1;
        then = mktime(&tm);
    } else if (end_of_day && !*end_of_day) {
        of_day.tm_isdst = -1;
        then = mktime(&of_day);
        if (then <= now) {
            of_day.tm_mday++;
            of_day.tm_isdst = -1;
            then = mktime(&of_day);
        }
    } else {
        err_set(err, ERR_INVALID, "--at %.40s: not a time", text);
        return err_remedy(err, "use HH:MM or \"YYYY-MM-DD HH:MM\"");
    }
    if (then <= now)
        return err_set(err, ERR_INVALID, "--at %.40s is in the past", text);
    *ret_ms = (uint64_t)then * 1000;
    return 0;
}

static int timer_body(const struct timer_options *o, char **command, struct buf *body,
                      struct err *err) {
    struct jot j = JOT(body);
    uint64_t at = 0;
    if (o->at && timer_time(o->at, &at, err) < 0)
        return -1;
    jot_object(&j, NULL);
    if (o->task)
        jot_string(&j, "task", o->task);
    else
        jot_array(&j, "argv");
    for (; *command; command++)
        jot_string(&j, NULL, *command);
    if (!o->task)
        jot_end(&j, ']');
    if (o->user)
        jot_string(&j, "user", o->user);
    if (o->every)
        jot_u64(&j, "every", o->every / 1000);
    if (o->in)
        jot_u64(&j, "in", o->in / 1000);
    if (at)
        jot_u64(&j, "at_ms", at);
    jot_end(&j, '}');
    return j.failed ? err_set(err, ERR_LIMIT, "the command is too long") : 0;
}

/* Each reads its words, the machine first. */
static int timer_add(struct client *c, char **words, const struct timer_options *o, json_t **ret,
                     struct err *err) {
    struct buf body DEFER(buf_done) = BUF(BODY_MAX);
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "POST", .target = target, .body = &body};
    if (o->task && words[1])
        return err_set(err, ERR_INVALID, "--task takes no command");
    if (!o->task && !words[1]) {
        err_set(err, ERR_INVALID, "no command given");
        return err_remedy(err, "carrel timer add --every 1d MACHINE COMMAND [ARG...]");
    }
    if (!o->task && !o->every && !o->in && !o->at) {
        err_set(err, ERR_INVALID, "no time given");
        return err_remedy(err, "use --every, --in or --at");
    }
    if (timer_body(o, words + 1, &body, err) < 0 ||
        client_target(target, err, "/v1/machines/%s/timers", words[0]) < 0)
        return -1;
    return client_call(c, &r, ret, err);
}

static int timer_list(struct client *c, char **words, const struct timer_options *o, json_t **ret,
                      struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    (void)o;
    if (words[1])
        return err_set(err, ERR_INVALID, "unexpected argument '%s'", words[1]);
    return client_target(target, err, "/v1/machines/%s/timers", words[0]) < 0
               ? -1
               : client_call(c, &r, ret, err);
}

static int timer_remove(struct client *c, char **words, const struct timer_options *o, json_t **ret,
                        struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "DELETE", .target = target};
    (void)o;
    if (!words[1] || words[2])
        return err_set(err, ERR_INVALID, "carrel timer rm takes a machine and a timer");
    return client_target(target, err, "/v1/machines/%s/timers/%s", words[0], words[1]) < 0
               ? -1
               : client_call(c, &r, ret, err);
}

static const struct timer_verb {
    const char *name;
    int (*run)(struct client *c, char **words, const struct timer_options *o, json_t **ret,
               struct err *err);
} verbs[] = {{"add", timer_add}, {"ls", timer_list}, {"rm", timer_remove}};
enum { VERBS = sizeof(verbs) / sizeof(*verbs) };

static void print_time(long long ms, char ret[24]) {
    time_t at = (time_t)(ms / 1000);
    struct tm tm;
    localtime_r(&at, &tm);
    if (ms)
        strftime(ret, 24, "%Y-%m-%d %H:%M", &tm);
    else
        snprintf(ret, 24, "-");
}

static void print_every(uint64_t ms, char ret[24]) {
    uint64_t s = ms / 1000;
    const char unit = !s               ? '-'
                      : s % DAY_S == 0 ? 'd'
                      : s % 3600 == 0  ? 'h'
                      : s % 60 == 0    ? 'm'
                                       : 's';
    uint64_t n = unit == 'd' ? s / DAY_S : unit == 'h' ? s / 3600 : unit == 'm' ? s / 60 : s;
    snprintf(ret, 24, s ? "%" PRIu64 "%c" : "-", n, unit);
}

/* How the last run went. */
static void print_outcome(const json_t *t) {
    char text[24] = "-";
    const json_t *status = json_object_get(t, "last_status");
    if (*client_text(t, "error"))
        snprintf(text, sizeof(text), "failed");
    else if (status && client_number(t, "last_status") >= 0)
        snprintf(text, sizeof(text), "exit %lld", (long long)client_number(t, "last_status"));
    else if (client_number(t, "runs"))
        snprintf(text, sizeof(text), status ? "killed" : "started");
    table_cell(text, 8);
}

static void print_timer(const json_t *t) {
    char next[24], every[24];
    const json_t *word;
    size_t i;
    print_time(client_number(t, "next_ms"), next);
    print_every((uint64_t)client_number(t, "every_ms"), every);
    table_cell(client_text(t, "id"), 14);
    table_cell(next, 16);
    table_cell(every, 6);
    print_outcome(t);
    if (*client_text(t, "task"))
        printf("task %s", client_text(t, "task"));
    json_array_foreach(json_object_get(t, "argv"), i, word) {
        if (i)
            putchar(' ');
        table_cell(json_string_value(word), 0);
    }
    putchar('\n');
    if (*client_text(t, "error")) {
        fputs("  ", stdout);
        table_cell(client_text(t, "error"), 0);
        putchar('\n');
    }
}

static void timer_print(const struct timer_verb *v, const json_t *answer,
                        const struct timer_options *o) {
    const json_t *t;
    size_t i;
    if (o->json) {
        print_json(answer);
    } else if (v->run == timer_remove) {
        cli_done(o->quiet, "removed timer '%s'", client_text(answer, "id"));
    } else if (v->run == timer_add) {
        puts(client_text(answer, "id"));
    } else if (o->quiet) {
        print_ids(json_object_get(answer, "timers"), "id");
    } else {
        colour_heading("TIMER           NEXT              EVERY   LAST      COMMAND");
        json_array_foreach(json_object_get(answer, "timers"), i, t) {
            print_timer(t);
        }
    }
}

/* Options may come before or after the subcommand, up to the machine: then the command begins. */
static int timer_parse(int argc, char **argv, struct timer_options *o,
                       const struct timer_verb **ret, char ***ret_words, struct err *err) {
    int first = 0, more = 0;
    size_t i = 0;
    if (options_parse(timer_rows, argc - 1, argv + 1, o, &first, err) < 0)
        return -1;
    char **words = argv + 1 + first;
    if (o->help)
        return 0;
    while (i < VERBS && (!words[0] || strcmp(verbs[i].name, words[0]) != 0))
        i++;
    if (i == VERBS)
        return cli_unknown_subcommand("timer", words[0] ? words[0] : "", err);
    *ret = &verbs[i];
    words++;
    for (int turn = 0; turn < 2; turn++) {
        int left = (int)(argv + argc - words);
        if (options_parse(timer_rows, left, words, o, &more, err) < 0)
            return -1;
        words += more;
        if (turn == 0) {
            if (cli_machine_check(words[0], err) < 0)
                return -1;
            *ret_words = words++;
        }
    }
    memmove(*ret_words + 1, words, (size_t)(argv + argc - words + 1) * sizeof(*words));
    return 0;
}

int cmd_timer(int argc, char **argv) {
    struct client c DEFER(client_close) = {0};
    json_t *answer DEFER(json_decrefp) = NULL;
    struct timer_options o = {.quiet = false};
    const struct timer_verb *v = NULL;
    char **words = NULL;
    struct err err;
    if (timer_parse(argc, argv, &o, &v, &words, &err) < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_help("timer");
        return 0;
    }
    if (cli_machine_open(&c, words[0], &err) < 0 || v->run(&c, words, &o, &answer, &err) < 0)
        return cli_fail(&err);
    timer_print(v, answer, &o);
    return 0;
}
