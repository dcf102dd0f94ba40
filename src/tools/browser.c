/*
 * The tool browser: opens pages in a Chromium that runs in the machine, reads them as text, and
 * clicks and types by the names that the text shows.
 *
 * A call connects to the browser (devtools.h), acts, waits for the page, and reads it with
 * browser_page.js. Nothing of it stays in the daemon between calls. If a page does not answer, its
 * browser is killed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/jot.h"
#include "base/utf8.h"
#include "service/steps/steps.h"
#include "tools/devtools.h"
#include "tools/picture.h"
#include "tools/requests.h"
#include "tools/toolbox.h"

enum {
    BROWSER_START_MS = 120000,
    BROWSER_CALL_MS = 30000, /* after the start */
    BROWSER_GRACE_MS = 5000,
    BROWSER_LOAD_MS = 15000,
    BROWSER_SETTLE_MS = 300, /* for what a page does after an event */
    BROWSER_SCRIPT_MS = 8000,
    BROWSER_TICK_MS = 1000,
    BROWSER_TRIES = 3,
    BROWSER_TABS = 20,
    BROWSER_DIALOGS = 20, /* per call */
    BROWSER_DIALOG_MAX = 300,
    BROWSER_ENTER = 13,
    CHARACTER_BYTES = 3,   /* at most, of a unit of UTF-16 */
    BROWSER_SIDE = 100000, /* coordinates are smaller */
};

static const char page_script[] =
#include "tools/browser_page.inc"
    ;

/* What a client's browser in a machine does. Without a call only the first members are used. */
struct browser {
    struct browser *next, **at;
    struct toolbox *box;
    char machine[ID_SIZE];
    struct loop_timer *limit, *wait, *tick;
    struct act *act; /* the call in progress, or NULL */
    struct devtools *devtools;
    char target[80];                   /* the tab */
    void (*waited)(struct browser *b); /* after `wait` */
    const char *function;              /* of the script */
    void (*then)(struct browser *b, const json_t *value);
    unsigned tries, dialogs;
    bool fresh, loading, late;
    bool late_once; /* the browser was killed because the call took too long */
    json_t *page;   /* result of read() */
    char *popup;    /* address of a window that the page opened, or NULL */
    struct buf said;
    uint64_t began_ms, load_end_ms;
};

/* ---- the end of a call ---- */

static struct act *browser_let_go(struct browser *b) {
    struct act *a = TAKE(b->act);
    if (b->devtools)
        devtools_close(TAKE(b->devtools));
    loop_timer_stop(b->limit);
    loop_timer_stop(b->wait);
    loop_timer_stop(b->tick);
    a->user = NULL;
    a->cancel = NULL;
    return a;
}

static void browser_fail(struct browser *b, const struct err *err) {
    act_fail(browser_let_go(b), err);
}

static void browser_refuse(struct browser *b, enum err_code code, const char *doing,
                           const char *why) {
    struct err err;
    err_set(&err, code, "%.300s: %.900s", doing, why);
    browser_fail(b, &err);
}

static const char *page_text(const struct browser *b, const char *name) {
    const char *text = json_string_value(json_object_get(b->page, name));
    return text ? text : "";
}

/* image: in base64, or NULL. */
static void browser_done(struct browser *b, const char *image) {
    const struct act_image picture = {image, "image/png"};
    json_int_t left = json_integer_value(json_object_get(b->page, "left"));
    char machine[ID_SIZE];
    snprintf(machine, sizeof(machine), "%s", b->machine);
    const struct browser_output view = {
        .machine = machine,
        .url = b->page ? page_text(b, "url") : NULL,
        .title = page_text(b, "title"),
        .text = image ? NULL : page_text(b, "text"),
        .dialogs = b->said.len ? b->said.data : NULL,
        .left_out = left > 0 ? (uint64_t)left : 0,
        .whole = json_is_true(json_object_get(b->page, "whole")),
        .loading = b->late,
        .fresh = b->fresh,
    };
    act_done_images(browser_let_go(b), &view, &picture, image != NULL);
}

/* ---- the script in the page ---- */

static void browser_wait(struct browser *b, uint64_t ms, void (*waited)(struct browser *b)) {
    b->waited = waited;
    loop_timer_start(b->wait, ms, 0);
}

static void browser_world(struct browser *b);

/* Another page may have replaced this one meanwhile. */
static void browser_again(struct browser *b, const char *why) {
    if (++b->tries < BROWSER_TRIES)
        browser_wait(b, BROWSER_SETTLE_MS, browser_world);
    else
        browser_refuse(b, ERR_INTERNAL, "the page cannot be read", why);
}

static void browser_evaluated(void *arg, const json_t *result, const char *error) {
    struct browser *b = arg;
    const json_t *value = json_object_get(json_object_get(result, "result"), "value");
    const char *why = json_string_value(json_object_get(value, "error"));
    if (!json_is_object(value))
        browser_again(b, error ? error : "its script takes too long");
    else if (why)
        browser_refuse(b, ERR_INVALID, "the browser cannot do this", why);
    else
        b->then(b, value);
}

/* The expression that calls the function of the script. NULL: too long. */
static char *browser_expression(const struct browser *b) {
    const struct browser_input *in = b->act->request;
    struct buf text DEFER(buf_done) = BUF(1 << 20);
    struct jot j = JOT(&text);
    (void)!buf_addf(&text, "(request => {%s})(", page_script);
    jot_object(&j, NULL);
    jot_string(&j, "what", b->function);
    jot_string(&j, "name", in->name ? in->name : "");
    jot_string(&j, "text", in->text ? in->text : "");
    jot_u64(&j, "nth", in->nth.is ? in->nth.value : 0);
    jot_u64(&j, "most", in->max_output.is ? in->max_output.value : OUTPUT_DEFAULT);
    jot_end(&j, '}');
    return j.failed || !buf_addf(&text, ")") ? NULL : buf_take(&text);
}

static void browser_entered(void *arg, const json_t *result, const char *error) {
    struct browser *b = arg;
    const json_t *world = json_object_get(result, "executionContextId");
    char *expression DEFER_FREE = browser_expression(b);
    if (!json_is_integer(world) || !expression) {
        browser_again(b, error ? error : "it has no document");
        return;
    }
    devtools_ask(b->devtools, "Runtime.evaluate",
                 json_pack("{s:s, s:I, s:b, s:i}", "expression", expression, "contextId",
                           json_integer_value(world), "returnByValue", 1, "timeout",
                           BROWSER_SCRIPT_MS),
                 browser_evaluated);
}

static void browser_world(struct browser *b) {
    devtools_ask(b->devtools, "Page.createIsolatedWorld",
                 json_pack("{s:s, s:s}", "frameId", b->target, "worldName", "carrel"),
                 browser_entered);
}

/* Calls a function of the script in the page, with the arguments of the tool. */
static void browser_script(struct browser *b, const char *function,
                           void (*then)(struct browser *b, const json_t *value)) {
    b->function = function;
    b->then = then;
    b->tries = 0;
    browser_world(b);
}

/* ---- reading and looking ---- */

static void browser_shot(void *arg, const json_t *result, const char *error) {
    struct browser *b = arg;
    const char *image = json_string_value(json_object_get(result, "data"));
    if (image && picture_is_png(image, IMAGE_MAX))
        browser_done(b, image);
    else
        browser_refuse(b, ERR_INTERNAL, "cannot take a screenshot of the page",
                       result ? "the browser sent none, or a larger one than 4 MiB" : error);
}

/* The script keeps to these limits; a browser that lies does not. */
static void page_cut(json_t *page, const char *name, size_t max) {
    const char *text = json_string_value(json_object_get(page, name));
    size_t n = text ? strlen(text) : 0;
    if (n > max)
        json_object_set_new(page, name, json_stringn(text, utf8_end(text, max)));
}

static void browser_have(struct browser *b, const json_t *value) {
    const struct browser_input *in = b->act->request;
    uint64_t most = in->max_output.is ? in->max_output.value : OUTPUT_DEFAULT;
    b->page = json_deep_copy(value);
    page_cut(b->page, "url", BROWSER_URL_MAX * CHARACTER_BYTES);
    page_cut(b->page, "title", BROWSER_URL_MAX);
    page_cut(b->page, "text", most * CHARACTER_BYTES);
    if (strcmp(in->action, "screenshot") != 0)
        browser_done(b, NULL);
    else
        devtools_ask(b->devtools, "Page.captureScreenshot", json_pack("{s:s}", "format", "png"),
                     browser_shot);
}

static void browser_read(struct browser *b) {
    browser_script(b, "read", browser_have);
}

/* ---- waiting for a page ---- */

static void browser_go(struct browser *b, const char *url);

static void browser_settled(struct browser *b) {
    uint64_t now = loop_now_ms(b->box->loop);
    char *popup DEFER_FREE = TAKE(b->popup);
    b->late = b->loading && now >= b->load_end_ms;
    if (popup)
        browser_go(b, popup);
    else if (b->loading && !b->late)
        browser_wait(b, b->load_end_ms - now, browser_settled);
    else
        browser_read(b);
}

static void browser_settle(struct browser *b) {
    browser_wait(b, BROWSER_SETTLE_MS, browser_settled);
}

static void browser_stop(struct browser *b) {
    devtools_tell(b->devtools, "Page.stopLoading", NULL);
}

static void browser_gone(void *arg, const json_t *result, const char *error) {
    struct browser *b = arg;
    const struct browser_input *in = b->act->request;
    const char *why = json_string_value(json_object_get(result, "errorText"));
    char doing[300];
    loop_timer_stop(b->wait);
    if (result && !why && !json_is_true(json_object_get(result, "isDownload"))) {
        b->loading = b->loading && json_object_get(result, "loaderId");
        browser_settle(b);
        return;
    }
    snprintf(doing, sizeof(doing), "cannot open '%.200s'", in->url ? in->url : "the page");
    if (loop_now_ms(b->box->loop) >= b->load_end_ms)
        browser_refuse(b, ERR_TIMEOUT, doing, "the server did not answer within 15 seconds");
    else
        browser_refuse(b, ERR_INVALID, doing,
                       why      ? why
                       : result ? "it is a download: use the tool fetch"
                                : error);
}

/* Opens an address in the tab. */
static void browser_go(struct browser *b, const char *url) {
    b->loading = true;
    b->load_end_ms = loop_now_ms(b->box->loop) + BROWSER_LOAD_MS;
    devtools_ask(b->devtools, "Page.navigate", json_pack("{s:s}", "url", url), browser_gone);
    browser_wait(b, BROWSER_LOAD_MS, browser_stop);
}

/* ---- actions ---- */

static void browser_open(struct browser *b) {
    const struct browser_input *in = b->act->request;
    struct buf url DEFER(buf_done) = BUF(BROWSER_URL_MAX + 16);
    if (buf_addf(&url, "%s%s", strstr(in->url, "://") ? "" : "http://", in->url))
        browser_go(b, url.data);
}

static void browser_acted(void *arg, const json_t *result, const char *error) {
    struct browser *b = arg;
    if (result)
        browser_settle(b);
    else
        browser_refuse(b, ERR_INTERNAL, "the browser refused the input", error);
}

static json_t *browser_mouse(const char *type, double x, double y, int buttons) {
    return json_pack("{s:s, s:f, s:f, s:s, s:i, s:i}", "type", type, "x", x, "y", y, "button",
                     buttons < 0 ? "none" : "left", "buttons", buttons > 0, "clickCount",
                     buttons >= 0);
}

static void browser_pointed(struct browser *b, const json_t *value) {
    double x = json_number_value(json_object_get(value, "x"));
    double y = json_number_value(json_object_get(value, "y"));
    if (!(x >= 0 && x < BROWSER_SIDE && y >= 0 && y < BROWSER_SIDE)) {
        browser_refuse(b, ERR_INVALID, "the browser cannot do this",
                       "the element is outside of the window");
        return;
    }
    devtools_tell(b->devtools, "Input.dispatchMouseEvent", browser_mouse("mouseMoved", x, y, -1));
    devtools_tell(b->devtools, "Input.dispatchMouseEvent", browser_mouse("mousePressed", x, y, 1));
    devtools_ask(b->devtools, "Input.dispatchMouseEvent", browser_mouse("mouseReleased", x, y, 0),
                 browser_acted);
}

static void browser_click(struct browser *b) {
    browser_script(b, "point", browser_pointed);
}

static json_t *browser_key(const char *type) {
    return json_pack("{s:s, s:s, s:s, s:s, s:i}", "type", type, "key", "Enter", "code", "Enter",
                     "text", "\r", "windowsVirtualKeyCode", BROWSER_ENTER);
}

static void browser_focused(struct browser *b, const json_t *value) {
    const struct browser_input *in = b->act->request;
    bool typed = json_is_true(json_object_get(value, "typed"));
    if (typed && in->text[0])
        devtools_tell(b->devtools, "Input.insertText", json_pack("{s:s}", "text", in->text));
    if (typed && in->enter) {
        devtools_tell(b->devtools, "Input.dispatchKeyEvent", browser_key("keyDown"));
        devtools_ask(b->devtools, "Input.dispatchKeyEvent", browser_key("keyUp"), browser_acted);
    } else {
        browser_settle(b);
    }
}

static void browser_fill(struct browser *b) {
    browser_script(b, "fill", browser_focused);
}

/* ---- events ---- */

/* Closes a dialog, and keeps what it said. */
static void browser_dialog(struct browser *b, const json_t *params) {
    const char *text = json_string_value(json_object_get(params, "message"));
    const char *type = json_string_value(json_object_get(params, "type"));
    bool leaves = type && strcmp(type, "beforeunload") == 0;
    if (++b->dialogs > BROWSER_DIALOGS) {
        devtools_break(b->devtools, "the page opened dialogs without end");
        return;
    }
    if (text && !leaves)
        (void)!buf_addf(&b->said, "%.*s\n", (int)utf8_end(text, strnlen(text, BROWSER_DIALOG_MAX)),
                        text);
    devtools_tell(b->devtools, "Page.handleJavaScriptDialog", json_pack("{s:b}", "accept", leaves));
}

static bool browser_is_tab(const struct browser *b, const json_t *params) {
    const char *frame = json_string_value(json_object_get(params, "frameId"));
    return frame && strcmp(frame, b->target) == 0;
}

static void browser_loads(struct browser *b, const json_t *params) {
    b->loading = b->loading || browser_is_tab(b, params);
}

static void browser_loaded(struct browser *b, const json_t *params) {
    if (!b->loading || !browser_is_tab(b, params))
        return;
    b->loading = false;
    if (b->waited == browser_settled)
        browser_settle(b);
}

/* A window that a click opened is opened in the tab instead. */
static void browser_window(struct browser *b, const json_t *params) {
    const char *url = json_string_value(json_object_get(params, "url"));
    bool is_web = url && (strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0);
    if (is_web && !b->popup && strlen(url) <= BROWSER_URL_MAX &&
        json_is_true(json_object_get(params, "userGesture")))
        b->popup = xstrdup(url);
}

static void browser_crashed(struct browser *b, const json_t *params) {
    (void)params;
    devtools_break(b->devtools, "the page crashed, perhaps for lack of memory");
}

static void browser_event(void *arg, const char *method, const json_t *params) {
    static const struct {
        const char *method;
        void (*take)(struct browser *b, const json_t *params);
    } events[] = {
        {"Page.javascriptDialogOpening", browser_dialog},
        {"Page.frameStartedNavigating", browser_loads},
        {"Page.frameStartedLoading", browser_loads},
        {"Page.frameStoppedLoading", browser_loaded},
        {"Page.windowOpen", browser_window},
        {"Inspector.targetCrashed", browser_crashed},
    };
    for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++)
        if (strcmp(events[i].method, method) == 0)
            events[i].take(arg, params);
}

/* ---- the tab ---- */

static const struct browser_action {
    const char *name;
    void (*begin)(struct browser *b);
    bool needs_url, needs_name, needs_text;
} actions[] = {
    {"open", browser_open, .needs_url = true},
    {"read", browser_settle},
    {"click", browser_click, .needs_name = true},
    {"fill", browser_fill, .needs_name = true, .needs_text = true},
    {"screenshot", browser_settle},
    {"close", NULL},
};
const char *const browser_actions[] = {"open",       "read",  "click", "fill",
                                       "screenshot", "close", NULL};

static const struct browser_action *browser_action(const struct browser_input *in) {
    size_t i = 0;
    while (strcmp(actions[i].name, in->action) != 0) /* the schema knows no others */
        i++;
    return &actions[i];
}

static void browser_ready(void *arg, const json_t *result, const char *error) {
    struct browser *b = arg;
    if (!result) {
        browser_refuse(b, ERR_INTERNAL, "the browser does not show its page", error);
        return;
    }
    b->load_end_ms = loop_now_ms(b->box->loop) + BROWSER_LOAD_MS;
    browser_action(b->act->request)->begin(b);
}

static void browser_attached(void *arg, const json_t *result, const char *error) {
    struct browser *b = arg;
    const char *session = json_string_value(json_object_get(result, "sessionId"));
    if (!devtools_is_id(session)) {
        browser_refuse(b, ERR_INTERNAL, "the browser does not give its page",
                       error ? error : "its answer is malformed");
        return;
    }
    devtools_attach(b->devtools, session);
    devtools_tell(b->devtools, "Inspector.enable", NULL);
    devtools_ask(b->devtools, "Page.enable", NULL, browser_ready);
}

static void browser_attach(struct browser *b, const char *target) {
    if (!devtools_is_id(target)) {
        browser_refuse(b, ERR_INTERNAL, "the browser has no page", "its answer is malformed");
        return;
    }
    snprintf(b->target, sizeof(b->target), "%s", target);
    devtools_ask(b->devtools, "Target.attachToTarget",
                 json_pack("{s:s, s:b}", "targetId", target, "flatten", 1), browser_attached);
}

static void browser_made(void *arg, const json_t *result, const char *error) {
    (void)error;
    browser_attach(arg, json_string_value(json_object_get(result, "targetId")));
}

static bool is_tab(const json_t *info) {
    const char *type = json_string_value(json_object_get(info, "type"));
    return type && strcmp(type, "page") == 0 &&
           devtools_is_id(json_string_value(json_object_get(info, "targetId")));
}

/* Whether the page a is to be the tab rather than b: one that no other page opened. */
static bool is_rather_tab(const json_t *a, const json_t *b) {
    return !b || (json_object_get(b, "openerId") && !json_object_get(a, "openerId"));
}

/* Finds the tab. Windows that pages opened in earlier calls are closed. */
static void browser_targets(void *arg, const json_t *result, const char *error) {
    struct browser *b = arg;
    const json_t *list = json_object_get(result, "targetInfos"), *tab = NULL, *info;
    size_t closed = 0;
    (void)error;
    loop_timer_start(b->limit, BROWSER_CALL_MS, BROWSER_GRACE_MS);
    for (size_t i = 0; (info = json_array_get(list, i)); i++)
        if (is_tab(info) && is_rather_tab(info, tab))
            tab = info;
    for (size_t i = 0; (info = json_array_get(list, i)) && closed < BROWSER_TABS; i++)
        if (is_tab(info) && info != tab) {
            devtools_tell(b->devtools, "Target.closeTarget",
                          json_pack("{s:O}", "targetId", json_object_get(info, "targetId")));
            closed++;
        }
    if (tab)
        browser_attach(b, json_string_value(json_object_get(tab, "targetId")));
    else
        devtools_ask(b->devtools, "Target.createTarget", json_pack("{s:s}", "url", "about:blank"),
                     browser_made);
}

/* ---- browsers of a client ---- */

static void browser_waited(void *arg) {
    struct browser *b = arg;
    void (*waited)(struct browser *) = TAKE(b->waited);
    waited(b);
}

static void browser_tick(void *arg) {
    struct browser *b = arg;
    const struct act_events *events = &b->act->events;
    events->progress(events->arg, (double)(loop_now_ms(b->box->loop) - b->began_ms) / 1000, "");
}

/* First the browser is killed, which ends the call. A machine that does not do that comes second.
 */
static void browser_late(void *arg) {
    struct browser *b = arg;
    static const char why[] = "it did not answer within 30 seconds";
    if (b->late_once)
        browser_refuse(b, ERR_TIMEOUT, "the browser cannot be used", why);
    else
        devtools_break(b->devtools, why);
    b->late_once = true;
}

static bool browser_closes(const struct browser *b) {
    return !browser_action(b->act->request)->begin;
}

static void browser_ended(void *arg, const struct err *err) {
    struct browser *b = arg;
    if (browser_closes(b))
        browser_done(b, NULL);
    else
        browser_fail(b, err);
}

static void browser_cancel(struct act *a) {
    struct err err;
    err_set(&err, ERR_GONE, "the tool call was cancelled");
    browser_fail(a->user, &err);
}

static void browser_clear(struct browser *b) {
    json_decref(TAKE(b->page));
    free(TAKE(b->popup));
    buf_done(&b->said);
    b->said = BUF(BROWSER_DIALOGS * (BROWSER_DIALOG_MAX + 32));
    b->loading = b->late = b->late_once = b->fresh = false;
    b->dialogs = 0;
}

static void browser_free(struct browser *b) {
    *b->at = b->next;
    if (b->next)
        b->next->at = b->at;
    browser_clear(b);
    loop_timer_free(b->limit);
    loop_timer_free(b->wait);
    loop_timer_free(b->tick);
    free(b);
}

static const char *browser_name(const struct toolbox *box) {
    return box->key[0] ? box->key : "run";
}

void browsers_kill(struct toolbox *box) {
    const struct coproc_place place = toolbox_place(box);
    for (const struct browser *b = box->browsers; b; b = b->next)
        devtools_kill(&place, b->machine, browser_name(box));
}

void browsers_free(struct toolbox *box) {
    while (box->browsers)
        browser_free(box->browsers);
}

static struct browser *browser_get(struct toolbox *box, const char *machine) {
    for (struct browser *b = box->browsers; b; b = b->next)
        if (strcmp(b->machine, machine) == 0)
            return b;
    struct browser *b = xnew(struct browser);
    *b = (struct browser){.box = box, .next = box->browsers, .at = &box->browsers};
    snprintf(b->machine, sizeof(b->machine), "%s", machine);
    b->limit = loop_timer_new(box->loop, browser_late, b);
    b->wait = loop_timer_new(box->loop, browser_waited, b);
    b->tick = loop_timer_new(box->loop, browser_tick, b);
    if (b->next)
        b->next->at = &b->next;
    box->browsers = b;
    return b;
}

/* ---- a call ---- */

static int browser_check(const struct browser_input *in, struct err *err) {
    static const char *const schemes[] = {"http://", "https://", "file:///"};
    const struct browser_action *action = browser_action(in);
    bool known = !in->url || !strstr(in->url, "://");
    for (size_t i = 0; in->url && i < sizeof(schemes) / sizeof(*schemes); i++)
        known = known || strncasecmp(in->url, schemes[i], strlen(schemes[i])) == 0;
    if (!known)
        return err_set(err, ERR_INVALID,
                       "argument 'url': must start with http://, https:// or "
                       "file:///");
    if ((action->needs_url && !in->url) || (action->needs_name && !in->name) ||
        (action->needs_text && !in->text))
        return err_set(err, ERR_INVALID, "the action %s needs the argument '%s'", action->name,
                       action->needs_url                 ? "url"
                       : action->needs_name && !in->name ? "name"
                                                         : "text");
    return 0;
}

static void browser_begin(struct browser *b) {
    const struct coproc_place place = toolbox_place(b->box);
    const struct devtools_events events = {b, browser_event, browser_ended};
    struct err err;
    bool closes = browser_closes(b);
    browser_clear(b);
    b->devtools = devtools_open(&place, b->machine, browser_name(b->box), &events,
                                closes ? NULL : &b->fresh, &err);
    if (!b->devtools && closes && err.code == ERR_NOT_FOUND) {
        browser_done(b, NULL);
    } else if (!b->devtools) {
        browser_fail(b, &err);
    } else {
        loop_timer_start(b->limit, b->fresh ? BROWSER_START_MS : BROWSER_CALL_MS, BROWSER_GRACE_MS);
        if (closes)
            devtools_break(b->devtools, "it was closed");
        else
            devtools_ask(b->devtools, "Target.getTargets", NULL, browser_targets);
    }
}

/* Earlier steps are taken: they do not contain what the browser changes. */
static void browser_now(void *arg) {
    struct act *a = arg;
    struct err err;
    struct browser *b = browser_get(a->box, a->machine);
    if (a->cancelled) {
        err_set(&err, ERR_GONE, "the tool call was cancelled");
        act_fail(a, &err);
    } else if (b->act) {
        err_set(&err, ERR_BUSY, "the browser is used by another call; wait for its result");
        act_fail(a, &err);
    } else {
        b->act = a;
        a->user = b;
        a->cancel = browser_cancel;
        b->began_ms = loop_now_ms(act_loop(a));
        if (a->events.progress)
            loop_timer_start(b->tick, BROWSER_TICK_MS, BROWSER_TICK_MS);
        browser_begin(b);
    }
}

void tool_browser(struct act *a) {
    struct err err;
    if (browser_check(a->request, &err) < 0)
        act_fail(a, &err);
    else
        service_settled(act_service(a), act_who(a), a->machine, browser_now, a);
}
