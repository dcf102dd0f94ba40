#include "api/console/console.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/call.h"
#include "api/console/inner.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "service/console/console.h"
#include "service/console/orders.h"
#include "service/grants/roots.h"
#include "service/net/expose.h"
#include "service/tickets.h"

/* A link is sent by callers that are not known yet, so little is kept of what they send. */
/* JSON writes each byte of a result as at most two: carrel ship escapes control characters. */
enum {
    BODY_MAX = 2 * ORDER_OUTPUT_MAX + (64 << 10),
    OPEN_BODY_MAX = 16 << 10,
    FRAMES_MAX = 320,
    ROOTS_MAX = 64 << 10
};

struct console_face {
    struct service *service;
    struct page_files *files;
    console_caller_fn *caller;
    console_listen_fn *listen;
    void *arg;
};

struct console_face *console_face_new(struct service *service, console_caller_fn *caller,
                                      console_listen_fn *listen, void *arg) {
    char dir[PLACE_SIZE + 16];
    struct console_face *f = xnew(struct console_face);
    *f = (struct console_face){.service = service, .caller = caller, .listen = listen, .arg = arg};
    snprintf(dir, sizeof(dir), "%s/console", service_libexec(service));
    f->files = page_files_new(dir);
    return f;
}

void console_face_free(struct console_face *f) {
    if (!f)
        return;
    page_files_free(f->files);
    free(f);
}

/* ---- answers ---- */

struct service *console_service(const struct console_face *f) {
    return f->service;
}

void console_reply(struct http_exchange *x, int status, const struct buf *text) {
    http_reply(x, status,
               HTTP_FIELDS({"Content-Type", "application/json"}, {"Cache-Control", "no-store"},
                           {"X-Content-Type-Options", "nosniff"},
                           {"Content-Security-Policy", "default-src 'none'; sandbox"}),
               text->data, text->len);
}

void console_refuse(struct http_exchange *x, const struct err *err) {
    struct buf text DEFER(buf_done) = BUF(8192);
    struct jot j = JOT(&text);
    error_json(&j, err);
    console_reply(x, err->code == ERR_DENIED ? 401 : api_status_of(err->code), &text);
}

static void put_who(struct jot *j, const struct service *s, const struct caller *who) {
    struct buf frames DEFER(buf_done) = BUF(FRAMES_MAX);
    jot_string(j, "owner", who->owner);
    jot_bool(j, "admin", who->scopes & SCOPE_ADMIN);
    jot_bool(j, "ships", service_order_worker(s, who->owner));
    service_expose_origins(s, &frames);
    jot_string(j, "frames", frames.len ? frames.data : "");
    jot_u64(j, "expires_ms", (uint64_t)service_console_expires_ms(s, who));
}

/* ---- requests ---- */

static void console_link(struct console_face *f, struct http_exchange *x, const struct caller *who,
                         const json_t *body) {
    char key[CONSOLE_KEY_SIZE], url[256];
    struct buf text DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&text);
    struct err err;
    bool own_user = json_is_true(json_object_get(body, "own_user"));
    if (service_console_link(f->service, who, own_user, key, &err) < 0 ||
        f->listen(f->arg, &err) < 0) {
        console_refuse(x, &err);
        return;
    }
    snprintf(url, sizeof(url), "%s/#link=%s", service_address(f->service), key);
    jot_object(&j, NULL);
    jot_string(&j, "url", url);
    jot_u64(&j, "expires_s", CONSOLE_LINK_S);
    jot_end(&j, '}');
    console_reply(x, 201, &text);
}

static void console_open(struct console_face *f, struct http_exchange *x, const struct caller *none,
                         const json_t *body) {
    const char *link = json_string_value(json_object_get(body, "link"));
    char token[CONSOLE_TOKEN_SIZE];
    struct buf text DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&text);
    struct caller who;
    struct err err;
    uid_t user = (uid_t)-1;
    (void)none;
    link = link ? link : "";
    if (service_console_needs_user(f->service, link))
        http_peer_user(x, &user);
    if (service_console_open(f->service, link, user, x->peer->text, token, &who, &err) < 0) {
        console_refuse(x, &err);
        return;
    }
    jot_object(&j, NULL);
    jot_string(&j, "token", token);
    put_who(&j, f->service, &who);
    jot_end(&j, '}');
    console_reply(x, 201, &text);
    explicit_bzero(token, sizeof(token));
}

static void console_ticket(struct console_face *f, struct http_exchange *x,
                           const struct caller *who, const json_t *body) {
    const char *target = json_string_value(json_object_get(body, "target"));
    char ticket[CONSOLE_KEY_SIZE];
    struct buf text DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&text);
    struct err err;
    if (service_console_ticket(f->service, who, target ? target : "", ticket, &err) < 0) {
        console_refuse(x, &err);
        return;
    }
    jot_object(&j, NULL);
    jot_string(&j, "ticket", ticket);
    jot_u64(&j, "expires_s", CONSOLE_TICKET_S);
    jot_end(&j, '}');
    console_reply(x, 201, &text);
}

static void console_me(struct console_face *f, struct http_exchange *x, const struct caller *who,
                       const json_t *body) {
    struct buf text DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&text);
    (void)body;
    jot_object(&j, NULL);
    put_who(&j, f->service, who);
    jot_end(&j, '}');
    console_reply(x, 200, &text);
}

/* The directories that this page may hand to machines, and where its owner can allow more. */
static void console_roots(struct console_face *f, struct http_exchange *x, const struct caller *who,
                          const json_t *body) {
    struct buf text DEFER(buf_done) = BUF(ROOTS_MAX);
    struct jot j = JOT(&text);
    struct roots *r DEFER_FREE = xnew(struct roots);
    struct err err;
    int done = -1;
    (void)body;
    if (!who->console[0])
        err_set(&err, ERR_INVALID, "only a page of the console asks for this");
    else
        done = service_roots_read(f->service, who, r, &err);
    if (done < 0) {
        console_refuse(x, &err);
        return;
    }
    jot_object(&j, NULL);
    jot_array(&j, "roots");
    for (size_t i = 0; i < r->count; i++)
        jot_string(&j, NULL, r->paths[i]);
    jot_end(&j, ']');
    jot_string(&j, "conf", r->conf);
    jot_string(&j, "of", r->is_own ? "" : who->owner);
    jot_end(&j, '}');
    console_reply(x, 200, &text);
}

static void console_close(struct console_face *f, struct http_exchange *x, const struct caller *who,
                          const json_t *body) {
    const struct buf text = {.data = (char[]){"{}"}, .len = 2};
    struct err err;
    (void)body;
    if (service_console_close(f->service, who, &err) < 0) {
        console_refuse(x, &err);
        return;
    }
    console_reply(x, 200, &text);
}

static const struct action {
    const char *path;
    bool is_open; /* no caller: the body is what proves the right */
    void (*take)(struct console_face *f, struct http_exchange *x, const struct caller *who,
                 const json_t *body);
} actions[] = {
    {"/console/link", false, console_link},     {"/console/open", true, console_open},
    {"/console/ticket", false, console_ticket}, {"/console/me", false, console_me},
    {"/console/close", false, console_close},   {"/console/order", false, console_order},
    {"/console/result", false, console_result}, {"/console/work", false, console_work},
    {"/console/done", false, console_done},     {"/console/roots", false, console_roots},
};

/* A body that is collected. */
struct console_call {
    struct console_face *face;
    const struct action *action;
    struct caller who;
};

static void console_came(struct http_exchange *x, const char *bytes, size_t n) {
    struct console_call *c DEFER_FREE = x->user;
    json_t *body DEFER(json_decrefp) = json_loadb(n ? bytes : "{}", n ? n : 2, 0, NULL);
    struct err err;
    x->user = NULL;
    x->on_gone = NULL;
    if (json_is_object(body)) {
        c->action->take(c->face, x, &c->who, body);
        return;
    }
    err_set(&err, ERR_INVALID, "the body of the request is not a JSON object");
    console_refuse(x, &err);
}

static void console_cut(struct http_exchange *x) {
    free(x->user);
}

/*
 * A form of another site cannot send JSON, and a browser that names the site of the page was
 * checked by http_check_origin().
 */
static void action_take(struct console_face *f, struct http_exchange *x,
                        const struct action *action) {
    struct caller who = {0};
    struct err err;
    if (!http_text_is(x->head->method, "POST"))
        err_set(&err, ERR_INVALID, "this path supports only the method POST");
    else if (!x->peer->local && !http_type_is(x->head, "application/json"))
        err_set(&err, ERR_INVALID, "header 'Content-Type': must be application/json");
    else if (action->is_open || f->caller(f->arg, x, &who, &err) == 0) {
        struct console_call *c = xnew(struct console_call);
        *c = (struct console_call){f, action, who};
        x->user = c;
        x->on_gone = console_cut;
        http_collect(x, action->is_open ? OPEN_BODY_MAX : BODY_MAX, console_came);
        return;
    }
    console_refuse(x, &err);
}

bool console_face_take(struct console_face *f, struct http_exchange *x) {
    struct http_text path = x->head->path;
    for (size_t i = 0; i < sizeof(actions) / sizeof(*actions); i++) {
        if (http_text_is(path, actions[i].path)) {
            action_take(f, x, &actions[i]);
            return true;
        }
    }
    bool reads = http_text_is(x->head->method, "GET") || http_text_is(x->head->method, "HEAD");
    if (!reads || (!http_text_is(path, "/") && !(path.n > 8 && memcmp(path.s, "/assets/", 8) == 0)))
        return false;
    struct buf frames DEFER(buf_done) = BUF(FRAMES_MAX);
    service_expose_origins(f->service, &frames);
    page_files_serve(f->files, x, frames.data);
    return true;
}
