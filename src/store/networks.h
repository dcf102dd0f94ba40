/* What is kept of a machine's network: its policy, and the names it has asked for. */
#pragma once

#include <stdint.h>

#include "store/db.h"

/* *ret is NULL when nothing was ever set; else JSON, to be freed. */
int store_network_get(struct store *s, const char *machine, char **ret, struct err *err);
int store_network_set(struct store *s, const char *machine, const char *json, struct err *err);

/* Keys and certificate of its authority; *ret is NULL when there is none. */
int store_network_get_authority(struct store *s, const char *machine, char **ret, struct err *err);
int store_network_set_authority(struct store *s, const char *machine, const char *pem,
                                struct err *err);

/* The newest of its numbers is the one that was put last. */
int store_network_name_put(struct store *s, const char *machine, uint32_t number, const char *name,
                           struct err *err);
/* All of them, oldest first. */
typedef void store_name_fn(void *arg, uint32_t number, const char *name);
int store_network_names(struct store *s, const char *machine, store_name_fn *fn, void *arg,
                        struct err *err);
