/*
 * Taint: data from an untrusted source, followed from one place to the next.
 *
 * A machine, an image or a directory of the host is tainted once it may hold such data, for good.
 * Every way that data takes between them is a row of one table. taint_join() is called before the
 * data is delivered, also when the rest of the verb fails. A taint that cannot be stored refuses
 * the flow.
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
    TAINT_FLOWS,
};

struct taint_flow_row {
    const char *name;
    const char *from, *to;
    const char *when; /* the taint is joined */
};
extern const struct taint_flow_row taint_flows[TAINT_FLOWS];

enum { TAINT_SOURCE_SIZE = 256 }; /* as the policy's */

/* ---- machines ---- */

/* Empty: it is not tainted. */
const char *taint_of(const struct live *l);
/* source: what tainted the place that the data comes from; NULL or empty: nothing did. */
int taint_join(struct live *to, enum taint_flow flow, const char *source, struct err *err);
/* A server was reached by this rule, which may be a trusted one. */
int taint_crossed(struct live *l, uint64_t rule, const char *host, struct err *err);
/* Its directories are known now: who shares one that it may write to is tainted with it. */
int taint_lent(struct live *l, struct err *err);
/* Its rules were read back. Whether those who share with it were reached is not known: tried again.
 */
void taint_restored(struct live *l);
/* Also of one that has ended. What is not known counts as tainted. */
void service_taint_of(struct service *s, const char *machine, char ret[TAINT_SOURCE_SIZE]);
/* Of a machine of the caller; `from` may have ended. */
int service_taint_flow(struct service *s, const struct caller *who, enum taint_flow flow,
                       const char *from, const char *to, struct err *err);
/* The same for data that somebody has seen and may have used. */
int service_taint_seen(struct service *s, const struct caller *who, const char *source,
                       const char *to, struct err *err);

/* What a conversation has seen outlives the daemon, so that its next machine is tainted too. */
int service_taint_heard(struct service *s, const struct caller *who, const char *talk,
                        const char *source, struct err *err);
/* Empty: nothing. What cannot be read counts as tainted. */
void service_taint_talk(struct service *s, const struct caller *who, const char *talk,
                        char ret[TAINT_SOURCE_SIZE]);

/* ---- what is handed to a machine that is made, or later ---- */

/* Writes where a descriptor leads. False: that is not known. */
bool taint_real_path(int fd, char *ret, size_t size);
/* Directories, files and repositories of a plan, and its image. */
int taint_plan(struct live *l, const struct caller *who, const struct machine_request *r,
               const struct grant_plan *p, struct err *err);
int taint_grant(struct live *l, const struct grant_request *r, int fd, struct err *err);
/* *ret: what is in the image may be a stranger's doing. */
int taint_has_image(const struct service *s, const char *owner, const char *image, bool *ret,
                    struct err *err);

/* ---- what comes out of one ---- */

int taint_image(const struct live *l, const char *owner, const char *image, struct err *err);
/* A change set goes to a directory of the host: of its machine, and of all that have it. */
int taint_shipped(struct service *s, const char *owner, const char *source, const char *target,
                  struct err *err);

/* One of the paths is the other one, or lies below it. */
bool taint_overlaps(const char *a, const char *b);
