/*
 * Models in carrel.conf: providers and prices. Each has one line, with options NAME=VALUE after its
 * name:
 *
 *   provider = here format=chat url=http://127.0.0.1:8000/v1 key_env=HERE_KEY
 *   alias = fast here/some-model there/other-model
 *   model = some-model in=3.00 out=15.00 cache_read=0.30 window=200000
 *
 * Prices are per million tokens, in the currency of the owner's budgets, and are stored in
 * millionths of it. A line is at most CONF_LINE_MAX bytes.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum {
    CONF_PROVIDERS_MAX = 16,
    CONF_MODELS_MAX = 64,
    CONF_ALIASES_MAX = 16,
    CONF_TARGETS_MAX = 4, /* models of one alias */
};

struct conf_provider {
    char name[32];    /* consists of letters, digits, "-", "_", "." */
    char format[16];  /* "anthropic", "chat", "responses" or "gemini" */
    char url[160];    /* http:// or https://, without a slash at its end */
    char key_env[64]; /* environment variable of the daemon that holds the API key; empty: no key */
    char key_secret[64]; /* or: secret of the daemon's user that holds the API key */
    char auth[16]; /* "bearer", "x-api-key" or "x-goog-api-key"; empty: the default of the format */
    char version[24]; /* version of the Anthropic API; empty: the default */
    bool old_max_tokens;
    bool charges_whole; /* charges a whole answer even if the connection is closed before its end */
};

struct conf_model {
    char name[128];   /* a "*" at its end matches any rest */
    bool priced;      /* the prices `in` and `out` were given */
    uint64_t in, out; /* price of a million tokens, in millionths of the currency */
    /* if not given: the price `in`; for cache_write_long: the price `cache_write` */
    uint64_t cache_read, cache_write, cache_write_long;
    uint64_t window;     /* context size in tokens; 0: unknown */
    uint64_t max_tokens; /* maximum tokens of one answer; 0: not given */
};

/* Another name for models, which are tried in this order. */
struct conf_alias {
    char name[32];                       /* consists of letters, digits, "-", "_", "." */
    char targets[CONF_TARGETS_MAX][192]; /* "PROVIDER/MODEL" */
    size_t count;
};

int conf_alias_parse(const char *text, struct conf_alias *ret, struct err *err);
int conf_provider_parse(const char *text, struct conf_provider *ret, struct err *err);
int conf_model_parse(const char *text, struct conf_model *ret, struct err *err);
