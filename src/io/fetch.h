/*
 * An HTTP client with TLS on the loop, based on libcurl.
 *
 * Certificates are verified, redirects are not followed, and only the proxy given here is used,
 * whatever the environment says. A body is delivered in pieces. Everything runs on the loop's
 * thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/secret.h"
#include "io/http.h"
#include "io/loop.h"

struct fetcher;
struct fetch;

struct fetcher_config {
    const char *proxy;   /* NULL: none */
    const char *ca_file; /* NULL: the certificate authorities of the system */
};
struct fetcher *fetcher_new(struct loop *loop, const struct fetcher_config *config,
                            struct err *err);
/* Cancels all fetches without callbacks. Do not call it from a callback. */
void fetcher_free(struct fetcher *f);

/* A request. A limit of 0 means the default, which its comment names. */
struct fetch_request {
    const char *method, *url;
    const struct http_pair *fields; /* NULL: none */
    const char *secret_field;       /* such as "Authorization"; value: secret_lead, then secret */
    const char *secret_lead;        /* "Bearer " */
    const struct secret *secret;    /* NULL: no secret is sent */
    const void *body;               /* copied */
    size_t n;
    unsigned connect_ms; /* default: 15000 */
    unsigned idle_ms;    /* time without a byte of the answer; default: 120000 */
    unsigned total_ms;   /* default: no limit */
    uint64_t max_bytes;  /* size of the answer; default: 64 MiB */
};

enum fetch_end {
    FETCH_DONE,    /* the whole answer was received, whatever its status */
    FETCH_STOPPED, /* on_bytes stopped the fetch */
    FETCH_CONNECT, /* no connection: the request was not sent */
    FETCH_TRUST,   /* the certificate is not trusted: the request was not sent */
    FETCH_TIMEOUT,
    FETCH_CUT,   /* the connection ended early, or the answer was not HTTP */
    FETCH_LARGE, /* the answer has more than max_bytes */
};

/* Callbacks of a fetch. All except on_end may be NULL. */
struct fetch_events {
    void (*on_head)(void *arg, const struct fetch *f, int status);
    bool (*on_bytes)(void *arg, const char *bytes, size_t n);
    /* The fetch is freed when this returns. `why` is libcurl's message, possibly empty. */
    void (*on_end)(void *arg, enum fetch_end end, const char *why);
};

int fetch_start(struct fetcher *fetcher, const struct fetch_request *request,
                const struct fetch_events *events, void *arg, struct fetch **ret, struct err *err);

/*
 * Cancels a fetch: no callback follows. May be called anywhere, also in its callbacks except
 * on_end.
 */
void fetch_cancel(struct fetch *f);

/*
 * The value of the last header field of that name, or NULL. Call it only in on_head or later
 * callbacks. Valid until the callback returns.
 */
const char *fetch_field(const struct fetch *f, const char *name);
/* How many header fields have that name; for the same callbacks. */
size_t fetch_field_count(const struct fetch *f, const char *name);
