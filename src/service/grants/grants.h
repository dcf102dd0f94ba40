/*
 * Grants: what a machine received from its owner. Each grant is listed and journalled, may expire,
 * and can be revoked while the machine runs.
 *
 * Directories are granted only when a machine is created; everything else also later.
 */
#pragma once

#include "service/net/net.h"
#include "service/service.h"

/* {"machine","grants":[{"id","kind","what","at","mode","created_ms","expires_ms","detail"}]} */
void service_grant_list(struct service *s, const struct caller *who, const char *machine,
                        service_net_fn *done, void *arg);
/*
 * Adds a grant. It is on disk and in the machine before `done` is called. fd: descriptor of the
 * data to copy if a local caller grants a file, repository or database, else -1; owned by the
 * caller.
 */
void service_grant_add(struct service *s, const struct caller *who, const char *machine,
                       const struct grant_request *r, int fd, service_net_fn *done, void *arg);
/*
 * Revokes the grant with this id. Copied data is deleted. A directory is unmounted; if a command
 * uses it, all commands of the machine are killed.
 */
void service_grant_revoke(struct service *s, const struct caller *who, const char *machine,
                          const char *id, service_net_fn *done, void *arg);

/* Counts of one kind of grant. `live` is the present number; the others start with the daemon. */
struct grant_counts {
    const char *kind;
    uint64_t live, added, revoked, expired;
};
typedef void service_grant_counts_fn(void *arg, const struct grant_counts *c);
void service_each_grant_kind(struct service *s, service_grant_counts_fn *fn, void *arg);

/* Counts databases on servers of owners: those in use by machines, and those not dropped yet. */
struct database_counts {
    uint64_t live, to_drop;
};
void service_database_counts(struct service *s, struct database_counts *ret);

/*
 * Answers the changes in a granted database since it was granted, as
 * {"machine","grant","kind","what","at","same","diff","cut"}. A database on a server also has
 * "database", its name, and has "error" in place of the diff if it cannot be read.
 */
void service_grant_diff(struct service *s, const struct caller *who, const char *machine,
                        const char *id, service_net_fn *done, void *arg);
