/*
 * The tools that an agent is given: one table, of which MCP and the operator are faces.
 *
 * A row says what a model reads (name, description, schemas, hints) and what happens. Every handler
 * goes through src/service with the caller's rights, never blocks, and answers in bounded size and
 * time: a command that takes longer than its caller wants to wait goes on as a session. No tool
 * makes or changes a grant, policy, secret, token, budget or exposure, approves or ships.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "service/schema.h"
#include "service/service.h"

enum { TOOL_DESCRIPTION_MAX = 600 };

enum tool_hint {
    TOOL_READ_ONLY = 1,   /* changes nothing */
    TOOL_DESTRUCTIVE = 2, /* may remove or overwrite */
    TOOL_IDEMPOTENT = 4,  /* the same again changes nothing more */
    TOOL_OPEN_WORLD = 8,  /* may reach beyond the machine */
    TOOL_MACHINE = 16,    /* acts on a machine: its request starts with `const char *machine` */
    TOOL_ALONE = 32,      /* manages machines: not for a client that is bound to one */
    TOOL_CONTENT = 64,    /* answers with what a machine, or the world, says */
};

/* What to do about a call whose outcome is not known after a crash. */
enum tool_recovery {
    TOOL_REPEAT,  /* call it again */
    TOOL_BY_KEY,  /* ask for the command with the intent's key */
    TOOL_BY_HASH, /* compare the file with the hash of the intended result */
    TOOL_BY_STEP, /* look for the step, or for what came of it */
    TOOL_KEPT,    /* the question or record stays and is found again */
};

struct act;
struct toolbox;

struct tool {
    const char *name, *title, *description;
    const struct schema *input, *output;
    unsigned hints;
    enum tool_recovery recovery;
    void (*start)(struct act *a);
    bool (*is_there)(const struct toolbox *box); /* NULL: on every host */
};

extern const struct tool tools[];
extern const size_t tool_count;

/* ---- whose tools they are ---- */

enum { TOOLBOX_KEY_SIZE = 64, TOOLBOX_SESSIONS = 64 };

struct toolbox_options {
    struct loop *loop;
    struct service *service;
    struct caller who;
    const char *key;     /* its own machine is found again by this */
    const char *machine; /* bound to this one; NULL: its own, made on first use */
    const char *talk;    /* names the conversation over restarts; NULL: it ends with the toolbox */
    void (*made)(void *arg, const char *machine); /* may be NULL: its machine was made */
    void *arg;
};

/* Whoever holds one lets go with toolbox_unref(); calls under way hold it too. */
struct toolbox *toolbox_new(const struct toolbox_options *options);
void toolbox_ref(struct toolbox *b);
void toolbox_unref(struct toolbox *b);
/* No more `made`. */
void toolbox_leave(struct toolbox *b);
const char *toolbox_machine(const struct toolbox *b); /* "" while there is none */
const char *toolbox_key(const struct toolbox *b);

/* Something of a machine is about to be told: whoever hears it may use it elsewhere. -1: that it
 * was told could not be written down, so it may not be. */
int toolbox_saw(struct toolbox *b, const char *machine, struct err *err);
/* Machines are its own if it made them, or is bound to them. */
bool toolbox_owns(const struct toolbox *b, const struct machine_view *view);

/* The rows it has: some need what this host or this client lacks. NULL: there is none. */
const struct tool *tool_find(const struct toolbox *b, const char *name);
bool tool_is_there(const struct toolbox *b, const struct tool *t);

/* ---- one call ---- */

/* What came of it; all dead after the call of `done`. */
struct act_result {
    const struct err *err;     /* NULL: it was done */
    const char *detail;        /* with err, may be NULL: lines that it is about */
    const char *json;          /* of the tool's output schema; NULL with err */
    const char *image, *media; /* base64 and its type, beside the JSON; mostly NULL */
    const char *machine;       /* that it acted on, or "" */
};

struct act_question {
    const char *text;
    struct texts options;
};

/* action: accept, decline or cancel; NULL: it could not be asked. */
typedef void act_answer_fn(struct act *a, const char *action, const char *answer);

typedef void act_go_fn(struct act *a);

struct act_events {
    void *arg;
    const char *key; /* may be NULL: a command with this key runs at most once; copied */
    /*
     * The call may have been made before, at this time or later: by somebody who died before they
     * were told. What is found of it is not done again; `expected` is the hash that they gave to
     * `sure`, or NULL.
     */
    bool again;
    int64_t since_ms;
    const char *expected;
    void (*done)(void *arg, const struct act_result *result);
    /* May be NULL: about once a second, how long it has taken and what it said last. */
    void (*progress)(void *arg, double seconds, const char *message);
    /* May be NULL: a file is about to get content with this hash. Say go() once that is noted. */
    void (*sure)(void *arg, struct act *a, const char *sha256, act_go_fn *go);
    /* May be NULL: nobody can be asked. */
    void (*ask)(void *arg, struct act *a, const struct act_question *q, act_answer_fn *fn);
};

/*
 * arguments: an object or NULL; kept. `done` comes once, perhaps from within the call; wrong
 * arguments are an error there too, in words that a model can act on.
 */
struct act *act_start(struct toolbox *b, const struct tool *t, json_t *arguments,
                      const struct act_events *events);
/* Ends what it began; `done` does not come any more. */
void act_cancel(struct act *a);
/* `done` does not come any more, and what it began goes on: we leave. */
void act_abandon(struct act *a);

/* ---- for handlers: each call ends with one of the first two, cancelled or not ---- */

struct act {
    struct toolbox *box;
    const struct tool *tool;
    void *request; /* of tool->input */
    struct act_events events;
    char machine[ID_SIZE]; /* of TOOL_MACHINE */
    void *user;
    void (*cancel)(struct act *a); /* NULL: it ends by itself soon */
    json_t *arguments;
    struct act *next; /* while its machine is made */
    bool cancelled, started;
    bool inside; /* act_start() */
    bool over;
};

void act_done(struct act *a, const void *view);
void act_fail(struct act *a, const struct err *err);
/* detail: lines that the error is about, or NULL. */
void act_fail_with(struct act *a, const struct err *err, const char *detail);
/* An image beside the view: bytes and media type. */
void act_done_image(struct act *a, const void *view, const void *bytes, size_t n,
                    const char *media);

struct service *act_service(const struct act *a);
const struct caller *act_who(const struct act *a);
struct loop *act_loop(const struct act *a);
