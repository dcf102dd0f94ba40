#include "model/rehearsal.h"

#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "model/json.h"

struct rehearsal {
    struct arena arena;
    struct rehearsal_turn *turns;
    uint64_t *played; /* how often the fault of each turn was played */
    size_t count;
};

void rehearsal_free(struct rehearsal *r) {
    if (!r)
        return;
    arena_done(&r->arena);
    free(r->turns);
    free(r->played);
    free(r);
}

void rehearsal_freep(struct rehearsal **r) {
    rehearsal_free(*r);
}

/* ---- Reading a script ---- */

static const struct {
    const char *name;
    enum rehearsal_fault fault;
} faults[] = {
    {"status", REHEARSAL_STATUS}, {"garbage", REHEARSAL_GARBAGE}, {"cut", REHEARSAL_CUT},
    {"reset", REHEARSAL_RESET},   {"error", REHEARSAL_ERROR},     {"slow", REHEARSAL_SLOW},
};

static int check_names(const json_t *object, const char *const *names, struct err *err) {
    const char *name;
    json_t *value;
    if (!json_is_object(object))
        return err_set(err, ERR_INVALID, "not a JSON object");
    json_object_foreach((json_t *)object, name, value) {
        size_t i = 0;
        while (names[i] && strcmp(name, names[i]) != 0)
            i++;
        if (!names[i])
            return err_set(err, ERR_INVALID, "unknown member '%.40s'", name);
    }
    return 0;
}

static int read_fault(const json_t *fault, struct rehearsal_turn *t, struct err *err) {
    static const char *const names[] = {"kind", "times", "status", "retry_after_ms", "ms", NULL};
    if (!fault)
        return 0;
    if (check_names(fault, names, err) < 0)
        return err_wrap(err, "member 'fault'");
    for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
        if (json_member_is(fault, "kind", faults[i].name))
            t->fault = faults[i].fault;
    if (t->fault == REHEARSAL_FINE) {
        err_set(err, ERR_INVALID, "member 'fault' has an unknown kind");
        return err_remedy(err, "use one of: status garbage cut reset error slow");
    }
    t->times = json_object_get(fault, "times") ? json_count(fault, "times") : 1;
    t->status = (int)(json_count(fault, "status") % 1000);
    t->retry_after_ms = json_count(fault, "retry_after_ms");
    t->wait_ms = json_count(fault, "ms");
    if (t->fault == REHEARSAL_STATUS && t->status < 400)
        return err_set(err, ERR_INVALID, "'status' of member 'fault' must be 400 to 599");
    return 0;
}

static struct model_part *add_part(struct rehearsal *r, struct rehearsal_turn *t) {
    struct model_part *parts = arena_grow(&r->arena, (void *)t->parts, t->count, sizeof(*t->parts));
    t->parts = parts;
    parts[t->count] = (struct model_part){0};
    return &parts[t->count++];
}

/* Reads a tool call of a turn. "arguments" is an object; "raw" is a text that need not be JSON. */
static int read_call(struct rehearsal *r, const json_t *call, struct rehearsal_turn *t,
                     struct err *err) {
    static const char *const names[] = {"tool", "arguments", "raw", NULL};
    const char *tool = json_member(call, "tool"), *raw = json_member(call, "raw");
    const json_t *arguments = json_object_get(call, "arguments");
    if (check_names(call, names, err) < 0)
        return -1;
    if (!tool || !tool[0] || strlen(tool) > MODEL_NAME_MAX)
        return err_set(err, ERR_INVALID, "'tool' is not a valid name of a tool");
    if (arguments && !json_is_object(arguments))
        return err_set(err, ERR_INVALID, "'arguments' is not an object");
    if (t->calls == MODEL_CALLS_MAX)
        return err_set(err, ERR_LIMIT, "the turn has more than %d calls", MODEL_CALLS_MAX);
    struct model_part *p = add_part(r, t);
    p->kind = MODEL_CALL;
    p->name = arena_copy(&r->arena, tool, strlen(tool));
    p->text = raw         ? arena_copy(&r->arena, raw, strlen(raw))
              : arguments ? json_text(&r->arena, arguments, NULL)
                          : "{}";
    p->n = strlen(p->text);
    t->calls++;
    return 0;
}

static void read_usage(const json_t *usage, struct rehearsal_turn *t) {
    if (json_is_false(usage)) /* plays a provider that does not report usage */
        return;
    t->has_usage = true;
    t->usage = (struct model_usage){.in = 100, .out = 20};
    if (!usage)
        return;
    t->usage = (struct model_usage){
        .in = json_count(usage, "in"),
        .out = json_count(usage, "out"),
        .cache_read = json_count(usage, "cache_read"),
        .cache_write = json_count(usage, "cache_write"),
    };
}

static int read_stop(const json_t *turn, struct rehearsal_turn *t, struct err *err) {
    const char *stop = json_member(turn, "stop");
    t->stop = t->calls ? MODEL_STOP_CALLS : MODEL_STOP_DONE;
    for (int s = MODEL_STOP_DONE; stop && s <= MODEL_STOP_PAUSED; s++)
        if (strcmp(stop, model_stop_name((enum model_stop)s)) == 0) {
            t->stop = (enum model_stop)s;
            return 0;
        }
    return stop ? err_set(err, ERR_INVALID,
                          "'stop' is '%.40s', not done, calls, length, refused, full or paused",
                          stop)
                : 0;
}

static int read_match(struct rehearsal *r, const json_t *turn, struct rehearsal_turn *t,
                      struct err *err) {
    const json_t *number = json_object_get(turn, "turn"), *failed = json_object_get(turn, "failed");
    const char *after = json_member(turn, "after");
    if (number && (!json_is_integer(number) || json_integer_value(number) < 0))
        return err_set(err, ERR_INVALID, "'turn' is not a non-negative integer");
    if (failed && !json_is_boolean(failed))
        return err_set(err, ERR_INVALID, "'failed' is not true or false");
    t->number = number ? json_integer_value(number) : -1;
    t->failed = failed ? json_is_true(failed) : -1;
    t->after = after ? arena_copy(&r->arena, after, strlen(after)) : NULL;
    return 0;
}

static int read_turn(struct rehearsal *r, const json_t *turn, struct rehearsal_turn *t,
                     struct err *err) {
    static const char *const names[] = {"turn", "after", "failed", "say",  "calls",
                                        "stop", "usage", "fault",  "note", NULL};
    size_t i;
    const json_t *call, *say = json_object_get(turn, "say");
    if (check_names(turn, names, err) < 0 || read_match(r, turn, t, err) < 0 ||
        read_fault(json_object_get(turn, "fault"), t, err) < 0)
        return -1;
    if (json_string_length(say) > 0) {
        struct model_part *p = add_part(r, t);
        p->n = json_string_length(say);
        p->text = arena_copy(&r->arena, json_string_value(say), p->n);
    }
    json_array_foreach(json_object_get(turn, "calls"), i, call) {
        if (read_call(r, call, t, err) < 0)
            return err_wrap(err, "call %zu", i);
    }
    read_usage(json_object_get(turn, "usage"), t);
    return read_stop(turn, t, err);
}

static int read_turns(struct rehearsal *r, const json_t *turns, struct err *err) {
    size_t i;
    const json_t *turn;
    size_t n = json_array_size(turns);
    if (n == 0 || n > REHEARSAL_TURNS_MAX)
        return err_set(err, ERR_INVALID, "the rehearsal script has no turns, or more than %d",
                       REHEARSAL_TURNS_MAX);
    r->turns = xcalloc(n, sizeof(*r->turns));
    r->played = xcalloc(n, sizeof(*r->played));
    json_array_foreach(turns, i, turn) {
        if (read_turn(r, turn, &r->turns[i], err) < 0)
            return err_wrap(err, "turn %zu of the rehearsal script", i);
        r->count++;
    }
    return 0;
}

int rehearsal_parse(const char *bytes, size_t n, struct rehearsal **ret, struct err *err) {
    static const char *const names[] = {"turns", "note", NULL};
    json_error_t why;
    if (n > REHEARSAL_BYTES_MAX)
        return err_set(err, ERR_LIMIT, "the rehearsal script is larger than %d MiB",
                       REHEARSAL_BYTES_MAX >> 20);
    json_t *root DEFER(json_decrefp) = json_loadb(bytes, n, 0, &why);
    if (!root)
        return err_set(err, ERR_INVALID, "the rehearsal script is not JSON: line %d: %s", why.line,
                       why.text);
    if (check_names(root, names, err) < 0)
        return err_wrap(err, "the rehearsal script");
    struct rehearsal *r DEFER(rehearsal_freep) = xnew(struct rehearsal);
    if (read_turns(r, json_object_get(root, "turns"), err) < 0)
        return -1;
    *ret = TAKE(r);
    return 0;
}

/* ---- Playing a script ---- */

static void take_last(const struct model_message *m, struct rehearsal_ask *ask) {
    for (size_t i = 0; i < m->count; i++) {
        const struct model_part *p = &m->parts[i];
        bool better = p->kind == MODEL_RESULT || (p->kind == MODEL_TEXT && !ask->last);
        if (!better)
            continue;
        ask->last = p->text;
        ask->n = p->n;
        ask->failed = p->kind == MODEL_RESULT && p->failed;
    }
}

struct rehearsal_ask rehearsal_read(const struct model_request *request) {
    struct rehearsal_ask ask = {0};
    for (size_t i = 0; i < request->message_count; i++)
        ask.turns += request->messages[i].role == MODEL_ASSISTANT;
    for (size_t i = request->message_count; i > 0 && !ask.last; i--)
        if (request->messages[i - 1].role == MODEL_USER)
            take_last(&request->messages[i - 1], &ask);
    return ask;
}

static bool rehearsal_fits(const struct rehearsal_turn *t, const struct rehearsal_ask *ask) {
    if (t->number >= 0 && (uint64_t)t->number != ask->turns)
        return false;
    if (t->failed >= 0 && (t->failed == 1) != ask->failed)
        return false;
    return !t->after || (ask->last && memmem(ask->last, ask->n, t->after, strlen(t->after)));
}

const struct rehearsal_turn *rehearsal_find(const struct rehearsal *r,
                                            const struct rehearsal_ask *ask, struct err *err) {
    for (size_t i = 0; i < r->count; i++)
        if (rehearsal_fits(&r->turns[i], ask))
            return &r->turns[i];
    int shown = ask->n < 60 ? (int)ask->n : 60;
    err_set(err, ERR_NOT_FOUND, "the rehearsal script has no turn %llu after '%.*s'",
            (unsigned long long)ask->turns, shown, ask->last ? ask->last : "");
    err_remedy(err, "add a turn with this number and result to the script");
    return NULL;
}

enum rehearsal_fault rehearsal_fault(struct rehearsal *r, const struct rehearsal_turn *turn) {
    uint64_t *played = &r->played[turn - r->turns];
    if (turn->fault == REHEARSAL_FINE || *played >= turn->times)
        return REHEARSAL_FINE;
    ++*played;
    return turn->fault;
}

void rehearsal_answer(const struct rehearsal_turn *turn, const struct rehearsal_ask *ask,
                      const char *model, struct model_answer *ret) {
    *ret = (struct model_answer){.stop = turn->stop,
                                 .count = turn->count,
                                 .calls = turn->calls,
                                 .usage = turn->usage,
                                 .has_usage = turn->has_usage};
    struct arena *a = &ret->arena;
    struct model_part *parts = arena_alloc(a, (turn->count + 1) * sizeof(*parts));
    ret->id = arena_printf(a, "rehearsal_%llu", (unsigned long long)ask->turns);
    ret->model = arena_copy(a, model, strlen(model));
    for (size_t i = 0; i < turn->count; i++) {
        parts[i] = turn->parts[i];
        if (parts[i].kind != MODEL_CALL)
            continue;
        parts[i].id = arena_printf(a, "call_%llu_%zu", (unsigned long long)ask->turns, i);
        parts[i].bad = model_arguments_fault(a, parts[i].text, parts[i].n);
    }
    ret->parts = parts;
}
