#include "cli/image/build_watch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/text/base64.h"
#include "cli/image/build_wait.h"
#include "cli/safe.h"

enum { WATCH_TICK_MS = 200, WATCH_EVENT_MAX = 4 << 20 };

static volatile sig_atomic_t watch_signal;

static void note_signal(int number) {
    watch_signal = number;
}

void build_watch_signals(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    /* the second signal of a kind ends the process at once */
    const struct sigaction action = {.sa_handler = note_signal, .sa_flags = (int)SA_RESETHAND};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
        sigaction(numbers[i], &action, NULL);
}

bool build_watch_is_over(void) {
    return watch_signal != 0;
}

static void send_cancel(struct client *c, const char *id) {
    struct err ignored;
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "DELETE", .target = target};
    const struct http_head *head;
    struct http_client *http DEFER(http_client_freep) = client_again(c, &ignored);
    if (http && client_target(target, &ignored, "/v1/images/builds/%s", id) == 0 &&
        client_send(c, http, &r, &ignored) == 0)
        client_answer(http, &head, &ignored);
}

static void end_by_signal(void) {
    int number = (int)watch_signal;
    if (!number)
        return;
    signal(number, SIG_DFL);
    raise(number);
}

void build_watch_cancel(struct client *c, const char *id) {
    send_cancel(c, id);
    end_by_signal();
}

/* ---- events ---- */

struct watch {
    struct client *client;
    const char *id;
    bool quiet, follow;
    bool prints; /* prints the log on standard output, instead of showing progress */
    bool cancelled;
    uint64_t offset; /* bytes of the log that were taken */
    struct build_wait wait;
    bool waits; /* `wait` is for the present step */
    char *what;
    json_t *end; /* the build as it ended */
};

static void watch_step_over(struct watch *w) {
    if (w->waits)
        build_wait_end(&w->wait);
    w->waits = false;
}

static void take_step(struct watch *w, const json_t *event) {
    const char *how = client_text(event, "how");
    char *what = NULL;
    watch_step_over(w);
    if (asprintf(&what, "%3lld/%lld  %-7s %s", client_number(event, "step"),
                 client_number(event, "steps"), how, client_text(event, "what")) < 0)
        abort();
    FILE *to = w->prints ? stdout : stderr;
    if (!w->quiet) {
        safe_text(to, what, strlen(what));
        fputc('\n', to);
    }
    free(w->what);
    w->what = what;
    if (w->prints || strcmp(how, "making") != 0)
        return;
    build_wait_begin(&w->wait, w->client, w->what, w->quiet);
    w->waits = true;
}

static int watch_output(struct watch *w, const json_t *event, struct err *err) {
    const json_t *text = json_object_get(event, "data");
    const char *encoded = client_text(event, "data_base64");
    size_t n = text ? json_string_length(text) : strlen(encoded);
    char *bytes DEFER_FREE = xmalloc(n + 1);
    if (text)
        memcpy(bytes, json_string_value(text), n);
    else if (!base64_decode(encoded, n, bytes, &n))
        return err_set(err, ERR_INTERNAL, "the daemon sent damaged output of the command");
    if (w->prints)
        safe_text(stdout, bytes, n);
    else if (w->waits)
        build_wait_note(&w->wait, bytes, n);
    return 0;
}

static int watch_event(struct watch *w, const char *line, size_t n, struct err *err) {
    json_t *event DEFER(json_decrefp) = json_loadb(line, n, 0, NULL);
    const char *type = client_text(event, "type");
    if (strcmp(type, "end") == 0) {
        json_decref(w->end);
        w->end = json_incref(json_object_get(event, "build"));
        return 0;
    }
    w->offset += n + 1;
    if (strcmp(type, "step") == 0)
        take_step(w, event);
    else if (strcmp(type, "output") == 0)
        return watch_output(w, event, err);
    else if (strcmp(type, "gap") == 0 && w->prints)
        printf("[%lld bytes of output are left out]\n", client_number(event, "bytes"));
    return 0;
}

static int watch_lines(struct watch *w, struct buf *text, struct err *err) {
    size_t done = 0;
    char *end;
    while (done < text->len && (end = memchr(text->data + done, '\n', text->len - done))) {
        size_t n = (size_t)(end - text->data) - done;
        if (watch_event(w, text->data + done, n, err) < 0)
            return -1;
        done += n + 1;
    }
    buf_drop(text, done);
    return 0;
}

static void watch_tick(struct watch *w) {
    if (w->waits)
        build_wait_tick(&w->wait);
    if (watch_signal && !w->prints && !w->cancelled) {
        w->cancelled = true;
        send_cancel(w->client, w->id);
    }
}

/* ---- the stream ---- */

static int watch_open(struct watch *w, struct err *err) {
    char target[CLIENT_TARGET_SIZE], offset[24];
    const struct http_head *head;
    const struct client_request r = {
        .method = "GET", .target = target, .accept = "application/x-ndjson"};
    snprintf(offset, sizeof(offset), "%llu", (unsigned long long)w->offset);
    if (client_target(target, err, "/v1/images/builds/%s/log?offset=%s&follow=%s", w->id, offset,
                      w->follow ? "1" : "0") < 0 ||
        client_send(w->client, w->client->http, &r, err) < 0)
        return -1;
    return client_answer(w->client->http, &head, err);
}

static int watch_stream(struct watch *w, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(WATCH_EVENT_MAX);
    const char *bytes;
    size_t n;
    int more;
    if (watch_open(w, err) < 0)
        return -1;
    for (;;) {
        http_client_set_timeout(w->client->http, WATCH_TICK_MS);
        more = http_client_read(w->client->http, &bytes, &n, err);
        http_client_set_timeout(w->client->http, -1);
        watch_tick(w);
        if (more < 0 && err->code == ERR_TIMEOUT)
            continue;
        if (more <= 0)
            return more;
        if (!buf_add(&text, bytes, n))
            return err_set(err, ERR_LIMIT, "the daemon sent an event that is too long");
        if (watch_lines(w, &text, err) < 0)
            return -1;
    }
}

/* Follows the log over broken connections, until the build has ended. */
static int watch_all(struct watch *w, struct err *err) {
    struct client_search search = {0};
    while (watch_stream(w, err) < 0 || !w->end) {
        if (!w->end && err->code != ERR_NOT_FOUND) {
            client_lost(&search);
            if (client_await(w->client, &search, err) == 0)
                continue;
        }
        watch_step_over(w);
        return -1;
    }
    return 0;
}

/* The error of a build that was not successful. */
static int watch_result(struct watch *w, struct err *err) {
    const char *state = client_text(w->end, "state"), *remedy = client_text(w->end, "remedy");
    bool done = strcmp(state, "done") == 0;
    if (!done && w->waits && !w->cancelled)
        build_wait_output(&w->wait);
    bool has_output = w->waits && w->wait.output_bytes;
    watch_step_over(w);
    if (done)
        return 0;
    err_set(err, err_code_named(client_text(w->end, "code")), "%s", client_text(w->end, "error"));
    if (has_output && strcmp(client_text(w->end, "code"), "invalid") == 0)
        return err_remedy(err, "see the output of the command above");
    return *remedy ? err_remedy(err, "%s", remedy) : -1;
}

int build_watch(struct client *c, const char *id, bool quiet, json_t **ret, struct err *err) {
    struct watch w = {.client = c, .id = id, .quiet = quiet, .follow = true};
    int r = watch_all(&w, err);
    if (r == 0)
        r = watch_result(&w, err);
    if (r == 0)
        *ret = json_incref(w.end);
    free(w.what);
    json_decref(w.end);
    end_by_signal();
    return r;
}

int build_log_print(struct client *c, const char *id, bool follow, struct err *err) {
    struct watch w = {.client = c, .id = id, .follow = follow, .prints = true};
    int r = follow ? watch_all(&w, err) : watch_stream(&w, err);
    free(w.what);
    json_decref(w.end);
    return r;
}
