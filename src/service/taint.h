/*
 * Taint marks data from an untrusted source, and follows it from one place to the next.
 *
 * A machine, an image or a directory of the host is tainted once it may hold such data, and stays
 * tainted. Each way that data can take between them is a row of one table. taint_join() is called
 * before the data is delivered, even if the operation fails later. If the taint cannot be stored,
 * the data is not delivered.
 */
#pragma once

#include "service/service.h"

struct live;
struct grant_plan;

enum taint_flow {
    TAINT_NETWORK,
    TAINT_PROVIDER,
    TAINT_UNTRUSTED,
    TAINT_FORK,
    TAINT_IMAGE,
    TAINT_REPORT,
    TAINT_BRING,
    TAINT_CHECK,
    TAINT_TOOLS,
    TAINT_CHANGESET,
    TAINT_SHIP,
    TAINT_HANDOVER,
    TAINT_SHARED,
    TAINT_UPLOAD,
    TAINT_FLOWS,
};

struct taint_flow_row {
    const char *name;
    const char *from, *to;
    const char *when; /* when taint_join() is called */
};
extern const struct taint_flow_row taint_flows[TAINT_FLOWS];

enum { TAINT_SOURCE_SIZE = 256 }; /* bytes, the same as in the gate's policy */

/* ---- taint of machines ---- */

/* Returns the source that tainted the machine; empty: not tainted. */
const char *taint_of(const struct live *l);
/* Taints the machine `to`. source: what tainted the origin of the data; NULL or empty: nothing. */
int taint_join(struct live *to, enum taint_flow flow, const char *source, struct err *err);
/* Call it when a server was reached by this rule; a trusted rule does not taint. */
int taint_crossed(struct live *l, uint64_t rule, const char *host, struct err *err);
/*
 * Call it when the directories are known: taints machines that share one that this machine may
 * write to.
 */
int taint_lent(struct live *l, struct err *err);
/*
 * Call it when the rules were read from the store. Passing the taint on may have been interrupted,
 * so it is repeated.
 */
void taint_restored(struct live *l);
/* Writes the taint of a machine, which may have ended. An unknown machine counts as tainted. */
void service_taint_of(struct service *s, const char *machine, char ret[TAINT_SOURCE_SIZE]);
/* Joins the taint of machine `from`, which may have ended, to `to`, a machine of the caller. */
int service_taint_flow(struct service *s, const struct caller *who, enum taint_flow flow,
                       const char *from, const char *to, struct err *err);
/* Joins the taint of data that a caller has seen and may have used to its machine `to`. */
int service_taint_seen(struct service *s, const struct caller *who, const char *source,
                       const char *to, struct err *err);

/*
 * Records what a conversation has seen, so that its next machine is tainted too, even after a
 * restart.
 */
int service_taint_heard(struct service *s, const struct caller *who, const char *talk,
                        const char *source, struct err *err);
/* Writes the taint of a conversation; empty: not tainted. An unreadable one counts as tainted. */
void service_taint_talk(struct service *s, const struct caller *who, const char *talk,
                        char ret[TAINT_SOURCE_SIZE]);

/* ---- grants and images of a machine ---- */

/* Writes the real path of a descriptor. False: unknown. */
bool taint_real_path(int fd, char *ret, size_t size);
/* Joins the taint of the image and of all directories, files and repositories. */
int taint_plan(struct live *l, const struct caller *who, const struct machine_request *r,
               const struct grant_plan *p, struct err *err);
int taint_grant(struct live *l, const struct grant_request *r, int fd, struct err *err);
/* *ret is true if the image may contain untrusted data. */
int taint_has_image(const struct service *s, const char *owner, const char *image, bool *ret,
                    struct err *err);

/* ---- images and change sets from a machine ---- */

int taint_image(const struct live *l, const char *owner, const char *image, struct err *err);
/* The directory `to` is a copy of the directory `from`, such as that of a volume. */
int taint_copied(struct service *s, const char *owner, const char *from, const char *to,
                 struct err *err);
/*
 * Call it before a change set is shipped to a directory of the host: taints the directory and all
 * machines that have it.
 */
int taint_shipped(struct service *s, const char *owner, const char *source, const char *target,
                  struct err *err);

/* True if the paths are equal or one is below the other. */
bool taint_overlaps(const char *a, const char *b);
