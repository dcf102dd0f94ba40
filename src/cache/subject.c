#include "cache/subject.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

static int hex_value(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Decodes the path. An escape may stand only for a printable character that has no meaning in
 * paths; slashes: it may also stand for a slash. */
static bool subject_decode(const char *raw, bool slashes, char ret[CACHE_PATH_SIZE]) {
    size_t n = 0;
    for (; *raw; raw++) {
        int c = (unsigned char)*raw;
        if (c == '%') {
            int high = hex_value(raw[1]), low = high < 0 ? -1 : hex_value(raw[2]);
            if (low < 0)
                return false;
            c = high << 4 | low;
            if ((c == '/' && !slashes) || c == '.' || strchr("%\\?#;", c))
                return false;
            raw += 2;
        } else if (strchr("\\?#;", c)) {
            return false;
        }
        if (c <= ' ' || c > '~' || n + 1 == CACHE_PATH_SIZE)
            return false;
        ret[n++] = (char)c;
    }
    ret[n] = '\0';
    return ret[0] == '/' && !strstr(ret, "//") && !strstr(ret, "/./") && !strstr(ret, "/../");
}

/* The first row that matches the decoded path decides; "*" matches any text, including slashes. */
static const struct {
    const char *preset, *pattern;
    enum cache_kind kind;
} rows[] = {
    {"apt", "*/dists/*/InRelease", CACHE_RELEASE},
    {"apt", "*/dists/*/Packages", CACHE_LIST},
    {"apt", "*/dists/*/Packages.gz", CACHE_LIST},
    {"apt", "*/dists/*/Packages.xz", CACHE_LIST},
    {"apt", "*/dists/*/by-hash/SHA256/*", CACHE_LIST},
    {"apt", "/*.deb", CACHE_PACKAGE},
    {"npm", "/?*/-/?*.tgz", CACHE_PACKAGE},
    {"npm", "*/-/*", -1},
    {"npm", "/-*", -1},
    {"npm", "/?*", CACHE_DOCUMENT},
};

bool cache_subject_read(const char *preset, const char *raw, bool is_tls,
                        struct cache_subject *ret) {
    bool is_npm = strcmp(preset, "npm") == 0;
    if ((is_npm && !is_tls) || !subject_decode(raw, is_npm, ret->path))
        return false;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if (strcmp(rows[i].preset, preset) == 0 && fnmatch(rows[i].pattern, ret->path, 0) == 0) {
            ret->kind = rows[i].kind;
            return (int)rows[i].kind >= 0;
        }
    return false;
}

bool cache_root_of(const char *path, char ret[CACHE_PATH_SIZE]) {
    const char *dists = strstr(path, "/dists/");
    if (!dists)
        return false;
    snprintf(ret, CACHE_PATH_SIZE, "%.*s/", (int)(dists - path), path);
    return true;
}

bool cache_by_hash(const char *path, char ret_dir[CACHE_PATH_SIZE]) {
    const char *at = strstr(path, "/by-hash/SHA256/");
    if (!at)
        return false;
    snprintf(ret_dir, CACHE_PATH_SIZE, "%.*s/", (int)(at - path), path);
    return true;
}

/* ---- requests and answers ---- */

/* Every other field may carry a credential or ask for something else than the file. */
static const char *const plain_fields[] = {
    "Accept",         "Accept-Encoding", "Accept-Language", "Cache-Control",    "Connection",
    "Host",           "Keep-Alive",      "Pragma",          "Referer",          "User-Agent",
    "npm-scope",      "npm-auth-type",   "npm-command",     "npm-in-ci",        "npm-session",
    "pacote-version", "pacote-pkg-id",   "pacote-req-type", "pacote-integrity",
};
static const char *const plain_conditions[] = {"If-Modified-Since", "If-None-Match"};

static bool field_is_plain(struct http_text name, bool conditions) {
    for (size_t i = 0; conditions && i < sizeof(plain_conditions) / sizeof(*plain_conditions); i++)
        if (http_text_is_like(name, plain_conditions[i]))
            return true;
    for (size_t i = 0; i < sizeof(plain_fields) / sizeof(*plain_fields); i++)
        if (http_text_is_like(name, plain_fields[i]))
            return true;
    return false;
}

bool cache_request_is_plain(const struct http_head *h, bool conditions) {
    if (!http_text_is(h->method, "GET") || h->query.s || h->framing != HTTP_NO_BODY || h->upgrade)
        return false;
    for (size_t i = 0; i < h->count; i++)
        if (!field_is_plain(h->fields[i].name, conditions))
            return false;
    return true;
}

bool cache_answer_is_whole(const struct http_head *h, bool packed) {
    if (h->status != 200 || (h->framing != HTTP_SIZED && h->framing != HTTP_CHUNKED) ||
        http_field_count(h, "Content-Range"))
        return false;
    if (http_list_has(h, "Cache-Control", "no-store") ||
        http_list_has(h, "Cache-Control", "private"))
        return false;
    size_t codings = http_field_count(h, "Content-Encoding");
    return !codings || (packed && codings == 1 &&
                        http_text_is_like(http_field_only(h, "Content-Encoding"), "gzip"));
}
