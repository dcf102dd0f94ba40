/* Computes the next action of a run (run_next()). */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "base/jot.h"
#include "base/text/visible.h"
#include "operator/mode.h"
#include "operator/prompt.h"
#include "operator/run.h"
#include "operator/word.h"
#include "service/steps/risky.h"
#include "tools/requests.h"
#include "tools/tables.h"

enum {
    WORK_TOKENS = 8192,
    REPORT_TOKENS = 2048,
    HAND_OVER_TOKENS = 4096,
    SILENT_MAX = 3,    /* consecutive answers without a tool call that end the run */
    MALFORMED_MAX = 3, /* consecutive answers without a parsable call that end the run */
    CHECKS_MAX = 3,
    REFUSALS_MAX = 2,
    FULL_MAX = 3,
    POINT_EVERY = 20, /* turns between two checkpoints of a run that changes files */
    RISKY_WORDS = 256,
    REPORT_MAX = 512 << 10,
    WORD_MAX = 16 << 10, /* largest call, in bytes, that is shown to the owner for approval */
};

/* The inputs of run_next(), and its result. */
struct looking {
    const struct run *run;
    const struct run_tools *tools;
    const struct run_turn *turn;
    int64_t now_ms;
    struct arena *arena;
    struct run_intent *ret;
};

static bool next_tell(struct looking *l, const struct run_event *e) {
    l->ret->what = RUN_DO_TELL;
    l->ret->event = *e;
    return true;
}

static bool tell_note(struct looking *l, enum run_note note, const char *text) {
    return next_tell(l, &(struct run_event){.kind = RUN_NOTE, .note = note, .text = text});
}

static bool tell_result(struct looking *l, size_t index, bool failed, const char *status,
                        const char *text) {
    return next_tell(
        l,
        &(struct run_event){
            .kind = RUN_RESULT, .index = index, .failed = failed, .status = status, .text = text});
}

static bool next_ask(struct looking *l, enum run_purpose purpose, uint64_t max_tokens) {
    l->ret->what = RUN_DO_ASK;
    l->ret->purpose = purpose;
    l->ret->max_tokens = max_tokens;
    return true;
}

/* ---- end of the run ---- */

static void put_spent(struct jot *j, const struct run *r) {
    jot_u64(j, "turns", r->used_turns);
    jot_u64(j, "calls", r->calls);
    jot_u64(j, "tokens", r->tokens);
    jot_u64(j, "input_tokens", r->usage.in);
    jot_u64(j, "cache_read_tokens", r->usage.cache_read);
    jot_u64(j, "cache_write_tokens", r->usage.cache_write + r->usage.cache_write_long);
    jot_u64(j, "output_tokens", r->usage.out);
    jot_u64(j, "cost_micro", r->micro);
    jot_u64(j, "wall_ms", r->active_ms);
    jot_u64(j, "checkpoints", r->points);
    jot_u64(j, "rewinds", r->backs);
    tool_counts_put(&r->tools, j, "tools");
}

/* Writes the members of the report as the model gave them. */
static void put_claimed(struct jot *j, const char *arguments) {
    static const char *const names[] = {"summary", "evidence", "outputs", "open_issues"};
    json_t *in DEFER(json_decrefp) = arguments ? json_loads(arguments, 0, NULL) : NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char *text DEFER_FREE = NULL;
        const json_t *value = json_object_get(in, names[i]);
        if (value)
            text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
        jot_raw(j, names[i], text ? text : i ? "[]" : "\"\"");
    }
    const char *status = json_string_value(json_object_get(in, "status"));
    if (status)
        jot_string(j, "claimed", status);
}

struct run_event run_end_event(const struct run *r, const char *status, const char *reason,
                               struct arena *a) {
    struct buf text DEFER(buf_done) = BUF(REPORT_MAX);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    if (reason)
        jot_string(&j, "reason", reason);
    put_claimed(&j, r->accepted);
    put_spent(&j, r);
    jot_end(&j, '}');
    return (struct run_event){.kind = RUN_END,
                              .status = status,
                              .report = j.failed ? "{\"reason\":\"the report is too long\"}"
                                                 : arena_copy(a, text.data, text.len)};
}

static bool next_end(struct looking *l, const char *status, const char *reason) {
    struct run_event e = run_end_event(l->run, status, reason, l->arena);
    return next_tell(l, &e);
}

static bool end_accepted(struct looking *l) {
    const struct run *r = l->run;
    json_t *in DEFER(json_decrefp) = json_loads(r->accepted, 0, NULL);
    const char *status = json_string_value(json_object_get(in, "status"));
    const char *claimed = status ? arena_copy(l->arena, status, strlen(status)) : "partial";
    bool unchecked = r->checks >= CHECKS_MAX && !r->acted && strcmp(claimed, "done") == 0;
    if (r->stop_status)
        return next_end(l, r->stop_status, r->stop_reason);
    return next_end(l, unchecked ? "partial" : claimed,
                    unchecked ? "the model was asked to run a check and did not" : NULL);
}

/* ---- finish ---- */

static bool finish_said(struct looking *l, size_t index, bool done) {
    const struct run *r = l->run;
    bool needs_check = done && !r->stop_status && mode_of(r)->verifies;
    if (!needs_check || r->checks >= CHECKS_MAX || (r->checks && r->acted))
        return tell_result(l, index, false, "accepted", "{\"status\":\"accepted\"}");
    return tell_result(l, index, false, "check", r->checks ? prompt_check_again : prompt_check);
}

static bool finish_called(struct looking *l, size_t index, const struct run_call *c) {
    struct finish_input in = {0};
    struct err err;
    json_t *json DEFER(json_decrefp) = json_loads(c->part->text, 0, NULL);
    int status = schema_read(&finish_input_schema, json, &in, &err);
    if (status == 0)
        status = finish_check(&in, &err);
    bool done = status == 0 && strcmp(in.status, "done") == 0;
    schema_done(&finish_input_schema, &in);
    if (status == 0)
        return finish_said(l, index, done);
    const char *why =
        arena_printf(l->arena, "%s%s%s", err.text, err.remedy[0] ? "\n" : "", err.remedy);
    return tell_result(l, index, true, NULL, why);
}

/* ---- freeze ---- */

static bool freeze_called(struct looking *l, size_t index, const struct run_call *c) {
    char hash[65];
    struct err err;
    if (mode_freeze(l->run, c->part->text, l->tools, hash, &err) == 0)
        return tell_result(
            l, index, false, "frozen",
            arena_printf(l->arena, "{\"status\":\"frozen\",\"sha256\":\"%s\"}", hash));
    return tell_result(
        l, index, true, NULL,
        arena_printf(l->arena, "%s%s%s", err.text, err.remedy[0] ? "\n" : "", err.remedy));
}

/* ---- calls ---- */

/* True if the call is so risky that a checkpoint must be made before it. */
static bool call_is_risky(const struct run_call *c) {
    json_t *in DEFER(json_decrefp) = json_loads(c->part->text, 0, NULL);
    const char *cmd = json_string_value(json_object_get(in, "cmd"));
    const json_t *argv = json_object_get(in, "argv");
    const char *words[RISKY_WORDS + 1] = {0};
    if (strcmp(c->part->name, "install") == 0)
        return true;
    if (strcmp(c->part->name, "exec") != 0)
        return false;
    if (cmd) {
        const char *const shell[] = {"sh", "-c", cmd, NULL};
        return is_risky(shell);
    }
    for (size_t i = 0, n = 0; i < json_array_size(argv) && n < RISKY_WORDS; i++) {
        const char *word = json_string_value(json_array_get(argv, i));
        if (word)
            words[n++] = word;
    }
    return is_risky(words);
}

static bool take_point(struct looking *l) {
    const struct run *r = l->run;
    l->ret->what = RUN_DO_POINT;
    l->ret->begun = r->point.open;
    l->ret->event = (struct run_event){
        .kind = RUN_POINT,
        .name = r->point.open ? r->point.name
                              : arena_printf(l->arena, "%s-%" PRIu64, r->start.run, r->points + 1)};
    return true;
}

static const struct tool *tool_of(const struct looking *l, const struct run_call *c) {
    return l->tools->find(l->tools->arg, c->part->name);
}

/*
 * A checkpoint is made before the first call that may change files, and before a risky call if
 * files may have changed since the last checkpoint.
 */
static bool wants_point(const struct looking *l, const struct run_call *c) {
    const struct run *r = l->run;
    const struct tool *t = tool_of(l, c);
    if (c->recover || r->point_turn >= r->count || t->hints & TOOL_READ_ONLY ||
        !(t->hints & TOOL_MACHINE))
        return false;
    return !r->points || (r->changes && call_is_risky(c));
}

static bool looks_only(const struct looking *l, const struct run_call *c) {
    const struct tool *t = c->part->bad ? NULL : tool_of(l, c);
    return t && t->hints & TOOL_READ_ONLY && t->hints & TOOL_IDEMPOTENT && !c->result;
}

static bool no_tool(struct looking *l, size_t index, const struct run_call *c) {
    const char *text = arena_printf(l->arena, "There is no tool '%.80s'. The tools are: %s.",
                                    c->part->name, l->tools->names);
    return tell_result(l, index, true, NULL, text);
}

/* The whole call as shown to the owner, with all characters visible, its length and its hash. */
static bool put_whole_call(struct jot *j, const struct model_part *call) {
    struct buf shown DEFER(buf_done) = BUF(16 * WORD_MAX);
    char hash[WORD_HASH_SIZE];
    if (call->n > WORD_MAX || !visible_add(&shown, call->text, call->n))
        return false;
    word_hash(call, hash);
    jot_bytes(j, "path", shown.data, shown.len);
    jot_u64(j, "bytes", call->n);
    jot_string(j, "sha256", hash);
    return true;
}

static bool refuse_unseen(struct looking *l, size_t i) {
    return tell_result(l, i, true, NULL,
                       arena_printf(l->arena,
                                    "The call was not made: it is not one of the fixed calls, and "
                                    "it is too long to ask the owner about it (limit: %d KiB).",
                                    WORD_MAX >> 10));
}

/* Asks the owner to approve a call that is not in the plan, and waits for the decision. */
static bool wait_for_word(struct looking *l, size_t i, const struct run_call *c, const char *why) {
    struct buf text DEFER(buf_done) = BUF(1 << 20);
    struct jot j = JOT(&text);
    char item[WORD_ITEM_SIZE];
    if (l->run->held) {
        l->ret->what = RUN_DO_WAIT;
        return true;
    }
    word_item(l->run, i, item);
    jot_object(&j, NULL);
    jot_object(&j, "approval");
    jot_string(&j, "id", item);
    jot_string(&j, "machine", l->run->start.machine);
    jot_string(&j, "protocol", "call");
    jot_string(&j, "host", c->part->name);
    if (!put_whole_call(&j, c->part))
        return refuse_unseen(l, i);
    jot_string(&j, "why", why);
    jot_end(&j, '}');
    jot_end(&j, '}');
    if (j.failed)
        return refuse_unseen(l, i);
    l->ret->what = RUN_DO_TELL;
    l->ret->event = (struct run_event){.kind = RUN_HELD,
                                       .index = i,
                                       .tool = c->part->name,
                                       .text = arena_copy(l->arena, text.data, text.len)};
    return true;
}

/* Answers a call that needs no tool, or returns the intent to make it. */
static bool do_call(struct looking *l, size_t i) {
    const struct run_turn *t = l->turn;
    const struct run_call *c = &t->calls[i];
    bool finish = strcmp(c->part->name, "finish") == 0;
    if (l->run->accepted)
        return tell_result(l, i, true, NULL,
                           "The call was not made: the run has already finished.");
    if (c->part->bad)
        return tell_result(l, i, true, NULL, c->part->bad);
    if (finish)
        return finish_called(l, i, c);
    if (t->purpose == RUN_REPORT || l->run->stop_status)
        return tell_result(l, i, true, NULL, prompt_only_report);
    if (!tool_of(l, c))
        return no_tool(l, i, c);
    if (strcmp(c->part->name, "freeze") == 0)
        return freeze_called(l, i, c);
    const char *refused = mode_refuses(l->run, c, l->arena);
    if (refused && l->run->start.asks && l->run->frozen && !c->denied)
        return wait_for_word(l, i, c, refused);
    if (refused)
        return tell_result(l, i, true, NULL, refused);
    if (wants_point(l, c))
        return take_point(l);
    l->ret->what = RUN_DO_CALL;
    l->ret->first = i;
    l->ret->count = 1;
    while (mode_of(l->run)->calls == MODE_CALLS_ANY && looks_only(l, c) &&
           i + l->ret->count < t->call_count && looks_only(l, &t->calls[i + l->ret->count]))
        l->ret->count++;
    return true;
}

static bool next_call(struct looking *l) {
    const struct run_turn *t = l->turn;
    for (size_t i = 0; i < t->call_count; i++)
        if (t->calls[i].begun && !t->calls[i].result && !t->calls[i].recover) {
            l->ret->what = RUN_DO_WAIT;
            return true;
        }
    for (size_t i = 0; i < t->call_count; i++)
        if (!t->calls[i].result)
            return do_call(l, i);
    return false;
}

/* ---- budgets ---- */

struct dimension {
    const char *what;
    enum run_note warn;
    uint64_t spent, limit;
    unsigned per; /* divisor for the unit that is shown: 1000 for ms shown as s */
    const char *unit;
};

/* The spent part of the budget, such as "12 of 40 s". */
static const char *spent_of(struct looking *l, const struct dimension *d) {
    return arena_printf(l->arena, "%.12g of %.12g%s", (double)d->spent / d->per,
                        (double)d->limit / d->per, d->unit);
}

static bool over_budget(struct looking *l, const struct dimension *d) {
    if (!d->limit || d->spent < d->limit)
        return false;
    return tell_note(l, RUN_NOTE_BUDGET,
                     arena_printf(l->arena,
                                  "The budget of %s is used up (%s). Call finish now and report "
                                  "what was done and what is left.",
                                  d->what, spent_of(l, d)));
}

static bool near_budget(struct looking *l, const struct dimension *d) {
    if (!d->limit || d->spent < d->limit - d->limit / 5 || l->run->noted & 1u << d->warn)
        return false;
    return tell_note(l, d->warn,
                     arena_printf(l->arena,
                                  "80 %% of the budget of %s is used (%s). Bring the work to an "
                                  "end.",
                                  d->what, spent_of(l, d)));
}

static bool look_budget(struct looking *l) {
    const struct run *r = l->run;
    const struct run_budget *b = &r->start.budget;
    const struct dimension all[] = {
        {"turns", RUN_NOTE_WARN_TURNS, r->used_turns + r->lent_turns, b->turns, 1, ""},
        {"tokens", RUN_NOTE_WARN_TOKENS, r->tokens, b->tokens, 1, ""},
        {"money", RUN_NOTE_WARN_MONEY, r->micro, b->micro, 1000000, ""},
        {"time", RUN_NOTE_WARN_TIME, run_active_ms(r, l->now_ms), b->timeout_ms, 1000, " s"},
    };
    enum { ALL = sizeof(all) / sizeof(*all) };
    for (size_t i = 0; i < ALL; i++)
        if (over_budget(l, &all[i]))
            return true;
    for (size_t i = 0; i < ALL; i++)
        if (near_budget(l, &all[i]))
            return true;
    return false;
}

/* ---- runs without progress ---- */

static bool look_stuck(struct looking *l) {
    const struct run *r = l->run;
    enum stuck_pattern pattern = stuck_look(&r->stuck);
    if (pattern == STUCK_NOT)
        return false;
    bool rewinds = r->stuck_level == 1 && r->point.step;
    if (rewinds && !r->backs) {
        l->ret->what = RUN_DO_BACK;
        l->ret->begun = r->back.open;
        l->ret->event = (struct run_event){.kind = RUN_BACK, .name = r->point.step};
        return true;
    }
    static const char *const advice[] = {
        "Stop and think: write a new plan with the tool plan and try another approach.",
        "Try another approach, or call finish with what you have.",
        "The work ends here. Call finish now and report what was done and what is left.",
    };
    unsigned level = r->stuck_level < 2 ? r->stuck_level : 2;
    return tell_note(
        l, RUN_NOTE_STUCK,
        arena_printf(
            l->arena, "You are stuck: %s. %s%s", stuck_says(pattern),
            rewinds && r->back.step
                ? "All files were rewound to the last checkpoint, and running commands were ended. "
                : "",
            advice[level]));
}

/* ---- answers without usable calls ---- */

static bool has_note(const struct run_turn *t, enum run_note note) {
    for (size_t i = 0; i < t->note_count; i++)
        if (t->notes[i].note == note)
            return true;
    return false;
}

static bool look_answer(struct looking *l) {
    const struct run *r = l->run;
    const struct run_turn *t = l->turn;
    if (r->count == 1 || t->purpose == RUN_HAND_OVER)
        return false;
    if (t->stop == MODEL_STOP_REFUSED)
        return next_end(l, "refused", "the model refused to answer");
    if (r->malformed >= MALFORMED_MAX)
        return next_end(l, "format_error", "the model's calls cannot be read");
    if (t->call_count || t->stop == MODEL_STOP_PAUSED || has_note(t, RUN_NOTE_NUDGE))
        return false;
    if (r->silent >= SILENT_MAX)
        return next_end(l, "partial", "the model stopped without a report");
    return tell_note(l, RUN_NOTE_NUDGE, t->stop == MODEL_STOP_LENGTH ? prompt_cut : prompt_nudge);
}

static bool look_report(struct looking *l) {
    const struct run *r = l->run;
    if (!r->stop_status)
        return false;
    if (l->turn->purpose == RUN_REPORT || r->refusals >= REFUSALS_MAX)
        return next_end(l, r->stop_status, r->stop_reason);
    return next_ask(l, RUN_REPORT, REPORT_TOKENS);
}

/* ---- context ---- */

static bool look_context(struct looking *l) {
    const struct run *r = l->run;
    uint64_t tokens = run_context_tokens(r), window = r->start.window;
    size_t before = tokens * 10 > window * 6 ? run_prune_at(r) : 0;
    if (r->full >= FULL_MAX)
        return next_end(l, "failed", "the task does not fit in the model's context window");
    if (before)
        return next_tell(l, &(struct run_event){.kind = RUN_PRUNE, .before = before});
    if (tokens * 10 > window * 8 && r->count - 1 > r->hand_over + 1)
        return next_ask(l, RUN_HAND_OVER, HAND_OVER_TOKENS);
    return false;
}

/* ---- the next action ---- */

static bool look_point(struct looking *l) {
    const struct run *r = l->run;
    if (r->point.open)
        return take_point(l);
    if (r->back.open) {
        l->ret->what = RUN_DO_BACK;
        l->ret->begun = true;
        l->ret->event = (struct run_event){.kind = RUN_BACK, .name = r->back.name};
        return true;
    }
    return false;
}

static bool look_point_due(struct looking *l) {
    const struct run *r = l->run;
    return r->changes && r->count >= r->point_turn + POINT_EVERY && take_point(l);
}

static bool look_accepted(struct looking *l) {
    return l->run->accepted && end_accepted(l);
}

static bool look_work(struct looking *l) {
    return next_ask(l, RUN_WORK, WORK_TOKENS);
}

void run_next(const struct run *r, const struct run_tools *may, int64_t now_ms, struct arena *a,
              struct run_intent *ret) {
    static bool (*const looks[])(struct looking *) = {
        look_point, next_call,   look_accepted, look_report,    look_answer,
        look_stuck, look_budget, look_context,  look_point_due, look_work,
    };
    *ret = (struct run_intent){.what = RUN_DO_NOTHING};
    if (r->phase != RUN_RUNNING || !r->count)
        return;
    struct looking l = {r, may, run_turn_now(r), now_ms, a, ret};
    for (size_t i = 0; i < sizeof(looks) / sizeof(*looks) && !looks[i](&l);)
        i++;
}
