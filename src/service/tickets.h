/*
 * Tickets: each lets its holder upload or download one file of one machine, once, for ten minutes.
 *
 * Only the hash of a ticket is kept, in memory: a restart of the daemon ends all tickets. A ticket
 * is spent when its transfer is complete. One that failed or was cut may be repeated.
 */
#pragma once

#include "service/service.h"

enum ticket_way { TICKET_DOWNLOAD, TICKET_UPLOAD };

enum {
    TICKET_SIZE = 65, /* with the NUL */
    TICKET_LIFE_S = 600,
    TICKETS_PER_MACHINE = 64,
    TICKETS_PER_OWNER = 256,
    TICKET_REQUESTS = 100, /* requests for one ticket, so that it cannot be repeated for ever */
    TICKET_TALK_SIZE = 64,
};

struct ticket_request {
    const char *machine;
    const char *path; /* absolute */
    const char *user; /* as for file_user() */
    enum ticket_way way;
    uint64_t life_s;
    const char *talk; /* the conversation that asks (taint.h), or "" */
};

/* A ticket in use. Read-only outside tickets.c. */
struct ticket {
    char hash[TICKET_SIZE]; /* key in the table of tickets */
    char machine[ID_SIZE];
    char *path, *user; /* user NULL: the user of the machine */
    enum ticket_way way;
    struct caller who; /* the caller that asked for it, with its rights then */
    char talk[TICKET_TALK_SIZE];
    uint64_t expires_ms;
    uint64_t size, mtime_ns; /* the file when its download began */
    bool has_begun;
    uint64_t intent;
    unsigned requests;
    uint32_t refs;
    bool busy, spent;
    bool was_tainted; /* the machine was tainted when the ticket was made */
};

/* Checks the rights and writes the journal. ret: the ticket, which is shown only this once. */
int service_ticket_new(struct service *s, const struct caller *who, const struct ticket_request *r,
                       char ret[TICKET_SIZE], struct err *err);

/*
 * Finds a ticket. by: the authenticated caller, who must have the owner of the ticket; NULL: nobody
 * was authenticated, which the ticket allows. Unknown, expired, spent and foreign tickets give the
 * same error. The caller calls service_ticket_unref().
 */
struct ticket *service_ticket_find(struct service *s, const char *text, const struct caller *by,
                                   struct err *err);
void service_ticket_unref(struct ticket *t);

/*
 * Begins a transfer: taints the machine if necessary and writes the journal. It fails while the
 * ticket is in use. Call service_ticket_end() afterwards. client: the peer, for the journal.
 */
int service_ticket_begin(struct service *s, struct ticket *t, const struct caller *by,
                         const char *client, struct err *err);
/* whole: the transfer is complete, so the ticket is spent. bytes: how much was transferred. */
void service_ticket_end(struct service *s, struct ticket *t, bool whole, uint64_t bytes);
/*
 * Call it right before a file is read: the machine may have been woken and have read untrusted data
 * since service_ticket_begin(). Compares the file with the one whose download began. The first call
 * stores its size and time.
 */
int service_ticket_same(struct service *s, struct ticket *t, uint64_t size, uint64_t mtime_ns,
                        struct err *err);

/* The address at which clients reach the API. url: "http://HOST:PORT", or "" without one. */
void service_set_address(struct service *s, const char *url, const char *socket);
const char *service_address(const struct service *s);
const char *service_socket(const struct service *s);

/* For service.c. */
void tickets_free(struct service *s);
