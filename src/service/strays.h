/*
 * Stray boxes: boxes on this host that this daemon must not end. No row of this store has them,
 * their row is unreadable, or they belong to another store. They are kept and listed; adopting one
 * is an explicit request.
 */
#pragma once

#include "base/wire/plan.h"
#include "service/service.h"

struct live;

enum stray_kind {
    STRAY_NO_ROW,  /* the database does not know it: another store's, or one that was restored */
    STRAY_DAMAGED, /* its row cannot be read */
    STRAY_OTHERS,  /* our row says it is ours, and the box that it belongs to another store */
};

/* A box or a row of that id. `why` may be NULL. What is known already stays as it is. */
void strays_add(struct service *s, enum stray_kind kind, const struct plan_found *found,
                const char *why);
/*
 * May something be removed because no row names it? Not before every box is known, and not while
 * one of them shows that the database does not tell everything.
 */
bool strays_may_sweep(const struct service *s);
void strays_free(struct service *s);

struct stray_view {
    const char *id;
    const char *store; /* NULL: not known */
    const char *reason;
    bool adoptable;
};

const char *service_store_id(const struct service *s);
/* How many of them this caller may know of; 0 without the scope admin. */
size_t service_stray_count(const struct service *s, const struct caller *who);

/* Both need the scope admin. */
typedef void service_stray_fn(void *arg, const struct stray_view *view);
int service_strays(struct service *s, const struct caller *who, service_stray_fn *each, void *arg,
                   struct err *err);
/*
 * The box becomes a machine of the caller's, with its files, its commands and its limits as far as
 * they are known. Nobody knows what it has read: it is tainted and guarded, and reaches nothing.
 */
void service_stray_adopt(struct service *s, const struct caller *who, const char *id,
                         service_machine_fn *done, void *arg);
