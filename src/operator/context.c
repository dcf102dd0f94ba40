/* Builds the request for the model from the state of a run. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "operator/mode.h"
#include "operator/prompt.h"
#include "operator/run.h"

enum { PRUNED_MIN = 400, KEPT_RESULT_TOKENS = 40000 };

static bool is_pruned(const struct run *r, size_t turn, const struct run_call *c) {
    const struct run_event *e = c->result;
    return turn < r->prune_before && !e->failed && (strlen(e->text) >= PRUNED_MIN || e->image) &&
           strcmp(c->part->name, "edit") != 0;
}

static bool is_shown(const struct run *r, size_t turn) {
    if (r->turns[turn].purpose == RUN_HAND_OVER && turn)
        return false;
    return !r->hand_over || turn > r->hand_over || turn >= r->keep_from;
}

/* ---- size of the context ---- */

static uint64_t result_bytes(const struct run_event *e) {
    return strlen(e->text) + (e->image ? strlen(e->image) / 100 : 0);
}

static uint64_t turn_bytes(const struct run *r, size_t turn) {
    const struct run_turn *t = &r->turns[turn];
    uint64_t n = 0;
    for (size_t i = 0; i < t->count; i++)
        n += t->parts[i].n + 60;
    for (size_t i = 0; i < t->call_count; i++)
        if (t->calls[i].result)
            n += is_pruned(r, turn, &t->calls[i]) || mode_hides(r, &t->calls[i])
                     ? 160
                     : result_bytes(t->calls[i].result) + 60;
    for (size_t i = 0; i < t->note_count; i++)
        n += strlen(t->notes[i].text);
    return n;
}

/* Tokens per byte of the last request, in thousandths: at least 125 and at most 1000. */
static uint64_t token_milli(const struct run *r) {
    uint64_t milli = r->last_bytes ? r->last_in * 1000 / r->last_bytes : 250;
    return milli < 125 ? 125 : milli > 1000 ? 1000 : milli;
}

uint64_t run_context_tokens(const struct run *r) {
    uint64_t bytes = r->start.prompt_bytes + strlen(r->start.task) + strlen(r->start.card);
    for (size_t i = 0; i < r->count; i++)
        if (is_shown(r, i))
            bytes += turn_bytes(r, i);
    return bytes * token_milli(r) / 1000;
}

static uint64_t prunable(const struct run *r, size_t turn) {
    const struct run_turn *t = &r->turns[turn];
    uint64_t n = 0;
    for (size_t i = 0; i < t->call_count; i++)
        if (t->calls[i].result && !t->calls[i].result->failed && !mode_hides(r, &t->calls[i]) &&
            strlen(t->calls[i].result->text) >= PRUNED_MIN)
            n += result_bytes(t->calls[i].result);
    return n;
}

size_t run_prune_at(const struct run *r) {
    uint64_t window = r->start.window, gain = 0, kept = 0;
    uint64_t keep = window / 4 < KEPT_RESULT_TOKENS ? window / 4 : KEPT_RESULT_TOKENS;
    size_t at = r->count - 1; /* the results of the newest turn are never shortened */
    while (at > 0 && kept * token_milli(r) / 1000 < keep)
        kept += turn_bytes(r, at--);
    for (size_t i = r->prune_before; i < at; i++)
        gain += is_shown(r, i) ? prunable(r, i) : 0;
    return gain * token_milli(r) / 1000 >= window / 20 ? at : 0;
}

/* ---- the messages ---- */

struct rendering {
    const struct run *run;
    struct arena *arena;
    struct model_message *messages;
    size_t count, bytes;
};

static struct model_part text_part(struct rendering *w, const char *text) {
    size_t n = strlen(text);
    w->bytes += n;
    return (struct model_part){.kind = MODEL_TEXT, .text = text, .n = n};
}

static void add_message(struct rendering *w, enum model_role role, const struct model_part *parts,
                        size_t count) {
    w->messages = arena_grow(w->arena, w->messages, w->count, sizeof(*w->messages));
    w->messages[w->count++] = (struct model_message){role, parts, count};
}

static struct model_part result_part(struct rendering *w, size_t turn, size_t index) {
    const struct run_call *c = &w->run->turns[turn].calls[index];
    const struct run_event *e = c->result;
    const char *text = mode_shown(w->run, turn, index, w->arena);
    bool hidden = mode_hides(w->run, c), pruned = !hidden && is_pruned(w->run, turn, c);
    if (pruned)
        text = arena_printf(w->arena,
                            "[result of %zu bytes left out: repeat the call, or read the "
                            "transcript at /run/carrel/transcript.jsonl]",
                            strlen(e->text));
    struct model_part p = text_part(w, text);
    p.kind = MODEL_RESULT;
    p.id = c->part->id;
    p.name = c->part->name;
    p.failed = e->failed;
    if (e->image && !pruned && !hidden) {
        struct model_part *image = arena_alloc(w->arena, sizeof(*image));
        *image = (struct model_part){
            .kind = MODEL_IMAGE, .text = e->image, .n = strlen(e->image), .media = e->media};
        p.images = image;
        p.image_count = 1;
        w->bytes += image->n;
    }
    return p;
}

/* The line about the remaining budget comes after the results, so that the provider's cache of
 * everything before it stays valid. */
static const char *meter(struct rendering *w, size_t turn) {
    const struct run *r = w->run;
    const struct run_budget *b = &r->start.budget;
    const struct run_turn *t = &r->turns[turn];
    char turns[24] = "", tokens[48] = "", elapsed[48] = "";
    if (b->turns)
        snprintf(turns, sizeof(turns), " of %" PRIu64, b->turns);
    if (b->tokens)
        snprintf(tokens, sizeof(tokens), ", %" PRIu64 " of %" PRIu64 " tokens", t->spent_tokens,
                 b->tokens);
    if (b->timeout_ms)
        snprintf(elapsed, sizeof(elapsed), ", %" PRIu64 " of %" PRIu64 " s", t->spent_ms / 1000,
                 b->timeout_ms / 1000);
    return arena_printf(w->arena, "[turn %zu%s%s%s]", turn, turns, tokens, elapsed);
}

/* Adds the results of a turn's calls, in the order of the calls, then the notes to the model. */
static void add_results(struct rendering *w, size_t turn, const char *more) {
    const struct run_turn *t = &w->run->turns[turn];
    struct model_part *parts =
        arena_alloc(w->arena, (t->call_count + t->note_count + 2) * sizeof(*parts));
    size_t n = 0;
    for (size_t i = 0; i < t->call_count; i++)
        if (t->calls[i].result)
            parts[n++] = result_part(w, turn, i);
    for (size_t i = 0; i < t->note_count; i++)
        parts[n++] = text_part(w, t->notes[i].text);
    parts[n++] = text_part(w, meter(w, turn));
    if (more)
        parts[n++] = text_part(w, more);
    add_message(w, MODEL_USER, parts, n);
}

static const char *hand_over_text(struct rendering *w) {
    const struct run *r = w->run;
    const struct run_turn *t = &r->turns[r->hand_over];
    for (size_t i = 0; t->purpose == RUN_HAND_OVER && i < t->count; i++)
        if (t->parts[i].kind == MODEL_TEXT)
            return t->parts[i].text;
    return "(none: the context window was full)";
}

/* Adds the first message. The turn in which the model wrote a hand-over (a summary of the turns
 * before) is not shown, so its notes are added here. */
static void add_first(struct rendering *w) {
    const struct run *r = w->run;
    const struct run_turn *t = &r->turns[0];
    const struct run_turn *over =
        r->hand_over && !is_shown(r, r->hand_over) ? &r->turns[r->hand_over] : NULL;
    size_t notes = t->note_count + (over ? over->note_count : 0);
    struct model_part *parts = arena_alloc(w->arena, (notes + 4) * sizeof(*parts));
    size_t n = 0;
    parts[n++] = text_part(w, r->start.card);
    parts[n++] = text_part(w, arena_printf(w->arena, "The task:\n%s", r->start.task));
    for (size_t i = 0; i < t->note_count; i++)
        parts[n++] = text_part(w, t->notes[i].text);
    if (r->hand_over)
        parts[n++] = text_part(
            w, arena_printf(w->arena,
                            "Earlier turns were cut off; read the complete transcript at "
                            "/run/carrel/transcript.jsonl. The plan: %s\nThe hand-over:\n%s",
                            r->plan ? r->plan : "none", hand_over_text(w)));
    for (size_t i = 0; over && i < over->note_count; i++)
        parts[n++] = text_part(w, over->notes[i].text);
    add_message(w, MODEL_USER, parts, n);
}

static void add_turn(struct rendering *w, size_t turn, const char *more) {
    const struct run_turn *t = &w->run->turns[turn];
    for (size_t i = 0; i < t->count; i++)
        w->bytes += t->parts[i].n;
    if (t->count) {
        add_message(w, MODEL_ASSISTANT, t->parts, t->count);
    } else {
        struct model_part *empty = arena_alloc(w->arena, sizeof(*empty));
        *empty = text_part(w, "(empty answer)");
        add_message(w, MODEL_ASSISTANT, empty, 1);
    }
    add_results(w, turn, turn == w->run->count - 1 ? more : NULL);
}

void run_render(const struct run *r, enum run_purpose purpose, uint64_t max_tokens,
                const struct run_prompt *prompt, struct arena *a, struct model_request *ret,
                size_t *ret_bytes) {
    struct rendering w = {.run = r, .arena = a, .bytes = strlen(prompt->system)};
    const char *more = purpose == RUN_HAND_OVER ? prompt_hand_over : NULL;
    add_first(&w);
    for (size_t i = 1; i < r->count; i++)
        if (is_shown(r, i))
            add_turn(&w, i, more);
    for (size_t i = 0; i < prompt->tool_count; i++)
        w.bytes += strlen(prompt->tools[i].description) + strlen(prompt->tools[i].schema);
    *ret = (struct model_request){
        .model = r->start.model,
        .system = prompt->system,
        .tools = prompt->tools,
        .tool_count = prompt->tool_count,
        .choice = purpose == RUN_HAND_OVER ? MODEL_CHOICE_NONE
                  : purpose == RUN_REPORT  ? MODEL_CHOICE_NAMED
                                           : MODEL_CHOICE_AUTO,
        .choice_name = purpose == RUN_REPORT ? "finish" : NULL,
        .messages = w.messages,
        .message_count = w.count,
        .max_tokens = max_tokens,
        .cache_key = r->start.run,
        .stream = true,
    };
    *ret_bytes = w.bytes;
}
