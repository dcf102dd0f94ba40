/*
 * Requests to a registry, with libcurl: blocking, one at a time.
 *
 * Credentials go to the registry's own scheme, host and port, and to the token server that it
 * names; never to a host that a redirect leads to. A redirect keeps the scheme or goes to https.
 * Plain http is used only for this computer, or with `insecure`.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "registry/reference.h"

enum { REGISTRY_URL_SIZE = 4096, REGISTRY_ANSWER_MAX = 64 << 10 };

struct registry;

/* `actions` is "pull" or "pull,push": the rights that a token is requested for. */
struct registry *registry_open(const struct reference *ref, const char *actions, bool insecure,
                               struct err *err);
void registry_close(struct registry **r);

/* Writes the URL of the registry and a path below /v2/REPOSITORY/. */
int registry_url(const struct registry *r, char ret[REGISTRY_URL_SIZE], struct err *err,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Gets the bytes of a successful answer; false stops the request. */
typedef bool registry_sink(void *arg, long status, const char *bytes, size_t n);

struct registry_request {
    const char *method;
    const char *url;
    const char *const *fields; /* "Name: value", ends with NULL; NULL: none */
    const void *body;          /* NULL: none */
    size_t n;
    registry_sink *sink; /* NULL: the bytes go to the answer's body */
    void *arg;
    uint64_t max_bytes; /* of the body without a sink */
};

struct registry_answer {
    long status;
    bool is_cut;   /* the connection failed: *err says how, and `status` may be 0 */
    bool is_large; /* the body was larger than max_bytes */
    struct buf body;
    char location[REGISTRY_URL_SIZE]; /* absolute; empty: none */
    char digest[REFERENCE_DIGEST_SIZE];
    char range[64], content_range[64];
};
void registry_answer_done(struct registry_answer *a);

/*
 * Sends a request; authenticates and follows redirects of GET and HEAD as needed. -1 with *err if
 * no answer came (then is_cut is set) or a rule was broken. An answer of any status is 0.
 */
int registry_call(struct registry *r, const struct registry_request *q, struct registry_answer *ret,
                  struct err *err);

/* The error for an answer that is not expected: what the registry said. */
int registry_refused(const struct registry_answer *a, const char *what, struct err *err);

/* Waits before the next attempt; false: `attempt` was the last one. */
bool registry_wait(unsigned attempt);
