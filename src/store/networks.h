/*
 * The stored network state of a machine: policy, CA, host names, waiting requests, exposed ports.
 *
 * This module only stores rows; src/gate interprets them.
 */
#pragma once

#include <stdint.h>

#include "base/sha256.h"
#include "store/db.h"

/* Reads or sets the network policy, as JSON. *ret is to be freed; NULL if never set. */
int store_network_get(struct store *s, const char *machine, char **ret, struct err *err);
int store_network_set(struct store *s, const char *machine, const char *json, struct err *err);

/* Reads or sets the key and certificate of the machine's CA; *ret is NULL if it has none. */
int store_network_get_authority(struct store *s, const char *machine, char **ret, struct err *err);
int store_network_set_authority(struct store *s, const char *machine, const char *pem,
                                struct err *err);

/*
 * Stores a host name that the machine asked for, and the number that src/gate gave to the name. The
 * name stored last is the newest.
 */
int store_network_name_put(struct store *s, const char *machine, uint32_t number, const char *name,
                           struct err *err);
/* Calls fn for each stored host name, oldest first. */
typedef void store_name_fn(void *arg, uint32_t number, const char *name);
int store_network_names(struct store *s, const char *machine, store_name_fn *fn, void *arg,
                        struct err *err);

/* A request that waits for an approval; until_ms is wall-clock time, valid across restarts. */
struct pending_row {
    char id[ID_SIZE];
    char machine[ID_SIZE];
    char host[256];
    uint64_t port;
    char protocol[8];
    char method[32];
    char *path;
    uint64_t rule;
    int64_t since_ms;
    int64_t until_ms;
    uint64_t approved;
};
int store_pending_put(struct store *s, const struct pending_row *row, struct err *err);
int store_pending_remove(struct store *s, const char *id, struct err *err);

typedef void store_pending_fn(void *arg, const struct pending_row *row);
int store_pending_list(struct store *s, const char *machine, store_pending_fn *fn, void *arg,
                       struct err *err);

/* Store, delete and list the exposed ports of a machine, each with the hash of its token. */
int store_exposure_put(struct store *s, const char *machine, uint64_t port,
                       const uint8_t hash[SHA256_BYTES], struct err *err);
int store_exposure_remove(struct store *s, const char *machine, uint64_t port, struct err *err);
typedef void store_exposure_fn(void *arg, uint64_t port, const uint8_t *hash);
int store_exposures(struct store *s, const char *machine, store_exposure_fn *fn, void *arg,
                    struct err *err);
