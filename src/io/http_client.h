/*
 * A small blocking HTTP/1.1 client over a unix socket or plain TCP, for the command line.
 *
 * One request at a time: http_client_send(), (its streamed body,) http_client_answer(), then the
 * answer's body to its end; after that the connection serves the next request. One that the server
 * has closed meanwhile is opened again. No TLS and no resolver: this links into a static program.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "io/http.h"

struct http_client;

enum { HTTP_CLIENT_FDS_MAX = 24 };

/* NULL with *err; nobody listening there is `not_found`. */
struct http_client *http_client_unix(const char *path, struct err *err);
/* `host` is a numeric address or "localhost". */
struct http_client *http_client_tcp(const char *host, uint16_t port, struct err *err);
void http_client_free(struct http_client *c);
void http_client_freep(struct http_client **c);

/* How long any single wait may take; < 0, the default: for ever. */
void http_client_set_timeout(struct http_client *c, int timeout_ms);

struct http_request {
    const char *method, *target; /* the target as it goes over the wire, encoded */
    const struct http_pair *fields;
    const void *body;
    size_t n;
    bool streamed;  /* the body comes by http_client_write(); `body` is not looked at */
    const int *fds; /* unix only; they stay the caller's, and may be closed after the call */
    size_t nfds;
};

/* Host, lengths and Carrel-Fds are added. The rest of the answer before this one is thrown away. */
int http_client_send(struct http_client *c, const struct http_request *request, struct err *err);

/*
 * The streamed body. A server that does not want the rest is no error here: its answer says so.
 * Who streams both ways must read as well, or both sides may wait for ever.
 */
int http_client_write(struct http_client *c, const void *bytes, size_t n, struct err *err);
int http_client_finish(struct http_client *c, struct err *err);

/*
 * Waits for the head, which lives until the next request. `unknown` when the connection ended
 * without one: the request may or may not have been carried out.
 */
int http_client_answer(struct http_client *c, const struct http_head **ret, struct err *err);

/* The next piece of the body, dead at the next call. 1, 0 at the end, -1. */
int http_client_read(struct http_client *c, const char **ret, size_t *ret_n, struct err *err);
/* The whole of it; `limit` when it does not fit into the buffer. */
int http_client_collect(struct http_client *c, struct buf *to, struct err *err);

/* Descriptors that came with the answer; they are the caller's from here. Returns how many. */
size_t http_client_take_fds(struct http_client *c, int fds[HTTP_CLIENT_FDS_MAX]);

/* For poll(): but something may be here already, which poll() does not see. */
int http_client_fd(const struct http_client *c);
bool http_client_has_more(const struct http_client *c);

/*
 * Below HTTP, once the answer was 101 or the like: what else came on the connection. Read gives 1
 * and some bytes, 0 at the end, -1; `timeout` when none came in time.
 */
int http_client_read_raw(struct http_client *c, int timeout_ms, char **ret, size_t *ret_n,
                         struct err *err);
int http_client_write_raw(struct http_client *c, const void *bytes, size_t n, struct err *err);
