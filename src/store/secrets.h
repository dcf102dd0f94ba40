/*
 * Secrets of owners, encrypted at rest.
 *
 * Each value is encrypted with AES-256-GCM. The key is in the file secrets.key beside the database,
 * which only the daemon may read (mode 0600). Owner and name are authenticated too, so that rows
 * cannot be exchanged. Values come out as struct secret, which nothing prints.
 */
#pragma once

#include "base/secret.h"
#include "base/sha256.h"
#include "store/db.h"

enum { SECRET_VALUE_MIN = 8, STORE_SECRETS_MAX = 1000 };

struct secret_row {
    char owner[STORE_NAME_SIZE];
    char name[STORE_NAME_SIZE];
    int64_t created_ms;
    int64_t changed_ms;
    int64_t used_ms; /* time of the last use, exact to a minute; 0: never */
};

struct secret_list {
    struct secret_row *rows;
    size_t count;
};
void secret_list_done(struct secret_list *list);

/* Adds a secret or replaces its value. ERR_LIMIT: the owner has too many secrets. */
int store_secret_put(struct store *s, const char *owner, const char *name,
                     const struct secret *value, int64_t now_ms, struct err *err);
int store_secret_get(struct store *s, const char *owner, const char *name, struct secret **ret,
                     struct err *err);
bool store_secret_exists(struct store *s, const char *owner, const char *name);
void store_secret_used(struct store *s, const char *owner, const char *name, int64_t now_ms);
int store_secret_list(struct store *s, const char *owner, struct secret_list *ret, struct err *err);
/*
 * Computes a keyed hash (HMAC-SHA-256) of a text under the key of the secrets, which it creates if
 * there is none. `purpose` separates the hashes of different uses.
 */
int store_keyed_hash(struct store *s, const char *purpose, const char *text,
                     uint8_t ret[SHA256_BYTES], struct err *err);
int store_secret_remove(struct store *s, const char *owner, const char *name, struct err *err);
