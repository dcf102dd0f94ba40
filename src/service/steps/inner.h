/*
 * Internal state of steps, shared by the files of src/service/steps. Only they include this
 * header; other files call the functions of steps/live.h.
 */
#pragma once

#include "service/state.h"
#include "service/steps/live.h"

/* Part of struct service. */
struct service_steps {
    size_t saving;      /* machines whose layers are being saved: they share one disk */
    bool saved_unswept; /* the store may hold layers that nobody needs */
    uint64_t sweep_again_ms;
    uint64_t fallbacks[FELL_COUNT];
};

/* The saving of a machine's newest step to the store: durable.c. */
struct saving;
struct durable {
    bool wanted;               /* there is a step that was not looked at */
    uint64_t since_ms, due_ms; /* not before the latter */
    struct saving *saving;
    unsigned tries; /* that failed, one after the other */
    char why[200];  /* the last of them did */
};

struct barrier_call;
struct merging;
struct still;
struct step_call;

/* Part of struct live: what its root is made of, and the steps that are taken of it. */
struct live_steps {
    bool loaded;
    uint32_t layer;           /* number of its upper */
    char *stack;              /* below that; NULL: the image alone */
    struct step_call *taking; /* the one under way */
    struct still *still;      /* which is a copy: still.c */
    struct step_call *wanted, **wanted_last;
    bool held; /* a verb changes the root */
    struct barrier_call *waiting, **waiting_last;
    struct loop_call start;  /* the next one that is wanted */
    struct merging *merging; /* tidy.c */
    struct loop_timer *rest; /* before layers are merged */
    size_t merge_from;       /* layers: a merge failed, and is tried again when there are so many */
    bool copies_slowly;      /* a copy of the upper takes what was changed */
    uint32_t last_copy;      /* number of one; 0: none was taken yet */
    bool full;               /* a step found no room on the disk */
    bool freeing;            /* and old ones go: what they held becomes free in the background */
    bool unpruned;           /* there is more history than when it was last looked at */
    bool pruning;            /* prune.c */
    bool stale;              /* what is mounted may have been merged since: its parts are held */
    bool sweep;              /* the root is another now: what only the old one held may go */
    uint64_t full_look_ms;   /* when a full disk is looked at again */
    unsigned full_looks;     /* since something was let go of */
    uint64_t count;          /* of steps, when that was last done */
    uint64_t age_look_ms;
    struct durable durable;
};

/* rewind.c: finishes a rewind that an earlier daemon began. */
int rewind_adopt(struct live *l, struct step_row *row, struct err *err);

/*
 * prune.c: "3 7-9", the layers of a disk that a root, a step or this stack (or NULL) names. False:
 * that is not known, and nothing may be removed.
 */
enum { RANGES_SIZE = 16000 };
bool layers_named(struct store *store, const char *disk, const char *stack, char text[RANGES_SIZE],
                  struct err *err);

/*
 * The root of a machine at rest becomes another one of the same files, made of the layers as they
 * are merged by now: what only the old one held can go. If nothing was written since the newest
 * step, that step gets the new layers, which hold the same; else what was written is kept as a
 * step of its own.
 */
void steps_refresh(struct live *l);

/* The newest step that switched the root: it names what is mounted. Its number is 0: none did. */
int steps_newest_switch(struct live *l, struct step_row *ret, struct err *err);

/* A step or rewind found no room: the oldest steps go. False: it is to be refused. */
bool steps_make_room(struct live *l, const struct err *err, unsigned *tries);

/* tidy.c: merges what has become too many layers, in the background. */
void steps_compact(struct live *l);
/* Into as few as can be: its disk is full, and no step is left to drop. */
void steps_compact_full(struct live *l);
void steps_compact_release(struct live *l);

/*
 * still.c: the upper becomes that layer too, while everything stands still. how: btrfs, reflink,
 * copy. `at_once`: if that takes what was changed it is `unsupported`, and nothing stood still.
 */
typedef void still_fn(void *arg, const char *how, const struct err *err);
void still_copy(struct live *l, uint32_t number, bool at_once, still_fn *done, void *arg);
void still_release(struct live *l); /* the daemon leaves: the next one lets the machine go on */
