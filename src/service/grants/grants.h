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
 * On the disk, and in the machine, before it is acknowledged. fd: of what is copied, when a local
 * caller grants a file, a repository or a database; else -1. It stays the caller's.
 */
void service_grant_add(struct service *s, const struct caller *who, const char *machine,
                       const struct grant_request *r, int fd, service_net_fn *done, void *arg);
/*
 * By id. What was copied is removed; a directory is unmounted, and where a command has it open, all
 * commands end.
 */
void service_grant_revoke(struct service *s, const struct caller *who, const char *machine,
                          const char *id, service_net_fn *done, void *arg);

/* One kind after the other; all but `live` since the daemon started. */
struct grant_counts {
    const char *kind;
    uint64_t live, added, revoked, expired;
};
typedef void service_grant_counts_fn(void *arg, const struct grant_counts *c);
void service_each_grant_kind(struct service *s, service_grant_counts_fn *fn, void *arg);

/* On servers of owners: those that machines have, and those that could not be dropped yet. */
struct database_counts {
    uint64_t live, to_drop;
};
void service_database_counts(struct service *s, struct database_counts *ret);

/*
 * What a machine made of a database that it was handed as a copy, against that copy:
 * {"machine","grant","kind","what","at","same","diff","cut"}. Of one on a server: what it is.
 */
void service_grant_diff(struct service *s, const struct caller *who, const char *machine,
                        const char *id, service_net_fn *done, void *arg);
