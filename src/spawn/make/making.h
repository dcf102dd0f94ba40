/*
 * A box while it is created: its berth (the prepared parts), its connections to the host and its
 * record on disk.
 *
 * The functions are called in this order: making_gather(), making_order(), making_record(),
 * making_describe(), making_release(). Everything is recorded before the box starts, so the next
 * spawner finds it after a crash.
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

/*
 * The parts of a box that is being created. making_free() closes the descriptors that the box did
 * not take over.
 */
struct making {
    struct berth berth;
    int listener; /* socket for connections to the guest */
    int admin;    /* socket for the connection of the next spawner */
    int control[2], link[2];
    int grants[PLAN_MAX_GRANTS], uppers[PLAN_MAX_GRANTS];
    int doors[NETNS_FDS]; /* sockets for the gate; -1 if not requested */
    bool has_berth;
    bool is_ready; /* a ready box: its guest was started in advance */
};

struct making *making_new(void);    /* NULL: out of memory */
void making_free(struct making *m); /* closes descriptors and frees m, nothing else */
/* removes all parts of the box and frees m */
void making_undo(struct spawner *s, struct making *m);

/*
 * True if the overlay mounts of a berth do not fit the plan, because the box has layers or another
 * image than the default.
 */
bool plan_is_restacked(const struct plan *plan);

/* Opens the gate's sockets in the network of the box; and closes them. */
int making_open_doors(struct spawner *s, struct making *m, const char *id, struct err *err);
void making_close_doors(struct making *m);
/*
 * Collects the parts of the box: a berth with the limits of the plan, the connections and the
 * granted directories.
 */
int making_gather(struct spawner *s, const struct plan *plan, const int *fds, struct making *m,
                  struct err *err);
/* Sends the plan: the waiting process starts to set up the box. */
int making_order(const struct making *m, const struct plan *plan, struct err *err);
/* Creates boxes/NAME with the record of the box and the guest's sockets. */
int making_record(struct spawner *s, const struct making *m, const struct box *box,
                  const char *name, struct err *err);
/*
 * Writes the list of layers below the upper (the writable layer) with number `layer` to a file
 * beside the record of the box, for the next spawner. It is called before the root is switched, so
 * such a file always exists for box->layer.
 */
int making_keep_stack(struct spawner *s, const struct box *box, uint32_t layer, const char *stack,
                      struct err *err);
void making_drop_stack(struct spawner *s, const struct box *box, uint32_t layer);
/*
 * Reads the file of making_keep_stack() for box->layer. ERR_UNSUPPORTED: an older spawner did not
 * write it.
 */
int making_read_stack(struct spawner *s, const struct box *box, char ret[LAYERS_TEXT_SIZE],
                      struct err *err);

/*
 * Writes the text that identifies the spawner's store directory in records of boxes: the uppers
 * (writable layers) of a box are in that store.
 */
void making_home(const struct spawner *s, char ret[48]);
/* Writes the record of a box again, after a change. */
int making_amend(struct spawner *s, const struct box *box, const char *name, struct err *err);
/* Writes machine.json into the box. */
int making_describe(struct spawner *s, struct making *m, const struct plan *plan, struct err *err);
/* Lets the set-up process of the box execute the guest program. */
int making_release(const struct making *m, struct err *err);
/* Reports that the box could not be created, on the connection that its creator already has. */
void making_tell(const struct making *m, const struct err *err);

/* Returns the address of a socket of a box; only the host can see its path. */
struct sockaddr_un box_socket(const struct spawner *s, const char *id, const char *name);
/*
 * Sends the first frame from the host to the guest. The guest process need not exist yet, so the
 * function does not wait for an answer.
 */
int guest_greet(int link);
