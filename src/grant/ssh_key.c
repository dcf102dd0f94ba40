#include "grant/ssh_key.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"

#define KIND "ssh-ed25519"
enum { LINE = 70, BLOCK = 8, BASE64_MAX = 2048 };

static void key_freep(EVP_PKEY **key) {
    EVP_PKEY_free(*key);
}

static int crypto_failed(struct err *err) {
    return err_set(err, ERR_INTERNAL, "the crypto library cannot create or read an ed25519 key");
}

int ssh_key_new(uint8_t ret[SSH_SEED], struct err *err) {
    EVP_PKEY *key DEFER(key_freep) = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    size_t n = SSH_SEED;
    return key && EVP_PKEY_get_raw_private_key(key, ret, &n) == 1 && n == SSH_SEED
               ? 0
               : crypto_failed(err);
}

static int public_of(const uint8_t seed[SSH_SEED], uint8_t ret[SSH_SEED], struct err *err) {
    EVP_PKEY *key DEFER(key_freep) =
        EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, SSH_SEED);
    size_t n = SSH_SEED;
    return key && EVP_PKEY_get_raw_public_key(key, ret, &n) == 1 && n == SSH_SEED
               ? 0
               : crypto_failed(err);
}

/* ---- the SSH wire format: a length, then bytes ---- */

/* The add cannot fail, because all parts together are smaller than the limit of the buffer. */
static void ssh_key_add(struct buf *to, const void *bytes, size_t n) {
    if (!buf_add(to, bytes, n))
        abort();
}

static void ssh_key_put_number(struct buf *to, uint32_t n) {
    const uint8_t bytes[4] = {(uint8_t)(n >> 24), (uint8_t)(n >> 16), (uint8_t)(n >> 8),
                              (uint8_t)n};
    ssh_key_add(to, bytes, sizeof(bytes));
}

static void ssh_key_put_bytes(struct buf *to, const void *bytes, size_t n) {
    ssh_key_put_number(to, (uint32_t)n);
    ssh_key_add(to, bytes, n);
}

static void put_public(struct buf *to, const uint8_t public[SSH_SEED]) {
    ssh_key_put_bytes(to, KIND, strlen(KIND));
    ssh_key_put_bytes(to, public, SSH_SEED);
}

/* Writes base64 with `line` characters per line; 0: all on one line. */
static bool put_base64(struct buf *to, const struct buf *bytes, size_t line) {
    uint8_t text[BASE64_MAX];
    if (bytes->len > BASE64_MAX / 4 * 3 - 4)
        return false;
    size_t n = (size_t)EVP_EncodeBlock(text, (const uint8_t *)bytes->data, (int)bytes->len);
    bool ok = true;
    for (size_t at = 0; ok && at < n; at += line ? line : n) {
        size_t part = line && n - at > line ? line : n - at;
        ok = buf_add(to, (const char *)text + at, part) && (!line || buf_add(to, "\n", 1));
    }
    explicit_bzero(text, sizeof(text));
    return ok;
}

static int check_name(const char *name, struct err *err) {
    return strlen(name) <= SSH_NAME_MAX && !strpbrk(name, "\r\n")
               ? 0
               : err_set(err, ERR_INVALID,
                         "the name '%.60s' of an SSH key is too long or contains a line break",
                         name);
}

int ssh_key_public(const uint8_t seed[SSH_SEED], const char *name, struct buf *ret,
                   struct err *err) {
    struct buf wire DEFER(buf_done) = BUF(SSH_FILE_MAX);
    uint8_t public[SSH_SEED];
    if (check_name(name, err) < 0 || public_of(seed, public, err) < 0)
        return -1;
    put_public(&wire, public);
    return buf_addf(ret, KIND " ") && put_base64(ret, &wire, 0) && buf_addf(ret, " %s", name)
               ? 0
               : err_set(err, ERR_LIMIT, "the SSH key does not fit into its buffer");
}

/*
 * Writes the private part of the key file. The format repeats a random number, so that a reader can
 * check the decryption. Nothing is encrypted here, so a fixed number is enough.
 */
static void put_secret_part(struct buf *to, const uint8_t seed[SSH_SEED],
                            const uint8_t public[SSH_SEED], const char *name) {
    uint8_t both[2 * SSH_SEED];
    memcpy(both, seed, SSH_SEED);
    memcpy(both + SSH_SEED, public, SSH_SEED);
    ssh_key_put_number(to, 0x43617272);
    ssh_key_put_number(to, 0x43617272);
    put_public(to, public);
    ssh_key_put_bytes(to, both, sizeof(both));
    ssh_key_put_bytes(to, name, strlen(name));
    for (char pad = 1; to->len % BLOCK; pad++)
        ssh_key_add(to, &pad, 1);
    explicit_bzero(both, sizeof(both));
}

static void wipe(struct buf *b) {
    if (b->data)
        explicit_bzero(b->data, b->len);
    buf_done(b);
}

int ssh_key_private(const uint8_t seed[SSH_SEED], const char *name, struct buf *ret,
                    struct err *err) {
    struct buf wire DEFER(wipe) = BUF(SSH_FILE_MAX), inner DEFER(wipe) = BUF(SSH_FILE_MAX);
    struct buf shown DEFER(buf_done) = BUF(SSH_FILE_MAX);
    uint8_t public[SSH_SEED];
    if (check_name(name, err) < 0 || public_of(seed, public, err) < 0)
        return -1;
    put_public(&shown, public);
    put_secret_part(&inner, seed, public, name);
    ssh_key_add(&wire, "openssh-key-v1", 15); /* with the NUL at its end */
    ssh_key_put_bytes(&wire, "none", 4);
    ssh_key_put_bytes(&wire, "none", 4);
    ssh_key_put_bytes(&wire, "", 0);
    ssh_key_put_number(&wire, 1);
    ssh_key_put_bytes(&wire, shown.data, shown.len);
    ssh_key_put_bytes(&wire, inner.data, inner.len);
    return buf_addf(ret, "-----BEGIN OPENSSH PRIVATE KEY-----\n") && put_base64(ret, &wire, LINE) &&
                   buf_addf(ret, "-----END OPENSSH PRIVATE KEY-----\n")
               ? 0
               : err_set(err, ERR_LIMIT, "the SSH key does not fit into its buffer");
}
