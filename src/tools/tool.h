/*
 * The table of tools for agents, used by MCP and by the operator.
 *
 * A row holds what a model reads (name, description, schemas, hints) and the handler. Every handler
 * goes through src/service with the caller's rights, never blocks, and answers in bounded size and
 * time: a long command continues as a session. No tool creates or changes a grant, policy, secret,
 * token, budget or exposure, and none approves or ships.
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
    TOOL_DESTRUCTIVE = 2, /* may remove or overwrite files or machines */
    TOOL_IDEMPOTENT = 4,  /* a repeated call changes nothing more */
    TOOL_OPEN_WORLD = 8,  /* may reach the network, a model or the user */
    TOOL_MACHINE = 16,    /* acts on a machine: its request starts with `const char *machine` */
    TOOL_ALONE = 32,      /* manages machines: not for a client that is bound to one */
    TOOL_CONTENT = 64,    /* the result can contain text from a machine or the network */
    TOOL_OUTSIDE = 128,   /* for clients outside: its result is a credential and is not recorded */
};

/* How to recover a call whose outcome is unknown after a crash. */
enum tool_recovery {
    TOOL_REPEAT,  /* repeat the call */
    TOOL_BY_KEY,  /* find the command by the key with which it was started */
    TOOL_BY_HASH, /* compare the file with the hash of the intended result */
    TOOL_BY_STEP, /* look for the step, or for its effect */
    TOOL_KEPT,    /* the question or record is stored and found again */
    TOOL_ONCE,    /* the outcome cannot be found out, and the call is not repeated */
};

/* The sets of tools, from the largest to the smallest; each contains the following ones. */
enum tool_set {
    TOOL_SET_ALL,
    TOOL_SET_CODING,  /* work on the files of one machine */
    TOOL_SET_MINIMAL, /* commands and files */
};

struct act;
struct buf;
struct toolbox;

struct tool {
    const char *name, *title, *description;
    const struct schema *input, *output;
    unsigned hints;
    enum tool_recovery recovery;
    void (*start)(struct act *a);
    bool (*is_there)(const struct toolbox *box); /* NULL: available on every host */
    bool foreign; /* of an MCP server in the machine: `input` does not describe its arguments */
    enum tool_set set; /* the smallest set that contains the tool */
    /* Writes the struct of the output schema as text for a model. NULL: a line per field. */
    void (*plain)(const void *view, struct buf *out);
};

extern const struct tool tools[];
extern const size_t tool_count;

/* Reads "minimal", "coding" or "all". */
int tool_set_parse(const char *text, enum tool_set *ret, struct err *err);

/* ---- a client's toolbox ---- */

enum { TOOLBOX_KEY_SIZE = 64, TOOLBOX_SESSIONS = 64 };

struct join;

struct toolbox_options {
    struct loop *loop;
    struct service *service;
    struct caller who;
    const char *key;     /* key by which the client's own machine is found again */
    const char *machine; /* the only machine to use; NULL: create one for the client on first use */
    enum tool_set set;   /* the tools that the client gets */
    /* MCP servers in the machine whose tools the client gets, too (joined.h) */
    const struct join *joins;
    size_t join_count;
    const char *talk; /* id of the conversation across restarts; NULL: only until toolbox_unref() */
    /* Called when the client's own machine was created; may be NULL. */
    void (*made)(void *arg, const char *machine);
    void *arg;
};

/* A toolbox is reference counted; calls in progress hold a reference too. */
struct toolbox *toolbox_new(const struct toolbox_options *options);
void toolbox_ref(struct toolbox *b);
void toolbox_unref(struct toolbox *b);
/* Kills the commands that live only for this client, because it does not come back. */
void toolbox_end(struct toolbox *b);
/* Stops calls of the callback `made`. */
void toolbox_leave(struct toolbox *b);
const char *toolbox_machine(const struct toolbox *b); /* "" while the client has no machine */
const char *toolbox_key(const struct toolbox *b);
enum tool_set toolbox_set(const struct toolbox *b);

/* Call before text of a machine is shown, because the client may use it elsewhere. -1: the taint
 * (mark of untrusted data) could not be stored, so the text must not be shown. */
int toolbox_saw(struct toolbox *b, const char *machine, struct err *err);
/* A machine belongs to the client if the client created it or is bound to it. */
bool toolbox_owns(const struct toolbox *b, const struct machine_view *view);
/* Takes the result of service_show. Fails the call unless the machine belongs to the client; a
 * machine of others gets the same error as one that does not exist. */
bool toolbox_check_own(struct act *a, const struct machine_view *view, const struct err *err);

/* Finds a tool for this client; some tools need features of the host. NULL: not available. */
const struct tool *tool_find(const struct toolbox *b, const char *name);
bool tool_is_there(const struct toolbox *b, const struct tool *t);

/* ---- one call ---- */

/* An image in base64, and its media type. */
struct act_image {
    const char *base64, *media;
};

/* The result of a tool call; valid during the call of `done`. */
struct act_result {
    const struct err *err;          /* NULL: success */
    const char *detail;             /* with err: lines that the error concerns; may be NULL */
    const char *json;               /* matches the tool's output schema; NULL with err */
    const char *text;               /* the same as text for a model; NULL with err */
    const struct act_image *images; /* images beside the JSON */
    size_t image_count;
    const char *machine;  /* machine that the call used, or "" */
    const char *fallback; /* how the call differed from the usual way; NULL: not at all */
};

struct act_question {
    const char *text;
    struct texts options;
};

/* action: accept, decline or cancel; NULL: the user could not be asked. */
typedef void act_answer_fn(struct act *a, const char *action, const char *answer);

typedef void act_go_fn(struct act *a);

struct act_events {
    void *arg;
    const char *key; /* a command with this key runs at most once; copied; may be NULL */
    /*
     * The call may have been made before, at this time or later, by a daemon that crashed. An
     * effect that is found is not repeated; `expected` is the hash passed to `sure`, or NULL.
     */
    bool again;
    int64_t since_ms;
    const char *expected;
    void (*done)(void *arg, const struct act_result *result);
    /* Progress, about once a second: elapsed time and last output. May be NULL. */
    void (*progress)(void *arg, double seconds, const char *message);
    /* A file is about to get content with this hash; call go() once that is stored. May be NULL. */
    void (*sure)(void *arg, struct act *a, const char *sha256, act_go_fn *go);
    /* Asks the user. NULL: there is no user to ask. */
    void (*ask)(void *arg, struct act *a, const struct act_question *q, act_answer_fn *fn);
};

/*
 * Starts a call of tool t. arguments: an object or NULL; a reference is kept. `done` is called
 * once, possibly before this returns. It also gets errors about wrong arguments, for the model.
 */
struct act *act_start(struct toolbox *b, const struct tool *t, json_t *arguments,
                      const struct act_events *events);
/* Stops the work of the call; `done` is not called. */
void act_cancel(struct act *a);
/* Detaches from the call: `done` is not called and its work continues. */
void act_abandon(struct act *a);

/* ---- for handlers: each call ends with act_done() or act_fail(), cancelled or not ---- */

struct act {
    struct toolbox *box;
    const struct tool *tool;
    void *request; /* the struct that tool->input describes */
    struct act_events events;
    char machine[ID_SIZE]; /* machine of the call, for TOOL_MACHINE */
    void *user;
    void (*cancel)(struct act *a); /* stops the work; NULL: the call ends soon by itself */
    json_t *arguments;
    struct act *next;     /* next of the calls that wait for the machine */
    const char *fallback; /* as in act_result; a constant string */
    uint64_t begun_ms;
    bool cancelled, started;
    bool inside; /* act_start() is running */
    bool over;
};

void act_done(struct act *a, const void *view);
void act_fail(struct act *a, const struct err *err);
/* detail: lines that the error is about, or NULL. */
void act_fail_with(struct act *a, const struct err *err, const char *detail);
/* Ends the call with an image, or with images, beside the result. */
void act_done_image(struct act *a, const void *view, const void *bytes, size_t n,
                    const char *media);
void act_done_images(struct act *a, const void *view, const struct act_image *images, size_t n);

struct service *act_service(const struct act *a);
const struct caller *act_who(const struct act *a);
struct loop *act_loop(const struct act *a);
