#include "store/secrets.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fdio.h"
#include "store/store.h"

enum { NONCE = 12, TAG = 16, MINUTE_MS = 60000, ENCRYPTED_MAX = NONCE + SECRET_MAX + TAG };
#define KEY_FILE "secrets.key"

#define SECRET(m) #m, COL_TEXT, offsetof(struct secret_row, m), sizeof(((struct secret_row *)0)->m)
static const struct column secret_columns[] = {
    {SECRET(owner)},
    {SECRET(name)},
    {"created_ms", COL_I64, offsetof(struct secret_row, created_ms), 0},
    {"changed_ms", COL_I64, offsetof(struct secret_row, changed_ms), 0},
    {"used_ms", COL_I64, offsetof(struct secret_row, used_ms), 0},
};
const struct table secret_table = {"secrets", sizeof(struct secret_row), secret_columns,
                                   sizeof(secret_columns) / sizeof(*secret_columns)};

void secret_list_done(struct secret_list *list) {
    rows_free(&secret_table, list->rows, list->count);
    *list = (struct secret_list){0};
}

/* ---- The key ---- */

/*
 * Creates the key that encrypts secrets. The key is on the disk before anything is encrypted with
 * it.
 */
static int make_key(struct store *s, struct err *err) {
    uint8_t key[sizeof(s->secrets_key)];
    if (getrandom(key, sizeof(key), 0) != sizeof(key))
        return err_sys(err, "cannot create the key that encrypts secrets");
    int fd DEFER_CLOSE = openat(s->home_fd, KEY_FILE ".new",
                                O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    int status = fd < 0 ? -errno : write_all(fd, key, sizeof(key));
    if (status == 0 &&
        (fchmod(fd, 0600) < 0 || fsync(fd) < 0 ||
         renameat(s->home_fd, KEY_FILE ".new", s->home_fd, KEY_FILE) < 0 || fsync(s->home_fd) < 0))
        status = -errno;
    if (status == 0)
        memcpy(s->secrets_key, key, sizeof(key));
    explicit_bzero(key, sizeof(key));
    s->has_secrets_key = status == 0;
    return status < 0 ? err_num(err, status, "cannot write the key file '" KEY_FILE "'") : 0;
}

static int read_key(struct store *s, struct err *err) {
    char key[sizeof(s->secrets_key) + 2];
    struct stat st;
    int fd DEFER_CLOSE = openat(s->home_fd, KEY_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "cannot open the key file '" KEY_FILE "'");
    if (st.st_mode & 077) {
        err_set(err, ERR_DENIED,
                "the key file of the secrets, '" KEY_FILE "', is readable by other users");
        return err_remedy(err,
                          "find out who read the file, set every secret again, then run chmod 600");
    }
    ssize_t n = read(fd, key, sizeof(key));
    if (n != (ssize_t)sizeof(s->secrets_key))
        return err_set(err, ERR_INVALID,
                       "the key file of the secrets, '" KEY_FILE "', is not a key of 32 bytes");
    memcpy(s->secrets_key, key, sizeof(s->secrets_key));
    explicit_bzero(key, sizeof(key));
    s->has_secrets_key = true;
    return 0;
}

static int need_key(struct store *s, bool may_make, struct err *err) {
    if (s->has_secrets_key)
        return 0;
    if (faccessat(s->home_fd, KEY_FILE, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return read_key(s, err);
    if (may_make)
        return make_key(s, err);
    err_set(err, ERR_INVALID,
            "the key file '" KEY_FILE "' is missing: secrets cannot be decrypted without it");
    return err_remedy(err, "restore the file next to carrel.db, or set the secrets again");
}

/* ---- Encryption ---- */

static void cipher_freep(EVP_CIPHER_CTX **c) {
    EVP_CIPHER_CTX_free(*c);
}

/*
 * Returns the text that is authenticated with a secret. Because of this text a row that is moved to
 * another owner or name does not decrypt.
 */
static size_t bind_text(const char *owner, const char *name, char ret[2 * STORE_NAME_SIZE]) {
    size_t n = strlen(owner) + 1;
    memcpy(ret, owner, n);
    memcpy(ret + n, name, strlen(name));
    return n + strlen(name);
}

static int secrets_encrypt(const struct store *s, const char *owner, const char *name,
                           const struct buf *plain, uint8_t ret[ENCRYPTED_MAX], size_t *ret_n) {
    EVP_CIPHER_CTX *c DEFER(cipher_freep) = EVP_CIPHER_CTX_new();
    char bound[2 * STORE_NAME_SIZE];
    size_t bound_n = bind_text(owner, name, bound);
    int n = 0, last = 0;
    if (!c || getrandom(ret, NONCE, 0) != NONCE ||
        EVP_EncryptInit_ex(c, EVP_aes_256_gcm(), NULL, s->secrets_key, ret) != 1 ||
        EVP_EncryptUpdate(c, NULL, &n, (uint8_t *)bound, (int)bound_n) != 1 ||
        EVP_EncryptUpdate(c, ret + NONCE, &n, (uint8_t *)plain->data, (int)plain->len) != 1 ||
        EVP_EncryptFinal_ex(c, ret + NONCE + n, &last) != 1 ||
        EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_GET_TAG, TAG, ret + NONCE + n + last) != 1)
        return -1;
    *ret_n = NONCE + (size_t)(n + last) + TAG;
    return 0;
}

static int secrets_decrypt(const struct store *s, const char *owner, const char *name,
                           const uint8_t *encrypted, size_t len, char ret[SECRET_MAX],
                           size_t *ret_n) {
    EVP_CIPHER_CTX *c DEFER(cipher_freep) = EVP_CIPHER_CTX_new();
    char bound[2 * STORE_NAME_SIZE];
    size_t bound_n = bind_text(owner, name, bound), inner = len - NONCE - TAG;
    int n = 0, last = 0;
    if (!c || len < NONCE + TAG || inner > SECRET_MAX ||
        EVP_DecryptInit_ex(c, EVP_aes_256_gcm(), NULL, s->secrets_key, encrypted) != 1 ||
        EVP_DecryptUpdate(c, NULL, &n, (uint8_t *)bound, (int)bound_n) != 1 ||
        EVP_DecryptUpdate(c, (uint8_t *)ret, &n, encrypted + NONCE, (int)inner) != 1 ||
        EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_GCM_SET_TAG, TAG, (void *)(encrypted + NONCE + inner)) !=
            1 ||
        EVP_DecryptFinal_ex(c, (uint8_t *)ret + n, &last) != 1)
        return -1;
    *ret_n = (size_t)(n + last);
    return 0;
}

/* ---- Secrets ---- */

static int check_name(const char *owner, const char *name, struct err *err) {
    size_t n = strlen(name), o = strlen(owner);
    if (n == 0 || n >= STORE_NAME_SIZE || o == 0 || o >= STORE_NAME_SIZE)
        return err_set(err, ERR_INVALID, "'%.70s' is not a valid name of a secret", name);
    return 0;
}

static int too_many(struct store *s, const char *owner, struct err *err) {
    QUERY;
    if (query_start(&q, s, STMT_SECRET_COUNT, err) < 0)
        return -1;
    query_text(&q, 1, owner);
    if (query_step(&q, err) < 0)
        return -1;
    return sqlite3_column_int64(q.stmt, 0) < STORE_SECRETS_MAX
               ? 0
               : err_set(err, ERR_LIMIT, "owner '%s' already has %d secrets", owner,
                         STORE_SECRETS_MAX);
}

int store_secret_put(struct store *s, const char *owner, const char *name,
                     const struct secret *value, int64_t now_ms, struct err *err) {
    QUERY;
    struct buf plain DEFER(secret_wipe) = BUF(SECRET_MAX + 1);
    uint8_t encrypted[ENCRYPTED_MAX];
    size_t n;
    if (check_name(owner, name, err) < 0 || need_key(s, true, err) < 0 ||
        (!store_secret_exists(s, owner, name) && too_many(s, owner, err) < 0))
        return -1;
    if (!secret_reveal(value, &plain) || secrets_encrypt(s, owner, name, &plain, encrypted, &n) < 0)
        return err_set(err, ERR_INTERNAL, "secret '%s' cannot be encrypted", name);
    if (query_start(&q, s, STMT_SECRET_PUT, err) < 0)
        return -1;
    query_text(&q, 1, owner);
    query_text(&q, 2, name);
    query_i64(&q, 3, now_ms);
    query_blob(&q, 4, encrypted, n);
    return query_run(&q, NULL, err);
}

bool store_secret_exists(struct store *s, const char *owner, const char *name) {
    QUERY;
    if (query_start(&q, s, STMT_SECRET_VALUE, NULL) < 0)
        return false;
    query_text(&q, 1, owner);
    query_text(&q, 2, name);
    return query_step(&q, NULL) == 1;
}

int store_secret_get(struct store *s, const char *owner, const char *name, struct secret **ret,
                     struct err *err) {
    QUERY;
    char plain[SECRET_MAX];
    size_t n = 0;
    if (query_start(&q, s, STMT_SECRET_VALUE, err) < 0)
        return -1;
    query_text(&q, 1, owner);
    query_text(&q, 2, name);
    int got = query_step(&q, err);
    if (got < 0)
        return -1;
    if (got == 0)
        return err_set(err, ERR_NOT_FOUND, "secret '%.70s' does not exist", name);
    if (need_key(s, false, err) < 0)
        return -1;
    const uint8_t *encrypted = sqlite3_column_blob(q.stmt, 0);
    int len = sqlite3_column_bytes(q.stmt, 0);
    struct secret *value = NULL;
    if (encrypted && len > NONCE + TAG &&
        secrets_decrypt(s, owner, name, encrypted, (size_t)len, plain, &n) == 0)
        value = secret_new(plain, n);
    explicit_bzero(plain, sizeof(plain));
    if (!value) {
        err_set(err, ERR_INVALID, "secret '%s' cannot be decrypted: it or its key was changed",
                name);
        return err_remedy(err, "set it again: carrel secret set %s", name);
    }
    *ret = value;
    return 0;
}

/* Records the use of a secret. A failure is ignored: it is not a reason to refuse the request. */
void store_secret_used(struct store *s, const char *owner, const char *name, int64_t now_ms) {
    QUERY;
    if (query_start(&q, s, STMT_SECRET_USED, NULL) < 0)
        return;
    query_text(&q, 1, owner);
    query_text(&q, 2, name);
    query_i64(&q, 3, now_ms);
    query_i64(&q, 4, now_ms - MINUTE_MS);
    (void)query_run(&q, NULL, NULL);
}

int store_secret_list(struct store *s, const char *owner, struct secret_list *ret,
                      struct err *err) {
    QUERY;
    void *rows;
    size_t count;
    if (query_start(&q, s, STMT_SECRET_LIST, err) < 0)
        return -1;
    query_text(&q, 1, owner);
    query_u64(&q, 2, STORE_SECRETS_MAX);
    if (query_all(&q, &secret_table, &rows, &count, err) < 0)
        return -1;
    *ret = (struct secret_list){rows, count};
    return 0;
}

int store_secret_remove(struct store *s, const char *owner, const char *name, struct err *err) {
    QUERY;
    size_t changed;
    if (query_start(&q, s, STMT_SECRET_REMOVE, err) < 0)
        return -1;
    query_text(&q, 1, owner);
    query_text(&q, 2, name);
    if (query_run(&q, &changed, err) < 0)
        return -1;
    return changed ? 0 : err_set(err, ERR_NOT_FOUND, "secret '%.70s' does not exist", name);
}

/* ---- Keyed hashes ---- */

int store_keyed_hash(struct store *s, const char *purpose, const char *text,
                     uint8_t ret[SHA256_BYTES], struct err *err) {
    char bound[2 * STORE_NAME_SIZE];
    unsigned n = 0;
    if (strlen(purpose) >= STORE_NAME_SIZE || strlen(text) >= STORE_NAME_SIZE)
        return err_set(err, ERR_LIMIT, "the text of a keyed hash is too long");
    if (need_key(s, true, err) < 0)
        return -1;
    size_t bound_n = bind_text(purpose, text, bound);
    if (!HMAC(EVP_sha256(), s->secrets_key, sizeof(s->secrets_key), (uint8_t *)bound, bound_n, ret,
              &n) ||
        n != SHA256_BYTES)
        return err_set(err, ERR_INTERNAL, "a keyed hash cannot be computed");
    return 0;
}
