/* Items that wait for their owner: requests of machines, and questions of programs in them. */
#pragma once

#include "cli/client.h"

/* Gets the items that wait, as {"pending":[...]}. */
int approvals_get(struct client *c, json_t **ret, struct err *err);
/* True if the owner has not decided about the item yet. */
bool approvals_is_open(const json_t *item);

/* Reads a line of the owner's answer; NULL: the input ended. The caller frees it. */
typedef char *approvals_read_fn(void *arg);
/* Shows an item, and asks the owner about it. A decision that fails, such as one that comes too
 * late, is reported. false: the input ended. */
bool approvals_ask(struct client *c, const json_t *item, approvals_read_fn *read, void *arg);
