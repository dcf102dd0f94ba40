#include "store/journal_key.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/hex.h"

enum { PEM_MAX = 4096 };

struct journal_key {
    EVP_PKEY *pkey;
    uint8_t pub[JOURNAL_PUBKEY_BYTES];
};

static void pkey_freep(EVP_PKEY **p) {
    EVP_PKEY_free(*p);
}

static void bio_freep(BIO **p) {
    BIO_free(*p);
}

static void md_freep(EVP_MD_CTX **p) {
    EVP_MD_CTX_free(*p);
}

void journal_key_free(struct journal_key *key) {
    if (!key)
        return;
    EVP_PKEY_free(key->pkey);
    free(key);
}

static void key_freep(struct journal_key **key) {
    journal_key_free(*key);
}

/*
 * Callback of OpenSSL. It returns no passphrase, so that OpenSSL does not ask for one on a
 * terminal.
 */
static int no_passphrase(char *buf, int size, int writing, void *arg) {
    (void)buf, (void)size, (void)writing, (void)arg;
    return -1;
}

/* Takes ownership of pkey. Returns NULL unless pkey is an Ed25519 key. */
static struct journal_key *key_of(EVP_PKEY *pkey) {
    struct journal_key *key DEFER(key_freep) = calloc(1, sizeof(*key));
    size_t len = sizeof(key->pub);
    if (!key) {
        EVP_PKEY_free(pkey);
        return NULL;
    }
    key->pkey = pkey;
    if (!pkey || EVP_PKEY_get_raw_public_key(pkey, key->pub, &len) != 1 ||
        len != sizeof(key->pub) || EVP_PKEY_get_id(pkey) != EVP_PKEY_ED25519)
        return NULL;
    return TAKE(key);
}

static int pem_text(const struct journal_key *key, bool secret, struct buf *ret, struct err *err) {
    BIO *bio DEFER(bio_freep) = BIO_new(BIO_s_mem());
    char *data;
    int ok = !bio     ? 0
             : secret ? PEM_write_bio_PrivateKey(bio, key->pkey, NULL, NULL, 0, NULL, NULL)
                      : PEM_write_bio_PUBKEY(bio, key->pkey);
    long n = ok == 1 ? BIO_get_mem_data(bio, &data) : 0;
    if (n <= 0 || !buf_add(ret, data, (size_t)n))
        return err_set(err, ERR_INTERNAL,
                       "the journal's signing key cannot be written as PEM text");
    return 0;
}

/* Writes a whole key file or nothing, also if the power fails. */
static int save(int dir, const char *name, const struct buf *text, mode_t mode, struct err *err) {
    char temp[32];
    snprintf(temp, sizeof(temp), "%s.new", name);
    int fd DEFER_CLOSE =
        openat(dir, temp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, mode);
    if (fd < 0)
        return err_sys(err, "cannot create the journal's file '%s'", name);
    int status = write_all(fd, text->data, text->len);
    if (status < 0)
        return err_num(err, status, "cannot write the journal's file '%s'", name);
    if (fchmod(fd, mode) < 0 || fsync(fd) < 0 || renameat(dir, temp, dir, name) < 0 ||
        fsync(dir) < 0)
        return err_sys(err, "cannot save the journal's file '%s'", name);
    return 0;
}

static int save_public(int dir, const struct journal_key *key, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(PEM_MAX);
    char old[PEM_MAX];
    if (pem_text(key, false, &text, err) < 0)
        return -1;
    ssize_t n = read_file_at(dir, "key.pub", old, sizeof(old));
    if (n < 0)
        return save(dir, "key.pub", &text, 0644, err);
    if ((size_t)n == text.len && memcmp(old, text.data, text.len) == 0)
        return 0;
    err_set(err, ERR_INVALID,
            "public key journal/key.pub does not belong to private key journal/key");
    return err_remedy(err, "find out who changed it; then delete key.pub, and it is created again");
}

static int make_key(int dir, struct journal_key **ret, struct err *err) {
    struct journal_key *key DEFER(key_freep) = key_of(EVP_PKEY_Q_keygen(NULL, NULL, "ED25519"));
    struct buf text DEFER(buf_done) = BUF(PEM_MAX);
    if (!key)
        return err_set(err, ERR_INTERNAL, "a signing key for the journal cannot be created");
    int status = pem_text(key, true, &text, err);
    if (status == 0)
        status = save(dir, "key", &text, 0600, err);
    if (text.data)
        explicit_bzero(text.data, text.len);
    if (status < 0)
        return -1;
    *ret = TAKE(key);
    return 0;
}

static int read_key(int dir, struct journal_key **ret, struct err *err) {
    char text[PEM_MAX];
    ssize_t n = read_file_at(dir, "key", text, sizeof(text));
    if (n < 0)
        return err_num(err, (int)n, "cannot read the journal's private key");
    BIO *bio DEFER(bio_freep) = BIO_new_mem_buf(text, (int)n);
    struct journal_key *key =
        bio ? key_of(PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL)) : NULL;
    explicit_bzero(text, sizeof(text));
    if (!key) {
        err_set(err, ERR_INVALID, "the journal's private key is damaged");
        return err_remedy(err,
                          "restore journal/key from a backup, or move the directory journal away");
    }
    *ret = key;
    return 0;
}

int journal_key_open(int dir, struct journal_key **ret, struct err *err) {
    struct journal_key *key DEFER(key_freep) = NULL;
    bool there = faccessat(dir, "key", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    if ((there ? read_key(dir, &key, err) : make_key(dir, &key, err)) < 0 ||
        save_public(dir, key, err) < 0)
        return -1;
    *ret = TAKE(key);
    return 0;
}

void journal_key_public(const struct journal_key *key, uint8_t ret[JOURNAL_PUBKEY_BYTES]) {
    memcpy(ret, key->pub, JOURNAL_PUBKEY_BYTES);
}

int journal_pubkey_read(const char *path, uint8_t ret[JOURNAL_PUBKEY_BYTES], struct err *err) {
    char text[PEM_MAX];
    ssize_t n = read_file_at(AT_FDCWD, path, text, sizeof(text));
    if (n < 0)
        return err_num(err, (int)n, "cannot read the journal's public key '%s'", path);
    BIO *bio DEFER(bio_freep) = BIO_new_mem_buf(text, (int)n);
    struct journal_key *key DEFER(key_freep) =
        bio ? key_of(PEM_read_bio_PUBKEY(bio, NULL, no_passphrase, NULL)) : NULL;
    if (!key)
        return err_set(err, ERR_INVALID, "file '%s' is not an Ed25519 public key in PEM", path);
    journal_key_public(key, ret);
    return 0;
}

/*
 * Writes the text to sign. The text names its purpose, so that the signature is useless for other
 * texts.
 */
static size_t signed_text(const struct journal_head *head, char *to, size_t size) {
    char hex[JOURNAL_HEX_SIZE];
    hex_put(head->hash, sizeof(head->hash), hex);
    int n =
        snprintf(to, size, "carrel journal head 1\n%llu:%s\n", (unsigned long long)head->seq, hex);
    return (size_t)n;
}

int journal_head_sign(const struct journal_key *key, struct journal_head *head, struct err *err) {
    char text[160];
    size_t n = signed_text(head, text, sizeof(text)), len = sizeof(head->sig);
    EVP_MD_CTX *md DEFER(md_freep) = EVP_MD_CTX_new();
    if (!md || EVP_DigestSignInit(md, NULL, NULL, NULL, key->pkey) != 1 ||
        EVP_DigestSign(md, head->sig, &len, (const uint8_t *)text, n) != 1 ||
        len != sizeof(head->sig))
        return err_set(err, ERR_INTERNAL,
                       "the journal's head (hash of its last record) cannot be signed");
    return 0;
}

bool journal_head_verify(const uint8_t pubkey[JOURNAL_PUBKEY_BYTES],
                         const struct journal_head *head) {
    char text[160];
    size_t n = signed_text(head, text, sizeof(text));
    EVP_PKEY *pkey DEFER(pkey_freep) =
        EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, pubkey, JOURNAL_PUBKEY_BYTES);
    EVP_MD_CTX *md DEFER(md_freep) = EVP_MD_CTX_new();
    return pkey && md && EVP_DigestVerifyInit(md, NULL, NULL, NULL, pkey) == 1 &&
           EVP_DigestVerify(md, head->sig, sizeof(head->sig), (const uint8_t *)text, n) == 1;
}
