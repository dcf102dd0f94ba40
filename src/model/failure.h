/*
 * The failures of a model call, as one table: message and remedy for the user, whether a retry can
 * help, and the error names of each format.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum model_failure {
    MODEL_FAIL_NONE,
    MODEL_FAIL_INVALID,   /* the provider does not understand the request */
    MODEL_FAIL_KEY,       /* unknown API key */
    MODEL_FAIL_DENIED,    /* the key has no permission */
    MODEL_FAIL_NOT_FOUND, /* unknown model or path */
    MODEL_FAIL_CONTEXT,   /* the conversation is too long */
    MODEL_FAIL_SPENT,     /* the account at the provider has no money left */
    MODEL_FAIL_BUDGET,    /* the budget that the owner set in Carrel does not allow the call */
    MODEL_FAIL_RATE,
    MODEL_FAIL_SERVER,
    MODEL_FAIL_BUSY,
    MODEL_FAIL_GARBAGE, /* the answer does not match the format */
    MODEL_FAIL_CUT,     /* the answer ended in the middle */
    MODEL_FAIL_LARGE,   /* the answer exceeds MODEL_ANSWER_MAX */
    MODEL_FAIL_CONNECT,
    MODEL_FAIL_TRUST, /* the TLS certificate is not trusted */
    MODEL_FAIL_TIMEOUT,
    MODEL_FAIL_CANCELLED,
    MODEL_FAIL_SCRIPT, /* the rehearsal script has no turn for the request */
    MODEL_FAIL_COUNT,
};

struct model_failure_row {
    const char *name;
    enum err_code code;
    bool retry;
    int status;              /* HTTP status that Carrel sends as the server */
    const char *anthropic;   /* error.type */
    const char *openai_type; /* error.type */
    const char *openai_code; /* error.code; NULL: null */
    const char *says, *remedy;
};
const struct model_failure_row *model_failure_row(enum model_failure failure);

/* Classifies a failure by HTTP status, or by the provider's error names (NULL: none) where they are
 * more specific. */
enum model_failure model_failure_of(int status, const char *type, const char *code);

/* Classifies an answer with an error status by its body, if possible. */
enum model_failure model_failure_read(int status, const char *body, size_t n, struct err *err);

/* Sets *err and returns -1; `detail` (may be NULL) is the provider's text, shown in part. */
int model_failure_err(enum model_failure failure, const char *detail, struct err *err);
