/*
 * State of the daemon itself: status, counters and journal.
 *
 * Numbers over all owners are only for callers that see all (service_sees_all()).
 */
#pragma once

#include "service/service.h"
#include "store/journal.h"
#include "store/machines.h"

/* Status of the spawner as one JSON object: pools, fallbacks, enforced limits. */
typedef void service_text_fn(void *arg, const char *json, const struct err *err);
void service_host_status(struct service *s, service_text_fn *done, void *arg);

/* True if this caller may see the machine. */
bool service_may_tell(struct service *s, const struct caller *who, const char *machine);

/* Counters of limits that were reached. Requests that are refused at once are counted elsewhere. */
enum limit_hit { HIT_MEMORY, HIT_TIME, HIT_LIFETIME, HIT_IDLE, HIT_QUOTA, HIT_COMMANDS, HIT_COUNT };
const char *limit_hit_name(enum limit_hit hit);

/* Counters of fallbacks that were used. The spawner counts those of creating a box. */
enum fallback { FELL_STEP_COPIED, FELL_STEP_WITHOUT_POINT, FELL_COUNT };
const char *fallback_name(enum fallback way);

/* True if this caller may see numbers over all owners. */
bool service_sees_all(const struct caller *who);

/* For a caller that does not see all, only machines and commands are set, for its owner. */
struct service_counts {
    uint64_t hits[HIT_COUNT];
    uint64_t fallbacks[FELL_COUNT];
    uint64_t machines[MACHINE_ENDED + 1]; /* number of machines by state */
    uint64_t commands;                    /* number of running commands */
    struct store_stats store;
    struct store_room room;
};
void service_count(struct service *s, const struct caller *who, struct service_counts *ret);

/* The disk that holds CARREL_HOME. */
struct room_view {
    struct store_room room;
    const char *home;   /* NULL: this caller may not see it */
    const char *remedy; /* NULL: the disk has enough space */
};
void service_room(const struct service *s, const struct caller *who, struct room_view *ret);

/* Path of the kernel of vms in carrel.conf; empty: none is set. */
const char *service_vm_kernel(const struct service *s);

/* Returns the last journal record that this daemon wrote. A journal that ends before it was
 * truncated. */
void service_journal_head(const struct service *s, struct journal_head *ret);

/*
 * Finds the id of the machine whose records are wanted. An id is returned as it is, because
 * records outlive their machine. A name is that of a machine, or of the newest one that has ended.
 */
int service_audit_machine(struct service *s, const struct caller *who, const char *ref,
                          char ret[ID_SIZE], struct err *err);
/*
 * Returns the directory of the journal, and limits the filter of a caller without the scope admin
 * to its own records.
 */
int service_audit(struct service *s, const struct caller *who, struct journal_filter *filter,
                  char *ret_dir, size_t size, struct err *err);

/*
 * Calls `each` with the disk usage and steps of every live machine that the caller may see, as last
 * measured.
 */
typedef void service_disk_fn(void *arg, const char *machine, uint64_t bytes, uint64_t steps);
void service_each_disk(const struct service *s, const struct caller *who, service_disk_fn *each,
                       void *arg);
