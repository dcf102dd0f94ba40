/*
 * One line of a run's transcript, as a struct and back. Pure.
 *
 * A transcript is a file of JSON lines. It is all that a run is: its state is the lines taken in
 * order (operator/run.h), so a run that was cut off anywhere goes on from what was written. A line
 * without its newline was never written.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/id.h"
#include "model/talk.h"

enum {
    RUN_LINE_MAX = 24 << 20,
    RUN_TASK_MAX = 256 << 10,
    RUN_RESULT_MAX = 96 << 10, /* of text, in the transcript and before the model */
    RUN_TRIES_MAX = 8,
};

enum run_kind {
    RUN_START = 1, /* what the run is */
    RUN_RESUME,    /* somebody took it up again */
    RUN_ANSWER,    /* the model's turn, whole */
    RUN_CALL,      /* intent: this call is about to be made */
    RUN_SURE,      /* and this is the hash of the file that it is about to write */
    RUN_RESULT,    /* what came of a call */
    RUN_POINT,     /* intent (no step yet) and result (with one): a checkpoint of ours */
    RUN_BACK,      /* intent and result: a rewind of ours */
    RUN_NOTE,      /* told to the model with the results of this turn */
    RUN_PRUNE,     /* results of turns before this one are shown as one line from now on */
    RUN_STOPPED,   /* interrupted, and why: it can be resumed */
    RUN_END,       /* the report */
    RUN_ASIDE,     /* a call of a model that is no turn: what it cost */
    RUN_HELD,      /* somebody has to say something first, and what: JSON */
    RUN_FREED,     /* it goes on */
    RUN_RETURN,    /* it had ended, and its owner wants more: the next message */
    RUN_TRY,       /* of several tries one: its machine; then its run, too */
    RUN_JUDGED,    /* what came of it, and what it cost */
    RUN_WORD,      /* its owner's, about a call that is not in the plan: good, or not */
    RUN_CANCEL,    /* of several tries: it is to end, once their machines are gone */
};

/* What a turn of the model is for. */
enum run_purpose { RUN_WORK, RUN_REPORT, RUN_HAND_OVER };

/* Why something is told. */
enum run_note {
    RUN_NOTE_PLAIN,
    RUN_NOTE_WARN_STEPS, /* four fifths of a budget are spent */
    RUN_NOTE_WARN_TOKENS,
    RUN_NOTE_WARN_MONEY,
    RUN_NOTE_WARN_WALL,
    RUN_NOTE_BUDGET, /* all of one: only the report is left */
    RUN_NOTE_SPENT,  /* the ledger refuses a call */
    RUN_NOTE_FULL,   /* the model's window is full */
    RUN_NOTE_STUCK,
    RUN_NOTE_NUDGE,  /* an answer without a call */
    RUN_NOTE_FORMAT, /* calls that cannot be read, again */
    RUN_NOTE_CHECK,  /* evidence is wanted before the end */
    RUN_NOTE_COUNT,
};

/* 0: no limit. */
struct run_budget {
    uint64_t steps, tokens, micro, wall_ms;
};

struct run_event {
    enum run_kind kind;
    int64_t time_ms;
    /* start */
    const char *run, *owner, *machine, *task, *model, *script, *card, *mode, *menu;
    const char *parent; /* "RUN.TURN.CALL" that spawned it; NULL: nobody */
    struct run_budget budget;
    uint64_t window, prompt_bytes; /* of the tools and our own words */
    bool own_machine;              /* it was made for this run */
    uint64_t tries;                /* so many runs, of which the best counts; 0: it is one itself */
    const char *check;             /* of tries: what must exit with 0 */
    const char *check_files;       /* and files that it needs: a JSON object of paths and texts */
    bool guard;                    /* of tries: their machines */
    bool asks;                     /* its owner may approve a call that is not in the plan */
    /* answer */
    enum run_purpose purpose;
    enum model_stop stop;
    struct model_usage usage;
    bool has_usage;
    uint64_t micro, request_bytes;
    const struct model_part *parts;
    size_t count;
    /* call, sure, result: the index among the calls of the turn */
    uint64_t index;
    const char *tool, *arguments; /* for readers; the answer has them too */
    const char *hash;
    const char *text; /* also of a note, and why it stopped */
    const char *image, *media;
    bool failed;
    uint64_t bytes; /* of the whole result, when it was cut */
    /* point, back */
    const char *name, *step;
    /* note */
    enum run_note note;
    /* prune */
    uint64_t before;
    /* judged, word */
    bool good;
    uint64_t changes; /* how much it changed: of good ones the least wins */
    const char *changeset;
    /* end */
    const char *status, *report; /* report: a JSON object */
};

/* Appends the line, newline included. */
int run_event_write(const struct run_event *e, struct buf *to, struct err *err);
/* One line, with or without its newline. Texts live in the arena. */
int run_event_read(const char *line, size_t n, struct arena *a, struct run_event *ret,
                   struct err *err);

const char *run_kind_name(enum run_kind kind);
const char *run_note_name(enum run_note note);
