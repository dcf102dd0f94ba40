/*
 * `--dir HOST[:GUEST][:ro|cow|rw][:untrusted]`: directories granted to a machine.
 *
 * The CLI opens the host directory with the caller's rights and passes its descriptor to the
 * daemon.
 */
#pragma once

#include "base/err.h"
#include "base/plan.h"
#include "cli/options.h"

struct grants {
    size_t count;
    int dirs[PLAN_MAX_GRANTS];
    int uppers[PLAN_MAX_GRANTS];                /* changes of a cow grant, once the box exists */
    char host[PLAN_MAX_GRANTS][PLAN_PATH_SIZE]; /* absolute, links resolved */
    bool untrusted[PLAN_MAX_GRANTS];            /* strangers may have written it */
    int working; /* the grant that is the caller's own directory, or -1 */
};

/* Fills the plan's grants. Whether they may be lent, and there, is for the daemon to say. */
int grants_open(const struct option_list *dirs, struct plan *plan, struct grants *ret,
                struct err *err);
void grants_close(struct grants *g);
/* Cuts ":untrusted" off the end of what is handed over; true: it was there. */
bool grants_cut_untrusted(char *words);
