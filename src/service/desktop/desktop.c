#include "service/desktop/desktop.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "io/screen/png.h"
#include "io/screen/rfb.h"
#include "service/cells.h"
#include "service/desktop/input.h"
#include "service/exec/exec.h"
#include "service/exec/tool_run.h"
#include "service/state.h"

/*
 * ANSWER_MS is for one connection, with the wake-up of its machine. A vm without hardware support
 * needs some of START_MS.
 */
enum { ANSWER_MS = 30000, START_MS = 240000, NOT_INSTALLED = 127, WORDS = 6 };
#define START_MS_TEXT "240000"

static const char start_script[] =
#include "service/desktop.inc"
    ;

/* One operation, which is freed when it was answered and its connection has ended. */
struct desktop_act {
    struct desktop_act *next;
    struct service *service;
    struct caller who;
    char machine[ID_SIZE];
    const char *verb;               /* for the journal */
    const struct desktop_input *in; /* NULL: none */
    bool takes_picture;
    char geometry[24];
    struct rfb *rfb;       /* of the present connection */
    struct tool_run *tool; /* its way into the machine; NULL: there is none */
    bool asked, answered;
    bool waits;  /* for the desktop, which is being started */
    bool starts; /* this operation starts it */
    struct exec *server;
    struct exec_follower follower;
    struct exec_request launch;
    const char *words[WORDS];
    uint8_t *pixels, *png;
    struct desktop_view view;
    service_desktop_fn *done;
    void *arg;
};

static void desktop_connect(struct desktop_act *d);

static void desktop_free(struct desktop_act *d) {
    struct desktop_act **at = &d->service->desktops;
    while (*at != d)
        at = &(*at)->next;
    *at = d->next;
    rfb_free(d->rfb);
    if (d->server) {
        exec_unfollow(&d->follower);
        exec_unref(d->server);
    }
    free(d);
}

/* Answers once. The connection may end later. */
static void desktop_answer(struct desktop_act *d, const struct err *err) {
    if (d->answered)
        return;
    d->answered = true;
    d->done(d->arg, err ? NULL : &d->view, err);
    if (!d->tool)
        desktop_free(d);
}

/* ---- the picture ---- */

static void desktop_encode(void *arg) {
    struct desktop_act *d = arg;
    d->png =
        png_write(d->pixels, (unsigned)d->view.width, (unsigned)d->view.height, &d->view.png_bytes);
}

static void desktop_encoded(void *arg) {
    struct desktop_act *d = arg;
    uint8_t *png DEFER_FREE = d->png;
    free(TAKE(d->pixels));
    d->view.png = png;
    desktop_answer(d, NULL);
}

/* ---- the connection ---- */

static void desktop_flush(struct desktop_act *d, bool end) {
    struct buf *out = rfb_out(d->rfb);
    if (d->tool)
        buf_drop(out, tool_feed(d->tool, out->data ? out->data : "", out->len, end));
}

static void desktop_room(void *arg) {
    struct desktop_act *d = arg;
    if (d->rfb)
        desktop_flush(d, false);
}

/* Fails from an event of the tool: the answer follows when the tool has ended. */
static void desktop_break(struct desktop_act *d, const struct err *err) {
    rfb_free(TAKE(d->rfb));
    tool_stop(d->tool, err);
}

/* Ends the connection in good order, so that the server reads all of it. */
static void desktop_finish(struct desktop_act *d) {
    d->view.width = rfb_width(d->rfb);
    d->view.height = rfb_height(d->rfb);
    d->view.display = DESKTOP_DISPLAY;
    d->pixels = rfb_pixels_take(d->rfb);
    desktop_flush(d, true);
    rfb_free(TAKE(d->rfb));
    if (d->takes_picture) {
        loop_work(d->service->loop, desktop_encode, desktop_encoded, d);
        return;
    }
    free(TAKE(d->pixels));
    desktop_answer(d, NULL);
}

static void desktop_data(void *arg, const uint8_t *p, uint32_t n) {
    struct desktop_act *d = arg;
    struct err err;
    tool_consumed(d->tool, n);
    if (!d->rfb)
        return;
    if (rfb_take(d->rfb, p, n, &err) < 0) {
        desktop_break(d, &err);
        return;
    }
    if (rfb_is_ready(d->rfb) && !d->asked) {
        if (d->in && desktop_input_write(d->in, d->rfb, &err) < 0) {
            desktop_break(d, &err);
            return;
        }
        d->asked = rfb_ask(d->rfb, !d->takes_picture);
    }
    desktop_flush(d, false);
    if (d->asked && rfb_is_answered(d->rfb))
        desktop_finish(d);
}

/* ---- the start ---- */

static bool desktop_is_starting(const struct desktop_act *d) {
    for (const struct desktop_act *o = d->service->desktops; o; o = o->next)
        if (o->starts && strcmp(o->machine, d->machine) == 0)
            return true;
    return false;
}

/* Why the X server ended before it served anybody. */
static void desktop_server_error(const struct desktop_act *d, struct err *err) {
    struct exec_view view;
    exec_view(d->server, &view);
    if (view.status == NOT_INSTALLED) {
        err_set(err, ERR_UNSUPPORTED, "machine '%s' does not have both Xtigervnc and openbox",
                d->machine);
        err_remedy(err, "install the Debian packages tigervnc-standalone-server and openbox in it, "
                        "or use an image with them, such as examples/images/desktop");
    } else {
        err_set(err, ERR_INTERNAL, "the X server of machine '%s' ended at its start", d->machine);
        err_remedy(err, "see its messages: carrel logs %s %s", d->machine, view.id);
    }
}

/* Called when something about the command of the X server changes. */
static void desktop_server_changed(void *arg) {
    struct desktop_act *d = arg;
    struct err err;
    if (!exec_is_over(d->server) || !d->tool || !d->rfb || rfb_is_ready(d->rfb))
        return;
    desktop_server_error(d, &err);
    desktop_break(d, &err);
}

static void desktop_started(void *arg, struct exec *x, const struct err *err) {
    struct desktop_act *d = arg;
    if (err && err->code == ERR_EXISTS) { /* an operation that gave up has started it */
        desktop_connect(d);
        return;
    }
    if (err) {
        desktop_answer(d, err);
        return;
    }
    d->server = x;
    d->follower = (struct exec_follower){.changed = desktop_server_changed, .arg = d};
    exec_follow(x, &d->follower);
    desktop_connect(d);
}

static void desktop_launch(struct desktop_act *d) {
    static const uint8_t no_hash[SHA256_BYTES];
    const char *const words[] = {"/bin/sh",        "-c",        start_script,
                                 "carrel-desktop", d->geometry, DESKTOP_DIR};
    d->starts = true;
    memcpy(d->words, words, sizeof(words));
    d->launch = (struct exec_request){
        .argv = {d->words, WORDS}, .name = "desktop", .background = true, .lazy = true};
    service_exec(d->service, &d->who, d->machine, &d->launch, no_hash, NULL, 0, desktop_started, d);
}

/* Nothing listens on the socket. */
static void desktop_absent(struct desktop_act *d) {
    struct err err;
    if (d->waits) {
        err_set(&err, ERR_TIMEOUT, "the desktop of machine '%s' did not start in %d seconds",
                d->machine, START_MS / 1000);
        desktop_answer(d, &err);
        return;
    }
    d->waits = true;
    if (desktop_is_starting(d))
        desktop_connect(d);
    else
        desktop_launch(d);
}

static void desktop_ended(void *arg, int status, const char *answer, const char *said,
                          const struct err *failed) {
    struct desktop_act *d = arg;
    struct err err;
    (void)answer;
    d->tool = NULL;
    if (d->answered) {
        desktop_free(d);
        return;
    }
    if (d->pixels) /* the worker still needs the operation */
        return;
    long number = strtol(said, NULL, 10);
    if (failed) {
        desktop_answer(d, failed);
    } else if (status != MSG_TOOL_DONE && (number == ENOENT || number == ECONNREFUSED)) {
        desktop_absent(d);
    } else {
        err_set(&err, ERR_INTERNAL, "the VNC server of machine '%s' closed the connection",
                d->machine);
        desktop_answer(d, &err);
    }
}

static void desktop_connect(struct desktop_act *d) {
    const char *const argv[] = {"connect", DESKTOP_SOCKET, d->waits ? START_MS_TEXT : NULL, NULL};
    const struct tool_events events = {.arg = d,
                                       .limit_ms = ANSWER_MS + (d->waits ? START_MS : 0),
                                       .data = desktop_data,
                                       .room = desktop_room,
                                       .ended = desktop_ended};
    struct err err;
    rfb_free(d->rfb);
    d->rfb = rfb_new();
    d->tool = service_tool(d->service, &d->who, d->machine, d->verb, argv, NULL, &events, &err);
    if (!d->tool)
        desktop_answer(d, &err);
    else if (d->server)
        desktop_server_changed(d);
}

/* ---- operations ---- */

/* Finds the machine of a new operation. NULL: refused. */
static const struct live *desktop_check(struct service *s, const struct caller *who,
                                        const char *machine, struct err *err) {
    size_t acts = 0;
    for (const struct desktop_act *d = s->desktops; d; d = d->next)
        acts++;
    if (acts >= DESKTOP_ACTS) {
        err_set(err, ERR_BUSY, "%d operations on desktops are in progress", DESKTOP_ACTS);
        return NULL;
    }
    const struct live *l = live_find(s, who, machine, LIVE_ANY, err);
    return l && cell_refuse(l, "desktops", err) == 0 ? l : NULL;
}

/* what: the fields that tell the operations apart. */
static void desktop_do(struct service *s, const struct caller *who, const char *machine,
                       const struct desktop_act *what, const struct desktop_request *r) {
    struct err err;
    const struct live *l = desktop_check(s, who, machine, &err);
    if (!l) {
        what->done(what->arg, NULL, &err);
        return;
    }
    struct desktop_act *d = xnew(struct desktop_act);
    *d = *what;
    d->service = s;
    d->who = *who;
    d->next = s->desktops;
    s->desktops = d;
    snprintf(d->machine, sizeof(d->machine), "%s", l->row.id);
    snprintf(d->geometry, sizeof(d->geometry), "%ux%u",
             (unsigned)(r && r->width.is ? r->width.value : DESKTOP_WIDTH),
             (unsigned)(r && r->height.is ? r->height.value : DESKTOP_HEIGHT));
    desktop_connect(d);
}

void service_desktop_start(struct service *s, const struct caller *who, const char *machine,
                           const struct desktop_request *r, service_desktop_fn *done, void *arg) {
    desktop_do(s, who, machine,
               &(struct desktop_act){.verb = "desktop.start", .done = done, .arg = arg}, r);
}

void service_desktop_screenshot(struct service *s, const struct caller *who, const char *machine,
                                service_desktop_fn *done, void *arg) {
    desktop_do(s, who, machine,
               &(struct desktop_act){
                   .verb = "desktop.screenshot", .takes_picture = true, .done = done, .arg = arg},
               NULL);
}

void service_desktop_input(struct service *s, const struct caller *who, const char *machine,
                           const struct desktop_input *in, service_desktop_fn *done, void *arg) {
    desktop_do(s, who, machine,
               &(struct desktop_act){.verb = "desktop.input", .in = in, .done = done, .arg = arg},
               NULL);
}
