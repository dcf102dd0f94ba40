#include "registry/reference.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/hex.h"

#define LOWER "abcdefghijklmnopqrstuvwxyz0123456789"
#define ANY_CASE LOWER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

bool reference_digest_ok(const char *digest) {
    return strncmp(digest, "sha256:", 7) == 0 && hex_is(digest + 7, 64);
}

bool reference_is_loopback(const char *host) {
    if (strncmp(host, "[::1]", 5) == 0)
        return host[5] == '\0' || host[5] == ':';
    size_t n = strcspn(host, ":");
    if (n == 9 && strncmp(host, "localhost", 9) == 0)
        return true;
    size_t dots = 0;
    for (size_t i = 0; i < n; i++) {
        if (host[i] != '.' && !isdigit((unsigned char)host[i]))
            return false;
        dots += host[i] == '.';
    }
    return strncmp(host, "127.", 4) == 0 && dots == 3;
}

static bool is_port(const char *text) {
    size_t n = strspn(text, "0123456789");
    return n > 0 && n <= 5 && text[n] == '\0';
}

static bool is_host(const char *host) {
    if (strncmp(host, "[::1]", 5) == 0)
        return host[5] == '\0' || (host[5] == ':' && is_port(host + 6));
    size_t n = strspn(host, ANY_CASE ".-");
    return n > 0 && isalnum((unsigned char)host[0]) && !strstr(host, "..") &&
           (host[n] == '\0' || (host[n] == ':' && is_port(host + n + 1)));
}

/* Parts of lower-case letters and digits, with ".", "_", "__" or dashes between them. */
static bool is_repository(const char *name) {
    for (const char *at = name;;) {
        size_t n = strspn(at, LOWER);
        if (n == 0)
            return false;
        at += n;
        if (*at == '\0')
            return true;
        if (*at == '-')
            at += strspn(at, "-");
        else if (strncmp(at, "__", 2) == 0)
            at += 2;
        else if (*at == '.' || *at == '_' || *at == '/')
            at++;
        else
            return false;
    }
}

static bool is_tag(const char *tag) {
    size_t n = strlen(tag);
    return n > 0 && n <= 128 && tag[0] != '.' && tag[0] != '-' && strspn(tag, ANY_CASE "._-") == n;
}

static int reference_refuse(const char *text, const char *what, struct err *err) {
    err_set(err, ERR_INVALID, "'%.100s' is not a name of an image in a registry: %s", text, what);
    return err_remedy(err, "use [HOST[:PORT]/]NAME[:TAG], such as debian:12 or ghcr.io/org/app:1");
}

/* Cuts the host off; returns the rest. The first part is a host if it looks like one. */
static const char *take_host(const char *text, struct reference *ret) {
    const char *slash = strchr(text, '/');
    size_t n = slash ? (size_t)(slash - text) : 0;
    bool named = slash && (memchr(text, '.', n) || memchr(text, ':', n) ||
                           (n == 9 && strncmp(text, "localhost", 9) == 0));
    if (named && n < sizeof(ret->host)) {
        snprintf(ret->host, sizeof(ret->host), "%.*s", (int)n, text);
        if (strcmp(ret->host, "index.docker.io") == 0)
            snprintf(ret->host, sizeof(ret->host), REFERENCE_HUB);
        return slash + 1;
    }
    snprintf(ret->host, sizeof(ret->host), "%s", named ? "" : REFERENCE_HUB);
    return text;
}

int reference_read(const char *text, struct reference *ret, struct err *err) {
    char rest[512];
    *ret = (struct reference){0};
    const char *after = take_host(text, ret);
    if (!is_host(ret->host))
        return reference_refuse(text, "its host is not valid", err);
    if (snprintf(rest, sizeof(rest), "%s", after) >= (int)sizeof(rest))
        return reference_refuse(text, "it is too long", err);
    char *at = strchr(rest, '@');
    if (at) {
        *at++ = '\0';
        if (!reference_digest_ok(at))
            return reference_refuse(text, "only digests sha256:... are supported", err);
        snprintf(ret->digest, sizeof(ret->digest), "%s", at);
    }
    char *colon = strchr(rest, ':');
    if (colon)
        *colon++ = '\0';
    const char *tag = colon ? colon : at ? "" : "latest";
    if (*tag ? !is_tag(tag) : colon != NULL)
        return reference_refuse(text, "its tag is not valid", err);
    snprintf(ret->tag, sizeof(ret->tag), "%s", tag);
    bool hub = strcmp(ret->host, REFERENCE_HUB) == 0 && !strchr(rest, '/');
    if (!is_repository(rest) ||
        snprintf(ret->repository, sizeof(ret->repository), "%s%s", hub ? "library/" : "", rest) >=
            (int)sizeof(ret->repository))
        return reference_refuse(text, "its repository is not valid", err);
    return 0;
}
