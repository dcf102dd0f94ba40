/* Digests of files, as text: "sha256:HEX" or "sha512:HEX". */
#pragma once

#include <openssl/evp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { DIGEST_SIZE = 7 + 128 + 1 };

/* Whether the text is a digest in this form. */
bool digest_is_valid(const char *text);

/* Starts to compute a digest of the same algorithm as `like`; digest_end() frees the context. */
EVP_MD_CTX *digest_begin(const char *like);
void digest_end(EVP_MD_CTX *c, char ret[DIGEST_SIZE]);

/* Computes the digest of a file from the offset `from`, of the same algorithm as `like`. Blocks. 0
 * or -errno. */
int digest_of_file(int fd, int64_t from, const char *like, char ret[DIGEST_SIZE]);
/* The same, but ends soon with -ECANCELED when another thread sets *stop. */
int digest_of_file_until(int fd, int64_t from, const char *like, const atomic_bool *stop,
                         char ret[DIGEST_SIZE]);
