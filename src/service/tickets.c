#include "service/tickets.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/hex.h"
#include "base/sha256.h"
#include "service/files.h"
#include "service/state.h"
#include "service/taint.h"

static const char upload_source[] = "upload by URL";

static void ticket_hash(const char *text, char ret[TICKET_SIZE]) {
    struct sha256 hash;
    sha256_init(&hash);
    sha256_add(&hash, text, strlen(text));
    sha256_end_hex(&hash, ret);
}

void service_ticket_unref(struct ticket *t) {
    if (--t->refs)
        return;
    free(t->path);
    free(t->user);
    free(t);
}

static void ticket_remove(struct service *s, struct ticket *t) {
    map_take(&s->tickets, t->hash);
    service_ticket_unref(t);
}

void tickets_free(struct service *s) {
    struct ticket *t;
    for (size_t at = 0; (t = map_next(&s->tickets, &at));)
        service_ticket_unref(t);
    map_done(&s->tickets);
}

static bool is_over(const struct service *s, const struct ticket *t) {
    return t->spent || loop_now_ms(s->loop) >= t->expires_ms || !map_get(&s->machines, t->machine);
}

/* Removes tickets that are over and counts the others. */
static void tickets_count(struct service *s, const char *owner, const char *machine,
                          size_t *ret_owner, size_t *ret_machine) {
    struct ticket *t;
    *ret_owner = *ret_machine = 0;
    for (size_t at = 0; (t = map_next(&s->tickets, &at));) {
        if (is_over(s, t)) {
            ticket_remove(s, t);
            continue;
        }
        *ret_owner += strcmp(t->who.owner, owner) == 0;
        *ret_machine += strcmp(t->machine, machine) == 0;
    }
}

static int tickets_room(struct service *s, const char *owner, const char *machine,
                        struct err *err) {
    size_t of_owner, of_machine;
    tickets_count(s, owner, machine, &of_owner, &of_machine);
    if (of_machine >= TICKETS_PER_MACHINE)
        err_set(err, ERR_LIMIT, "machine '%s' has %d open tickets for transfers already", machine,
                TICKETS_PER_MACHINE);
    else if (of_owner >= TICKETS_PER_OWNER)
        err_set(err, ERR_LIMIT, "the owner of machine '%s' has %d open tickets already", machine,
                TICKETS_PER_OWNER);
    else
        return 0;
    return err_remedy(err, "use them, or wait until they expire (%d minutes)", TICKET_LIFE_S / 60);
}

/* The record names the ticket by a part of its hash, from which the ticket cannot be found. */
static void ticket_detail(const struct ticket *t, struct buf *text) {
    struct jot j = JOT(text);
    char name[13];
    snprintf(name, sizeof(name), "%.12s", t->hash);
    jot_object(&j, NULL);
    jot_string(&j, "way", t->way == TICKET_UPLOAD ? "upload" : "download");
    jot_string(&j, "path", t->path);
    jot_string(&j, "ticket", name);
    jot_end(&j, '}');
    if (j.failed)
        buf_done(text);
}

static int ticket_note(struct service *s, const struct caller *who, const struct ticket *t,
                       const char *verb, uint64_t *ret_intent, struct err *err) {
    struct buf detail DEFER(buf_done) = BUF(JOURNAL_DETAIL_MAX);
    ticket_detail(t, &detail);
    const struct journal_record what = {.verb = verb, .machine = t->machine, .detail = detail.data};
    return note_intent(s, who, &what, ret_intent, err);
}

static struct ticket *ticket_make(struct service *s, const struct caller *who,
                                  const struct ticket_request *r, const struct live *l,
                                  const char *text) {
    struct ticket *t = xnew(struct ticket);
    *t = (struct ticket){.path = xstrdup(r->path),
                         .user = r->user ? xstrdup(r->user) : NULL,
                         .way = r->way,
                         .who = *who,
                         .expires_ms = loop_now_ms(s->loop) + r->life_s * 1000,
                         .was_tainted = taint_of(l)[0] != '\0',
                         .refs = 1};
    snprintf(t->machine, sizeof(t->machine), "%s", l->row.id);
    snprintf(t->talk, sizeof(t->talk), "%s", r->talk);
    ticket_hash(text, t->hash);
    return t;
}

int service_ticket_new(struct service *s, const struct caller *who, const struct ticket_request *r,
                       char ret[TICKET_SIZE], struct err *err) {
    uint8_t random[SHA256_BYTES];
    uint32_t uid;
    uint64_t intent;
    if (r->path[0] != '/')
        return err_set(err, ERR_INVALID, "path '%.100s' must be absolute", r->path);
    struct live *l = allow(who, r->way == TICKET_UPLOAD ? SCOPE_RUN : SCOPE_READ, err) < 0 ||
                             file_user(r->user, &uid, err) < 0
                         ? NULL
                         : live_find(s, who, r->machine, LIVE_ANY, err);
    if (!l || tickets_room(s, who->owner, l->row.id, err) < 0)
        return -1;
    while (getrandom(random, sizeof(random), 0) != sizeof(random))
        continue; /* interrupted before the kernel's generator was ready */
    hex_put(random, sizeof(random), ret);
    struct ticket *t = ticket_make(s, who, r, l, ret);
    if (ticket_note(s, who, t, "transfer.new", &intent, err) < 0) {
        service_ticket_unref(t);
        return -1;
    }
    map_put(&s->tickets, t->hash, t);
    note_result(s, who, &(struct journal_record){.verb = "transfer.new", .machine = t->machine},
                intent, NULL);
    return 0;
}

struct ticket *service_ticket_find(struct service *s, const char *text, const struct caller *by,
                                   struct err *err) {
    char hash[TICKET_SIZE];
    ticket_hash(text, hash);
    struct ticket *t = map_get(&s->tickets, hash);
    if (t && is_over(s, t)) {
        ticket_remove(s, t);
        t = NULL;
    }
    if (!t || (by && strcmp(by->owner, t->who.owner) != 0) || !service_caller_stands(s, &t->who)) {
        err_set(err, ERR_NOT_FOUND, "this ticket does not exist, has expired, or was used");
        err_remedy(err, "ask for another one with the tool transfer");
        return NULL;
    }
    t->refs++;
    return t;
}

/*
 * Nobody knows where the data of an upload comes from, unless its sender proves to be the owner.
 * The owner's client may have got it from the conversation that asked for the ticket.
 */
static int taint_upload(struct service *s, const struct ticket *t, struct live *l,
                        const struct caller *by, struct err *err) {
    char saw[TAINT_SOURCE_SIZE] = "";
    if (!by)
        snprintf(saw, sizeof(saw), "%s", upload_source);
    else if (t->talk[0])
        service_taint_talk(s, &t->who, t->talk, saw);
    return taint_join(l, TAINT_UPLOAD, saw, err);
}

/* The conversation knows the taint of the machine as it was when the ticket was made. */
static int check_download(const struct ticket *t, const struct live *l, struct err *err) {
    if (t->was_tainted || !taint_of(l)[0])
        return 0;
    err_set(err, ERR_DENIED, "machine '%s' has read untrusted data since the ticket was made",
            t->machine);
    return err_remedy(err, "ask for another ticket with the tool transfer");
}

int service_ticket_begin(struct service *s, struct ticket *t, const struct caller *by,
                         const char *client, struct err *err) {
    bool is_upload = t->way == TICKET_UPLOAD;
    struct caller who = t->who;
    if (t->busy)
        return err_set(err, ERR_BUSY, "this ticket is in use by another request");
    if (t->requests >= TICKET_REQUESTS)
        return err_set(err, ERR_LIMIT, "this ticket was used for %d requests", TICKET_REQUESTS);
    snprintf(who.client, sizeof(who.client), "%s", client);
    struct live *l = live_find(s, &who, t->machine, LIVE_ANY, err);
    if (!l || (is_upload ? taint_upload(s, t, l, by, err) : check_download(t, l, err)) < 0 ||
        ticket_note(s, &who, t, is_upload ? "transfer.upload" : "transfer.download", &t->intent,
                    err) < 0)
        return -1;
    t->requests++;
    t->busy = true;
    return 0;
}

void service_ticket_end(struct service *s, struct ticket *t, bool whole, uint64_t bytes) {
    const struct journal_record what = {.verb = t->way == TICKET_UPLOAD ? "transfer.upload"
                                                                        : "transfer.download",
                                        .machine = t->machine,
                                        .bytes = (int64_t)bytes,
                                        .reason = whole ? NULL : "not complete"};
    note_result(s, &t->who, &what, t->intent, NULL);
    t->busy = false;
    if (whole && !t->spent) {
        t->spent = true;
        if (map_get(&s->tickets, t->hash) == t)
            ticket_remove(s, t);
    }
}

int service_ticket_same(struct service *s, struct ticket *t, uint64_t size, uint64_t mtime_ns,
                        struct err *err) {
    const struct live *l = map_get(&s->machines, t->machine);
    if (l && check_download(t, l, err) < 0)
        return -1;
    if (!t->has_begun) {
        t->has_begun = true;
        t->size = size;
        t->mtime_ns = mtime_ns;
    }
    if (t->size == size && t->mtime_ns == mtime_ns)
        return 0;
    err_set(err, ERR_EXISTS, "file '%.200s' has changed since its download began", t->path);
    return err_remedy(err, "ask for another ticket and start again");
}

void service_set_address(struct service *s, const char *url, const char *socket) {
    snprintf(s->address, sizeof(s->address), "%s", url);
    snprintf(s->socket, sizeof(s->socket), "%s", socket);
}

const char *service_address(const struct service *s) {
    return s->address;
}

const char *service_socket(const struct service *s) {
    return s->socket;
}
