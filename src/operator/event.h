/*
 * Reads and writes one line of a run's transcript. Pure.
 *
 * A transcript is a file of JSON lines. The state of a run is the result of applying all lines in
 * order (operator/run.h), so a run that was cut off continues from its last complete line. A line
 * without a newline does not count.
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
    RUN_RESULT_MAX = 96 << 10, /* largest text of a tool result, in bytes */
    RUN_TRIES_MAX = 8,
};

enum run_kind {
    RUN_START = 1, /* the run's settings */
    RUN_RESUME,    /* the run was resumed */
    RUN_ANSWER,    /* a complete answer of the model */
    RUN_CALL,      /* intent: this tool call is about to be made */
    RUN_SURE,      /* hash of the file that the call is about to write */
    RUN_RESULT,    /* the result of a tool call */
    RUN_POINT, /* intent (without step) and result (with step) of a checkpoint that the run makes */
    RUN_BACK,  /* intent and result of a rewind that the run makes */
    RUN_NOTE,  /* a text for the model, sent with the results of this turn */
    RUN_PRUNE, /* from now on the model sees each result of earlier turns as one line */
    RUN_STOPPED, /* interrupted, with the reason; the run can be resumed */
    RUN_END,     /* the end of the run, with its report */
    RUN_ASIDE,   /* cost outside the turns: of the tools inspect and map, or of a sub-agent */
    RUN_HELD,    /* the run waits for the user; the text is JSON and says for what */
    RUN_FREED,   /* the run continues after RUN_HELD */
    RUN_RETURN,  /* the owner returned an ended run with a comment */
    RUN_TRY,     /* the machine of a try (one of several attempts); a second line adds its run */
    RUN_JUDGED,  /* verdict and cost of a try */
    RUN_WORD,    /* the owner approved or denied a call that is not in the plan */
    RUN_CANCEL,  /* cancelled: the run ends once the machines of its tries are deleted */
    RUN_RETRY,   /* a model call failed and is repeated after wait_ms; the text is the reason */
};

/* The purpose of a model call: to work, to write the report, or to sum up all earlier turns. */
enum run_purpose { RUN_WORK, RUN_REPORT, RUN_HAND_OVER };

/* The reason for a note to the model. */
enum run_note {
    RUN_NOTE_PLAIN,
    RUN_NOTE_WARN_TURNS, /* 80 % of the turns are used; below: of the tokens, money, time */
    RUN_NOTE_WARN_TOKENS,
    RUN_NOTE_WARN_MONEY,
    RUN_NOTE_WARN_TIME,
    RUN_NOTE_BUDGET, /* a budget is spent: only the report may follow */
    RUN_NOTE_SPENT,  /* the ledger (the record of costs) refuses a model call */
    RUN_NOTE_FULL,   /* the model's context window is full */
    RUN_NOTE_STUCK,
    RUN_NOTE_NUDGE,   /* the model's answer had no tool call */
    RUN_NOTE_FORMAT,  /* the model's tool calls could not be parsed, repeatedly */
    RUN_NOTE_CHECK,   /* the model must run a check before it finishes */
    RUN_NOTE_PROJECT, /* the project's notes for agents; `name` lists their files */
    RUN_NOTE_COUNT,
};

/* Limits of a run; 0: no limit. micro: cost in millionths of the owner's currency. */
struct run_budget {
    uint64_t turns, tokens, micro, timeout_ms;
};

struct run_event {
    enum run_kind kind;
    int64_t time_ms;
    /* RUN_START */
    const char *run, *owner, *machine, *task, *model, *script, *card, *mode, *menu;
    const char *parent; /* the call that started this run, as "RUN.TURN.CALL"; NULL: none */
    struct run_budget budget;
    uint64_t window, prompt_bytes; /* prompt_bytes: size of the tool descriptions and prompts */
    bool own_machine;              /* the machine was created for this run */
    uint64_t tries;          /* number of tries (attempts), the best is kept; 0: a plain run */
    const char *check;       /* command that must exit with 0 for a try to be good */
    const char *check_files; /* files for the check: a JSON object of paths and texts */
    bool guard;              /* a try's machine loses its network once it is tainted */
    bool asks;               /* the owner may approve calls that are not in the plan */
    /* RUN_ANSWER */
    enum run_purpose purpose;
    enum model_stop stop;
    struct model_usage usage;
    bool has_usage;
    uint64_t micro, request_bytes;
    const struct model_part *parts;
    size_t count;
    /* RUN_CALL, RUN_SURE, RUN_RESULT; index: position of the call among the calls of its turn */
    uint64_t index;
    const char *tool, *arguments; /* copied from the model's answer, for human readers */
    const char *hash;
    const char *text; /* also the text of a note, and the reason of RUN_STOPPED */
    const char *image, *media;
    bool failed;
    uint64_t bytes;       /* size of the full result, if it was truncated */
    uint64_t took_ms;     /* time from the call to its result; 0: no tool was called */
    const char *fallback; /* how the call differed from the usual way; NULL: not at all */
    /* RUN_POINT, RUN_BACK; in RUN_RETURN, `name` is the idempotency key of the request */
    const char *name, *step;
    /* RUN_NOTE */
    enum run_note note;
    /* RUN_PRUNE: results of turns before this one are shown as one line */
    uint64_t before;
    /* RUN_JUDGED, RUN_WORD */
    bool good;
    uint64_t changes; /* size of a try's changes: the good try with the smallest size wins */
    uint64_t calls;   /* tool calls of the try */
    const char *changeset;
    /* RUN_RETRY; attempt: number of the attempt that failed */
    uint64_t attempt, wait_ms;
    /* RUN_END */
    const char *status, *report; /* report: a JSON object */
};

/* Appends the event to the buffer as one line, with its newline. */
int run_event_write(const struct run_event *e, struct buf *to, struct err *err);
/* Reads one transcript line, with or without its newline. Strings in *ret belong to the arena. */
int run_event_read(const char *line, size_t n, struct arena *a, struct run_event *ret,
                   struct err *err);

const char *run_kind_name(enum run_kind kind);
const char *run_note_name(enum run_note note);
