#include "service/console/console.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/sha256.h"
#include "service/state.h"

enum { FILE_MAX = 256 << 10 };

struct console {
    char path[PLACE_SIZE + 16];
    struct keys links, tickets; /* times are of the monotonic clock */
    struct keys sessions;       /* times are of the wall clock */
    uint16_t port;
};

static void key_random(char ret[CONSOLE_KEY_SIZE]) {
    uint8_t random[SHA256_BYTES];
    while (getrandom(random, sizeof(random), 0) != sizeof(random))
        continue; /* interrupted before the kernel's generator was ready */
    hex_put(random, sizeof(random), ret);
}

static struct key key_made(const struct keys *k, const struct caller *who, int64_t now_ms) {
    return (struct key){.who = *who, .expires_ms = now_ms + k->life_s * 1000, .used_ms = now_ms};
}

/* ---- the file ---- */

static json_t *session_json(const struct key *k) {
    return json_pack("{s:s, s:s, s:s, s:I, s:i, s:I}", "hash", k->hash, "owner", k->who.owner,
                     "name", k->who.console, "uid", (json_int_t)k->who.uid, "scopes",
                     (int)k->who.scopes, "expires_ms", (json_int_t)k->expires_ms);
}

static int console_write(const struct console *k, struct err *err) {
    char next[sizeof(k->path) + 8];
    json_t *root DEFER(json_decrefp) = json_pack("{s:i, s:[]}", "port", k->port, "sessions");
    for (size_t i = 0; i < k->sessions.max; i++)
        if (k->sessions.list[i].hash[0])
            json_array_append_new(json_object_get(root, "sessions"),
                                  session_json(&k->sessions.list[i]));
    char *text DEFER_FREE = json_dumps(root, JSON_COMPACT);
    snprintf(next, sizeof(next), "%s.new", k->path);
    int fd DEFER_CLOSE = open(next, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (!text || fd < 0 || write_all(fd, text, strlen(text)) < 0 || rename(next, k->path) < 0)
        return err_sys(err, "write file '%s'", k->path);
    return 0;
}

static void session_read(struct key *k, const json_t *row, int64_t now_ms) {
    const char *hash = json_string_value(json_object_get(row, "hash"));
    const char *owner = json_string_value(json_object_get(row, "owner"));
    const char *name = json_string_value(json_object_get(row, "name"));
    int64_t expires_ms = json_integer_value(json_object_get(row, "expires_ms"));
    if (!hash || !hex_is(hash, CONSOLE_KEY_SIZE - 1) || !owner ||
        strlen(owner) >= sizeof(k->who.owner) || !name || strlen(name) >= sizeof(k->who.console) ||
        expires_ms <= now_ms || expires_ms > now_ms + CONSOLE_LIFE_S * 1000LL)
        return;
    *k = (struct key){.expires_ms = expires_ms,
                      .used_ms = expires_ms - CONSOLE_LIFE_S * 1000LL,
                      .who = {.local = true}};
    k->who.uid = (uid_t)json_integer_value(json_object_get(row, "uid"));
    k->who.scopes = (uint32_t)json_integer_value(json_object_get(row, "scopes"));
    snprintf(k->hash, sizeof(k->hash), "%s", hash);
    snprintf(k->who.owner, sizeof(k->who.owner), "%s", owner);
    snprintf(k->who.console, sizeof(k->who.console), "%s", name);
}

static void console_read(struct console *k) {
    char *text DEFER_FREE = malloc(FILE_MAX);
    json_t *root DEFER(json_decrefp) = NULL;
    ssize_t n = text ? read_file_at(AT_FDCWD, k->path, text, FILE_MAX) : -ENOMEM;
    json_t *row;
    size_t i;
    if (n < 0)
        return;
    root = json_loadb(text, (size_t)n, 0, NULL);
    json_int_t port = json_integer_value(json_object_get(root, "port"));
    k->port = port > 0 && port <= UINT16_MAX ? (uint16_t)port : 0;
    json_array_foreach(json_object_get(root, "sessions"), i, row) {
        if (i < k->sessions.max)
            session_read(&k->sessions.list[i], row, wall_ms());
    }
}

struct console *console_new(const char *run) {
    struct console *k = xnew(struct console);
    *k = (struct console){.links = {"links", 256, 16, CONSOLE_LINK_S, NULL},
                          .sessions = {"sessions", 512, 16, CONSOLE_LIFE_S, NULL},
                          .tickets = {"tickets", 1024, 64, CONSOLE_TICKET_S, NULL}};
    keys_init(&k->links);
    keys_init(&k->sessions);
    keys_init(&k->tickets);
    snprintf(k->path, sizeof(k->path), "%s/console.json", run);
    console_read(k);
    return k;
}

void console_free(struct console *k) {
    if (!k)
        return;
    keys_done(&k->links);
    keys_done(&k->sessions);
    keys_done(&k->tickets);
    free(k);
}

const char *service_libexec(const struct service *s) {
    return s->place->libexec;
}

uint16_t service_console_port(const struct service *s) {
    return s->console->port;
}

int service_console_set_port(struct service *s, uint16_t port, struct err *err) {
    s->console->port = port;
    return console_write(s->console, err);
}

/* ---- links ---- */

static int console_note(struct service *s, const struct caller *who, const char *verb,
                        uint64_t *ret_intent, struct err *err) {
    return note_intent(s, who, &(struct journal_record){.verb = verb}, ret_intent, err);
}

static void console_noted(struct service *s, const struct caller *who, const char *verb,
                          uint64_t intent, const struct err *failed) {
    note_result(s, who, &(struct journal_record){.verb = verb}, intent, failed);
}

int service_console_link(struct service *s, const struct caller *who, bool own_user,
                         char ret[CONSOLE_KEY_SIZE], struct err *err) {
    struct console *k = s->console;
    int64_t now_ms = (int64_t)monotonic_ms();
    uint64_t intent;
    if (!who->local || who->console[0]) {
        err_set(err, ERR_DENIED,
                "only the owner at the unix socket of this host opens the console");
        return err_remedy(err, "run carrel console on the host of the daemon");
    }
    struct key *slot = keys_slot(&k->links, who->owner, now_ms, err);
    if (!slot || console_note(s, who, "console.link", &intent, err) < 0)
        return -1;
    key_random(ret);
    *slot = key_made(&k->links, who, now_ms);
    slot->own_user = own_user;
    key_hash(ret, CONSOLE_KEY_SIZE - 1, slot->hash);
    console_noted(s, who, "console.link", intent, NULL);
    return 0;
}

static struct key *link_find(struct service *s, const char *link) {
    return keys_find(&s->console->links, link, strlen(link), (int64_t)monotonic_ms());
}

bool service_console_needs_user(struct service *s, const char *link) {
    const struct key *found = link_find(s, link);
    return found && found->own_user;
}

static int link_refused(struct err *err) {
    err_set(err, ERR_DENIED,
            "this link opens only in a browser of the user who ran carrel console, on this host");
    return err_remedy(err, "run carrel console --print for a link that opens anywhere");
}

static int link_unknown(struct err *err) {
    err_set(err, ERR_DENIED, "this link was used already, has expired, or is not valid");
    return err_remedy(err, "run carrel console for another one");
}

/* ---- sessions ---- */

static int session_make(struct service *s, const struct caller *who,
                        char ret_token[CONSOLE_TOKEN_SIZE], struct caller *ret, struct err *err) {
    struct console *k = s->console;
    char key[CONSOLE_KEY_SIZE];
    struct key *slot = keys_slot(&k->sessions, who->owner, wall_ms(), err);
    if (!slot)
        return -1;
    key_random(key);
    *slot = key_made(&k->sessions, who, wall_ms());
    snprintf(ret_token, CONSOLE_TOKEN_SIZE, CONSOLE_PREFIX "%s", key);
    explicit_bzero(key, sizeof(key));
    key_hash(ret_token, CONSOLE_TOKEN_SIZE - 1, slot->hash);
    snprintf(slot->who.console, sizeof(slot->who.console), "%.12s", slot->hash);
    if (console_write(k, err) < 0) {
        explicit_bzero(slot, sizeof(*slot));
        return -1;
    }
    *ret = slot->who;
    return 0;
}

int service_console_open(struct service *s, const char *link, uid_t user, const char *client,
                         char ret_token[CONSOLE_TOKEN_SIZE], struct caller *ret, struct err *err) {
    uint64_t intent;
    struct key *found = link_find(s, link);
    if (!found)
        return link_unknown(err);
    if (found->own_user && found->who.uid != user)
        return link_refused(err);
    struct caller who = found->who;
    explicit_bzero(found, sizeof(*found));
    snprintf(who.client, sizeof(who.client), "%s", client);
    if (console_note(s, &who, "console.open", &intent, err) < 0)
        return -1;
    int failed = session_make(s, &who, ret_token, ret, err);
    console_noted(s, &who, "console.open", intent, failed < 0 ? err : NULL);
    return failed;
}

/* The session of a caller, by its name. */
static struct key *session_of(const struct console *k, const struct caller *who) {
    for (size_t i = 0; i < k->sessions.max; i++) {
        struct key *found = &k->sessions.list[i];
        if (found->hash[0] && strcmp(found->who.console, who->console) == 0 &&
            wall_ms() < found->expires_ms)
            return found;
    }
    return NULL;
}

bool console_stands(const struct console *k, const struct caller *who) {
    return session_of(k, who) != NULL;
}

int64_t service_console_expires_ms(const struct service *s, const struct caller *who) {
    const struct key *found = session_of(s->console, who);
    return found ? found->expires_ms : 0;
}

int service_console_close(struct service *s, const struct caller *who, struct err *err) {
    struct console *k = s->console;
    struct key *found = who->console[0] ? session_of(k, who) : NULL;
    uint64_t intent;
    if (!found)
        return err_set(err, ERR_INVALID, "only a page of the console closes its session");
    if (console_note(s, who, "console.close", &intent, err) < 0)
        return -1;
    for (size_t i = 0; i < k->tickets.max; i++)
        if (strcmp(k->tickets.list[i].who.console, who->console) == 0)
            explicit_bzero(&k->tickets.list[i], sizeof(*k->tickets.list));
    explicit_bzero(found, sizeof(*found));
    int failed = console_write(k, err);
    console_noted(s, who, "console.close", intent, failed < 0 ? err : NULL);
    return failed;
}

bool console_is_token(const char *text, size_t n) {
    return n >= sizeof(CONSOLE_PREFIX) - 1 &&
           strncmp(text, CONSOLE_PREFIX, sizeof(CONSOLE_PREFIX) - 1) == 0;
}

int service_caller_by_console(struct service *s, const char *token, size_t n, const char *client,
                              struct caller *ret, struct err *err) {
    struct key *found = keys_find(&s->console->sessions, token, n, wall_ms());
    if (!found) {
        err_set(err, ERR_DENIED, "this page of the console has expired or was closed");
        return err_remedy(err, "run carrel console to open another one");
    }
    found->used_ms = wall_ms();
    *ret = found->who;
    snprintf(ret->client, sizeof(ret->client), "console %s", client);
    return 0;
}

/* ---- tickets ---- */

int service_console_ticket(struct service *s, const struct caller *who, const char *target,
                           char ret[CONSOLE_KEY_SIZE], struct err *err) {
    struct console *k = s->console;
    int64_t now_ms = (int64_t)monotonic_ms();
    size_t n = strlen(target);
    if (!who->console[0])
        return err_set(err, ERR_INVALID, "only a page of the console needs tickets");
    if (strncmp(target, "/v1/", 4) != 0 || n > CONSOLE_TARGET_MAX)
        return err_set(err, ERR_INVALID, "a ticket is for a path below /v1/");
    struct key *slot = keys_slot(&k->tickets, who->owner, now_ms, err);
    if (!slot)
        return -1;
    key_random(ret);
    *slot = key_made(&k->tickets, who, now_ms);
    key_hash(ret, CONSOLE_KEY_SIZE - 1, slot->hash);
    key_hash(target, n, slot->target);
    return 0;
}

int service_caller_by_ticket(struct service *s, const char *ticket, const char *target, size_t n,
                             const char *client, struct caller *ret, struct err *err) {
    struct console *k = s->console;
    char hash[CONSOLE_KEY_SIZE];
    struct key *found = keys_find(&k->tickets, ticket, strlen(ticket), (int64_t)monotonic_ms());
    key_hash(target, n, hash);
    bool fits = found && strcmp(found->target, hash) == 0 && console_stands(k, &found->who);
    if (fits)
        *ret = found->who;
    if (found)
        explicit_bzero(found, sizeof(*found));
    if (!fits)
        return err_set(err, ERR_DENIED,
                       "this ticket was used already, has expired, or is for another path");
    snprintf(ret->client, sizeof(ret->client), "console %s", client);
    return 0;
}
