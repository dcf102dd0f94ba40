#include "cli/client.h"

#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/lockfile.h"
#include "base/parse.h"
#include "io/http_uri.h"
#include "io/launch.h"

enum {
    IDLE_MS = 60000,
    TURN_MS = 200, /* between two calls of client_request.idle */
    ATTEMPTS = 50,
    WAIT_S = 30,
    WAIT_MAX_S = 86400,
    GRACE_MS = 1000, /* time for a service manager to restart the daemon */
};

/* ---- connecting to a daemon ---- */

static int use_url(struct client *c, const char *url, struct err *err) {
    const char *token = getenv("CARREL_TOKEN");
    const char *rest = strncmp(url, "http://", 7) == 0 ? url + 7 : NULL;
    const char *colon = rest ? strrchr(rest, ':') : NULL;
    uint64_t port = 0;
    size_t n = colon ? (size_t)(colon - rest) : 0;
    if (n >= 2 && rest[0] == '[' && rest[n - 1] == ']') {
        rest++;
        n -= 2;
    }
    if (!colon || !n || n >= sizeof(c->host) || parse_u64(colon + 1, 1, 65535, &port, NULL) < 0) {
        err_set(err, ERR_INVALID, "CARREL_URL '%s' is not http://ADDRESS:PORT", url);
        return err_remedy(err, "use a URL such as http://127.0.0.1:7070");
    }
    snprintf(c->host, sizeof(c->host), "%.*s", (int)n, rest);
    c->port = (uint16_t)port;
    if (token && *token)
        snprintf(c->bearer, sizeof(c->bearer), "Bearer %s", token);
    c->http = http_client_tcp(c->host, c->port, err);
    if (c->http)
        return 0;
    if (err->code == ERR_NOT_FOUND)
        err->code = ERR_UNKNOWN; /* callers take ERR_NOT_FOUND for "no machines" */
    err_wrap(err, "cannot connect to the daemon at '%s'", url);
    return err_remedy(err, "start it there with carrel serve --listen, or unset CARREL_URL");
}

static bool try_socket(struct client *c, const char *run, struct err *err) {
    snprintf(c->socket, sizeof(c->socket), "%s/carrel.sock", run);
    c->http = http_client_unix(c->socket, err);
    return c->http;
}

static bool same_place(const char *a, const char *b) {
    struct stat at, bt;
    if (stat(a, &at) < 0 || stat(b, &bt) < 0)
        return strcmp(a, b) == 0;
    return at.st_dev == bt.st_dev && at.st_ino == bt.st_ino;
}

/* Names the owner of a run directory that this user may not use; returns -1. */
static int explain_denied(const struct client *c, struct err *err) {
    struct stat st;
    if (stat(c->place.run, &st) < 0 || st.st_uid == geteuid())
        return err_remedy(err, "set CARREL_RUN to a directory of your own");
    err_set(err, ERR_DENIED, "the daemon in run directory '%s' belongs to another user (uid %u)",
            c->place.run, (unsigned)st.st_uid);
    return err_remedy(err, "run the command as that user, or set CARREL_RUN to another directory");
}

/* Refuses a daemon of another store than the one that CARREL_HOME names. */
static int check_store(struct client *c, struct err *err) {
    char path[PLACE_SIZE + 16];
    struct lock_holder daemon;
    const char *home = getenv("CARREL_HOME");
    snprintf(path, sizeof(path), "%s/daemon.lock", c->place.run);
    if (!home || !*home || lockfile_read(path, &daemon) < 0 || !daemon.words[0] ||
        same_place(daemon.words, c->place.home))
        return 0;
    client_close(c);
    err_set(err, ERR_INVALID,
            "the daemon in run directory '%s' uses store '%s', but CARREL_HOME is '%s'",
            c->place.run, daemon.words, c->place.home);
    return err_remedy(err, "unset CARREL_HOME, or also set CARREL_RUN to another directory");
}

static int start_daemon(struct client *c, void (**waiting)(void), struct err *err) {
    char idle[24];
    const char *const args[] = {"--idle-ms", idle, NULL};
    snprintf(idle, sizeof(idle), "%d", IDLE_MS);
    return launch(&c->place, "carrel-daemon", "carrel.log", args, waiting, err);
}

void client_silent(void) {
}

/* A client without the variables of the user's shell must not get an empty store unnoticed. */
static void tell_new_store(const struct place *before, void (*waiting)(void)) {
    if (!before->has_store && strcmp(before->home_from, "CARREL_HOME") != 0 &&
        waiting != client_silent)
        fprintf(stderr, "carrel: created store '%s'\n", before->home);
}

/*
 * Starts the daemon and connects to it. Tries again while an old daemon is about to exit, or one
 * that another command has started is not ready. That command may have chosen another run
 * directory for the same store.
 */
static int start_and_connect(struct client *c, void (*waiting)(void), struct err *err) {
    const struct place before = c->place;
    void (*const told)(void) = waiting;
    struct err unreached;
    int r = -1;
    for (int i = 0; i < ATTEMPTS; i++) {
        r = start_daemon(c, &waiting, err);
        if (r < 0 && (err->code != ERR_BUSY || place_find(&c->place, err) < 0))
            break;
        if (try_socket(c, c->place.run, &unreached)) {
            tell_new_store(&before, told);
            return check_store(c, err);
        }
        usleep(20000);
    }
    if (r == 0)
        *err = unreached;
    return err_wrap(err, "cannot start the daemon");
}

/* The store may hold stopped machines, of which the run directory has no trace after a reboot. */
static bool may_have_machines(const struct client *c) {
    return c->place.has_store || place_has_boxes(c->place.run);
}

/* The daemon for all users is never started by a command: it is a service of root. */
static int open_shared(struct client *c, struct err *err) {
    if (try_socket(c, PLACE_SHARED_RUN, err))
        return 0;
    if (err->code == ERR_DENIED)
        return err_remedy(err, "the daemon serves only the group that [daemon] group of "
                               "/etc/carrel/carrel.conf names: ask its administrator, or run your "
                               "own daemon with carrel serve");
    if (err->code != ERR_NOT_FOUND)
        return -1;
    err_set(err, ERR_GONE, "the daemon for all users of this host is not running");
    return err_remedy(err, "start it with sudo systemctl start carrel, or run your own daemon "
                           "with carrel serve");
}

int client_open(struct client *c, enum client_start start, void (*waiting)(void), struct err *err) {
    const char *url = getenv("CARREL_URL"), *why;
    *c = (struct client){0};
    if (place_find(&c->place, err) < 0) {
        err->code = ERR_INTERNAL; /* callers take ERR_NOT_FOUND for "no machines" */
        return -1;
    }
    if (url && *url)
        return use_url(c, url, err);
    c->local = true;
    if (place_is_shared(&c->place, &why))
        return open_shared(c, err);
    if (place_check_run(&c->place, err) < 0)
        return -1;
    if (try_socket(c, c->place.run, err))
        return check_store(c, err);
    if (err->code == ERR_INVALID)
        return err_remedy(err, "set CARREL_RUN to a shorter path");
    if (err->code == ERR_DENIED)
        return explain_denied(c, err);
    if (err->code != ERR_NOT_FOUND)
        return -1;
    if (start == CLIENT_START || (start == CLIENT_IF_MACHINES && may_have_machines(c)))
        return start_and_connect(c, waiting, err);
    err_set(err, ERR_NOT_FOUND, "no daemon is running");
    return err_remedy(err, "start it with carrel serve, or create a machine with carrel new");
}

void client_close(struct client *c) {
    http_client_freep(&c->http);
    c->http = NULL;
}

struct http_client *client_again(const struct client *c, struct err *err) {
    return c->local ? http_client_unix(c->socket, err) : http_client_tcp(c->host, c->port, err);
}

static bool is_ours(const struct client *c) {
    char own[sizeof(c->socket)];
    snprintf(own, sizeof(own), "%s/carrel.sock", c->place.run);
    return c->local && strcmp(own, c->socket) == 0;
}

/* True if a daemon may be started: only one of this user, and only if its run directory still
 * exists. */
static bool may_start(const struct client *c, enum client_start start) {
    if (!is_ours(c) || access(c->place.run, F_OK) < 0)
        return false;
    return start == CLIENT_START || (start == CLIENT_IF_MACHINES && place_has_boxes(c->place.run));
}

static bool reopen(struct client *c, enum client_start start, struct err *err) {
    client_close(c);
    c->http = client_again(c, err);
    if (c->http)
        return true;
    return err->code == ERR_NOT_FOUND && may_start(c, start) &&
           start_and_connect(c, NULL, err) == 0;
}

static uint64_t wait_s(void) {
    const char *text = getenv("CARREL_WAIT");
    uint64_t seconds;
    return text && parse_u64(text, 0, WAIT_MAX_S, &seconds, NULL) == 0 ? seconds : WAIT_S;
}

void client_lost(struct client_search *s) {
    if (!s->since_ms)
        s->since_ms = monotonic_ms();
}

int client_look(struct client *c, struct client_search *s, struct err *err) {
    uint64_t now = monotonic_ms(), away = now - s->since_ms;
    char why[sizeof(err->text)];
    /* Connect at least once. The limit also ends the wait for a daemon that never answers. */
    if (s->again_ms && away >= wait_s() * 1000) {
        snprintf(why, sizeof(why), "%s", err->text);
        return err_set(err, ERR_UNKNOWN, "the daemon did not come back within %" PRIu64 " s: %s",
                       wait_s(), why);
    }
    if (now < s->again_ms)
        return 0;
    s->again_ms = now + CLIENT_AGAIN_MS;
    return reopen(c, away < GRACE_MS ? CLIENT_NEVER : s->start, err);
}

int client_await(struct client *c, struct client_search *s, struct err *err) {
    int found;
    client_lost(s);
    while ((found = client_look(c, s, err)) == 0)
        usleep(CLIENT_AGAIN_MS * 1000);
    return found < 0 ? -1 : 0;
}

/* ---- requests ---- */

int client_send(struct client *c, struct http_client *http, const struct client_request *r,
                struct err *err) {
    const struct http_pair fields[] = {
        {"Accept", r->accept ? r->accept : "application/json"},
        {c->bearer[0] ? "Authorization" : NULL, c->bearer},
        {NULL, NULL},
    };
    const struct http_request request = {
        .method = r->method,
        .target = r->target,
        .fields = fields,
        .body = r->body ? r->body->data : NULL,
        .n = r->body ? r->body->len : 0,
        .streamed = r->streamed,
        .fds = r->fds,
        .nfds = r->nfds,
    };
    return http_client_send(http, &request, err);
}

/* Reads the answer {"error":{...}} into *err; *ret_told is false if the answer was incomplete. */
static int refusal(struct http_client *http, int status, bool *ret_told, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(CLIENT_BODY_MAX);
    *ret_told = http_client_collect(http, &text, err) == 0;
    if (!*ret_told)
        return -1;
    json_t *root = text.data ? json_loadb(text.data, text.len, 0, NULL) : NULL;
    const json_t *e = json_object_get(root, "error");
    if (e) {
        err_set(err, err_code_named(client_text(e, "code")), "%s", client_text(e, "message"));
        err_remedy(err, "%s", client_text(e, "remedy"));
    } else {
        err_set(err, ERR_INTERNAL, "the daemon answered with HTTP status %d", status);
    }
    json_decref(root);
    return -1;
}

static int take_head(struct http_client *http, const struct http_head **ret, bool *ret_told,
                     struct err *err) {
    *ret_told = false;
    if (http_client_answer(http, ret, err) < 0)
        return -1;
    return (*ret)->status < 300 ? 0 : refusal(http, (*ret)->status, ret_told, err);
}

int client_answer(struct http_client *http, const struct http_head **ret, struct err *err) {
    bool told;
    return take_head(http, ret, &told, err);
}

struct ws_client *client_websocket(const struct client *c, struct http_client *http,
                                   const char *target, size_t message_max, struct err *err) {
    const struct http_pair fields[] = {{c->bearer[0] ? "Authorization" : NULL, c->bearer},
                                       {NULL, NULL}};
    int status = 0;
    bool told;
    struct ws_client *ws = ws_client_open(http, target, fields, message_max, &status, err);
    if (!ws && status)
        refusal(http, status, &told, err);
    return ws;
}

/* Where the body of an answer goes. A repeated request replaces what was received before. */
struct taker {
    int (*take)(const struct taker *t, struct http_client *http, struct err *err);
    struct buf *text;
    int fd;
};

static int take_text(const struct taker *t, struct http_client *http, struct err *err) {
    t->text->len = 0;
    return http_client_collect(http, t->text, err);
}

static int take_file(const struct taker *t, struct http_client *http, struct err *err) {
    const char *bytes;
    size_t n;
    int more;
    if (ftruncate(t->fd, 0) < 0 || lseek(t->fd, 0, SEEK_SET) < 0)
        return err_sys(err, "cannot store the daemon's answer in a file");
    while ((more = http_client_read(http, &bytes, &n, err)) > 0) {
        int status = write_all(t->fd, bytes, n);
        if (status < 0)
            return err_num(err, status, "cannot store the daemon's answer in a file");
    }
    return more;
}

/* Sends a request once. 0: the whole answer came. -1: *ret_answered: do not repeat the request. */
static int exchange(struct client *c, const struct client_request *r, const struct taker *t,
                    bool *ret_answered, struct err *err) {
    const struct http_head *head;
    *ret_answered = false;
    if (client_send(c, c->http, r, err) < 0) {
        *ret_answered = err->code == ERR_INVALID; /* the request is wrong and was not sent */
        return -1;
    }
    struct pollfd answer = {.fd = http_client_fd(c->http), .events = POLLIN};
    while (r->idle && !http_client_has_more(c->http) && poll(&answer, 1, TURN_MS) <= 0)
        r->idle(r->arg);
    if (take_head(c->http, &head, ret_answered, err) < 0)
        return -1;
    int got = t->take(t, c->http, err);
    *ret_answered = got == 0 || (err->code != ERR_UNKNOWN && err->code != ERR_GONE);
    return got;
}

/* Repeats the request until it is answered, or the daemon stays away too long. */
static int exchange_again(struct client *c, const struct client_request *r, const struct taker *t,
                          struct err *err) {
    struct client_search search = {.start = CLIENT_START};
    bool answered;
    while (exchange(c, r, t, &answered, err) < 0)
        if (answered || client_await(c, &search, err) < 0)
            return -1;
    return 0;
}

static int parse_answer(const struct buf *text, json_t **ret, struct err *err) {
    json_error_t why;
    if (!ret)
        return 0;
    *ret = json_loadb(text->data ? text->data : "{}", text->data ? text->len : 2, 0, &why);
    return *ret ? 0 : err_set(err, ERR_INTERNAL, "the daemon's answer is not JSON: %s", why.text);
}

int client_call(struct client *c, const struct client_request *r, json_t **ret, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(CLIENT_BODY_MAX);
    const struct taker t = {.take = take_text, .text = &text};
    bool answered;
    return exchange(c, r, &t, &answered, err) < 0 ? -1 : parse_answer(&text, ret, err);
}

int client_call_again(struct client *c, const struct client_request *r, json_t **ret,
                      struct err *err) {
    struct buf text DEFER(buf_done) = BUF(CLIENT_BODY_MAX);
    const struct taker t = {.take = take_text, .text = &text};
    return exchange_again(c, r, &t, err) < 0 ? -1 : parse_answer(&text, ret, err);
}

int client_fetch_again(struct client *c, const char *target, int fd, struct err *err) {
    const struct client_request r = {.method = "GET", .target = target, .accept = "*/*"};
    const struct taker t = {.take = take_file, .fd = fd};
    return exchange_again(c, &r, &t, err);
}

int client_target(char to[CLIENT_TARGET_SIZE], struct err *err, const char *format, ...) {
    struct buf text DEFER(buf_done) = BUF(CLIENT_TARGET_SIZE - 1);
    va_list words;
    bool fits = true;
    va_start(words, format);
    for (const char *p = format; *p && fits; p++) {
        if (p[0] == '%' && p[1] == 's') {
            const char *word = va_arg(words, const char *);
            fits = http_put_encoded(&text, (struct http_text){word, strlen(word)});
            p++;
        } else {
            fits = buf_add(&text, p, 1);
        }
    }
    va_end(words);
    if (!fits)
        return err_set(err, ERR_LIMIT, "a name, path or option of the request is too long");
    memcpy(to, text.data, text.len + 1);
    return 0;
}

int client_query(char target[CLIENT_TARGET_SIZE], const char *name, const char *value,
                 struct err *err) {
    char more[CLIENT_TARGET_SIZE];
    size_t n = strlen(target);
    if (!value)
        return 0;
    if (client_target(more, err, strchr(target, '?') ? "&%s=%s" : "?%s=%s", name, value) < 0)
        return -1;
    if (n + strlen(more) >= CLIENT_TARGET_SIZE)
        return err_set(err, ERR_LIMIT, "a name, path or option of the request is too long");
    memcpy(target + n, more, strlen(more) + 1);
    return 0;
}

const char *client_text(const json_t *object, const char *name) {
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

long long client_number(const json_t *object, const char *name) {
    return json_integer_value(json_object_get(object, name));
}
