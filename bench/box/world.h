/*
 * A spawner of the benchmark's own, and boxes made through it.
 *
 * It runs in directories of its own, so that nothing of the user's is measured or touched;
 * world_close() ends every box, stops it and removes the directories.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"
#include "base/wire/plan.h"
#include "io/guest_link.h"
#include "io/place.h"

struct world {
    struct place place;
    char carrel[PLACE_SIZE]; /* the program */
    char tools[PLACE_SIZE];  /* the folder of the benchmark's own helpers */
    int link;
};

enum world_kind {
    WORLD_USUAL, /* as users have it; sets CARREL_RUN and CARREL_HOME for children */
    WORLD_BARE,  /* its spawner keeps no box ready: every one is made from parts when asked for */
};

/* build: the folder that holds carrel and libexec. */
int world_open(struct world *w, const char *build, enum world_kind kind, struct err *err);
void world_close(struct world *w);

/* Waits until exactly so many boxes exist, nothing of older ones is left, and all pools are full.
 */
int world_settle(const struct world *w, unsigned boxes, struct err *err);

/* Waits until no box is left, whatever the pools hold. */
int world_empty(const struct world *w, struct err *err);

/* Waits until every box is killed and reaped; what they left may still be there. */
int world_reaped(const struct world *w, struct err *err);

struct box {
    char id[ID_SIZE];
    struct guest_link *guest;
};

struct box_spec {
    bool linger;
    const char *grant;   /* a directory lent read-only at /bench; may be NULL */
    uint64_t disk_bytes; /* 0: the default */
};

/* With limits for memory, cpu and processes, through the given connection to the spawner. */
int box_open(struct box *b, int link, const struct box_spec *spec, struct err *err);

/* Lets go of the guest: a box that does not linger ends itself, and is cleaned up behind us. */
void box_drop(struct box *b);

/* Ends it and waits until nothing is left. */
int box_destroy(struct box *b, int link, struct err *err);

/* When a command's first byte came and when it had ended, from a given start. */
struct moments {
    uint64_t first_ns, end_ns;
};

/* Runs a command with stdin and stderr /dev/null; its output is thrown away and may be empty. */
int box_exec(struct box *b, uint32_t id, const char *const *argv, uint64_t start_ns,
             struct moments *ret, struct err *err);

/* The same, keeping what it wrote (NUL-terminated, cut at size) and what it used. */
int box_read(struct box *b, uint32_t id, const char *const *argv, char *out, size_t size,
             struct guest_result *ret, struct err *err);
