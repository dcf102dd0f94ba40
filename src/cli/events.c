/* carrel events: prints what happens to machines, images and runs. */
#include "cli/events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/defer.h"
#include "cli/cli.h"
#include "cli/machine.h"
#include "cli/options.h"
#include "cli/safe.h"
#include "cli/table.h"
#include "io/sse_read.h"

enum { EVENT_BYTES_MAX = 4 << 20, EVENT_TYPE_WIDTH = 16, EVENT_MACHINE_WIDTH = 14 };

/* ---- the stream ---- */

static int events_open(struct client *c, const struct events_follow *f, struct err *err) {
    char target[CLIENT_TARGET_SIZE] = "/v1/events", after[24];
    const struct client_request r = {
        .method = "GET", .target = target, .accept = "text/event-stream"};
    const struct http_head *head;
    snprintf(after, sizeof(after), "%lld", f->after);
    if (client_query(target, "machine", f->machine, err) < 0 ||
        client_query(target, "type", f->type, err) < 0 ||
        client_query(target, "follow", f->past ? "0" : NULL, err) < 0 ||
        client_query(target, "after", f->after ? after : NULL, err) < 0 ||
        client_send(c, c->http, &r, err) < 0)
        return -1;
    return client_answer(c->http, &head, err);
}

static int event_take(struct events_follow *f, const struct buf *data, struct err *err) {
    json_t *event DEFER(json_decrefp) = json_loadb(data->data, data->len, 0, NULL);
    if (!json_is_object(event))
        return err_set(err, ERR_INTERNAL, "the daemon sent a damaged event");
    f->after = client_number(event, "id");
    return f->event(f->arg, event, err);
}

static int events_take(struct events_follow *f, struct sse_reader *reader, const char *bytes,
                       size_t n, struct err *err) {
    while (n) {
        size_t used;
        int found = sse_read(reader, bytes, n, &used);
        if (found < 0)
            return err_set(err, ERR_LIMIT, "the daemon sent an event that is too long");
        if (found && reader->has_data && event_take(f, &reader->data, err) < 0)
            return -1;
        bytes += used;
        n -= used;
    }
    return 0;
}

/* 0: the stream ended; -1: an error, *lost if it was the connection's. */
static int events_stream(struct client *c, struct events_follow *f, bool *lost, struct err *err) {
    struct sse_reader reader DEFER(sse_reader_done);
    const char *bytes;
    size_t n;
    int more;
    sse_reader_init(&reader, EVENT_BYTES_MAX);
    *lost = false;
    if (events_open(c, f, err) < 0) {
        *lost = err->code == ERR_UNKNOWN;
        return -1;
    }
    if (f->connected && f->connected(f->arg, err) < 0)
        return -1;
    while ((more = http_client_read(c->http, &bytes, &n, err)) > 0)
        if (events_take(f, &reader, bytes, n, err) < 0)
            return -1;
    *lost = !f->past;
    return *lost || more < 0 ? -1 : 0;
}

int events_follow(struct client *c, struct events_follow *f, struct err *err) {
    struct client_search search = {0};
    bool lost;
    for (;;) {
        if (events_stream(c, f, &lost, err) == 0)
            return 0;
        if (!lost)
            return -1;
        client_lost(&search);
        if (client_await(c, &search, err) < 0)
            return -1;
        search = (struct client_search){0};
    }
}

/* ---- the command ---- */

struct events_options {
    const char *machine, *type;
    uint64_t after;
    bool past, json, help;
};

#define AT(member) offsetof(struct events_options, member)

const struct option_row events_rows[] = {
    {0, "past", NULL, OPTION_FLAG, AT(past), "print the events that are kept, then exit"},
    {0, "after", "ID", OPTION_NUMBER, AT(after), "begin after the event with this number"},
    {0, "type", "TYPE", OPTION_TEXT, AT(type), "only events of this type, such as net.held"},
    {0, "json", NULL, OPTION_FLAG, AT(json), "print one JSON object per line"},
    {'h', "help", NULL, OPTION_FLAG, AT(help), "show this help"},
    {0, NULL, NULL, OPTION_FLAG, 0, NULL},
};

static void print_member(const char *name, const json_t *value) {
    if (json_is_string(value))
        printf("%s=%s  ", name, json_string_value(value));
    else if (json_is_integer(value))
        printf("%s=%lld  ", name, (long long)json_integer_value(value));
    else if (json_is_boolean(value))
        printf("%s=%s  ", name, json_is_true(value) ? "true" : "false");
}

static void print_event(const json_t *event) {
    time_t seconds = (time_t)(client_number(event, "time_ms") / 1000);
    struct tm tm;
    char when[32];
    const char *name;
    json_t *value;
    if (!gmtime_r(&seconds, &tm) || !strftime(when, sizeof(when), "%F %T", &tm))
        return;
    printf("%s  ", when);
    table_cell(client_text(event, "type"), EVENT_TYPE_WIDTH);
    table_cell(client_text(event, "machine"), EVENT_MACHINE_WIDTH);
    json_object_foreach(json_object_get(event, "detail"), name, value) {
        print_member(name, value);
    }
    putchar('\n');
}

static int show_event(void *arg, const json_t *event, struct err *err) {
    const struct events_options *o = arg;
    if (o->json)
        print_json(event);
    else
        print_event(event);
    if (fflush(stdout) < 0)
        return err_sys(err, "cannot write the events");
    return 0;
}

/* Events name a machine by its id. */
static int machine_id_of(struct client *c, const char *machine, json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    if (cli_machine_check(machine, err) < 0 ||
        client_target(target, err, "/v1/machines/%s", machine) < 0)
        return -1;
    return client_call(c, &r, ret, err);
}

int cmd_events(int argc, char **argv) {
    struct events_options o = {0};
    struct client c DEFER(client_close) = {0};
    json_t *machine DEFER(json_decrefp) = NULL;
    char *words[1] = {NULL};
    struct err err;
    if (options_words(events_rows, argc, argv, &o, words, 1, &err) < 0)
        return cli_fail(&err);
    if (o.help) {
        cli_usage("events");
        options_print(events_rows);
        return 0;
    }
    if (client_open(&c, CLIENT_START, NULL, &err) < 0 ||
        (words[0] && machine_id_of(&c, words[0], &machine, &err) < 0))
        return cli_fail(&err);
    struct events_follow f = {.machine = machine ? client_text(machine, "id") : NULL,
                              .type = o.type,
                              .past = o.past,
                              .after = (long long)o.after,
                              .event = show_event,
                              .arg = &o};
    return events_follow(&c, &f, &err) < 0 ? cli_fail(&err) : 0;
}
