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

/* NULL, or the reason to refuse the head. */
const char *override_in_head(const struct http_head *h, struct policy_care care);

/* Bits: a body with two content types is scanned as both. */
enum override_form { FORM_ENCODED = 1, FORM_PARTS = 2, FORM_JSON = 4 };

/* The state of one scanner. */
struct override_name {
    size_t matched;  /* characters of the name that stand here */
    char last;       /* parts: the character before */
    char escaped[6]; /* an encoded character that has begun */
    size_t escaped_n;
    bool in_value;  /* encoded: until the next field; JSON: this text is another one */
    bool in_string; /* JSON */
    bool was_name;  /* JSON: that text is over, and a colon makes it a name */
};

/* Scans a form body piece by piece. Zero it, then call override_begin(). */
struct override_scan {
    unsigned forms;
    struct override_name encoded, parts, json;
};

void override_begin(struct override_scan *s, const struct http_head *h, struct policy_care care);
/* True: the form names a method. */
bool override_feed(struct override_scan *s, const char *bytes, size_t n);
