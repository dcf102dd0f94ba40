/*
 * How much a run lets its model do, and see, whatever it says: one row a mode, asked at three
 * places of the loop (which tools it has, whether a call is made, what is shown of a result). Pure.
 *
 *   free               calls as it likes
 *   plan-then-execute  it fixes its calls before it has read anything; only those are made, in
 * order action-selector    calls of a menu that the owner wrote; their results are not shown to it
 *   map                results are handles; items are read one by one, apart, into bounded records
 *   handles            results are handles; questions about them are answered apart, bounded
 */
#pragma once

#include <stdbool.h>

#include "operator/run.h"

enum mode_calls { MODE_CALLS_ANY, MODE_CALLS_FIXED, MODE_CALLS_MENU };
enum mode_results { MODE_RESULTS_WHOLE, MODE_RESULTS_HANDLES, MODE_RESULTS_NONE };

struct run_mode {
    const char *name;
    enum mode_calls calls;
    enum mode_results results;
    bool verifies;      /* a `done` needs a check that was run after it was first said */
    const char *own[3]; /* tools that only a run has: the names, then NULL */
    const char *card;   /* what the model is told of it */
};

/* NULL: the first one, `free`. `invalid` names them all. */
const struct run_mode *mode_find(const char *name, struct err *err);
/* Of a run whose start was taken. */
const struct run_mode *mode_of(const struct run *r);

enum { MODE_MENU_MAX = 256 << 10 };
/* A menu, {"calls":[...]}, as operator/template.h; is it one, and are its tools there? */
int mode_menu_check(const char *menu, const struct run_tools *may, struct err *err);

/* Is the model offered this one? own: it is one that only a run has. */
bool mode_offers(const struct run_mode *m, const char *menu, const char *tool, bool own);
/* Why a call of the newest turn is not made, in the arena; NULL: it is. */
const char *mode_refuses(const struct run *r, const struct run_call *c, struct arena *a);
/* The calls that a model wants to fix: *ret_hash is that of the list, or why not. */
int mode_freeze(const struct run *r, const char *arguments, const struct run_tools *may,
                char ret_hash[65], struct err *err);

/* What the model sees of a result: its text, or what stands for it in the arena. */
const char *mode_shown(const struct run *r, size_t turn, size_t index, struct arena *a);
bool mode_hides(const struct run *r, const struct run_call *c);
/* What a handle stands for, in the arena; NULL: there is no such handle. */
const char *mode_content(const struct run *r, const char *handle, struct arena *a);
/* Handles in arguments that may be any text become what they stand for. */
void mode_fill(const struct run *r, const char *tool, json_t *arguments);
