/* `carrel do`: its options, the request that starts a run, and several tries at once. */
#pragma once

#include "cli/new.h"

struct do_options {
    const char *model, *provider, *script, *mode, *menu, *money, *resume, *cancel, *export, *check;
    uint64_t steps, tokens, wall, tries;
    struct new_options made; /* the machine, where none is named */
    bool verbose, json, ls, help;
};

enum { DO_BODY_MAX = 16 << 20, DO_NOT_DONE = 1, DO_INTERRUPTED = 2 };

/* Of POST /v1/runs. parts: tokens and money are divided by it. */
int do_put_start(struct jot *j, const struct do_options *o, const struct client *c,
                 const char *machine, const char *task, uint64_t parts, struct err *err);
void do_put_keys(struct jot *j, const struct client *c);
/* Was anything said about a machine that is to be made? */
bool do_makes(const struct do_options *o);

/* k tries side by side, each on a machine of its own; the best one stays. The exit status. */
int do_tries(struct client *c, const struct do_options *o, const char *machine, const char *task,
             struct err *err);
