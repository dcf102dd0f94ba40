/*
 * An HTTP client in the loop, with TLS: libcurl's sockets and times are the loop's.
 *
 * Certificates are checked, redirects are not followed, and no proxy is used but the one given
 * here, whatever the environment says. A body comes in pieces as it arrives. Everything happens on
 * the loop's thread.
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
    const char *ca_file; /* NULL: the system's authorities */
};
struct fetcher *fetcher_new(struct loop *loop, const struct fetcher_config *config,
                            struct err *err);
/* What is under way ends without a word. Not from inside a callback. */
void fetcher_free(struct fetcher *f);

/* Zero means the default behind it. */
struct fetch_request {
    const char *method, *url;
    const struct http_pair *fields; /* NULL: none */
    const char *secret_field;       /* "Authorization"; its value is lead and secret */
    const char *secret_lead;        /* "Bearer " */
    const struct secret *secret;    /* NULL: no such field */
    const void *body;               /* copied */
    size_t n;
    unsigned connect_ms; /* 15000 */
    unsigned idle_ms;    /* 120000 without a byte of the answer */
    unsigned total_ms;   /* no limit */
    uint64_t max_bytes;  /* 64 MiB of answer */
};

enum fetch_end {
    FETCH_DONE,    /* the whole answer, whatever its status */
    FETCH_STOPPED, /* on_bytes had enough */
    FETCH_CONNECT, /* nobody there: the request was never sent */
    FETCH_TRUST,   /* the certificate is not good: the request was never sent */
    FETCH_TIMEOUT,
    FETCH_CUT,   /* the connection ended in the middle, or what came was not HTTP */
    FETCH_LARGE, /* more than max_bytes */
};

/* All but on_end may be NULL. */
struct fetch_events {
    void (*on_head)(void *arg, const struct fetch *f, int status);
    bool (*on_bytes)(void *arg, const char *bytes, size_t n);
    /* The fetch is gone when this returns. `why` is a sentence of libcurl's, perhaps empty. */
    void (*on_end)(void *arg, enum fetch_end end, const char *why);
};

int fetch_start(struct fetcher *fetcher, const struct fetch_request *request,
                const struct fetch_events *events, void *arg, struct fetch **ret, struct err *err);

/* No callback any more. From anywhere, also from inside its own callbacks but on_end. */
void fetch_cancel(struct fetch *f);

/* From on_head on: the last field of that name, or NULL. Dead when the callback returns. */
const char *fetch_field(const struct fetch *f, const char *name);
