/* Change sets: freeze the work of a machine, read it, and record in the journal that it was
 * shipped. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/bodies.h"
#include "api/route.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "service/review/changesets.h"

enum { PIECE = 256 << 10 };

static void answer_frozen(void *arg, const struct changeset_view *view, const struct err *err) {
    struct call *c = arg;
    if (err)
        call_error(c, err);
    else
        call_view(c, c->route->status, &changeset_schema, view);
}

void api_freeze(struct call *c) {
    service_freeze(c->service, &c->who, c->params[0], c->request, answer_frozen, c);
}

/* ---- list ---- */

enum { LIST_BYTES = CALL_BODY_MAX - (1 << 20) }; /* room for one more change set */

struct set_list {
    struct buf *text;
    struct jot json;
};

static bool list_add_set(void *arg, const struct changeset_view *view) {
    struct set_list *l = arg;
    if (l->text->len > LIST_BYTES)
        return false;
    schema_write(&changeset_schema, &l->json, NULL, view);
    return true;
}

void api_changeset_list(struct call *c) {
    struct buf text DEFER(buf_done) = BUF(CALL_BODY_MAX);
    struct set_list l = {&text, JOT(&text)};
    char next[CURSOR_SIZE];
    struct err err;
    struct changesets_request r = {
        .states = call_query(c, "state"),
        .machine = call_query(c, "machine"),
        .cursor = call_query(c, "cursor"),
        .all_owners = call_flag(c, "all"),
    };
    jot_object(&l.json, NULL);
    jot_array(&l.json, "changesets");
    if (call_number(c, "limit", 1, STORE_PAGE_MAX, &r.limit, &err) < 0 ||
        service_changesets(c->service, &c->who, &r, list_add_set, &l, next, &err) < 0) {
        call_error(c, &err);
        return;
    }
    jot_end(&l.json, ']');
    if (next[0])
        jot_string(&l.json, "next", next);
    jot_end(&l.json, '}');
    call_json(c, 200, &l.json, &text);
}

/* ---- show ---- */

static void answer_shown(void *arg, const struct changeset_view *view, int fd,
                         const struct err *err) {
    answer_frozen(arg, view, err);
    if (fd >= 0)
        close(fd);
}

void api_changeset_show(struct call *c) {
    service_changeset_open(c->service, &c->who, c->params[0], answer_shown, c);
}

/* ---- archive ---- */

struct sending {
    struct call *call;
    int fd;
    uint64_t left; /* bytes of Content-Length not sent yet; a file that grew is cut there */
};

static void sending_free(struct sending *s) {
    close_fd(&s->fd);
    free(s);
}

static void go_on(struct sending *s) {
    struct call *c = s->call;
    char *bytes DEFER_FREE = xmalloc(PIECE);
    for (ssize_t n; (n = read(s->fd, bytes, s->left < PIECE ? s->left : PIECE)) != 0;) {
        if (n < 0 && errno != EINTR)
            break; /* the response is too short; the client notices it by the hash */
        s->left -= n > 0 ? (uint64_t)n : 0;
        if (n > 0 && !call_write(c, bytes, (size_t)n))
            return; /* on_drain continues */
    }
    sending_free(s);
    call_end(c);
}

static void drained(struct call *c) {
    go_on(c->user);
}

static void changesets_gone(struct call *c) {
    sending_free(c->user);
    call_end(c);
}

static void answer_archive(void *arg, const struct changeset_view *view, int fd,
                           const struct err *err) {
    struct call *c = arg;
    if (err) {
        call_error(c, err);
        return;
    }
    struct sending *s = xnew(struct sending);
    bool sized = c->route->handle == api_changeset_archive;
    *s = (struct sending){c, fd, sized ? view->bytes : UINT64_MAX};
    c->user = s;
    c->on_gone = changesets_gone;
    c->on_drain = drained;
    c->length = sized ? (int64_t)view->bytes : -1;
    call_begin(c, 200, c->route->type, NULL);
    go_on(s);
}

void api_changeset_archive(struct call *c) {
    service_changeset_open(c->service, &c->who, c->params[0], answer_archive, c);
}

void api_changeset_base(struct call *c) {
    service_changeset_base(c->service, &c->who, c->params[0], answer_archive, c);
}

void api_changeset_database(struct call *c) {
    service_changeset_database(c->service, &c->who, c->params[0], call_told, c);
}

/* ---- shipping ---- */

static void answer_ship(void *arg, const struct ship_view *view, const struct err *err) {
    struct call *c = arg;
    if (err)
        call_error(c, err);
    else
        call_view(c, 200, &ship_schema, view);
}

void api_changeset_ship(struct call *c) {
    service_ship(c->service, &c->who, c->params[0], c->request, answer_ship, c);
}
