/*
 * The keys of the console: one-time links, sessions of browsers and tickets.
 *
 * A link is made for a caller at the unix socket and can be opened once within two minutes. Opening
 * it makes a session, which acts with the rights of that caller. A ticket lets its holder send one
 * GET request of a session within 30 seconds: the one whose target it was made for. Only hashes are
 * kept. Sessions are also in a file of the run directory, so they outlive the daemon, but not the
 * host's uptime.
 */
#pragma once

#include "service/console/keys.h"
#include "service/service.h"

enum {
    CONSOLE_LINK_S = 120,
    CONSOLE_TICKET_S = 30,
    CONSOLE_LIFE_S = 12 * 3600,
    CONSOLE_TARGET_MAX = 8192,
    CONSOLE_PORT = 7070,
};

/* Tokens of sessions begin with this text. */
#define CONSOLE_PREFIX "console-"
enum { CONSOLE_TOKEN_SIZE = sizeof(CONSOLE_PREFIX) - 1 + CONSOLE_KEY_SIZE };

struct console;

/* `run` is the run directory. A file that cannot be read means that there are no sessions. */
struct console *console_new(const char *run);
void console_free(struct console *k);

/* `who` must be at the unix socket. own_user: only a process of this user on this host opens it. */
int service_console_link(struct service *s, const struct caller *who, bool own_user,
                         char ret[CONSOLE_KEY_SIZE], struct err *err);
/* True if service_console_open() needs the user of the process that opens the link. */
bool service_console_needs_user(struct service *s, const char *link);
/* `user` is ignored unless the link needs it. A link that another user tries stays. */
int service_console_open(struct service *s, const char *link, uid_t user, const char *client,
                         char ret_token[CONSOLE_TOKEN_SIZE], struct caller *ret, struct err *err);
/* Ends the session of the caller and its tickets. */
int service_console_close(struct service *s, const struct caller *who, struct err *err);

/* Whether the text looks like a token of a session. */
bool console_is_token(const char *text, size_t n);
int service_caller_by_console(struct service *s, const char *token, size_t n, const char *client,
                              struct caller *ret, struct err *err);
/* True if the session of the caller is still open. */
bool console_stands(const struct console *k, const struct caller *who);
int64_t service_console_expires_ms(const struct service *s, const struct caller *who);

/* The directory of the daemon's other programs and files. */
const char *service_libexec(const struct service *s);

/* `target` is the path and query of a GET request. */
int service_console_ticket(struct service *s, const struct caller *who, const char *target,
                           char ret[CONSOLE_KEY_SIZE], struct err *err);
/* Takes the ticket, whatever the outcome: a ticket that was shown to the wrong path is spent. */
int service_caller_by_ticket(struct service *s, const char *ticket, const char *target, size_t n,
                             const char *client, struct caller *ret, struct err *err);

/* The port on which an earlier daemon served the console; 0: none. */
uint16_t service_console_port(const struct service *s);
int service_console_set_port(struct service *s, uint16_t port, struct err *err);
