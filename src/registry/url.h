/* Rules for URLs of a registry, its redirects and its token server. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/* True if both have the same scheme, host and port. */
bool url_same_origin(const char *a, const char *b);

/*
 * Checks a URL that a server named; `from` is the URL that it was named by. https is allowed; http
 * only from http, and only to this computer or with `insecure`. No user or password.
 */
int url_check(const char *url, const char *from, bool insecure, struct err *err);

/* Writes `location`, which may be relative to `base`, as an absolute URL. */
int url_resolve(const char *base, const char *location, char *ret, size_t size, struct err *err);

/* Adds "?name=value" or "&name=value", with the value encoded. */
int url_query(char *url, size_t size, const char *name, const char *value, struct err *err);
