/*
 * Tokens: credentials for TCP, each with an owner, scopes and quotas.
 *
 * Only a local caller or a caller with the scope admin creates and revokes tokens. A token never
 * has a scope that its creator lacks. Changes are on disk before they are acknowledged.
 */
#pragma once

#include "service/service.h"

struct token_request {
    const char *owner; /* NULL: the caller; another owner requires admin */
    const char *note;
    struct texts scopes; /* read, run, admin; default: read and run */
    struct given machines, cpus, mem, disk, max_ttl;
};

/* secret: shown only this once. service_token_revoke() takes the id of a token, or that of a
 * machine, whose own tokens it revokes (access/machine_tokens.h). */
typedef void service_token_fn(void *arg, const struct token_row *row, const char *secret,
                              const struct err *err);
void service_token_new(struct service *s, const struct caller *who, const struct token_request *r,
                       service_token_fn *done, void *arg);
void service_token_revoke(struct service *s, const struct caller *who, const char *id,
                          service_done_fn *done, void *arg);
int service_token_list(struct service *s, const struct caller *who, struct token_list *ret,
                       struct err *err);

/* "read,run" */
void scopes_text(uint32_t scopes, char ret[32]);
