/*
 * Steps: snapshots of a machine after each change, and the layers of its current root.
 *
 * A step with a restore point names its stack of layers (base/layers.h). Its row is written with
 * state STEP_TAKING before the layers are touched and set to STEP_DONE afterwards, so an unfinished
 * step can be requested again. A layer may be deleted once no row of a live machine names it.
 */
#pragma once

#include <stdbool.h>

#include "base/layers.h"
#include "store/machines.h"

/* The numbers are stored in the database. */
enum step_kind {
    STEP_EXEC = 1, /* a command ended */
    STEP_FILE,     /* a file was changed through the API */
    STEP_SNAP,     /* requested by the user */
    STEP_KEPT,     /* taken before a rewind or a risky command */
    STEP_REWIND,   /* files of an earlier step were restored */
    STEP_FORK,     /* the state in which a forked machine began */
    /* never becomes a finished step: the machine gets the same files on merged layers */
    STEP_REFRESH,
    STEP_KIND_LAST = STEP_REFRESH,
};
/*
 * Layers that were copied while commands ran get random numbers from here on. These are larger than
 * the numbers of uppers (writable layers) and of merged layers.
 */
enum { LAYER_COPIED = 400000000 };

enum step_state { STEP_TAKING = 1, STEP_DONE, STEP_STATE_LAST = STEP_DONE };

const char *step_kind_name(enum step_kind kind);

struct step_row {
    char id[ID_SIZE];
    char machine[ID_SIZE];
    uint32_t number; /* counts the steps of its machine from 1 */
    enum step_kind kind;
    enum step_state state;
    int64_t created_ms;
    char exec[ID_SIZE]; /* id of the command, or empty */
    char *what;         /* the command, the path or the user's reason; NULL: empty */
    int64_t status;     /* exit status of the command, as in a shell; -1: none */
    uint64_t files;     /* number of files changed since the step before */
    uint64_t bytes;     /* disk space of these files */
    uint32_t counted;   /* 1: files and bytes are known */
    uint32_t durable;   /* 1: the step survives a power cut */
    uint32_t layer;     /* number of the layer that this step froze; 0: no changes */
    uint32_t has_point; /* 0: the step cannot be restored, see `reason` */
    char *stack;
    /* Why the step cannot be restored; or, if its layer was copied, how it was copied. */
    char reason[STORE_REASON_SIZE];
    char name[STORE_NAME_SIZE]; /* unique in its machine, or empty; named steps are never pruned */
};

struct step_list {
    struct step_row *rows;
    size_t count;
};

void step_row_done(struct step_row *row);
void step_list_done(struct step_list *list);

/* Adds a step and sets row->number. ERR_EXISTS: the machine has a step with this name. */
int store_step_add(struct store *s, struct step_row *row, struct err *err);
/* Writes all members of the row except id, machine, number and created_ms. */
int store_step_update(struct store *s, const struct step_row *row, struct err *err);
/*
 * Finds a finished step by id, number or name, or by the id of the command that it was taken after;
 * "last" is the newest. A text that has the form of an id is never a name.
 */
int store_step_find(struct store *s, const char *machine, const char *text, struct step_row *ret,
                    struct err *err);
/*
 * Finds the newest finished step below a number that has a restore point. ERR_NOT_FOUND: there is
 * none.
 */
int store_step_point_before(struct store *s, const char *machine, uint32_t number,
                            struct step_row *ret, struct err *err);
/* Lists steps below a number (0: all), newest first: unfinished ones if `taking`, else others. */
int store_step_list(struct store *s, const char *machine, uint32_t before, bool taking,
                    size_t limit, struct step_list *ret, struct err *err);
/* Lists finished steps without a name, oldest first. */
int store_step_oldest(struct store *s, const char *machine, size_t limit, struct step_list *ret,
                      struct err *err);
int store_step_count(struct store *s, const char *machine, uint64_t *ret, uint64_t *ret_bytes,
                     struct err *err);
/* Sets or, if it is empty, removes the name. ERR_EXISTS: another step has it. */
int store_step_name(struct store *s, const struct step_row *row, const char *name, struct err *err);
int store_step_delete(struct store *s, const char *id, struct err *err);

/* The layers of a machine's root filesystem. */
struct root_row {
    char machine[ID_SIZE];
    uint32_t layer; /* number of the upper (the writable layer) of the machine */
    char *stack;    /* layers below the upper */
    char from_machine[ID_SIZE];
    char from_step[ID_SIZE];
};

void root_row_done(struct root_row *row);
int store_root_put(struct store *s, const struct root_row *row, struct err *err);
int store_root_get(struct store *s, const char *machine, struct root_row *ret, struct err *err);

/* Calls `each` for every stack of a live machine that contains a layer of this machine. */
typedef void stack_fn(void *arg, const char *stack);
int store_stacks_with(struct store *s, const char *machine, stack_fn *each, void *arg,
                      struct err *err);
/* The same, without the stacks of this machine itself. */
int store_stacks_of_others(struct store *s, const char *machine, stack_fn *each, void *arg,
                           struct err *err);
/* Calls `each` for every stack of a live machine, with the id of that machine. */
typedef void stack_of_fn(void *arg, const char *machine, const char *stack);
int store_stacks_all(struct store *s, stack_of_fn *each, void *arg, struct err *err);
