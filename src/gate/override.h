/*
 * Ways to ask a server for another method or path than the request line says: frameworks and
 * proxies look at certain fields, and at "_method" in queries and forms. Where a rule is about
 * methods or paths, a request that holds one is refused. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "gate/policy.h"
#include "io/http.h"

/* NULL, or why its head is refused. */
const char *override_in_head(const struct http_head *h, struct policy_care care);

/* Bits: a type that is named twice is looked at in both ways. */
enum override_form { FORM_ENCODED = 1, FORM_PARTS = 2, FORM_JSON = 4 };

/* What one way of looking knows. */
struct override_name {
    size_t matched;  /* characters of the name that stand here */
    char last;       /* parts: the character before */
    char escaped[6]; /* an encoded character that has begun */
    size_t escaped_n;
    bool in_value;  /* encoded: until the next field; JSON: this text is another one */
    bool in_string; /* JSON */
    bool was_name;  /* JSON: that text is over, and a colon makes it a name */
};

/* A form's body, looked through as it passes, however it is cut. Zero, then begin. */
struct override_scan {
    unsigned forms;
    struct override_name encoded, parts, json;
};

void override_begin(struct override_scan *s, const struct http_head *h, struct policy_care care);
/* True: it names a method. */
bool override_feed(struct override_scan *s, const char *bytes, size_t n);
