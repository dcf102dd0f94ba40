/*
 * The state of a run and what it does next: functions of its transcript, without any I/O.
 *
 * run_take() adds one line; run_next() says what is to be done now. Whoever drives a run
 * (operator/drive.c) writes every line before it acts on it, so that a run whose driver died
 * anywhere is the same run when its lines are taken again.
 */
#pragma once

#include "operator/event.h"
#include "operator/stuck.h"
#include "tools/tool.h"

struct run_call {
    const struct model_part *part; /* id, name and arguments */
    const struct run_event *result;
    const char *sure;      /* hash of the file that it was about to write; NULL: not that far */
    int64_t begun_ms;      /* when its intent was first written */
    bool begun;            /* it was */
    bool recover;          /* ... by a driver that has died since */
    bool approved, denied; /* its owner's word, where that was asked for */
};

struct run_told {
    enum run_note note;
    const char *text;
};

/* An answer of the model and what came of it; the first one stands for what was before any. */
struct run_turn {
    enum run_purpose purpose;
    enum model_stop stop;
    const struct model_part *parts;
    size_t count;
    struct run_call *calls;
    size_t call_count, over; /* over: those with a result */
    struct run_told *notes;
    size_t note_count;
    uint64_t spent_tokens, spent_ms; /* by then, for the model to see */
};

enum run_phase { RUN_RUNNING, RUN_INTERRUPTED, RUN_ENDED };

struct run_mark { /* a checkpoint or rewind of ours */
    const char *name, *step;
    int64_t begun_ms;
    bool open, recover; /* begun; and by a driver that has died since */
};

/* One of several; NULL: not yet. */
struct run_try {
    const char *machine, *run, *changeset;
    const char *place; /* the fork in which it was checked; NULL: none */
    uint64_t changes;
    bool judged, good;
};

struct run {
    struct arena arena;
    struct run_event start;
    enum run_phase phase;
    const char *why; /* it was interrupted */
    struct run_turn *turns;
    size_t count;
    uint64_t lines;
    /* Spent. */
    uint64_t steps, calls, tokens, micro, active_ms;
    uint64_t lent_steps; /* of its sub-agents */
    struct model_usage usage;
    int64_t last_ms;
    const char *held; /* what it waits for, JSON: that time costs nothing; NULL: nothing */
    bool wants_word;  /* ... which is its owner's word about call word_index */
    uint64_t word_index;
    /* Said. */
    unsigned noted;                        /* bits of enum run_note */
    const char *stop_status, *stop_reason; /* only the report is left, and why */
    unsigned refusals;                     /* of the ledger, in a row */
    unsigned full;                         /* times that the window was too small, in a row */
    /* Ways back. */
    struct run_mark point, back;
    uint64_t points, backs, changes; /* changes: calls that may have changed files since a point */
    size_t point_turn;
    /* Context. */
    size_t prune_before, hand_over, keep_from; /* turns */
    uint64_t last_in, last_bytes;              /* of the last request: what a byte costs */
    const char *plan;
    /* Calls that were fixed (operator/mode.h), and how many of them were begun. */
    const char *frozen;
    size_t node;
    /* Judgement. */
    struct stuck stuck;
    unsigned stuck_level, silent, malformed, checks;
    bool acted;            /* something was done since evidence was asked for */
    const char *accepted;  /* arguments of the finish that was */
    struct run_try *tries; /* start.tries of them */
    bool cancelling;       /* they are to go, and it is to end */
    bool resumed;          /* by a driver that cannot know what the one before it had begun */
    const char *status, *report;
};

/* For the first line first. -1: that line cannot follow; the run is as it was. */
int run_take(struct run *r, const struct run_event *e, struct err *err);
/* The same from bytes, whole lines only; *ret_used: what was taken. */
int run_take_bytes(struct run *r, const char *bytes, size_t n, size_t *ret_used, struct err *err);
void run_done(struct run *r);

enum run_do {
    RUN_DO_NOTHING, /* it has ended, or somebody has to resume it */
    RUN_DO_WAIT,    /* calls are under way */
    RUN_DO_TELL,    /* write the event: there is nothing else to it */
    RUN_DO_ASK,     /* the model */
    RUN_DO_CALL,    /* calls first to first + count - 1 of this turn, at once */
    RUN_DO_POINT,   /* a checkpoint called event.name, unless there is one already */
    RUN_DO_BACK,    /* a rewind to event.name */
};

struct run_intent {
    enum run_do what;
    struct run_event event; /* of tell, point and back */
    bool begun;             /* the intent of point or back is written already */
    enum run_purpose purpose;
    uint64_t max_tokens;
    size_t first, count;
};

/* What it may call. */
struct run_tools {
    const struct tool *(*find)(void *arg, const char *name); /* NULL: there is none */
    void *arg;
    const char *names; /* "exec, read, ...": told when there is none */
};

/* Texts of the intent live in the arena, or in the run. */
void run_next(const struct run *r, const struct run_tools *may, int64_t now_ms, struct arena *a,
              struct run_intent *ret);

/* Of several tries that were judged: a good one, of those the one that changed least. */
size_t run_best_try(const struct run *r);

/* The report of a run that ends by itself, or by somebody's will: an event to be written. */
struct run_event run_end_event(const struct run *r, const char *status, const char *reason,
                               struct arena *a);

const struct run_turn *run_turn_now(const struct run *r);
uint64_t run_active_ms(const struct run *r, int64_t now_ms);

/* ---- what the model is shown (context.c) ---- */

/* Tokens that the next request would have, by what the last one had. */
uint64_t run_context_tokens(const struct run *r);
/* The first turn whose results stay when all before it are pruned; 0: it is not worth it. */
size_t run_prune_at(const struct run *r);

struct run_prompt {
    const char *system;
    const struct model_tool *tools;
    size_t tool_count;
};
/* The request, in the arena; *ret_bytes: about how long it is. */
void run_render(const struct run *r, enum run_purpose purpose, uint64_t max_tokens,
                const struct run_prompt *prompt, struct arena *a, struct model_request *ret,
                size_t *ret_bytes);
