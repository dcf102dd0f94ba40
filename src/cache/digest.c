#include "cache/digest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/hex.h"

enum { PIECE = 256 << 10 };

bool digest_is_valid(const char *text) {
    return (strncmp(text, "sha256:", 7) == 0 && hex_is(text + 7, 64)) ||
           (strncmp(text, "sha512:", 7) == 0 && hex_is(text + 7, 128));
}

static bool is_long(const char *digest) {
    return strncmp(digest, "sha512:", 7) == 0;
}

EVP_MD_CTX *digest_begin(const char *like) {
    EVP_MD_CTX *c = alloc_check(EVP_MD_CTX_new());
    if (EVP_DigestInit_ex(c, is_long(like) ? EVP_sha512() : EVP_sha256(), NULL) != 1)
        abort();
    return c;
}

void digest_end(EVP_MD_CTX *c, char ret[DIGEST_SIZE]) {
    uint8_t bytes[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    EVP_DigestFinal_ex(c, bytes, &n);
    memcpy(ret, n == 64 ? "sha512:" : "sha256:", 7);
    hex_put(bytes, n, ret + 7);
    EVP_MD_CTX_free(c);
}

int digest_of_file_until(int fd, int64_t from, const char *like, const atomic_bool *stop,
                         char ret[DIGEST_SIZE]) {
    char *bytes DEFER_FREE = xmalloc(PIECE);
    EVP_MD_CTX *c = digest_begin(like);
    ssize_t n = 0;
    while (!*stop && (n = pread(fd, bytes, PIECE, from)) > 0) {
        EVP_DigestUpdate(c, bytes, (size_t)n);
        from += n;
    }
    int failed = *stop ? -ECANCELED : n < 0 ? -errno : 0;
    digest_end(c, ret);
    return failed;
}

int digest_of_file(int fd, int64_t from, const char *like, char ret[DIGEST_SIZE]) {
    static const atomic_bool never = false;
    return digest_of_file_until(fd, from, like, &never, ret);
}
