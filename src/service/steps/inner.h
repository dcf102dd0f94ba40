/*
 * Internal state of steps, shared by the files of src/service/steps. Only they include this
 * header; other files call the functions of steps/live.h.
 */
#pragma once

#include "service/state.h"
#include "service/steps/live.h"
#include "service/steps/steps.h"

/* Part of struct service. */
struct service_steps {
    size_t saving;      /* machines whose layers are being saved; they share a disk */
    bool saved_unswept; /* the store may hold unused layers */
    uint64_t sweep_again_ms;
    uint64_t fallbacks[FELL_COUNT];
    struct layers_hold *holds; /* hold.c */
};

/* Saving of the newest step of a machine to the store: durable.c. */
struct saving;
struct durable {
    bool wanted;               /* a new step waits to be saved */
    uint64_t since_ms, due_ms; /* first request to save; earliest time to save */
    struct saving *saving;
    unsigned tries; /* failed attempts in a row */
    char why[200];  /* reason of the last failure */
};

struct barrier_call;
struct merging;
struct shelving;
struct still;
struct step_call;
struct weighing;

/* Number of files and directories in a layer that is not merged: weigh.c. */
struct layer_weight {
    uint32_t number;
    uint32_t entries; /* 0: unknown */
};

/* Part of struct live: the root of the machine and its steps. */
struct live_steps {
    bool loaded;
    uint32_t layer;           /* number of the upper (the writable layer) */
    char *stack;              /* list of layers below the upper; NULL: only the image */
    struct step_call *taking; /* the step in progress */
    struct still *still;      /* set if that step is a copy: still.c */
    struct step_call *wanted, **wanted_last;
    bool held; /* an operation changes the root */
    struct barrier_call *waiting, **waiting_last;
    struct loop_call start;    /* starts the next requested step */
    struct merging *merging;   /* tidy.c */
    struct loop_timer *rest;   /* delay before layers are merged */
    struct weighing *weighing; /* files of layers are being counted: weigh.c */
    struct layer_weight weights[LAYERS_MAX];
    size_t weight_count;
    size_t merge_from;       /* a merge failed: retry at this number of layers */
    bool copies_slowly;      /* a copy of the upper would copy all changes */
    uint32_t last_copy;      /* layer number of the last copy; 0: none */
    char copy_step[ID_SIZE]; /* id of the newest step with the files of that copy; empty: none */
    bool beside_told;        /* see steps_tell_beside() */
    bool full;               /* a step found no space */
    bool spare_failed;       /* do not merge layers of old steps again, but drop steps */
    bool root_merged;        /* the layers of the root were merged for a full disk */
    uint32_t last_spare;     /* number of the last such merged layer; 0: none */
    bool freeing;            /* steps are being deleted; their space is freed in the background */
    bool unpruned;           /* there are steps since the last pruning */
    bool pruning;            /* prune.c */
    bool stale; /* mounted layers may have been merged: the old ones exist only for the mount */
    bool sweep; /* the root changed: layers of the old root may be deleted */
    uint64_t full_look_ms; /* time of the next check of a full disk */
    unsigned full_looks;   /* checks since something was freed */
    uint64_t count;        /* number of steps at the last pruning */
    uint64_t changes;      /* see steps_changes() */
    uint64_t age_look_ms;
    struct durable durable;
    struct shelving *shelving; /* shelve.c */
};

/* durable.c: the saved row of the machine, or a new one that is not written yet. */
struct saved_row;
int durable_row(struct live *l, struct saved_row *ret, struct err *err);
/* durable.c: finds the newest step that can be restored; ERR_NOT_FOUND: there is none. */
int durable_newest(struct live *l, struct step_row *ret, struct err *err);
/*
 * durable.c: deletes saved layers that the durable step does not use: those of the step before, and
 * of failed attempts.
 */
void durable_shed(struct live *l);
/* shelve.c: the daemon stops. */
void shelve_release(struct live *l);

/*
 * rewind.c: switches a machine without commands to this stack, as a rewind does, for an operation
 * that holds the machine and its barrier.
 */
struct rewind_texts {
    const char *kept, *to; /* what the two steps are, for people: constants */
};
void rewind_to(struct live *l, const struct rewind_texts *texts, const char *stack,
               service_step_fn *done, void *arg);

/* rewind.c: finishes a rewind that an earlier daemon started. */
int rewind_adopt(struct live *l, struct step_row *row, struct err *err);

/*
 * prune.c: "3 7-9", the layers of a disk that a root, a step, a reader (layers_hold) or this stack
 * (or NULL) refers to.
 * False: unknown, so nothing may be deleted.
 */
enum { RANGES_SIZE = 16000 };
bool layers_named(struct service *s, const char *disk, const char *stack, char text[RANGES_SIZE],
                  struct err *err);
/* hold.c: calls `each` for every held list of layers that may name a layer of `disk`. */
void layers_each_held(struct service *s, const char *disk,
                      void (*each)(void *arg, const char *stack), void *arg);

/*
 * Switches an idle machine to a new root with the same files, made of the merged layers, so that
 * the old layers can be deleted. If nothing was written since the newest step, that step gets the
 * new layers; otherwise the changes are kept as a step.
 */
void steps_refresh(struct live *l);

/* copy.c: true if the files of the step are a copy that was taken while commands ran. */
bool step_is_copy(const struct step_row *row);

/* The newest step that switched the root: its layers are mounted. Number 0: none did. */
int steps_newest_switch(struct live *l, struct step_row *ret, struct err *err);

/*
 * Call it if a step or rewind found no space: deletes the oldest steps. False: refuse the
 * operation.
 */
bool steps_make_room(struct live *l, const struct err *err, unsigned *tries);

/* tidy.c: merges layers in the background if there are too many. */
void steps_compact(struct live *l);
/*
 * Merges layers that no step needs separately, if there are such: the disk is full. False: there
 * are none, or the last attempt failed.
 */
bool steps_merge_spare(struct live *l);
/* Merges as many layers as possible: the disk is full, and no step is left to delete. */
void steps_compact_full(struct live *l);
void steps_compact_release(struct live *l);

/*
 * weigh.c: counts the files in the layers of the stack that are not counted yet, then calls
 * done(l). False: all are counted. steps_weights() returns the counts; false: some are unknown.
 */
bool steps_weigh(struct live *l, const struct layers *layers, loop_fn *done);
bool steps_weights(const struct live *l, const struct layers *layers, uint32_t ret[LAYERS_MAX]);
void steps_weigh_release(struct live *l);

/*
 * spare.c: finds layers that every step names together, or not at all, and a number for the merged
 * layer; false: there are none.
 * spare_replace() gives a merged layer to all these steps.
 */
bool spare_find(struct live *l, struct layers *ret, uint32_t *ret_into);
/* Chooses the number of such a layer. False: there is none now. */
bool spare_number(struct live *l, uint32_t *ret);
int spare_replace(struct live *l, const struct layers *run, uint32_t into, struct err *err);

/*
 * still.c: copies the upper to that layer while everything is frozen. how: btrfs, reflink, copy, or
 * same.
 */
enum still_option {
    STILL_AT_ONCE = 1,   /* `unsupported` if that would copy all changes, and nothing is frozen */
    STILL_MAY_SHARE = 2, /* copy nothing if the last copy has the same files: how is `same` */
    STILL_STAYS = 4,     /* the vm is being paused: after a success it still stands still */
};
typedef void still_fn(void *arg, const char *how, const struct err *err);
/* memory: a new file for the memory of the vm, which stands still from before the freeze; or NULL
 */
void still_copy(struct live *l, uint32_t number, unsigned options, const char *memory,
                still_fn *done, void *arg);
void still_release(struct live *l); /* the daemon stops: the next daemon thaws the machine */
