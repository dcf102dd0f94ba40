#include "store/owners.h"

#include <string.h>
#include <sys/random.h>

#include "base/sha256.h"
#include "store/store.h"

static const char token_lead[] = "crl_";
static const char base32[] = "abcdefghijklmnopqrstuvwxyz234567";
enum { LEAD = sizeof(token_lead) - 1, MINUTE_MS = 60000, TOKEN_RANDOM = TOKEN_SIZE - 1 - LEAD };

void owner_list_done(struct owner_list *list) {
    rows_free(&owner_table, list->rows, list->count);
    *list = (struct owner_list){0};
}

void token_list_done(struct token_list *list) {
    rows_free(&token_table, list->rows, list->count);
    *list = (struct token_list){0};
}

int store_owner_put(struct store *s, const struct owner_row *row, struct err *err) {
    QUERY;
    if (row->name[0] == '\0')
        return err_set(err, ERR_INVALID, "the name of the owner is empty");
    if (query_start(&q, s, STMT_OWNER_PUT, err) < 0 || query_bind(&q, &owner_table, row, err) < 0)
        return -1;
    if (query_run(&q, NULL, err) == 0)
        return 0;
    if (err && err->code == ERR_EXISTS)
        err_set(err, ERR_EXISTS, "user id %lld already belongs to another owner",
                (long long)row->uid);
    return -1;
}

int store_owner_get(struct store *s, const char *name, struct owner_row *ret, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_OWNER_GET, err) < 0)
        return -1;
    query_text(&q, 1, name);
    return query_one(&q, &owner_table, ret, "owner", name, err);
}

int store_owner_by_uid(struct store *s, int64_t uid, struct owner_row *ret, struct err *err) {
    QUERY;
    char which[24];
    if (query_start(&q, s, STMT_OWNER_BY_UID, err) < 0)
        return -1;
    query_i64(&q, 1, uid);
    snprintf(which, sizeof(which), "uid %lld", (long long)uid);
    return query_one(&q, &owner_table, ret, "owner", which, err);
}

int store_owner_list(struct store *s, struct owner_list *ret, struct err *err) {
    QUERY;
    void *rows;
    size_t count;
    if (query_start(&q, s, STMT_OWNER_LIST, err) < 0)
        return -1;
    query_u64(&q, 1, STORE_PAGE_MAX);
    if (query_all(&q, &owner_table, &rows, &count, err) < 0)
        return -1;
    *ret = (struct owner_list){rows, count};
    return 0;
}

/* Each character holds 5 bits of a random byte, so 52 characters hold 260 bits. */
static void make_secret(char ret[TOKEN_SIZE]) {
    uint8_t random[TOKEN_RANDOM];
    while (getrandom(random, sizeof(random), 0) != sizeof(random))
        ;
    memcpy(ret, token_lead, LEAD);
    for (size_t i = 0; i < TOKEN_RANDOM; i++)
        ret[LEAD + i] = base32[random[i] & 31];
    ret[TOKEN_SIZE - 1] = '\0';
    explicit_bzero(random, sizeof(random));
}

static void hash_secret(const char *secret, size_t len, uint8_t ret[SHA256_BYTES]) {
    struct sha256 h;
    sha256_init(&h);
    sha256_add(&h, secret, len);
    sha256_end(&h, ret);
}

int store_token_add(struct store *s, struct token_row *row, char ret_secret[TOKEN_SIZE],
                    struct err *err) {
    QUERY;
    char secret[TOKEN_SIZE];
    uint8_t hash[SHA256_BYTES];
    struct id id = id_new('t');
    if (row->scopes == 0 || row->scopes & ~(uint32_t)(SCOPE_READ | SCOPE_RUN | SCOPE_ADMIN))
        return err_set(err, ERR_INVALID, "the token has no valid scope: use read, run or admin");
    memcpy(row->id, id.text, sizeof(row->id));
    make_secret(secret);
    hash_secret(secret, TOKEN_SIZE - 1, hash);
    if (query_start(&q, s, STMT_TOKEN_ADD, err) < 0 || query_bind(&q, &token_table, row, err) < 0)
        return -1;
    query_blob(&q, 13, hash, sizeof(hash));
    if (query_run(&q, NULL, err) < 0) {
        if (err && err->code == ERR_NOT_FOUND)
            err_set(err, ERR_NOT_FOUND, "owner '%s' does not exist", row->owner);
        return -1;
    }
    memcpy(ret_secret, secret, sizeof(secret));
    explicit_bzero(secret, sizeof(secret));
    return 0;
}

/*
 * Records the use of a token. A failure is ignored: a full disk must not lock out users who free
 * space.
 */
static void note_use(struct store *s, struct token_row *row, int64_t now_ms) {
    QUERY;
    if (now_ms - row->used_ms < MINUTE_MS && now_ms >= row->used_ms)
        return;
    if (query_start(&q, s, STMT_TOKEN_USED, NULL) < 0)
        return;
    query_text(&q, 1, row->id);
    query_i64(&q, 2, now_ms);
    row->used_ms = now_ms;
    (void)query_run(&q, NULL, NULL);
}

/* Returns 1 and the token with this secret if it is valid, else 0. */
static int owners_look_up(struct store *s, const char *secret, size_t len, struct token_row *ret,
                          struct err *err) {
    QUERY;
    uint8_t hash[SHA256_BYTES];
    if (len != TOKEN_SIZE - 1)
        return 0;
    hash_secret(secret, len, hash);
    if (query_start(&q, s, STMT_TOKEN_CHECK, err) < 0)
        return -1;
    query_blob(&q, 1, hash, sizeof(hash));
    int got = query_step(&q, err);
    if (got == 1 && query_read(&q, &token_table, ret, err) < 0)
        return -1;
    return got;
}

int store_token_check(struct store *s, const char *secret, size_t len, int64_t now_ms,
                      struct token_row *ret, struct err *err) {
    int found = owners_look_up(s, secret, len, ret, err);
    if (found == 0) {
        err_set(err, ERR_DENIED, "the token is unknown or was revoked");
        return err_remedy(err, "create one with 'carrel token new'");
    }
    if (found < 0)
        return -1;
    note_use(s, ret, now_ms);
    return 0;
}

int store_token_get(struct store *s, const char *id, struct token_row *ret, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_TOKEN_GET, err) < 0)
        return -1;
    query_text(&q, 1, id);
    return query_one(&q, &token_table, ret, "token", id, err);
}

int store_token_list(struct store *s, const char *owner, struct token_list *ret, struct err *err) {
    QUERY;
    void *rows;
    size_t count;
    if (query_start(&q, s, STMT_TOKEN_LIST, err) < 0)
        return -1;
    query_text(&q, 1, owner);
    query_u64(&q, 2, STORE_PAGE_MAX);
    if (query_all(&q, &token_table, &rows, &count, err) < 0)
        return -1;
    *ret = (struct token_list){rows, count};
    return 0;
}

int store_token_revoke(struct store *s, const char *id, int64_t now_ms, struct err *err) {
    QUERY;
    size_t changed;
    if (query_start(&q, s, STMT_TOKEN_REVOKE, err) < 0)
        return -1;
    query_text(&q, 1, id);
    query_i64(&q, 2, now_ms);
    if (query_run(&q, &changed, err) < 0)
        return -1;
    return changed ? 0 : err_set(err, ERR_NOT_FOUND, "token '%.80s' is already revoked", id);
}
