/*
 * The state of a run and its next action, computed from the transcript without I/O.
 *
 * run_take() applies one transcript line; run_next() returns the next action. The driver
 * (operator/drive.c) writes every line before it acts on it, so replaying the lines after a crash
 * gives the same run.
 */
#pragma once

#include "operator/event.h"
#include "operator/stuck.h"
#include "service/tool_counts.h"
#include "tools/tool.h"

struct run_call {
    const struct model_part *part; /* id, tool name and arguments of the call */
    const struct run_event *result;
    const char *sure;      /* hash of the file that the call was about to write; NULL: none yet */
    int64_t begun_ms;      /* time of its first RUN_CALL line */
    bool begun;            /* a RUN_CALL line was written */
    bool recover;          /* the RUN_CALL line is older than a resume, so the outcome is unknown */
    bool approved, denied; /* the owner's decision, if one was requested */
};

struct run_told {
    enum run_note note;
    const char *text;
};

/* An answer of the model with the results of its calls. Turn 0 comes before the first answer. */
struct run_turn {
    enum run_purpose purpose;
    enum model_stop stop;
    const struct model_part *parts;
    size_t count;
    struct run_call *calls;
    size_t call_count, over; /* over: calls that have a result */
    struct run_told *notes;
    size_t note_count;
    uint64_t spent_tokens, spent_ms; /* totals at that turn, shown to the model */
};

enum run_phase { RUN_RUNNING, RUN_INTERRUPTED, RUN_ENDED };

struct run_mark { /* a checkpoint or rewind that the run makes */
    const char *name, *step;
    int64_t begun_ms;
    bool open, recover; /* open: begun, not ended; recover: begun before a resume */
};

/* One of several tries (attempts at one task); members are NULL until known. */
struct run_try {
    const char *machine, *run, *changeset;
    const char *place; /* the fork in which the check ran; NULL: none */
    uint64_t changes;
    bool judged, good;
};

struct run {
    struct arena arena;
    struct run_event start;
    enum run_phase phase;
    const char *why; /* reason of an interruption */
    struct run_turn *turns;
    size_t count;
    uint64_t lines;
    /* Used resources. */
    uint64_t used_turns, calls, tokens, micro, active_ms;
    uint64_t lent_turns; /* turns of sub-agents and tries */
    struct tool_counts tools;
    struct model_usage usage;
    int64_t last_ms;
    const char
        *held; /* what the run waits for, JSON; waiting time is not charged. NULL: not waiting */
    bool wants_word; /* waits for the owner's decision about call word_index */
    uint64_t word_index;
    /* Notes to the model. */
    unsigned noted;                        /* notes that were given: bits of enum run_note */
    const char *stop_status, *stop_reason; /* set once work must end: only the report may follow */
    unsigned refusals;                     /* consecutive model calls refused for their cost */
    unsigned full; /* consecutive times that the context window was too small */
    /* Checkpoints and rewinds. */
    struct run_mark point, back;
    uint64_t points, backs, changes; /* changes: calls after the checkpoint that may write files */
    size_t point_turn;
    /* The context of the model. */
    size_t prune_before, hand_over, keep_from; /* indexes of turns */
    uint64_t last_in, last_bytes; /* tokens and bytes of the last request, to estimate the next */
    const char *plan;
    /* Fixed calls (operator/mode.h), and how many of them have begun. */
    const char *frozen;
    size_t node;
    /* Progress and checks. */
    struct stuck stuck;
    unsigned stuck_level, silent, malformed, checks;
    bool acted;            /* a call was made since the model was asked to run a check */
    const char *accepted;  /* arguments of the call `finish` that was accepted */
    struct run_try *tries; /* array of start.tries elements */
    bool cancelling;       /* delete the machines of the tries, then end */
    bool resumed;          /* before the resume, work may have begun that the transcript lacks */
    const char *returned;  /* idempotency key of the last RUN_RETURN; NULL: none */
    const char *status, *report;
};

/* Applies the next transcript line. On -1 the line is out of order and the run is unchanged. */
int run_take(struct run *r, const struct run_event *e, struct err *err);
/* Applies all complete transcript lines in bytes; *ret_used is the number of bytes applied. */
int run_take_bytes(struct run *r, const char *bytes, size_t n, size_t *ret_used, struct err *err);
void run_done(struct run *r);

enum run_do {
    RUN_DO_NOTHING, /* the run has ended, or must be resumed */
    RUN_DO_WAIT,    /* tool calls are in progress */
    RUN_DO_TELL,    /* write the event, nothing else */
    RUN_DO_ASK,     /* call the model */
    RUN_DO_CALL,    /* make tool calls first to first + count - 1 of this turn concurrently */
    RUN_DO_POINT,   /* make the checkpoint event.name, unless it exists */
    RUN_DO_BACK,    /* rewind to checkpoint event.name */
};

struct run_intent {
    enum run_do what;
    struct run_event event; /* for RUN_DO_TELL, RUN_DO_POINT and RUN_DO_BACK */
    bool begun;             /* the intent of RUN_DO_POINT or RUN_DO_BACK is already written */
    enum run_purpose purpose;
    uint64_t max_tokens;
    size_t first, count;
};

/* The tools that the model may call. */
struct run_tools {
    const struct tool *(*find)(void *arg, const char *name); /* NULL: unknown tool */
    void *arg;
    const char *names; /* "exec, read, ...", for the error about an unknown tool */
};

/* Strings in *ret belong to the arena or to the run. */
void run_next(const struct run *r, const struct run_tools *may, int64_t now_ms, struct arena *a,
              struct run_intent *ret);

/* The index of the good try with the fewest changes. */
size_t run_best_try(const struct run *r);

/* The RUN_END event for a run that ends without a report of the model, or is cancelled. */
struct run_event run_end_event(const struct run *r, const char *status, const char *reason,
                               struct arena *a);

const struct run_turn *run_turn_now(const struct run *r);
uint64_t run_active_ms(const struct run *r, int64_t now_ms);

/* ---- the model's context (context.c) ---- */

/* Estimated tokens of the next request to the model, from the size of the last one. */
uint64_t run_context_tokens(const struct run *r);
/* The first turn that keeps its full results if earlier results are pruned (shown as one line); 0:
 * pruning is not worth it. */
size_t run_prune_at(const struct run *r);

struct run_prompt {
    const char *system;
    const struct model_tool *tools;
    size_t tool_count;
};
/* Builds the request to the model in the arena; *ret_bytes is its approximate size. */
void run_render(const struct run *r, enum run_purpose purpose, uint64_t max_tokens,
                const struct run_prompt *prompt, struct arena *a, struct model_request *ret,
                size_t *ret_bytes);
