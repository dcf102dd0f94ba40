/*
 * Secrets of owners. A value is stored and never returned; machines get grants of secrets
 * (grants.h).
 */
#pragma once

#include "service/net/net.h"
#include "service/service.h"

struct secret_request {
    const char *value;
};

/* Stores the value of a secret. Calls `done` when the value is on disk; from then on the gate uses
 * it. */
void service_secret_set(struct service *s, const struct caller *who, const char *name,
                        const struct secret_request *r, service_done_fn *done, void *arg);
/* Answers {"secrets":[{"name","created_ms","changed_ms","used_ms"}]}. */
void service_secret_list(struct service *s, const struct caller *who, service_net_fn *done,
                         void *arg);
/* Deletes a secret. Its grants stop working. */
void service_secret_remove(struct service *s, const struct caller *who, const char *name,
                           service_done_fn *done, void *arg);

/* ---- for src/service ---- */

struct jot;
struct secret_row;

/*
 * Answers {"MEMBER":[...]} with the secrets whose names start with a prefix, which is left out;
 * NULL: all that are not Carrel's own. more: adds further members of a row; may be NULL.
 */
struct secret_listing {
    const char *member, *prefix;
    void (*more)(struct service *s, const char *owner, const struct secret_row *row, struct jot *j);
};
void secrets_list(struct service *s, const struct caller *who, const struct secret_listing *l,
                  service_net_fn *done, void *arg);
