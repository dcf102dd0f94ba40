/*
 * Detects method and path overrides: header fields, and "_method" in queries and forms, by which
 * frameworks and proxies change the request line. If a rule checks methods or paths, a request with
 * an override is refused. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "gate/policy.h"
#include "io/http.h"

/* Checks a request head for overrides. Returns NULL, or the reason to refuse the request. */
const char *override_in_head(const struct http_head *h, struct policy_care care);

/* Kinds of forms, as bits: a body with two content types is scanned as both kinds. */
enum override_form { FORM_ENCODED = 1, FORM_PARTS = 2, FORM_JSON = 4 };

/* The state of the search for the name "_method" in one kind of form. */
struct override_name {
    size_t matched;  /* characters of the name that were found */
    char last;       /* multipart: the previous character */
    char escaped[6]; /* an escape sequence that is not complete */
    size_t escaped_n;
    bool in_value;  /* URL-encoded: skip to the next field; JSON: this string is another name */
    bool in_string; /* JSON: inside a string */
    bool was_name;  /* JSON: the string "_method" has ended; a colon makes it a name */
};

/* Scans a form body piece by piece. Zero the struct, then call override_begin(). */
struct override_scan {
    unsigned forms;
    struct override_name encoded, parts, json;
};

void override_begin(struct override_scan *s, const struct http_head *h, struct policy_care care);
/* Scans the next piece of the body. True: the form names a method. */
bool override_feed(struct override_scan *s, const char *bytes, size_t n);
