#include "operator/run.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "operator/word.h"

enum { TURNS_MAX = MODEL_MESSAGES_MAX / 2 - 4, NOTES_MAX = 64 };

void run_done(struct run *r) {
    arena_done(&r->arena);
    tool_counts_done(&r->tools);
    *r = (struct run){0};
}

const struct run_turn *run_turn_now(const struct run *r) {
    return &r->turns[r->count - 1];
}

static struct run_turn *turn_now(struct run *r) {
    return &r->turns[r->count - 1];
}

uint64_t run_active_ms(const struct run *r, int64_t now_ms) {
    bool runs = r->phase == RUN_RUNNING && !r->held && now_ms > r->last_ms;
    return r->active_ms + (runs ? (uint64_t)(now_ms - r->last_ms) : 0);
}

static int run_refuse(const struct run_event *e, struct err *err) {
    return err_set(err, ERR_INVALID, "a transcript line of kind '%s' is out of order",
                   run_kind_name(e->kind));
}

static const char *run_keep(struct run *r, const char *text) {
    return text ? arena_copy(&r->arena, text, strlen(text)) : NULL;
}

static struct run_turn *add_turn(struct run *r) {
    r->turns = arena_grow(&r->arena, r->turns, r->count, sizeof(*r->turns));
    struct run_turn *t = &r->turns[r->count++];
    *t = (struct run_turn){0};
    return t;
}

/* ---- one function per kind of line ---- */

static int take_start(struct run *r, const struct run_event *e, struct err *err) {
    if (r->lines || strlen(e->task) > RUN_TASK_MAX)
        return run_refuse(e, err);
    r->start = *e;
    r->start.run = run_keep(r, e->run);
    r->start.owner = run_keep(r, e->owner);
    r->start.machine = run_keep(r, e->machine);
    r->start.task = run_keep(r, e->task);
    r->start.model = run_keep(r, e->model);
    r->start.script = run_keep(r, e->script);
    r->start.card = run_keep(r, e->card);
    r->start.mode = run_keep(r, e->mode);
    r->start.menu = run_keep(r, e->menu);
    r->start.parent = run_keep(r, e->parent);
    r->start.check = run_keep(r, e->check);
    r->start.check_files = run_keep(r, e->check_files);
    r->tries = arena_alloc(&r->arena, (e->tries + 1) * sizeof(*r->tries));
    memset(r->tries, 0, (e->tries + 1) * sizeof(*r->tries));
    r->last_ms = e->time_ms;
    add_turn(r);
    return 0;
}

/* Tool calls that were in progress before the resume have an unknown outcome. */
static int take_resume(struct run *r, const struct run_event *e, struct err *err) {
    struct run_turn *t = turn_now(r);
    (void)e;
    (void)err;
    for (size_t i = 0; i < t->call_count; i++)
        t->calls[i].recover = t->calls[i].begun && !t->calls[i].result;
    r->point.recover = r->point.open;
    r->back.recover = r->back.open;
    r->phase = RUN_RUNNING;
    r->held = NULL;
    r->wants_word = false;
    r->why = NULL;
    r->resumed = true;
    return 0;
}

static const struct model_part *keep_parts(struct run *r, const struct run_event *e) {
    struct model_part *parts = arena_alloc(&r->arena, (e->count + 1) * sizeof(*parts));
    for (size_t i = 0; i < e->count; i++) {
        parts[i] = e->parts[i];
        parts[i].text = arena_copy(&r->arena, e->parts[i].text, e->parts[i].n);
        parts[i].id = run_keep(r, e->parts[i].id);
        parts[i].name = run_keep(r, e->parts[i].name);
        parts[i].bad = run_keep(r, e->parts[i].bad);
    }
    return parts;
}

static void find_calls(struct run *r, struct run_turn *t) {
    t->calls = arena_alloc(&r->arena, (t->count + 1) * sizeof(*t->calls));
    for (size_t i = 0; i < t->count; i++)
        if (t->parts[i].kind == MODEL_CALL)
            t->calls[t->call_count++] = (struct run_call){.part = &t->parts[i]};
}

static void count_usage(struct run *r, const struct run_event *e) {
    const struct model_usage *u = &e->usage;
    r->usage.in += u->in;
    r->usage.cache_read += u->cache_read;
    r->usage.cache_write += u->cache_write;
    r->usage.cache_write_long += u->cache_write_long;
    r->usage.out += u->out;
    r->usage.reasoning += u->reasoning;
    r->tokens += model_usage_total(u);
    r->micro += e->micro;
}

static void pay(struct run *r, const struct run_event *e) {
    const struct model_usage *u = &e->usage;
    count_usage(r, e);
    if (!e->has_usage)
        return;
    r->last_in = u->in + u->cache_read + u->cache_write + u->cache_write_long;
    r->last_bytes = e->request_bytes;
}

/* A hand-over (the model's summary of its work) replaces all earlier turns in the context. */
static void hand_over(struct run *r, uint64_t keep_tokens) {
    uint64_t bytes = 0;
    size_t i = r->count - 1;
    r->hand_over = i;
    while (i > 1 && bytes / 4 < keep_tokens) {
        const struct run_turn *t = &r->turns[i - 1];
        for (size_t k = 0; k < t->count; k++)
            bytes += t->parts[k].n;
        for (size_t k = 0; k < t->call_count; k++)
            bytes += t->calls[k].result ? strlen(t->calls[k].result->text) : 0;
        if (bytes / 4 >= keep_tokens || t->purpose == RUN_HAND_OVER)
            break;
        i--;
    }
    r->keep_from = i;
}

static uint64_t kept_tokens(const struct run *r) {
    uint64_t part = r->start.window / 6;
    return part < 20000 ? part : 20000;
}

static bool is_malformed(const struct run_turn *t) {
    for (size_t i = 0; i < t->call_count; i++)
        if (!t->calls[i].part->bad)
            return false;
    return t->call_count > 0;
}

static int take_answer(struct run *r, const struct run_event *e, struct err *err) {
    const struct run_turn *before = run_turn_now(r);
    if (before->over != before->call_count || r->count >= TURNS_MAX || r->accepted)
        return run_refuse(e, err);
    const struct model_part *parts = keep_parts(r, e);
    struct run_turn *t = add_turn(r);
    *t = (struct run_turn){
        .purpose = e->purpose, .stop = e->stop, .parts = parts, .count = e->count};
    pay(r, e);
    t->spent_tokens = r->tokens;
    t->spent_ms = r->active_ms;
    r->refusals = r->full = 0;
    r->used_turns++;
    if (e->purpose == RUN_HAND_OVER) {
        hand_over(r, kept_tokens(r));
        return 0;
    }
    find_calls(r, t);
    r->calls += t->call_count;
    r->silent = t->call_count ? 0 : r->silent + 1;
    r->malformed = is_malformed(t) ? r->malformed + 1 : 0;
    return 0;
}

static struct run_call *call_of(struct run *r, const struct run_event *e) {
    struct run_turn *t = turn_now(r);
    return e->index < t->call_count ? &t->calls[e->index] : NULL;
}

static bool is_named(const struct run_call *c, const char *name) {
    return strcmp(c->part->name, name) == 0;
}

/* True for calls that do not count as fixed calls. */
static bool is_talk(const struct run_call *c) {
    return is_named(c, "plan") || is_named(c, "ask");
}

static int take_call(struct run *r, const struct run_event *e, struct err *err) {
    struct run_call *c = call_of(r, e);
    if (!c || c->result || c->part->bad || (c->begun && !c->recover))
        return run_refuse(e, err);
    if (!c->begun) {
        c->begun_ms = e->time_ms;
        r->node += r->frozen && !is_talk(c) && !c->approved;
    }
    c->begun = true;
    c->recover = false;
    return 0;
}

static int take_sure(struct run *r, const struct run_event *e, struct err *err) {
    struct run_call *c = call_of(r, e);
    if (!c || !c->begun || c->result)
        return run_refuse(e, err);
    c->sure = run_keep(r, e->hash);
    return 0;
}

/* The result without members that differ on each call. Sets *failed if the command failed. */
static char *stable_text(const char *text, bool *failed) {
    static const char *const names[] = {"session", "log",    "wall_ms",   "cpu_ms",
                                        "step",    "number", "max_rss_kb"};
    json_t *json = json_loads(text, 0, NULL);
    if (!json_is_object(json)) {
        json_decref(json);
        return xstrdup(text);
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        json_object_del(json, names[i]);
    *failed |= json_integer_value(json_object_get(json, "exit_code")) != 0;
    char *stable = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(json);
    return stable ? stable : xstrdup(text);
}

static void run_watch(struct run *r, const struct run_call *c, const struct run_event *e) {
    bool failed = e->failed;
    char *text DEFER_FREE = stable_text(e->text, &failed);
    if (text)
        stuck_add(&r->stuck, c->part->name, c->part->text, text, strlen(text), failed);
}

/* Read-only tools change no files, so they need no checkpoint. */
static bool may_change(const char *tool) {
    for (size_t i = 0; i < tool_count; i++)
        if (strcmp(tools[i].name, tool) == 0)
            return !(tools[i].hints & TOOL_READ_ONLY);
    return false;
}

/* Updates the state of the run for the result of a call. */
static void judge(struct run *r, const struct run_call *c, const struct run_event *e) {
    bool finish = is_named(c, "finish");
    if (finish && e->status && strcmp(e->status, "accepted") == 0)
        r->accepted = c->part->text;
    if (finish && e->status && strcmp(e->status, "check") == 0) {
        r->checks++;
        r->acted = false;
    }
    if (is_named(c, "plan") && !e->failed)
        r->plan = c->part->text;
    if (is_named(c, "freeze") && e->status && strcmp(e->status, "frozen") == 0)
        r->frozen = c->part->text;
    if (finish || is_named(c, "plan"))
        return;
    r->acted |= !e->failed;
    r->changes += c->begun && !e->failed && may_change(c->part->name);
    run_watch(r, c, e);
}

static void count_call(struct run *r, const struct run_call *c, const struct run_event *e) {
    struct tool_count one = {
        .calls = 1, .failed = e->failed, .fallbacks = e->fallback != NULL, .wall_ms = e->took_ms};
    snprintf(one.name, sizeof(one.name), "%s", c->part->name);
    tool_counts_add(&r->tools, &one);
}

static int take_result(struct run *r, const struct run_event *e, struct err *err) {
    struct run_call *c = call_of(r, e);
    if (!c || c->result)
        return run_refuse(e, err);
    struct run_event *kept = arena_alloc(&r->arena, sizeof(*kept));
    *kept = (struct run_event){.kind = RUN_RESULT,
                               .text = run_keep(r, e->text),
                               .image = run_keep(r, e->image),
                               .media = run_keep(r, e->media),
                               .bytes = e->bytes,
                               .failed = e->failed};
    c->result = kept;
    turn_now(r)->over++;
    count_call(r, c, e);
    judge(r, c, e);
    return 0;
}

static int take_aside(struct run *r, const struct run_event *e, struct err *err) {
    (void)err;
    count_usage(r, e);
    r->lent_turns += e->budget.turns;
    return 0;
}

static int take_held(struct run *r, const struct run_event *e, struct err *err) {
    if (r->held || (e->tool && !call_of(r, e)))
        return run_refuse(e, err);
    r->held = run_keep(r, e->text);
    r->wants_word = e->tool;
    r->word_index = e->index;
    return 0;
}

static int take_freed(struct run *r, const struct run_event *e, struct err *err) {
    if (!r->held || r->wants_word)
        return run_refuse(e, err);
    r->held = NULL;
    return 0;
}

/* True if the owner's decision is about this call. An older daemon wrote no hash. */
static bool is_about(const struct run_event *e, const struct run_call *c) {
    char hash[WORD_HASH_SIZE];
    word_hash(c->part, hash);
    return !e->hash || (e->tool && is_named(c, e->tool) && strcmp(e->hash, hash) == 0);
}

static int run_take_word(struct run *r, const struct run_event *e, struct err *err) {
    struct run_call *c = call_of(r, e);
    if (!r->wants_word || e->index != r->word_index || !c || !is_about(e, c))
        return run_refuse(e, err);
    c->approved = e->good;
    c->denied = !e->good;
    r->held = NULL;
    r->wants_word = false;
    return 0;
}

static int take_mark(struct run *r, struct run_mark *m, const struct run_event *e,
                     struct err *err) {
    bool ends = e->step || e->text;
    if (ends != m->open || (ends && strcmp(m->name, e->name) != 0))
        return run_refuse(e, err);
    m->open = !ends;
    m->recover = false;
    m->begun_ms = e->time_ms;
    m->name = run_keep(r, e->name);
    if (e->step)
        m->step = run_keep(r, e->step);
    return 0;
}

static int take_point(struct run *r, const struct run_event *e, struct err *err) {
    if (take_mark(r, &r->point, e, err) < 0)
        return -1;
    r->points += r->point.open;
    if (!r->point.open) { /* a failed checkpoint is not retried at once */
        r->changes = 0;
        r->point_turn = r->count;
    }
    return 0;
}

static int run_take_back(struct run *r, const struct run_event *e, struct err *err) {
    if (take_mark(r, &r->back, e, err) < 0)
        return -1;
    r->backs += !r->back.open;
    return 0;
}

static void stop_working(struct run *r, const char *status, const char *reason) {
    r->stop_status = status;
    r->stop_reason = reason;
}

static int take_note(struct run *r, const struct run_event *e, struct err *err) {
    struct run_turn *t = turn_now(r);
    if (t->over != t->call_count || t->note_count >= NOTES_MAX)
        return run_refuse(e, err);
    t->notes = arena_grow(&r->arena, t->notes, t->note_count, sizeof(*t->notes));
    const char *text = run_keep(r, e->text);
    t->notes[t->note_count++] = (struct run_told){e->note, text};
    r->noted |= 1u << e->note;
    if (e->note == RUN_NOTE_BUDGET)
        stop_working(r, "budget", text);
    if (e->note == RUN_NOTE_SPENT) {
        r->refusals++;
        stop_working(r, "budget", text);
    }
    if (e->note == RUN_NOTE_FULL) {
        r->full++;
        hand_over(r, r->full > 1 ? 0 : kept_tokens(r));
    }
    if (e->note == RUN_NOTE_STUCK) {
        stuck_told(&r->stuck);
        if (++r->stuck_level >= 3)
            stop_working(r, "stuck", text);
    }
    return 0;
}

static int take_prune(struct run *r, const struct run_event *e, struct err *err) {
    if (e->before <= r->prune_before || e->before > r->count)
        return run_refuse(e, err);
    r->prune_before = e->before;
    return 0;
}

static int take_stopped(struct run *r, const struct run_event *e, struct err *err) {
    (void)err;
    r->phase = RUN_INTERRUPTED;
    r->why = run_keep(r, e->text);
    return 0;
}

static int take_end(struct run *r, const struct run_event *e, struct err *err) {
    (void)err;
    r->phase = RUN_ENDED;
    r->status = run_keep(r, e->status);
    r->report = run_keep(r, e->report);
    return 0;
}

/* A returned run continues with its whole history and the same budget. */
static int take_return(struct run *r, const struct run_event *e, struct err *err) {
    const struct run_event note = {.kind = RUN_NOTE, .note = RUN_NOTE_PLAIN, .text = e->text};
    struct run_turn *t = turn_now(r);
    if (t->over != t->call_count || t->note_count >= NOTES_MAX || r->cancelling)
        return run_refuse(e, err);
    r->phase = RUN_RUNNING;
    r->wants_word = false;
    r->held = r->status = r->report = r->accepted = NULL;
    r->stop_status = r->stop_reason = NULL;
    r->checks = r->silent = r->malformed = r->stuck_level = 0;
    r->acted = false;
    r->returned = e->name ? run_keep(r, e->name) : NULL;
    return take_note(r, &note, err);
}

/* ---- several tries ---- */

static struct run_try *try_of(struct run *r, const struct run_event *e) {
    return e->index < r->start.tries ? &r->tries[e->index] : NULL;
}

/* The first RUN_TRY line of a try sets its machine, the second its run; neither changes later. */
static int take_try(struct run *r, const struct run_event *e, struct err *err) {
    struct run_try *x = try_of(r, e);
    bool first = x && !x->machine && !e->run,
         second = x && x->machine && !x->run && e->run && strcmp(x->machine, e->machine) == 0;
    if (!first && !second)
        return run_refuse(e, err);
    if (first)
        x->machine = run_keep(r, e->machine);
    else
        x->run = run_keep(r, e->run);
    return 0;
}

static int take_judged(struct run *r, const struct run_event *e, struct err *err) {
    struct run_try *x = try_of(r, e);
    if (!x || !x->run || x->judged)
        return run_refuse(e, err);
    x->judged = true;
    x->good = e->good;
    x->changes = e->changes;
    x->changeset = run_keep(r, e->changeset);
    x->place = run_keep(r, e->machine);
    count_usage(r, e);
    r->lent_turns += e->budget.turns;
    r->calls += e->calls;
    return 0;
}

static int take_cancel(struct run *r, const struct run_event *e, struct err *err) {
    if (!r->start.tries || r->cancelling)
        return run_refuse(e, err);
    r->cancelling = true;
    return 0;
}

size_t run_best_try(const struct run *r) {
    size_t best = 0;
    for (size_t i = 1; i < r->start.tries; i++) {
        const struct run_try *a = &r->tries[i], *b = &r->tries[best];
        if (a->good != b->good ? a->good : a->changes < b->changes)
            best = i;
    }
    return best;
}

/* For human readers only. */
static int take_retry(struct run *r, const struct run_event *e, struct err *err) {
    (void)r;
    (void)e;
    (void)err;
    return 0;
}

typedef int take_fn(struct run *r, const struct run_event *e, struct err *err);

static take_fn *const takers[] = {
    [RUN_START] = take_start,   [RUN_RESUME] = take_resume,   [RUN_ANSWER] = take_answer,
    [RUN_CALL] = take_call,     [RUN_SURE] = take_sure,       [RUN_RESULT] = take_result,
    [RUN_POINT] = take_point,   [RUN_BACK] = run_take_back,   [RUN_NOTE] = take_note,
    [RUN_PRUNE] = take_prune,   [RUN_STOPPED] = take_stopped, [RUN_END] = take_end,
    [RUN_ASIDE] = take_aside,   [RUN_HELD] = take_held,       [RUN_FREED] = take_freed,
    [RUN_RETURN] = take_return, [RUN_TRY] = take_try,         [RUN_JUDGED] = take_judged,
    [RUN_WORD] = run_take_word, [RUN_CANCEL] = take_cancel,   [RUN_RETRY] = take_retry,
};

/* The time between transcript lines is charged to the run, unless it waits or is interrupted. */
static void count_time(struct run *r, const struct run_event *e, bool was_held) {
    if (e->kind != RUN_RESUME && e->kind != RUN_RETURN && !was_held && r->phase == RUN_RUNNING &&
        e->time_ms > r->last_ms)
        r->active_ms += (uint64_t)(e->time_ms - r->last_ms);
    if (e->time_ms > r->last_ms)
        r->last_ms = e->time_ms;
}

int run_take(struct run *r, const struct run_event *e, struct err *err) {
    bool fits = r->lines
                    ? e->kind != RUN_START && (r->phase == RUN_ENDED) == (e->kind == RUN_RETURN)
                    : e->kind == RUN_START;
    if (r->phase == RUN_INTERRUPTED && e->kind != RUN_RESUME && e->kind != RUN_END)
        fits = false;
    if (!fits)
        return run_refuse(e, err);
    bool was_held = r->held;
    if (takers[e->kind](r, e, err) < 0)
        return -1;
    count_time(r, e, was_held);
    r->lines++;
    return 0;
}

int run_take_bytes(struct run *r, const char *bytes, size_t n, size_t *ret_used, struct err *err) {
    size_t at = 0;
    for (const char *end; (end = memchr(bytes + at, '\n', n - at));) {
        struct arena a = {0};
        struct run_event e;
        size_t len = (size_t)(end - bytes) - at;
        int status = run_event_read(bytes + at, len, &a, &e, err);
        if (status == 0)
            status = run_take(r, &e, err);
        arena_done(&a);
        if (status < 0)
            return err_wrap(err, "line %llu of the transcript", (unsigned long long)r->lines + 1);
        at += len + 1;
        *ret_used = at;
        if (at == n)
            break;
    }
    return 0;
}
