/*
 * Grants, for the rest of src/service: handed over when a machine is made or forked, taken back
 * when they expire, looked after on every tick. Only grants/ knows what is inside struct
 * service_grants and struct live_grants.
 */
#pragma once

#include "service/net/net.h"
#include "service/service.h"
#include "store/grants.h"

struct live;
struct live_grants;
struct service_grants;

struct service_grants *service_grants_new(struct service *s);
/* Ends the work on databases. Call it before the machines are freed. */
void service_grants_stop(struct service_grants *g);
/* Call it after the machines are freed: deletes copies that no grant needs. */
void service_grants_free(struct service *s);
struct live_grants *live_grants_new(void);
void live_grants_free(struct live_grants *g);

/* Grants of a machine that is being created; not written yet. */
struct grant_plan {
    struct grant_row *rows;
    int *fds; /* of the data to copy; or -1 */
    bool *ours;
    size_t count;
    size_t inherited; /* rows that a fork has of its source, beside these */
};
void grant_plan_done(struct grant_plan *p);

/* Takes the row's texts. fd may be -1; ours: it is closed with the plan. */
void grant_plan_add(struct grant_plan *p, struct grant_row *row, int fd, bool ours);
/* Checks a request, opens its file and adds it to a plan. */
int grant_plan_read(struct service *s, const struct caller *who, const struct grant_request *r,
                    int fd, struct grant_plan *p, struct err *err);
/* True: grants_deliver() has work for some row of the plan. */
bool grant_plan_delivers(const struct grant_plan *p);
bool grant_wants_file(const struct grant_request *r);

/*
 * Writes the rows of a new machine in one transaction, and to the journal. A fork gets those of its
 * source too; what it cannot share goes into the plan.
 */
int grants_write(struct live *l, const struct caller *who, const struct live *from,
                 struct grant_plan *p, struct err *err);
/* Copies the files of a plan into a running machine, one after the other. Takes the plan. */
void grants_deliver(struct live *l, struct grant_plan *p, service_done_fn *done, void *arg);
void grants_restore(struct live *l);
/* Called by the tick: revokes expired grants. */
void grants_look(struct live *l, int64_t wall_ms);
/* True while a grant is being delivered or revoked. */
bool grants_are_busy(const struct live *l);
/* A machine has ended: the next sqlite_look() deletes copies of its databases. */
void grants_machine_ended(struct service *s);

/*
 * Grants that do not survive a new box: directories. The first is called in the transaction that
 * writes the new box, the second after its commit.
 */
int grants_write_woken(struct live *l, struct grant_list *ret, struct err *err);
void grants_note_woken(struct live *l, const struct grant_list *gone);

/* ---- sqlite.c ---- */

/* Called by the tick: deletes copies without a grant, if there may be any. */
void sqlite_look(struct service *s);
/* Opens the granted copy, which is kept as long as the grant. */
int sqlite_base(const struct service *s, const struct grant_row *row, struct err *err);
/*
 * Answers as service_grant_diff(). If `frozen` is a descriptor, also writes the machine's database
 * to it as one valid file, or fails. The caller owns the descriptor.
 */
void sqlite_freeze(struct service *s, const struct caller *who, const struct grant_row *row,
                   int frozen, service_net_fn *done, void *arg);

/* ---- postgres_look.c ---- */

/* Changes in the database since the grant. Never fails: the answer contains the error. */
void postgres_tell(struct live *l, const struct grant_row *row, service_net_fn *done, void *arg);

/* ---- databases.c ---- */

/* A secret has a new value: retries databases that were given up. */
void databases_again(struct service *s);
/* Called by the tick. */
void databases_look(struct service *s, uint64_t now_ms);
