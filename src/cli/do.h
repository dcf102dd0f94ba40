/*
 * `carrel do`: its options, the request that starts a run, and the output of several tries.
 *
 * The daemon does the work: a run continues when the command is interrupted.
 */
#pragma once

#include "cli/new.h"

struct do_options {
    const char *model, *provider, *script, *mode, *menu, *money, *resume, *cancel, *export, *show,
        *check;
    uint64_t turns, tokens, timeout_ms, tries;
    struct option_list check_files;
    struct new_options made; /* the machine, where none is named */
    bool ask_deviations, verbose, quiet, json, ls, help;
};

enum { DO_BODY_MAX = 16 << 20, DO_NOT_DONE = 1, DO_INTERRUPTED = 2, DO_TRIES_MAX = 8 };

/* Machines that are made for a task: one, or with --tries one each. */
struct do_machines {
    char ids[DO_TRIES_MAX][64];
    size_t count;
};
/* As the options say; none where they say nothing. Those of a failure are removed again. */
int do_make(const struct do_options *o, struct client *c, struct do_machines *ret, struct err *err);

/* Of POST /v1/runs, but for what ends it. machine: NULL, or one that is there. */
int do_put_start(struct jot *j, const struct do_options *o, const struct client *c,
                 const char *machine, const struct do_machines *made, const char *task,
                 struct err *err);
void do_put_keys(struct jot *j, const struct client *c);
/* Was anything said about a machine that is to be made? */
bool do_makes(const struct do_options *o);

/* Lines of a run that has several tries, for a person; false: it is none of these. */
bool do_show_try(const json_t *event);
void do_show_tries(const json_t *report);
