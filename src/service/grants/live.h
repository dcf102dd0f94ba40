/*
 * Grants, for the rest of src/service: a machine gets them when it is created or forked, and they
 * are revoked when they expire. Each tick calls the _look() functions. Only files of grants/ know
 * the fields of struct service_grants and struct live_grants.
 */
#pragma once

#include "service/net/net.h"
#include "service/service.h"
#include "store/grants.h"

struct live;
struct live_grants;
struct service_grants;

struct service_grants *service_grants_new(struct service *s);
/* Stops creating and dropping databases. Call it before the machines are freed. */
void service_grants_stop(struct service_grants *g);
/* Deletes copies of databases that no grant needs. Call it after the machines are freed. */
void service_grants_free(struct service *s);
struct live_grants *live_grants_new(void);
void live_grants_free(struct live_grants *g);

/* Grants of a machine that is being created; not written yet. */
struct grant_plan {
    struct grant_row *rows;
    int *fds;   /* per row: descriptor of the data to copy; or -1 */
    bool *ours; /* per row: grant_plan_done() closes the descriptor */
    size_t count;
    size_t inherited; /* number of further rows that a fork got from its source */
};
void grant_plan_done(struct grant_plan *p);

/* Adds a row and takes its texts. fd may be -1; ours: grant_plan_done() closes fd. */
void grant_plan_add(struct grant_plan *p, struct grant_row *row, int fd, bool ours);
/* Checks a request, opens its file and adds it to a plan. */
int grant_plan_read(struct service *s, const struct caller *who, const struct grant_request *r,
                    int fd, struct grant_plan *p, struct err *err);
/* Marks the grant whose directory is the start directory of the machine (start_dir.c). */
void grant_plan_mark_start(struct grant_plan *p);
/* True if grants_deliver() has to copy or run something for a row of the plan. */
bool grant_plan_delivers(const struct grant_plan *p);
/* True if the grant copies a file of the host, which a local caller must pass. */
bool grant_wants_file(const struct grant_request *r);

/*
 * Writes the grants of a new machine to the store, in one transaction, and to the journal. A fork
 * (`from` is its source) gets the grants of its source too. New grants in place of those that it
 * cannot share are added to the plan.
 */
int grants_write(struct live *l, const struct caller *who, const struct live *from,
                 struct grant_plan *p, struct err *err);
/* Copies the files of a plan into a running machine, one after the other. Takes the plan. */
void grants_deliver(struct live *l, struct grant_plan *p, service_done_fn *done, void *arg);
/* Tells the gate about the secrets and databases of the machine, and finds the next expiry. */
void grants_restore(struct live *l);
/* Called by the tick: revokes expired grants. */
void grants_look(struct live *l, int64_t wall_ms);
/* True while a grant is being delivered or revoked. */
bool grants_are_busy(const struct live *l);
/* Call when a machine has ended: the next sqlite_look() deletes the copies of its databases. */
void grants_machine_ended(struct service *s);

/*
 * Revokes the grants that do not survive a new box (after a restart of the host): directories. Call
 * the first in the transaction that writes the new box, the second after its commit.
 */
int grants_write_woken(struct live *l, struct grant_list *ret, struct err *err);
void grants_note_woken(struct live *l, const struct grant_list *gone);

/* ---- sqlite.c ---- */

/* Called by the tick: deletes copies without a grant, if there may be any. */
void sqlite_look(struct service *s);
/* Opens the base copy: the database as it was granted, kept as long as the grant. */
int sqlite_base(const struct service *s, const struct grant_row *row, struct err *err);
/*
 * Gives the same answer as service_grant_diff(). If `frozen` is not -1, also writes the machine's
 * database to that descriptor as one valid file, or fails. The caller owns the descriptor.
 */
void sqlite_freeze(struct service *s, const struct caller *who, const struct grant_row *row,
                   int frozen, service_net_fn *done, void *arg);

/* ---- postgres_look.c ---- */

/* Answers the changes in the database since the grant. If that fails, the answer has the error. */
void postgres_tell(struct live *l, const struct grant_row *row, service_net_fn *done, void *arg);

/* ---- databases.c ---- */

/* Call when a secret has a new value: tries again to drop databases that were given up. */
void databases_again(struct service *s);
/* Called by the tick: drops databases without a grant, and retries failed drops. */
void databases_look(struct service *s, uint64_t now_ms);
