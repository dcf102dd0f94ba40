/*
 * Private declarations of src/operator: the live run and the functions that drive it.
 *
 * struct run (run.h) is the state and changes only by events; struct live_run holds the
 * work in progress. Only the loop's thread uses them.
 */
#pragma once

#include "base/map.h"
#include "model/client.h"
#include "model/provider.h"
#include "operator/mode.h"
#include "operator/operator.h"
#include "operator/run.h"
#include "operator/transcript.h"
#include "service/events.h"
#include "service/models/models.h"
#include "tools/tool.h"

struct runs {
    struct loop *loop;
    struct service *service;
    struct model_access access; /* for model calls: record of costs, prices, connections */
    struct map live;            /* runs in progress: id -> struct live_run */
    struct event_watch watch;
    char dir[PLACE_SIZE + 8];
};

/* A tool call in progress. */
struct acting {
    struct live_run *live;
    size_t index;
    const struct tool *tool;
    struct act *act;    /* NULL while the call starts */
    bool active, again; /* again: the call may have been made before a restart */
    int64_t since_ms;
    uint64_t begun_ms;    /* when this daemon made the call, by monotonic_ms() */
    const char *fallback; /* as in act_result */
    const char *expected;
    char key[48];
    uint64_t intent;
    struct act *asked; /* the act (tool call) that asked a question and waits */
    act_answer_fn *answer;
    char *question; /* the question to the owner, JSON */
    char question_id[ID_SIZE];
    act_go_fn *go; /* continues the call once its RUN_SURE line is on disk */
};

struct flushing;
struct project;
struct trying;

struct live_run {
    struct runs *runs;
    struct caller who; /* has only the scopes read and run */
    struct run run;
    struct transcript transcript;
    struct toolbox *box;
    struct model_provider provider;
    struct rehearsal *rehearsal;
    const struct conf_model *row;
    const struct run_mode *mode;
    const char *menu; /* allowed calls of the run, or of the request before the run exists */
    struct run_prompt prompt;
    struct arena prompt_arena;
    const char *tool_names;
    char account[ACCOUNT_ID_SIZE];
    /* Work in progress. */
    struct loop_call step;
    struct model_call *model;
    uint64_t model_intent, model_bytes, model_max;
    enum run_purpose purpose;
    struct flushing *flushing;
    struct acting acting[MODEL_CALLS_MAX];
    size_t first, count; /* tool calls to start once the transcript is flushed */
    size_t active;
    struct act *mark; /* a checkpoint or rewind that the run makes itself */
    bool marking, is_back;
    uint64_t mark_intent;
    struct loop_timer *wall, *hold;
    bool leaving;           /* work on the run stops, but the run does not end and can be resumed */
    bool is_child, borrows; /* borrows: provider and rehearsal belong to the parent run */
    bool gated;             /* the gate holds a network request of the run's machine */
    struct run_follower *followers;
    struct trying *trying;   /* state of a run with several tries (tries.c) */
    bool is_try;             /* one of several tries: no user can answer its questions */
    struct project *project; /* set while the notes of the project are read (project.c) */
    bool knows_project;      /* they were read, or are not wanted */
    bool cancelled, broken;
    struct err broke;
};

/* Appends a line to the transcript and applies it to l->run. On -1 the run stops. */
int live_add(struct live_run *l, struct run_event *e);
/* Schedules live_go_on() on the loop. */
void live_again(struct live_run *l);
/* Calls fn(l) once all written transcript lines are on disk; never, if the run is closed before. */
void live_flush(struct live_run *l, void (*fn)(struct live_run *l));
/* Cancels a pending live_flush(). */
void live_unflush(struct live_run *l);
/* Closes and frees a live run, whether it ended or can be resumed. */
void live_close(struct live_run *l);
/* Starts the timer of the wall-clock budget, which ends the calls in progress. */
void live_wall(struct live_run *l);

/* ---- drive.c ---- */
void live_go_on(void *arg);
/* The options for a model call made now. */
struct model_call_options live_call_options(const struct live_run *l);
/* Finds a tool by its name; NULL if the run does not offer it. */
const struct tool *live_tool(const struct live_run *l, const char *name);
/* ---- acts.c ---- */
void acts_start(struct live_run *l, const struct run_intent *in);
/* Ends all tool calls in progress; `why` becomes their result. */
void acts_cut(struct live_run *l, const char *why);
/* Detaches from the tool calls in progress; their commands continue. */
void acts_leave(struct live_run *l);
/* ---- operator.c: permissions and lookup ---- */
int runs_allowed(const struct caller *who, enum token_scope scope, struct err *err);
/* Finds a live run; returns 0 with *ret NULL if the run is not live. */
int runs_find_live(struct runs *o, const struct caller *who, enum token_scope scope, const char *id,
                   struct live_run **ret, struct err *err);
/* Reads a run from disk; `not_found` also for a run of another owner. */
int runs_load(struct runs *o, const struct caller *who, const char *id, struct run *run,
              struct transcript *t, struct err *err);
/* Ends the sub-agents and tries of run `id` that have not ended. */
void runs_end_within(struct runs *o, const struct caller *who, const char *id);
/* Calls done() with the view of the run. l NULL: the run is not live. */
void live_answer(const struct run *r, const struct live_run *l, operator_fn *done, void *arg);
/* ---- live.c ---- */
/* The run gets the scopes read and run only, whatever scopes `who` has. */
struct live_run *live_run_new(struct runs *o, const struct caller *who);
void live_run_free(struct live_run *l);
/* Stops driving a run without notifying its followers; commands in progress continue. */
void live_forget(struct live_run *l);
/* Sets up the tools that the run's mode offers. */
void live_equip(struct live_run *l, const char *machine);
/* Sets up tools and prompt from the transcript; a run of several tries needs no tools. */
void live_prepare(struct live_run *l);
void live_go(struct live_run *l);
uint64_t live_prompt_bytes(const struct live_run *l);
/* Writes a journal record about the run and notifies those who watch events. */
int live_note(struct live_run *l, const char *verb, struct err *err);
/* The description of the machine for the model; live_card_for() adds the rules of the mode. */
const char *live_card(struct service *s, struct arena *a, const struct machine_view *view);
const char *live_card_for(struct service *s, struct arena *a, const struct machine_view *view,
                          const struct run_mode *m, const char *menu);
/* Creates a machine for a run whose request named none. The same key gives the same machine. */
void live_make_machine(struct live_run *l, const char *key, service_machine_fn *done, void *arg);
/* ---- start.c ---- */
int live_find_model(struct live_run *l, const struct caller *who, const char *wanted,
                    const char *script, const struct texts *given, struct err *err);
/* ---- within.c: runs within a run ---- */
enum inner_kind { INNER_CHILD, INNER_TRY };
/* Starts a sub-agent on this machine with its parent's provider and account. */
int live_child(struct live_run *parent, const struct machine_view *view, const char *task,
               const char *key, struct run_budget budget, char ret_run[ID_SIZE], struct err *err);
/* Starts one of several tries (attempts at one task). A resumed parent finds it by its key. */
int live_try(struct live_run *parent, const struct machine_view *view, const char *key,
             char ret_run[ID_SIZE], struct err *err);
/* Resumes a sub-agent or try that was started before a restart, if it has not ended. */
int live_inner_again(struct live_run *parent, enum inner_kind kind, const char *run,
                     struct err *err);
void live_inner_leave(struct runs *o, const char *run);
/* ---- drive.c ---- */
/* Writes the end of the run to the journal and notifies those who watch events. */
void live_tell_end(struct live_run *l);
/* ---- tries.c ---- */
void tries_go_on(struct live_run *l);
/* Detaches from the run and from its tries. */
void tries_leave(struct live_run *l);
/* ---- look.c: reading transcripts ---- */
void runs_each(struct runs *o, void (*fn)(void *arg, const struct run *r), void *arg);
/* ---- hold.c ---- */
void hold_start(struct live_run *l);
void hold_stop(struct live_run *l);
void hold_begin(struct live_run *l, const char *json);
void hold_end(struct live_run *l);
/* Shows the next question of a call to the owner, if the run waits for nothing else. */
void hold_next(struct live_run *l);
void holds_watch(struct runs *o);
void holds_unwatch(struct runs *o);
/* ---- project.c ---- */
/* Reads the notes of the project before the first model call. True while that goes on. */
bool project_reads(struct live_run *l);
void project_leave(struct live_run *l);
/* ---- marks.c ---- */
void mark_start(struct live_run *l, const struct run_intent *in);

/* ---- judge.c ---- */

/* Copies the work of a try from machine `from` to machine `to`, which the try never touched. lent:
 * the directory that the owner lent to `from`, or NULL. */
struct judge_request {
    const char *from, *to, *lent;
    const char *key; /* prefix of the idempotency keys of the commands */
};
typedef void judge_fn(void *arg, const struct err *err);
void judge_apply(struct service *s, const struct caller *who, const struct judge_request *r,
                 judge_fn *done, void *arg);
/* Ends every process in the machine of a try. A process left running could change the frozen files
 * before the check reads them. */
void judge_end_all(struct service *s, const struct caller *who, const char *machine, judge_fn *done,
                   void *arg);
