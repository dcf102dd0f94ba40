/*
 * Stray boxes: boxes on this host that this daemon must not end. This store has no row for them,
 * their row is unreadable, or they belong to another store. They are kept and listed, and adopted
 * only on request.
 */
#pragma once

#include "base/wire/plan.h"
#include "service/service.h"

struct live;

enum stray_kind {
    STRAY_NO_ROW,  /* not in this database: from another store, or the database is an older copy */
    STRAY_DAMAGED, /* its row is unreadable */
    STRAY_OTHERS,  /* this store has a row for it, but the box names another store */
};

/* Adds a stray box. If the id is known already, nothing changes. `why` may be NULL. */
void strays_add(struct service *s, enum stray_kind kind, const struct plan_found *found,
                const char *why);
/*
 * True if objects without a row may be deleted: every box is known, and none of them shows that the
 * database is incomplete.
 */
bool strays_may_sweep(const struct service *s);
void strays_free(struct service *s);

struct stray_view {
    const char *id;
    const char *store; /* NULL: unknown */
    const char *reason;
    bool adoptable;
};

const char *service_store_id(const struct service *s);
/* Number of stray boxes that this caller may see; 0 without the scope admin. */
size_t service_stray_count(const struct service *s, const struct caller *who);

/* Both require the scope admin. */
typedef void service_stray_fn(void *arg, const struct stray_view *view);
int service_strays(struct service *s, const struct caller *who, service_stray_fn *each, void *arg,
                   struct err *err);
/*
 * Turns the box into a machine of the caller, with its files and commands, and its limits as far as
 * they are known. What it has read is unknown: it becomes tainted and guarded, and has no network
 * rules.
 */
void service_stray_adopt(struct service *s, const struct caller *who, const char *id,
                         service_machine_fn *done, void *arg);
