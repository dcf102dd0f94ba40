/*
 * A box while it is created: its berth, its channels and its record.
 *
 * The phases, in order: gather, order, record, describe, release. Everything is recorded before the
 * box starts, so the next spawner finds it after a crash.
 */
#pragma once

#include <stdbool.h>
#include <sys/un.h>

#include "base/err.h"
#include "base/wire/plan.h"
#include "spawn/make/berth.h"
#include "spawn/make/netns.h"

struct spawner;
struct box;

/* Whatever is still here at the end is closed. */
struct making {
    struct berth berth;
    int listener; /* where hosts connect to the guest */
    int admin;    /* where the next spawner does */
    int control[2], link[2];
    int grants[PLAN_MAX_GRANTS], uppers[PLAN_MAX_GRANTS];
    int doors[NETNS_FDS]; /* for the gate; -1 when nobody wants them */
    bool has_berth;
    bool is_ready; /* its guest was let go before there was a creator */
};

struct making *making_new(void);    /* NULL: out of memory */
void making_free(struct making *m); /* the descriptors, not what they stand for */
void making_undo(struct spawner *s, struct making *m); /* gives everything back, and frees it */

/* The overlays of a berth are not for it: it lies on layers, or on another image. */
bool plan_is_restacked(const struct plan *plan);

/* The gate's sockets, for a plan that wants them. */
int making_listen(struct spawner *s, struct making *m, const struct plan *plan, struct err *err);
/* A berth with the limits of the plan, the channels, the grants. */
int making_gather(struct spawner *s, const struct plan *plan, const int *fds, struct making *m,
                  struct err *err);
/* The waiting process begins to set up the box. */
int making_order(const struct making *m, const struct plan *plan, struct err *err);
/* boxes/name with the record of the box and the guest's sockets. */
int making_record(struct spawner *s, const struct making *m, const struct box *box,
                  const char *name, struct err *err);
/* The record alone, again: what it says has changed. */
/*
 * Which layers lie below the upper of that number, beside the record: for whoever takes the box
 * over. Written before the root is switched, so that there is always one for box->layer.
 */
int making_keep_stack(struct spawner *s, const struct box *box, uint32_t layer, const char *stack,
                      struct err *err);
void making_drop_stack(struct spawner *s, const struct box *box, uint32_t layer);
/* `unsupported`: an older spawner switched its root, and nobody wrote it down. */
int making_read_stack(struct spawner *s, const struct box *box, char ret[LAYERS_TEXT_SIZE],
                      struct err *err);

/* What the directory of the store is called in records: whose uppers a box has. */
void making_home(const struct spawner *s, char ret[48]);
int making_amend(struct spawner *s, const struct box *box, const char *name, struct err *err);
/* machine.json inside the box. */
int making_describe(struct spawner *s, struct making *m, const struct plan *plan, struct err *err);
/* The set-up process may become the guest. */
int making_release(const struct making *m, struct err *err);
/* The creator holds its end of the connection already: that is where it hears of a failure. */
void making_tell(const struct making *m, const struct err *err);

/* A socket of a box, by a name that only the host can see. */
struct sockaddr_un box_socket(const struct spawner *s, const char *id, const char *name);
/* The host speaks first; said before the guest exists, it costs nobody a wait. */
int guest_greet(int link);
