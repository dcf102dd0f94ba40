#include "registry/url.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/defer.h"
#include "registry/reference.h"

struct url_parts {
    char *scheme, *host, *port, *user, *password;
};

static void url_parts_done(struct url_parts *p) {
    curl_free(p->scheme);
    curl_free(p->host);
    curl_free(p->port);
    curl_free(p->user);
    curl_free(p->password);
}

static void url_free(CURLU **u) {
    curl_url_cleanup(*u);
}

static bool url_split(const char *url, struct url_parts *ret) {
    CURLU *u DEFER(url_free) = curl_url();
    if (!u || curl_url_set(u, CURLUPART_URL, url, 0) != CURLUE_OK)
        return false;
    curl_url_get(u, CURLUPART_USER, &ret->user, 0);
    curl_url_get(u, CURLUPART_PASSWORD, &ret->password, 0);
    return curl_url_get(u, CURLUPART_SCHEME, &ret->scheme, 0) == CURLUE_OK &&
           curl_url_get(u, CURLUPART_HOST, &ret->host, 0) == CURLUE_OK &&
           curl_url_get(u, CURLUPART_PORT, &ret->port, CURLU_DEFAULT_PORT) == CURLUE_OK;
}

bool url_same_origin(const char *a, const char *b) {
    struct url_parts x DEFER(url_parts_done) = {0}, y DEFER(url_parts_done) = {0};
    return url_split(a, &x) && url_split(b, &y) && strcasecmp(x.scheme, y.scheme) == 0 &&
           strcasecmp(x.host, y.host) == 0 && strcmp(x.port, y.port) == 0;
}

int url_check(const char *url, const char *from, bool insecure, struct err *err) {
    struct url_parts p DEFER(url_parts_done) = {0};
    if (!url_split(url, &p))
        return err_set(err, ERR_INVALID, "the registry named an invalid URL '%.100s'", url);
    if (p.user || p.password)
        return err_set(err, ERR_DENIED, "the registry named a URL with a user name or password");
    if (strcasecmp(p.scheme, "https") == 0)
        return 0;
    bool plain = strcasecmp(p.scheme, "http") == 0 && strncasecmp(from, "http:", 5) == 0 &&
                 (insecure || reference_is_loopback(p.host));
    return plain ? 0
                 : err_set(err, ERR_DENIED, "the registry leads to '%.100s', which is not https",
                           url);
}

int url_resolve(const char *base, const char *location, char *ret, size_t size, struct err *err) {
    CURLU *u DEFER(url_free) = curl_url();
    char *text = NULL;
    bool ok = u && curl_url_set(u, CURLUPART_URL, base, 0) == CURLUE_OK &&
              curl_url_set(u, CURLUPART_URL, location, 0) == CURLUE_OK &&
              curl_url_get(u, CURLUPART_URL, &text, 0) == CURLUE_OK &&
              (size_t)snprintf(ret, size, "%s", text) < size;
    curl_free(text);
    return ok ? 0
              : err_set(err, ERR_INVALID, "the registry named an invalid address '%.100s'",
                        location);
}

int url_query(char *url, size_t size, const char *name, const char *value, struct err *err) {
    char *encoded = curl_easy_escape(NULL, value, 0);
    size_t n = strlen(url);
    bool ok = encoded && (size_t)snprintf(url + n, size - n, "%c%s=%s",
                                          strchr(url, '?') ? '&' : '?', name, encoded) < size - n;
    curl_free(encoded);
    return ok ? 0 : err_set(err, ERR_LIMIT, "the address of the registry is too long");
}
