#include "operator/mode.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "base/sha256.h"
#include "operator/shape.h"
#include "operator/template.h"

enum { HANDLE_SIZE = 64 + SHAPE_NAME_MAX };

static const struct run_mode modes[] = {
    {"free", MODE_CALLS_ANY, MODE_RESULTS_WHOLE, true, {"map", "spawn"}, ""},
    {"plan-then-execute",
     MODE_CALLS_FIXED,
     MODE_RESULTS_WHOLE,
     false,
     {"freeze"},
     "This run is plan-then-execute: before anything else, fix all your calls with the tool "
     "freeze. After that only these calls are allowed, each once, in this order; then call finish. "
     "A value that you cannot know yet is a hole with a limited schema."},
    {"action-selector",
     MODE_CALLS_MENU,
     MODE_RESULTS_NONE,
     false,
     {NULL},
     "This run is an action selector: only the calls of the menu below are allowed, with their "
     "holes filled. You do not see their results; the owner does. Make the calls that the task "
     "asks for, then call finish."},
    {"map",
     MODE_CALLS_ANY,
     MODE_RESULTS_HANDLES,
     true,
     {"map"},
     "In this run you do not see the text of results, only handles such as $h3.0, with size and "
     "status. To read texts, use the tool map, which returns records of your schema. You can pass "
     "a handle as the complete stdin of exec or content of write."},
    {"handles",
     MODE_CALLS_ANY,
     MODE_RESULTS_HANDLES,
     true,
     {"inspect"},
     "In this run you do not see the text of results, only handles such as $h3.0, with size and "
     "status. To ask about the text of a handle, use the tool inspect, which returns a record of "
     "your schema. You can pass a handle as the complete stdin of exec or content of write."},
};
enum { MODES = sizeof(modes) / sizeof(*modes) };

const struct run_mode *mode_find(const char *name, struct err *err) {
    for (size_t i = 0; i < MODES; i++)
        if (strcmp(modes[i].name, name ? name : modes[0].name) == 0)
            return &modes[i];
    err_set(err, ERR_INVALID, "unknown mode '%.40s' of a run", name);
    err_remedy(err, "use free, plan-then-execute, action-selector, map or handles");
    return NULL;
}

const struct run_mode *mode_of(const struct run *r) {
    struct err none;
    const struct run_mode *m = mode_find(r->start.mode, &none);
    return m ? m : &modes[0];
}

/* ---- calls ---- */

/* Tools that only talk to the owner and change nothing. */
static bool is_talk(const char *tool) {
    return strcmp(tool, "finish") == 0 || strcmp(tool, "plan") == 0 || strcmp(tool, "ask") == 0;
}

static json_t *calls_in(const char *text) {
    json_t *json DEFER(json_decrefp) = json_loads(text ? text : "", 0, NULL);
    return json_incref(json_object_get(json, "calls"));
}

static bool menu_has(const char *menu, const char *tool) {
    json_t *calls DEFER(json_decrefp) = calls_in(menu), *call;
    size_t i;
    json_array_foreach(calls, i, call) {
        const char *name = json_string_value(json_object_get(call, "tool"));
        if (name && strcmp(name, tool) == 0)
            return true;
    }
    return false;
}

bool mode_offers(const struct run_mode *m, const char *menu, const char *tool, bool own) {
    if (m->calls == MODE_CALLS_MENU)
        return strcmp(tool, "finish") == 0 || (!own && menu_has(menu, tool));
    for (size_t i = 0; own && m->own[i]; i++)
        if (strcmp(m->own[i], tool) == 0)
            return true;
    return !own;
}

static bool can_be_fixed(void *arg, const char *name) {
    const struct run_tools *may = arg;
    return !is_talk(name) && strcmp(name, "freeze") != 0 && may->find(may->arg, name);
}

static int check_calls(const char *text, bool in_order, const struct run_tools *may,
                       struct err *err) {
    json_t *calls DEFER(json_decrefp) = calls_in(text);
    return templates_check(calls, in_order, can_be_fixed, (void *)may, err);
}

int mode_menu_check(const char *menu, const struct run_tools *may, struct err *err) {
    if (strlen(menu) > MODE_MENU_MAX)
        return err_set(err, ERR_LIMIT, "the menu (list of allowed calls) is longer than %d KiB",
                       MODE_MENU_MAX >> 10);
    return check_calls(menu, false, may, err) < 0 ? err_wrap(err, "the menu is not valid") : 0;
}

int mode_freeze(const struct run *r, const char *arguments, const struct run_tools *may,
                char ret_hash[65], struct err *err) {
    if (r->frozen)
        return err_set(err, ERR_DENIED,
                       "the calls of this run are already fixed and cannot change");
    if (check_calls(arguments, true, may, err) < 0)
        return -1;
    sha256_hex(arguments, strlen(arguments), ret_hash);
    return 0;
}

static const char *refuses_fixed(const struct run *r, const struct run_call *c, struct arena *a) {
    json_t *calls DEFER(json_decrefp) = calls_in(r->frozen);
    json_t *arguments DEFER(json_decrefp) = json_loads(c->part->text, 0, NULL);
    const json_t *next = json_array_get(calls, r->node);
    struct err err;
    if (!r->frozen)
        return "The call was not made: first fix your calls with the tool freeze.";
    if (!next)
        return "The call was not made: all fixed calls have been made. Call finish.";
    if (template_match(next, c->part->name, arguments, &err) == 0)
        return NULL;
    char *text DEFER_FREE = json_dumps(next, JSON_COMPACT | JSON_SORT_KEYS);
    return arena_printf(
        a, "The call was not made: it is not the next fixed call: %s. The next fixed call is %s.",
        err.text, text ? text : "");
}

static const char *refuses_menu(const struct run *r, const struct run_call *c, struct arena *a) {
    json_t *calls DEFER(json_decrefp) = calls_in(r->start.menu), *call;
    json_t *arguments DEFER(json_decrefp) = json_loads(c->part->text, 0, NULL);
    struct err err = {0};
    size_t i;
    json_array_foreach(calls, i, call) {
        if (template_match(call, c->part->name, arguments, &err) == 0)
            return NULL;
    }
    return arena_printf(a, "The call was not made: it is not on the menu: %s.", err.text);
}

const char *mode_refuses(const struct run *r, const struct run_call *c, struct arena *a) {
    enum mode_calls calls = mode_of(r)->calls;
    if (c->begun || c->approved || calls == MODE_CALLS_ANY)
        return NULL;
    if (c->denied)
        return "The call was not made: it is not one of the fixed calls, and the owner did not "
               "approve it. Continue with the fixed calls, or call finish.";
    if (calls == MODE_CALLS_MENU)
        return refuses_menu(r, c, a);
    return is_talk(c->part->name) ? NULL : refuses_fixed(r, c, a);
}

/* ---- results ---- */

/* Tools whose result can contain text from a machine or from the network. */
static bool tells_content(const char *tool) {
    for (size_t i = 0; i < tool_count; i++)
        if (strcmp(tools[i].name, tool) == 0)
            return tools[i].hints & TOOL_CONTENT;
    return false;
}

/* An error about arguments quotes only the model's own text, so the model may see it. */
static bool is_own_fault(const struct run_event *e) {
    static const char words[] = "invalid: arguments of '";
    return e->failed && strncmp(e->text, words, sizeof(words) - 1) == 0;
}

bool mode_hides(const struct run *r, const struct run_call *c) {
    enum mode_results results = mode_of(r)->results;
    if (results == MODE_RESULTS_WHOLE || !c->result || !c->begun)
        return false;
    return results == MODE_RESULTS_NONE ||
           (tells_content(c->part->name) && !is_own_fault(c->result));
}

/* Copies the members of a result that Carrel itself produces: numbers, states and ids. */
static void copy_facts(json_t *to, const json_t *from) {
    static const char *const texts[] = {"status", "session", "machine", "outcome"};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)from, name, value) {
        bool keep = json_is_number(value) || json_is_boolean(value);
        for (size_t i = 0; !keep && i < sizeof(texts) / sizeof(*texts); i++)
            keep = strcmp(texts[i], name) == 0;
        if (keep)
            json_object_set(to, name, value);
    }
}

static const char *handle_text(const struct run_call *c, size_t turn, size_t index,
                               struct arena *a) {
    const struct run_event *e = c->result;
    json_t *out DEFER(json_decrefp) = json_object();
    json_t *in DEFER(json_decrefp) = e->failed ? NULL : json_loads(e->text, 0, NULL);
    char handle[32];
    snprintf(handle, sizeof(handle), "$h%zu.%zu", turn, index);
    copy_facts(out, in);
    json_object_set_new(out, "handle", json_string(handle));
    json_object_set_new(out, "source", json_string(c->part->name));
    json_object_set_new(out, "bytes", json_integer((json_int_t)strlen(e->text)));
    if (e->failed)
        json_object_set_new(out, "error", json_stringn(e->text, strcspn(e->text, ":\n ")));
    if (e->bytes)
        json_object_set_new(out, "cut", json_true());
    char *text DEFER_FREE = json_dumps(out, JSON_COMPACT | JSON_SORT_KEYS);
    return text ? arena_copy(a, text, strlen(text)) : "{}";
}

/* ---- records of inspect and map ---- */

/* A string property without an enum is free text, which may contain an instruction. */
static bool is_free_text(const struct run_call *c, const char *member) {
    json_t *arguments DEFER(json_decrefp) = json_loads(c->part->text, 0, NULL);
    const json_t *members = json_object_get(json_object_get(arguments, "schema"), "properties");
    const json_t *shape = json_object_get(members, member);
    return !shape || !shape_is_closed(shape);
}

static bool hides_records(const struct run *r, const struct run_call *c) {
    return mode_of(r)->results == MODE_RESULTS_HANDLES && c->result && !c->result->failed &&
           (strcmp(c->part->name, "map") == 0 || strcmp(c->part->name, "inspect") == 0);
}

static void hide_texts(const struct run_call *c, json_t *record, const char *base, size_t row) {
    const char *name;
    json_t *value;
    void *next;
    char handle[HANDLE_SIZE];
    json_object_foreach_safe(record, next, name, value) {
        if (!is_free_text(c, name))
            continue;
        snprintf(handle, sizeof(handle), "%s.%zu.%s", base, row, name);
        json_object_set_new(record, name, json_string(handle));
    }
}

/* The records as text, with each free text replaced by a handle such as $h3.0.1.name. */
static const char *records_text(const struct run_call *c, size_t turn, size_t index,
                                struct arena *a) {
    json_t *out DEFER(json_decrefp) = json_loads(c->result->text, 0, NULL), *row;
    char base[32];
    size_t i;
    snprintf(base, sizeof(base), "$h%zu.%zu", turn, index);
    if (!out) /* the result was truncated */
        return "The records are too long to show. Ask for fewer items at once.";
    json_array_foreach(json_object_get(out, "records"), i, row) {
        hide_texts(c, json_object_get(row, "record"), base, i);
    }
    char *text DEFER_FREE = json_dumps(out, JSON_COMPACT | JSON_SORT_KEYS);
    return text ? arena_copy(a, text, strlen(text)) : "{}";
}

/* rest: the end of a handle, after the part that names the call, such as ".1.name". */
static const char *record_member(const struct run_call *c, const char *rest, struct arena *a) {
    json_t *out DEFER(json_decrefp) = json_loads(c->result->text, 0, NULL);
    size_t row;
    int end = 0;
    if (sscanf(rest, ".%5zu.%n", &row, &end) != 1 || !end || !is_free_text(c, rest + end))
        return NULL;
    const json_t *records = json_object_get(out, "records");
    const char *text = json_string_value(
        json_object_get(json_object_get(json_array_get(records, row), "record"), rest + end));
    return text ? arena_copy(a, text, strlen(text)) : NULL;
}

const char *mode_shown(const struct run *r, size_t turn, size_t index, struct arena *a) {
    const struct run_call *c = &r->turns[turn].calls[index];
    if (hides_records(r, c))
        return records_text(c, turn, index, a);
    if (!mode_hides(r, c))
        return c->result->text;
    if (mode_of(r)->results == MODE_RESULTS_NONE)
        return "The call was made. Its result goes to the owner, not to you.";
    return handle_text(c, turn, index, a);
}

/* ---- handles ---- */

/* Removes the line number and the tab that the tool `read` puts before each line. */
static const char *without_numbers(const char *text, struct arena *a) {
    char *copy = arena_copy(a, text, strlen(text)), *to = copy;
    for (const char *at = text; *at;) {
        const char *end = strchr(at, '\n');
        size_t digits = strspn(at, " 0123456789"), n = end ? (size_t)(end - at) + 1 : strlen(at);
        size_t skip = at[digits] == '\t' ? digits + 1 : 0;
        memmove(to, at + skip, n - skip);
        to += n - skip;
        at += n;
    }
    *to = '\0';
    return copy;
}

static const char *content_of(const struct run_call *c, struct arena *a) {
    static const char *const names[] = {"stdout", "content", "body", "output", "diff"};
    json_t *in DEFER(json_decrefp) = json_loads(c->result->text, 0, NULL);
    for (size_t i = 0; !c->result->failed && i < sizeof(names) / sizeof(*names); i++) {
        const json_t *value = json_object_get(in, names[i]);
        if (!json_is_string(value))
            continue;
        const char *text = json_string_value(value);
        return strcmp(c->part->name, "read") == 0 ? without_numbers(text, a)
                                                  : arena_copy(a, text, strlen(text));
    }
    return c->result->text;
}

const char *mode_content(const struct run *r, const char *handle, struct arena *a) {
    size_t turn, index;
    int end = 0;
    if (sscanf(handle, "$h%5zu.%3zu%n", &turn, &index, &end) != 2 || turn >= r->count ||
        index >= r->turns[turn].call_count)
        return NULL;
    const struct run_call *c = &r->turns[turn].calls[index];
    if (hides_records(r, c))
        return record_member(c, handle + end, a);
    if (handle[end])
        return NULL;
    return mode_hides(r, c) ? content_of(c, a) : NULL;
}

void mode_fill(const struct run *r, const char *tool, json_t *arguments) {
    static const struct {
        const char *tool, *argument;
    } places[] = {{"exec", "stdin"}, {"write", "content"}};
    struct arena a DEFER(arena_done) = {0};
    if (mode_of(r)->results != MODE_RESULTS_HANDLES)
        return;
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        const char *handle = json_string_value(json_object_get(arguments, places[i].argument));
        const char *text =
            handle && strcmp(places[i].tool, tool) == 0 ? mode_content(r, handle, &a) : NULL;
        if (text)
            json_object_set_new(arguments, places[i].argument, json_string(text));
    }
}
