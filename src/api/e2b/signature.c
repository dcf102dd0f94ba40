/* Signatures of paths: "v1_" and the SHA-256 of PATH:OPERATION:USER:TOKEN[:EXPIRATION] in base64.
 */
#include <stdio.h>
#include <string.h>

#include "api/e2b/transfers.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/parse.h"
#include "base/sha256.h"
#include "base/text/base64.h"
#include "io/http_uri.h"

#define VERSION "v1_"
enum { GIVEN_SIZE = 128, EXPIRATION_SIZE = 24 };

static int query_text(const struct http_exchange *x, const char *name, char *ret, size_t size) {
    size_t n;
    ret[0] = '\0';
    return http_query_get(x->head->query, name, ret, size, &n);
}

static void signature_of(const char *text, size_t n, char ret[GIVEN_SIZE]) {
    struct sha256 s;
    uint8_t hash[SHA256_BYTES];
    char encoded[BASE64_SIZE(SHA256_BYTES)];
    sha256_init(&s);
    sha256_add(&s, text, n);
    sha256_end(&s, hash);
    base64_encode(hash, sizeof(hash), encoded);
    encoded[strcspn(encoded, "=")] = '\0';
    snprintf(ret, GIVEN_SIZE, VERSION "%s", encoded);
}

/* In a time that does not tell where they differ. */
static bool signature_same(const char *a, const char *b) {
    size_t n = strlen(b);
    unsigned char differs = 0;
    if (strlen(a) != n)
        return false;
    for (size_t i = 0; i < n; i++)
        differs |= (unsigned char)(a[i] ^ b[i]);
    return !differs;
}

/* Reads a time. One that does not fit a number counts as never. False: the text is not a time. */
static bool read_until(const char *text, uint64_t *ret) {
    if (parse_u64(text, 0, INT64_MAX, ret, NULL) == 0)
        return true;
    *ret = INT64_MAX;
    return *text && !text[strspn(text, "0123456789")];
}

enum transfer_right transfer_right_of(const struct http_exchange *x, const char *token) {
    char given[GIVEN_SIZE], right[GIVEN_SIZE], user[ENVD_NAME_SIZE], path[ENVD_PATH_SIZE],
        until[EXPIRATION_SIZE];
    struct buf text DEFER(buf_done) = BUF(2 * ENVD_PATH_SIZE);
    uint64_t seconds = 0;
    int is_given = query_text(x, "signature", given, sizeof(given));
    if (is_given == 0)
        return TRANSFER_UNSIGNED;
    if (is_given < 0 || query_text(x, "username", user, sizeof(user)) < 0 ||
        query_text(x, "path", path, sizeof(path)) < 0)
        return TRANSFER_FORGED;
    int expires = query_text(x, "signature_expiration", until, sizeof(until));
    if (expires < 0 || (expires && !read_until(until, &seconds)))
        return TRANSFER_FORGED;
    const char *way = http_text_is(x->head->method, "GET") ? "read" : "write";
    if (!buf_addf(&text, "%s:%s:%s:%s%s%s", path, way, user, token, expires ? ":" : "", until))
        return TRANSFER_FORGED;
    signature_of(text.data, text.len, right);
    if (!signature_same(given, right))
        return TRANSFER_FORGED;
    return expires && seconds < (uint64_t)wall_ms() / 1000 ? TRANSFER_EXPIRED : TRANSFER_SIGNED;
}

bool envd_has_signature(const struct http_exchange *x) {
    char given[GIVEN_SIZE];
    return query_text(x, "signature", given, sizeof(given)) != 0;
}

bool envd_is_signed_now(const struct http_exchange *x, const char *token) {
    return transfer_right_of(x, token) == TRANSFER_SIGNED;
}

bool envd_is_signed_by(const struct http_exchange *x, const char *token) {
    enum transfer_right right = transfer_right_of(x, token);
    return right == TRANSFER_SIGNED || right == TRANSFER_EXPIRED;
}
