/*
 * Modes of a run: which calls the model may make and what it sees of their results, whatever the
 * model says. Each mode is a table row that is consulted in three places of the run: the list of
 * tools, the check of a call, and the display of a result. Pure.
 *
 *   free               any call, full results
 *   plan-then-execute  the model fixes its calls before it reads anything; only those run, in order
 *   action-selector    calls from a menu that the owner wrote; the model sees no results
 *   map                results are handles; items are read one by one into bounded records
 *   handles            results are handles; the model asks questions about them, bounded answers
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
    bool verifies;      /* `finish` with status done needs a check after the first `finish` */
    const char *own[3]; /* names of tools that only a run has, NULL-terminated */
    const char *card;   /* description of the mode for the model */
};

/* name NULL: mode `free`. The remedy of the error `invalid` lists all modes. */
const struct run_mode *mode_find(const char *name, struct err *err);
/* The mode of a run whose start line was applied. */
const struct run_mode *mode_of(const struct run *r);

enum { MODE_MENU_MAX = 256 << 10 };
/* Checks a menu, {"calls":[...]} (operator/template.h), and that its tools exist. */
int mode_menu_check(const char *menu, const struct run_tools *may, struct err *err);

/* Whether the model is offered this tool. own: a tool that only a run has. */
bool mode_offers(const struct run_mode *m, const char *menu, const char *tool, bool own);
/* The reason to refuse a call of the newest turn, in the arena; NULL: make the call. */
const char *mode_refuses(const struct run *r, const struct run_call *c, struct arena *a);
/* Checks the calls that the model wants to fix; *ret_hash is the hash of the list. */
int mode_freeze(const struct run *r, const char *arguments, const struct run_tools *may,
                char ret_hash[65], struct err *err);

/* The text that the model sees for a result: the text itself, or a handle in the arena. */
const char *mode_shown(const struct run *r, size_t turn, size_t index, struct arena *a);
bool mode_hides(const struct run *r, const struct run_call *c);
/* The text behind a handle, in the arena; NULL: unknown handle. */
const char *mode_content(const struct run *r, const char *handle, struct arena *a);
/* Replaces handles by the text behind them, in arguments of a call that may hold any text. */
void mode_fill(const struct run *r, const char *tool, json_t *arguments);
