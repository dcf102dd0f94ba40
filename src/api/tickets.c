/*
 * Transfers by ticket (service/tickets.h): GET, HEAD and PUT of one file, without a token.
 *
 * After the ticket was found, the call acts with the rights of the caller that asked for it. HEAD
 * reads only the file's size and does not use the ticket.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "api/file_words.h"
#include "api/inner.h"
#include "api/route.h"
#include "service/files.h"
#include "service/tickets.h"

static void ticket_over(struct call *c) {
    service_ticket_end(c->service, c->ticket, c->whole, c->moved);
}

/* False: the call is HEAD, which does not use the ticket. */
static bool is_transfer(const struct call *c) {
    return c->on_end == ticket_over;
}

static void refuse_way(struct call *c) {
    bool is_upload = c->ticket->way == TICKET_UPLOAD;
    struct err err;
    err_set(&err, ERR_DENIED, "this ticket is for %s", is_upload ? "an upload" : "a download");
    err_remedy(&err, "use %s", is_upload ? "PUT" : "GET");
    call_error(c, &err);
}

/* Finds the ticket of the call. by: NULL unless the caller was authenticated. */
static int ticket_take(struct call *c, enum ticket_way way, struct caller *by, bool *ret_known) {
    struct err err;
    int known = api_caller(c, by, &err);
    if (known < 0) {
        call_error_more(c, 401, &err, HTTP_FIELDS({"WWW-Authenticate", "Bearer"}));
        return -1;
    }
    c->ticket = service_ticket_find(c->service, c->params[0], known ? by : NULL, &err);
    if (!c->ticket) {
        call_error(c, &err);
        return -1;
    }
    *ret_known = known;
    c->who = c->ticket->who;
    snprintf(c->who.client, sizeof(c->who.client), "%s", c->http->peer->text);
    snprintf(c->params[0], sizeof(c->params[0]), "%s", c->ticket->machine);
    if (c->ticket->way == way)
        return 0;
    refuse_way(c);
    return -1;
}

static int ticket_begin(struct call *c, const struct caller *by) {
    struct err err;
    if (service_ticket_begin(c->service, c->ticket, by, c->who.client, &err) < 0) {
        call_error(c, &err);
        return -1;
    }
    c->on_end = ticket_over;
    return 0;
}

static void ticket_path(const struct call *c, struct msg_path *ret) {
    struct err err;
    *ret = (struct msg_path){.path = {.s = c->ticket->path, .n = (uint32_t)strlen(c->ticket->path)},
                             .flags = MSG_NOFOLLOW};
    if (file_user(c->ticket->user, &ret->uid, &err) < 0) /* cannot fail: checked when made */
        ret->uid = 65534;
    ret->gid = ret->uid;
}

/* ---- download ---- */

static void answer_head(struct call *c, uint64_t size) {
    c->length = (int64_t)size;
    call_begin(c, 200, "application/octet-stream", HTTP_FIELDS({"Accept-Ranges", "bytes"}));
    call_end(c);
}

static int check_entry(struct call *c, const struct frame *frame, struct msg_entry *ret,
                       struct err *err) {
    if (msg_get_entry(frame, ret) < 0)
        return err_set(err, ERR_INTERNAL,
                       "the guest process of the machine sent a malformed reply");
    if (!S_ISREG(ret->mode))
        return err_set(err, ERR_INVALID, "path '%.200s' is not a regular file", c->ticket->path);
    return is_transfer(c)
               ? service_ticket_same(c->service, c->ticket, ret->size, ret->mtime_ns, err)
               : 0;
}

static void download_looked(void *arg, const struct frame *frame, const struct err *err) {
    struct call *c = arg;
    struct msg_entry entry;
    struct msg_path m;
    struct err bad;
    if (call_is_gone(c)) {
        call_abandon(c);
        return;
    }
    if (!err && check_entry(c, frame, &entry, &bad) < 0)
        err = &bad;
    if (err) {
        call_error(c, err);
    } else if (!is_transfer(c)) {
        answer_head(c, entry.size);
    } else {
        ticket_path(c, &m);
        file_download(c, &m);
    }
}

static void download_go(void *arg, const struct err *err) {
    struct call *c = arg;
    struct msg_path m;
    if (err) {
        call_error(c, err);
        return;
    }
    if (service_use(c->service, &c->who, c->params[0], true, download_go, c, c->used))
        return;
    ticket_path(c, &m);
    service_file(c->service, &c->who, c->params[0], MSG_STAT, &m, m.path.s, download_looked, c);
}

void api_ticket_read(struct call *c) {
    struct caller by;
    bool known;
    if (ticket_take(c, TICKET_DOWNLOAD, &by, &known) < 0)
        return;
    if (http_text_is(c->http->head->method, "HEAD") || ticket_begin(c, known ? &by : NULL) == 0)
        download_go(c, NULL);
}

/* ---- upload ---- */

static void upload_go(void *arg, const struct err *err) {
    struct call *c = arg;
    if (call_is_gone(c)) {
        call_abandon(c);
    } else if (err) {
        call_error(c, err);
    } else if (service_use(c->service, &c->who, c->params[0], true, upload_go, c, c->used)) {
        http_hold(c->http);
    } else {
        const char *const argv[] = {"put", c->ticket->path, "any", "644", "sync", "nofollow", NULL};
        file_upload(c, argv, c->ticket->user);
    }
}

void api_ticket_write(struct call *c) {
    struct caller by;
    bool known;
    if (ticket_take(c, TICKET_UPLOAD, &by, &known) == 0 && ticket_begin(c, known ? &by : NULL) == 0)
        upload_go(c, NULL);
}
