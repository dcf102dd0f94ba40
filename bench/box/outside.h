/*
 * Programs run outside of any box: the floor of every comparison, and the peers.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/err.h"
#include "world.h"

/* Starts argv by fork and exec; *ret_pipe (may be NULL) is its standard output. */
pid_t outside_start(const char *const *argv, int *ret_pipe);

/* fork+exec to its first byte and to its end. */
int outside_exec(const char *const *argv, struct moments *ret, struct err *err);

/* The same, keeping what it wrote and what it and its children used. */
int outside_read(const char *const *argv, char *out, size_t size, struct rusage *ret,
                 struct err *err);

/* One peer: a tool of the distribution that makes something like a box. */
struct peer {
    const char *name;
    char why_not[120];    /* it is not here, or does not work here */
    unsigned every;       /* slow ones run in one round of so many */
    const char *echo[32]; /* whole commands */
    const char *true_[32];
};

enum { PEER_MAX = 4 };

struct peers {
    struct peer all[PEER_MAX];
    char work[256]; /* the folder of their bundles */
    char bundles[2][300];
};

/* Tries each one once. dir: an existing folder for what they need. */
int peers_open(struct peers *p, const char *dir, struct err *err);
const struct peer *peers_find(const struct peers *p, const char *name);
