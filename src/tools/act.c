/* One call of a tool: from its arguments to one result, also when it is cancelled on the way. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/text/base64.h"
#include "service/tool_counts.h"
#include "tools/joined.h"
#include "tools/plain.h"
#include "tools/toolbox.h"

enum { RESULT_MAX = 8 << 20 };

struct service *act_service(const struct act *a) {
    return a->box->service;
}

const struct caller *act_who(const struct act *a) {
    return &a->box->who;
}

struct loop *act_loop(const struct act *a) {
    return a->box->loop;
}

void act_free(struct act *a) {
    if (a->request) {
        schema_done(a->tool->input, a->request);
        free(a->request);
    }
    json_decref(a->arguments);
    toolbox_unref(a->box);
    free(a);
}

static void act_count(const struct act *a, const struct act_result *result) {
    struct tool_count one = {.calls = 1,
                             .failed = result->err != NULL,
                             .fallbacks = a->fallback != NULL,
                             .wall_ms = monotonic_ms() - a->begun_ms};
    snprintf(one.name, sizeof(one.name), "%s", a->tool->foreign ? "joined" : a->tool->name);
    service_tool_called(a->box->service, a->machine, &one);
}

/*
 * The only place where a call ends. The result may contain text of the machine, so its taint
 * (the mark of untrusted data) is stored first; if that fails, the caller gets the error instead of
 * the result.
 *
 * act_start() is still on the stack while a->inside is true and frees the act itself then.
 */
static void act_end(struct act *a, const struct act_result *result) {
    struct err err;
    struct act_result told = *result;
    act_count(a, result);
    told.fallback = a->fallback;
    if (!a->cancelled) {
        if (toolbox_saw(a->box, a->machine, &err) < 0)
            told = (struct act_result){.err = &err, .machine = a->machine};
        a->events.done(a->events.arg, &told);
    }
    if (a->inside)
        a->over = true;
    else
        act_free(a);
}

void act_fail_with(struct act *a, const struct err *err, const char *detail) {
    act_end(a, &(struct act_result){.err = err, .detail = detail, .machine = a->machine});
}

void act_fail(struct act *a, const struct err *err) {
    act_fail_with(a, err, NULL);
}

void act_done_images(struct act *a, const void *view, const struct act_image *images, size_t n) {
    struct buf text DEFER(buf_done) = BUF(RESULT_MAX), plain DEFER(buf_done) = BUF(RESULT_MAX);
    struct jot j = JOT(&text);
    struct err err;
    schema_write(a->tool->output, &j, NULL, view);
    if (!j.failed)
        plain_text(a->tool, view, text.data, &plain);
    if (j.failed) {
        err_set(&err, ERR_LIMIT, "the result of the tool is larger than %d MiB", RESULT_MAX >> 20);
        act_fail(a, &err);
        return;
    }
    act_end(a, &(struct act_result){.json = text.data,
                                    .text = plain.data ? plain.data : "",
                                    .images = images,
                                    .image_count = n,
                                    .machine = a->machine});
}

void act_done(struct act *a, const void *view) {
    act_done_images(a, view, NULL, 0);
}

void act_done_image(struct act *a, const void *view, const void *bytes, size_t n,
                    const char *media) {
    char *text DEFER_FREE = xmalloc(BASE64_SIZE(n));
    base64_encode(bytes, n, text);
    act_done_images(a, view, &(struct act_image){text, media}, 1);
}

/* The client may have read untrusted text before, so the machine of this call gets the client's
 * taint. */
void act_go(struct act *a) {
    struct err err;
    if (a->cancelled) {
        err_set(&err, ERR_GONE, "the tool call was cancelled");
        act_fail(a, &err);
        return;
    }
    if (a->machine[0] &&
        service_taint_seen(a->box->service, &a->box->who, a->box->saw, a->machine, &err) < 0) {
        act_fail(a, &err);
        return;
    }
    a->started = true;
    a->tool->start(a);
}

static int read_request(struct act *a, struct err *err) {
    a->request = xcalloc(1, a->tool->input->size);
    if (a->tool->foreign)
        return 0;
    if (schema_read(a->tool->input, a->arguments, a->request, err) == 0)
        return 0;
    return err_wrap(err, "arguments of '%s'", a->tool->name);
}

struct act *act_start(struct toolbox *b, const struct tool *t, json_t *arguments,
                      const struct act_events *events) {
    struct act *a = xnew(struct act);
    struct err err;
    *a = (struct act){.box = b,
                      .tool = t,
                      .events = *events,
                      .arguments = arguments ? json_incref(arguments) : json_object(),
                      .begun_ms = monotonic_ms(),
                      .inside = true};
    toolbox_ref(b);
    if (read_request(a, &err) < 0)
        act_fail(a, &err);
    else if (t->hints & TOOL_MACHINE)
        toolbox_bring(b, a, *(const char **)a->request); /* the first member is `machine` */
    else
        act_go(a);
    a->inside = false;
    if (!a->over)
        return a;
    act_free(a);
    return NULL;
}

/* Clears the events of the call, so that it never calls back into a client that is gone. */
void act_abandon(struct act *a) {
    a->cancelled = true;
    a->events = (struct act_events){0};
}

void act_cancel(struct act *a) {
    act_abandon(a);
    if (a->started && a->cancel)
        a->cancel(a);
}

/* ---- the tools of a client ---- */

bool tool_is_there(const struct toolbox *b, const struct tool *t) {
    return t->set >= b->set && !(b->bound && t->hints & TOOL_ALONE) &&
           (!t->is_there || t->is_there(b));
}

int tool_set_parse(const char *text, enum tool_set *ret, struct err *err) {
    static const char *const names[] = {
        [TOOL_SET_ALL] = "all", [TOOL_SET_CODING] = "coding", [TOOL_SET_MINIMAL] = "minimal"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (strcmp(names[i], text) == 0) {
            *ret = (enum tool_set)i;
            return 0;
        }
    return err_set(err, ERR_INVALID, "unknown set of tools '%.40s'; use minimal, coding or all",
                   text);
}

const struct tool *tool_find(const struct toolbox *b, const char *name) {
    for (size_t i = 0; i < tool_count; i++)
        if (strcmp(tools[i].name, name) == 0)
            return tool_is_there(b, &tools[i]) ? &tools[i] : NULL;
    for (size_t i = 0; i < joined_tool_count(b); i++)
        if (strcmp(joined_tool(b, i)->tool.name, name) == 0)
            return &joined_tool(b, i)->tool;
    return NULL;
}
