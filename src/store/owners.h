/*
 * Owners, their API tokens and quotas.
 *
 * A token is 256 random bits, shown once; the database holds only its SHA-256. Flush before
 * acknowledging a change here.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/db.h"

/* Limits of an owner or token, where 0 means no limit; or the amounts in use. */
struct quota {
    uint64_t machines;
    uint64_t cpu_milli;
    uint64_t mem_bytes;
    uint64_t disk_bytes;
    uint64_t lifetime_ms; /* maximum ttl of a machine */
};

struct owner_row {
    char name[STORE_NAME_SIZE];
    int64_t uid; /* -1: not a user of this host */
    int64_t created_ms;
    struct quota quota;
};

struct owner_list {
    struct owner_row *rows;
    size_t count;
};

enum token_scope { SCOPE_READ = 1, SCOPE_RUN = 2, SCOPE_ADMIN = 4 };

struct token_row {
    char id[ID_SIZE]; /* "t-..." */
    char owner[STORE_NAME_SIZE];
    char note[STORE_NAME_SIZE];
    uint32_t scopes; /* enum token_scope */
    struct quota quota;
    int64_t created_ms;
    int64_t used_ms;    /* time of the last use, exact to a minute; 0: never */
    int64_t revoked_ms; /* 0: the token is valid */
};

struct token_list {
    struct token_row *rows;
    size_t count;
};

enum { TOKEN_SIZE = 57 }; /* "crl_", 52 base32 characters, NUL */

void owner_list_done(struct owner_list *list);
void token_list_done(struct token_list *list);

/* Adds an owner or changes its uid and quota. ERR_EXISTS: another owner has this uid. */
int store_owner_put(struct store *s, const struct owner_row *row, struct err *err);
int store_owner_get(struct store *s, const char *name, struct owner_row *ret, struct err *err);
int store_owner_by_uid(struct store *s, int64_t uid, struct owner_row *ret, struct err *err);
int store_owner_list(struct store *s, struct owner_list *ret, struct err *err);

/* Adds a token. Sets row->id and ret_secret, which is the only copy of the token in clear text. */
int store_token_add(struct store *s, struct token_row *row, char ret_secret[TOKEN_SIZE],
                    struct err *err);
/*
 * Checks a token and records its use. ERR_DENIED for a malformed, unknown or revoked token; the
 * error does not tell which.
 */
int store_token_check(struct store *s, const char *secret, size_t len, int64_t now_ms,
                      struct token_row *ret, struct err *err);
int store_token_get(struct store *s, const char *id, struct token_row *ret, struct err *err);
/*
 * Lists tokens, newest first, revoked ones too. owner NULL: of all owners. At most STORE_PAGE_MAX.
 */
int store_token_list(struct store *s, const char *owner, struct token_list *ret, struct err *err);
int store_token_revoke(struct store *s, const char *id, int64_t now_ms, struct err *err);
