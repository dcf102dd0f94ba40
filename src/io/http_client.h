/*
 * A small blocking HTTP/1.1 client over a unix socket or plain TCP, for the command line.
 *
 * One request at a time: http_client_send(), (its streamed body,) http_client_answer(), then the
 * answer's body to its end; after that the connection serves the next request. A connection that
 * the server has closed is opened again. No TLS and no resolver: the client links statically.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "io/http.h"

struct http_client;

enum { HTTP_CLIENT_FDS_MAX = 24 };

/* NULL with *err; `not_found` if no server listens on the socket. */
struct http_client *http_client_unix(const char *path, struct err *err);
/* `host` is a numeric address or "localhost". */
struct http_client *http_client_tcp(const char *host, uint16_t port, struct err *err);
void http_client_free(struct http_client *c);
void http_client_freep(struct http_client **c);

/* The limit of each single wait; < 0, the default: no limit. */
void http_client_set_timeout(struct http_client *c, int timeout_ms);

struct http_request {
    const char *method, *target; /* target: path and query, percent-encoded */
    const struct http_pair *fields;
    const void *body;
    size_t n;
    bool streamed;  /* the body is sent with http_client_write(); `body` is ignored */
    const int *fds; /* unix socket only; the caller may close them after the call */
    size_t nfds;
};

/*
 * Sends a request; adds Host, lengths and Carrel-Fds. Discards the unread rest of the previous
 * answer.
 */
int http_client_send(struct http_client *c, const struct http_request *request, struct err *err);

/*
 * Sends a part of the streamed body. If the server stops reading, that is not an error here: its
 * answer says why. A caller that streams in both directions must also read, or both sides may wait
 * without end.
 */
int http_client_write(struct http_client *c, const void *bytes, size_t n, struct err *err);
int http_client_finish(struct http_client *c, struct err *err);

/*
 * Waits for the head of the answer, which is valid until the next request. `unknown` if the
 * connection closed without an answer: the request may or may not have been carried out.
 */
int http_client_answer(struct http_client *c, const struct http_head **ret, struct err *err);

/* Reads the next piece of the body, valid until the next call. 1, 0 at the end, or -1. */
int http_client_read(struct http_client *c, const char **ret, size_t *ret_n, struct err *err);
/* Reads the whole body; `limit` if it does not fit into the buffer. */
int http_client_collect(struct http_client *c, struct buf *to, struct err *err);

/* Gives the caller the descriptors that came with the answer. Returns their number. */
size_t http_client_take_fds(struct http_client *c, int fds[HTTP_CLIENT_FDS_MAX]);

/* For poll(). Check http_client_has_more() first: poll() does not see bytes in the buffer. */
int http_client_fd(const struct http_client *c);
bool http_client_has_more(const struct http_client *c);

/*
 * Raw bytes of the connection after an answer such as 101. http_client_read_raw() returns 1 with
 * some bytes, 0 at the end, or -1; `timeout` if no bytes came in time.
 */
int http_client_read_raw(struct http_client *c, int timeout_ms, char **ret, size_t *ret_n,
                         struct err *err);
int http_client_write_raw(struct http_client *c, const void *bytes, size_t n, struct err *err);
