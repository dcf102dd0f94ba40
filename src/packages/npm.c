#include "packages/npm.h"

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "base/hex.h"

enum { SHA512_BYTES = 64, ORIGIN_SIZE = 512 };

static int base64_digit(char c) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Finds the SHA-512 in an integrity value, which may list several digests. */
static bool integrity_read(const char *text, char hex[2 * SHA512_BYTES + 1]) {
    uint8_t bytes[SHA512_BYTES + 2];
    const char *at = strstr(text, "sha512-");
    size_t n = 0;
    if (!at || (at != text && at[-1] != ' '))
        return false;
    at += strlen("sha512-");
    if (strcspn(at, " ?") != 88 || memcmp(at + 86, "==", 2) != 0)
        return false;
    for (size_t i = 0; i < 86; i++) {
        int digit = base64_digit(at[i]);
        if (digit < 0)
            return false;
        size_t bit = 6 * i, byte = bit / 8, shift = bit % 8;
        if (byte >= n)
            bytes[n++] = 0;
        bytes[byte] |= (uint8_t)(shift <= 2 ? digit << (2 - shift) : digit >> (shift - 2));
        if (shift > 2 && byte + 1 < sizeof(bytes))
            bytes[n++] = (uint8_t)(digit << (10 - shift));
    }
    hex_put(bytes, SHA512_BYTES, hex);
    return true;
}

/* Returns the path of the tarball if its URL is of this origin; NULL: it is not. */
static const char *path_of_url(const char *url, const char *origin) {
    char plain[ORIGIN_SIZE];
    size_t n = strlen(origin);
    if (strncmp(url, origin, n) == 0 && url[n] == '/')
        return url + n;
    /* The usual port is not written. */
    if (n <= 4 || n >= sizeof(plain) || strcmp(origin + n - 4, ":443") != 0)
        return NULL;
    snprintf(plain, sizeof(plain), "%.*s", (int)(n - 4), origin);
    return strncmp(url, plain, n - 4) == 0 && url[n - 4] == '/' ? url + n - 4 : NULL;
}

static bool is_own(const char *tarball, const char *path) {
    size_t n = strlen(path);
    const char *file = tarball + n + 3;
    return strncmp(tarball, path, n) == 0 && strncmp(tarball + n, "/-/", 3) == 0 && *file &&
           !strchr(file, '/');
}

static void npm_drop(json_t **j) {
    json_decref(*j);
}

bool npm_document_read(const char *text, size_t n, const char *origin, const char *path,
                       struct package_rows *ret) {
    const char *key;
    json_t *document DEFER(npm_drop) = json_loadb(text, n, 0, NULL), *version;
    if (!document)
        return false;
    json_object_foreach(json_object_get(document, "versions"), key, version) {
        char hex[2 * SHA512_BYTES + 1];
        const json_t *dist = json_object_get(version, "dist");
        const char *url = json_string_value(json_object_get(dist, "tarball"));
        const char *integrity = json_string_value(json_object_get(dist, "integrity"));
        const char *tarball = url ? path_of_url(url, origin) : NULL;
        if (!tarball || !integrity || !is_own(tarball, path) || !integrity_read(integrity, hex))
            continue;
        if (!package_rows_add(ret, "", tarball, strlen(tarball), hex, 2 * SHA512_BYTES))
            return false;
    }
    return true;
}
