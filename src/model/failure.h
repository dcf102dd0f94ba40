/*
 * What can go wrong with a model call, as one table: what the reader is told, whether trying again
 * can help, and the words that each format has for it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum model_failure {
    MODEL_FAIL_NONE,
    MODEL_FAIL_INVALID,   /* the provider does not understand the request */
    MODEL_FAIL_KEY,       /* it does not know the key */
    MODEL_FAIL_DENIED,    /* it knows the key, and says no */
    MODEL_FAIL_NOT_FOUND, /* no such model, no such path */
    MODEL_FAIL_CONTEXT,   /* the conversation is too long */
    MODEL_FAIL_SPENT,     /* the account has no money left */
    MODEL_FAIL_BUDGET,    /* our own ledger refuses */
    MODEL_FAIL_RATE,
    MODEL_FAIL_SERVER,
    MODEL_FAIL_BUSY,
    MODEL_FAIL_GARBAGE, /* what came is not what the format says */
    MODEL_FAIL_CUT,     /* the answer ended in the middle */
    MODEL_FAIL_LARGE,   /* the answer is larger than anybody wants */
    MODEL_FAIL_CONNECT,
    MODEL_FAIL_TRUST, /* its certificate is not good */
    MODEL_FAIL_TIMEOUT,
    MODEL_FAIL_CANCELLED,
    MODEL_FAIL_SCRIPT, /* the rehearsal has no turn for this */
    MODEL_FAIL_COUNT,
};

struct model_failure_row {
    const char *name;
    enum err_code code;
    bool retry;
    int status;              /* when we are the server */
    const char *anthropic;   /* error.type */
    const char *openai_type; /* error.type */
    const char *openai_code; /* error.code; NULL: null */
    const char *says, *remedy;
};
const struct model_failure_row *model_failure_row(enum model_failure failure);

/* By the provider's own words where they say more than the HTTP status; NULL: none were given. */
enum model_failure model_failure_of(int status, const char *type, const char *code);

/* Of an answer with an error status: what its body says, if it says anything. */
enum model_failure model_failure_read(int status, const char *body, size_t n, struct err *err);

/* Fills *err; `detail` (may be NULL) is what the other side wrote, shown in part. Returns -1. */
int model_failure_err(enum model_failure failure, const char *detail, struct err *err);
