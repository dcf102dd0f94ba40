#include "operator/event.h"

#include <jansson.h>
#include <string.h>

#include "base/defer.h"
#include "base/jot.h"
#include "model/codec.h"

static const char *const kind_names[] = {
    NULL,     "start", "resume", "answer",  "call",   "sure",  "result", "point",
    "back",   "note",  "prune",  "stopped", "end",    "aside", "held",   "freed",
    "return", "try",   "judged", "word",    "cancel", "retry",
};
enum { KINDS = sizeof(kind_names) / sizeof(*kind_names) };

static const char *const purpose_names[] = {"work", "report", "hand_over"};
enum { PURPOSES = sizeof(purpose_names) / sizeof(*purpose_names) };

static const char *const note_names[RUN_NOTE_COUNT] = {
    "plain", "warn_turns", "warn_tokens", "warn_money", "warn_time", "budget",  "spent",
    "full",  "stuck",      "nudge",       "format",     "check",     "project",
};

static const char *const part_names[] = {"text", "image", "call", "result", "opaque"};
enum { PARTS = sizeof(part_names) / sizeof(*part_names) };

const char *run_kind_name(enum run_kind kind) {
    return kind_names[kind];
}

const char *run_note_name(enum run_note note) {
    return note_names[note];
}

/* ---- members of a transcript line: one row each, for writing and reading ---- */

enum member_kind { MEMBER_TEXT, MEMBER_NUMBER, MEMBER_FLAG };

struct member {
    const char *name;
    enum member_kind kind;
    size_t offset;
};

#define AT(member) offsetof(struct run_event, member)

static const struct member members[] = {
    {"run", MEMBER_TEXT, AT(run)},
    {"owner", MEMBER_TEXT, AT(owner)},
    {"machine", MEMBER_TEXT, AT(machine)},
    {"own_machine", MEMBER_FLAG, AT(own_machine)},
    {"model", MEMBER_TEXT, AT(model)},
    {"task", MEMBER_TEXT, AT(task)},
    {"card", MEMBER_TEXT, AT(card)},
    {"window", MEMBER_NUMBER, AT(window)},
    {"prompt_bytes", MEMBER_NUMBER, AT(prompt_bytes)},
    {"turns", MEMBER_NUMBER, AT(budget.turns)},
    {"tokens", MEMBER_NUMBER, AT(budget.tokens)},
    {"money", MEMBER_NUMBER, AT(budget.micro)},
    {"timeout_ms", MEMBER_NUMBER, AT(budget.timeout_ms)},
    {"script", MEMBER_TEXT, AT(script)},
    {"mode", MEMBER_TEXT, AT(mode)},
    {"menu", MEMBER_TEXT, AT(menu)},
    {"parent", MEMBER_TEXT, AT(parent)},
    {"tries", MEMBER_NUMBER, AT(tries)},
    {"check", MEMBER_TEXT, AT(check)},
    {"check_files", MEMBER_TEXT, AT(check_files)},
    {"guard", MEMBER_FLAG, AT(guard)},
    {"asks", MEMBER_FLAG, AT(asks)},
    {"good", MEMBER_FLAG, AT(good)},
    {"changes", MEMBER_NUMBER, AT(changes)},
    {"calls", MEMBER_NUMBER, AT(calls)},
    {"changeset", MEMBER_TEXT, AT(changeset)},
    {"in", MEMBER_NUMBER, AT(usage.in)},
    {"cache_read", MEMBER_NUMBER, AT(usage.cache_read)},
    {"cache_write", MEMBER_NUMBER, AT(usage.cache_write)},
    {"cache_write_long", MEMBER_NUMBER, AT(usage.cache_write_long)},
    {"out", MEMBER_NUMBER, AT(usage.out)},
    {"reasoning", MEMBER_NUMBER, AT(usage.reasoning)},
    {"has_usage", MEMBER_FLAG, AT(has_usage)},
    {"cost", MEMBER_NUMBER, AT(micro)},
    {"request_bytes", MEMBER_NUMBER, AT(request_bytes)},
    {"index", MEMBER_NUMBER, AT(index)},
    {"tool", MEMBER_TEXT, AT(tool)},
    {"arguments", MEMBER_TEXT, AT(arguments)},
    {"hash", MEMBER_TEXT, AT(hash)},
    {"failed", MEMBER_FLAG, AT(failed)},
    {"bytes", MEMBER_NUMBER, AT(bytes)},
    {"took_ms", MEMBER_NUMBER, AT(took_ms)},
    {"fallback", MEMBER_TEXT, AT(fallback)},
    {"text", MEMBER_TEXT, AT(text)},
    {"media", MEMBER_TEXT, AT(media)},
    {"image", MEMBER_TEXT, AT(image)},
    {"name", MEMBER_TEXT, AT(name)},
    {"step", MEMBER_TEXT, AT(step)},
    {"before", MEMBER_NUMBER, AT(before)},
    {"attempt", MEMBER_NUMBER, AT(attempt)},
    {"wait_ms", MEMBER_NUMBER, AT(wait_ms)},
    {"status", MEMBER_TEXT, AT(status)},
};
enum { MEMBERS = sizeof(members) / sizeof(*members) };

static const void *member_of(const struct run_event *e, const struct member *m) {
    return (const char *)e + m->offset;
}

/* ---- writing ---- */

static void put_part(struct jot *j, const struct model_part *p) {
    jot_object(j, NULL);
    jot_string(j, "kind", part_names[p->kind]);
    if (p->id)
        jot_string(j, "id", p->id);
    if (p->name)
        jot_string(j, "name", p->name);
    if (p->bad)
        jot_string(j, "bad", p->bad);
    if (p->codec)
        jot_string(j, "format", model_codec_name(p->codec));
    jot_bytes(j, "text", p->text, p->n);
    jot_end(j, '}');
}

static void put_answer(struct jot *j, const struct run_event *e) {
    jot_string(j, "purpose", purpose_names[e->purpose]);
    jot_u64(j, "stop", (uint64_t)e->stop);
    jot_array(j, "parts");
    for (size_t i = 0; i < e->count; i++)
        put_part(j, &e->parts[i]);
    jot_end(j, ']');
}

static void put_member(struct jot *j, const struct run_event *e, const struct member *m) {
    const void *p = member_of(e, m);
    if (m->kind == MEMBER_TEXT && *(const char *const *)p)
        jot_string(j, m->name, *(const char *const *)p);
    else if (m->kind == MEMBER_NUMBER && *(const uint64_t *)p)
        jot_u64(j, m->name, *(const uint64_t *)p);
    else if (m->kind == MEMBER_FLAG && *(const bool *)p)
        jot_bool(j, m->name, true);
}

int run_event_write(const struct run_event *e, struct buf *to, struct err *err) {
    size_t before = to->len;
    struct jot j = JOT(to);
    jot_object(&j, NULL);
    jot_string(&j, "event", kind_names[e->kind]);
    jot_i64(&j, "time", e->time_ms);
    if (e->kind == RUN_NOTE)
        jot_string(&j, "note", note_names[e->note]);
    for (size_t i = 0; i < MEMBERS; i++)
        put_member(&j, e, &members[i]);
    if (e->kind == RUN_ANSWER)
        put_answer(&j, e);
    if (e->report)
        jot_raw(&j, "report", e->report);
    jot_end(&j, '}');
    if (!j.failed && buf_add(to, "\n", 1))
        return 0;
    to->len = before;
    return err_set(err, ERR_LIMIT, "cannot write a transcript line: it is longer than %d MiB",
                   RUN_LINE_MAX >> 20);
}

/* ---- reading ---- */

static const char *text_in(struct arena *a, const json_t *value) {
    return arena_copy(a, json_string_value(value), json_string_length(value));
}

static int get_member(const json_t *line, const struct member *m, struct arena *a,
                      struct run_event *e, struct err *err) {
    const json_t *value = json_object_get(line, m->name);
    void *p = (char *)e + m->offset;
    if (!value)
        return 0;
    if (m->kind == MEMBER_TEXT && json_is_string(value))
        *(const char **)p = text_in(a, value);
    else if (m->kind == MEMBER_NUMBER && json_is_integer(value) && json_integer_value(value) >= 0)
        *(uint64_t *)p = (uint64_t)json_integer_value(value);
    else if (m->kind == MEMBER_FLAG && json_is_boolean(value))
        *(bool *)p = json_is_true(value);
    else
        return err_set(err, ERR_INVALID, "field '%s' of the transcript line has the wrong type",
                       m->name);
    return 0;
}

/* The index of the string `value` in `names`, or -1. */
static int event_named(const json_t *value, const char *const *names, int count) {
    const char *name = json_string_value(value);
    for (int i = 0; name && i < count; i++)
        if (names[i] && strcmp(names[i], name) == 0)
            return i;
    return -1;
}

static int get_part(const json_t *value, struct arena *a, struct model_part *ret, struct err *err) {
    int kind = event_named(json_object_get(value, "kind"), part_names, PARTS);
    const json_t *text = json_object_get(value, "text"), *id = json_object_get(value, "id"),
                 *name = json_object_get(value, "name"), *bad = json_object_get(value, "bad"),
                 *format = json_object_get(value, "format");
    bool is_call = kind == MODEL_CALL, is_opaque = kind == MODEL_OPAQUE;
    if ((kind != MODEL_TEXT && !is_call && !is_opaque) || !json_is_string(text) ||
        (is_call && (!json_is_string(id) || !json_is_string(name))))
        return err_set(err, ERR_INVALID,
                       "a part of the model's answer in the transcript line is of an unknown kind");
    ret->kind = (enum model_part_kind)kind;
    ret->text = text_in(a, text);
    ret->n = json_string_length(text);
    if (is_call) {
        ret->id = text_in(a, id);
        ret->name = text_in(a, name);
        ret->bad = json_is_string(bad) ? text_in(a, bad) : NULL;
    }
    if (is_opaque) {
        ret->codec = model_codec_named(json_is_string(format) ? json_string_value(format) : "");
        if (!ret->codec)
            return err_set(
                err, ERR_INVALID,
                "a part of the model's answer in the transcript line has an unknown format");
    }
    return 0;
}

static int get_answer(const json_t *line, struct arena *a, struct run_event *e, struct err *err) {
    int purpose = event_named(json_object_get(line, "purpose"), purpose_names, PURPOSES);
    json_int_t stop = json_integer_value(json_object_get(line, "stop"));
    const json_t *parts = json_object_get(line, "parts");
    if (purpose < 0 || stop < MODEL_STOP_DONE || stop > MODEL_STOP_PAUSED ||
        !json_is_array(parts) || json_array_size(parts) > MODEL_PARTS_MAX)
        return err_set(err, ERR_INVALID, "the model's answer in the transcript line is incomplete");
    e->purpose = (enum run_purpose)purpose;
    e->stop = (enum model_stop)stop;
    e->count = json_array_size(parts);
    struct model_part *list = arena_alloc(a, (e->count + 1) * sizeof(*list));
    e->parts = list;
    for (size_t i = 0; i < e->count; i++)
        if (get_part(json_array_get(parts, i), a, &list[i], err) < 0)
            return -1;
    return 0;
}

static int get_report(const json_t *line, struct arena *a, struct run_event *e, struct err *err) {
    const json_t *report = json_object_get(line, "report");
    char *text DEFER_FREE = report ? json_dumps(report, JSON_COMPACT) : NULL;
    if (report && !json_is_object(report))
        return err_set(err, ERR_INVALID, "the report in the transcript line is not a JSON object");
    e->report = text ? arena_copy(a, text, strlen(text)) : NULL;
    return 0;
}

/* Checks that an event has the members that its kind requires. */
static int event_check(const struct run_event *e, struct err *err) {
    bool whole = true;
    if (e->kind == RUN_START)
        whole = e->run && id_valid(e->run, strlen(e->run), 'r') && e->owner && e->machine &&
                e->task && e->model && e->card && e->window && e->tries <= RUN_TRIES_MAX;
    else if (e->kind == RUN_CALL)
        whole = e->tool && e->arguments;
    else if (e->kind == RUN_SURE)
        whole = e->hash && strlen(e->hash) == 64;
    else if (e->kind == RUN_HELD || e->kind == RUN_RETURN)
        whole = e->text;
    else if (e->kind == RUN_RESULT || e->kind == RUN_NOTE || e->kind == RUN_STOPPED)
        whole = e->text && !e->image == !e->media;
    else if (e->kind == RUN_POINT || e->kind == RUN_BACK)
        whole = e->name;
    else if (e->kind == RUN_TRY)
        whole = e->machine;
    else if (e->kind == RUN_END)
        whole = e->status && e->report;
    if (whole)
        return 0;
    return err_set(err, ERR_INVALID, "a transcript line of kind '%s' lacks a required field",
                   kind_names[e->kind]);
}

int run_event_read(const char *line, size_t n, struct arena *a, struct run_event *ret,
                   struct err *err) {
    json_error_t why;
    json_t *json DEFER(json_decrefp) =
        n > RUN_LINE_MAX ? NULL
                         : json_loadb(line, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
    if (n > RUN_LINE_MAX)
        return err_set(err, ERR_LIMIT, "the transcript line is too long");
    if (!json)
        return err_set(err, ERR_INVALID, "the transcript line is not valid JSON: %s", why.text);
    struct run_event e = {.time_ms = json_integer_value(json_object_get(json, "time"))};
    int kind = event_named(json_object_get(json, "event"), kind_names, KINDS);
    int note = event_named(json_object_get(json, "note"), note_names, RUN_NOTE_COUNT);
    if (kind < 0 || (kind == RUN_NOTE && note < 0) || e.time_ms < 0)
        return err_set(err, ERR_INVALID, "the transcript line has an unknown kind of event");
    e.kind = (enum run_kind)kind;
    e.note = kind == RUN_NOTE ? (enum run_note)note : RUN_NOTE_PLAIN;
    for (size_t i = 0; i < MEMBERS; i++)
        if (get_member(json, &members[i], a, &e, err) < 0)
            return -1;
    if ((e.kind == RUN_ANSWER && get_answer(json, a, &e, err) < 0) ||
        get_report(json, a, &e, err) < 0 || event_check(&e, err) < 0)
        return -1;
    *ret = e;
    return 0;
}
