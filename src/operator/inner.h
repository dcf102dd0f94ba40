/* What the files that drive runs know of each other. */
#pragma once

#include "base/map.h"
#include "model/client.h"
#include "model/provider.h"
#include "operator/mode.h"
#include "operator/operator.h"
#include "operator/run.h"
#include "operator/transcript.h"
#include "service/events.h"
#include "service/models.h"
#include "tools/tool.h"

struct runs {
    struct loop *loop;
    struct service *service;
    struct model_access access; /* ledger, prices, connections */
    struct map live;            /* those under way: id -> struct live_run */
    struct event_watch watch;
    char dir[PLACE_SIZE + 8];
};

/* A call under way. */
struct acting {
    struct live_run *live;
    size_t index;
    const struct tool *tool;
    struct act *act;    /* NULL while it starts */
    bool active, again; /* again: it may have been made before */
    int64_t since_ms;
    const char *expected;
    char key[48];
    uint64_t intent;
    struct act *asked; /* a question waits */
    act_answer_fn *answer;
    char *question; /* JSON */
    act_go_fn *go;  /* once its line is on the disk */
};

struct flushing;
struct trying;

struct live_run {
    struct runs *runs;
    struct caller who; /* read and run */
    struct run run;
    struct transcript transcript;
    struct toolbox *box;
    struct model_provider provider;
    struct rehearsal *rehearsal;
    const struct conf_model *row;
    const struct run_mode *mode;
    const char *menu; /* the run's, or the request's before there is one */
    struct run_prompt prompt;
    struct arena prompt_arena;
    const char *tool_names;
    char account[ACCOUNT_ID_SIZE];
    /* Under way. */
    struct loop_call step;
    struct model_call *model;
    uint64_t model_intent, model_bytes, model_max;
    enum run_purpose purpose;
    struct flushing *flushing;
    struct acting acting[MODEL_CALLS_MAX];
    size_t first, count; /* of the calls that are started when the flush is over */
    size_t active;
    struct act *mark; /* a checkpoint or rewind of ours */
    bool marking, is_back;
    uint64_t mark_intent;
    struct loop_timer *wall, *hold;
    bool leaving;           /* it is let go, not ended */
    bool is_child, borrows; /* borrows: provider and rehearsal are its parent's */
    bool gated;             /* the gate holds a request of its machine */
    struct run_follower *followers;
    struct trying *trying; /* of several tries: what is under way */
    bool is_try;           /* one of several: nobody sits before it */
    bool cancelled, broken;
    struct err broke;
};

int64_t wall_now_ms(void);

/* Writes a line, and takes it. -1: it cannot be written, and the run stops. */
int live_add(struct live_run *l, struct run_event *e);
/* Looks for what is next, soon. */
void live_again(struct live_run *l);
/* Everything written is on the disk: then fn(l). A run that was let go meanwhile hears nothing. */
void live_flush(struct live_run *l, void (*fn)(struct live_run *l));
/* What waits for a flush waits no more. */
void live_unflush(struct live_run *l);
/* The run ends, or is let go; it is gone afterwards. */
void live_close(struct live_run *l);
/* Time that is limited ends what is under way. */
void live_wall(struct live_run *l);

/* ---- drive.c ---- */
void live_go_on(void *arg);
/* Of a model call that is made now. */
struct model_call_options live_call_options(const struct live_run *l);
/* A tool that this run offers, one of its own or of all; NULL: it does not. */
const struct tool *live_tool(const struct live_run *l, const char *name);
/* ---- acts.c ---- */
void acts_start(struct live_run *l, const struct run_intent *in);
/* What is under way is ended, and told to be. */
void acts_cut(struct live_run *l, const char *why);
/* The run is let go: commands go on, and nobody hears of them. */
void acts_leave(struct live_run *l);
/* ---- operator.c: who may, and which one ---- */
int runs_allowed(const struct caller *who, enum token_scope scope, struct err *err);
/* One that is under way; *ret NULL and 0: it is not. */
int runs_find_live(struct runs *o, const struct caller *who, enum token_scope scope, const char *id,
                   struct live_run **ret, struct err *err);
/* From the disk; `not_found`, also for somebody else's. */
int runs_load(struct runs *o, const struct caller *who, const char *id, struct run *run,
              struct transcript *t, struct err *err);
/* Runs that it started and nobody drives any more end. */
void runs_end_within(struct runs *o, const struct caller *who, const char *id);
/* l NULL: it is not under way. */
void live_answer(const struct run *r, const struct live_run *l, operator_fn *done, void *arg);
/* ---- live.c ---- */
/* Whoever starts it, a run uses machines and does nothing else. */
struct live_run *live_run_new(struct runs *o, const struct caller *who);
void live_run_free(struct live_run *l);
/* One that nobody hears of again: what is under way goes on, or is let go. */
void live_forget(struct live_run *l);
/* Its tools, in its mode. */
void live_equip(struct live_run *l, const char *machine);
/* From what its lines say; who only lets others work needs no tools. */
void live_prepare(struct live_run *l);
void live_go(struct live_run *l);
uint64_t live_prompt_bytes(const struct live_run *l);
/* In the journal, and told to who watches. */
int live_note(struct live_run *l, const char *verb, struct err *err);
/* What a model is told of its machine; and of what it may do there, in this mode. */
const char *live_card(struct arena *a, const struct machine_view *view);
const char *live_card_for(struct arena *a, const struct machine_view *view,
                          const struct run_mode *m, const char *menu);
/* A machine for a run that named none, as everybody's; key: the same one each time. */
void live_make_machine(struct live_run *l, const char *key, service_machine_fn *done, void *arg);
/* ---- start.c ---- */
int live_find_model(struct live_run *l, const struct caller *who, const char *wanted,
                    const char *script, const struct texts *given, struct err *err);
/* ---- within.c: runs within a run ---- */
enum inner_kind { INNER_CHILD, INNER_TRY };
/* A run on this machine, with its parent's provider and account; *ret_run: its id. */
int live_child(struct live_run *parent, const struct machine_view *view, const char *task,
               const char *key, struct run_budget budget, char ret_run[ID_SIZE], struct err *err);
/* One of several tries, found again by its key; *ret_run: its id. */
int live_try(struct live_run *parent, const struct machine_view *view, const char *key,
             char ret_run[ID_SIZE], struct err *err);
/* One from before, if it has not ended. */
int live_inner_again(struct live_run *parent, enum inner_kind kind, const char *run,
                     struct err *err);
void live_inner_leave(struct runs *o, const char *run);
/* ---- drive.c ---- */
/* It has ended: told to who watches, and in the journal. */
void live_tell_end(struct live_run *l);
/* ---- tries.c ---- */
void tries_go_on(struct live_run *l);
/* The run is let go; its tries with it. */
void tries_leave(struct live_run *l);
/* ---- look.c: all that can be read ---- */
void runs_each(struct runs *o, void (*fn)(void *arg, const struct run *r), void *arg);
/* ---- hold.c ---- */
void hold_start(struct live_run *l);
void hold_stop(struct live_run *l);
void hold_begin(struct live_run *l, const char *json);
void hold_end(struct live_run *l);
void holds_watch(struct runs *o);
void holds_unwatch(struct runs *o);
/* ---- marks.c ---- */
void mark_start(struct live_run *l, const struct run_intent *in);

/* ---- judge.c ---- */

/* The work of a try in a machine that it never touched. lent: its directory, or NULL. */
struct judge_request {
    const char *from, *to, *lent;
    const char *key; /* of its commands */
};
typedef void judge_fn(void *arg, const struct err *err);
void judge_apply(struct service *s, const struct caller *who, const struct judge_request *r,
                 judge_fn *done, void *arg);
/* Every process of a try ends: one could show its check other files than are frozen, or stay. */
void judge_end_all(struct service *s, const struct caller *who, const char *machine, judge_fn *done,
                   void *arg);
