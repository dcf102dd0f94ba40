/*
 * `--dir HOST[:GUEST][:ro|cow|rw][:untrusted]`: directories granted to a machine.
 *
 * The CLI opens the host directory with the caller's rights and passes its descriptor to the
 * daemon.
 */
#pragma once

#include "base/err.h"
#include "base/wire/plan.h"
#include "cli/options.h"

struct grants {
    size_t count;
    int dirs[PLAN_MAX_GRANTS];
    int uppers[PLAN_MAX_GRANTS]; /* descriptors of the changes in directories granted as copies
                                    (cow); -1: none */
    char host[PLAN_MAX_GRANTS][PLAN_PATH_SIZE]; /* absolute, links resolved */
    bool untrusted[PLAN_MAX_GRANTS];            /* the option ends with :untrusted */
    int working; /* index of the grant of the current directory, or -1 */
};

/* Opens the directories and fills the plan's grants. The daemon checks the paths in the machine. */
int grants_open(const struct option_list *dirs, struct plan *plan, struct grants *ret,
                struct err *err);
/* Warns of directories granted rw: says what the machine can do to the host through them. */
void grants_warn(const struct grants *g, const struct plan *plan);
void grants_close(struct grants *g);
/* Removes ":untrusted" from the end of an option's value; true: it was there. */
bool grants_cut_untrusted(char *words);
